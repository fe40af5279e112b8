package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/analysis/timeline"
)

var update = flag.Bool("update", false, "write the golden files anew")

func small(name string) *Figure {
	t := &timeline.Timeline{
		Entries: 8, PeakAt: 5, PeakAllocatedBytes: 7 << 30, PeakReservedBytes: 9 << 30, Marked: true,
		Steps: []timeline.Step{{At: 6, Number: 1}, {At: 8, Number: 2}},
		Blocks: []timeline.Block{
			{Addr: 0, SizeBytes: 2 << 30, From: 1, To: 8, Category: timeline.Parameters, Owner: name},
			{Addr: 2 << 30, SizeBytes: 4 << 30, From: 3, To: 7, Category: timeline.Activations, Owner: "head"},
			{Addr: 8 << 30, SizeBytes: 1 << 30, From: 5, To: 6, Category: timeline.BackwardTemporaries},
		},
		Ranges: []timeline.Range{{Addr: 0, SizeBytes: 7 << 30, From: 0, To: 8}, {Addr: 8 << 30, SizeBytes: 2 << 30, From: 4, To: 8}},
	}
	return &Figure{Title: "python " + name, Subtitle: "a card", Timeline: t, OutsideBytes: 1 << 29, CapacityBytes: 12 << 30}
}

func TestGolden(t *testing.T) {
	for file, draw := range map[string]func(io.Writer, *Figure) error{"small.svg": SVG, "small.html": HTML, "small.txt": Text} {
		var got bytes.Buffer
		if err := draw(&got, small("fc.weight")); err != nil {
			t.Fatal(err)
		}
		path := "testdata/" + file
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got.Bytes()) {
			t.Errorf("%s differs; look at it, then go test ./estimator/analysis/plot -update", path)
		}
	}
}

// Names come from a stranger's program: no picture of them may hold markup or steer a terminal.
func TestHostileNames(t *testing.T) {
	name := "</text><script>alert(1)</script>\x1b[2J\x00\"'&"
	for kind, draw := range map[string]func(io.Writer, *Figure) error{"svg": SVG, "html": HTML, "text": Text} {
		var got bytes.Buffer
		if err := draw(&got, small(name)); err != nil {
			t.Fatal(err)
		}
		if s := got.String(); strings.ContainsAny(s, "\x1b\x00") || kind != "text" && strings.Contains(s, "<script") {
			t.Errorf("%s: the name came through", kind)
		}
		if kind == "svg" {
			wellFormed(t, got.Bytes())
		}
	}
}

func wellFormed(t *testing.T, data []byte) {
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
}

// A run in which nothing was ever handed out is drawn too, as an empty picture.
func TestNothing(t *testing.T) {
	for kind, draw := range map[string]func(io.Writer, *Figure) error{"svg": SVG, "html": HTML, "text": Text} {
		var got bytes.Buffer
		if err := draw(&got, &Figure{Timeline: &timeline.Timeline{}}); err != nil || got.Len() == 0 || strings.Contains(got.String(), "NaN") {
			t.Errorf("%s: %v, %d bytes", kind, err, got.Len())
		}
	}
}

func TestTicks(t *testing.T) {
	for most, want := range map[uint64]string{0: "0.0 MiB", 3 << 30: "3.0 GiB", 100 << 20: "100 MiB", 80 << 30: "80 GiB"} {
		at, write := ticks(most)
		if got := write(at[len(at)-1]); len(at) > 12 || got != want && most > 0 {
			t.Errorf("most %d: %d ticks, the last %q, want %q", most, len(at), got, want)
		}
	}
}
