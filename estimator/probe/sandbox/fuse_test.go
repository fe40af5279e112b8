package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The few calls of FUSE's protocol that a file system of one file needs, and the sizes of what they answer.
const (
	fuseLookup, fuseForget, fuseGetattr          = 1, 2, 3
	fuseOpen, fuseRead, fuseStatfs, fuseRelease  = 14, 15, 17, 18
	fuseFlush, fuseInit, fuseOpendir             = 25, 26, 27
	fuseReaddir, fuseReleasedir, fuseForgetMany  = 28, 29, 42
	fuseHeaderBytes, fuseInitBytes, fuseAttrSize = 40, 64, 88
)

// fuseHarmless are further questions that change nothing: attributes with names, access, an interrupt, the flags of a file that an overlay copies (ioctl), and whether data is there (poll).
var fuseHarmless = []uint32{22, 23, 34, 36, 39, 40}

// fuseFile is a file system with one file, best.pt, which notes what it is asked to do beside reading.
type fuseFile struct {
	dev     int
	content []byte
	mu      sync.Mutex
	writes  []uint32
}

func (f *fuseFile) attributes(node uint64) []byte {
	size, mode := uint64(len(f.content)), uint32(syscall.S_IFREG|0o644)
	if node == 1 {
		size, mode = 4096, syscall.S_IFDIR|0o755
	}
	var b bytes.Buffer
	for _, v := range []any{node, size, uint64(8), uint64(1), uint64(1), uint64(1), uint32(0), uint32(0), uint32(0), mode, uint32(1), uint32(os.Getuid()), uint32(os.Getgid()), uint32(0), uint32(4096), uint32(0)} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

// answer is what one request gets: its bytes, or an errno.
func (f *fuseFile) answer(opcode uint32, node uint64, in []byte) ([]byte, syscall.Errno) {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v)
		}
	}
	switch opcode {
	case fuseInit:
		put(uint32(7), uint32(31), uint32(131072), uint32(0), uint16(16), uint16(12), uint32(131072), uint32(1), uint16(32))
		b.Write(make([]byte, fuseInitBytes-b.Len()))
	case fuseGetattr:
		put(uint64(60), uint32(0), uint32(0), f.attributes(node))
	case fuseLookup:
		if string(bytes.TrimRight(in, "\x00")) != "best.pt" {
			return nil, syscall.ENOENT
		}
		put(uint64(2), uint64(0), uint64(60), uint64(60), uint32(0), uint32(0), f.attributes(2))
	case fuseOpen, fuseOpendir:
		put(uint64(0), uint32(0), uint32(0))
	case fuseRead, fuseReaddir:
		at, size := binary.LittleEndian.Uint64(in[8:]), binary.LittleEndian.Uint32(in[16:])
		data := f.content
		if opcode == fuseReaddir {
			put(uint64(2), uint64(1), uint32(7), uint32(syscall.DT_REG), []byte("best.pt\x00"))
			if data = bytes.Clone(b.Bytes()); at > 0 {
				data = nil
			}
			b.Reset()
			at = 0
		}
		data = data[min(at, uint64(len(data))):]
		b.Write(data[:min(int(size), len(data))])
	case fuseStatfs:
		b.Write(make([]byte, 80))
	case fuseRelease, fuseReleasedir, fuseFlush:
	default:
		if !slices.Contains(fuseHarmless, opcode) {
			f.mu.Lock()
			f.writes = append(f.writes, opcode)
			f.mu.Unlock()
		}
		return nil, syscall.ENOSYS
	}
	return b.Bytes(), 0
}

func (f *fuseFile) serve() {
	request := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(f.dev, request)
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOENT):
			continue
		case err != nil || n < fuseHeaderBytes:
			return // it is no longer mounted
		}
		opcode, unique, node := binary.LittleEndian.Uint32(request[4:]), binary.LittleEndian.Uint64(request[8:]), binary.LittleEndian.Uint64(request[16:])
		if opcode == fuseForget || opcode == fuseForgetMany {
			continue
		}
		out, errno := f.answer(opcode, node, request[fuseHeaderBytes:n])
		head := binary.LittleEndian.AppendUint32(nil, uint32(16+len(out)))
		head = binary.LittleEndian.AppendUint32(head, uint32(-int32(errno)))
		head = binary.LittleEndian.AppendUint64(head, unique)
		if _, err := syscall.Write(f.dev, append(head, out...)); err != nil && !errors.Is(err, syscall.ENOENT) {
			return
		}
	}
}

// TestFUSEBelow: a place on a FUSE file system can be read and written to in the view, and the file system itself is never asked to change anything. Where the kernel makes no overlay over it, it
// is read-only, and a note says so.
func TestFUSEBelow(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system here")
	}
	dir := t.TempDir()
	place := filepath.Join(dir, "fuse")
	if err := os.Mkdir(place, 0o755); err != nil {
		t.Fatal(err)
	}
	dev, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(dev) })
	f := &fuseFile{dev: dev, content: []byte("the best weights\n")}
	if err := unix.Mount("gresize-test", place, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", dev)); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); f.serve() }()
	t.Cleanup(func() {
		_ = unix.Unmount(place, unix.MNT_DETACH)
		<-served
	})
	exit, out := run(t, dir, `cd fuse && cat best.pt; echo evil > best.pt; cat best.pt; rm -f best.pt; echo x > new; ls`, nil)
	inView := strings.Contains(out, "evil\nnew\n")
	noted := strings.Contains(strings.Join(exit.Notes, " "), place+" is read-only")
	t.Logf("in the view: %v, notes: %q", inView, exit.Notes)
	if !strings.HasPrefix(out, "the best weights\n") || inView == noted {
		t.Errorf("%q, notes %q", out, exit.Notes)
	}
	if data, err := os.ReadFile(filepath.Join(place, "best.pt")); err != nil || string(data) != "the best weights\n" {
		t.Errorf("outside it is %q now: %v", data, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.writes) > 0 {
		t.Errorf("the file system was asked to do %v", f.writes)
	}
}
