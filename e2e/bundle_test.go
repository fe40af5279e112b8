package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// says is a probe that reports a peak of so many GiB, on whatever card.
func says(t *testing.T, gib int64, confidence estimator.Confidence) fakeAnswer {
	t.Helper()
	a := fakeAnswer{Bundles: map[string][]byte{}}
	for _, card := range []string{"a100-80", "rtx3060"} {
		a.Bundles[card] = bundleFor(t, card, gib, confidence)
	}
	return a
}

// hostPeakBytes is the host memory of every probe.
const hostPeakBytes = 1 << 30

// bundleFor is a bundle from which the virtual GPU's estimator reads a peak of so many GiB, with the confidence.
func bundleFor(t *testing.T, cardName string, gib int64, confidence estimator.Confidence) []byte {
	t.Helper()
	card, err := gpu.Load(cardName)
	must(t, err)
	report, err := json.Marshal(map[string]any{
		"schema": "gresize.vgpu.rank/1", "rank": 0, "pid": 100, "reason": "stopped", "peak_allocated_bytes": gib << 30, "peak_reserved_bytes": gib << 30,
		"peak_device_bytes": gib << 30, "segments": 10, "steps": 4, "backward_calls": 4, "flat": true, "libraries": []string{"cublas"},
		"coverage": map[string]any{"torch": "2.6.0+cu124", "known_release": true},
	})
	must(t, err)
	b := trace.Bundle{
		Manifest: trace.Manifest{Schema: trace.Schema, Versions: estimator.Versions{Torch: "2.6.0+cu124"},
			GPU:     trace.GPU{ID: card.ID, Name: card.Name, CapacityBytes: card.Total.Bytes, Devices: 1},
			Command: []string{"job.sh"}, RankCount: 1, Steps: 4, HostPeakBytes: hostPeakBytes, Outcome: trace.Stopped, Libraries: []string{"cublas"},
			UnansweredSymbols: []trace.Symbol{}, Reasons: []estimator.Reason{}, Sandboxed: true, Notes: []string{}, Calls: []trace.Call{}},
		Ranks: []trace.Rank{{Report: report}},
	}
	if confidence == estimator.Unknown {
		b.Manifest.Outcome, b.Manifest.ExitStatus, b.Manifest.Steps = trace.Crashed, 1, 0
		b.Manifest.Reasons = []estimator.Reason{{Code: "script_failed", Detail: "exit status 1"}}
	}
	var out bytes.Buffer
	must(t, trace.Write(&out, &b))
	return out.Bytes()
}
