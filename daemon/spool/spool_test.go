package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
