// Package bench measures what the plugin costs a submission: through the real
// sbatch and slurmctld, and in the plugin's own exchange with a daemon. It has
// no code of its own; `go test -bench .` runs it, as root.
package bench
