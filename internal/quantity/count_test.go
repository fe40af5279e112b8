package quantity

import "testing"

func TestCount(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{Count(0, "job"), "0 jobs"}, {Count(int64(1), "job"), "1 job"}, {Count(2, "job"), "2 jobs"}, {Count(uint32(11), "job"), "11 jobs"},
		{Count(1, "retry", "retries"), "1 retry"}, {Count(2, "retry", "retries"), "2 retries"},
		{Word(1, "is", "are"), "is"}, {Word(0, "is", "are"), "are"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
