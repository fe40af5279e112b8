// Package utilization says how busy a GPU will be with a program: the time of a training step, the share of it in which multiprocessors have work,
// and that in which memory is read or written. It is made from the operators of one step, as a run on the virtual GPU recorded them, by a roofline
// for each on the GPU's profile, and from the host's time between launches. It is advice, for whoever would let two jobs share a card; no request
// is ever changed by it.
package utilization

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gresize/gresize/estimator/trace"
)

// Limits on a stream of operators; it comes from a user's process.
const (
	maxKinds     = 4096
	maxCalls     = 1 << 17
	maxUses      = 1 << 16
	maxUsed      = 1 << 16 // storages of one operator
	maxTimes     = 64
	maxNameBytes = 80
	maxSeconds   = 24 * 3600
	maxWork      = 1e18 // FLOPs or bytes of one operator
	maxCount     = 1e9
)

// ErrInvalid wraps every fault that Read finds.
var ErrInvalid = errors.New("invalid stream of operators")

// Operator is one kind of operator of the step: name, work and type, and how often it came.
type Operator struct {
	Name string `json:"op"`
	// Kind is product (matrix products, convolutions, attention) or other.
	Kind string `json:"kind"`
	// Type is that of the arithmetic: fp32, tf32, fp16, bf16, fp64, fp8, int8, int.
	Type string `json:"dtype"`
	// FLOPs and Bytes are those of one call, all its launches together; Bytes are the sizes of what it reads and writes.
	FLOPs float64 `json:"flops"`
	Bytes float64 `json:"bytes"`
	// Launches are the kernels of one call, Blocks the blocks of threads of all of them.
	Launches float64 `json:"launches"`
	Blocks   float64 `json:"blocks"`
	Count    float64 `json:"count"`
}

// Stream is what one process recorded.
type Stream struct {
	// Step is the number of the step that was looked at; 0: none was.
	Step     int  `json:"step"`
	Compiled bool `json:"compiled"`
	// LeftOut counts operators that there was no room for.
	LeftOut int64 `json:"left_out"`
	// Syncs are the times that the host waited for a value, CopiedBytes what went between host and device.
	Syncs       int64   `json:"syncs"`
	CopiedBytes float64 `json:"copied_bytes"`
	// WallSeconds and ProcessorSeconds are the host's times of the other steps.
	WallSeconds      []float64  `json:"wall_seconds"`
	ProcessorSeconds []float64  `json:"processor_seconds"`
	Operators        []Operator `json:"-"`
	// Calls are the operators of the step in order, by their places in Operators; only where a plan is made of the run.
	Calls []int32 `json:"-"`
	// Uses are the operators of the step in order with what they read and wrote; only where the allocator's history was recorded, too.
	Uses []Use `json:"-"`
}

// Use is one operator and the storages that it read or wrote.
type Use struct {
	// Operator is its place in Operators; -1 where it is none of them.
	Operator int
	// From and To are where it began and ended: how many blocks the allocator had handed out, and had got back.
	From, To  [2]int64
	Addresses []uint64
}

// Read reads a stream. An error names the line.
func Read(data []byte) (*Stream, error) {
	s := new(Stream)
	headed := false
	for number, text := range trace.Lines(data) {
		var err error
		if !headed {
			headed = true
			err = s.readHead(text)
		} else {
			err = s.add(text)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrInvalid, number, err)
		}
	}
	if !headed {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	return s, nil
}

func (s *Stream) readHead(text []byte) error {
	head := struct {
		Version int `json:"operators"`
		*Stream
	}{Stream: s}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	switch {
	case head.Version != 1:
		return fmt.Errorf("operators: version %d is not known, want 1", head.Version)
	case s.Step < 0 || s.Step > math.MaxInt32 || s.LeftOut < 0 || s.Syncs < 0 || s.Syncs > maxCount:
		return errors.New("step, left_out or syncs: out of range")
	case len(s.WallSeconds) > maxTimes || len(s.ProcessorSeconds) > maxTimes:
		return fmt.Errorf("wall_seconds or processor_seconds: more than %d", maxTimes)
	}
	for _, v := range append(append([]float64{s.CopiedBytes / maxWork * maxSeconds}, s.WallSeconds...), s.ProcessorSeconds...) {
		if !(v >= 0 && v <= maxSeconds) {
			return errors.New("copied_bytes, wall_seconds or processor_seconds: out of range")
		}
	}
	return nil
}

func (s *Stream) add(text []byte) error {
	var line struct {
		Operator
		Calls []int32   `json:"calls"`
		Uses  [][]int64 `json:"uses"`
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	if len(s.Calls)+len(line.Calls) > maxCalls {
		return fmt.Errorf("calls: more than %d", maxCalls)
	}
	for _, c := range line.Calls {
		if c < 0 || int(c) >= len(s.Operators) {
			return fmt.Errorf("calls: operator %d of %d", c, len(s.Operators))
		}
	}
	s.Calls = append(s.Calls, line.Calls...)
	for _, numbers := range line.Uses {
		if err := s.addUse(numbers); err != nil {
			return err
		}
	}
	o := line.Operator
	if o.Name == "" {
		return nil // a newer probe may say more
	}
	if len(s.Operators) == maxKinds {
		return fmt.Errorf("more than %d kinds of operators", maxKinds)
	}
	if len(o.Name) > maxNameBytes || len(o.Kind) > maxNameBytes || len(o.Type) > maxNameBytes {
		return fmt.Errorf("op, kind or dtype: more than %d bytes", maxNameBytes)
	}
	for _, f := range []struct {
		name        string
		value, most float64
	}{{"flops", o.FLOPs, maxWork}, {"bytes", o.Bytes, maxWork}, {"launches", o.Launches, maxCount}, {"blocks", o.Blocks, maxWork}, {"count", o.Count, maxCount}} {
		if !(f.value >= 0 && f.value <= f.most) {
			return fmt.Errorf("%s: %g is out of range", f.name, f.value)
		}
	}
	s.Operators = append(s.Operators, o)
	return nil
}

// addUse reads the number of an operator, two places and addresses.
func (s *Stream) addUse(numbers []int64) error {
	const head = 5
	if len(s.Uses) == maxUses || len(numbers) <= head || len(numbers) > head+maxUsed {
		return fmt.Errorf("uses: more than %d, or one of %d numbers", maxUses, len(numbers))
	}
	u := Use{Operator: int(numbers[0]), From: [2]int64(numbers[1:3]), To: [2]int64(numbers[3:5])}
	if numbers[0] < -1 || numbers[0] >= int64(len(s.Operators)) || slices.Min(numbers[1:]) < 0 || u.From[0] > u.To[0] || u.From[1] > u.To[1] {
		return fmt.Errorf("uses: %d is impossible", numbers[:head])
	}
	for _, address := range numbers[head:] {
		u.Addresses = append(u.Addresses, uint64(address))
	}
	s.Uses = append(s.Uses, u)
	return nil
}
