package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func ended(t *testing.T, s *Spool, token, bundle string) {
	t.Helper()
	if err := errors.Join(s.PutJob(token, Job{Script: []byte("secret")}), s.PutBundle(token, []byte(bundle))); err != nil {
		t.Fatal(err)
	}
	if got := found(t, s, token); got != bundle {
		t.Errorf("%q", got)
	}
	if err := s.Remove(token); err != nil {
		t.Fatal(err)
	}
}

// found is what a bundle holds.
func found(t *testing.T, s *Spool, token string) string {
	t.Helper()
	f, err := s.FindBundle(token)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// aged makes the kept bundle of a token older.
func aged(t *testing.T, dir, token string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(dir, keptFolder, token+bundleSuffix), at, at); err != nil {
		t.Fatal(err)
	}
}

func TestTheNewestBundlesAreKept(t *testing.T) {
	s, dir := open(t)
	if err := s.KeepBundles(10); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, keptFolder)); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	for i, token := range []string{"a", "b", "c"} {
		ended(t, s, token, fmt.Sprintf("%d234", i))
		aged(t, dir, token, time.Hour*time.Duration(9-i))
	}
	for token, want := range map[string]bool{"a": false, "b": true, "c": true, "never": false} {
		if got, err := s.FindBundle(token); (err == nil) != want || !want && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v %v", token, got, err)
		}
	}
	if _, err := s.Job("c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the script is still there: %v", err)
	}
	// A job without a bundle, and one whose story goes on.
	if err := errors.Join(s.Remove("never"), s.PutBundle("open", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	// A restart knows which stories go on, and what is kept stays.
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.KeepBundles(10), s.Keep(map[string]bool{"open": true})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindBundle("c"); err != nil {
		t.Error(err)
	}
	if err := s.ForgetKept(time.Now().Add(-7*time.Hour - time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindBundle("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("b is older and was not forgotten", err)
	}
	// Who no longer wants them has none.
	if err := s.KeepBundles(0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindBundle("c"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got := found(t, s, "open"); got != "x" {
		t.Error(got)
	}
	if _, err := s.FindBundle("../open"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
