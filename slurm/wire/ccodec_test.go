package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// cCodec runs the plugin's codec, built with the sanitizers, over frames.
type cCodec struct{ program string }

func buildCCodec(t *testing.T) cCodec {
	t.Helper()
	program := filepath.Join(t.TempDir(), "codec_peer")
	build := exec.Command("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program,
		"../plugin/codec.c", "../plugin/tests/codec_peer.c")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the C codec: %v\n%s", err, output)
	}
	return cCodec{program}
}

// answers returns the line that the C codec gives for each frame.
func (c cCodec) answers(t *testing.T, kind byte, frames [][]byte) []string {
	t.Helper()
	var input, output, complaint bytes.Buffer
	for _, frame := range frames {
		input.WriteByte(kind)
		input.Write(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))
		input.Write(frame)
	}
	run := exec.Command(c.program)
	run.Stdin, run.Stdout, run.Stderr = &input, &output, &complaint
	if err := run.Run(); err != nil {
		t.Fatalf("C codec: %v\n%s", err, complaint.String())
	}
	lines := strings.Split(strings.TrimSuffix(output.String(), "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("C codec gave %d answers to %d frames", len(lines), len(frames))
	}
	return lines
}

// listing spells a message as codec_peer.c does.
func listing(fields []field) string {
	var text strings.Builder
	text.WriteString("ok")
	for i := range fields {
		f := &fields[i]
		switch {
		case f.number32 != nil:
			fmt.Fprintf(&text, " %s=%d", f.name, *f.number32)
		case f.number64 != nil:
			fmt.Fprintf(&text, " %s=%d", f.name, *f.number64)
		case f.maybe32 != nil && *f.maybe32 != nil:
			fmt.Fprintf(&text, " %s=%d", f.name, **f.maybe32)
		case f.maybe64 != nil && *f.maybe64 != nil:
			fmt.Fprintf(&text, " %s=%d", f.name, **f.maybe64)
		case f.text != nil && *f.text != "":
			fmt.Fprintf(&text, " %s=%x", f.name, *f.text)
		case f.maybe != nil && *f.maybe != nil:
			fmt.Fprintf(&text, " %s=%x", f.name, **f.maybe)
		case f.list != nil && len(*f.list) > 0:
			entries := make([]string, len(*f.list))
			for j, entry := range *f.list {
				entries[j] = hex.EncodeToString([]byte(entry))
			}
			fmt.Fprintf(&text, " %s=%s", f.name, strings.Join(entries, ","))
		}
	}
	return text.String()
}

func TestCCodecAgreesOnVectors(t *testing.T) {
	codec := buildCCodec(t)
	for name, request := range vectorRequests() {
		frame := readHex(t, filepath.Join("testdata", "vectors", name+".hex"))
		want := fmt.Sprintf("%s frame=%x", listing(request.fields()), frame)
		if got := codec.answers(t, 'q', [][]byte{frame})[0]; got != want {
			t.Errorf("%s:\n C: %s\nGo: %s", name, got, want)
		}
	}
	for name, reply := range vectorReplies() {
		frame := readHex(t, filepath.Join("testdata", "vectors", name+".hex"))
		if got, want := codec.answers(t, 'r', [][]byte{frame})[0], listing(reply.fields()); got != want {
			t.Errorf("%s:\n C: %s\nGo: %s", name, got, want)
		}
	}
	for name, bad := range vectorBadReplies(t) {
		if got := codec.answers(t, 'r', [][]byte{bad.frame})[0]; got != "bad" {
			t.Errorf("%s: C accepts it: %s", name, got)
		}
	}
}

// TestCCodecWritesTheSameRequests draws requests, and adds one with every part
// at its limit.
func TestCCodecWritesTheSameRequests(t *testing.T) {
	codec := buildCCodec(t)
	largest := &Request{
		Comment: strings.Repeat("c", MaxStringBytes), Script: strings.Repeat("s", MaxScriptBytes), ScriptTotal: MaxScriptBytes,
		Argv: []string{strings.Repeat("a", MaxArgvBytes-4)}, ArgvTotal: 1,
		Environment: []string{strings.Repeat("e", MaxEnvironmentBytes-4)}, EnvironmentTotal: 1,
	}
	requests := []*Request{largest}
	rapid.Check(t, func(t *rapid.T) { requests = append(requests, drawRequest(t)) })

	frames := make([][]byte, len(requests))
	for i, request := range requests {
		frames[i] = mustRequestFrame(t, request)
	}
	for i, got := range codec.answers(t, 'q', frames) {
		if want := fmt.Sprintf("%s frame=%x", listing(requests[i].fields()), frames[i]); got != want {
			t.Fatalf("request %d:\n C: %.2000s\nGo: %.2000s", i, got, want)
		}
	}
}

// TestCCodecJudgesRepliesAlike damages replies in thousands of ways. Both codecs
// must accept the same ones and read the same out of them.
func TestCCodecJudgesRepliesAlike(t *testing.T) {
	const mutants = 20000
	var seeds [][]byte
	for _, reply := range vectorReplies() {
		seeds = append(seeds, mustReplyFrame(t, reply))
	}
	for _, bad := range vectorBadReplies(t) {
		seeds = append(seeds, bad.frame)
	}
	rapid.Check(t, func(rt *rapid.T) { seeds = append(seeds, mustReplyFrame(t, drawReply(rt))) })

	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	frames := make([][]byte, mutants)
	for i := range frames {
		frames[i] = mutate(random, seeds[random.IntN(len(seeds))])
	}
	accepted := 0
	for i, got := range buildCCodec(t).answers(t, 'r', frames) {
		want := "bad"
		if reply, err := ReadReply(bytes.NewReader(frames[i])); err == nil {
			want = listing(reply.fields())
			accepted++
		}
		if got != want {
			t.Fatalf("frame %x:\n C: %s\nGo: %s", frames[i], got, want)
		}
	}
	t.Logf("%d of %d damaged replies are still replies", accepted, mutants)
	if accepted < mutants/100 || accepted > mutants*99/100 {
		t.Errorf("the damage is too heavy or too light to tell anything")
	}
}

// mutate damages a frame and mostly keeps its length field right, so that the
// damage reaches the fields.
func mutate(random *rand.Rand, frame []byte) []byte {
	frame = bytes.Clone(frame)
	for range random.IntN(3) {
		at := random.IntN(len(frame))
		switch random.IntN(5) {
		case 0:
			frame[at] ^= 1 << random.IntN(8)
		case 1:
			frame[at] = byte(random.Uint32())
		case 2:
			frame = append(frame[:at], frame[min(len(frame), at+1+random.IntN(8)):]...)
		case 3:
			extra := make([]byte, 1+random.IntN(8))
			for i := range extra {
				extra[i] = byte(random.IntN(4))
			}
			frame = append(frame[:at], append(extra, frame[at:]...)...)
		case 4: // a field that readers may skip, behind the others
			frame = append(frame, 0x80, byte(random.IntN(3)), 0, 0, 0, 1, 'x')
		}
		if len(frame) == 0 {
			return frame
		}
	}
	if len(frame) >= HeaderBytes && random.IntN(8) != 0 {
		binary.BigEndian.PutUint32(frame[8:], uint32(len(frame)-HeaderBytes))
	}
	return frame
}
