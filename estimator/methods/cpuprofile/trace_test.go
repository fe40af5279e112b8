package cpuprofile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/methods/cpuprofile/profiletest"
	"pgregory.net/rapid"
)

func mustRead(t *testing.T, text string) *Trace {
	t.Helper()
	read, err := ReadTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestReadTrace(t *testing.T) {
	var told profiletest.Trace
	told.Memory(30, 0x2000, 512).Memory(10.5, 0x1000, 1024).Mark("ProfilerStep#0", 0, 100).Op("aten::relu", 5, 20, 7).Op("aten::empty", 6, 7, -1).Module("Linear_0", 4, 21).
		Raw(`{"name": "process_name", "ph": "M", "pid": "x", "tid": "y", "args": {"name": "a \" quoted \\"}}`).
		Raw(`{"ph": "X", "cat": "cpu_op", "name": "aten::to", "tid": 1, "ts": 50, "dur": 1, "args": {"Concrete Inputs": ["", "6", "0"], "Input Dims": [[2, 3, 4], []]}}`).
		Raw(`{"args": {"Bytes": -1024, "Addr": 4096, "Device Type": 0}, "ts": 11, "tid": 1122, "name": "[memory]", "cat": "cpu_instant_event", "ph": "i"}`).
		Raw(`{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 1, "ts": 60, "args": {"Bytes": 9, "Addr": 1, "Device Type": 1}}`)
	read := mustRead(t, told.Text())
	if len(read.Memory) != 3 || read.Memory[0].AtNanos != 10500 || read.Memory[1].Bytes != -1024 || read.Memory[2].Addr != 0x2000 || read.OtherDevices != 1 {
		t.Errorf("memory %+v", read.Memory)
	}
	if len(read.Ops) != 3 || read.Name(&read.Ops[0]) != "aten::relu" || read.Ops[0].Sequence != 7 || read.Ops[0].EndNanos != 20000 || read.Ops[1].Sequence != -1 {
		t.Errorf("operators %+v of %q", read.Ops, read.Names)
	}
	if len(read.Modules) != 1 || len(read.Annotations) != 1 || read.Events != 10 {
		t.Errorf("%d modules, %d annotations, %d events", len(read.Modules), len(read.Annotations), read.Events)
	}
	if len(read.Conversions) != 1 || read.Conversions[0].Elements != 24 || read.Conversions[0].TypeCode != "6" {
		t.Errorf("conversions %+v", read.Conversions)
	}
	blocks, before, err := read.Blocks()
	if err != nil || before != 0 || len(blocks) != 2 || blocks[0].Alive() || !blocks[1].Alive() {
		t.Errorf("blocks %+v, %d, %v", blocks, before, err)
	}
}

// memory is a trace's event as short as can be.
func memory(ts, addr, bytes string) string {
	return fmt.Sprintf(`{"ph":"i","cat":"cpu_instant_event","name":"[memory]","ts":%s,"args":{"Bytes":%s,"Addr":%s}}`, ts, bytes, addr)
}

func TestBadTraces(t *testing.T) {
	wrap := func(events ...string) string { return `{"traceEvents":[` + strings.Join(events, ",") + `]}` }
	good := memory("1", "1", "8")
	for _, c := range []struct{ name, text, says string }{
		{"nothing", "", "event 0: it is cut off after 0 bytes"},
		{"no object", "[]", `'[' where '{' is expected`},
		{"no list", `{"schemaVersion": 1}`, "no list traceEvents"},
		{"two lists", `{"traceEvents":[],"traceEvents":[]}`, "twice"},
		{"list of numbers", `{"traceEvents":[1]}`, "event 0: offset 16"},
		{"cut off in the list", `{"traceEvents":[` + good, "event 1: it is cut off"},
		{"cut off in an event", `{"traceEvents":[` + good + "," + good[:40], "event 1: it is cut off"},
		{"cut off in a text", `{"traceEvents":[{"ph":"X`, "event 0: it is cut off"},
		{"cut off behind the list", `{"traceEvents":[` + good + `]`, "event 1: it is cut off"},
		{"more behind the end", wrap(good) + "{", "where the end is expected"},
		{"comma behind the last", `{"traceEvents":[` + good + `,]}`, "a value"},
		{"no comma", `{"traceEvents":[` + good + good + `]}`, "event 1: offset"},
		{"time of words", wrap(memory(`"soon"`, "1", "8")), "a number"},
		{"time not finite", wrap(memory("NaN", "1", "8")), "a number"},
		{"time in exponents", wrap(memory("1e300", "1", "8")), "a number"},
		{"time beyond", wrap(memory("99999999999999999999", "1", "8")), "within range"},
		{"size broken", wrap(memory("1", "1", "8.5")), "a whole number"},
		{"size beyond", wrap(memory("1", "1", "17592186044417")), "at most 17592186044416 bytes"},
		{"size beyond 64 bits", wrap(memory("1", "1", "99999999999999999999999")), "64 bits"},
		{"address below zero", wrap(memory("1", "-1", "8")), "an address"},
		{"memory without a size", wrap(`{"ph":"i","cat":"cpu_instant_event","name":"[memory]","ts":1,"args":{}}`), "without Bytes"},
		{"operator without an end", wrap(`{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1}`), "without a time and a duration"},
		{"operator that ends before", wrap(`{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":-1}`), "without a time and a duration"},
		{"brackets crossed", `{"a":[{]}]}`, "another bracket"},
		{"nested for ever", `{"a":` + strings.Repeat("[", 1000) + `}`, "nested more than 64 deep"},
		{"tensor beyond", wrap(`{"ph":"X","cat":"cpu_op","name":"aten::to","ts":1,"dur":1,"args":{"Input Dims":[[99999999999,99999999999]]}}`), "the size of a tensor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			read, err := ReadTrace(strings.NewReader(c.text))
			if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: want %q; %+v", err, c.says, read)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	type event struct {
		at    float64
		addr  uint64
		bytes int64
	}
	for _, c := range []struct {
		name           string
		events         []event
		blocks, before int
		says           string
	}{
		{"one after the other at an address", []event{{1, 16, 8}, {2, 16, -8}, {3, 16, 4}, {4, 16, -4}}, 2, 0, ""},
		{"all at the same time", []event{{1, 16, 8}, {1, 16, -8}, {1, 16, 4}, {1, 16, -4}}, 2, 0, ""},
		{"freed, but made before the trace", []event{{1, 16, -8}, {2, 16, 8}}, 1, 1, ""},
		{"of no size", []event{{1, 16, 0}, {2, 16, 8}}, 1, 0, ""},
		{"a free is missing", []event{{1, 16, 8}, {2, 32, 8}, {3, 16, 8}}, 0, 0, "event 2: 8 bytes are allocated at 0x10, where the block of event 0 was not freed"},
		{"the free is smaller", []event{{1, 16, 8}, {2, 16, -4}}, 0, 0, "event 1: 4 bytes are freed at 0x10, where event 0 allocated 8"},
		{"the free comes first at the same time", []event{{1, 16, -8}, {1, 16, 8}, {2, 16, 8}}, 0, 0, "event 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var told profiletest.Trace
			for _, e := range c.events {
				told.Memory(e.at, e.addr, e.bytes)
			}
			blocks, before, err := mustRead(t, told.Text()).Blocks()
			if len(blocks) != c.blocks || before != c.before || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %d, %v", blocks, before, err)
			}
		})
	}
}

// TestAnyCutIsTold cuts a trace at every byte: each time it is an error, and never a number.
func TestAnyCutIsTold(t *testing.T) {
	var told profiletest.Trace
	text := strings.TrimSpace(told.Mark("ProfilerStep#0", 0, 9).Op("aten::mm", 1, 3, 1).Memory(2, 16, 64).Memory(3, 16, -64).Text())
	for i := range text {
		if read, err := ReadTrace(strings.NewReader(text[:i])); err == nil {
			t.Fatalf("cut at %d of %d: %+v", i, len(text), read)
		}
	}
}

// TestWindowMoves reads events of any length through readers that give any number of bytes.
func TestWindowMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var told profiletest.Trace
		n := rapid.IntRange(1, 30).Draw(t, "events")
		for i := range n {
			long := strings.Repeat(`\"x[{`, rapid.IntRange(0, 40000).Draw(t, "length"))
			told.Raw(fmt.Sprintf(`{"ph":"X","cat":"python_function","name":"%s","ts":%d,"dur":1,"args":{"a":[["%s"]]}}`, long, i, long))
			told.Memory(float64(i), uint64(i+1)*16, 8)
		}
		read, err := ReadTrace(&slow{data: []byte(told.Text())})
		if err != nil || len(read.Memory) != n || read.Events != 2*n {
			t.Fatalf("%v", err)
		}
	})
}

func FuzzReadTrace(f *testing.F) {
	var told profiletest.Trace
	f.Add(told.Mark("ProfilerStep#0", 0, 9).Op("aten::mm", 1, 3, 1).Module("Linear_0", 1, 4).Memory(2, 16, 64).Memory(3, 16, -64).Mark("Optimizer.step#SGD.step", 5, 6).Text())
	f.Add(`{"traceEvents":[` + memory("1", "1", "8") + `]}`)
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrTrace) {
				t.Errorf("%v", err)
			}
			return
		}
		layout := read.Layout()
		blocks, _, err := read.Blocks()
		if err != nil {
			return
		}
		for i, p := range read.Places(layout, blocks) {
			b := blocks[i]
			if b.Bytes <= 0 || !b.Alive() && b.Death <= b.Birth || int(p.Op) >= len(read.Ops) || int(p.Leaf) >= len(read.Modules) || int(p.Iteration) >= len(layout.Iterations) {
				t.Errorf("block %+v at %+v", b, p)
			}
		}
	})
}
