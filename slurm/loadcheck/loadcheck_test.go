package loadcheck

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/slurm/release"
)

const slurmctld = "/usr/sbin/slurmctld"

// machine is the release of this machine and a plugin for it.
func machine(t *testing.T) (release.Version, string) {
	t.Helper()
	out, err := exec.Command(slurmctld, "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	v, err := release.Parse(string(out))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "../plugin", "OUT="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return v, filepath.Join(dir, FileName)
}

func TestCheck(t *testing.T) {
	version, plugin := machine(t)
	good, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	other := func(change func(*release.Version)) []byte {
		v := version
		change(&v)
		edited := bytes.ReplaceAll(good, Stamp(version), Stamp(v))
		if bytes.Equal(edited, good) {
			t.Fatal("the stamp is not in the file")
		}
		return edited
	}
	for _, c := range []struct {
		name, conf string
		file       []byte
		refused    bool
		says       string
	}{
		{"its own release", "JobSubmitPlugins=lua,gresize\n", good, false, "names gresize, as the last"},
		{"another micro", "JobSubmitPlugins=gresize,lua # gresize\n", other(func(v *release.Version) { v.Micro++ }), false, "takes that number over"},
		{"another minor", "", other(func(v *release.Version) { v.Minor++ }), true, "would not start with it"},
		{"another major", "", other(func(v *release.Version) { v.Major += 2 }), true, "would not start with it"},
		{"text", "", []byte("#!/bin/sh\n"), true, "no shared object"},
		{"cut short", "", good[:len(good)/3], true, ""},
		{"empty", "", nil, true, "no shared object"},
		{"another plugin", "", bytes.Replace(good, []byte("job_submit/gresize\x00"), []byte("job_submit/gresiz3\x00"), 1), true, "is not job_submit/gresize"},
		{"a function that Slurm lacks", "", bytes.ReplaceAll(good, []byte("slurm_xcalloc\x00"), []byte("slurm_xcallod\x00")), true, "has no slurm_xcallod"},
		{"not named", "# JobSubmitPlugins=gresize\n", good, false, "does not name gresize"},
		{"not the last", "jobsubmitplugins=job_submit/gresize,lua\n", good, false, "put gresize last"},
		{"blanks around the equals sign", "JobSubmitPlugins = gresize # ours\n", good, false, "names gresize, as the last"},
		{"in quotes", "JobSubmitPlugins=\"lua,gresize\"\n", good, false, "names gresize, as the last"},
		{"a line that goes on", "ClusterName=c JobSubmitPlugins=lua,\\\ngresize\n", good, false, "names gresize, as the last"},
		{"included", "ClusterName=Mine\nInclude %c.conf\n", good, false, "names gresize, as the last"},
		{"included and then replaced", "ClusterName=mine\ninclude mine.conf\nJobSubmitPlugins=lua\n", good, false, "JobSubmitPlugins 2 times, of which slurmctld takes the last: lua\nnote: "},
		{"an included file that is not there", "JobSubmitPlugins=gresize\nInclude nothing.conf\n", good, false, "nothing.conf: no such file"},
		{"a file that includes itself", "JobSubmitPlugins=gresize\nInclude slurm.conf\n", good, false, "more than 64 files"},
		{"a blank behind the comma", "JobSubmitPlugins=\"lua, gresize\"\n", good, false, "with a blank, for which slurmctld finds no file"},
		{"named twice", "JobSubmitPlugins=gresize,lua,job_submit/gresize\n", good, false, "names gresize more than once"},
		{"a comment that is none", "Epilog=/a\\#b JobSubmitPlugins=gresize\n", good, false, "names gresize, as the last"},
		{"elsewhere", "PluginDir=/nonexistent JobSubmitPlugins=gresize\n", good, false, "will not find"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path, conf := filepath.Join(dir, FileName), filepath.Join(dir, "slurm.conf")
			if err := os.WriteFile(path, c.file, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(conf, []byte(c.conf), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "mine.conf"), []byte("JobSubmitPlugins=lua,gresize\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			r, err := Check(t.Context(), Options{Plugin: path, Slurmctld: slurmctld, Conf: conf})
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, f := range r.Findings {
				said = append(said, string(f.Level)+": "+f.Text)
			}
			if text := strings.Join(said, "\n"); r.Refused() != c.refused || !strings.Contains(text, c.says) {
				t.Errorf("refused %v, want %v and %q:\n%s", r.Refused(), c.refused, c.says, text)
			}
		})
	}
}

func TestWhatCannotBeLookedAt(t *testing.T) {
	for _, o := range []Options{{Plugin: "/nonexistent.so", Slurmctld: slurmctld}, {Plugin: slurmctld, Slurmctld: "/nonexistent"}, {Plugin: slurmctld, Slurmctld: "/bin/true"}} {
		if r, err := Check(t.Context(), o); err == nil {
			t.Errorf("%+v: %+v", o, r)
		}
	}
	if r, err := Check(t.Context(), Options{Plugin: "/", Slurmctld: slurmctld}); err != nil || !r.Refused() {
		t.Errorf("a folder: %+v %v", r, err)
	}
}

func FuzzConf(f *testing.F) {
	f.Add([]byte("ClusterName=c\nJobSubmitPlugins = \"lua,gresize\" \\\n# x\nInclude x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "slurm.conf")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readConf(path); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCommands: slurmctld takes the commands of its own release and of older ones, and refuses newer ones.
func TestCommands(t *testing.T) {
	running, plugin := machine(t)
	newer, older := running, running
	newer.Major, older.Major, older.Minor = running.Major+3, 21, 8
	for _, c := range []struct {
		version, want string
		level         finding.Level
	}{
		{running.String(), "is of the same release", OK}, {newer.String(), "which refuses them", Note}, {older.String(), "which takes them", Note},
	} {
		scontrol := filepath.Join(t.TempDir(), "scontrol")
		if err := os.WriteFile(scontrol, []byte("#!/bin/sh\necho slurm-wlm "+c.version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := Check(t.Context(), Options{Plugin: plugin, Slurmctld: slurmctld, Scontrol: scontrol})
		last := r.Findings[len(r.Findings)-2] // the last is of squeue
		if err != nil || r.Refused() || last.Level != c.level || !strings.Contains(last.Text, c.want) {
			t.Errorf("scontrol %s: %+v %v, want %q", c.version, last, err, c.want)
		}
	}
	if r, err := Check(t.Context(), Options{Plugin: plugin, Slurmctld: slurmctld, Scontrol: "/bin/true"}); err != nil || !strings.Contains(r.Findings[len(r.Findings)-1].Text, "it is not known whether") {
		t.Errorf("%+v %v", r, err)
	}
}
