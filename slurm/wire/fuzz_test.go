package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/gresize/gresize/tools/peertest"
)

// A frame that is accepted has one spelling: written again it is the same,
// but for ignorable fields, which a reader drops.
func checkCanonical(t *testing.T, frame, again []byte) {
	t.Helper()
	if !bytes.HasPrefix(frame, again) && !hasIgnorableField(frame) {
		t.Fatalf("read  %x\nwrote %x", frame, again)
	}
}

func hasIgnorableField(frame []byte) bool {
	for body := frame[HeaderBytes:]; len(body) >= FieldHeaderBytes; {
		if body[0]&0x80 != 0 {
			return true
		}
		length := int(body[2])<<24 | int(body[3])<<16 | int(body[4])<<8 | int(body[5])
		body = body[min(len(body), FieldHeaderBytes+length):]
	}
	return false
}

func checkErrorClass(t *testing.T, err error) {
	t.Helper()
	for _, class := range []error{ErrMalformed, ErrTooLarge, ErrVersion, ErrInvalid, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, class) {
			return
		}
	}
	t.Fatalf("error of no class: %v", err)
}

func FuzzDecodeRequest(f *testing.F) {
	for _, request := range vectorRequests() {
		var frame bytes.Buffer
		if err := WriteRequest(&frame, request); err != nil {
			f.Fatal(err)
		}
		f.Add(frame.Bytes())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		request, err := ReadRequest(bytes.NewReader(frame))
		if err != nil {
			checkErrorClass(t, err)
			return
		}
		checkCanonical(t, frame, mustRequestFrame(t, request))
	})
}

func FuzzDecodeReply(f *testing.F) {
	for _, reply := range vectorReplies() {
		var frame bytes.Buffer
		if err := WriteReply(&frame, reply); err != nil {
			f.Fatal(err)
		}
		f.Add(frame.Bytes())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		reply, err := ReadReply(bytes.NewReader(frame))
		if err != nil {
			checkErrorClass(t, err)
			return
		}
		checkCanonical(t, frame, mustReplyFrame(t, reply))
	})
}

// TestLengthAloneCostsNothing sends headers that claim the most a request may
// have, and nothing after: many such peers must not take the daemon's memory.
func TestLengthAloneCostsNothing(t *testing.T) {
	const peers = 1000
	header := []byte{'G', 'R', 'S', 'Z', 0, ProtocolVersion, 0, 1, 0, MaxRequestBytes >> 16, 0, 0}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range peers {
		if _, err := ReadRequest(bytes.NewReader(header)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("got error %v, want %v", err, io.ErrUnexpectedEOF)
		}
	}
	runtime.ReadMemStats(&after)
	if perPeer := (after.TotalAlloc - before.TotalAlloc) / peers; perPeer > 64<<10 {
		t.Errorf("a header alone costs %d bytes", perPeer)
	}
}

// TestListOfNothingIsBounded sends the most entries that a list of its size can
// hold: 65,536 empty variables.
func TestListOfNothingIsBounded(t *testing.T) {
	request := &Request{Environment: make([]string, MaxListEntries+1), EnvironmentTotal: MaxListEntries + 1}
	if err := WriteRequest(io.Discard, request); !errors.Is(err, ErrTooLarge) {
		t.Errorf("write: got error %v, want %v", err, ErrTooLarge)
	}
	if _, err := decodeList(make([]byte, MaxEnvironmentBytes), MaxEnvironmentBytes); !errors.Is(err, ErrTooLarge) {
		t.Errorf("read: got error %v, want %v", err, ErrTooLarge)
	}
}

// FuzzBothCodecs asks the plugin's codec, built with the sanitizers, and this one about the same frame: they take the same replies and read the same out of them.
func FuzzBothCodecs(f *testing.F) {
	for _, reply := range vectorReplies() {
		var frame bytes.Buffer
		if err := WriteReply(&frame, reply); err != nil {
			f.Fatal(err)
		}
		f.Add(frame.Bytes())
	}
	peer := peertest.Start(f, "../plugin/codec.c", "../plugin/tests/codec_peer.c")
	f.Fuzz(func(t *testing.T, frame []byte) {
		want := "bad"
		if reply, err := ReadReply(bytes.NewReader(frame)); err == nil {
			want = listing(reply.fields())
		}
		if got := peer.Ask(t, []byte{'r'}, binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame); got != want {
			t.Fatalf("frame %x:\n C: %s\nGo: %s", frame, got, want)
		}
	})
}
