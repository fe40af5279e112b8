package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAllFaultsAtOnce: one look at a file names everything that can be told from it, in the order of its lines, and nothing that only follows from another fault.
// TestFaultInItsRow: of a key that several rows have, the one that is wrong is named, and no other.
func TestFaultInItsRow(t *testing.T) {
	for text, want := range map[string]string{
		"version = 1\n[[target]]\nfits = \"80GB\"\nconstraint = \"a\"\n[[target]]\nfits = \"90GiB\"\nconstraint = \"b\"\n": `f:3:9: target.fits: size "80GB"`,
		"version = 1\n[[target]]\nfits = \"8GiB\"\nconstraint = \"a\"\n[[target]]\nfits = \"90GB\"\nconstraint = \"b\"\n":  `f:6:9: target.fits: size "90GB"`,
		"version = 1\n[[target]]\nfits = 8\nconstraint = \"a\"\n[[target]]\nfits = \"90GiB\"\nconstraint = \"b\"\n":        "f:3:",
		"version = 1\n[[estimator]]\nname = \"vgpu\"\ntimeout = \"5\"\n[[estimator]]\nname = \"xmem\"\ntimeout = \"5s\"\n": `f:4:12: estimator.timeout: "5" is no time`,
	} {
		_, err := Parse("f", text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
	two := "version = 1\n[[target]]\nfits = \"80GB\"\nconstraint = \"a\"\n[[target]]\nfits = \"80GB\"\nconstraint = \"b\"\n"
	if _, err := Parse("f", two); err == nil || !strings.Contains(err.Error(), "f:3:9") || !strings.Contains(err.Error(), "f:6:9") {
		t.Errorf("two faults: %v", err)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	lines := func(text ...string) string { return strings.Join(text, "\n") + "\n" }
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"values", lines(`version = 1`, `mode = "on"`, `[probe]`, `steps = 0`, `cpus = 0`, `listen = "127.0.0.1:0"`, `[jobs]`, `users = ["a b", "c d"]`),
			[]string{":2:1: mode: ", ":4:1: probe.steps: ", ":5:1: probe.cpus: ", ":6:1: probe.listen: ", `:8:1: jobs.users: "a b"`, `:8:1: jobs.users: "c d"`}},
		{"keys and values", lines(`version = 1`, `mood = "off"`, `[probe]`, `hlod = "60s"`, `stpes = 3`, `cpus = 0`),
			[]string{":2:1: mood: unknown key (did you mean mode?)", ":4:1: probe.hlod: ", ":5:1: probe.stpes: ", ":6:1: probe.cpus: "}},
		{"an unknown table by its name alone", lines(`version = 1`, `[prob]`, `hold = "60s"`, `steps = 1`, `[log]`, `keep_days = -1`),
			[]string{":2:1: prob: unknown key", ":6:1: log.keep_days: "}},
		{"wrong kinds", lines(`version = 1`, `mode = 3`, `[probe]`, `hold = "60"`, `cpus = "two"`, `steps = 0`, `[[target]]`, `fits = "20"`, `constraint = "a b"`),
			[]string{":2:1: mode: ", ":4:9: probe.hold: ", ":5:1: probe.cpus: ", ":6:1: probe.steps: ", ":8:9: target.fits: ", ":9:1: target[0].constraint: "}},
		{"a key twice, and a value", lines(`version = 1`, `mode = "off"`, `mode = "shadow"`, `[probe]`, `steps = 0`),
			[]string{":3:14: mode: ", ":5:1: probe.steps: "}},
		{"what a misspelt key leaves out is not missing", lines(`version = 1`, `mode = "enforce"`, `[[target]]`, `fit = "2GiB"`, `constraint = "a"`),
			[]string{":4:1: target.fit: unknown key (did you mean fits?)"}},
		{"a misspelt version is none", lines(`verison = 1`, `mode = "on"`), []string{":1:1: verison: ", ":2:1: mode: "}},
		{"a hold that is none is not compared", lines(`version = 1`, `[probe]`, `hold = "1s"`, `budget = "2m"`), []string{":3:1: probe.hold: "}},
		{"nothing else of another version", lines(`version = 2`, `mode = "on"`, `[new]`, `key = 1`), []string{":1:1: version: is 2"}},
		{"behind a text without an end nothing is read", lines(`version = 1`, `mode = "on`, `[probe]`, `steps = 0`), []string{":2:"}},
		{"a list of several lines with a wrong kind ends it", lines(`version = 1`, `mode = "on"`, `[jobs]`, `users = [`, `  3,`, `]`), []string{":4:1: jobs.users: "}},
		{"rows", lines(`version = 1`, `[[target]]`, `fits = "2GiB"`, `[[target]]`, `constraint = "b"`, `[[target]]`, `fits = "1GiB"`, `gres = "gpu"`, `[[estimator]]`, `name = "oracle"`, `[[estimator]]`, `name = "a b"`, `timeout = "1h"`),
			[]string{":2:1: target[0].gres: the row says nothing", ":4:1: target[1].fits: missing", `:8:1: target[2].gres: "gpu"`, ":10:1: estimator[0].name: ", ":12:1: estimator[1].name: ", ":13:1: estimator[1].timeout: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f", c.text)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatal(err)
			}
			got := strings.Split(faults.Error(), "\n")
			if len(got) != len(c.says) {
				t.Fatal(cmp.Diff(c.says, got))
			}
			for i, says := range c.says {
				if !strings.HasPrefix(got[i], "f"+says) {
					t.Errorf("%q does not begin with %q", got[i], "f"+says)
				}
			}
		})
	}
}

// TestFaultsAreBounded: a file full of faults is answered quickly and briefly, whatever finds them.
func TestFaultsAreBounded(t *testing.T) {
	var unknown, kinds strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&unknown, "k%d = 1\n", i)
	}
	kinds.WriteString("version = 1\n")
	for range 200 {
		kinds.WriteString("[[target]]\nfits = 3\n")
	}
	for name, text := range map[string]string{
		"keys": "version = 1\n" + unknown.String(), "kinds": kinds.String(),
		"names": "version = 1\n[jobs]\nusers = [" + strings.Repeat(`"a b",`, 20000) + "]\n",
	} {
		_, err := Parse("f", text)
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != maxFaults+1 {
			t.Fatalf("%s: %d faults: %.300v", name, len(faults), err)
		}
		if last := faults[maxFaults].Error(); last != "f: more faults than these 32 (mend them first)" {
			t.Errorf("%s: %s", name, last)
		}
	}
}

// TestLaterFaultsAreAdded: what others find in a configuration stands among the faults of the file, by its line.
func TestLaterFaultsAreAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gresize.toml")
	if err := os.WriteFile(path, []byte("version = 1\ndefault_profile = \"none\"\nmode = \"on\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, faults := Examine(path)
	if c == nil || len(faults) != 1 {
		t.Fatalf("%v %v", c, faults)
	}
	all := faults.And(path, []*FileError{{Field: "default_profile", Problem: "no such card", Hint: "another one"}})
	want := fmt.Sprintf("%[1]s:2:1: default_profile: no such card (another one)\n%[1]s:3:1: mode: \"on\" is no mode (one of \"off\", \"shadow\", \"enforce\")", path)
	if all.Error() != want {
		t.Error(cmp.Diff(want, all.Error()))
	}
	many := make([]*FileError, 2*maxFaults)
	for i := range many {
		many[i] = &FileError{Field: "default_profile"}
	}
	if all := faults.And(path, many); len(all) != maxFaults+1 {
		t.Errorf("%d faults", len(all))
	}
}

// TestNearestKey: a key of its own table is proposed before one that looks more like it elsewhere, and of another table its name is said.
func TestNearestKey(t *testing.T) {
	for key, want := range map[string]string{"mood": "mode", "hold": "probe.hold", "probe.hlod": "hold", "gpu.a100.profil": "profile", "target.gress": "gres", "probe.keep_days": "log.keep_days", "prob": "probe"} {
		if got := nearest(strings.Split(key, ".")); got != "did you mean "+want+"?" {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if got := nearest([]string{"entirely_unheard_of"}); !strings.HasPrefix(got, "remove it") {
		t.Error(got)
	}
}
