package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMarksOutliveTheProcess: a bundle that was being read when the process ended is marked in the next one, and one that was read is not.
func TestMarksOutliveTheProcess(t *testing.T) {
	s, dir := open(t)
	for _, sum := range []string{"dead", "read"} {
		if marked, err := s.BeginReading(sum); marked || err != nil {
			t.Fatal(sum, marked, err)
		}
	}
	if err := s.EndReading("read"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(nil); err != nil {
		t.Fatal(err)
	}
	for sum, want := range map[string]bool{"dead": true, "read": false} {
		if marked, err := s.BeginReading(sum); marked != want || err != nil {
			t.Error(sum, marked, err)
		}
	}
	for _, odd := range []string{"", "../x", "a/b", "."} {
		if _, err := s.BeginReading(odd); err == nil {
			t.Errorf("%q is a hash", odd)
		}
	}
	if err := s.EndReading("never"); err != nil {
		t.Error(err)
	}
}

// TestMarksAreBounded: the oldest go.
func TestMarksAreBounded(t *testing.T) {
	s, dir := open(t)
	if _, err := s.BeginReading("oldest"); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, readingFolder, "oldest"), old, old); err != nil {
		t.Fatal(err)
	}
	for i := range maxMarks {
		if _, err := s.BeginReading(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if marked, err := s.BeginReading("oldest"); marked || err != nil {
		t.Error(marked, err)
	}
}
