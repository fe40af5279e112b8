package request

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/slurm/release"
)

func TestParseArgs(t *testing.T) {
	for _, c := range []struct {
		args string
		v    release.Version
		want Request
		rest string
	}{
		{"--gres=gpu:1", v20, Request{TresPerNode: "gpu:1"}, ""},
		{"--gres=gpu:1", v22, Request{TresPerNode: "gres:gpu:1"}, ""},
		{"--gres gpu:a100:2,vram:40G --time=5", v24, Request{TresPerNode: "gres/gpu:a100:2,gres/vram:40G"}, "--time=5"},
		{"-G 2", v22, Request{TresPerJob: "gres:gpu:2"}, ""},
		{"-Ga100:1 -C gpu80g", v24, Request{TresPerJob: "gres/gpu:a100:1", Features: "gpu80g"}, ""},
		{"--gpus=a100:3,v100:5", v22, Request{TresPerJob: "gres:gpu:a100:3,gres:gpu:v100:5"}, ""},
		{"--gpus-per-node=1 --gres=shard:4", v22, Request{TresPerNode: "gres:gpu:1,gres:shard:4"}, ""},
		{"--gres=mps:50 --gpus-per-socket=1", v24, Request{TresPerNode: "gres/mps:50", TresPerSocket: "gres/gpu:1"}, ""},
		{"--gpus-per-task=1", v22, Request{TresPerTask: "gres:gpu:1"}, ""},
		{"--gpus-per-task=1", release.Version{Major: 23, Minor: 11, Micro: 11}, Request{TresPerTask: "gres/gpu:1"}, ""},
		{"--gpus-per-task=1", v24, Request{TresPerTask: "gres/gpu=1"}, ""},
		{"--gpus-per-task=a100:2", v24, Request{TresPerTask: "gres/gpu:a100=2"}, ""},
		{"--tres-per-task=cpu=2,gres/gpu:1", v24, Request{TresPerTask: "cpu=2,gres/gpu:1"}, ""},
		{"--tres-per-task=gres/gpu:1", v22, Request{}, "--tres-per-task=gres/gpu:1"},
		{"--gpus=1 --mem-per-gpu=8G --cpus-per-gpu=4", v24, Request{TresPerJob: "gres/gpu:1", MemPerTres: "gres/gpu:8192", CpusPerTres: "gres/gpu:4"}, ""},
		{"--mem-per-gpu=100 --mem=1500K", v20, Request{MemPerTres: "gpu:100", MemPerNodeMiB: 2}, ""},
		{"--gres=gpu:1g.5gb:1", v22, Request{TresPerNode: "gres:gpu:1g.5gb:1"}, ""},
		{"--gres=gpu:1 --gres=gpu:2", v22, Request{TresPerNode: "gres:gpu:2"}, ""},
		{"--gres=gres:gpu:1 --gres= --gpus=x:y:z --mem=0 --mem-per-gpu=lots --cpus-per-gpu=-1 -N 1 --gpus", v22, Request{},
			"--gres=gres:gpu:1 --gres= --gpus=x:y:z --mem=0 --mem-per-gpu=lots --cpus-per-gpu=-1 -N 1 --gpus"},
	} {
		got, rest := ParseArgs(strings.Fields(c.args), c.v)
		if got != c.want || strings.Join(rest, " ") != c.rest {
			t.Errorf("%s on %s: %+v, rest %q", c.args, c.v, got, rest)
		}
	}
}

// TestParsePrintParse draws the options of a job: what was read is read again from what is printed, and what was not understood stays as it was.
func TestParsePrintParse(t *testing.T) {
	count := rapid.StringMatching(`[0-9]{1,4}[KMG]?`)
	kind := rapid.StringMatching(`[a-z][a-z0-9_.]{0,8}[a-z]`)
	gpu := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", kind.Draw(t, "type") + ":"}).Draw(t, "typed") + count.Draw(t, "count")
	})
	gres := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"gpu", "shard", "mps", "vram", "tpu"}).Draw(t, "name") + rapid.SampledFrom([]string{"", ":", "="}).Draw(t, "separator") + gpu.Draw(t, "rest")
	})
	list := func(of *rapid.Generator[string]) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(of, 1, 3).Draw(t, "list"), ",") })
	}
	names := []string{"--gres=", "--gpus=", "--gpus-per-node=", "--gpus-per-socket=", "--gpus-per-task=", "--tres-per-task=", "--mem-per-gpu=", "--cpus-per-gpu=", "--constraint=", "--mem=", "-G", "-C", "--time=", ""}
	values := rapid.OneOf(list(gpu), list(gres), count, rapid.StringMatching(`[a-z&|()]{1,8}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SampledFrom([]release.Version{v20, v22, v24}).Draw(t, "release")
		var args []string
		for range rapid.IntRange(0, 6).Draw(t, "options") {
			args = append(args, rapid.SampledFrom(names).Draw(t, "name")+values.Draw(t, "value"))
		}
		first, rest := ParseArgs(args, v)
		for _, word := range rest {
			if !slices.Contains(args, word) {
				t.Fatalf("%q was not carried unchanged but became %q", args, word)
			}
		}
		printed, ok := first.Args(v)
		if !ok {
			t.Fatalf("%q was read as %+v, which cannot be typed: %q", args, first, printed)
		}
		second, restAgain := ParseArgs(append(printed, rest...), v)
		if second != first || !reflect.DeepEqual(restAgain, rest) {
			t.Fatalf("%q: %+v %q, again %+v %q", args, first, rest, second, restAgain)
		}
		for _, f := range Fields {
			if again := ParseList(first.Get(f)).String(); again != first.Get(f) {
				t.Fatalf("%q became %q", first.Get(f), again)
			}
		}
	})
}

func TestArgsOfWhatCannotBeTyped(t *testing.T) {
	for _, r := range []Request{{TresPerJob: "gres/shard:2"}, {TresPerNode: "gpu:1"}, {MemPerTres: "gres/gpu:a100:5"}, {TresPerNode: "gres/gpu:1(IDX:0)"}} {
		if args, ok := r.Args(v24); ok {
			t.Errorf("%+v is typed %q", r, args)
		}
	}
}
