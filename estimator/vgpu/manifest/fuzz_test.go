package manifest

import "testing"

// FuzzParse reads manifests, whose names become C source.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"torch":"2.6.0","cuda":"12.4","libraries":{"libcudart.so.12":{"symbols":["cudaMalloc"]}}}`))
	f.Add([]byte(`{"torch":"2.6.0","cuda":"12.4","libraries":{"libcudart.so.12;":{"symbols":["a\n#include"]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		for soname := range m.Libraries {
			if !libraryName.MatchString(soname) {
				t.Fatalf("the library %q was taken", soname)
			}
		}
	})
}
