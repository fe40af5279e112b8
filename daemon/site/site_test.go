package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/slurm/request"
)

// TestFaultsOfTheTableNameThePlace: what the file's form allows and no site can have, with file and line, and all of it at once.
func TestFaultsOfTheTableNameThePlace(t *testing.T) {
	const cards = "version = 1\n[gpu.a100]\nprofile = \"a100-80\"\n[gpu.gpu12g]\nprofile = \"rtx3060\"\n"
	row := func(fits, what string) string { return fmt.Sprintf("[[target]]\nfits = %q\n%s\n", fits, what) }
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"sound", cards + row("12GiB", `constraint = "gpu12g"`) + row("80GiB", `gres = "gpu:a100:1"`), nil},
		{"unknown profiles", "version = 1\ndefault_profile = \"b300\"\n[gpu.a]\nprofile = \"a101\"\n[gpu.\"x.y\"]\nprofile = \"nope\"\n",
			[]string{":2:1: default_profile: ", ":4:1: gpu.a.profile: ", ":6:1: gpu.x.y.profile: "}},
		{"unknown users", "version = 1\n[jobs]\nusers = [\"root\", \"4711\"]\nexcept_users = [\"no-such-user\"]\n", []string{":4:1: jobs.except_users: there is no user \"no-such-user\""}},
		{"a profile of two sizes", "version = 1\n[gpu.a]\nprofile = \"a100\"\n", []string{":3:1: gpu.a.profile: "}},
		{"more than the card", cards + row("12GiB", `constraint = "gpu12g"`) + row("40GiB", `constraint = "ib&gpu12g"`), []string{":10:1: target[1].fits: no job of 40 GiB fits: the row's gpu12g is a rtx3060"}},
		{"two cards at once", cards + row("12GiB", "gres = \"gpu:a100:1\"\nconstraint = \"gpu12g\""), []string{":8:1: target[0].gres: a100 is a a100-80 and gpu12g is a rtx3060: no card is both"}},
		{"one of two cards", cards + row("12GiB", `constraint = "gpu12g|a100"`), nil},
		{"the same twice", cards + row("12GiB", `constraint = "gpu12g"`) + row("12GiB", `constraint = "gpu12g"`), []string{":11:1: target[1].constraint: the row asks for the same as row 1"}},
		{"more than the slice", "version = 1\n" + row("24GiB", `gres = "gpu:a100_3g.20gb:1"`), []string{":3:1: target[0].fits: no job of 24 GiB fits: a100_3g.20gb is a slice of 20 GB"}},
		{"more vram than memory", cards + "[vram]\ngres = \"vram\"\nper = \"1GiB\"\nmax = 200\n", []string{":9:1: vram.max: 200 of 1 GiB are more"}},
		{"a shard larger than all cards", cards + "[shard]\nper = \"100GiB\"\n", []string{":7:1: shard.per: "}},
		{"more shards than memory", cards + "[shard]\nper = \"1GiB\"\nmax = 200\n", []string{":8:1: shard.max: 200 shards of 1 GiB are more"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gresize.toml")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, impossible, err := Load(path)
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			for _, fault := range impossible {
				lines = append(lines, fault.Error())
			}
			if len(lines) != len(c.says) {
				t.Fatal(cmp.Diff(c.says, lines))
			}
			for i, says := range c.says {
				if !strings.HasPrefix(lines[i], path+says) {
					t.Errorf("%q does not begin with %q", lines[i], says)
				}
			}
		})
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
	g, unknown := New(c)
	if len(unknown) > 0 {
		t.Fatal(unknown)
	}
	rows := g.Rules().Rows
	if rows[0].FitsBytes != g.byWord["gpu12g"].Total.Bytes || rows[1].FitsBytes != 40<<30 || rows[2].FitsBytes != g.byWord["a100"].Total.Bytes {
		t.Errorf("%+v", rows)
	}
	for want, asked := range map[string]request.Request{
		"h100": {TresPerNode: "gres:gpu:1"}, "a100-80": {TresPerNode: "gres:gpu:a100:1", Features: "gpu12g"}, "rtx3060": {TresPerNode: "gres:gpu:1", Features: "ib&gpu12g"},
	} {
		if got := g.ProfileOf(asked); got != want {
			t.Errorf("%s is probed on %s, want %s", asked, got, want)
		}
	}
}
