package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator/trace"
)

func TestFirstFailure(t *testing.T) {
	failed := func(kind string, ended float64, full bool) process {
		return process{python: &Python{BeganUnix: 1000, WallSeconds: ended, Exception: &trace.Exception{Type: kind, OutOfMemory: full}}}
	}
	for _, c := range []struct {
		name      string
		processes []process
		want      string
	}{
		{"none", []process{{}, {python: &Python{}}}, ""},
		{"full card", []process{failed("OutOfMemoryError", 5, true)}, ""},
		{"launcher alone", []process{failed("ChildFailedError", 5, false)}, "ChildFailedError"},
		{"launcher first", []process{failed("ChildFailedError", 5, false), failed("ValueError", 9, false)}, "ValueError"},
		{"launcher last", []process{failed("ValueError", 9, false), failed("CalledProcessError", 5, false)}, "ValueError"},
		{"another rank lost its partner", []process{failed("DistBackendError", 5, false), failed("KeyError", 6, false)}, "KeyError"},
		{"the first of two", []process{failed("ValueError", 9, false), failed("KeyError", 7, false)}, "KeyError"},
	} {
		got := ""
		if e := firstFailure(c.processes); e != nil {
			got = e.Type
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReadBeforeFailure(t *testing.T) {
	failed := func(p Python, n *Native) process {
		p.Exception = &trace.Exception{Type: "ValueError"}
		return process{python: &p, native: n}
	}
	for _, c := range []struct {
		name string
		p    process
		want bool
	}{
		{"nothing", failed(Python{}, &Native{}), false},
		{"losses that are watched", failed(Python{}, &Native{ValuesReadBack: 5}), false},
		{"numbers", failed(Python{ValuesReadBack: 1}, nil), true},
		{"arrays", failed(Python{}, &Native{ArraysReadBack: 1}), true},
		{"comparisons", failed(Python{Decisions: 1}, &Native{}), true},
		{"a policy's answers", failed(Python{Values: ValuesSide{Uses: map[string]int64{"nonzero": 1}}}, &Native{}), true},
	} {
		other := process{python: &Python{ValuesReadBack: 9}} // a process that did not fail says nothing of the one that did
		hint, ok := readBeforeFailure([]process{other, c.p}, c.p.python.Exception)
		if ok != c.want || ok && hint.Code != "values_read_back" {
			t.Errorf("%s: %v %v, want %v", c.name, hint, ok, c.want)
		}
	}
}
