package policy

import "github.com/gresize/gresize/slurm/request"

// Targets are what a job may be moved to, for those who have to know the kinds and not the sizes.
func (r Rules) Targets() []request.Target {
	targets := make([]request.Target, 0, len(r.Rows)+1)
	for _, row := range r.Rows {
		targets = append(targets, row.Target)
	}
	if r.ShardBytes > 0 {
		targets = append(targets, request.Target{Shards: 1})
	}
	return targets
}
