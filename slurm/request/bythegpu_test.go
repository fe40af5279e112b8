package request

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/slurm/release"
)

// TestNothingIsAskedForByTheGPU: memory and CPUs by the GPU, which some select plugins refuse and which exclude other options, are never sent, there or back.
func TestNothingIsAskedForByTheGPU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Request{
			TresPerNode: rapid.SampledFrom([]string{"", "gres:gpu:1", "gres/gpu:a100:1,gres/vram:8"}).Draw(t, "node"), TresPerJob: rapid.SampledFrom([]string{"", "gres:gpu:1"}).Draw(t, "job"),
			TresPerTask: rapid.SampledFrom([]string{"", "cpu=2,gres/gpu:1"}).Draw(t, "task"), Features: rapid.SampledFrom([]string{"", "a", "a&b"}).Draw(t, "features"),
			MemPerTres: rapid.SampledFrom([]string{"", "gres:gpu:8192"}).Draw(t, "memory"), CpusPerTres: rapid.SampledFrom([]string{"", "gres:gpu:2"}).Draw(t, "cpus"),
			MemPerNodeMiB: rapid.Uint64Range(0, 4096).Draw(t, "mib"),
		}
		target := Target{Constraint: rapid.SampledFrom([]string{"", "x"}).Draw(t, "constraint"), Gres: rapid.SampledFrom([]string{"", "gpu:v100:1"}).Draw(t, "gres"),
			Shards: rapid.SampledFrom([]uint64{0, 8}).Draw(t, "shards"), Counted: rapid.SampledFrom([]string{"", "vram:4"}).Draw(t, "counted"), MemPerNodeMiB: rapid.Uint64Range(0, 4096).Draw(t, "host")}
		change, err := from.Change(target, Options{Version: rapid.SampledFrom([]release.Version{v20, v22, v24}).Draw(t, "version"), EnvDropped: rapid.Bool().Draw(t, "dropped")})
		if err != nil {
			return
		}
		for _, a := range append(change.Set, Difference(change.Result, from)...) {
			if a.Key == "MemPerTres" || a.Key == "CpusPerTres" {
				t.Fatalf("%+v to %+v sends %s=%s", from, target, a.Key, a.Value)
			}
		}
	})
}

// TestByNodeOpensShards: what asks by the node instead of by the GPU can become shards and could not before, asks for the same GPU, and loses no variable that the script reads.
func TestByNodeOpensShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Request{
			TresPerNode: rapid.SampledFrom([]string{"", "gres/gpu:1", "gres/gpu:a100:1,gres/vram:8", "gres/gpu:2", "gres/shard:4"}).Draw(t, "node"), TresPerJob: rapid.SampledFrom([]string{"", "gres/gpu:1"}).Draw(t, "job"),
			MemPerTres:  rapid.SampledFrom([]string{"", "gres/gpu:8192", "gres/gpu:8G", "gres/gpu:0", "gres/gpu", "gres/vram:4", "gres/gpu:1,gres/gpu:2"}).Draw(t, "memory"),
			CpusPerTres: rapid.SampledFrom([]string{"", "gres/gpu:2", "gres/gpu:99999", "x"}).Draw(t, "cpus"),
		}
		targets := rapid.SampledFrom([][]Target{nil, {{Constraint: "x"}}, {{Shards: 1}}}).Draw(t, "targets")
		o := Options{Version: rapid.SampledFrom([]release.Version{v20, v22, v24}).Draw(t, "version")}
		environment := rapid.SliceOf(rapid.SampledFrom([]string{"SLURM_MEM_PER_GPU=8192", "SLURM_CPUS_PER_GPU=2", "SLURM_GPUS=1", "SLURM_GPUS_PER_NODE=1", "A=1"})).Draw(t, "environment")
		script := rapid.SampledFrom([]string{"", "echo $SLURM_MEM_PER_GPU", "echo $SLURM_GPUS"}).Draw(t, "script")
		b, ok := from.ByNode(targets, o, environment, script)
		if !ok {
			return
		}
		shards := Target{Shards: 1}
		if _, err := from.Change(shards, Options{Version: o.Version, EnvDropped: true}); err == nil {
			t.Fatalf("%+v could become shards by itself", from)
		}
		if _, err := b.Request.Change(shards, Options{Version: o.Version, EnvDropped: true}); err != nil {
			t.Fatalf("%+v cannot become shards: %v", b.Request, err)
		}
		if (b.MemMiB > 0) != (from.MemPerTres != "") || (b.CPUs > 0) != (from.CpusPerTres != "") || b.Request.TresPerNode != from.TresPerNode || b.Request.TresPerJob != from.TresPerJob {
			t.Fatalf("%+v became %+v", from, b)
		}
		for _, name := range b.Drop {
			if speaksOf(script, name) {
				t.Fatalf("%s is dropped, which the script reads", name)
			}
		}
	})
}
