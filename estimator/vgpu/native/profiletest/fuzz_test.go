package profiletest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gresize/gresize/tools/peertest"
)

// FuzzProfile: no profile and no list of visible devices makes the virtual GPU's libraries fail in the process of a user, and what they say of the card is possible.
func FuzzProfile(f *testing.F) {
	f.Add([]byte("name=Tesla T4\ncc_major=7\ncc_minor=5\ntotal_bytes=15828320256\ncontext_bytes=100\nattr.16=40\nlibrary.cublas=9\n"), "0,1")
	f.Add([]byte("attr.111=-400\nattr.81=2147483647\nattr.39=-5\n=\n#\nname=\r=\n"), "GPU-11111111,MIG-x,3,,")
	f.Add(append(bytes.Repeat([]byte("x"), 600), "=1\ntotal_bytes=9223372036854775807\ncontext_bytes=9223372036854775807"...), "-1")
	peer := peertest.Start(f, "-DGV_SONAME_MAJOR=12", "-I..", "testdata/peer.c", "-lpthread")
	f.Fuzz(func(t *testing.T, text []byte, visible string) {
		if len(text)+len(visible) > 60000 || bytes.IndexByte([]byte(visible), 0) >= 0 {
			return
		}
		question := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(text))), uint32(len(visible)))
		line := peer.Ask(t, question, text, []byte(visible))
		var devices, major, name, driver, sum int
		var total, context uint64
		if _, err := fmt.Sscan(line, &devices, &major, &total, &context, &name, &driver, &sum); err != nil || devices < 0 || devices > 4 || major < 0 || context > total {
			t.Fatalf("%q: %v", line, err)
		}
	})
}
