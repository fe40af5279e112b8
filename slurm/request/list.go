package request

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// Entry is one element of a list of trackable resources, e.g. gres:gpu:a100:1.
// An element that this package cannot read is carried as Raw alone and printed unchanged.
type Entry struct {
	// Raw is the element as it was read; it is printed as long as no other field was changed.
	Raw string
	// Prefix is "", "gres:" or "gres/", in the letter case that was read.
	Prefix string
	// Name is the resource in lower case, e.g. gpu, shard, mps, vram. Empty: the element was not understood.
	Name string
	// Type is the GPU type as written, or empty.
	Type string
	// Count is how many are asked for; 1 when no count is written.
	Count uint64
}

// List is the value of one tres_per_* field.
type List []Entry

// ParseList reads a comma-separated list in any spelling. It never fails: what it does not understand it keeps.
func ParseList(text string) List {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	list := make(List, 0, len(parts))
	for _, p := range parts {
		list = append(list, parseEntry(p))
	}
	return list
}

// String prints the list exactly as it was read.
func (l List) String() string {
	parts := make([]string, len(l))
	for i, e := range l {
		parts[i] = e.Raw
	}
	return strings.Join(parts, ",")
}

func parseEntry(raw string) Entry {
	e := Entry{Raw: raw}
	body := raw
	if len(body) >= 5 {
		if p := strings.ToLower(body[:5]); p == "gres:" || p == "gres/" {
			e.Prefix, body = raw[:5], body[5:]
		}
	}
	count := uint64(1)
	if i := strings.LastIndexByte(body, '='); i >= 0 {
		n, ok := parseCount(body[i+1:])
		if !ok {
			return Entry{Raw: raw}
		}
		count, body = n, body[:i]
	} else if i := strings.LastIndexByte(body, ':'); i >= 0 {
		if n, ok := parseCount(body[i+1:]); ok {
			count, body = n, body[:i]
		}
	}
	name, kind, hasType := strings.Cut(body, ":")
	if !plainWord(name) || hasType && !plainWord(kind) {
		return Entry{Raw: raw}
	}
	e.Name, e.Type, e.Count = strings.ToLower(name), kind, count
	return e
}

// parseCount reads a decimal count with an optional binary suffix, as the controller does.
func parseCount(s string) (uint64, bool) {
	if s == "" {
		return 0, false
	}
	unit := uint64(1)
	switch s[len(s)-1] {
	case 'k', 'K':
		unit = 1 << 10
	case 'm', 'M':
		unit = 1 << 20
	case 'g', 'G':
		unit = 1 << 30
	case 't', 'T':
		unit = 1 << 40
	case 'p', 'P':
		unit = 1 << 50
	}
	if unit > 1 {
		s = s[:len(s)-1]
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false
	}
	high, low := bits.Mul64(n, unit)
	return low, high == 0
}

// plainWord accepts the names that Slurm allows for resources and types.
func plainWord(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.', c == '+':
		default:
			return false
		}
	}
	return true
}

// newEntry spells an entry for one release of Slurm.
func newEntry(v release.Version, name, kind string, count uint64) Entry {
	body := name
	if kind != "" {
		body += ":" + kind
	}
	raw := v.Prefix() + body + ":" + strconv.FormatUint(count, 10)
	return Entry{Raw: raw, Prefix: v.Prefix(), Name: name, Type: kind, Count: count}
}
