package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The classes of error that a peer can cause. Every decoding error wraps one.
var (
	// ErrMalformed is a frame that breaks the format.
	ErrMalformed = errors.New("malformed frame")
	// ErrTooLarge is a frame or field over its limit.
	ErrTooLarge = errors.New("over the limit")
	// ErrVersion is a frame of another protocol version.
	ErrVersion = errors.New("unsupported protocol version")
	// ErrInvalid is a well-formed message that says something impossible.
	ErrInvalid = errors.New("invalid message")
)

type frameKind uint16

const (
	kindRequest frameKind = 1
	kindReply   frameKind = 2
)

var magic = [4]byte{'G', 'R', 'S', 'Z'}

// ignorableTag marks tags that a reader who does not know them may skip.
const ignorableTag = 0x8000

// field ties a tag to the place of its value. Exactly one pointer is set. The
// tables of fields are the only place where tags are given.
type field struct {
	tag  uint16
	name string

	number32 *uint32  // required
	number64 *uint64  // required
	maybe32  **uint32 // absent when nil
	maybe64  **uint64
	text     *string  // absent when empty
	maybe    **string // absent when nil, may be empty
	list     *[]string

	maxBytes int // of the value
}

func (r *Request) fields() []field {
	text := func(tag uint16, name string, p *string) field {
		return field{tag: tag, name: name, text: p, maxBytes: MaxStringBytes}
	}
	return []field{
		{tag: 1, name: "slurm_version", number32: &r.SlurmVersion},
		{tag: 2, name: "submit_uid", number32: &r.SubmitUID},
		{tag: 3, name: "user_id", number32: &r.UserID},
		{tag: 4, name: "group_id", number32: &r.GroupID},
		{tag: 5, name: "flags", number64: (*uint64)(&r.Flags)},
		{tag: 6, name: "begin_time", number64: &r.BeginTime},
		{tag: 7, name: "deadline", number64: &r.Deadline},
		text(16, "name", &r.Name),
		text(17, "partition", &r.Partition),
		text(18, "account", &r.Account),
		text(19, "qos", &r.QOS),
		text(20, "reservation", &r.Reservation),
		text(21, "features", &r.Features),
		text(22, "prefer", &r.Prefer),
		text(23, "tres_per_job", &r.TresPerJob),
		text(24, "tres_per_node", &r.TresPerNode),
		text(25, "tres_per_socket", &r.TresPerSocket),
		text(26, "tres_per_task", &r.TresPerTask),
		text(27, "cpus_per_tres", &r.CPUsPerTres),
		text(28, "mem_per_tres", &r.MemPerTres),
		text(29, "array_inx", &r.ArrayInx),
		text(30, "comment", &r.Comment),
		text(31, "admin_comment", &r.AdminComment),
		text(32, "dependency", &r.Dependency),
		text(33, "licenses", &r.Licenses),
		text(34, "work_dir", &r.WorkDir),
		text(35, "req_nodes", &r.ReqNodes),
		text(36, "exc_nodes", &r.ExcNodes),
		text(37, "skip_reason", &r.SkipReason),
		{tag: 48, name: "pn_min_memory", maybe64: &r.PnMinMemory},
		{tag: 49, name: "pn_min_cpus", maybe32: &r.PnMinCPUs},
		{tag: 50, name: "min_cpus", maybe32: &r.MinCPUs},
		{tag: 51, name: "min_nodes", maybe32: &r.MinNodes},
		{tag: 52, name: "max_nodes", maybe32: &r.MaxNodes},
		{tag: 53, name: "num_tasks", maybe32: &r.NumTasks},
		{tag: 54, name: "cpus_per_task", maybe32: &r.CPUsPerTask},
		{tag: 55, name: "ntasks_per_node", maybe32: &r.NtasksPerNode},
		{tag: 56, name: "ntasks_per_tres", maybe32: &r.NtasksPerTres},
		{tag: 57, name: "time_limit", maybe32: &r.TimeLimit},
		{tag: 58, name: "priority", maybe32: &r.Priority},
		{tag: 64, name: "argv", list: &r.Argv, maxBytes: MaxArgvBytes},
		{tag: 65, name: "argv_total", number32: &r.ArgvTotal},
		{tag: 66, name: "script", text: &r.Script, maxBytes: MaxScriptBytes},
		{tag: 67, name: "script_total", number64: &r.ScriptTotal},
		{tag: 68, name: "environment", list: &r.Environment, maxBytes: MaxEnvironmentBytes},
		{tag: 69, name: "environment_total", number32: &r.EnvironmentTotal},
	}
}

func (r *Reply) fields() []field {
	text := func(tag uint16, name string, p **string) field {
		return field{tag: tag, name: name, maybe: p, maxBytes: MaxRewriteBytes}
	}
	w := &r.Rewrite
	return []field{
		{tag: 1, name: "verdict", number32: (*uint32)(&r.Verdict)},
		{tag: 2, name: "hold_seconds", number32: &r.HoldSeconds},
		{tag: 3, name: "token", text: &r.Token, maxBytes: MaxTokenBytes},
		{tag: 4, name: "env_drop", list: &r.EnvDrop, maxBytes: MaxEnvDropEntries * (4 + MaxEnvNameBytes)},
		text(21, "features", &w.Features),
		text(23, "tres_per_job", &w.TresPerJob),
		text(24, "tres_per_node", &w.TresPerNode),
		text(25, "tres_per_socket", &w.TresPerSocket),
		text(26, "tres_per_task", &w.TresPerTask),
		text(27, "cpus_per_tres", &w.CPUsPerTres),
		text(28, "mem_per_tres", &w.MemPerTres),
		{tag: 48, name: "pn_min_memory", maybe64: &w.PnMinMemory},
		{tag: 49, name: "pn_min_cpus", maybe32: &w.PnMinCPUs},
		{tag: 50, name: "min_cpus", maybe32: &w.MinCPUs},
	}
}

// ReadRequest reads one request. It never reads past the frame, and it never
// allocates much more than has arrived. Deadlines are the caller's, on the
// connection.
func ReadRequest(r io.Reader) (*Request, error) {
	body, err := readFrame(r, kindRequest, MaxRequestBytes)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	request := &Request{}
	if err := decodeBody(body, request.fields()); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if err := request.Validate(); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	return request, nil
}

// WriteRequest writes one request in a single call of Write.
func WriteRequest(w io.Writer, request *Request) error {
	if err := request.Validate(); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	frame, err := encodeFrame(kindRequest, request.fields(), MaxRequestBytes)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	return nil
}

// ReadReply reads one reply.
func ReadReply(r io.Reader) (*Reply, error) {
	body, err := readFrame(r, kindReply, MaxReplyBytes)
	if err != nil {
		return nil, fmt.Errorf("read reply: %w", err)
	}
	reply := &Reply{}
	if err := decodeBody(body, reply.fields()); err != nil {
		return nil, fmt.Errorf("read reply: %w", err)
	}
	if err := reply.Validate(); err != nil {
		return nil, fmt.Errorf("read reply: %w", err)
	}
	return reply, nil
}

// WriteReply writes one reply in a single call of Write. A reply that the
// plugin would not obey is refused here, where somebody can see the error.
func WriteReply(w io.Writer, reply *Reply) error {
	if err := reply.Validate(); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	frame, err := encodeFrame(kindReply, reply.fields(), MaxReplyBytes)
	if err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}

func readFrame(r io.Reader, want frameKind, maxBytes uint32) ([]byte, error) {
	var header [HeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, fmt.Errorf("frame header: %w", err)
	}
	if !bytes.Equal(header[:4], magic[:]) {
		return nil, fmt.Errorf("%w: it begins with %q, not %q", ErrMalformed, header[:4], magic[:])
	}
	if version := binary.BigEndian.Uint16(header[4:]); version != ProtocolVersion {
		return nil, fmt.Errorf("%w: peer speaks %d, this side %d", ErrVersion, version, ProtocolVersion)
	}
	if kind := frameKind(binary.BigEndian.Uint16(header[6:])); kind != want {
		return nil, fmt.Errorf("%w: kind %d, want %d", ErrMalformed, kind, want)
	}
	length := binary.BigEndian.Uint32(header[8:])
	if length > maxBytes {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d", ErrTooLarge, length, maxBytes)
	}
	// The buffer grows with what arrives, so a length alone costs nothing.
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("frame body, %d of %d bytes: %w", body.Len(), length, err)
	}
	return body.Bytes(), nil
}

// decodeBody fills the fields from the body. Tags rise strictly, so a field
// occurs once and every message has one spelling.
func decodeBody(body []byte, fields []field) error {
	next, lastTag := 0, -1
	for len(body) > 0 {
		if len(body) < FieldHeaderBytes {
			return fmt.Errorf("%w: %d bytes after the last field", ErrMalformed, len(body))
		}
		tag := binary.BigEndian.Uint16(body)
		length := binary.BigEndian.Uint32(body[2:])
		body = body[FieldHeaderBytes:]
		if uint64(length) > uint64(len(body)) {
			return fmt.Errorf("%w: field %d claims %d bytes of %d", ErrMalformed, tag, length, len(body))
		}
		if int(tag) <= lastTag {
			return fmt.Errorf("%w: field %d after field %d", ErrMalformed, tag, lastTag)
		}
		lastTag = int(tag)
		value := body[:length]
		body = body[length:]

		for next < len(fields) && fields[next].tag < tag {
			if fields[next].required() {
				return fmt.Errorf("%w: field %s is missing", ErrMalformed, fields[next].name)
			}
			next++
		}
		if next < len(fields) && fields[next].tag == tag {
			if err := fields[next].decode(value); err != nil {
				return fmt.Errorf("field %s: %w", fields[next].name, err)
			}
			next++
			continue
		}
		if tag&ignorableTag == 0 {
			return fmt.Errorf("%w: unknown field %d", ErrMalformed, tag)
		}
	}
	for ; next < len(fields); next++ {
		if fields[next].required() {
			return fmt.Errorf("%w: field %s is missing", ErrMalformed, fields[next].name)
		}
	}
	return nil
}

func (f *field) required() bool { return f.number32 != nil || f.number64 != nil }

func (f *field) decode(value []byte) error {
	switch {
	case f.number32 != nil, f.maybe32 != nil:
		number, err := decodeNumber(value)
		if err != nil {
			return err
		}
		if number > 0xffffffff {
			return fmt.Errorf("%w: %d does not fit 32 bits", ErrMalformed, number)
		}
		narrow := uint32(number)
		if f.number32 != nil {
			*f.number32 = narrow
		} else {
			*f.maybe32 = &narrow
		}
	case f.number64 != nil, f.maybe64 != nil:
		number, err := decodeNumber(value)
		if err != nil {
			return err
		}
		if f.number64 != nil {
			*f.number64 = number
		} else {
			*f.maybe64 = &number
		}
	case f.text != nil:
		if len(value) == 0 {
			return fmt.Errorf("%w: an empty text is left out", ErrMalformed)
		}
		if err := checkText(value, f.maxBytes); err != nil {
			return err
		}
		*f.text = string(value)
	case f.maybe != nil:
		if err := checkText(value, f.maxBytes); err != nil {
			return err
		}
		text := string(value)
		*f.maybe = &text
	case f.list != nil:
		list, err := decodeList(value, f.maxBytes)
		if err != nil {
			return err
		}
		*f.list = list
	}
	return nil
}

func decodeNumber(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: a number of %d bytes", ErrMalformed, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func checkText[T string | []byte](value T, maxBytes int) error {
	if len(value) > maxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(value), maxBytes)
	}
	for i := range len(value) {
		if value[i] == 0 {
			return fmt.Errorf("%w: NUL at byte %d", ErrMalformed, i)
		}
	}
	return nil
}

func decodeList(value []byte, maxBytes int) ([]string, error) {
	if len(value) == 0 {
		return nil, fmt.Errorf("%w: an empty list is left out", ErrMalformed)
	}
	if len(value) > maxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(value), maxBytes)
	}
	var list []string
	for len(value) > 0 {
		if len(list) == MaxListEntries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrTooLarge, MaxListEntries)
		}
		if len(value) < 4 {
			return nil, fmt.Errorf("%w: %d bytes after the last entry", ErrMalformed, len(value))
		}
		length := binary.BigEndian.Uint32(value)
		value = value[4:]
		if uint64(length) > uint64(len(value)) {
			return nil, fmt.Errorf("%w: entry %d claims %d bytes of %d", ErrMalformed, len(list), length, len(value))
		}
		if err := checkText(value[:length], maxBytes); err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(list), err)
		}
		list = append(list, string(value[:length]))
		value = value[length:]
	}
	return list, nil
}

func encodeFrame(kind frameKind, fields []field, maxBytes int) ([]byte, error) {
	frame := make([]byte, HeaderBytes, 4096)
	copy(frame, magic[:])
	binary.BigEndian.PutUint16(frame[4:], ProtocolVersion)
	binary.BigEndian.PutUint16(frame[6:], uint16(kind))
	for i := range fields {
		var err error
		if frame, err = fields[i].append(frame); err != nil {
			return nil, fmt.Errorf("field %s: %w", fields[i].name, err)
		}
	}
	length := len(frame) - HeaderBytes
	if length > maxBytes {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d", ErrTooLarge, length, maxBytes)
	}
	binary.BigEndian.PutUint32(frame[8:], uint32(length))
	return frame, nil
}

func (f *field) append(frame []byte) ([]byte, error) {
	switch {
	case f.number32 != nil:
		return f.appendNumber(frame, uint64(*f.number32)), nil
	case f.number64 != nil:
		return f.appendNumber(frame, *f.number64), nil
	case f.maybe32 != nil:
		if *f.maybe32 == nil {
			return frame, nil
		}
		return f.appendNumber(frame, uint64(**f.maybe32)), nil
	case f.maybe64 != nil:
		if *f.maybe64 == nil {
			return frame, nil
		}
		return f.appendNumber(frame, **f.maybe64), nil
	case f.text != nil:
		if *f.text == "" {
			return frame, nil
		}
		return f.appendText(frame, *f.text)
	case f.maybe != nil:
		if *f.maybe == nil {
			return frame, nil
		}
		return f.appendText(frame, **f.maybe)
	default:
		return f.appendList(frame, *f.list)
	}
}

func (f *field) appendHeader(frame []byte, length int) []byte {
	frame = binary.BigEndian.AppendUint16(frame, f.tag)
	return binary.BigEndian.AppendUint32(frame, uint32(length))
}

func (f *field) appendNumber(frame []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(f.appendHeader(frame, 8), number)
}

func (f *field) appendText(frame []byte, text string) ([]byte, error) {
	if err := checkText(text, f.maxBytes); err != nil {
		return nil, err
	}
	return append(f.appendHeader(frame, len(text)), text...), nil
}

func (f *field) appendList(frame []byte, list []string) ([]byte, error) {
	if len(list) == 0 {
		return frame, nil
	}
	if len(list) > MaxListEntries {
		return nil, fmt.Errorf("%w: %d entries, at most %d", ErrTooLarge, len(list), MaxListEntries)
	}
	length := 0
	for i, entry := range list {
		if err := checkText(entry, f.maxBytes); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		length += 4 + len(entry)
	}
	if length > f.maxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, length, f.maxBytes)
	}
	frame = f.appendHeader(frame, length)
	for _, entry := range list {
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(entry)))
		frame = append(frame, entry...)
	}
	return frame, nil
}
