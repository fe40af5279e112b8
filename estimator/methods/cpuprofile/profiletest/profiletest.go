// Package profiletest makes traces as PyTorch's profiler writes them, for tests and benchmarks: small ones told event by event, and large ones of
// any length.
package profiletest

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Trace is a trace that is told event by event. Times are microseconds.
type Trace struct {
	events []string
}

const process = 1122

// Span adds something that lasts: category is cpu_op, user_annotation or python_function. A sequence below zero is none.
func (t *Trace) Span(category, name string, begin, end float64, sequence int) *Trace {
	args := `"External id": 1`
	if sequence >= 0 {
		args += fmt.Sprintf(`,"Sequence number": %d, "Fwd thread id": 0`, sequence)
	}
	t.events = append(t.events, fmt.Sprintf(`{
    "ph": "X", "cat": "%s", "name": "%s", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      %s, "Record function id": 0, "Ev Idx": %d
    }
  }`, category, name, process, process, begin, end-begin, args, len(t.events)))
	return t
}

// Op adds an operator, Mark an annotation, Module a module's call.
func (t *Trace) Op(name string, begin, end float64, sequence int) *Trace {
	return t.Span("cpu_op", name, begin, end, sequence)
}

// Mark adds an annotation.
func (t *Trace) Mark(name string, begin, end float64) *Trace {
	return t.Span("user_annotation", name, begin, end, -1)
}

// Module adds a call of a module.
func (t *Trace) Module(name string, begin, end float64) *Trace {
	return t.Span("python_function", "nn.Module: "+name, begin, end, -1)
}

// Memory adds an allocation, or a free where bytes are negative.
func (t *Trace) Memory(at float64, addr uint64, bytes int64) *Trace {
	t.events = append(t.events, fmt.Sprintf(`{
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": %d, "tid": %d,
    "ts": %.3f,
    "args": {
      "Total Reserved": 0, "Total Allocated": 0, "Bytes": %d, "Addr": %d, "Device Id": -1, "Device Type": 0, "Ev Idx": %d
    }
  }`, process, process, at, bytes, addr, len(t.events)))
	return t
}

// Raw adds an event as it is written.
func (t *Trace) Raw(text string) *Trace {
	t.events = append(t.events, text)
	return t
}

// Text is the trace as JSON.
func (t *Trace) Text() string {
	return header + strings.Join(t.events, ",\n  ") + footer
}

const (
	header = `
{
  "schemaVersion": 1,
  "deviceProperties": [
  ],
  "record_shapes": 1,
  "with_stack": 1,
  "traceEvents": [
  `
	footer = `
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms"
}
`
)

// Large writes a trace of at least so many bytes with the mixture of events of a recorded training: for each allocation some ten calls of Python
// functions, and operators with their shapes. Every block is freed again but those of the first thousandth.
func Large(w io.Writer, bytes int64) error {
	out := bufio.NewWriterSize(w, 1<<20)
	if _, err := out.WriteString(header); err != nil {
		return err
	}
	written := int64(0)
	for i := 0; written < bytes; i++ {
		at := 4995862040494.768 + float64(i)*20
		if i > 0 {
			out.WriteString(",\n  ")
		}
		for k := range 5 {
			n, _ := fmt.Fprintf(out, `{
    "ph": "X", "cat": "python_function", "name": "torch/nn/modules/module.py(%d): _call_impl", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "Python parent id": %d, "Python id": %d, "Ev Idx": %d
    }
  },
  `, 1740+k, process, process, at+float64(k), 10-float64(k), i, i+k, i*8+k)
			written += int64(n)
		}
		n, _ := fmt.Fprintf(out, `{
    "ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": %d, "tid": %d,
    "ts": %.3f, "dur": 4.250,
    "args": {
      "External id": %d,"Sequence number": %d, "Fwd thread id": 0, "Record function id": 0, "Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Input Strides": [[1], [256, 1], [1, 256], [], []], "Input Dims": [[512], [1024, 256], [256, 512], [], []], "Ev Idx": %d
    }
  },
  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": %d, "tid": %d,
    "ts": %.3f,
    "args": {
      "Total Reserved": 0, "Total Allocated": 1048576, "Bytes": %d, "Addr": %d, "Device Id": -1, "Device Type": 0, "Ev Idx": %d
    }
  }`, process, process, at+5, i, i, i*8+6, process, process, at+6, largeBytes(i), largeAddr(i), i*8+7)
		written += int64(n)
	}
	if _, err := out.WriteString(footer); err != nil {
		return err
	}
	return out.Flush()
}

// In pairs of events, a block of a mebibyte is made and freed.
func largeBytes(i int) int64 {
	if i%2 == 0 {
		return 1 << 20
	}
	return -1 << 20
}

func largeAddr(i int) uint64 { return 140550371008576 + uint64(i/2%1000)<<20 }
