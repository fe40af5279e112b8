package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawMessage fills every field of a table with something valid in the codec's
// eyes; Validate is left to the caller.
func drawMessage(t *rapid.T, fields []field, text *rapid.Generator[string]) {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.number32 != nil:
			*f.number32 = rapid.Uint32().Draw(t, f.name)
		case f.number64 != nil:
			*f.number64 = rapid.Uint64().Draw(t, f.name)
		case f.maybe32 != nil:
			*f.maybe32 = rapid.Ptr(rapid.Uint32(), true).Draw(t, f.name)
		case f.maybe64 != nil:
			*f.maybe64 = rapid.Ptr(rapid.Uint64(), true).Draw(t, f.name)
		case f.text != nil:
			*f.text = text.Draw(t, f.name)
		case f.maybe != nil:
			*f.maybe = rapid.Ptr(text, true).Draw(t, f.name)
		case f.list != nil:
			if list := rapid.SliceOfN(text, 0, 8).Draw(t, f.name); len(list) > 0 {
				*f.list = list
			}
		}
	}
}

func anyText() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.ByteRange(1, 255), 0, 40), func(b []byte) string { return string(b) })
}

func printableText() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.ByteRange(0x20, 0x7e), 0, 40), func(b []byte) string { return string(b) })
}

func drawRequest(t *rapid.T) *Request {
	request := &Request{}
	drawMessage(t, request.fields(), anyText())
	request.Flags &= knownFlags
	if request.SkipReason != "" && rapid.Bool().Draw(t, "skipped") {
		request.Script, request.Argv, request.Environment = "", nil, nil
	} else {
		request.SkipReason = ""
	}
	request.ScriptTotal = max(request.ScriptTotal, uint64(len(request.Script)))
	request.ArgvTotal = max(request.ArgvTotal, uint32(len(request.Argv)))
	request.EnvironmentTotal = max(request.EnvironmentTotal, uint32(len(request.Environment)))
	return request
}

func drawReply(t *rapid.T) *Reply {
	reply := &Reply{}
	drawMessage(t, reply.fields(), printableText())
	reply.Verdict = rapid.SampledFrom([]Verdict{VerdictPass, VerdictRewrite, VerdictHold}).Draw(t, "verdict")
	if p := reply.Rewrite.PnMinMemory; p != nil {
		*p &^= 3
	}
	if p := reply.Rewrite.PnMinCPUs; p != nil {
		*p &= 0xff
	}
	if p := reply.Rewrite.MinCPUs; p != nil {
		*p &^= 3
	}
	reply.HoldSeconds, reply.Token, reply.EnvDrop = 0, "", nil
	switch reply.Verdict {
	case VerdictPass:
		reply.Rewrite = Rewrite{}
	case VerdictRewrite:
		if reply.Rewrite.Empty() {
			reply.Rewrite.Features = new(string)
		}
	case VerdictHold:
		reply.HoldSeconds = rapid.Uint32Range(0, MaxHoldSeconds).Draw(t, "seconds")
		reply.Token = rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "token")
		reply.EnvDrop = rapid.SliceOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,30}`), 0, 4).Draw(t, "drop")
		if len(reply.EnvDrop) == 0 {
			reply.EnvDrop = nil
		}
	}
	return reply
}

func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := drawRequest(t)
		var frame bytes.Buffer
		if err := WriteRequest(&frame, request); err != nil {
			t.Fatal(err)
		}
		frame.WriteString("next") // a reader must stop at the end of its frame
		got, err := ReadRequest(&frame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(request, got); diff != "" {
			t.Fatalf("request changed on the way (-sent +got):\n%s", diff)
		}
		if frame.String() != "next" {
			t.Fatalf("%q is left after the frame, want %q", frame.String(), "next")
		}
	})
}

func TestReplyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reply := drawReply(t)
		var frame bytes.Buffer
		if err := WriteReply(&frame, reply); err != nil {
			t.Fatal(err)
		}
		got, err := ReadReply(&frame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reply, got); diff != "" {
			t.Fatalf("reply changed on the way (-sent +got):\n%s", diff)
		}
	})
}
