package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrustedFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root, as make test does: files of other users are part of it")
	}
	const text = "#!/bin/sh\n"
	sum := sha256.Sum256([]byte(text))
	pin := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		name              string
		fileMode, dirMode os.FileMode
		fileUID, dirUID   int
		pin, says         string
	}{
		{"root's", 0o755, 0o755, 0, 0, "", ""},
		{"pinned", 0o700, 0o700, 0, 0, pin, ""},
		{"in a folder like /tmp", 0o755, 0o777 | os.ModeSticky, 0, 0, "", ""},
		{"another's", 0o755, 0o755, 12345, 0, "", "belongs to user 12345"},
		{"group", 0o775, 0o755, 0, 0, "", "can be changed by others (mode 0775)"},
		{"world", 0o757, 0o755, 0, 0, "", "can be changed by others"},
		{"a sticky file", 0o777 | os.ModeSticky, 0o755, 0, 0, "", "can be changed by others"},
		{"another's folder", 0o755, 0o755, 0, 12345, "", "belongs to user 12345"},
		{"open folder", 0o755, 0o777, 0, 0, "", "can be changed by others"},
		{"another program", 0o755, 0o755, 0, 0, strings.Repeat("0", 64), "change sha256"},
	} {
		dir := filepath.Join(t.TempDir(), "plugins")
		path := filepath.Join(dir, "plugin")
		link := filepath.Join(t.TempDir(), "link")
		for _, err := range []error{
			os.Mkdir(dir, 0o700), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, c.fileMode), os.Chown(path, c.fileUID, 0), os.Chmod(path, c.fileMode),
			os.Chown(dir, c.dirUID, 0), os.Chmod(dir, c.dirMode), os.Symlink(path, link),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, from := range []string{path, link} {
			got, err := TrustedFile(from, c.pin)
			switch {
			case c.says == "" && (err != nil || got != path):
				t.Errorf("%s: %q, %v", c.name, got, err)
			case c.says != "" && (!errors.Is(err, ErrNotTrusted) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
		}
	}
	if _, err := TrustedFile(t.TempDir(), ""); !errors.Is(err, ErrNotTrusted) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := TrustedFile(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, ErrNotTrusted) {
		t.Errorf("nothing: %v", err)
	}
}
