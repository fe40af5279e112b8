package request

import (
	"slices"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// srunVariables are the variables that sbatch leaves in a job's environment and that an srun inside the job reads as options again, by the
// field of the job that they come from. SLURM_GRES is one that only a person sets.
var srunVariables = map[Field][]string{
	PerNode:   {"SLURM_GPUS_PER_NODE", "SLURM_GRES"},
	PerJob:    {"SLURM_GPUS", "SLURM_GRES"},
	PerSocket: {"SLURM_GPUS_PER_SOCKET", "SLURM_GRES"},
	PerTask:   {"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GRES"},
}

// InnerSrun says what an srun inside a job would be told by the job's environment.
type InnerSrun struct {
	// Drop are the variables to take out at submit, because a target that can be reached makes them untrue.
	Drop []string
	// Clear says that with Drop gone no variable contradicts any target: Options.EnvDropped.
	Clear bool
}

// InnerSrun works out which variables of the environment would still ask for the old resource if the job was moved to one of the targets. A pending job's
// environment cannot be changed, so this has to be known when the job is submitted. A variable that the script speaks of stays, and so does
// what it asks for: the job would miss it.
func (r Request) InnerSrun(targets []Target, o Options, environment []string, script string) InnerSrun {
	asks := r.Asks()
	if len(asks) != 1 {
		return InnerSrun{}
	}
	var present []string
	for _, name := range srunVariables[asks[0].Field] {
		if has(environment, name) {
			present = append(present, name)
		}
	}
	if len(present) == 0 {
		return InnerSrun{Clear: true}
	}
	if !r.needsDrop(targets, o) {
		return InnerSrun{}
	}
	for _, name := range present {
		// --tres-per-task=cpu=2,gres/gpu:1 is one variable: without it the steps would have other CPUs.
		if speaksOf(script, name) || name == "SLURM_TRES_PER_TASK" && len(ParseList(r.TresPerTask)) > 1 {
			return InnerSrun{}
		}
	}
	if asks[0].Field == PerTask && release.BindingHidesShards.In(o.Version) && slices.ContainsFunc(targets, func(t Target) bool { return t.Shards > 0 }) &&
		has(environment, bindVariable) && slices.Contains(environment, "SLURM_NTASKS=1") {
		if speaksOf(script, bindVariable) {
			return InnerSrun{}
		}
		present = append(present, bindVariable)
	}
	return InnerSrun{Drop: present, Clear: true}
}

// bindVariable binds each task to GPUs of its own. Where there is one task it says nothing, and where there are several it has to stay.
const bindVariable = "SLURM_TRES_BIND"

// needsDrop tells whether a target is out of reach only because of the environment.
func (r Request) needsDrop(targets []Target, o Options) bool {
	for _, t := range targets {
		o.EnvDropped = false
		_, err := r.Change(t, o)
		if refused, ok := IsRefused(err); !ok || refused.Code != CodeInnerSrun {
			continue
		}
		o.EnvDropped = true
		if _, err := r.Change(t, o); err == nil {
			return true
		}
	}
	return false
}

// has tells whether an environment has a variable.
func has(environment []string, name string) bool {
	return slices.ContainsFunc(environment, func(line string) bool {
		key, _, ok := strings.Cut(line, "=")
		return ok && key == name
	})
}

// speaksOf tells whether the name stands in the text as a word of its own, as in $NAME, ${NAME:-1} or os.environ["NAME"].
func speaksOf(text, name string) bool {
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		after := rest[i+len(name):]
		if after == "" || !partOfName(after[0]) {
			return true
		}
		rest = after
	}
}

func partOfName(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
