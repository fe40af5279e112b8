package swap

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// jobFrom makes a job of any bytes, most of them wrong in some way: four words for each block, and its accesses as the bits of one more.
func jobFrom(data []byte, steps uint8) *Job {
	j := &Job{}
	for i := range int(steps % 64) {
		j.StepNanos = append(j.StepNanos, 1+int64(i*i*37%2000))
	}
	for len(data) >= 12 {
		b := layout.Block{Start: int64(int8(data[0])), End: int64(int8(data[1])), SizeBytes: uint64(binary.LittleEndian.Uint16(data[2:])) << (data[0] >> 7 * 40) << 8}
		uses := binary.LittleEndian.Uint64(data[4:])
		var accesses []int32
		for s := range int32(64) {
			if uses>>s&1 != 0 {
				accesses = append(accesses, s)
			}
		}
		j.Blocks, j.Accesses = append(j.Blocks, b), append(j.Accesses, accesses)
		data = data[12:]
	}
	return j
}

// clipped is the same job with all that makes no sense cut off, so that the simulation is reached.
func (j *Job) clipped() *Job {
	steps := int64(len(j.StepNanos))
	c := &Job{StepNanos: j.StepNanos}
	for i, b := range j.Blocks {
		b.Start, b.End, b.SizeBytes = max(b.Start, 0), min(b.End, steps), min(b.SizeBytes, 1<<24)
		if b.Start >= b.End {
			continue
		}
		var accesses []int32
		for _, a := range j.Accesses[i] {
			if int64(a) >= b.Start && int64(a) < b.End {
				accesses = append(accesses, a)
			}
		}
		c.Blocks, c.Accesses = append(c.Blocks, b), append(c.Accesses, accesses)
	}
	return c
}

// FuzzMake: any job is refused, said not to fit, or given a plan that holds.
func FuzzMake(f *testing.F) {
	f.Add([]byte("\x00\x09\x00\x20\x01\x01\x00\x00\x00\x00\x00\x00\x01\x08\x00\x20\x02\x01\x00\x00\x00\x00\x00\x00"), uint8(10), uint64(3<<20), 1e9, int64(100))
	f.Add([]byte("\xff\x09\xff\xff\x01\x01\x00\x00\x00\x00\x00\x00"), uint8(10), uint64(1<<63), 0.0, int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, steps uint8, target uint64, rate float64, latency int64) {
		if len(data) > 12*40 {
			return
		}
		link := Link{OutLatencyNanos: latency, InLatencyNanos: latency / 2, OutBytesPerSecond: rate, InBytesPerSecond: rate / 2}
		whole := jobFrom(data, steps)
		for _, j := range []*Job{whole, whole.clipped()} {
			p, _, err := Make(t.Context(), j, target, link, 200)
			var need *NeedError
			switch {
			case err == nil:
				hold(t, j, p, target)
			case errors.As(err, &need) && need == nil:
				t.Fatal("an error without content")
			}
			if j != whole && link.check() == nil && errors.Is(err, ErrInvalid) {
				t.Fatalf("a sound job is refused: %v", err)
			}
		}
	})
}
