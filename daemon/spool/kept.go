package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptFolder holds the bundles of jobs whose story has ended, for whoever wants to see where their memory went.
const keptFolder = "kept"

// maxKept bounds the number of files, whatever their size: the folder is read whenever one comes in.
const maxKept = 4096

// KeepBundles has the bundles of ended jobs kept, the newest of them, up to so many bytes in all. 0, which is so until it is called, keeps none and deletes
// what was kept before.
func (s *Spool) KeepBundles(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepBytes = bytes
	if bytes > 0 {
		if err := os.MkdirAll(s.keptPath(""), 0o700); err != nil {
			return fmt.Errorf("keep bundles: %w", err)
		}
	}
	return s.trimKept(time.Time{})
}

// FindBundle opens the bundle of a job, whether its story goes on or has ended. The error is fs.ErrNotExist where there is none.
func (s *Spool) FindBundle(token string) (*os.File, error) {
	bundle, err := s.OpenBundle(token)
	if errors.Is(err, fs.ErrNotExist) {
		// Between the two it may have been moved.
		return openRegular(s.keptPath(token), MaxBundleBytes)
	}
	return bundle, err
}

// ForgetKept deletes the kept bundles that arrived before a time.
func (s *Spool) ForgetKept(before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trimKept(before)
}

// endBundle takes the bundle of an ended job out of the way: it is kept, or deleted.
func (s *Spool) endBundle(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepBytes == 0 {
		return s.remove(token, bundleSuffix)
	}
	path, err := s.path(token, bundleSuffix)
	if err != nil {
		return err
	}
	if err := os.Rename(path, s.keptPath(token)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return errors.Join(fmt.Errorf("keep bundle: %w", err), s.remove(token, bundleSuffix))
	}
	return s.trimKept(time.Time{})
}

// keptPath is where the bundle of a checked token is kept; of "" it is the folder.
func (s *Spool) keptPath(token string) string {
	if token == "" {
		return filepath.Join(s.dir, keptFolder)
	}
	return filepath.Join(s.dir, keptFolder, token+bundleSuffix)
}

// trimKept deletes what is older than a time, and the oldest of what is too much.
func (s *Spool) trimKept(before time.Time) error {
	entries, err := os.ReadDir(s.keptPath(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean kept bundles: %w", err)
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	var sum int64
	var failed error
	for i, f := range files {
		if sum += f.Size(); sum > s.keepBytes || i >= maxKept || f.ModTime().Before(before) {
			failed = errors.Join(failed, os.Remove(filepath.Join(s.keptPath(""), f.Name())))
		}
	}
	if failed != nil {
		return fmt.Errorf("clean kept bundles: %w", failed)
	}
	return nil
}
