package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator/contract"
)

// TestMain is the reader of bundles where a test starts it.
func TestMain(m *testing.M) {
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	if reader.Asked() {
		os.Exit(reader.Serve())
	}
	os.Exit(m.Run())
}

// readerOf reads bundles as the daemon does.
func readerOf(t *testing.T) *reader.Reader {
	t.Helper()
	files, err := spool.Open(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	var journal bytes.Buffer
	t.Cleanup(func() {
		if journal.Len() > 0 {
			t.Errorf("the journal says %s", journal.String())
		}
	})
	return newReader(files, slog.New(slog.NewTextHandler(&journal, nil)))
}

// fileOf is a file that holds a bundle.
func fileOf(t *testing.T, bundle []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
