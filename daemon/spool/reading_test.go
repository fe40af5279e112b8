package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMarksOutliveTheProcess: a bundle that ended its reader is barred in the next process, one whose reading two processes did not end is, too; one that was read is not.
func TestMarksOutliveTheProcess(t *testing.T) {
	s, dir := open(t)
	begin := func(sum string, barred bool) {
		t.Helper()
		if got, err := s.BeginReading(sum); got != barred || err != nil {
			t.Error(sum, got, err)
		}
	}
	again := func() {
		t.Helper()
		var err error
		if s, err = Open(dir); err != nil {
			t.Fatal(err)
		}
		if err := s.Keep(nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, sum := range []string{"interrupted", "read", "deadly"} {
		begin(sum, false)
	}
	if err := errors.Join(s.EndReading("read"), s.BarReading("deadly")); err != nil {
		t.Fatal(err)
	}
	again()
	begin("interrupted", false)
	begin("deadly", true)
	begin("read", false)
	again()
	begin("interrupted", true)
	begin("deadly", true)
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
