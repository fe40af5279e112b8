package trace

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/gresize/gresize/internal/regular"
)

const manifestName = "manifest.json"

// The end of a zip file, as this package writes it: no comment, no zip64.
const (
	endRecordBytes     = 22
	endRecordMagic     = 0x06054b50
	maxDirectoryBytes  = 1 << 20
	maxEntriesOfRank   = 16
	maxEntries         = 1 + maxEntriesOfRank*MaxRanks
	offsetRecordCount  = 10
	offsetDirectoryLen = 12
	offsetDirectoryAt  = 16
	offsetCommentLen   = 20
)

// ErrNotBundle means that a file is something else altogether; its text names the way to one.
var ErrNotBundle = errors.New("gresize estimate --bundle FILE -- COMMAND makes one")

// zipMagic begins a bundle.
const zipMagic = "PK\x03\x04"

// ErrInvalid wraps every fault that Read finds in a bundle.
var ErrInvalid = errors.New("invalid bundle")

// Write writes a bundle. Equal bundles give equal bytes.
func Write(w io.Writer, b *Bundle) error {
	b.Manifest.RankCount = len(b.Ranks)
	if err := b.Validate(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	manifest, err := json.MarshalIndent(b.Manifest, "", " ")
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if len(manifest) > MaxManifestBytes {
		return fmt.Errorf("write bundle: the manifest is %d bytes, at most %d", len(manifest), MaxManifestBytes)
	}
	counted := &limitedWriter{w: w, left: MaxBundleBytes}
	z := zip.NewWriter(counted)
	z.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
	if err := add(z, manifestName, manifest); err != nil {
		return err
	}
	for i, r := range b.Ranks {
		if err := add(z, fmt.Sprintf("ranks/%d/report.json", i), r.Report); err != nil {
			return err
		}
		if len(r.Events) > 0 {
			if err := add(z, fmt.Sprintf("ranks/%d/events.%s", i, r.EventsFormat), r.Events); err != nil {
				return err
			}
		}
		if len(r.Profile) > 0 {
			if err := addAs(z, zip.Store, fmt.Sprintf("ranks/%d/profile.json.gz", i), r.Profile); err != nil {
				return err
			}
		}
		for _, p := range slices.Sorted(maps.Keys(r.Parts)) {
			if err := add(z, fmt.Sprintf("ranks/%d/%s", i, p.entry()), r.Parts[p]); err != nil {
				return err
			}
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

func add(z *zip.Writer, name string, data []byte) error { return addAs(z, zip.Deflate, name, data) }

func addAs(z *zip.Writer, method uint16, name string, data []byte) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write bundle: %s: %w", name, err)
	}
	return nil
}

type limitedWriter struct {
	w    io.Writer
	left int64
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("the bundle is larger than %d bytes", MaxBundleBytes)
	}
	return l.w.Write(p)
}

// WriteFile writes a bundle so that path holds either all of it or what it held before.
func WriteFile(path string, b *Bundle) (err error) {
	dir := filepath.Dir(path)
	f, err := regular.CreateBeside(path)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := Write(f, b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// ReadFile reads a bundle from a file.
func ReadFile(path string) (*Bundle, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	var head [len(zipMagic)]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) || string(head[:]) != zipMagic {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
		return nil, fmt.Errorf("read bundle: %s is none: %w", path, ErrNotBundle)
	}
	b, err := Read(f, fi.Size())
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", path, err)
	}
	return b, nil
}

// Decode reads a bundle from memory.
func Decode(data []byte) (*Bundle, error) { return Read(bytes.NewReader(data), int64(len(data))) }

// Read reads a bundle of the given size. Nothing in it is trusted: an error
// that wraps ErrInvalid says what is wrong.
func Read(r io.ReaderAt, size int64) (*Bundle, error) {
	b, err := read(r, size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return b, nil
}

var rankEntry = regexp.MustCompile(`^ranks/(0|[1-9][0-9]{0,3})/(report\.json|profile\.json\.gz|events\.(bin|jsonl)|([a-z]+)\.jsonl)$`)

func read(r io.ReaderAt, size int64) (*Bundle, error) {
	if err := checkDirectory(r, size); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, err
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("%d entries, at most %d", len(z.File), maxEntries)
	}
	left := int64(MaxUnpackedBytes)
	seen := map[string]bool{}
	ranks := map[int]*Rank{}
	b := new(Bundle)
	for _, f := range z.File {
		if seen[f.Name] {
			return nil, fmt.Errorf("entry %q is there twice", f.Name)
		}
		seen[f.Name] = true
		if f.Name == manifestName {
			data, err := unpack(f, MaxManifestBytes, &left)
			if err != nil {
				return nil, err
			}
			if err := decodeManifest(data, &b.Manifest); err != nil {
				return nil, fmt.Errorf("%s: %w", manifestName, err)
			}
			continue
		}
		if err := readRankEntry(f, &left, ranks); err != nil {
			return nil, err
		}
	}
	if !seen[manifestName] {
		return nil, fmt.Errorf("no %s", manifestName)
	}
	b.Ranks = make([]Rank, len(ranks))
	for i := range b.Ranks {
		if ranks[i] == nil {
			return nil, fmt.Errorf("%d ranks, but no rank %d", len(ranks), i)
		}
		b.Ranks[i] = *ranks[i]
	}
	return b, b.Validate()
}

func readRankEntry(f *zip.File, left *int64, ranks map[int]*Rank) error {
	parts := rankEntry.FindStringSubmatch(f.Name)
	if parts == nil {
		return fmt.Errorf("entry %.80q has no place in a bundle", f.Name)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n >= MaxRanks {
		return fmt.Errorf("entry %q: rank out of range", f.Name)
	}
	if ranks[n] == nil {
		ranks[n] = new(Rank)
	}
	switch p := Part(parts[4]); {
	case parts[2] == "report.json":
		ranks[n].Report, err = unpack(f, MaxReportBytes, left)
		return err
	case parts[2] == "profile.json.gz":
		ranks[n].Profile, err = unpack(f, MaxProfileBytes, left)
		return err
	case p != "" && p.MaxBytes() == 0:
		return fmt.Errorf("entry %.80q has no place in a bundle", f.Name)
	case p != "":
		if ranks[n].Parts == nil {
			ranks[n].Parts = map[Part][]byte{}
		}
		ranks[n].Parts[p], err = unpack(f, p.MaxBytes(), left)
		return err
	}
	if ranks[n].EventsFormat != "" {
		return fmt.Errorf("rank %d has events in two forms", n)
	}
	ranks[n].EventsFormat = EventsFormat(parts[3])
	ranks[n].Events, err = unpack(f, MaxUnpackedBytes, left)
	return err
}

// checkDirectory looks at the end of the file before anything is allocated for its entries.
func checkDirectory(r io.ReaderAt, size int64) error {
	if size < endRecordBytes || size > MaxBundleBytes {
		return fmt.Errorf("%d bytes, want %d to %d", size, endRecordBytes, MaxBundleBytes)
	}
	var end [endRecordBytes]byte
	if _, err := r.ReadAt(end[:], size-endRecordBytes); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if binary.LittleEndian.Uint32(end[:]) != endRecordMagic || binary.LittleEndian.Uint16(end[offsetCommentLen:]) != 0 {
		return errors.New("no end record where a bundle has it: the file is cut off, or no bundle")
	}
	count := int64(binary.LittleEndian.Uint16(end[offsetRecordCount:]))
	length := int64(binary.LittleEndian.Uint32(end[offsetDirectoryLen:]))
	at := int64(binary.LittleEndian.Uint32(end[offsetDirectoryAt:]))
	if count > maxEntries || length > maxDirectoryBytes || at+length != size-endRecordBytes {
		return fmt.Errorf("directory of %d entries, %d bytes at %d", count, length, at)
	}
	return nil
}

// unpack reads one entry, however much its header claims, up to the limit.
func unpack(f *zip.File, limit int64, left *int64) ([]byte, error) {
	if f.Method != zip.Deflate && f.Method != zip.Store {
		return nil, fmt.Errorf("entry %q: packed by method %d", f.Name, f.Method)
	}
	limit = min(limit, *left)
	rc, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", f.Name, err)
	}
	defer rc.Close()
	data, err := io.ReadAll(io.LimitReader(rc, limit+1))
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", f.Name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("entry %q: more than %d bytes", f.Name, limit)
	}
	*left -= int64(len(data))
	return data, nil
}

func decodeManifest(data []byte, m *Manifest) error {
	if !shallow(data) {
		return fmt.Errorf("nested more than %d deep", MaxJSONDepth)
	}
	// Unknown keys are allowed: a newer probe may say more than this reader knows.
	return json.Unmarshal(data, m)
}
