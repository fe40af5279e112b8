package release

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write docs/releases.md anew")

// TestPage: the page is the table.
func TestPage(t *testing.T) {
	const page = "../../docs/releases.md"
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != Markdown() {
		t.Errorf("%s is not the table (%v): go test ./slurm/release -update", page, err)
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]Version{"slurm-wlm 22.05.8\n": {22, 5, 8}, "slurm 24.11.5": {24, 11, 5}, "slurm 20.11.4": {20, 11, 4}, "slurm 23.11.0-0rc1": {23, 11, 0}} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got := OfNumber(0x160508); got != (Version{22, 5, 8}) {
		t.Errorf("0x160508 is %v", got)
	}
	if _, err := Parse("no number"); err == nil {
		t.Error("no error")
	}
	rapid.Check(t, func(t *rapid.T) {
		v := Version{rapid.IntRange(20, 26).Draw(t, "major"), rapid.IntRange(1, 12).Draw(t, "minor"), rapid.IntRange(0, 30).Draw(t, "micro")}
		again, err := Parse(v.String())
		if err != nil || again != v || !v.AtLeast(v.Major, v.Minor, v.Micro) || v.AtLeast(v.Major, v.Minor, v.Micro+1) || v.AtLeast(v.Major+1, 0, 0) {
			t.Fatalf("%s: %s %v", strconv.Quote(v.String()), again, err)
		}
	})
}

// TestNamesAreReleases: the list and its ends say the same.
func TestNamesAreReleases(t *testing.T) {
	var last Version
	for _, name := range Names {
		v, err := Parse(name)
		if err != nil || v.Untried() != "" || !v.AtLeast(last.Major, last.Minor, 1) && last != (Version{}) && v.Same(last) {
			t.Errorf("%s: %v %q", name, err, v.Untried())
		}
		last = v
	}
	if first, _ := Parse(Names[0]); first != Oldest || last != Newest {
		t.Errorf("%s to %s, not %s to %s", Oldest, Newest, Names[0], Names[len(Names)-1])
	}
	for text, want := range map[string]string{"20.02.7": "older than 20.11", "26.11.0": "newer than 26.05", "30.05.1": "newer", "26.05.9": "", "20.11.0": "", "21.08.8": ""} {
		v, err := Parse(text)
		if got := v.Untried(); err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestChanges: the table is in order, complete in itself, and each change begins where it says.
func TestChanges(t *testing.T) {
	for _, list := range [][]*Change{Changes, Met} {
		if !slices.IsSortedFunc(list, func(a, b *Change) int {
			switch {
			case a.Since == b.Since:
				return 0
			case a.In(b.Since):
				return -1
			}
			return 1
		}) {
			t.Error("not the oldest first")
		}
		for _, c := range list {
			before := Version{c.Since.Major, c.Since.Minor, c.Since.Micro - 1}
			if c.What == "" || c.Source == "" || !c.In(c.Since) || c.In(before) || !c.In(Newest) && c.Since != Newest {
				t.Errorf("%+v", c)
			}
		}
	}
	for text, want := range map[string]string{"20.11.9": "", "21.08.0": "gres:", "23.02.8": "gres:", "23.11.0": "gres/", "26.05.3": "gres/", "27.05.0": "gres/"} {
		if v, err := Parse(text); err != nil || v.Prefix() != want {
			t.Errorf("%s: %q", text, v.Prefix())
		}
	}
}

// TestThePluginBranchesWhereTheTableSays: the plugin is C and has its branches in the preprocessor, which knows no table.
func TestThePluginBranchesWhereTheTableSays(t *testing.T) {
	branch := regexp.MustCompile(`SLURM_VERSION_NUMBER >= 0x([0-9a-f]{6})`)
	for file, word := range map[string]string{"job_describe.c": "prefer", "plugin.c": "job_modify"} {
		text, err := os.ReadFile("../plugin/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := branch.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s has no branch", file)
		}
		for _, m := range found {
			n, err := strconv.ParseUint(m[1], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(slices.Concat(Changes, Met), func(c *Change) bool {
				return c.Since == OfNumber(uint32(n)) && strings.Contains(c.What, word) && strings.Contains(c.What, file)
			}) {
				t.Errorf("%s branches at %s, and the table does not say so", file, OfNumber(uint32(n)))
			}
		}
	}
}

// TestBeside: which commands a slurmctld answers.
func TestBeside(t *testing.T) {
	for _, c := range []struct{ commands, controller, want string }{
		{"24.05.8", "24.05.1", ""}, {"22.05.8", "24.05.8", "too old"}, {"23.02.8", "24.05.8", "takes them"}, {"20.11.4", "22.05.8", "takes them"}, {"20.11.4", "23.02.8", "too old"}, {"22.05.8", "23.11.1", "takes them"},
		{"23.02.8", "24.11.5", "takes them"}, {"22.05.8", "24.11.5", "too old"}, {"24.11.5", "24.05.8", "newer than slurmctld"}, {"26.05.5", "20.11.4", "newer than slurmctld"}, {"24.11.5", "26.05.5", "takes them"},
		{"26.05.5", "26.11.0", "takes them"}, {"26.11.0", "26.05.5", "newer"},
	} {
		commands, _ := Parse(c.commands)
		controller, _ := Parse(c.controller)
		if got := Beside(commands, controller); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("commands of %s, slurmctld %s: %q, want %q", c.commands, c.controller, got, c.want)
		}
	}
}

// FuzzParse: no text crashes it, and what it reads is a release.
func FuzzParse(f *testing.F) {
	f.Add("slurm-wlm 22.05.8")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse(text)
		if again, err2 := Parse(v.String()); err == nil && (err2 != nil || again != v) {
			t.Errorf("%q: %v", text, v)
		}
		_, _ = v.Untried(), Beside(v, Newest)
	})
}
