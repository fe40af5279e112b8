package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSlurmCheckWithoutSlurmConf: a slurm.conf that is not there is said, whatever the plugin is, and none is wanted only where that was asked for.
func TestSlurmCheckWithoutSlurmConf(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	if err := os.WriteFile(conf, []byte("JobSubmitPlugins=gresize\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join("..", "..", "build", "plugin", "job_submit_gresize.so")
	for _, c := range []struct {
		name, env string
		args      []string
		code      int
		says      string
	}{
		{"named, and not there", "", []string{"--conf", filepath.Join(dir, "none")}, exitError, "slurm.conf cannot be read, so it is not known whether slurmctld is told to load the plugin: stat " + filepath.Join(dir, "none") + ": no such file or directory (name it with --conf, or give --conf= where there is none)"},
		{"by SLURM_CONF, and not there", filepath.Join(dir, "gone"), nil, exitError, "stat " + filepath.Join(dir, "gone")},
		{"in its usual place, or not there", "", nil, exitOK, "/etc/slurm/slurm.conf"},
		{"a pipe", "", []string{"--conf", pipe}, exitError, "open " + pipe + ": a pipe and no regular file"},
		{"there", "", []string{"--conf", conf}, exitOK, conf + " names gresize, as the last"},
		{"by SLURM_CONF", conf, nil, exitOK, conf + " names gresize, as the last"},
		{"none is wanted", filepath.Join(dir, "gone"), []string{"--conf="}, exitOK, "built for Slurm"},
	} {
		t.Setenv("SLURM_CONF", c.env)
		var out, said bytes.Buffer
		code := run(t.Context(), append(append([]string{"slurm", "check"}, c.args...), plugin), &out, &said)
		if text := out.String() + said.String(); code != c.code || !strings.Contains(text, c.says) || !strings.Contains(text, "built for Slurm") {
			t.Errorf("%s: exit code %d, want %d, saying %q:\n%s", c.name, code, c.code, c.says, text)
		}
	}
}

// TestSlurmCheckBeforeThePluginIsInstalled names the package that is missing.
func TestSlurmCheckBeforeThePluginIsInstalled(t *testing.T) {
	var out, said bytes.Buffer
	if installed, err := findPlugin(); err == nil {
		t.Skipf("a plugin is installed: %s", installed)
	}
	if code := run(t.Context(), []string{"slurm", "check"}, &out, &said); code != exitError || !strings.Contains(said.String(), "install the package gresize-slurm-plugin-RELEASE") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}

// TestSlurmCheckOfNoPlugin: of a plugin that is not there it is said that it is not there, and nothing of a slurm.conf that nobody named.
func TestSlurmCheckOfNoPlugin(t *testing.T) {
	t.Setenv("SLURM_CONF", "")
	none := filepath.Join(t.TempDir(), "none.so")
	var out, said bytes.Buffer
	if code := run(t.Context(), []string{"slurm", "check", none}, &out, &said); code != exitError || strings.TrimSpace(said.String()) != "gresize: stat "+none+": no such file or directory" {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}
