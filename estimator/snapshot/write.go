package snapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// appendBatch is how many list items go into one APPENDS: PyTorch's viewer spreads them as the arguments of one call.
const appendBatch = 1000

// Write writes the snapshot as a pickle of protocol 4 that uses only the opcodes PyTorch's viewer knows.
func Write(out io.Writer, s *Snapshot) error {
	w := &pickler{out: bufio.NewWriterSize(out, 1<<16), memo: map[string]uint32{}}
	w.raw(opProto, 4)
	w.dict(func() {
		w.key("segments")
		w.list(len(s.Segments), func(i int) { w.segment(&s.Segments[i]) })
		w.key("device_traces")
		w.list(len(s.Traces), func(i int) {
			trace := s.Traces[i]
			w.list(len(trace), func(j int) { w.entry(&trace[j]) })
		})
		w.key("allocator_settings")
		w.settings(s.Settings)
		w.key("external_annotations")
		w.raw(opEmptyList)
		if s.Origin != nil {
			w.key("gresize")
			w.dict(func() {
				w.key("torch_version")
				w.text(s.Origin.TorchVersion)
				w.field("total_bytes", s.Origin.TotalBytes)
				w.key("memory_fraction")
				w.float(s.Origin.MemoryFraction)
			})
		}
	})
	w.raw(opStop)
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

// pickler writes plain data. Strings are written once and then named by number.
type pickler struct {
	out  *bufio.Writer
	memo map[string]uint32
	err  error
}

func (w *pickler) raw(b ...byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

func (w *pickler) key(s string) { w.text(s) }

func (w *pickler) text(s string) {
	if n, ok := w.memo[s]; ok {
		if n < 256 {
			w.raw(opBinGet, byte(n))
		} else {
			w.raw(append([]byte{opLongBinGet}, binary.LittleEndian.AppendUint32(nil, n)...)...)
		}
		return
	}
	if len(s) < 256 {
		w.raw(opShortBinUnicode, byte(len(s)))
	} else {
		w.raw(append([]byte{opBinUnicode}, binary.LittleEndian.AppendUint32(nil, uint32(len(s)))...)...)
	}
	w.raw([]byte(s)...)
	n := uint32(len(w.memo))
	w.memo[s] = n
	if n < 256 {
		w.raw(opBinPut, byte(n))
	} else {
		w.raw(append([]byte{opLongBinPut}, binary.LittleEndian.AppendUint32(nil, n)...)...)
	}
}

func (w *pickler) integer(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		w.raw(opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		w.raw(opBinInt2, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		w.raw(append([]byte{opBinInt}, binary.LittleEndian.AppendUint32(nil, uint32(n))...)...)
	default:
		w.raw(append([]byte{opLong1, 8}, binary.LittleEndian.AppendUint64(nil, uint64(n))...)...)
	}
}

func (w *pickler) boolean(b bool) {
	if b {
		w.raw(opNewTrue)
	} else {
		w.raw(opNewFalse)
	}
}

func (w *pickler) float(f float64) {
	w.raw(append([]byte{opBinFloat}, binary.BigEndian.AppendUint64(nil, math.Float64bits(f))...)...)
}

func (w *pickler) dict(fill func()) {
	w.raw(opEmptyDict, opMark)
	fill()
	w.raw(opSetItems)
}

func (w *pickler) list(n int, item func(i int)) {
	w.raw(opEmptyList)
	for i := 0; i < n; {
		w.raw(opMark)
		for end := min(i+appendBatch, n); i < end; i++ {
			item(i)
		}
		w.raw(opAppends)
	}
}

func (w *pickler) field(key string, n uint64) {
	w.key(key)
	w.integer(int64(n))
}

func (w *pickler) frames() {
	w.key("frames")
	w.raw(opEmptyList)
}

func (w *pickler) segment(s *Segment) {
	var allocated, active, requested uint64
	for _, b := range s.Blocks {
		if b.State == ActiveAllocated {
			allocated += b.SizeBytes
		}
		if b.State != Inactive {
			active += b.SizeBytes
			requested += b.RequestedBytes
		}
	}
	w.dict(func() {
		w.field("device", uint64(s.Device))
		w.field("address", s.Addr)
		w.field("total_size", s.TotalBytes)
		w.field("allocated_size", allocated)
		w.field("active_size", active)
		w.field("requested_size", requested)
		w.field("stream", s.Stream)
		w.key("segment_type")
		if s.Small {
			w.text("small")
		} else {
			w.text("large")
		}
		w.key("segment_pool_id")
		w.integer(s.PoolA)
		w.integer(s.PoolB)
		w.raw(opTuple2)
		w.key("is_expandable")
		w.boolean(s.Expandable)
		w.frames()
		w.key("blocks")
		w.list(len(s.Blocks), func(i int) {
			b := &s.Blocks[i]
			w.dict(func() {
				w.field("address", b.Addr)
				w.field("size", b.SizeBytes)
				w.field("requested_size", b.RequestedBytes)
				w.key("state")
				w.text(b.State.String())
				w.frames()
			})
		})
	})
}

func (w *pickler) entry(e *Entry) {
	w.dict(func() {
		w.key("action")
		w.text(e.Action.String())
		if e.Action == ActionOOM {
			w.field("device_free", e.Addr)
		} else {
			w.field("addr", e.Addr)
		}
		w.field("size", e.SizeBytes)
		w.field("stream", e.Stream)
		w.field("time_us", uint64(e.TimeMicros))
		if e.Category != "" {
			w.key("category")
			w.text(e.Category)
		}
		w.frames()
	})
}

func (w *pickler) settings(s *Settings) {
	if s == nil {
		w.raw(opEmptyDict)
		return
	}
	w.dict(func() {
		w.key("PYTORCH_CUDA_ALLOC_CONF")
		w.text(s.AllocConf)
		w.key("max_split_size")
		w.integer(s.MaxSplitBytes)
		w.key("garbage_collection_threshold")
		w.float(s.GCThreshold)
		w.key("expandable_segments")
		w.boolean(s.ExpandableSegments)
	})
}
