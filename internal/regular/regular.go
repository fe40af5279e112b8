// Package regular opens the files that people name. A pipe in such a place would stop a program at the opening, where no
// signal ends it, and a device has no end.
package regular

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// What stands in the place of a file.
var (
	errPipe   = errors.New("a pipe and no regular file: save what comes out of it, and name that file")
	errSocket = errors.New("a socket and no regular file: name a file")
	errDevice = errors.New("a device and no regular file: name a file")
)

// Open opens a regular file for reading. Anything else is a fs.PathError, without a wait and without a byte read.
func Open(path string) (*os.File, error) {
	return OpenFile(path, os.O_RDONLY, 0)
}

// OpenFile is os.OpenFile for a regular file.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	// O_NONBLOCK: nobody may ever write to a pipe. O_NOCTTY: a terminal is looked at and left.
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK|syscall.O_NOCTTY, perm)
	if errors.Is(err, syscall.ENXIO) {
		if fault := Check(path); fault != nil {
			err = fault // what stands there says more than that it has no such device
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = fault(path, info.Mode())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// Check says why a file is not to be opened, for a path that a library opens by itself.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return fault(path, info.Mode())
}

func fault(path string, mode fs.FileMode) error {
	refused := func(err error) error { return &fs.PathError{Op: "open", Path: path, Err: err} }
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return refused(syscall.EISDIR)
	case mode&fs.ModeNamedPipe != 0:
		return refused(errPipe)
	case mode&fs.ModeSocket != 0:
		return refused(errSocket)
	}
	return refused(errDevice)
}
