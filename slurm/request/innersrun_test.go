package request

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/slurm/release"
)

func TestInnerSrun(t *testing.T) {
	typed, shards, feature := Target{Gres: "gpu:v100:1"}, Target{Shards: 8}, Target{Constraint: "gpu12g"}
	env := []string{"PATH=/bin", "SLURM_GPUS=a100:1", "SLURM_GPUS_PER_NODE=a100:1", "SLURM_GPUS_PER_TASK=1", "SLURM_TRES_PER_TASK=gres/gpu:1"}
	v26, bound := release.Version{Major: 26, Minor: 5, Micro: 5}, []string{"SLURM_NTASKS=1", "SLURM_TRES_PER_TASK=gres/gpu=1", "SLURM_TRES_BIND=gres/gpu:per_task:1"}
	for _, c := range []struct {
		name        string
		request     Request
		targets     []Target
		version     release.Version
		environment []string
		script      string
		drop        string
		clear       bool
	}{
		{"type of --gpus", Request{TresPerJob: "gres/gpu:a100:1"}, []Target{typed}, v24, env, "srun true", "SLURM_GPUS", true},
		{"type of --gpus-per-node", Request{TresPerNode: "gres/gpu:a100:1"}, []Target{typed}, v24, env, "srun true", "SLURM_GPUS_PER_NODE", true},
		{"--gres leaves no variable", Request{TresPerNode: "gres/gpu:a100:1"}, []Target{typed}, v24, []string{"PATH=/bin"}, "", "", true},
		{"shards for --gpus", Request{TresPerJob: "gres/gpu:1"}, []Target{feature, shards}, v24, env, "", "SLURM_GPUS", true},
		{"the per-task variables", Request{TresPerTask: "gres/gpu:1"}, []Target{shards}, v24, env, "", "SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK", true},
		{"the binding of one task", Request{TresPerTask: "gres/gpu=1"}, []Target{shards}, v26, bound, "", "SLURM_TRES_PER_TASK SLURM_TRES_BIND", true},
		{"the binding where it hides nothing", Request{TresPerTask: "gres/gpu=1"}, []Target{shards}, v24, bound, "", "SLURM_TRES_PER_TASK", true},
		{"the binding of several tasks", Request{TresPerTask: "gres/gpu=1"}, []Target{shards}, v26, bound[1:], "", "SLURM_TRES_PER_TASK", true},
		{"a script that reads the binding", Request{TresPerTask: "gres/gpu=1"}, []Target{shards}, v26, bound, "echo $SLURM_TRES_BIND", "", false},
		{"the binding without shards", Request{TresPerTask: "gres/gpu:a100=1"}, []Target{typed}, v26, bound, "", "SLURM_TRES_PER_TASK", true},
		{"CPUs in the same variable", Request{TresPerTask: "cpu=2,gres/gpu:1"}, []Target{shards}, v24, env, "", "", false},
		{"a script that reads it", Request{TresPerJob: "gres/gpu:a100:1"}, []Target{typed}, v24, env, "torchrun --nproc-per-node=${SLURM_GPUS:-1}", "", false},
		{"a script that reads another", Request{TresPerJob: "gres/gpu:a100:1"}, []Target{typed}, v24, env, "echo $SLURM_GPUS_ON_NODE", "SLURM_GPUS", true},
		{"a constraint contradicts nothing", Request{TresPerJob: "gres/gpu:1"}, []Target{feature}, v24, env, "", "", false},
		{"what the release cannot change anyway", Request{TresPerJob: "gres:gpu:a100:1"}, []Target{typed, shards}, v22, env, "", "", false},
		{"a type for an untyped count", Request{TresPerJob: "gres/gpu:1"}, []Target{typed}, v24, env, "", "", false},
		{"memory by the GPU is no shard", Request{TresPerJob: "gres/gpu:1", MemPerTres: "gres/gpu:100"}, []Target{shards}, v24, env, "", "", false},
		{"named twice", Request{TresPerJob: "gres/gpu:1", TresPerNode: "gres/gpu:1"}, []Target{shards}, v24, env, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.request.InnerSrun(c.targets, Options{Version: c.version}, c.environment, c.script)
			if strings.Join(got.Drop, " ") != c.drop || got.Clear != c.clear {
				t.Errorf("got %+v, want %q, %v", got, c.drop, c.clear)
			}
		})
	}
}

// TestInnerSrunTakesOnlyWhatIsThere draws requests and environments: nothing is dropped that the environment has not or the script speaks of.
func TestInnerSrunTakesOnlyWhatIsThere(t *testing.T) {
	var all []string
	for _, f := range Fields {
		all = append(all, srunVariables[f]...)
	}
	rapid.Check(t, func(t *rapid.T) {
		var r Request
		r.set(rapid.SampledFrom(Fields).Draw(t, "field"), rapid.SampledFrom([]string{"gres/gpu:1", "gres/gpu:a100:2", "cpu=2,gres/gpu:1", "x", ""}).Draw(t, "value"))
		names := rapid.SliceOf(rapid.SampledFrom(append(all, "PATH", "HOME"))).Draw(t, "names")
		var env []string
		for _, n := range names {
			env = append(env, n+"=1")
		}
		script := strings.Join(rapid.SliceOf(rapid.SampledFrom(append(all, "$", "x"))).Draw(t, "script"), " ")
		got := r.InnerSrun([]Target{{Gres: "gpu:v100:1"}, {Shards: 3}}, Options{Version: v24}, env, script)
		if len(got.Drop) > 0 && !got.Clear {
			t.Fatalf("dropped for nothing: %+v", got)
		}
		for _, d := range got.Drop {
			if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+d+" ") || strings.Contains(" "+script+" ", " "+d+" ") || !strings.HasPrefix(d, "SLURM_") {
				t.Fatalf("%q dropped from %q with the script %q", d, names, script)
			}
		}
	})
}
