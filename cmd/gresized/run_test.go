package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/slurm/request"
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
	good := write("good", "version = 1\n[gpu.a100]\nprofile = \"a100-80\"\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-check", good}, exitOK, "mode shadow"},
		{[]string{"-check", filepath.Join("..", "..", "packaging", "gresize.toml")}, exitOK, "mode shadow"},
		{[]string{"-check", write("typo", "version = 1\nmod = \"off\"\n")}, exitFailed, ":2:1: mod: unknown key (did you mean mode?)"},
		{[]string{"-check", write("gpu", "version = 1\n[gpu.a100]\nprofile = \"a101\"\n")}, exitFailed, "gpu.a100.profile"},
		{[]string{"-check", filepath.Join(dir, "none")}, exitFailed, "no such file"},
		{[]string{"-config", filepath.Join(dir, "none")}, exitFailed, "no such file"},
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
}

// TestRowsNeverCountForMoreThanTheCard: a card that is sold as 12 GB shows less.
func TestRowsNeverCountForMoreThanTheCard(t *testing.T) {
	c, err := config.Parse("f", `version = 1
default_profile = "h100"
[gpu.gpu12g]
profile = "rtx3060"
[gpu.a100]
profile = "a100-80"
[[target]]
fits = "12GiB"
constraint = "gpu12g"
[[target]]
fits = "40GiB"
constraint = "gpu40g"
[[target]]
fits = "80GiB"
gres = "gpu:a100:1"
`)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGPUs(c)
	if err != nil {
		t.Fatal(err)
	}
	rows := g.rules(c).Rows
	if rows[0].FitsBytes != g.byWord["gpu12g"].Total.Bytes || rows[1].FitsBytes != 40<<30 || rows[2].FitsBytes != g.byWord["a100"].Total.Bytes {
		t.Errorf("%+v", rows)
	}
	for want, asked := range map[string]request.Request{
		"h100": {TresPerNode: "gres:gpu:1"}, "a100-80": {TresPerNode: "gres:gpu:a100:1", Features: "gpu12g"}, "rtx3060": {TresPerNode: "gres:gpu:1", Features: "ib&gpu12g"},
	} {
		if got := g.profileOf(asked); got != want {
			t.Errorf("%s is probed on %s, want %s", asked, got, want)
		}
	}
}
