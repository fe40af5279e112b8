package vgpu

import "testing"

// TestSparseSizes: the sizes of sparse tensors come from indices that are known, and are a policy's where these are not.
func TestSparseSizes(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0", "2.1.2") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			run := func(name, side string) *rankReport {
				o := runPython(t, release, 1, []string{"testdata/sparse.py", name}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1", "GRESIZE_VGPU_VALUES="+side)
				if o.failed || len(o.ranks) != 1 {
					t.Fatalf("%s, %s: %s", name, side, o.output)
				}
				return &o.ranks[0]
			}
			if uses := run("known", PolicyLow).Coverage.Values.Uses; len(uses) > 0 {
				t.Errorf("answered by a policy: %v", uses)
			}
			low, high := run("unknown", PolicyLow), run("unknown", PolicyHigh)
			if v := low.Coverage.Values; v.Uses["coalesce"] < 6 || v.Uses["to_sparse_csr"] != 6 || v.branchesOnly() {
				t.Errorf("answered by a policy: %v", v.Uses)
			}
			if low.PeakAllocatedBytes >= high.PeakAllocatedBytes {
				t.Errorf("%d and %d bytes: the sides are the same", low.PeakAllocatedBytes, high.PeakAllocatedBytes)
			}
		})
	}
}
