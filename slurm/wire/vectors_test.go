package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ptr[T any](value T) *T { return &value }

func vectorRequests() map[string]*Request {
	return map[string]*Request{
		"request-smallest": {},
		"request-sbatch": {
			SlurmVersion: 0x160508, SubmitUID: 1000, UserID: 1000, GroupID: 1000,
			Flags: FlagNoRequeue, Name: "train.sh", Partition: "gpu", Account: "nlp", QOS: "normal",
			TresPerNode: "gres:gpu:1", WorkDir: "/home/ada/run",
			PnMinMemory: ptr(uint64(8192)), PnMinCPUs: ptr(uint32(4)), MinCPUs: ptr(uint32(4)),
			MinNodes: ptr(uint32(1)), MaxNodes: ptr(uint32(1)), NumTasks: ptr(uint32(1)),
			CPUsPerTask: ptr(uint32(4)), TimeLimit: ptr(uint32(120)),
			Argv: []string{"/home/ada/run/train.sh", "--epochs", "3"}, ArgvTotal: 3,
			Script: "#!/bin/sh\n#SBATCH --gres=gpu:1\npython train.py\n", ScriptTotal: 47,
			Environment:      []string{"HOME=/home/ada", "PATH=/usr/bin:/bin", "SLURM_GPUS=1"},
			EnvironmentTotal: 3,
		},
		"request-every-field": {
			SlurmVersion: 0x180b05, SubmitUID: 0, UserID: 1001, GroupID: 1002,
			Flags: knownFlags, BeginTime: 1900000000, Deadline: 1900003600,
			Name: "n", Partition: "a,b", Account: "acc", QOS: "q", Reservation: "r", Features: "gpu80g&(x|y)",
			Prefer: "p", TresPerJob: "gres/gpu:2", TresPerNode: "gres/gpu:a100:1", TresPerSocket: "gres/gpu:1",
			TresPerTask: "cpu=2,gres/gpu=1", CPUsPerTres: "gres/gpu:4", MemPerTres: "gres/gpu:8192",
			ArrayInx: "0-9%2", Comment: "c", AdminComment: "site", Dependency: "afterok:7", Licenses: "matlab:1",
			WorkDir: "/w", ReqNodes: "n1", ExcNodes: "n[2-3]",
			PnMinMemory: ptr(MemoryPerCPU | 2048), PnMinCPUs: ptr(uint32(1)), MinCPUs: ptr(uint32(2)),
			MinNodes: ptr(uint32(3)), MaxNodes: ptr(uint32(4)), NumTasks: ptr(uint32(5)),
			CPUsPerTask: ptr(uint32(6)), NtasksPerNode: ptr(uint32(7)), NtasksPerTres: ptr(uint32(8)),
			TimeLimit: ptr(InfiniteMinutes), Priority: ptr(uint32(10)),
			Argv: []string{"a", "", "b"}, ArgvTotal: 9, Script: "#!/bin/sh\n", ScriptTotal: 5 << 20,
			Environment: []string{"A=1"}, EnvironmentTotal: 4000,
		},
		"request-skipped": {
			SlurmVersion: 0x160508, SubmitUID: 1000, UserID: 1000, GroupID: 1000,
			TresPerJob: "gres:gpu:1", SkipReason: SkipHet,
			ArgvTotal: 1, ScriptTotal: 20, EnvironmentTotal: 30,
		},
		"request-bytes-not-utf8": {
			UserID: 7, Name: "\xe9t\xe9\xff", WorkDir: "/tmp/\x01\x7f\x80",
			PnMinMemory: ptr(uint64(0)), Script: "#!/bin/sh\n# \xfc\n", ScriptTotal: 14,
			Environment: []string{"X=\xc3\x28"}, EnvironmentTotal: 1,
		},
	}
}

func vectorReplies() map[string]*Reply {
	return map[string]*Reply{
		"reply-pass": {Verdict: VerdictPass},
		"reply-rewrite": {Verdict: VerdictRewrite, Rewrite: Rewrite{
			Features: ptr("gpu40"), TresPerJob: ptr(""), TresPerNode: ptr("gres:shard:24"),
		}},
		"reply-hold":  {Verdict: VerdictHold, HoldSeconds: 120, Token: "q3v-A_9"},
		"reply-stamp": {Verdict: VerdictHold, Token: "q3v-A_9"},
		"reply-hold-everything": {
			Verdict: VerdictHold, HoldSeconds: MaxHoldSeconds, Token: strings.Repeat("t", MaxTokenBytes),
			EnvDrop: []string{"SLURM_GPUS", "_x9"},
			Rewrite: Rewrite{
				Features: ptr("f"), TresPerJob: ptr("j"), TresPerNode: ptr("n"), TresPerSocket: ptr("s"),
				TresPerTask: ptr("t"), CPUsPerTres: ptr(""), MemPerTres: ptr(""),
				PnMinMemory: ptr(MemoryPerCPU | 4096), PnMinCPUs: ptr(uint32(8)), MinCPUs: ptr(uint32(8)),
			},
		},
	}
}

// badReply is a reply that both codecs must refuse.
type badReply struct {
	frame []byte
	class error
}

func vectorBadReplies(t *testing.T) map[string]badReply {
	t.Helper()
	pass := mustReplyFrame(t, &Reply{Verdict: VerdictPass})
	hold := mustReplyFrame(t, &Reply{Verdict: VerdictHold, HoldSeconds: 5, Token: "tok"})
	edit := func(frame []byte, at int, b byte) []byte {
		frame = bytes.Clone(frame)
		frame[at] = b
		return frame
	}
	withFields := func(fields ...[]byte) []byte {
		body := bytes.Join(fields, nil)
		return append([]byte{'G', 'R', 'S', 'Z', 0, 1, 0, 2, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	}
	value := func(tag byte, bytes ...byte) []byte {
		return append([]byte{0, tag, 0, 0, 0, byte(len(bytes))}, bytes...)
	}
	number := func(tag byte, n byte) []byte { return value(tag, 0, 0, 0, 0, 0, 0, 0, n) }

	return map[string]badReply{
		"reply-bad-magic":           {edit(pass, 0, 'X'), ErrMalformed},
		"reply-bad-version-next":    {edit(pass, 5, 2), ErrVersion},
		"reply-bad-kind":            {edit(pass, 7, 1), ErrMalformed},
		"reply-bad-two-gib":         {edit(pass, 8, 0x80), ErrTooLarge},
		"reply-bad-empty-body":      {withFields(), ErrMalformed},
		"reply-bad-no-seconds":      {withFields(number(1, 1)), ErrMalformed},
		"reply-bad-order":           {withFields(number(2, 0), number(1, 1)), ErrMalformed},
		"reply-bad-twice":           {withFields(number(1, 1), number(1, 1), number(2, 0)), ErrMalformed},
		"reply-bad-unknown-field":   {withFields(number(1, 1), number(2, 0), number(9, 1)), ErrMalformed},
		"reply-bad-verdict":         {withFields(number(1, 4), number(2, 0)), ErrInvalid},
		"reply-bad-short-number":    {withFields(value(1, 1), number(2, 0)), ErrMalformed},
		"reply-bad-hold-for-ever":   {withFields(value(1, 0, 0, 0, 0, 0, 0, 0, 3), value(2, 0, 0, 0, 0, 0, 0, 1, 45), value(3, 't')), ErrInvalid},
		"reply-bad-hold-no-token":   {withFields(number(1, 3), number(2, 5)), ErrInvalid},
		"reply-bad-token-byte":      {edit(hold, len(hold)-1, ' '), ErrInvalid},
		"reply-bad-pass-with-field": {withFields(number(1, 1), number(2, 0), value(21, 'x')), ErrInvalid},
		"reply-bad-rewrite-nothing": {withFields(number(1, 2), number(2, 0)), ErrInvalid},
		"reply-bad-newline":         {withFields(number(1, 2), number(2, 0), value(21, 'a', '\n')), ErrInvalid},
		"reply-bad-nul":             {withFields(number(1, 2), number(2, 0), value(21, 'a', 0)), ErrMalformed},
		"reply-bad-env-name":        {withFields(number(1, 3), number(2, 5), value(3, 't'), value(4, 0, 0, 0, 2, '9', 'A')), ErrInvalid},
		"reply-bad-env-entry":       {withFields(number(1, 3), number(2, 5), value(3, 't'), value(4, 0, 0, 0, 3, 'A')), ErrMalformed},
		"reply-bad-unset-memory":    {withFields(number(1, 2), number(2, 0), value(48, 255, 255, 255, 255, 255, 255, 255, 254)), ErrInvalid},
		"reply-bad-wide-cpus":       {withFields(number(1, 2), number(2, 0), value(49, 0, 0, 0, 0, 0, 1, 0, 0)), ErrInvalid},
		"reply-bad-field-past-end":  {withFields(number(1, 1), number(2, 0), []byte{0, 21, 0, 0, 0, 9, 'x'}), ErrMalformed},
	}
}

func mustReplyFrame(t *testing.T, reply *Reply) []byte {
	t.Helper()
	var frame bytes.Buffer
	if err := WriteReply(&frame, reply); err != nil {
		t.Fatal(err)
	}
	return frame.Bytes()
}

func mustRequestFrame(t *testing.T, request *Request) []byte {
	t.Helper()
	var frame bytes.Buffer
	if err := WriteRequest(&frame, request); err != nil {
		t.Fatal(err)
	}
	return frame.Bytes()
}

// vectorJSON is a message as the .json files show it: bytes become the code
// points of the same number, so any bytes are readable and none is lost.
func vectorJSON(message string, fields []field) []byte {
	values := map[string]any{}
	for i := range fields {
		f := &fields[i]
		switch {
		case f.number32 != nil:
			values[f.name] = *f.number32
		case f.number64 != nil:
			values[f.name] = *f.number64
		case f.maybe32 != nil && *f.maybe32 != nil:
			values[f.name] = **f.maybe32
		case f.maybe64 != nil && *f.maybe64 != nil:
			values[f.name] = **f.maybe64
		case f.text != nil && *f.text != "":
			values[f.name] = latin1(*f.text)
		case f.maybe != nil && *f.maybe != nil:
			values[f.name] = latin1(**f.maybe)
		case f.list != nil && len(*f.list) > 0:
			list := make([]string, len(*f.list))
			for j, entry := range *f.list {
				list[j] = latin1(entry)
			}
			values[f.name] = list
		}
	}
	return indentJSON(map[string]any{"message": message, "fields": values})
}

func latin1(bytes string) string {
	runes := make([]rune, len(bytes))
	for i := range len(bytes) {
		runes[i] = rune(bytes[i])
	}
	return string(runes)
}

func indentJSON(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	return text.Bytes()
}

func hexLines(frame []byte) []byte {
	var text strings.Builder
	for len(frame) > 0 {
		line := frame[:min(32, len(frame))]
		fmt.Fprintf(&text, "%x\n", line)
		frame = frame[len(line):]
	}
	return []byte(text.String())
}

func checkGolden(t *testing.T, name string, want []byte) {
	t.Helper()
	path := filepath.Join("testdata", "vectors", name)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./slurm/wire -update writes it", err)
	}
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Errorf("%s is another (-file +codec); a changed format needs a new ProtocolVersion:\n%s", path, diff)
	}
}

func readHex(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return frame
}

func TestVectors(t *testing.T) {
	wanted := map[string]bool{}
	for name, request := range vectorRequests() {
		wanted[name] = true
		checkGolden(t, name+".hex", hexLines(mustRequestFrame(t, request)))
		checkGolden(t, name+".json", vectorJSON("request", request.fields()))
		got, err := ReadRequest(bytes.NewReader(readHex(t, filepath.Join("testdata", "vectors", name+".hex"))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(request, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, reply := range vectorReplies() {
		wanted[name] = true
		checkGolden(t, name+".hex", hexLines(mustReplyFrame(t, reply)))
		checkGolden(t, name+".json", vectorJSON("reply", reply.fields()))
		got, err := ReadReply(bytes.NewReader(readHex(t, filepath.Join("testdata", "vectors", name+".hex"))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(reply, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, bad := range vectorBadReplies(t) {
		wanted[name] = true
		checkGolden(t, name+".hex", hexLines(bad.frame))
		checkGolden(t, name+".json", indentJSON(map[string]any{"message": "reply", "error": bad.class.Error()}))
		if _, err := ReadReply(bytes.NewReader(bad.frame)); !errors.Is(err, bad.class) {
			t.Errorf("%s: got error %v, want %v", name, err, bad.class)
		}
	}
	files, err := filepath.Glob("testdata/vectors/*.hex")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".hex"); !wanted[name] {
			t.Errorf("%s belongs to no vector of this test", file)
		}
	}
}
