package batch

import (
	"fmt"
	"slices"
	"testing"
)

func TestParseArray(t *testing.T) {
	for list, want := range map[string]string{
		"0-15": "16 0 15 1: [0 7 15]", "0-15%4": "16 0 15 1: [0 7 15]", "1,3,5-7": "5 1 7 1: [1 5 7]", "0-15:4": "4 0 12 4: [0 4 12]", "7": "1 7 7 1: [7]",
		"9,1": "2 1 9 1: [1 9]", "1-3,2": "3 1 3 1: [1 2 3]", "0-4000000": "4000001 0 4000000 1: [0 2000000 4000000]", "0-9:3,0-9:3": "4 0 9 3: [0 3 9]", "5-9,0-6": "10 0 9 1: [0 4 9]", "1-9:4,10": "4 1 10 4: [1 5 10]", "0-1": "2 0 1 1: [0 1]",
	} {
		a, err := ParseArray(list)
		if err != nil {
			t.Errorf("%q: %v", list, err)
			continue
		}
		tasks := slices.Compact([]uint32{a.Task(0), a.Task((a.Count - 1) / 2), a.Task(a.Count - 1)})
		if got := fmt.Sprint(a.Count, a.Min, a.Max, a.Step, ": ") + fmt.Sprint(tasks); got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
	for _, list := range []string{"", "a", "3-1", "1-", "-1", "1:2", "1-9:0", "1-9:x", "0-4000002", "0-4000000:2,1-3999999:2,0-9", "0-9:3,4-8:2", "4294967296", "1,,2", "1 2", "%4"} {
		if a, err := ParseArray(list); err == nil {
			t.Errorf("%q was read as %+v", list, a)
		}
	}
}

// FuzzParseArray: no text crashes it, and what it reads is in order and within bounds.
func FuzzParseArray(f *testing.F) {
	f.Add("0-15:4%2,99")
	f.Add("0-3%:")
	f.Fuzz(func(t *testing.T, list string) {
		a, err := ParseArray(list)
		if err == nil && (a.Count == 0 || a.Count > MostArrayTasks || a.Min != a.Task(0) || a.Max != a.Task(a.Count-1) || a.Min > a.Max || a.Count > a.Max-a.Min+1) {
			t.Fatalf("%q: %+v", list, a)
		}
	})
}
