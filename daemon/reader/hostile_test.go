package reader

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// entry is one of a zip file that nothing of ours would write.
type entry struct {
	name, text string
	change     func(h *zip.FileHeader)
}

func zipped(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.change != nil {
			e.change(h)
		}
		w, err := z.CreateHeader(h)
		must(t, err)
		_, err = w.Write([]byte(e.text))
		must(t, err)
	}
	must(t, z.Close())
	return out.Bytes()
}

func gzipped(t testing.TB, piece string, times int) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for range times {
		_, err := z.Write([]byte(piece))
		must(t, err)
	}
	must(t, z.Close())
	return out.String()
}

// overlapping has one piece of packed data stand for every rank of a bundle.
func overlapping(t testing.TB, manifest, report string, ranks int) []byte {
	t.Helper()
	whole := zipped(t, entry{"manifest.json", manifest, nil}, entry{"ranks/0/report.json", report, nil})
	end := len(whole) - 22
	at := int(binary.LittleEndian.Uint32(whole[end+16:]))
	directory := whole[at:end]
	first := 46 + int(binary.LittleEndian.Uint16(directory[28:])) + int(binary.LittleEndian.Uint16(directory[30:]))
	second := directory[first:]
	many := bytes.Clone(directory[:first])
	for i := range ranks {
		name := fmt.Sprintf("ranks/%d/report.json", i)
		copied := bytes.Clone(second[:46])
		binary.LittleEndian.PutUint16(copied[28:], uint16(len(name)))
		binary.LittleEndian.PutUint16(copied[30:], 0)
		many = append(append(many, copied...), name...)
	}
	tail := bytes.Clone(whole[end:])
	binary.LittleEndian.PutUint16(tail[8:], uint16(ranks+1))
	binary.LittleEndian.PutUint16(tail[10:], uint16(ranks+1))
	binary.LittleEndian.PutUint32(tail[12:], uint32(len(many)))
	return append(append(bytes.Clone(whole[:at]), many...), tail...)
}

// TestHostileBundles gives a reader what a user's process, or a node that lies, could send in place of a bundle. Each is an error that says what is wrong, or an answer that nobody acts upon;
// no reader takes longer than it may, and this process stays as small as it was.
func TestHostileBundles(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	must(t, err)
	sound, err := os.ReadFile(realBundle)
	must(t, err)
	b, err := trace.Decode(sound)
	must(t, err)
	report, events := string(b.Ranks[0].Report), string(b.Ranks[0].Events)
	z, err := zip.NewReader(bytes.NewReader(sound), int64(len(sound)))
	must(t, err)
	text, err := fs.ReadFile(z, "manifest.json")
	must(t, err)
	manifest := string(text)
	head, _, _ := strings.Cut(events, `{"action"`)
	const peak = `"peak_reserved_bytes":564133888`
	with := func(more ...entry) []byte {
		return zipped(t, append([]entry{{"manifest.json", manifest, nil}, {"ranks/0/report.json", report, nil}}, more...)...)
	}
	reports := func(old, other string) []byte {
		t.Helper()
		if !strings.Contains(report, old) {
			t.Fatalf("the report has no %s", old)
		}
		return zipped(t, entry{"manifest.json", manifest, nil}, entry{"ranks/0/report.json", strings.Replace(report, old, other, 1), nil}, entry{"ranks/0/events.jsonl", events, nil})
	}
	history := func(lines string) []byte { return with(entry{"ranks/0/events.jsonl", lines, nil}) }
	says := func(old, other string) []byte {
		t.Helper()
		if !strings.Contains(manifest, old) {
			t.Fatalf("the manifest has no %s", old)
		}
		return zipped(t, entry{"manifest.json", strings.Replace(manifest, old, other, 1), nil}, entry{"ranks/0/report.json", report, nil}, entry{"ranks/0/events.jsonl", events, nil})
	}
	repeated := func(n int, line func(i int) string) string {
		var all strings.Builder
		all.WriteString(head)
		for i := range n {
			all.WriteString(line(i))
		}
		return all.String()
	}
	flipped := bytes.Clone(sound)
	flipped[len(sound)/2] ^= 0x40
	const ten = 10 << 20
	for _, c := range []struct {
		name string
		data []byte
		// acts: the answer may be acted upon, since what is odd about the bundle says nothing of the figure. So it is where requests are recorded that no allocator makes: the figure is not taken from them.
		acts bool
	}{
		{"the first half of a bundle", sound[:len(sound)/2], false},
		{"all but the last byte", sound[:len(sound)-1], false},
		{"one bit is another", flipped, false},
		{"a comment at the end", append(append(bytes.Clone(sound[:len(sound)-2]), 5, 0), "hello"...), false},
		{"a program in front", append([]byte("#!/bin/sh\nreboot\n"), sound...), false},
		{"a pickle that runs a program", []byte("cos\nsystem\n(S'touch /tmp/gresize-was-here'\ntR."), false},
		{"a bomb of zeros in the report", zipped(t, entry{"manifest.json", manifest, nil}, entry{"ranks/0/report.json", strings.Repeat(" ", 17<<20), nil}), false},
		{"a bomb of events", history(head + strings.Repeat("\n", 129<<20)), false},
		{"one packed report of 16 MiB for a thousand ranks", overlapping(t, strings.Replace(manifest, `"ranks": 1`, `"ranks": 1000`, 1), `{"a":"`+strings.Repeat("a", 15<<20)+`"}`, 1000), false},
		{"a bundle in a bundle in place of a profile", with(entry{"ranks/0/profile.json.gz", string(sound), nil}), true},
		{"a profile of a few hundred KiB that unpacks to 400 MiB", with(entry{"ranks/0/profile.json.gz", gzipped(t, strings.Repeat(" ", ten), 40), nil}), true},
		{"a profile nested without end", with(entry{"ranks/0/profile.json.gz", gzipped(t, strings.Repeat("[", ten), 10), nil}), true},
		{"a link in place of the report", zipped(t, entry{"manifest.json", manifest, nil}, entry{"ranks/0/report.json", "/etc/passwd", func(h *zip.FileHeader) { h.SetMode(fs.ModeSymlink | 0o777) }}), false},
		{"a folder in place of the report", zipped(t, entry{"manifest.json", manifest, nil}, entry{"ranks/0/report.json/", "", nil}), false},
		{"a name upwards", with(entry{"ranks/0/../../../../etc/cron.d/x", "x", nil}), false},
		{"a name with a zero and a line break", with(entry{"ranks/0/events.jsonl\x00\n\x1b[2J", "x", nil}), false},
		{"a name in other letters", zipped(t, entry{"manifest.json", manifest, nil}, entry{"Ranks/0/Report.json", report, nil}), false},
		{"the manifest twice", with(entry{"manifest.json", manifest, nil}), false},
		{"the report twice", with(entry{"ranks/0/report.json", strings.Replace(report, peak, `"peak_reserved_bytes":1`, 1), nil}), false},
		{"events in two forms", with(entry{"ranks/0/events.jsonl", events, nil}, entry{"ranks/0/events.bin", "x", nil}), false},
		{"an encrypted entry", with(entry{"ranks/0/events.jsonl", events, func(h *zip.FileHeader) { h.Flags |= 1 }}), true},
		{"ten million events in another form", with(entry{"ranks/0/events.bin", strings.Repeat("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a", 10_000_000), nil}), true},
		{"two million events", history(repeated(2_000_000, func(i int) string {
			return fmt.Sprintf("{\"action\":\"alloc\",\"addr\":%d,\"size\":512}\n", 1<<40+i*512)
		})), false},
		{"frees of what was never there", history(repeated(100_000, func(i int) string { return fmt.Sprintf("{\"action\":\"free_completed\",\"addr\":%d,\"size\":1}\n", i) })), true},
		{"the same block again and again", history(repeated(100_000, func(int) string { return "{\"action\":\"alloc\",\"addr\":1099511627776,\"size\":281474976710656}\n" })), true},
		{"sizes below nothing", history(head + "{\"action\":\"alloc\",\"addr\":1,\"size\":-1}\n"), false},
		{"sizes that wrap together", history(repeated(70_000, func(i int) string {
			return fmt.Sprintf("{\"action\":\"alloc\",\"addr\":%d,\"size\":281474976710656}\n", i*512)
		})), true},
		{"a size that is no number", history(head + "{\"action\":\"alloc\",\"addr\":1,\"size\":NaN}\n"), false},
		{"a card of half a number", history("{\"history\":1,\"device\":0.5}\n"), false},
		{"a name from outside the table", history(head + "{\"mark\":\"enter\",\"name\":-1}\n{\"mark\":\"enter\",\"value\":99999999999}\n"), false},
		{"a million names", history(repeated(1_000_000, func(i int) string { return fmt.Sprintf("{\"name\":%d,\"text\":\"n%d\"}\n", i+4, i) })), false},
		{"names that steer a terminal and a page", history("{\"name\":0,\"text\":\"\\u001b[2J</text><script>alert(1)</script>\\u202e\"}\n" + strings.TrimPrefix(events, "{\"name\":0,\"text\":\"Sequential\"}\n")), true},
		{"marks that enter and never leave", history(repeated(500_000, func(int) string { return "{\"mark\":\"enter\",\"value\":0}\n" }) + events[len(head):]), true},
		{"a peak below nothing", reports(peak, `"peak_reserved_bytes":-564133888`), false},
		{"the lowest number", reports(peak, `"peak_reserved_bytes":-9223372036854775808`), false},
		{"the highest number", reports(peak, `"peak_reserved_bytes":9223372036854775807`), false},
		{"more than a number holds", reports(peak, `"peak_reserved_bytes":1e999`), false},
		{"no number", reports(peak, `"peak_reserved_bytes":NaN`), false},
		{"half a byte", reports(peak, `"peak_reserved_bytes":0.5`), false},
		{"the peak twice, small at last", reports(peak, peak+`,"peak_reserved_bytes":512`), false},
		{"the peak in other letters", reports(peak, peak+`,"Peak_Reserved_Bytes":512,"PEAK_RESERVED_BYTES":512`), false},
		{"less reserved than allocated", reports(peak, `"peak_reserved_bytes":1024`), false},
		{"steps below nothing", reports(`"steps":4`, `"steps":-4`), false},
		{"a report nested without end", reports(`"segments":14`, `"segments":14,"x":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)), false},
		{"a coverage that is a list", reports(`"coverage":{`, `"coverage":[],"other":{`), false},
		{"a library named by a path", reports(`"cublas"`, `"../../../etc/passwd\u0000"`), false},
		{"a thousand million values", says(`"values_read_back": 0`, `"values_read_back": -1`), false},
		{"a card of another size", says(`"capacity_bytes": 12622168064`, `"capacity_bytes": -1`), false},
		{"a host of a million TiB", says(`"host_peak_bytes": 264901632`, `"host_peak_bytes": 1152921504606846976`), false},
		{"a time that is no number", says(`"run_ms": 18944.35`, `"run_ms": 1e308`), false},
		{"a command that steers a terminal", says(`"linear.py"`, `"\u001b]0;owned\u0007\u001b[2J\u202elinear.py\u0000"`), true},
		{"an outcome of its own", says(`"outcome": "stopped"`, `"outcome": "exact"`), false},
		{"it ran no step and is sure", says(`"steps": 4`, `"steps": 0`), true},
		{"a reason that is no code", says(`"reasons": []`, `"reasons": [{"code":"\u001b[2J"}]`), false},
		{"modules of dimensions that wrap", with(entry{"ranks/0/modules.jsonl", "{\"modules\":1,\"steps\":3}\n{\"root\":0,\"class\":\"M\",\"batch\":9223372036854775807,\"parameters\":9223372036854775807,\"inputs\":[[4294967296,4294967296,-1]]}\n", nil}), true},
		{"a module that is its own parent", with(entry{"ranks/0/modules.jsonl", "{\"modules\":1,\"steps\":3}\n{\"root\":0,\"class\":\"M\"}\n{\"module\":\"\",\"of\":0,\"class\":\"M\"}\n{\"module\":\"a\",\"of\":-1}\n", nil}), true},
		{"operators without end", with(entry{"ranks/0/operators.jsonl", strings.Repeat("{\"operator\":\"aten::mm\",\"bytes\":-1,\"flops\":1e308}\n", 300_000), nil}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.data) > 4<<20 && os.Getenv("GRESIZE_NIGHTLY") == "" {
				t.Skip("takes seconds: run by make nightly")
			}
			r := newReader(t)
			before := heldBytes(t)
			for _, q := range []Question{{Method: "vgpu", Card: card}, {Method: "xmem", Card: card}, {Draw: &Draw{Title: "a title", Owners: 5}}} {
				what := q.Method + " " + c.name
				begun := time.Now()
				a, err := r.Ask(t.Context(), fileOf(t, c.data), q)
				took := time.Since(begun)
				if took > Timeout+5*time.Second {
					t.Errorf("%s: it took %s", what, took)
				}
				said := ""
				switch {
				case err != nil:
					said = err.Error()
				case a.Estimate != nil:
					if fault := a.Estimate.Validate(); fault != nil {
						t.Errorf("%s: %v", what, fault)
					}
					if sure := a.Estimate.Confidence == estimator.Exact || a.Estimate.Confidence == estimator.High; sure && !c.acts {
						t.Errorf("%s: %s with %+v", what, a.Estimate.Confidence, a.Estimate.Ranks)
					}
					said = string(a.Estimate.Confidence)
					for _, reason := range a.Estimate.Reasons {
						said += " " + reason.Code
					}
				case a.Drawing != nil:
					if svg := string(a.Drawing.SVG); strings.Contains(svg, "<script") || strings.ContainsFunc(svg, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
						t.Errorf("%s: its picture steers who looks at it", what)
					}
					said = fmt.Sprintf("a picture of %d bytes", len(a.Drawing.SVG))
				}
				if strings.ContainsFunc(said, unicode.IsControl) || len(said) > 4096 {
					t.Errorf("%s: %.300q", what, said)
				}
				if errors.Is(err, ErrEnded) {
					t.Logf("%s after %s: %s", q.Method, took.Round(time.Millisecond), said)
					break // it is not read again
				}
				t.Logf("%s after %s: %.200s", q.Method, took.Round(time.Millisecond), said)
			}
			if grown := heldBytes(t) - before; grown > 32<<20+2*int64(len(c.data)) {
				t.Errorf("this process has grown by %d MiB", grown>>20)
			}
		})
	}
	if _, err := os.Stat("/tmp/gresize-was-here"); err == nil {
		t.Error("a pickle was run")
	}
}
