package request

import (
	"testing"

	"pgregory.net/rapid"
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
		change, err := from.Change(target, Options{Version: rapid.SampledFrom([]Version{v20, v22, v24}).Draw(t, "version"), EnvDropped: rapid.Bool().Draw(t, "dropped")})
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
