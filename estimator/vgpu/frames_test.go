package vgpu

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestTracebacksHaveNoFramesOfOurs: what is printed at the end of a program is its own, and what the program sees is untouched.
func TestTracebacksHaveNoFramesOfOurs(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		env  []string
		ours bool
		says []string
	}{
		{name: "printed", says: []string{", in reads\n    tensor.item()\n", ", in <module>\n    reads(two)\n", "cannot be converted to Scalar", "direct cause", "ValueError: two numbers"}},
		{name: "whole", env: []string{"GRESIZE_VGPU_TRACEBACK=whole"}, ours: true, says: []string{", in reads\n", "ValueError: two numbers"}},
		{name: "a hook of the program", args: []string{"hook"}, says: []string{"a hook of the program: 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runInterpreter(t, torchtest.Python(t, "2.6.0"), 1, append([]string{"testdata/tracebacks.py"}, c.args...), c.env...)
			if !o.failed || strings.Contains(o.output, "gresize_vgpu") != c.ours {
				t.Errorf("failed: %v\n%s", o.failed, o.output)
			}
			for _, says := range append(c.says, "caught: 2", "at the end: 2") {
				if !strings.Contains(o.output, says) {
					t.Errorf("no %q in\n%s", says, o.output)
				}
			}
		})
	}
}
