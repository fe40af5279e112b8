package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/events"
	"github.com/gresize/gresize/internal/regular"
)

// OpenOptions choose what is read of a file that holds several histories.
type OpenOptions struct {
	// Device is the rank of a bundle, or the device of a snapshot.
	Device int
	// Version is the PyTorch release, where the file does not name it.
	Version allocator.Version
}

// Open reads a program from a file of any known kind: an oracle trace, a PyTorch snapshot, a reduced snapshot in JSON, or a trace bundle.
func Open(path string, o OpenOptions) (*Program, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head, err := peek(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		b, err := trace.Read(f, info.Size())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return FromBundle(b, o, path)
	case bytes.HasPrefix(head, []byte(OracleMagic)):
		return ReadOracle(f, path)
	case len(head) > 0 && (head[0] == 0x80 || head[0] == '{'):
		s, err := snapshot.Read(f, path, snapshot.DefaultLimits)
		if err != nil {
			return nil, err
		}
		if devices := max(len(s.Traces), 1); o.Device >= devices {
			return nil, fmt.Errorf("%s: device %d was asked for, the snapshot has %d", path, o.Device, devices)
		}
		return FromSnapshot(s, o.Device, o.Version, path)
	}
	return nil, fmt.Errorf("%s is neither a trace bundle, a PyTorch memory snapshot, nor a recorded allocator trace", path)
}

// peek returns the first bytes of a file, unpacked when it is gzip.
func peek(f io.Reader) ([]byte, error) {
	in := bufio.NewReader(f)
	if head, err := in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReader(unzipped)
	}
	head, err := in.Peek(len(OracleMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head, nil
}

// ErrXLA says that what was recorded are arrays of XLA.
var ErrXLA = errors.New("the program is one of JAX: its memory is of XLA's allocator, and the one that is simulated is PyTorch's; what the program needs of another card, " +
	"or with another XLA_PYTHON_CLIENT_MEM_FRACTION, gresize estimate says by running it so")

// FromBundle makes a program of the events of one rank. A probe records from the start of the process, so the program begins with an empty cache.
func FromBundle(b *trace.Bundle, o OpenOptions, name string) (*Program, error) {
	if o.Device < 0 || o.Device >= len(b.Ranks) {
		if len(b.Ranks) == 0 {
			return nil, fmt.Errorf("%s: the run recorded no GPU (it ended as %s): make another with gresize estimate --bundle", name, b.Manifest.Outcome)
		}
		return nil, fmt.Errorf("%s: rank %d was asked for, the bundle has %d", name, o.Device, len(b.Ranks))
	}
	rank := &b.Ranks[o.Device]
	if len(rank.Events) == 0 {
		if mode := b.Manifest.RunMode(); mode != trace.ModeVGPU {
			return nil, fmt.Errorf("%s is the bundle of a run in the mode %s, made for another estimator: no GPU's allocator was in it; gresize estimate --bundle FILE -- COMMAND, without --estimator, records one", name, mode)
		}
		return nil, fmt.Errorf("%s: rank %d holds no allocator events: make the bundle with them recorded", name, o.Device)
	}
	if rank.EventsFormat != trace.EventsJSON {
		return nil, fmt.Errorf("%s: rank %d: events in the form %q are not known", name, o.Device, rank.EventsFormat)
	}
	h, err := events.Read(rank.Events)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: ranks/%d/events.jsonl: %w", trace.ErrInvalid, name, o.Device, err)
	}
	if h.Allocator != "" {
		return nil, fmt.Errorf("%s: rank %d: %w", name, o.Device, ErrXLA)
	}
	version := o.Version
	if version == (allocator.Version{}) {
		v, err := allocator.ParseVersion(b.Manifest.Versions.Torch)
		if err != nil {
			return nil, fmt.Errorf("%s: manifest: %w", name, err)
		}
		version = v
	}
	if h.TotalBytes == 0 && b.Manifest.GPU.CapacityBytes > 0 {
		h.TotalBytes = uint64(b.Manifest.GPU.CapacityBytes)
	}
	return FromHistory(h, version, name)
}
