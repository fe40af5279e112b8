package vgpu

import (
	"fmt"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// launchers are the exceptions by which a process says that another one failed: in them the cause is not named.
var launchers = map[string]bool{
	"ChildFailedError": true, "CalledProcessError": true, "ProcessRaisedException": true, "ProcessExitedException": true,
	"RendezvousClosedError": true, "SignalException": true, "DistBackendError": true, "DistNetworkError": true, "DistStoreError": true,
}

// NamesNoCause says of a failure in words, "Type: text", that it is one of a launcher.
func NamesNoCause(failure string) bool {
	kind, _, _ := strings.Cut(failure, ":")
	return launchers[kind]
}

// firstFailure is the exception that a run failed of: of the programs' own the earliest, as the other ranks fail of the
// first one's absence; one of a launcher where nothing else was seen. Nil when there is none but of a full card.
func firstFailure(processes []process) *trace.Exception {
	var first *Python
	for i := range processes {
		p := processes[i].python
		if p == nil || p.Exception == nil || p.Exception.OutOfMemory {
			continue
		}
		if first == nil || launchers[first.Exception.Type] && !launchers[p.Exception.Type] ||
			launchers[first.Exception.Type] == launchers[p.Exception.Type] && p.BeganUnix+p.WallSeconds < first.BeganUnix+first.WallSeconds {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return first.Exception
}

// readBeforeFailure is a hint at gresize where a program failed that had gone by values which only a kernel could have computed: on a real GPU it may
// not have failed. Losses that were only printed or summed are not such values.
func readBeforeFailure(processes []process, failure *trace.Exception) (estimator.Reason, bool) {
	for i := range processes {
		p := processes[i].python
		if p == nil || p.Exception != failure {
			continue
		}
		read := p.ValuesReadBack + p.Decisions
		if n := processes[i].native; n != nil {
			read += n.ArraysReadBack
		}
		for _, uses := range p.Values.Uses {
			read += uses
		}
		if read > 0 {
			detail := fmt.Sprintf("before it failed the program went %d times by values that only a GPU would have computed; made-up ones stood in for them, and may be why it failed", read)
			return estimator.Reason{Code: estimator.CodeValuesReadBack, Detail: detail}, true
		}
	}
	return estimator.Reason{}, false
}
