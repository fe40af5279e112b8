package request

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/slurm/release"
)

var (
	v20 = release.Version{Major: 20, Minor: 11, Micro: 4}
	v22 = release.Version{Major: 22, Minor: 5, Micro: 8}
	v24 = release.Version{Major: 24, Minor: 11, Micro: 5}
)

func TestParseListReadsEverySpelling(t *testing.T) {
	for _, c := range []struct {
		text, name, kind string
		count            uint64
	}{
		{"gpu", "gpu", "", 1}, {"gpu:1", "gpu", "", 1}, {"gpu:2", "gpu", "", 2}, {"gpu:a100", "gpu", "a100", 1}, {"gpu:a100:4", "gpu", "a100", 4},
		{"gres:gpu:1", "gpu", "", 1}, {"gres:gpu:a100:1", "gpu", "a100", 1}, {"gres/gpu:1", "gpu", "", 1}, {"gres/gpu:a100:3", "gpu", "a100", 3},
		{"gres/gpu=2", "gpu", "", 2}, {"gres/gpu:a100=2", "gpu", "a100", 2}, {"GRES:GPU:1", "gpu", "", 1}, {"Gpu:A100:1", "gpu", "A100", 1},
		{"gpu:a100_3g.20gb:1", "gpu", "a100_3g.20gb", 1}, {"gpu:1g.5gb", "gpu", "1g.5gb", 1}, {"gres:shard:24", "shard", "", 24},
		{"vram:40G", "vram", "", 40 << 30}, {"shard:1k", "shard", "", 1024}, {"cpu=2", "cpu", "", 2},
		{"gpu:99999999999999999999", "gpu", "99999999999999999999", 1}, {"gpu:20000000000G", "gpu", "20000000000G", 1},
		{"", "", "", 0}, {"gpu:", "", "", 0}, {":", "", "", 0}, {"gpu:a:b:c", "", "", 0}, {"gpu=", "", "", 0}, {"gpu:1(IDX:0)", "", "", 0}, {"gres:", "", "", 0}, {"gpu=x", "", "", 0},
	} {
		e := parseEntry(c.text)
		if e.Name != c.name || e.Type != c.kind || c.name != "" && e.Count != c.count || e.Raw != c.text {
			t.Errorf("%q was read as %+v", c.text, e)
		}
	}
}

func TestListIsPrintedAsItWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`((gres[:/])?[a-zA-Z]{1,5}(:[a-z0-9_.]{1,8})?([:=][0-9]{1,4}[kKMG]?)?,?){0,4}`)).Draw(t, "text")
		if got := ParseList(text).String(); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestEntryHasTheSameMeaningInEveryRelease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"gpu", "shard", "vram"}).Draw(t, "name")
		kind := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z][a-z0-9_.-]{0,10}[a-z]`)).Draw(t, "type")
		count := rapid.Uint64Range(1, 1<<40).Draw(t, "count")
		for _, v := range []release.Version{v20, v22, v24} {
			e := parseEntry(newEntry(v, name, kind, count).Raw)
			if e.Name != name || e.Type != kind || e.Count != count || e.Prefix != v.Prefix() {
				t.Fatalf("%s: %+v", v, e)
			}
		}
	})
}

func FuzzParseList(f *testing.F) {
	for _, seed := range []string{"gpu:1", "gres:gpu:a100:2,shard:4", "gres/gpu:h100=1", ",,", "gpu:1(IDX:0-1)", "\x00:\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list := ParseList(text)
		if list.String() != text {
			t.Fatalf("%q became %q", text, list)
		}
		Request{TresPerNode: text, Features: text}.Change(Target{Constraint: "gpu12g"}, Options{Version: v22, Own: map[string]bool{"gpu12g": true}})
	})
}

func TestChange(t *testing.T) {
	for _, c := range []struct {
		name    string
		request Request
		target  Target
		version release.Version
		dropped bool
		want    string // assignments, or the code of a refusal
	}{
		{"constraint only", Request{TresPerNode: "gres:gpu:1"}, Target{Constraint: "gpu12g"}, v22, false, "Features=gpu12g"},
		{"constraint is there already", Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}, Target{Constraint: "gpu12g"}, v22, false, ""},
		{"a type on 22.05 cannot be taken back", Request{TresPerNode: "gres:gpu:1"}, Target{Gres: "gpu:a100:1"}, v22, false, "!" + CodeSlurmVersion},
		{"the type that it has on 22.05", Request{TresPerNode: "gres:gpu:a100:1"}, Target{Gres: "gpu:a100:1", Constraint: "gpu40"}, v22, false, "Features=gpu40"},
		{"another type on 22.05", Request{TresPerNode: "gres:gpu:a100:1"}, Target{Gres: "gpu:v100:1"}, v22, true, "!" + CodeSlurmVersion},
		{"a type for each of two GPUs on 24.11", Request{TresPerJob: "gres/gpu:2"}, Target{Gres: "gpu:a100:1"}, v24, false, "TresPerJob=gres/gpu:a100:2"},
		{"a type on 24.11", Request{TresPerJob: "gres/gpu:1"}, Target{Gres: "gpu:a100:1"}, v24, false, "TresPerJob=gres/gpu:a100:1"},
		{"another type on 24.11, env kept", Request{TresPerNode: "gres/gpu:a100:1"}, Target{Gres: "gpu:v100:1"}, v24, false, "!" + CodeInnerSrun},
		{"another type on 24.11, env dropped", Request{TresPerNode: "gres/gpu:a100:1"}, Target{Gres: "gpu:v100:1"}, v24, true, "TresPerNode=gres/gpu:v100:1"},
		{"neighbours stay", Request{TresPerTask: "cpu=2,gres/gpu:1"}, Target{Gres: "gpu:a100:1"}, v24, false, "TresPerTask=cpu=2,gres/gpu:a100:1"},
		{"shards on 24.11", Request{TresPerNode: "gres/gpu:1"}, Target{Shards: 24}, v24, true, "TresPerNode=gres/shard:24"},
		{"shards for --gpus-per-node, env kept", Request{TresPerNode: "gres/gpu:1"}, Target{Shards: 24}, v24, false, "!" + CodeInnerSrun},
		{"a count beside --gpus-per-socket on 22.05", Request{TresPerSocket: "gres:gpu:1"}, Target{Counted: "vram:12"}, v22, true, "!" + CodeSlurmVersion},
		{"a count beside --gpus-per-socket on 24.11", Request{TresPerSocket: "gres/gpu:1"}, Target{Counted: "vram:12"}, v24, true, "TresPerNode=gres/vram:12"},
		{"shards for --gpus, env kept", Request{TresPerJob: "gres/gpu:1"}, Target{Shards: 24}, v24, false, "!" + CodeInnerSrun},
		{"shards for --gpus, env dropped", Request{TresPerJob: "gres/gpu:1"}, Target{Shards: 24}, v24, true, "TresPerJob= TresPerNode=gres/shard:24"},
		{"shards for --gpus-per-task, env dropped", Request{TresPerTask: "cpu=2,gres/gpu:1"}, Target{Shards: 24}, v24, true, "TresPerNode=gres/shard:24 TresPerTask=cpu=2"},
		{"shards with memory by the GPU", Request{TresPerNode: "gres/gpu:1", MemPerTres: "gres/gpu:8192"}, Target{Shards: 24}, v24, true, "!" + CodeShardMemory},
		{"shards on 22.05", Request{TresPerNode: "gres:gpu:1"}, Target{Shards: 24}, v22, true, "!" + CodeSlurmVersion},
		{"shards on 20.11", Request{TresPerNode: "gpu:1"}, Target{Shards: 24}, v20, true, "!" + CodeSlurmVersion},
		{"two GPUs by constraint", Request{TresPerNode: "gres:gpu:2"}, Target{Constraint: "x"}, v22, true, "Features=x"},
		{"two GPUs are no shards", Request{TresPerNode: "gres/gpu:2"}, Target{Shards: 3}, v24, true, "!" + CodeSeveral},
		{"no number of GPUs", Request{TresPerNode: "gres:gpu:0"}, Target{Constraint: "x"}, v22, true, "!" + CodeSpelling},
		{"named twice", Request{TresPerNode: "gres:gpu:1", TresPerJob: "gres:gpu:1"}, Target{Constraint: "x"}, v22, true, "!" + CodeSpelling},
		{"no GPU", Request{}, Target{Constraint: "x"}, v22, true, "!" + CodeSpelling},
		{"a count beside the GPU", Request{TresPerNode: "gres:gpu:1"}, Target{Counted: "vram:23"}, v22, false, "!" + CodeSlurmVersion},
		{"a count beside the GPU on 24.11", Request{TresPerNode: "gres/gpu:1"}, Target{Counted: "vram:23"}, v24, false, "TresPerNode=gres/gpu:1,gres/vram:23"},
		{"a smaller count", Request{TresPerNode: "gres:gpu:1,gres:vram:80"}, Target{Counted: "vram:23"}, v22, false, "TresPerNode=gres:gpu:1,gres:vram:23"},
		{"a count beside --gpus", Request{TresPerJob: "gres/gpu:1", TresPerNode: "gres/vram:80"}, Target{Counted: "vram:23"}, v24, false, "TresPerNode=gres/vram:23"},
		{"a count with a suffix", Request{TresPerNode: "gres:gpu:1,gres:vram:2K"}, Target{Counted: "vram:2048"}, v22, false, "TresPerNode=gres:gpu:1,gres:vram:2048"},
		{"two counts of the same", Request{TresPerNode: "gres:gpu:1,gres:vram:8,gres:vram:9"}, Target{Counted: "vram:23"}, v22, false, "!" + CodeSpelling},
		{"a GPU is no count", Request{TresPerNode: "gres:gpu:1"}, Target{Counted: "gpu:2"}, v22, false, "!" + CodeSpelling},
		{"a type is no count", Request{TresPerNode: "gres:gpu:1"}, Target{Counted: "vram:a:2"}, v22, false, "!" + CodeSpelling},
		{"less host memory", Request{TresPerNode: "gres:gpu:1", MemPerNodeMiB: 64000}, Target{Constraint: "x", MemPerNodeMiB: 8192}, v22, false, "Features=x MinMemoryNode=8192"},
		{"host memory that was not asked for", Request{TresPerNode: "gres:gpu:1"}, Target{Constraint: "x", MemPerNodeMiB: 8192}, v22, false, "Features=x"},
		{"brackets", Request{TresPerNode: "gres:gpu:1", Features: "[a|b]"}, Target{Constraint: "x"}, v22, true, "!" + CodeConstraint},
	} {
		t.Run(c.name, func(t *testing.T) {
			change, err := c.request.Change(c.target, Options{Version: c.version, EnvDropped: c.dropped})
			var got []string
			for _, a := range change.Set {
				got = append(got, a.Key+"="+a.Value)
			}
			text := strings.Join(got, " ")
			if refused, ok := IsRefused(err); ok {
				text = "!" + refused.Code
			} else if err != nil {
				t.Fatal(err)
			}
			if text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
			// Going there and back leads to the beginning.
			if err == nil {
				back := Difference(change.Result, c.request)
				if len(back) != len(change.Set) {
					t.Errorf("there with %v, back with %v", change.Set, back)
				}
			}
		})
	}
}

func TestMergeFeatures(t *testing.T) {
	own := map[string]bool{"gpu12g": true, "gpu40g": true, "gpu80g": true}
	for _, c := range []struct{ user, ours, want string }{
		{"", "gpu12g", "gpu12g"}, {"(null)", "gpu12g", "gpu12g"}, {"ib", "", "ib"},
		{"gpu80g", "gpu12g", "gpu12g"}, {"gpu80g|gpu40g", "gpu12g", "gpu12g"}, {"(gpu80g|gpu40g)", "gpu12g", "gpu12g"},
		{"ib&gpu80g", "gpu12g", "ib&gpu12g"}, {"gpu80g&ib", "gpu12g", "ib&gpu12g"}, {"ib", "gpu12g", "ib&gpu12g"}, {"ib&fast", "gpu12g", "ib&fast&gpu12g"},
		{"ib|fast", "gpu12g", "(ib|fast)&(gpu12g)"}, {"ib|gpu80g", "gpu12g", "(ib|gpu80g)&(gpu12g)"}, {"(ib|fast)&gpu80g", "gpu12g", "(ib|fast)&gpu12g"},
		{"ib", "gpu12g|gpu40g", "ib&(gpu12g|gpu40g)"},
		{"[rack1|rack2]", "gpu12g", "!"}, {"ib*2", "gpu12g", "!"}, {"ib,fast", "gpu12g", "!"}, {"(ib|fast)|x", "gpu12g", "!"}, {"((ib))", "gpu12g", "!"}, {"(ib", "gpu12g", "!"},
		{"ib&fast|gpu80g", "gpu12g", "!"}, {"ib)", "gpu12g", "!"}, {"ib&", "gpu12g", "!"}, {"ib fast", "gpu12g", "!"},
	} {
		got, err := MergeFeatures(c.user, c.ours, own)
		if err != nil {
			got = "!"
		}
		if got != c.want {
			t.Errorf("%q with %q: got %q (%v), want %q", c.user, c.ours, got, err, c.want)
		}
	}
}

// TestMergeFeaturesNeverNests draws expressions: what comes out has no parentheses within parentheses, and keeps every word that is not the site's own.
func TestMergeFeaturesNeverNests(t *testing.T) {
	own := map[string]bool{"g1": true, "g2": true}
	rapid.Check(t, func(t *rapid.T) {
		user := rapid.StringMatching(`(\(?(a|b|g1|g2)(&|\|)?\)?){0,5}`).Draw(t, "user")
		got, err := MergeFeatures(user, "g1", own)
		if err != nil {
			return
		}
		depth := 0
		for _, c := range got {
			if c == '(' {
				depth++
			}
			if c == ')' {
				depth--
			}
			if depth < 0 || depth > 1 {
				t.Fatalf("%q became %q", user, got)
			}
		}
		for _, word := range []string{"a", "b"} {
			if strings.Contains(user, word) && !strings.Contains(got, word) {
				t.Fatalf("%q lost %q: %q", user, word, got)
			}
		}
		if !strings.Contains(got, "g1") {
			t.Fatalf("%q became %q without our word", user, got)
		}
	})
}

func TestEquivalent(t *testing.T) {
	a := Request{TresPerNode: "gres:gpu:1", Features: "x"}
	for _, b := range []Request{{TresPerNode: "gpu", Features: "x"}, {TresPerNode: "gres/gpu=1", Features: "x"}, a} {
		if !Equivalent(a, b) {
			t.Errorf("%+v is not %+v", a, b)
		}
	}
	for _, b := range []Request{{TresPerJob: "gres:gpu:1", Features: "x"}, {TresPerNode: "gres:gpu:2", Features: "x"}, {TresPerNode: "gres:gpu:a100:1", Features: "x"}, {TresPerNode: "gres:gpu:1"}, {}} {
		if Equivalent(a, b) {
			t.Errorf("%+v is %+v", a, b)
		}
	}
	if !Equivalent(Request{Features: "(null)"}, Request{}) {
		t.Error("(null) is not empty")
	}
}

func TestEquivalentHostMemory(t *testing.T) {
	a, b := Request{TresPerNode: "gres:gpu:1", MemPerNodeMiB: 8192}, Request{TresPerNode: "gres:gpu:1", MemPerNodeMiB: 4096}
	if Equivalent(a, b) || !Equivalent(a, a) || !Equivalent(a, Request{TresPerNode: "gres:gpu:1"}) ||
		!Equivalent(Request{MemPerNodeMiB: 50000}, Request{MemPerNodeMiB: 50002}) || Equivalent(Request{MemPerNodeMiB: 50000}, Request{MemPerNodeMiB: 49000}) {
		t.Error("host memory counts where both speak of it, and only there")
	}
}

func TestConjuncts(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "(null)": "[]", "a": "[[a]]", "a&b": "[[a] [b]]", "a|b": "[[a b]]", "(a|b)&c": "[[a b] [c]]", "c&(a|b)&d": "[[c] [a b] [d]]", "(a&b)&c": "[[a] [b] [c]]", "(a)": "[[a]]",
	} {
		if got, ok := Conjuncts(text); !ok || fmt.Sprint(got) != want {
			t.Errorf("%q: %v %v, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"[a|b]", "a*2", "a,b", "a&b|c", "(a&b|c)&d", "((a))", "(a", "a)", "a&", "|a", "(a)b", "(a)(b)", "a b", "(a|b)|c", "()"} {
		if got, ok := Conjuncts(text); ok {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// TestRequestInWords: the CPUs of a task, which stand in the same list from 23.11 on, are not shown as GPUs.
func TestRequestInWords(t *testing.T) {
	for want, r := range map[string]Request{
		"--gres=gpu:1 --cpus-per-task=2":                  {TresPerNode: "gres/gpu:1", TresPerTask: "cpu=2"},
		"--gpus-per-task=2":                               {TresPerTask: "gres/gpu=2"},
		"--gpus-per-task=a100:1":                          {TresPerTask: "gres:gpu:a100:1"},
		"--tres-per-task=cpu=2,gres/gpu=1":                {TresPerTask: "cpu=2,gres/gpu=1"},
		"--gpus=1 --tres-per-task=license/matlab=1,cpu=4": {TresPerJob: "gres/gpu:1", TresPerTask: "license/matlab=1,cpu=4"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
