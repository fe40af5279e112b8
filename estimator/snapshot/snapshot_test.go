package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	smallAddr = 0x7f0000000000
	largeAddr = 0x7f0000200000
)

func want() *Snapshot {
	const t = 1_700_000_000_000_000
	return &Snapshot{
		Segments: []Segment{
			{Addr: smallAddr, TotalBytes: 2 << 20, Small: true, Blocks: []Block{
				{smallAddr, 512, 4, ActiveAllocated}, {smallAddr + 512, 1024, 1000, ActivePendingFree}, {smallAddr + 1536, 2<<20 - 1536, 0, Inactive}}},
			{Addr: largeAddr, TotalBytes: 20 << 20, Blocks: []Block{{largeAddr, 20 << 20, 0, Inactive}}},
		},
		Traces: [][]Entry{{
			{Action: ActionSegmentAlloc, Addr: smallAddr, SizeBytes: 2 << 20, TimeMicros: t},
			{Action: ActionAlloc, Addr: smallAddr, SizeBytes: 4, TimeMicros: t + 1},
			{Action: ActionSegmentAlloc, Addr: largeAddr, SizeBytes: 20 << 20, TimeMicros: t + 2},
			{Action: ActionAlloc, Addr: smallAddr + 512, SizeBytes: 1000, TimeMicros: t + 3},
			{Action: ActionOOM, Addr: 12345678, SizeBytes: 1 << 40, TimeMicros: 5},
			{Action: ActionFreeRequested, Addr: smallAddr + 512, SizeBytes: 1000, TimeMicros: t + 4},
			{Action: ActionSnapshot, TimeMicros: t + 5},
		}, {}},
		Settings: &Settings{AllocConf: "garbage_collection_threshold:0.8", MaxSplitBytes: -1, GCThreshold: 0.8},
	}
}

func TestReadsWhatPythonPickles(t *testing.T) {
	files, err := filepath.Glob("testdata/protocol*.pickle")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d pickles, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(bytes.NewReader(data), file, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want(), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		for n := range data {
			if _, err := Read(bytes.NewReader(data[:n]), file, DefaultLimits); err == nil {
				t.Fatalf("%s cut off at byte %d was read without an error", file, n)
			}
		}
	}
}

func TestReadsWhatItWrites(t *testing.T) {
	s := want()
	s.Origin = &Origin{TorchVersion: "2.6", TotalBytes: 80 << 30, MemoryFraction: 0.5}
	for i := range 3 * appendBatch { // several APPENDS, and an address beyond 2^47
		s.Traces[1] = append(s.Traces[1], Entry{Action: ActionAlloc, Addr: 1<<48 + uint64(i)*512, SizeBytes: uint64(i), Stream: 1 << 40, TimeMicros: int64(i)})
	}
	var out bytes.Buffer
	if err := Write(&out, s); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&out, "written", DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// p builds a pickle by hand.
func p(parts ...string) string { return "\x80\x04" + strings.Join(parts, "") }

func TestRefusesHostilePickles(t *testing.T) {
	small := Limits{FileBytes: 1 << 20, Nodes: 1000, Containers: 200, StackDepth: 100, StringBytes: 1 << 10}
	for name, c := range map[string]struct {
		data string
		is   error
		says string
	}{
		"global":               {p("cos\nsystem\n."), ErrCode, ""},
		"stack global":         {p("\x8c\x02os\x8c\x06system\x93."), ErrCode, ""},
		"reduce":               {p("N)R."), ErrCode, ""},
		"build":                {p("}}b."), ErrCode, ""},
		"new object":           {p("N)\x81."), ErrCode, ""},
		"extension":            {p("\x82\x01."), ErrCode, ""},
		"persistent id":        {p("NQ."), ErrCode, ""},
		"unknown opcode":       {p("\xff."), nil, "opcode 0xff"},
		"protocol 1":           {"\x80\x01}.", nil, "protocol 1"},
		"empty":                {"", nil, "empty"},
		"no stop":              {p("}"), ErrTruncated, ""},
		"long string":          {p("X\xff\xff\xff\xff"), ErrLimit, "string of"},
		"very long string":     {p("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), ErrLimit, "string of"},
		"string cut off":       {p("X\xff\x00\x00\x00abc"), ErrTruncated, ""},
		"long number":          {p("\x8b\xff\xff\xff\x7f"), nil, "number"},
		"negative length":      {p("\x8b\xff\xff\xff\xff"), nil, "number"},
		"number of 9 bytes":    {p("\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01."), nil, "larger than any address"},
		"memo of far number":   {p("Nr\xff\xff\xff\x7f."), ErrLimit, "memo"},
		"memo never written":   {p("h\x07."), nil, "memo entry 7"},
		"memo of nothing":      {p("\x94."), nil, "nothing to memorize"},
		"no mark":              {p("]e."), nil, "mark"},
		"append to nothing":    {p("Na."), nil, ""},
		"append across a mark": {p("](Na."), nil, ""},
		"append to a dict":     {p("}(Ne."), nil, "not its container"},
		"odd dictionary":       {p("}(Nu."), nil, "key without a value"},
		"odd new dictionary":   {p("(Nd."), nil, "key without a value"},
		"tuple of nothing":     {p("\x87."), nil, "tuple"},
		"pop of nothing":       {p("0."), nil, ""},
		"two values":           {p("NN."), nil, "2 values"},
		"open mark":            {p("}(."), nil, "marks"},
		"deep":                 {p(strings.Repeat("(", 5000), "."), ErrLimit, "unfinished"},
		"deep lists":           {p(strings.Repeat("]", 5000), "."), ErrLimit, ""},
		"many values":          {p(strings.Repeat("N0", 5000), "N."), ErrLimit, "values"},
		"many lists":           {p(strings.Repeat("]0", 400), "N."), ErrLimit, "lists"},
		"not a dictionary":     {p("]."), nil, "not a memory snapshot"},
		"nothing inside":       {p("}."), nil, "neither"},
		"list holds itself":    {p("}\x8c\x08segments]\x94h\x00as."), nil, "not a segment"},
		"dict holds itself":    {p("}\x94\x8c\x08segmentsh\x00s."), nil, "not a list"},
		"entry changed later":  {p("}\x8c\x0ddevice_traces](](}\x94\x8c\x06action\x8c\x05allocsah\x00NNse", "es."), nil, ""},
		"segments is a number": {p("}\x8c\x08segmentsK\x01s."), nil, "not a list"},
		"trace is a number":    {p("}\x8c\x0ddevice_traces]K\x01as."), nil, "not a list"},
		"entry is a number":    {p("}\x8c\x0ddevice_traces]]K\x01aas."), nil, "not a history entry"},
		"unknown state":        {p("}\x8c\x08segments]}(\x8c\x0csegment_typeN\x8c\x06blocks]}\x8c\x05state\x8c\x04oopssauas."), nil, "unknown state"},
		"blocks do not add up": {p("}\x8c\x08segments]}(\x8c\x0csegment_type\x8c\x05small\x8c\x0atotal_sizeJ\x00\x00\x20\x00uas."), nil, "add up"},
		"huge segment":         {p("}\x8c\x08segments]}(\x8c\x0csegment_typeN\x8c\x0atotal_size\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fuas."), nil, "impossible"},
		"text":                 {"hello", nil, ""},
		"json, wrong":          {`{"segments": [{"segment_type": "medium"}]}`, nil, "neither small nor large"},
		"json, short entry":    {`{"device_traces": [[["alloc", 1]]]}`, nil, ""},
		"json, negative":       {`{"device_traces": [[["alloc", -1, 5, 0]]]}`, nil, ""},
		"gzip, broken":         {"\x1f\x8b\x08\x00\x00", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.data), "file", small)
			if err == nil {
				t.Fatal("no error")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %q is not %q", err, c.is)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q does not say %q", err, c.says)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/protocol*.pickle")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(p("}\x94\x8c\x08segmentsh\x00s.")))
	f.Add([]byte(`{"segments": [], "device_traces": [[["alloc", 1, 2, 3]]]}`))
	limits := Limits{FileBytes: 1 << 20, Nodes: 1 << 16, Containers: 1 << 14, StackDepth: 1 << 10, StringBytes: 1 << 12}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(bytes.NewReader(data), "fuzz", limits)
		if err != nil {
			return
		}
		// What was read can be written, and reads as the same.
		var out bytes.Buffer
		if err := Write(&out, s); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&out, "again", DefaultLimits)
		if err != nil {
			t.Fatalf("written, it is refused: %v", err)
		}
		if len(again.Segments) != len(s.Segments) || len(again.Traces) != len(s.Traces) {
			t.Fatal("written and read again, it is another snapshot")
		}
	})
}
