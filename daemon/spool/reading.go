package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// readingFolder holds an empty file for each bundle that is being read, and for each that ended its reader or the daemon: named by the hash of the bundle.
const readingFolder = "reading"

// maxMarks bounds the marks; the oldest go first.
const maxMarks = 4096

// mostReadings is how often the reading of a bundle is begun that never came to an end. The daemon may have been killed, or the machine have failed, by chance the first
// time.
const mostReadings = 2

// BeginReading marks a bundle as being read, for whoever comes after the end of this process too. barred says that it is not to be read any more.
func (s *Spool) BeginReading(sum string) (barred bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun, err := s.mark(sum, 1)
	switch {
	case err != nil:
		return false, err
	case begun >= mostReadings:
		return true, nil
	}
	return false, s.trimMarks()
}

// BarReading marks a bundle as one that ended its reader.
func (s *Spool) BarReading(sum string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.mark(sum, mostReadings)
	return err
}

// mark writes down that the reading of a bundle was begun so many times more, and says how often it had been. The length of the file is the number.
func (s *Spool) mark(sum string, times int) (before int64, err error) {
	path, err := s.markPath(sum)
	if err != nil {
		return 0, err
	}
	const flags = os.O_CREATE | os.O_APPEND | os.O_WRONLY
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(path), 0o700); err == nil {
			file, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("mark bundle: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		if before = info.Size(); before < mostReadings {
			_, err = file.Write(make([]byte, times))
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, fmt.Errorf("mark bundle: %w", err)
	}
	return before, nil
}

// EndReading takes the mark of a bundle away that was read.
func (s *Spool) EndReading(sum string) error {
	path, err := s.markPath(sum)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mark bundle: %w", err)
	}
	return nil
}

func (s *Spool) markPath(sum string) (string, error) {
	if !plainToken.MatchString(sum) {
		return "", fmt.Errorf("mark bundle: %.80q is no hash", sum)
	}
	return filepath.Join(s.dir, readingFolder, sum), nil
}

func (s *Spool) trimMarks() error {
	folder := filepath.Join(s.dir, readingFolder)
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= maxMarks {
		return err
	}
	var marks []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			marks = append(marks, info)
		}
	}
	slices.SortFunc(marks, func(a, b fs.FileInfo) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	for _, old := range marks[:max(0, len(marks)-maxMarks)] {
		err = errors.Join(err, os.Remove(filepath.Join(folder, old.Name())))
	}
	return err
}
