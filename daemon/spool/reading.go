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

// BeginReading marks a bundle as being read, for whoever comes after the end of this process too. marked says that it was marked already.
func (s *Spool) BeginReading(sum string) (marked bool, err error) {
	path, err := s.markPath(sum)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mark, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(path), 0o700); err == nil {
			mark, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("mark bundle: %w", err)
	}
	return false, errors.Join(mark.Close(), s.trimMarks())
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
