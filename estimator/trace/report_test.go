package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestLines(t *testing.T) {
	var got []string
	for number, line := range Lines([]byte("\n one \n\t\ntwo\r\nthree\nunseen")) {
		if got = append(got, fmt.Sprintf("%d:%s", number, line)); len(got) == 3 {
			break
		}
	}
	if want := []string{"2:one", "4:two", "5:three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range Lines([]byte(" \n\n")) {
		t.Error("a line of blank lines")
	}
}

func TestUnmarshalReport(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema": "a/1", "n": 3}`: "",
		`{"schema": "a/2"}`:         `schema: "a/2", want "a/1"`,
		`{}`:                        `schema: "", want "a/1"`,
		`{`:                         "unexpected end",
	} {
		var r struct{ Schema string }
		err := UnmarshalReport([]byte(text), &r, &r.Schema, "a/1")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestReadReports(t *testing.T) {
	dir, name := t.TempDir(), regexp.MustCompile(`^r-([0-9]+)\.json$`)
	read := func() (got []string, err error) {
		err = ReadReports(dir, name, 8, func(match []string, data []byte) error {
			if string(data) == "bad" {
				return errors.New("is bad")
			}
			got = append(got, match[1]+string(data))
			return nil
		})
		return got, err
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("r-1.json", "one")
	write("r-2.json", "two")
	write("other.json", "other")
	if got, err := read(); err != nil || !slices.Equal(got, []string{"1one", "2two"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct {
		says string
		make func(path string) error
	}{
		{"r-3.json: is bad", func(path string) error { return os.WriteFile(path, []byte("bad"), 0o600) }},
		{"r-3.json", func(path string) error { return os.WriteFile(path, []byte("too long by far"), 0o600) }},
		{"r-3.json", func(path string) error { return os.Symlink("r-1.json", path) }},
		{"r-3.json", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
	} {
		path := filepath.Join(dir, "r-3.json")
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for n := range maxReports {
		write(fmt.Sprintf("r-%d.json", n+10), "x")
	}
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "more than 2048 files") {
		t.Error(err)
	}
	dir = filepath.Join(dir, "none")
	if _, err := read(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzReadReports: whatever stands in a report, it is refused with the name of its file, or of the form that was asked for.
func FuzzReadReports(f *testing.F) {
	f.Add([]byte(`{"schema": "a/1", "n": 3}`))
	f.Add([]byte(`{"schema": 1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "r.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		var r struct{ Schema string }
		err := ReadReports(dir, regexp.MustCompile(`^r\.json$`), 1<<20, func(_ []string, data []byte) error {
			return UnmarshalReport(data, &r, &r.Schema, "a/1")
		})
		if err == nil && r.Schema != "a/1" || err != nil && !strings.Contains(err.Error(), "r.json") {
			t.Errorf("%q: %v", r.Schema, err)
		}
	})
}
