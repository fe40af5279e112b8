package replay

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/allocator"
)

// OracleMagic is how an oracle trace begins.
const OracleMagic = "@ torch="

const maxOracleLine = 1 << 12

// ReadOracle reads a trace in the line format of recorded allocator answers (docs/allocator-traces.md), plain or gzip.
func ReadOracle(in io.Reader, name string) (*Program, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	if head, err := buffered.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		buffered = bufio.NewReaderSize(unzipped, 1<<16)
	}
	o := oracleReader{program: &Program{Name: name}, names: map[string]int32{}}
	lines := bufio.NewScanner(buffered)
	lines.Buffer(make([]byte, 0, maxOracleLine), maxOracleLine)
	number := 0
	for lines.Scan() {
		number++
		if err := o.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", maxOracleLine)
		}
		return nil, fmt.Errorf("%s:%d: %w", name, number+1, err)
	}
	if !o.headed {
		return nil, fmt.Errorf("%s: not an oracle trace: the first line must begin with %q", name, OracleMagic)
	}
	o.program.Blocks = int(o.blocks)
	o.program.TotalKnown = o.program.TotalBytes != 0
	return o.program, nil
}

type oracleReader struct {
	program *Program
	headed  bool
	names   map[string]int32 // live names
	blocks  int32
}

func (o *oracleReader) line(text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return nil
	}
	if !o.headed {
		if fields[0] != "@" {
			return fmt.Errorf("not an oracle trace: the first line must begin with %q", OracleMagic)
		}
		o.headed = true
		return o.header(fields[1:])
	}
	if fields[0] == ">" {
		return o.request(fields[1:])
	}
	n := len(o.program.Answers)
	if n == 0 {
		return fmt.Errorf("an answer before the first request: %q", text)
	}
	answer := &o.program.Answers[n-1]
	switch fields[0] {
	case "#":
		e, err := parseOracleEvent(fields[1:])
		if err != nil {
			return err
		}
		answer.Events = append(answer.Events, e)
	case "=":
		if len(fields) != 3 {
			return fmt.Errorf("want \"= ID ADDRESS\", not %q", text)
		}
		addr, err := strconv.ParseUint(strings.TrimPrefix(fields[2], "0x"), 16, 64)
		if err != nil {
			return fmt.Errorf("address %q: not a hexadecimal number", fields[2])
		}
		answer.Addr, answer.HasAddr = addr, true
	case "!":
		// Frees that record events raise a second message: the harness that made the record had no Python to report it to. It is no answer.
		if strings.Contains(text, "out of memory") {
			answer.OOM = true
		}
	case "S":
		answer.Stats = append(answer.Stats, text)
	default:
		return fmt.Errorf("unknown line %q", text)
	}
	return nil
}

func (o *oracleReader) header(fields []string) error {
	p := o.program
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		var err error
		switch key {
		case "torch":
			p.Version, err = allocator.ParseVersion(value)
		case "conf":
			if value != "-" {
				p.ConfText = value
			}
		case "total":
			if p.TotalBytes, err = strconv.ParseUint(value, 10, 56); err != nil {
				err = fmt.Errorf("total %q: want a number of bytes below 2^56", value)
			}
		case "fraction": // repeated as a request
		default:
			err = fmt.Errorf("unknown key %q in the header", key)
		}
		if err != nil {
			return err
		}
	}
	if p.Version == (allocator.Version{}) {
		return errors.New("the header has no torch=VERSION")
	}
	config, _, err := allocator.ParseConfig(p.ConfText, p.Version)
	if err != nil {
		return fmt.Errorf("conf=%s: %w", p.ConfText, err)
	}
	p.Config = config
	return nil
}

func (o *oracleReader) request(f []string) error {
	p := o.program
	if len(f) == 0 {
		return errors.New("an empty request")
	}
	if len(p.Ops) >= maxOps {
		return fmt.Errorf("more than %d requests", maxOps)
	}
	want := map[string]int{"a": 4, "r": 3, "f": 2, "t": 2, "e": 1, "s": 1, "frac": 2}[f[0]]
	if want == 0 {
		return fmt.Errorf("unknown request %q", f[0])
	}
	if len(f) != want {
		return fmt.Errorf("request %q: want %d fields, got %d", f[0], want, len(f))
	}
	var op Op
	var err error
	switch f[0] {
	case "a":
		op.Kind = OpAlloc
		if op.Bytes, err = strconv.ParseUint(f[2], 10, 64); err != nil {
			return fmt.Errorf("size %q: not a number of bytes", f[2])
		}
		if op.Stream, err = strconv.ParseUint(f[3], 10, 64); err != nil {
			return fmt.Errorf("stream %q: not a number", f[3])
		}
		if _, taken := o.names[f[1]]; taken {
			return fmt.Errorf("block %s is allocated twice", f[1])
		}
		if o.blocks == maxBlocks {
			return fmt.Errorf("more than %d blocks", maxBlocks)
		}
		op.Block = o.blocks
		o.names[f[1]] = op.Block
		o.blocks++
	case "f", "r":
		block, ok := o.names[f[1]]
		if !ok {
			return fmt.Errorf("block %s is not allocated", f[1])
		}
		op.Kind, op.Block = OpFree, block
		if f[0] == "r" {
			op.Kind = OpRecordStream
			if op.Stream, err = strconv.ParseUint(f[2], 10, 64); err != nil {
				return fmt.Errorf("stream %q: not a number", f[2])
			}
		} else {
			delete(o.names, f[1])
		}
	case "t":
		op.Kind = OpClock
		if op.Bytes, err = strconv.ParseUint(f[1], 10, 63); err != nil {
			return fmt.Errorf("time %q: not a number", f[1])
		}
	case "e":
		op.Kind = OpEmptyCache
	case "s":
		op.Kind = OpStats
	case "frac":
		op.Kind = OpFraction
		if op.Fraction, err = strconv.ParseFloat(f[1], 64); err != nil {
			return fmt.Errorf("fraction %q: not a number", f[1])
		}
	}
	p.Ops = append(p.Ops, op)
	p.Answers = append(p.Answers, Answer{})
	return nil
}

func parseOracleEvent(f []string) (allocator.Event, error) {
	var e allocator.Event
	if len(f) != 4 {
		return e, fmt.Errorf("want \"# KIND addr= size= stream=\", got %d fields", len(f))
	}
	kind, ok := allocator.ParseEventKind(f[0])
	if !ok {
		return e, fmt.Errorf("unknown event %q", f[0])
	}
	e.Kind = kind
	var errs [3]error
	e.Addr, errs[0] = strconv.ParseUint(strings.TrimPrefix(f[1], "addr="), 16, 64)
	e.SizeBytes, errs[1] = strconv.ParseUint(strings.TrimPrefix(f[2], "size="), 10, 64)
	e.Stream, errs[2] = strconv.ParseUint(strings.TrimPrefix(f[3], "stream=0x"), 16, 64)
	for i, err := range errs {
		if err != nil {
			return e, fmt.Errorf("field %q of an event: not a number", f[i+1])
		}
	}
	return e, nil
}
