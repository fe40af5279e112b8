package replay

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

func FuzzOracle(f *testing.F) {
	f.Add([]byte("@ torch=2.6.0 conf=expandable_segments:True total=4294967296 fraction=-\n> a v0 1000 0\n# alloc addr=1 size=2 stream=0x0\n= v0 0x1\n> r v0 4096\n> f v0\n> e\n> s\nS x\n> frac 0.5\n> t 4\n"))
	f.Add([]byte("@ torch=2.12 conf=max_split_size_mb:32,garbage_collection_threshold:0.5 total=99999999 fraction=0.3\n> frac 0.3\n> a v0 99999999999 7\n! CUDA out of memory.\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadOracle(bytes.NewReader(data), "fuzz")
		if err != nil {
			return
		}
		if _, err := p.Check(); err != nil && p.Answers != nil && errors.Is(err, ErrNotRecorded) {
			t.Fatal(err)
		}
		if s, _, err := p.Snapshot(RunOptions{CapacityBytes: 1 << 30}); err == nil {
			if err := snapshot.Write(&bytes.Buffer{}, s); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzSnapshotProgram(f *testing.F) {
	for _, name := range []string{"../../snapshot/testdata/protocol2.pickle"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"segments":[{"device":0,"address":1048576,"total_size":20971520,"stream":0,"segment_type":"large","is_expandable":true,"blocks":[[2097152,2097000,"active_allocated"],[18874368,0,"inactive"]]}],"device_traces":[[["segment_map",1048576,20971520,0],["alloc",1048576,2097000,0],["free_requested",3145728,5000000,0],["free_completed",3145728,5000000,0]]],"allocator_settings":{"expandable_segments":true}}`))
	f.Add([]byte(`{"segments":[],"device_traces":[[["segment_alloc",512,2097152,0],["alloc",512,4,0],["free_requested",512,4,0],["segment_free",4096,2097152,0],["free_completed",512,4,0],["segment_free",512,2097152,0],["segment_unmap",41943040,20971520,0],["oom",5,99999,1]]]}`))
	limits := snapshot.Limits{FileBytes: 1 << 18, Nodes: 1 << 14, Containers: 1 << 12, StackDepth: 1 << 8, StringBytes: 1 << 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := snapshot.Read(bytes.NewReader(data), "fuzz", limits)
		if err != nil {
			return
		}
		p, err := FromSnapshot(s, 0, allocator.Version{}, "fuzz")
		if err != nil {
			return
		}
		if _, err := p.Check(); err != nil {
			return
		}
		if _, err := p.Run(RunOptions{CapacityBytes: 1 << 34}); err != nil {
			return
		}
	})
}
