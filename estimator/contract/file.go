package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotTrusted means that somebody else could have changed a plugin's program, or that it is not the one that was pinned.
var ErrNotTrusted = errors.New("plugin is not trusted")

// writableByOthers are the bits of a mode that let others than the owner change a file.
const writableByOthers = 0o022

// TrustedFile returns the program behind a path, without links, if nobody but root and the user of this process can change it: each is
// the owner of the program and of every folder above it, and no other may write there, except into folders such as /tmp where nobody
// can take another's file away. With a pin, the SHA-256 of the program as hexadecimal digits, it must be that program too.
func TrustedFile(path, pin string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotTrusted, err)
	}
	info, err := os.Lstat(real)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotTrusted, err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is no file", ErrNotTrusted, real)
	}
	if err := checkOwner(real, info, os.Geteuid()); err != nil {
		return "", err
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrNotTrusted, err)
		}
		if err := checkOwner(dir, info, os.Geteuid()); err != nil {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if pin == "" {
		return real, nil
	}
	return real, checkPin(real, pin)
}

// checkOwner says who else than root and the user could change a file, or take files out of a folder.
func checkOwner(path string, info os.FileInfo, uid int) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%w: %s: its owner is not known", ErrNotTrusted, path)
	case stat.Uid != 0 && int(stat.Uid) != uid:
		return fmt.Errorf("%w: %s belongs to user %d and not to root or user %d; chown root", ErrNotTrusted, path, stat.Uid, uid)
	case info.Mode().Perm()&writableByOthers != 0 && !(info.IsDir() && info.Mode()&os.ModeSticky != 0):
		return fmt.Errorf("%w: %s can be changed by others (mode %#o); chmod go-w", ErrNotTrusted, path, info.Mode().Perm())
	}
	return nil
}

func checkPin(path, pin string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotTrusted, err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return fmt.Errorf("%w: %w", ErrNotTrusted, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != pin {
		return fmt.Errorf("%w: %s has the SHA-256 %s and not that of the configuration; if it was replaced on purpose, change sha256 there", ErrNotTrusted, path, got)
	}
	return nil
}
