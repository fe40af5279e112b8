package jobs

import (
	"strings"
	"time"

	"github.com/gresize/gresize/slurm/request"
)

// groupPatience is how long a changed job waits for a limit that it shares with others, where the site sets no policy.max_wait.
const groupPatience = 10 * time.Minute

// limited says what Slurm's reason of a waiting job means for a change of it.
type limited int

const (
	// unlimited: no limit that the change could have met.
	unlimited limited = iota
	// shared: a limit on the GPUs or the memory of a group of jobs; it may pass, or never.
	shared
	// single: a limit that this one job breaks by what it asks for; it never starts.
	single
)

// limitOf reads a reason such as AssocMaxGRESPerJob, QOSMinGRES or AssocGrpGRES. Limits on CPUs, nodes, time and the number of jobs are those of the original request too.
func limitOf(reason string, change request.Change) limited {
	rest, ok := strings.CutPrefix(reason, "Assoc")
	if !ok {
		if rest, ok = strings.CutPrefix(reason, "QOS"); !ok {
			return unlimited
		}
	}
	gpus, memory := strings.Contains(rest, "GRES"), strings.Contains(rest, "Mem")
	if !gpus && !memory && !strings.Contains(rest, "Billing") {
		return unlimited
	}
	changesGPUs, changesMemory := false, false
	for _, a := range change.Set {
		changesGPUs = changesGPUs || strings.HasPrefix(a.Key, "Tres")
		changesMemory = changesMemory || a.Key == "MinMemoryNode"
	}
	switch {
	case gpus && !changesGPUs || memory && !changesMemory:
		return unlimited
	case strings.HasPrefix(rest, "Min"), strings.Contains(rest, "PerJob"), strings.Contains(rest, "PerNode"):
		return single
	}
	return shared
}
