package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kind is the type of a pickled value.
type kind uint8

const (
	kindNone kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList // and tuple
	kindDict
	// The dictionaries of a snapshot become records once they are complete, which is when a list takes them.
	kindEntry
	kindBlock
	kindSegment
	// kindDropped is a value whose contents nobody needs, such as stack frames.
	kindDropped
)

// value is one pickled value. num is the number, or the index into the decoder's tables.
type value struct {
	kind kind
	num  uint64
}

// container is a list or a dictionary (key, value, key, value ...); a record keeps its place here, so that the memo can still name it.
type container struct {
	kind  kind
	index int32
	items []value
}

// decoder runs the pickle machine for plain data. It holds records of the three dictionaries that matter, and forgets all others early.
type decoder struct {
	in     *bufio.Reader
	limits Limits
	offset int64
	nodes  int

	stack []value
	marks []int
	memo  []value

	strings    []string
	containers []container
	free       [][]value // item slices of finished dictionaries, to be used again

	entries  []Entry
	blocks   []Block
	segments []Segment
	scratch  []byte
	// interned finds the number of a short string; keys and actions come again and again.
	interned map[string]uint64
}

// Errors of the decoder, for tests and callers that tell hostile files from broken ones.
var (
	ErrCode      = errors.New("the pickle wants to run code or name a class; a memory snapshot holds plain data only")
	ErrTruncated = errors.New("the pickle ends in the middle")
	ErrLimit     = errors.New("the pickle exceeds a limit")
)

func readPickle(in *bufio.Reader, limits Limits) (*Snapshot, error) {
	d := &decoder{in: in, limits: limits, interned: map[string]uint64{}}
	top, err := d.run()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrTruncated
		}
		return nil, fmt.Errorf("pickle, byte %d: %w", d.offset, err)
	}
	return d.snapshot(top)
}

// Opcodes of protocols 2 to 5 that plain data uses.
const (
	opMark            = '('
	opEmptyTuple      = ')'
	opStop            = '.'
	opPop             = '0'
	opBinFloat        = 'G'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinString       = 'T'
	opShortBinString  = 'U'
	opBinUnicode      = 'X'
	opEmptyList       = ']'
	opAppend          = 'a'
	opDict            = 'd'
	opAppends         = 'e'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opList            = 'l'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opEmptyDict       = '}'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opMemoize         = 0x94
	opFrame           = 0x95
)

func (d *decoder) run() (value, error) {
	for {
		op, err := d.byte()
		if err != nil {
			return value{}, err
		}
		if op == opStop {
			if len(d.stack) != 1 || len(d.marks) != 0 {
				return value{}, fmt.Errorf("%d values and %d open marks at the end", len(d.stack), len(d.marks))
			}
			return d.stack[0], nil
		}
		if err := d.step(op); err != nil {
			return value{}, err
		}
		if len(d.stack) > d.limits.StackDepth || len(d.marks) > d.limits.StackDepth {
			return value{}, fmt.Errorf("%w: more than %d unfinished values", ErrLimit, d.limits.StackDepth)
		}
	}
}

func (d *decoder) step(op byte) error {
	switch op {
	case opProto:
		v, err := d.byte()
		if err == nil && (v < 2 || v > 5) {
			return fmt.Errorf("pickle protocol %d is not one of 2 to 5", v)
		}
		return err
	case opFrame:
		_, err := d.take(8)
		return err
	case opMark:
		d.marks = append(d.marks, len(d.stack))
		return nil
	case opPop:
		_, err := d.pop()
		return err
	case opNone:
		return d.push(value{})
	case opNewTrue:
		return d.push(value{kindBool, 1})
	case opNewFalse:
		return d.push(value{kindBool, 0})
	case opBinInt1, opBinInt2, opBinInt, opLong1, opLong4:
		return d.integer(op)
	case opBinFloat:
		b, err := d.take(8)
		if err != nil {
			return err
		}
		return d.push(value{kindFloat, binary.BigEndian.Uint64(b)})
	case opShortBinUnicode, opShortBinString, opBinUnicode, opBinString, opBinUnicode8:
		return d.string(op)
	case opEmptyList, opEmptyTuple:
		return d.pushContainer(kindList, nil)
	case opEmptyDict:
		return d.pushContainer(kindDict, nil)
	case opTuple1, opTuple2, opTuple3:
		n := int(op-opTuple1) + 1
		if len(d.stack)-d.floor() < n {
			return errors.New("a tuple needs more values than there are")
		}
		return d.gather(kindList, len(d.stack)-n)
	case opTuple, opList, opDict:
		from, err := d.popMark()
		if err != nil {
			return err
		}
		k := kindList
		if op == opDict {
			k = kindDict
		}
		return d.gather(k, from)
	case opAppend:
		return d.extend(kindList, len(d.stack)-1)
	case opSetItem:
		return d.extend(kindDict, len(d.stack)-2)
	case opAppends, opSetItems:
		from, err := d.popMark()
		if err != nil {
			return err
		}
		if op == opAppends {
			return d.extend(kindList, from)
		}
		return d.extend(kindDict, from)
	case opMemoize, opBinPut, opLongBinPut, opBinGet, opLongBinGet:
		return d.memory(op)
	case 'c', 'i', 'o', 'R', 'b', 'P', 'Q', 0x81, 0x82, 0x83, 0x84, 0x92, 0x93:
		return ErrCode
	}
	return fmt.Errorf("opcode %#x is not plain data", op)
}

// floor is the lowest stack position that may be popped now.
func (d *decoder) floor() int {
	if n := len(d.marks); n > 0 {
		return d.marks[n-1]
	}
	return 0
}

func (d *decoder) pop() (value, error) {
	if len(d.stack) <= d.floor() {
		return value{}, errors.New("a value is taken where there is none")
	}
	v := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	return v, nil
}

func (d *decoder) popMark() (int, error) {
	n := len(d.marks)
	if n == 0 {
		return 0, errors.New("a mark is taken where there is none")
	}
	from := d.marks[n-1]
	d.marks = d.marks[:n-1]
	return from, nil
}

func (d *decoder) push(v value) error {
	if d.nodes++; d.nodes > d.limits.Nodes {
		return fmt.Errorf("%w: more than %d values", ErrLimit, d.limits.Nodes)
	}
	d.stack = append(d.stack, v)
	return nil
}

func (d *decoder) pushContainer(k kind, items []value) error {
	if len(d.containers) >= d.limits.Containers {
		return fmt.Errorf("%w: more than %d lists and dictionaries", ErrLimit, d.limits.Containers)
	}
	d.containers = append(d.containers, container{kind: k, items: items})
	return d.push(value{k, uint64(len(d.containers) - 1)})
}

// gather makes a container of the values from a stack position on.
func (d *decoder) gather(k kind, from int) error {
	items := d.stack[from:]
	if k == kindDict && len(items)%2 != 0 {
		return errors.New("a dictionary has a key without a value")
	}
	copied := append(d.slice(), items...)
	d.stack = d.stack[:from]
	d.finish(copied)
	return d.pushContainer(k, copied)
}

func (d *decoder) slice() []value {
	if n := len(d.free); n > 0 {
		s := d.free[n-1]
		d.free = d.free[:n-1]
		return s
	}
	return nil
}

// extend adds the values from a stack position on to the container below them.
func (d *decoder) extend(k kind, from int) error {
	if from-1 < d.floor() || from > len(d.stack) {
		return errors.New("a container is extended where there is none")
	}
	target := d.stack[from-1]
	if target.kind != k {
		return errors.New("a value is added to something that is not its container")
	}
	c := &d.containers[target.num]
	items := d.stack[from:]
	if k == kindDict && len(items)%2 != 0 {
		return errors.New("a dictionary has a key without a value")
	}
	if c.kind != k {
		return errors.New("a container is changed after it was put into a list: the pickle is cyclic or was made by hand")
	}
	if k == kindList {
		d.finish(items)
	} else {
		d.forget(items)
	}
	if c.items == nil {
		c.items = d.slice()
	}
	c.items = append(c.items, items...)
	d.stack = d.stack[:from]
	return nil
}

// forget drops values that are large and never read, as soon as their key is known.
func (d *decoder) forget(items []value) {
	for i := 0; i+1 < len(items); i += 2 {
		if items[i].kind != kindString || items[i+1].kind != kindList {
			continue
		}
		switch d.strings[items[i].num] {
		case "frames", "history", "external_annotations", "host_segments", "host_traces":
			c := &d.containers[items[i+1].num]
			c.kind = kindDropped
			c.items = nil
			items[i+1] = value{kind: kindDropped}
		}
	}
}

func (d *decoder) integer(op byte) error {
	var n int
	switch op {
	case opBinInt1:
		n = 1
	case opBinInt2:
		n = 2
	case opBinInt:
		n = 4
	case opLong1:
		b, err := d.byte()
		if err != nil {
			return err
		}
		n = int(b)
	case opLong4:
		b, err := d.take(4)
		if err != nil {
			return err
		}
		n = int(binary.LittleEndian.Uint32(b))
	}
	if n > 9 || n < 0 {
		return fmt.Errorf("a number of %d bytes is larger than any address", n)
	}
	b, err := d.take(n)
	if err != nil {
		return err
	}
	var v uint64
	for i := min(n, 8) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	signed := op == opBinInt || op == opLong1 || op == opLong4
	switch {
	case n == 9 && b[8] != 0:
		return errors.New("a number is larger than any address")
	case signed && n > 0 && n < 8 && b[n-1]&0x80 != 0:
		v |= ^uint64(0) << (8 * n)
	}
	return d.push(value{kindInt, v})
}

func (d *decoder) string(op byte) error {
	var n uint64
	switch op {
	case opShortBinUnicode, opShortBinString:
		b, err := d.byte()
		if err != nil {
			return err
		}
		n = uint64(b)
	case opBinUnicode, opBinString:
		b, err := d.take(4)
		if err != nil {
			return err
		}
		n = uint64(binary.LittleEndian.Uint32(b))
	case opBinUnicode8:
		b, err := d.take(8)
		if err != nil {
			return err
		}
		n = binary.LittleEndian.Uint64(b)
	}
	if n > uint64(d.limits.StringBytes) {
		return fmt.Errorf("%w: a string of %d bytes (at most %d)", ErrLimit, n, d.limits.StringBytes)
	}
	b, err := d.take(int(n))
	if err != nil {
		return err
	}
	if i, ok := d.interned[string(b)]; ok {
		return d.push(value{kindString, i})
	}
	i := uint64(len(d.strings))
	s := string(b)
	d.strings = append(d.strings, s)
	if len(s) <= 64 && len(d.interned) < 1<<16 {
		d.interned[s] = i
	}
	return d.push(value{kindString, i})
}

func (d *decoder) memory(op byte) error {
	var index int
	switch op {
	case opMemoize:
		index = len(d.memo)
	case opBinPut, opBinGet:
		b, err := d.byte()
		if err != nil {
			return err
		}
		index = int(b)
	default:
		b, err := d.take(4)
		if err != nil {
			return err
		}
		index = int(binary.LittleEndian.Uint32(b))
	}
	if op == opBinGet || op == opLongBinGet {
		if index >= len(d.memo) {
			return fmt.Errorf("memo entry %d was never written", index)
		}
		v := d.memo[index]
		if v.kind == kindList || v.kind == kindDict {
			v.kind = d.containers[v.num].kind // it may have become a record meanwhile
			if v.kind != kindList && v.kind != kindDict && v.kind != kindDropped {
				v.num = uint64(d.containers[v.num].index)
			}
		}
		return d.push(v)
	}
	if len(d.stack) <= d.floor() {
		return errors.New("nothing to memorize")
	}
	if index > len(d.memo)+1<<16 {
		return fmt.Errorf("%w: memo entry %d after %d", ErrLimit, index, len(d.memo))
	}
	for len(d.memo) <= index { // at most 2^16 more than were written
		d.memo = append(d.memo, value{})
	}
	d.memo[index] = d.stack[len(d.stack)-1]
	return nil
}

func (d *decoder) byte() (byte, error) {
	b, err := d.in.ReadByte()
	if err == nil {
		d.offset++
		if d.offset > d.limits.FileBytes {
			return 0, fmt.Errorf("%w: more than %d bytes", ErrLimit, d.limits.FileBytes)
		}
	}
	return b, err
}

// take returns the next n bytes, valid until the next call.
func (d *decoder) take(n int) ([]byte, error) {
	if d.offset += int64(n); d.offset > d.limits.FileBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrLimit, d.limits.FileBytes)
	}
	if b, err := d.in.Peek(n); err == nil {
		d.in.Discard(n)
		return b, nil
	}
	// Longer than the buffer: grow with what is really there, not with what a length field promises.
	d.scratch = d.scratch[:0]
	for len(d.scratch) < n {
		part := min(n-len(d.scratch), 1<<16)
		at := len(d.scratch)
		d.scratch = append(d.scratch, make([]byte, part)...)
		if _, err := io.ReadFull(d.in, d.scratch[at:]); err != nil {
			return nil, err
		}
	}
	return d.scratch, nil
}
