package cpuprofile

import "testing"

// FuzzParseReport reads the report of a run under PyTorch's profiler, which a user's process wrote.
func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"schema":"` + Schema + `","recording":"` + RecordingWhole + `","steps":3,"wall_seconds":1.5}`))
	f.Add([]byte(`{"steps":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReport(data)
		if err != nil {
			return
		}
		if r.Steps < 0 || r.Moved < 0 || r.HostPeakBytes < 0 {
			t.Fatalf("%+v was taken", r)
		}
		_, _ = r.Stopped(), r.BudgetSpent()
	})
}
