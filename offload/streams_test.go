package offload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// streamed is what testdata/streams.py says of a run with a plan: copies and what was held against its model of streams.
type streamed struct {
	Out, Back, Taken, Freed, Events, Waits int
	Wrong                                  []string
}

// streams are the options of a run of a program under the model; said reads what it wrote since.
func streams(t *testing.T, lib, card string, fault string, command ...string) (o probe.Options, said func() streamed) {
	t.Helper()
	profile, err := gpu.Load(card)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "streams.json")
	o = probe.Options{Command: append([]string{torchtest.Python(t, "2.6.0"), "streams.py"}, command...), Dir: "testdata", GPU: profile, Budget: 10 * time.Minute, LibDir: lib, NoSandbox: true,
		Devices: 1, Quick: true, Env: append(os.Environ(), "STREAMS="+report, "FAULT="+fault)}
	return o, func() (s streamed) {
		t.Helper()
		data, err := os.ReadFile(report)
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			t.Error(err)
		}
		if err := os.Remove(report); err != nil {
			t.Error(err)
		}
		return s
	}
}

// TestStreams: no buffer is read before its copy has ended, none is free or written while a copy reads it; each planted fault of the order is found.
func TestStreams(t *testing.T) {
	const mib = int64(1) << 20
	lib := libDir(t)
	for _, c := range []struct {
		program    string
		target     int64
		expandable bool
		faults     map[string]string
	}{
		{"deep.py", 700 * mib, false, map[string]string{"no wait": "in the program's hands", "leaves unwaited": "is free that a copy still reads", "comes unwaited": "in the program's hands that a copy still writes",
			"begins early": "a copy begins before"}},
		{"momentum.py", 1200 * mib, true, map[string]string{"no wait": "in the program's hands", "leaves unwaited": "is free that a copy still reads", "comes unwaited": "in the program's hands that a copy still writes",
			"begins early": "a copy begins before"}},
	} {
		o, said := streams(t, lib, "rtx3060", "", c.program)
		f, err := Fit(t.Context(), Request{Run: o, TargetBytes: c.target, Expandable: c.expandable, Link: swap.PublishedLink, Tell: func(string) {}})
		if err != nil || f.Plan == nil {
			t.Fatalf("%s: %v %+v", c.program, err, f)
		}
		s := said()
		if len(s.Wrong) > 0 || s.Out < 8 || s.Back < 8 || s.Taken < s.Back || s.Freed < 8 {
			t.Errorf("%s: %+v", c.program, s)
		}
		t.Logf("%s: %+v", c.program, s)
		if c.expandable && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue // the copies of the state are waited for as those of tensors are
		}
		for fault, says := range c.faults {
			o, said := streams(t, lib, "rtx3060", fault, c.program)
			if _, err := f.try(t.Context(), Request{Run: o}, f.Plan); err != nil {
				t.Log(err)
			}
			if s := said(); !strings.Contains(strings.Join(s.Wrong, "\n"), says) {
				t.Errorf("%s: %q is not found: %+v", c.program, fault, s)
			}
		}
	}
}

// TestStreamsOfPrograms: the same for the programs of tools/offload/table, each of which has a plan for a share of what it needs and runs with it on a card of that size. Plans that
// are there, in the folder that GRESIZE_OFFLOAD_PLANS names, are not made again.
func TestStreamsOfPrograms(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: thirteen programs, each of them two or three times")
	}
	data, err := os.ReadFile("../tools/offload/table")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(data), "programs=\"")
	rows, _, _ = strings.Cut(rows, "\"")
	lib, copies := libDir(t), 0
	programs := strings.Split(rows, "\n")
	if len(programs) < 12 {
		t.Fatalf("%d programs", len(programs))
	}
	for _, row := range programs {
		field := strings.SplitN(row, " ", 5)
		name, segments := field[0], field[3]
		share, err := strconv.ParseFloat(strings.TrimSuffix(field[1], "%"), 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			o, said := streams(t, lib, field[2], "", "../../tools/planning/program.py", name)
			q := Request{Run: o, Share: share / 100, Expandable: segments == "expandable", Link: swap.PublishedLink, Tell: func(string) {}}
			f := &Fitted{}
			var err error
			if folder := os.Getenv("GRESIZE_OFFLOAD_PLANS"); folder == "" {
				f, err = Fit(t.Context(), q)
			} else if plan, unread := ReadFile(filepath.Join(folder, name+".plan")); unread != nil {
				t.Skip(unread)
			} else {
				_, err = f.try(t.Context(), q, plan)
			}
			if err != nil || f.Plan == nil {
				t.Fatalf("%v %+v", err, f)
			}
			after, _ := f.After.Largest()
			if after.ComfortableBytes > f.Plan.TargetBytes {
				t.Errorf("%d bytes on a card of %d", after.ComfortableBytes, f.Plan.TargetBytes)
			}
			if f.Plan.Moves() == 0 {
				t.Logf("nothing moves")
				return
			}
			s := said()
			if copies += s.Out + s.Back; len(s.Wrong) > 0 || s.Out == 0 || s.Back == 0 {
				t.Errorf("%+v", s)
			}
			t.Logf("%d moves carried out, %+v", f.Carried.Moves+f.Carried.StateMoves, s)
		})
	}
	t.Logf("%d copies", copies)
}
