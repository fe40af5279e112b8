package replay

import (
	"os"
	"path/filepath"
	"testing"
)

// sharedData finds the large recorded data outside the repository, or returns "".
func sharedData(t *testing.T) string {
	dir := os.Getenv("GRESIZE_SHARED")
	if dir == "" {
		dir = "../../../../shared"
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Logf("%s is not there: only the traces in testdata are checked (set GRESIZE_SHARED)", dir)
		return ""
	}
	return dir
}

func oracleFiles(t *testing.T) []string {
	files, err := filepath.Glob("testdata/*.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	if dir := sharedData(t); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "data/allocator_oracle/*.txt.gz"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no oracle traces in %s: %v", dir, err)
		}
		files = append(files, more...)
	}
	return files
}

func TestOracleTracesHaveNoDifference(t *testing.T) {
	files := oracleFiles(t)
	if len(files) == 0 {
		t.Fatal("no traces at all")
	}
	total := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			p, err := ReadOracle(f, filepath.Base(file))
			if err != nil {
				t.Fatal(err)
			}
			res, err := p.Check()
			if err != nil {
				t.Fatal(err)
			}
			if res.Differences != 0 {
				t.Errorf("%d differences; the first at %v", res.Differences, res.First)
			}
			if res.Events == 0 || res.Answers == 0 {
				t.Errorf("nothing was compared: %d events, %d answers", res.Events, res.Answers)
			}
			total += res.Events
		})
	}
	t.Logf("%d events compared", total)
}

// A comparison that cannot fail proves nothing: each kind of change must be seen.
func TestCheckSeesAWrongAnswer(t *testing.T) {
	read := func() *Program {
		f, err := os.Open("testdata/default_02.txt.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p, err := ReadOracle(f, "default_02")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	find := func(p *Program, ok func(a *Answer) bool) *Answer {
		for i := range p.Answers {
			if ok(&p.Answers[i]) {
				return &p.Answers[i]
			}
		}
		t.Fatal("the trace has no such answer")
		return nil
	}
	for name, spoil := range map[string]func(p *Program){
		"address": func(p *Program) { find(p, func(a *Answer) bool { return a.HasAddr }).Addr += 512 },
		"event":   func(p *Program) { find(p, func(a *Answer) bool { return len(a.Events) > 0 }).Events[0].SizeBytes++ },
		"lost event": func(p *Program) {
			a := find(p, func(a *Answer) bool { return len(a.Events) > 1 })
			a.Events = a.Events[1:]
		},
		"more events": func(p *Program) {
			a := find(p, func(a *Answer) bool { return len(a.Events) > 1 })
			a.Events = append(a.Events, a.Events[0])
		},
		"statistics":    func(p *Program) { find(p, func(a *Answer) bool { return len(a.Stats) > 0 }).Stats[0] += " x=1" },
		"out of memory": func(p *Program) { find(p, func(a *Answer) bool { return a.HasAddr }).OOM = true },
	} {
		t.Run(name, func(t *testing.T) {
			p := read()
			spoil(p)
			res, err := p.Check()
			if err != nil {
				t.Fatal(err)
			}
			if res.Differences == 0 || res.First == nil {
				t.Error("the change was not seen")
			}
		})
	}
}
