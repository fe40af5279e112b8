package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// mappings is what one process has of each kind of memory: of a page that several share, its part.
type mappings struct {
	ownBytes int64 // memory without a file, and pages of files that it has changed for itself
	// wholeBytes is ownBytes with every page in full, whoever else has it: what the process takes if nobody has.
	wholeBytes int64
	// libraries are the resident pages of programs and libraries, by path, in full: who else on this machine runs the same ones is not the program's luck.
	libraries map[string]int64
	// Pages of files that are memory: memfd_create, and /dev/shm and System V.
	namelessBytes, sharedFileBytes int64
	// sharedBytes is the part of ownBytes that a process shares with its children without a file.
	sharedBytes int64
	// dataBytes are resident pages of other files: the kernel drops them when memory is short.
	dataBytes int64
	// deviceBytes are pages of the virtual card.
	deviceBytes int64
	pinned      []pinnedRange
}

// pinnedRange is memory that the process has pinned for its GPU: on a node with one, every page of it is there.
type pinnedRange struct {
	begin, end    uint64
	residentBytes int64
}

// mapping is one entry of smaps.
type mapping struct {
	begin, end                     uint64
	executable                     bool
	path                           string
	residentBytes, shareBytes      int64
	anonymousBytes, swapShareBytes int64
	// Marks that the virtual GPU sets on its mappings with madvise, none of which changes what the mapping does: not in core files, read at random.
	// Together no other program sets them on memory.
	undumped, random, smallPages bool
}

// readMappings fails for a process that has ended or closed itself to others.
func readMappings(pid int) (m mappings, open bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps")
	if err != nil {
		return mappings{}, false
	}
	return sumMappings(parseMappings(text)), true
}

// parseMappings reads the text of smaps. Lines that make no sense are passed over. The kernel writes it piece by piece, by ascending address: a mapping that has grown into
// those before it between two pieces is written once more, and stands for them.
func parseMappings(text []byte) []mapping {
	var all []mapping
	for line := range bytes.Lines(text) {
		if line[0] >= 'A' && line[0] <= 'Z' {
			if len(all) > 0 {
				all[len(all)-1].take(line)
			}
			continue
		}
		if m, ok := parseHeader(line); ok {
			for len(all) > 0 && all[len(all)-1].end > m.begin {
				all = all[:len(all)-1]
			}
			all = append(all, m)
		}
	}
	return all
}

// parseHeader reads a line such as "7f0c8000-7f0c9000 r-xp 00000000 fe:00 1234   /usr/lib/libc.so.6".
func parseHeader(line []byte) (mapping, bool) {
	var m mapping
	words := strings.SplitN(strings.TrimRight(string(line), "\n"), " ", 6)
	if len(words) < 5 || len(words[1]) < 4 {
		return m, false
	}
	from, to, ok := strings.Cut(words[0], "-")
	begin, err := strconv.ParseUint(from, 16, 64)
	if err != nil || !ok {
		return m, false
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil || end <= begin || end-begin > 1<<56 {
		return m, false
	}
	m.begin, m.end, m.executable = begin, end, words[1][2] == 'x'
	if len(words) == 6 {
		m.path = strings.TrimLeft(words[5], " ")
	}
	return m, true
}

func (m *mapping) take(line []byte) {
	key, value, _ := bytes.Cut(line, []byte(":"))
	switch string(key) {
	case "Rss":
		m.residentBytes = kibibytes(value)
	case "Pss":
		m.shareBytes = kibibytes(value)
	case "Anonymous":
		m.anonymousBytes = kibibytes(value)
	case "SwapPss":
		m.swapShareBytes = kibibytes(value)
	case "VmFlags":
		for _, flag := range bytes.Fields(value) {
			switch string(flag) {
			case "dd":
				m.undumped = true
			case "rr":
				m.random = true
			case "nh":
				m.smallPages = true
			}
		}
	}
}

// ownShareBytes is its part of the pages that were changed and no longer the file's.
func (m *mapping) ownShareBytes() int64 {
	if m.residentBytes == 0 {
		return m.swapShareBytes
	}
	return int64(float64(m.shareBytes)*(float64(min(m.anonymousBytes, m.residentBytes))/float64(m.residentBytes))) + m.swapShareBytes
}

// sharedWithoutFile is how the kernel calls memory that a process shares with its children.
const sharedWithoutFile = "/dev/zero (deleted)"

// isMemory says whether the mapping has no file behind it.
func (m *mapping) isMemory() bool {
	return m.path == "" || m.path[0] == '[' || m.path == sharedWithoutFile || strings.HasPrefix(m.path, "/anon_hugepage")
}

func (m *mapping) isNameless() bool { return strings.HasPrefix(m.path, "/memfd:") }

func (m *mapping) isSharedFile() bool {
	return strings.HasPrefix(m.path, sharedMemoryDir+"/") || strings.HasPrefix(m.path, "/SYSV")
}

func sumMappings(all []mapping) mappings {
	s := mappings{libraries: map[string]int64{}}
	for i := range all {
		if all[i].executable && !all[i].isMemory() {
			s.libraries[all[i].path] = 0
		}
	}
	for i := range all {
		m := &all[i]
		marked := m.undumped && m.random
		if marked && m.smallPages && m.isMemory() {
			s.deviceBytes += m.shareBytes
			continue
		}
		if marked {
			s.pinned = append(s.pinned, pinnedRange{m.begin, m.end, m.residentBytes})
		}
		switch {
		case m.isMemory():
			s.ownBytes += m.shareBytes + m.swapShareBytes
			s.wholeBytes += m.residentBytes + m.swapShareBytes
			if m.path == sharedWithoutFile {
				s.sharedBytes += m.shareBytes
			}
		case m.isNameless():
			s.namelessBytes += m.shareBytes + m.swapShareBytes
		case m.isSharedFile():
			s.sharedFileBytes += m.shareBytes + m.swapShareBytes
		default:
			s.ownBytes += m.ownShareBytes()
			s.wholeBytes += min(m.anonymousBytes, m.residentBytes) + m.swapShareBytes
			ofFile := m.residentBytes - min(m.residentBytes, m.anonymousBytes)
			if _, library := s.libraries[m.path]; library {
				s.libraries[m.path] += ofFile
			} else {
				s.dataBytes += ofFile
			}
		}
	}
	return s
}

// pinnedRanges are those of all processes: a child has its parent's, too, and pins nothing by it.
type pinnedRanges struct {
	of      map[int][]pinnedRange
	parents map[int]int
}

func (p *pinnedRanges) add(pid, parent int, ranges []pinnedRange) {
	if p.of == nil {
		p.of, p.parents = map[int][]pinnedRange{}, map[int]int{}
	}
	p.of[pid], p.parents[pid] = ranges, parent
}

// untouchedBytes is what of them nobody has touched yet: on a node with a GPU it is there all the same.
func (p *pinnedRanges) untouchedBytes() int64 {
	var sum int64
	for pid, ranges := range p.of {
		for _, r := range ranges {
			if !p.inherited(pid, r) {
				sum += max(0, int64(r.end-r.begin)-r.residentBytes)
			}
		}
	}
	return sum
}

// inherited says whether an ancestor has the range, or has had it as part of a larger one.
func (p *pinnedRanges) inherited(pid int, r pinnedRange) bool {
	for hops := 0; hops < len(p.parents); hops++ {
		parent, known := p.parents[pid]
		if !known {
			return false
		}
		for _, other := range p.of[parent] {
			if other.begin <= r.begin && r.end <= other.end {
				return true
			}
		}
		pid = parent
	}
	return false
}
