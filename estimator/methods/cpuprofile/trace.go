package cpuprofile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Limits on a trace, which a user's process wrote.
const (
	// MaxTraceBytes is the length of its JSON.
	MaxTraceBytes = int64(1) << 30
	// maxKept bounds the entries that are kept of each kind, maxNamesBytes the texts of their names.
	maxKept       = 2 << 20
	maxNamesBytes = 16 << 20
	maxNameBytes  = 256
	maxDims       = 16
)

// Names that traces have, from PyTorch and from gresize's Python layer.
const (
	IterationPrefix = "ProfilerStep#"
	OptimizerPrefix = "Optimizer.step#"
	ZeroGradPrefix  = "Optimizer.zero_grad#"
	BackwardMark    = "gresize.backward"
	ToDeviceMark    = "gresize.to_device"
	// OnDevicePrefix stands before the address, in hexadecimal, of what the program has on the card at that moment.
	OnDevicePrefix = "gresize.on_device "
	ModulePrefix   = "nn.Module: "
	// NodePrefix begins the operator in which a node of the backward graph is run.
	NodePrefix = "autograd::engine::evaluate_function: "
)

// Span is something that lasted: an operator, a module's call, an annotation. Times are nanoseconds.
type Span struct {
	BeginNanos, EndNanos int64
	// Name is an index of Trace.Names.
	Name   int32
	Thread int32
	// Sequence is autograd's number of an operator, -1 where it has none.
	Sequence int64
}

// MemoryEvent is an allocation, or with negative Bytes a free.
type MemoryEvent struct {
	AtNanos int64
	Addr    uint64
	Bytes   int64
	// Event is its index in the trace's list, for whoever looks it up.
	Event  int32
	Thread int32
}

// Conversion is a call of aten::to with the type and the size that it was asked about.
type Conversion struct {
	AtNanos  int64
	TypeCode string
	// Elements of the tensor.
	Elements int64
}

// Trace is what a profiler's trace has of memory, operators, modules and annotations, each in the order of time.
type Trace struct {
	Names       []string
	Ops         []Span
	Modules     []Span
	Annotations []Span
	Conversions []Conversion
	Memory      []MemoryEvent
	// Events counts all events of the trace.
	Events int
	// OtherDevices counts memory events of other devices than the CPU, which are left out.
	OtherDevices int
	// Transformers says that code of Hugging Face's models was run.
	Transformers bool
}

// ErrTrace wraps every fault that is found in a trace.
var ErrTrace = errors.New("profiler trace")

// ReadTrace reads the JSON of PyTorch's profiler as a stream. An error names the event and the offset.
func ReadTrace(r io.Reader) (*Trace, error) {
	b := &builder{s: newScanner(&limitedReader{r: r, left: MaxTraceBytes}), t: new(Trace), ids: map[string]int32{}, threads: map[int64]int32{}}
	if err := b.read(); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("it is cut off after %d bytes", b.s.base+int64(len(b.s.window)))
		}
		return nil, fmt.Errorf("%w: event %d: %w", ErrTrace, b.t.Events, err)
	}
	b.sort()
	return b.t, nil
}

type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes", MaxTraceBytes)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

type builder struct {
	s          *scanner
	t          *Trace
	ids        map[string]int32
	namesBytes int
	threads    map[int64]int32
	e          event
	found      bool
}

// event is one entry of the list while it is read.
type event struct {
	phase            byte
	cat              category
	name             []byte
	begin, dur       int64
	hasTime, hasDur  bool
	thread           int64
	bytes            int64
	addr             uint64
	hasBytes, hasAdr bool
	device           uint64
	sequence         int64
	typeCode         []byte
	elements         int64
}

type category uint8

const (
	catOther category = iota
	catOp
	catAnnotation
	catPython
	catInstant
)

func categoryOf(text []byte) category {
	switch string(text) {
	case "cpu_op":
		return catOp
	case "user_annotation":
		return catAnnotation
	case "python_function":
		return catPython
	case "cpu_instant_event":
		return catInstant
	}
	return catOther
}

// read goes through the outermost object. What stands there beside the list of events is passed over.
func (b *builder) read() error {
	s := b.s
	if err := s.whole(func(s *scanner) error { return s.expect('{') }); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, events := false, false
		err := s.whole(func(s *scanner) (err error) {
			if more, err = s.next(first, '}'); err != nil || !more {
				return err
			}
			key, err := s.text()
			if err != nil {
				return err
			}
			events = string(key) == "traceEvents"
			return s.expect(':')
		})
		if err != nil {
			return err
		}
		switch {
		case !more && !b.found:
			return errors.New("there is no list traceEvents")
		case !more:
			return b.end()
		case events && b.found:
			return errors.New("traceEvents is there twice")
		case events:
			b.found = true
			err = b.events()
		default:
			err = s.whole((*scanner).skip)
		}
		if err != nil {
			return err
		}
	}
}

// end checks that nothing follows.
func (b *builder) end() error {
	for {
		_, err := b.s.peek()
		if err == nil {
			return b.s.wrong("the end")
		}
		if b.s.eof {
			return nil
		}
		if err := b.s.fill(b.s.at); err != nil {
			return err
		}
	}
}

func (b *builder) events() error {
	s := b.s
	if err := s.whole(func(s *scanner) error { return s.expect('[') }); err != nil {
		return err
	}
	one := func(*scanner) error { return b.event() }
	for first := true; ; first = false {
		more := false
		err := s.whole(func(s *scanner) (err error) {
			more, err = s.next(first, ']')
			return err
		})
		if err != nil || !more {
			return err
		}
		// Nearly every event is in the window whole; reading on before its end saves to begin it again.
		if len(s.window)-s.at < 64<<10 && !s.eof {
			if err := s.fill(s.at); err != nil {
				return err
			}
		}
		if err := s.whole(one); err != nil {
			return err
		}
		if err := b.keep(); err != nil {
			return err
		}
		if b.t.Events++; b.t.Events > math.MaxInt32 {
			return fmt.Errorf("more than %d events", math.MaxInt32)
		}
	}
}

// event reads one entry into b.e.
func (b *builder) event() error {
	b.e = event{sequence: -1}
	return b.s.object(b.field)
}

func (b *builder) field(key []byte) (err error) {
	s, e := b.s, &b.e
	switch string(key) {
	case "ph":
		var text []byte
		if text, err = s.text(); err == nil && len(text) == 1 {
			e.phase = text[0]
		}
	case "cat":
		var text []byte
		if text, err = s.text(); err == nil {
			e.cat = categoryOf(text)
		}
	case "name":
		e.name, err = s.text()
	case "ts":
		e.begin, err = s.number()
		e.hasTime = true
	case "dur":
		e.dur, err = s.number()
		e.hasDur = true
	case "tid":
		if c, err := s.peek(); err != nil {
			return err
		} else if c == '"' {
			return s.skip()
		}
		e.thread, err = s.number()
	case "args":
		if e.cat == catPython || e.phase != 0 && e.phase != 'X' && e.phase != 'i' {
			return s.skip() // nothing in them is of use, and there are many
		}
		if c, err := s.peek(); err != nil {
			return err
		} else if c != '{' {
			return s.skip()
		}
		return s.object(b.argument)
	default:
		return s.skip()
	}
	return err
}

func (b *builder) argument(key []byte) (err error) {
	s, e := b.s, &b.e
	switch string(key) {
	case "Bytes":
		var magnitude uint64
		var negative bool
		if magnitude, negative, err = s.integer(); err != nil {
			return err
		}
		if magnitude > uint64(maxWeightBytes) {
			return s.wrong(fmt.Sprintf("a size of at most %d bytes", maxWeightBytes))
		}
		if e.bytes, e.hasBytes = int64(magnitude), true; negative {
			e.bytes = -e.bytes
		}
	case "Addr":
		var negative bool
		if e.addr, negative, err = s.integer(); err == nil && negative {
			return s.wrong("an address")
		}
		e.hasAdr = true
	case "Device Type":
		e.device, _, err = s.integer()
	case "Sequence number":
		var number uint64
		var negative bool
		number, negative, err = s.integer()
		if !negative && number <= math.MaxInt64 {
			e.sequence = int64(number)
		}
	case "Concrete Inputs":
		if string(e.name) == "aten::to" {
			return b.typeCode()
		}
		return s.skip()
	case "Input Dims":
		if string(e.name) == "aten::to" {
			return b.elements()
		}
		return s.skip()
	default:
		return s.skip()
	}
	return err
}

// typeCode reads the second of a list of texts, which in a call of aten::to is the number of a type.
func (b *builder) typeCode() error {
	return b.list(func(i int) error {
		if c, err := b.s.peek(); err != nil || c != '"' || i != 1 {
			return cmp.Or(err, b.s.skip())
		}
		var err error
		b.e.typeCode, err = b.s.text()
		return err
	})
}

// elements multiplies the numbers of the first list in a list.
func (b *builder) elements() error {
	return b.list(func(i int) error {
		if c, err := b.s.peek(); err != nil || c != '[' || i != 0 {
			return cmp.Or(err, b.s.skip())
		}
		b.e.elements = 1
		return b.list(func(i int) error {
			if c, err := b.s.peek(); err != nil || c == '[' {
				b.e.elements = 0
				return cmp.Or(err, b.s.skip())
			}
			n, negative, err := b.s.integer()
			if err != nil {
				return err
			}
			if negative || i >= maxDims || n > 0 && uint64(b.e.elements) > uint64(maxWeightBytes)/n {
				return b.s.wrong("the size of a tensor")
			}
			b.e.elements *= int64(n)
			return nil
		})
	})
}

func (b *builder) list(value func(i int) error) error {
	if err := b.s.expect('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := b.s.next(i == 0, ']')
		if err != nil || !more {
			return err
		}
		if err := value(i); err != nil {
			return err
		}
	}
}

var (
	memoryName   = []byte("[memory]")
	modulePrefix = []byte(ModulePrefix)
	huggingFace  = []byte("transformers/models/")
	lossFile     = []byte("transformers/loss/")
)

// keep puts the event that was read where it belongs.
func (b *builder) keep() error {
	e, t := &b.e, b.t
	switch {
	case e.cat == catInstant && bytes.Equal(e.name, memoryName):
		return b.keepMemory()
	case e.phase != 'X':
		return nil
	case e.cat == catPython:
		t.Transformers = t.Transformers || bytes.Contains(e.name, huggingFace)
		if bytes.HasPrefix(e.name, modulePrefix) || bytes.Contains(e.name, lossFile) {
			return b.keepSpan(&t.Modules)
		}
	case e.cat == catAnnotation:
		return b.keepSpan(&t.Annotations)
	case e.cat == catOp:
		if e.elements > 0 && len(e.typeCode) > 0 && len(t.Conversions) < maxKept {
			t.Conversions = append(t.Conversions, Conversion{AtNanos: e.begin, TypeCode: string(e.typeCode), Elements: e.elements})
		}
		return b.keepSpan(&t.Ops)
	}
	return nil
}

func (b *builder) keepMemory() error {
	e, t := &b.e, b.t
	if !e.hasBytes || !e.hasAdr || !e.hasTime {
		return errors.New("a memory event without Bytes, Addr or ts")
	}
	if e.device != 0 {
		t.OtherDevices++
		return nil
	}
	if len(t.Memory) == maxKept {
		return fmt.Errorf("more than %d memory events", maxKept)
	}
	t.Memory = append(t.Memory, MemoryEvent{AtNanos: e.begin, Addr: e.addr, Bytes: e.bytes, Event: int32(t.Events), Thread: b.threadOf(e.thread)})
	return nil
}

func (b *builder) keepSpan(to *[]Span) error {
	e := &b.e
	if !e.hasTime || !e.hasDur || e.dur < 0 || e.begin < 0 || e.begin > math.MaxInt64-e.dur {
		return fmt.Errorf("%.80q: without a time and a duration", e.name)
	}
	if len(*to) == maxKept {
		return fmt.Errorf("more than %d spans of one kind", maxKept)
	}
	name, err := b.nameOf(e.name)
	if err != nil {
		return err
	}
	*to = append(*to, Span{BeginNanos: e.begin, EndNanos: e.begin + e.dur, Name: name, Thread: b.threadOf(e.thread), Sequence: e.sequence})
	return nil
}

func (b *builder) nameOf(name []byte) (int32, error) {
	name = name[:min(len(name), maxNameBytes)]
	if id, ok := b.ids[string(name)]; ok {
		return id, nil
	}
	if b.namesBytes += len(name); b.namesBytes > maxNamesBytes {
		return 0, fmt.Errorf("names of more than %d bytes", maxNamesBytes)
	}
	id := int32(len(b.t.Names))
	b.t.Names = append(b.t.Names, string(name))
	b.ids[string(name)] = id
	return id, nil
}

// threadOf gives threads small numbers; beyond what any process has they are all one.
func (b *builder) threadOf(id int64) int32 {
	if n, ok := b.threads[id]; ok {
		return n
	}
	n := int32(len(b.threads))
	if n < 1<<16 {
		b.threads[id] = n
	}
	return n
}

// sort brings all into the order of time; what has the same time stays in the order of the trace, and of two spans that begin together the longer
// one is the outer.
func (b *builder) sort() {
	for _, spans := range [][]Span{b.t.Ops, b.t.Modules, b.t.Annotations} {
		slices.SortStableFunc(spans, func(x, y Span) int {
			return cmp.Or(cmp.Compare(x.BeginNanos, y.BeginNanos), cmp.Compare(y.EndNanos, x.EndNanos))
		})
	}
	slices.SortStableFunc(b.t.Conversions, func(x, y Conversion) int { return cmp.Compare(x.AtNanos, y.AtNanos) })
	slices.SortStableFunc(b.t.Memory, func(x, y MemoryEvent) int { return cmp.Compare(x.AtNanos, y.AtNanos) })
}

// Name is the name of a span.
func (t *Trace) Name(s *Span) string { return t.Names[s.Name] }
