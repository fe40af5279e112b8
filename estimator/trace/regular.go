package trace

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/internal/regular"
)

// ReadRegular reads a file that a process of the user left, if it is no link, no pipe and not too large.
func ReadRegular(path string, limit int64) ([]byte, error) {
	f, err := regular.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return data, err
}
