package contracttest

import (
	"encoding/json"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// SoundBundle is the bundle of a small job that ran for four steps on a card and took one GiB of it, for plugins that have no
// bundle of their own to be asked about.
func SoundBundle(card *gpu.Profile) *trace.Bundle {
	return &trace.Bundle{
		Manifest: trace.Manifest{
			Schema: trace.Schema, Versions: estimator.Versions{Gresize: "test", Torch: "2.6.0+cu124"},
			GPU:     trace.GPU{ID: card.ID, Name: card.Name, CapacityBytes: card.Total.Bytes, Devices: 1},
			Command: []string{"train.sh"}, RankCount: 1, Steps: 4, Outcome: trace.Stopped, Libraries: []string{"cublas"}, HostPeakBytes: 2 << 30,
			UnansweredSymbols: []trace.Symbol{}, Reasons: []estimator.Reason{}, Sandboxed: true, Notes: []string{}, Calls: []trace.Call{},
		},
		Ranks: []trace.Rank{{Report: json.RawMessage(`{"schema": "gresize.vgpu.rank/1", "rank": 0, "pid": 100, "reason": "stopped", ` +
			`"peak_allocated_bytes": 1000000000, "peak_reserved_bytes": 1073741824, "peak_device_bytes": 1073741824, "segments": 10, "steps": 4, ` +
			`"backward_calls": 4, "flat": true, "libraries": ["cublas"], "coverage": {"torch": "2.6.0+cu124", "known_release": true}}`)}},
	}
}
