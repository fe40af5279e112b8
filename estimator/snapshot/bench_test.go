package snapshot

import (
	"bufio"
	"bytes"
	"testing"
)

// withFrames pickles a history as PyTorch does with stack recording on: every entry has its own list of shared frames.
func withFrames(entries, depth int) []byte {
	var out bytes.Buffer
	w := &pickler{out: bufio.NewWriter(&out), memo: map[string]uint32{}}
	w.raw(opProto, 4)
	w.dict(func() {
		w.key("segments")
		w.raw(opEmptyList)
		w.key("device_traces")
		w.list(1, func(int) {
			w.list(entries, func(i int) {
				w.dict(func() {
					w.key("action")
					w.text("alloc")
					w.field("addr", 0x7f0000000000+uint64(i)*512)
					w.field("size", uint64(i)*100)
					w.field("stream", 0)
					w.field("time_us", 1_700_000_000_000_000+uint64(i))
					w.key("frames")
					w.list(depth, func(j int) {
						w.dict(func() {
							w.key("filename")
							w.text("/usr/lib/python3/dist-packages/torch/nn/modules/module.py")
							w.field("line", uint64(i+j)%5000)
							w.key("name")
							w.text("forward")
						})
					})
				})
			})
		})
	})
	w.raw(opStop)
	w.out.Flush()
	return out.Bytes()
}

func BenchmarkRead(b *testing.B) {
	for name, data := range map[string][]byte{"frames=0": withFrames(300_000, 0), "frames=20": withFrames(30_000, 20)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := Read(bytes.NewReader(data), "bench", DefaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
