package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/internal/finding"
)

// place is an installation in a folder: a Slurm of shell scripts and the sockets that a test wants.
type place struct {
	t   *testing.T
	dir string
}

func (p place) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p place) listen(name string) {
	p.t.Helper()
	l, err := net.Listen("unix", filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { l.Close() })
}

const table = "[gpu.gpu80g]\nprofile = \"a100-80\"\n[[target]]\nfits = \"70GiB\"\nconstraint = \"gpu80g\"\n"

// TestNextStep takes an installation from nothing to the place where only a job is missing: each time the next step is the one thing that is in the way.
func TestNextStep(t *testing.T) {
	p := place{t, t.TempDir()}
	conf := filepath.Join(p.dir, "gresize.toml")
	step := func(want string) Report {
		t.Helper()
		r := Check(t.Context(), Options{Config: conf})
		if !strings.Contains(r.Next, want) {
			t.Errorf("next: %q, want %q\n%+v", r.Next, want, r.Findings)
		}
		return r
	}
	step("cp /usr/share/doc/gresize/gresize.toml")
	p.write("gresize.toml", "version = 1\nmod = 1\n")
	step("gresized -check")
	text := fmt.Sprintf("version = 1\n%s[slurm]\nscontrol = %q\n[socket]\npath = %q\n[log]\npath = %q\n[probe]\npartition = \"cpu\"\nlaunch_socket = %q\n", table, filepath.Join(p.dir, "scontrol"),
		filepath.Join(p.dir, "submit"), filepath.Join(p.dir, "db"), filepath.Join(p.dir, "launch"))
	p.write("gresize.toml", text)
	step("systemctl status slurmctld")
	scontrol := func(plugins string) string {
		return "#!/bin/sh\ncase $1 in --version) echo slurm 24.11.5;; show) echo 'JobSubmitPlugins        = " + plugins + "';; esac\n"
	}
	p.write("scontrol", scontrol("lua"))
	p.write("squeue", "#!/bin/sh\nexit 1\n")
	step("the squeue beside slurm.scontrol")
	p.write("squeue", "#!/bin/bash\nfor w; do case $w in --Format=*) f=${w#*=};; esac; done\nIFS=,; for c in $f; do printf '%*s' \"${c#*:.}\" x; done; echo\n")
	step("JobSubmitPlugins=gresize in slurm.conf")
	p.write("scontrol", scontrol("lua,gresize"))
	step("systemctl enable --now gresized")
	p.listen("submit")
	step("systemctl enable --now gresize-launch")
	p.listen("launch")
	p.write("sinfo", "#!/bin/sh\necho 'up down* 3'; echo 'up drain 1'\n")
	step("probe.partition")
	p.write("sinfo", "#!/bin/sh\necho 'up idle 3'; echo 'up mix 1'\n")
	r := step("decision log: journalctl")
	found := map[string]finding.Level{}
	for _, f := range r.Findings {
		found[f.Name] = f.Level
	}
	for name, want := range map[string]finding.Level{"configuration": finding.OK, "plugin": finding.Note, "slurmctld": finding.OK, "gresized": finding.OK, "gresize-launch": finding.OK, "probe partition": finding.OK, "probe": finding.Note, "page": finding.OK} {
		if found[name] != want {
			t.Errorf("%s: %q, want %q", name, found[name], want)
		}
	}
}
