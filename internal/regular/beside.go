package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// CreateBeside makes a file in the folder of path, to be renamed to it when it is whole. An error speaks of path, as nobody has named the other file.
func CreateBeside(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	var fault *fs.PathError
	if errors.As(err, &fault) {
		return nil, &fs.PathError{Op: "write", Path: path, Err: fault.Err}
	}
	return f, err
}
