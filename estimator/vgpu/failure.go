package vgpu

// launchers are the exceptions by which a process says that another one failed: in them the cause is not named.
var launchers = map[string]bool{
	"ChildFailedError": true, "CalledProcessError": true, "ProcessRaisedException": true, "ProcessExitedException": true,
	"RendezvousClosedError": true, "SignalException": true, "DistBackendError": true, "DistNetworkError": true, "DistStoreError": true,
}

// firstFailure is the exception that a run failed of: of the programs' own the earliest, as the other ranks fail of the
// first one's absence; one of a launcher where nothing else was seen. Nil when there is none but of a full card.
func firstFailure(processes []process) *Exception {
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
