package offload

import (
	"slices"
	"strings"
)

// Names of the variable with PyTorch's allocator settings, the newer one first: where it is set, the other one is not read.
var settingsNames = []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}

// Environment is an environment with the settings of PyTorch's allocator that the plan was made for.
func (p *Plan) Environment(base []string) []string {
	if !p.ExpandableSegments {
		return base
	}
	const name, setting = "expandable_segments:", "expandable_segments:True"
	env := slices.Clone(base)
	for _, variable := range settingsNames {
		for i := len(env) - 1; i >= 0; i-- { // the last assignment wins
			value, ok := strings.CutPrefix(env[i], variable+"=")
			if !ok || value == "" {
				continue
			}
			settings := slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), name) })
			env[i] = variable + "=" + strings.Join(append(settings, setting), ",")
			return env
		}
	}
	return append(env, settingsNames[len(settingsNames)-1]+"="+setting)
}
