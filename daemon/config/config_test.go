package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEmptyFileIsTheDefaults(t *testing.T) {
	c, err := Parse("f", "version = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != Shadow || c.Probe.Hold.Std() != 5*time.Minute || c.Probe.Memory != 4<<30 || len(c.Targets) != 0 {
		t.Errorf("%+v", c)
	}
}

// TestExampleFile reads the file that is shipped, as it is and with every default written out: both mean the same.
func TestExampleFile(t *testing.T) {
	path := filepath.Join("..", "..", "packaging", "gresize.toml")
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spelledOut := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(string(data), "$1")
	full, err := Parse(path, spelledOut)
	if err != nil {
		t.Fatal(err)
	}
	if len(full.Targets) != 3 || len(full.GPU) != 2 || full.Shard.Max != 80 || len(full.Estimators) != 2 {
		t.Errorf("the examples in the file were not read: %+v", full)
	}
	if full.Counted != (Counted{"vram", 1 << 30, 80}) {
		t.Errorf("%+v", full.Counted)
	}
	full.Targets, full.GPU, full.Shard, full.Counted, full.Estimators = nil, nil, Shard{}, Counted{}, c.Estimators
	full.Slurm.Conf, full.Probe.URL = "", ""
	c.GPU = nil
	if a, b := toText(*full), toText(*c); a != b {
		t.Errorf("a default that is written in the file is another one:\n%s\n%s", a, b)
	}
}

func toText(c Config) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf("%+v", c)), "\n", " ")), " ")
}

func TestWebAddresses(t *testing.T) {
	for _, text := range []string{`listen = "127.0.0.1:9190"`, `listen = "[::1]:9190"`, `listen = "localhost:9191"`, `listen = "unix:/run/gresize/web.sock"`, "listen = \"10.0.0.1:9190\"\nremote = true", `hosts = ["slurm.example.org", "10.0.0.1", "fd00::1"]`} {
		if _, err := Parse("f", "version = 1\n[web]\n"+text+"\n"); err != nil {
			t.Error(err)
		}
	}
}

func TestFaultsNamePlaceAndWayOut(t *testing.T) {
	for _, c := range []struct{ name, text, place, says string }{
		{"no version", "mode = \"off\"\n", "", "write version = 1"},
		{"other version", "version = 2\n", ":1:1", "reads version 1"},
		{"swapped letters", "version = 1\nmoed = \"off\"\n", ":2:1", "did you mean mode?"},
		{"other letters", "version = 1\nmode = \"off\"\nMode = \"shadow\"\n", ":3:1", "did you mean mode?"},
		{"a table in other letters", "version = 1\n[Policy]\nupsizing = true\n", ":2:1", "did you mean policy?"},
		{"a key of a GPU in other letters", "version = 1\n[gpu.a100]\nProfile = \"a100-40gb\"\n", ":3:1", "did you mean profile?"},
		{"unknown key", "version = 1\n[probe]\n  hlod = \"60s\"\n", ":3:3", "did you mean hold?"},
		{"unknown table", "version = 1\n[prob]\nhold = \"60s\"\n", ":2:1", "unknown key"},
		{"unknown key of a row", "version = 1\n[[target]]\nfits = \"1GiB\"\nconstraint = \"a\"\n[[target]]\nfits = \"2GiB\"\ngress = \"gpu:a:1\"\n", ":7:1", "did you mean gres?"},
		{"a number for a text", "version = 1\nmode = 3\n", ":2:", "mode: wants a text such as \"shadow\", and not a number ("},
		{"a text for a number", "version = 1\n[probe]\ncpus = \"2\"\n", ":3:", "probe.cpus: wants a whole number such as 10, and not a text ("},
		{"a text for a list", "version = 1\n[jobs]\nusers = \"alice\"\n", ":3:", "jobs.users: wants a list such as [\"alice\"], and not a text ("},
		{"a text for a choice", "version = 1\n[host]\nlower_mem = \"yes\"\n", ":3:", "host.lower_mem: wants true or false, and not a text ("},
		{"a text for a fraction", "version = 1\n[margin]\ntarget_failure_rate = \"1 %\"\n", ":3:", "margin.target_failure_rate: wants a number such as 0.01, and not a text ("},
		{"broken", "version = 1\nmode = \"off\n", ":2:", ""},
		{"mode", "version = 1\nmode = \"on\"\n", ":2:1", "enforce"},
		{"no unit", "version = 1\n[[target]]\nfits = \"20\"\nconstraint = \"a\"\n", ":3:", "GiB"},
		{"decimal unit", "version = 1\n[policy]\nmargin_min = \"1GB\"\n", ":3:", "GiB"},
		{"no time", "version = 1\n[probe]\nhold = \"60\"\n", ":3:", "s, m or h"},
		{"hold too long", "version = 1\n[probe]\nhold = \"301s\"\n", ":3:1", "between"},
		{"relative path", "version = 1\n[log]\npath = \"log.db\"\n", ":3:1", "begins with /"},
		{"order", "version = 1\n[[target]]\nfits = \"2GiB\"\nconstraint = \"a\"\n[[target]]\nfits = \"1GiB\"\nconstraint = \"b\"\n", ":6:1", "smallest first"},
		{"row without a request", "version = 1\n[[target]]\nfits = \"2GiB\"\n", ":2:1", "constraint"},
		{"row with a count", "version = 1\n[[target]]\nfits = \"2GiB\"\nconstraint = \"[a|b]*2\"\n", ":4:1", "without parentheses"},
		{"row with two GPUs", "version = 1\n[[target]]\nfits = \"2GiB\"\ngres = \"gpu:a100:2\"\n", ":4:1", "one GPU"},
		{"row without a type", "version = 1\n[[target]]\nfits = \"2GiB\"\ngres = \"gpu:1\"\n", ":4:1", "one GPU"},
		{"acts on unknown", "version = 1\n[policy]\nact_on = [\"unknown\"]\n", ":3:1", "no number"},
		{"enforce without rows", "version = 1\nmode = \"enforce\"\n", "", "[[target]]"},
		{"address", "version = 1\n[probe]\nlisten = \"here\"\n", ":3:1", "127.0.0.1"},
		{"url", "version = 1\n[probe]\nurl = \"file:///etc\"\n", ":3:1", "http://"},
		{"metrics for everybody", "version = 1\n[metrics]\nlisten = \"0.0.0.0:8918\"\n", ":3:1", "from elsewhere"},
		{"metrics nowhere", "version = 1\n[metrics]\nlisten = \"8918\"\n", ":3:1", "neither unix:/path"},
		{"metrics on half a path", "version = 1\n[metrics]\nlisten = \"unix:run\"\n", ":3:1", "begins with /"},
		{"web for everybody", "version = 1\n[web]\nlisten = \"0.0.0.0:9190\"\n", ":3:1", "web.remote"},
		{"web at a name", "version = 1\n[web]\nlisten = \"gresize.cluster:9190\"\n", ":3:1", "from elsewhere"},
		{"web nowhere", "version = 1\n[web]\nlisten = \"9190\"\n", ":3:1", "127.0.0.1:9190"},
		{"web of a host with a port", "version = 1\n[web]\nhosts = [\"a:80\"]\n", ":3:1", "without a port"},
		{"web of a host like no other", "version = 1\n[web]\nhosts = [\"*\"]\n", ":3:1", "no name of a host"},
		{"bundles for ever", "version = 1\n[web]\nkeep_bundles = \"2TiB\"\n", ":3:1", "1 TiB"},
		{"days to keep", "version = 1\n[log]\nkeep_days = -1\n", ":3:1", "between 0 and 36500"},
		{"a resource without a name", "version = 1\n[vram]\nper = \"1GiB\"\n", ":2:1", "vram.gres: missing"},
		{"a resource without a size", "version = 1\n[vram]\ngres = \"vram\"\n", ":2:1", "vram.per: missing"},
		{"a GPU is not counted", "version = 1\n[vram]\ngres = \"gpu\"\nper = \"1GiB\"\n", ":3:1", "count-only"},
		{"host margin", "version = 1\n[host]\nmargin_percent = -5\n", ":3:1", "between 0 and 1000"},
		{"a name that none can have", "version = 1\n[jobs]\naccounts = [\"a b\"]\n", ":3:1", "no plain name"},
		{"taken and excluded", "version = 1\n[jobs]\nqos = [\"a\"]\nexcept_qos = [\"b\", \"a\"]\n", ":4:1", "a is in jobs.qos too"},
		{"a list that is a word", "version = 1\n[jobs]\nusers = \"root\"\n", ":3:", "jobs.users"},
		{"start_within", "version = 1\n[probe]\nstart_within = \"-1s\"\n", ":3:1", "between 0s and 5m0s"},
		{"max_wait", "version = 1\n[policy]\nmax_wait = \"10000h\"\n", ":3:1", "between"},
		{"partition", "version = 1\n[probe]\npartition = \"a b\"\n", ":3:1", "plain name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("gresize.toml", c.text)
			var fault *FileError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v", err)
			}
			if !strings.HasPrefix(err.Error(), "gresize.toml"+c.place) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, want it at %q and saying %q", err, c.place, c.says)
			}
		})
	}
}

func TestReadRefusesLargeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(strings.Repeat("# nothing\n", 200_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("2 MB were read")
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"1KiB": 1024, "20 GiB": 20 << 30, "1.5MiB": 3 << 19, "0GiB": 0, "1B": 1, "0 B": 0} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: %d, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1GiB", "NaNGiB", "InfGiB", "1e30GiB", "12", "1 GB", "1.5B", "-1B", "B"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("version = 1\n[[target]]\nfits = \"1GiB\"\nconstraint = \"a\"\n")
	f.Add("version = 1\n[probe.\"x\".y]\na=1\n[[target]]\n[gpu.a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", text)
		if (c == nil) == (err == nil) {
			t.Fatal("neither or both")
		}
	})
}
