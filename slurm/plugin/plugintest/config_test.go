package plugintest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/wire"
)

// TestBadConfigTurnsThePluginOff also insists that slurmctld starts: the driver
// dies when init() fails.
func TestBadConfigTurnsThePluginOff(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"})
	cases := []struct{ name, conf, complaint string }{
		{"unknown key", "socket=" + path + "\n\nsokcet = /x\n", "plugin.conf:3: unknown key"},
		{"no equals sign", "enabled\n", "plugin.conf:1: expected key = value"},
		{"relative socket", "socket = run/s\n", "absolute path"},
		{"long socket", "socket = /" + strings.Repeat("x", 107) + "\n", "shorter than 108"},
		{"deadline over the cap", "deadline_ms = 1001\n", "from 1 to 1000"},
		{"deadline 0", "deadline_ms = 0\n", "from 1 to 1000"},
		{"deadline with a unit", "deadline_ms = 50ms\n", "from 1 to 1000"},
		{"enabled maybe", "enabled = maybe\n", "yes or no"},
		{"CPU jobs maybe", "tell_cpu_jobs = maybe\n", "tell_cpu_jobs must be yes or no"},
		{"too long", strings.Repeat("#\n", 3000), "longer than"},
		{"NUL", "enabled = yes\x00\n", "NUL"},
		{"off", "enabled = no\nsocket=" + path + "\n", "info: job_submit/gresize: off"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, sanitized, c.conf)
			checkOff(t, d, c.complaint)
		})
	}

	t.Run("writable by others", func(t *testing.T) {
		conf := filepath.Join(t.TempDir(), "plugin.conf")
		if err := os.WriteFile(conf, []byte("socket="+path+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(conf, 0o666); err != nil {
			t.Fatal(err)
		}
		checkOff(t, startWith(t, sanitized, conf), "writable by group or others")
	})
	t.Run("a folder", func(t *testing.T) {
		checkOff(t, startWith(t, sanitized, t.TempDir()), "not a regular file")
	})
	if received(requests) != nil {
		t.Error("the daemon was asked")
	}
}

func checkOff(t *testing.T, d *driver, complaint string) {
	t.Helper()
	d.tell(gpuJob()...)
	before := d.dump()
	d.submit()
	if d.dump() != before {
		t.Error("the job changed")
	}
	if log := d.stop(); !strings.Contains(log, complaint) {
		t.Errorf("log must say %q:\n%s", complaint, log)
	}
}

func TestConfigIsRead(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictPass})
	d := start(t, sanitized, "# comment\n\n  socket =\t"+path+"  \r\ndeadline_ms=1000\nenabled = yes")
	d.tell(gpuJob()...)
	d.submit()
	if log := d.stop(); received(requests) == nil || !strings.Contains(log, "asks "+path+", waits 1000 ms") {
		t.Errorf("the daemon was not asked; log:\n%s", log)
	}
}

// TestNoConfigMeansDefaults needs no daemon: the log tells.
func TestNoConfigMeansDefaults(t *testing.T) {
	d := startWith(t, sanitized, filepath.Join(t.TempDir(), "none"))
	if log := d.stop(); !strings.Contains(log, "asks /run/gresize/submit.sock, waits 50 ms") {
		t.Errorf("log:\n%s", log)
	}
}
