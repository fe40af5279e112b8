package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func open(t *testing.T) (*Spool, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spool")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func TestRoundTrip(t *testing.T) {
	s, dir := open(t)
	j := Job{Script: []byte("#!/bin/sh\n\xff\x01"), Argv: [][]byte{[]byte("/a b"), nil, []byte("\xfe")}, Environment: [][]byte{[]byte("A=\n\xff")}}
	if err := s.PutJob("tok", j); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBundle("tok", []byte("bundle")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Job("tok")
	if err != nil || !bytes.Equal(got.Script, j.Script) || len(got.Argv) != 3 || !bytes.Equal(got.Argv[2], j.Argv[2]) || !bytes.Equal(got.Environment[0], j.Environment[0]) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, "tok.job"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := s.Remove("tok"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("tok"); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.Bundle("tok"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTokensAreNoPaths(t *testing.T) {
	s, _ := open(t)
	for _, token := range []string{"", "../x", "a/b", "a.b", "a\x00", string(bytes.Repeat([]byte("a"), 65))} {
		if s.PutBundle(token, nil) == nil || s.Remove(token) == nil {
			t.Errorf("%q was taken", token)
		}
		if _, err := s.Job(token); err == nil {
			t.Errorf("%q was read", token)
		}
	}
}

func TestOpenAndKeepClean(t *testing.T) {
	s, dir := open(t)
	for _, token := range []string{"old", "new"} {
		if err := s.PutJob(token, Job{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new-123.part"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(map[string]bool{"new": true}); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 || left[0].Name() != "new.job" {
		t.Errorf("left: %v", left)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a folder that everyone can read was taken")
	}
}

// TestWhatOthersPutInItsPlace: a link, a pipe or a folder where a file of the spool should be is not read, and a folder of another user is no spool.
func TestWhatOthersPutInItsPlace(t *testing.T) {
	s, dir := open(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte(`{"script":"c2VjcmV0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for token, put := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink(outside, path) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		for _, suffix := range []string{jobSuffix, bundleSuffix} {
			if err := put(filepath.Join(dir, token+suffix)); err != nil {
				t.Fatal(err)
			}
		}
		if j, err := s.Job(token); err == nil {
			t.Errorf("%s: read %+v", token, j)
		}
		if b, err := s.Bundle(token); err == nil {
			t.Errorf("%s: read %q", token, b)
		}
	}
	// What is written takes the place of a link, and does not follow it.
	if err := s.PutBundle("link", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != `{"script":"c2VjcmV0"}` {
		t.Errorf("the file outside is %q now: %v", data, err)
	}
	if b, err := s.Bundle("link"); err != nil || string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can do this")
	}
	foreign := filepath.Join(t.TempDir(), "spool")
	if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, 1001, 1001)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(foreign); err == nil || !strings.Contains(err.Error(), "user 1001") {
		t.Errorf("a folder of another user was taken: %v", err)
	}
}
