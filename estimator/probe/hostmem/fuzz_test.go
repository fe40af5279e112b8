package hostmem

import "testing"

// FuzzTables reads tables of /proc: a figure is never below zero.
func FuzzTables(f *testing.F) {
	f.Add([]byte("MemAvailable: 2048 kB\n"))
	f.Add([]byte("key shmid rss swap\n0 0 4096 0\n"))
	f.Add([]byte("rss\n9223372036854775807\n9223372036854775807\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := field(data, "MemAvailable:"); n < 0 {
			t.Fatal(n)
		}
		if n := residentSegments(data); n < 0 {
			t.Fatal(n)
		}
	})
}
