package client

import "testing"

// TestMayRequeue: what scontrol says of the job in a line of its own, and not what its name says.
func TestMayRequeue(t *testing.T) {
	const record = "JobId=7 JobName=a Requeue=1 b\n   UserId=u(1001) GroupId=u(1001)\n   Requeue=%s Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n   Command=/x/Requeue=1\n"
	for _, c := range []struct {
		script string
		may    bool
		err    bool
	}{
		{"printf '" + record + "' 1", true, false},
		{"printf '" + record + "' 0", false, false},
		{"echo", false, false},
		{"printf '" + record + "' 1; exit 1", false, true},
	} {
		may, err := fake(t, c.script).MayRequeue(t.Context(), 7)
		if may != c.may || (err != nil) != c.err {
			t.Errorf("%q: %v %v", c.script, may, err)
		}
	}
}
