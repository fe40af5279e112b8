package hostmem

import (
	"os"
	"testing"
)

// FuzzTables reads tables of /proc: a figure is never below zero.
func FuzzTables(f *testing.F) {
	f.Add([]byte("MemAvailable: 2048 kB\n"))
	f.Add([]byte("key shmid rss swap\n0 0 4096 0\n"))
	f.Add([]byte("rss\n9223372036854775807\n9223372036854775807\n"))
	f.Add([]byte("Name:\tpython\nPPid:\t1\nVmHWM:\t99 kB\nRssAnon:\t -1 kB\n"))
	f.Add([]byte("7f00-7f01 r-xp 0 fe:00 1 /usr/lib/libc.so.6\nRss: 4 kB\nPss: 2 kB\nAnonymous: 8 kB\nVmFlags: rd wr dd rr nh\n"))
	if own, err := os.ReadFile("/proc/self/smaps"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := field(data, "MemAvailable:"); n < 0 {
			t.Fatal(n)
		}
		if n := residentSegments(data); n < 0 {
			t.Fatal(n)
		}
		if s := parseStatus(data); s.ownBytes < 0 || s.fileBytes < 0 || s.sharedBytes < 0 || s.tableBytes < 0 || s.highestBytes < 0 || s.parent < 0 {
			t.Fatalf("%+v", s)
		}
		m := sumMappings(parseMappings(data))
		if m.dataBytes < 0 || m.namelessBytes < 0 || m.sharedFileBytes < 0 || m.deviceBytes < 0 || m.ownBytes < 0 {
			t.Fatalf("%+v", m)
		}
		for path, resident := range m.libraries {
			if resident < 0 {
				t.Fatalf("%q: %d", path, resident)
			}
		}
		var p pinnedRanges
		p.add(1, 1, m.pinned)
		p.add(2, 1, m.pinned)
		if p.untouchedBytes() < 0 {
			t.Fatalf("%+v", p)
		}
	})
}
