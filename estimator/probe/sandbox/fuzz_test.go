package sandbox

import (
	"bytes"
	"testing"
)

// FuzzParseMountinfo reads tables of mounts, whose names users choose.
func FuzzParseMountinfo(f *testing.F) {
	f.Add([]byte("22 27 0:21 / /proc rw,relatime - proc proc rw\n"))
	f.Add([]byte("22 27 0:21 / /a\\040b\\ rw shared:1 master:2 - ext4 /dev/x rw\n"))
	f.Add([]byte("- - - - - - - -\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		mounts, err := parseMountinfo(bytes.NewReader(data))
		if err != nil {
			return
		}
		for point := range mounts {
			_ = escapeOption(point)
		}
		b := &builder{mounts: mounts}
		for point := range mounts {
			b.points = append(b.points, point)
		}
		_ = b.mountNames("/")
	})
}
