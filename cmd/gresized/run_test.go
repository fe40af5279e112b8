package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// scontrol is a configuration with a Slurm that answers like this.
	scontrol := func(name, does string) string {
		t.Helper()
		path := write(name+" scontrol", "#!/bin/sh\ncase $1 in --version) echo slurm 24.11.5;; *) "+does+";; esac\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return write(name, fmt.Sprintf("version = 1\n[slurm]\nscontrol = %q\n", path))
	}
	good := write("good", "version = 1\n[gpu.a100]\nprofile = \"a100-80\"\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-check", good}, exitOK, "mode shadow"},
		{[]string{"-check", filepath.Join("..", "..", "packaging", "gresize.toml")}, exitOK, "mode shadow"},
		{[]string{"-check", write("typo", "version = 1\nmod = \"off\"\n")}, exitFailed, ":2:1: mod: unknown key (did you mean mode?)"},
		{[]string{"-check", write("gpu", "version = 1\n[gpu.a100]\nprofile = \"a101\"\n")}, exitFailed, ":3:1: gpu.a100.profile: unknown"},
		{[]string{"-check", write("impossible", "version = 1\n[gpu.gpu12g]\nprofile = \"rtx3060\"\n[[target]]\nfits = \"40GiB\"\nconstraint = \"gpu12g\"\n")}, exitFailed, ":5:1: target[0].fits: no job of 40 GiB fits"},
		{[]string{"-check", write("sold as", "version = 1\n[gpu.gpu80g]\nprofile = \"a100-80\"\n[[target]]\nfits = \"80GiB\"\nconstraint = \"gpu80g\"\n")}, exitOK, ":5:1: target[0].fits: a job can use 79.15 GiB of a a100-80"},
		{[]string{"-check", write("untied", "version = 1\n[[target]]\nfits = \"22GiB\"\ngres = \"gpu:l4:1\"\n")}, exitOK, "gres: no [gpu.NAME] says which model is behind gpu:l4:1"},
		{[]string{"-check", write("page", "version = 1\n[web]\nlisten = \"127.0.0.1:9190\"\n")}, exitOK, "every user of this machine can read"},
		{[]string{"-check", write("page on a socket", "version = 1\n[web]\nlisten = \"unix:/run/gresize/web.sock\"\n")}, exitOK, "the daemon's user and group"},
		{[]string{"-check", write("page for all", "version = 1\n[web]\nlisten = \"10.0.0.1:9190\"\nremote = true\n")}, exitOK, "warning: the page is on 10.0.0.1:9190: everybody"},
		{[]string{"-check", write("page for all by mistake", "version = 1\n[web]\nlisten = \"0.0.0.0:9190\"\n")}, exitFailed, ":3:1: web.listen: \"0.0.0.0:9190\" can be reached from elsewhere"},
		{[]string{"-check", scontrol("no controller", "echo connection refused >&2; echo twice >&2; exit 1")}, exitOK, "slurm.scontrol: slurmctld does not answer yet; scontrol says: no controller scontrol: exit code 1: connection refused twice (start slurmctld"},
		{[]string{"-check", scontrol("a controller that hangs", "exec sleep 60")}, exitOK, "slurmctld does not answer yet; scontrol says: a controller that hangs scontrol: no answer within 2s"},
		{[]string{"-check", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{[]string{"-config", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{[]string{"-check", ""}, exitFailed, "no such file"},
		{[]string{"-check", "-config", good}, exitOK, "mode shadow"},
		{[]string{"-config", filepath.Join(dir, "none"), "-check"}, exitFailed, "no such file"},
		{[]string{"-check=" + good}, exitOK, "mode shadow"},
		{[]string{"-check", good, "word"}, exitUsage, "word"},
		{[]string{"-check", write("empty", "")}, exitFailed, "version: missing (write version = 1 as the first line)"},
		{[]string{"--version"}, exitOK, "gresized version "},
		{[]string{"-nonsense"}, exitUsage, "nonsense"},
		{[]string{"word"}, exitUsage, "word"},
		{[]string{"-help"}, exitOK, "-config"},
	} {
		var out, errors bytes.Buffer
		code := run(t.Context(), c.args, &out, &errors)
		if text := out.String() + errors.String(); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%q: exit code %d, want %d, saying %q:\n%s", c.args, code, c.code, c.says, text)
		}
	}
	// One who starts it by hand is told in a sentence, not in a line of a log.
	var out, errors bytes.Buffer
	run(t.Context(), []string{"-config", filepath.Join(dir, "none")}, &out, &errors)
	if text := errors.String(); !strings.HasPrefix(text, "gresized: "+filepath.Join(dir, "none")+": there is no configuration") {
		t.Errorf("without a configuration: %s", text)
	}
	out.Reset()
	errors.Reset()
	if code := run(t.Context(), []string{"-check", scontrol("sound", "exit 0")}, &out, &errors); code != exitOK || strings.Contains(errors.String(), "scontrol") {
		t.Errorf("a Slurm that answers: %d, %s", code, errors.String())
	}
}
