package vgpu

import "testing"

// TestHabitsOfPrograms holds what public programs do and what once went wrong with it.
func TestHabitsOfPrograms(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices int
	}{
		{name: "second_device", devices: 2},
	} {
		for _, release := range []string{"2.6.0", "2.11.0"} {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, c.devices, []string{"testdata/programs.py", c.name})
				if o.failed || !o.reports.Stopped || len(o.reports.UnansweredSymbols) != 0 {
					t.Fatalf("failed %v, stopped %v, unanswered %v\n%s", o.failed, o.reports.Stopped, o.reports.UnansweredSymbols, o.output)
				}
			})
		}
	}
}
