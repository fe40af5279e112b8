package allocator

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ConfError is an error in a PYTORCH_CUDA_ALLOC_CONF string. Message is what PyTorch itself says; Option is the key it belongs to, if any.
type ConfError struct {
	Option, Message string
}

// Error gives PyTorch's own message.
func (e *ConfError) Error() string { return e.Message }

const mebibyte = 1 << 20

// ParseConfig reads a PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) string as the given release does, with its quirks and its errors. Warnings are
// what PyTorch would print, and what it would silently ignore.
func ParseConfig(text string, v Version) (Config, []string, error) {
	if len(text) > 1<<14 {
		return Config{}, nil, &ConfError{Message: "allocator settings are longer than 16 KiB"}
	}
	p := confParser{version: v, strict: !v.AtLeast(2, 10), tokens: confTokens(text, !v.AtLeast(2, 10))}
	var err error
	if p.strict {
		err = p.parseAll()
	} else {
		err = p.parseTwice()
	}
	if err != nil {
		return Config{}, nil, err
	}
	return p.config, p.warnings, nil
}

// confTokens cuts at , : [ ] and keeps these. Old releases drop spaces only, newer ones every white space.
func confTokens(text string, spacesOnly bool) []string {
	var tokens []string
	var word []byte
	flush := func() {
		if len(word) > 0 {
			tokens = append(tokens, string(word))
			word = word[:0]
		}
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case c == ',' || c == ':' || c == '[' || c == ']':
			flush()
			tokens = append(tokens, string(c))
		case c == ' ' || !spacesOnly && (c >= '\t' && c <= '\r'):
		default:
			word = append(word, c)
		}
	}
	flush()
	return tokens
}

type confParser struct {
	version Version
	// strict parsers (until 2.9) insist on the separators; newer ones look at them and go on whatever they are.
	strict   bool
	tokens   []string
	i        int
	config   Config
	warnings []string
	async    bool
	native   bool
}

func (p *confParser) fail(option, format string, args ...any) error {
	return &ConfError{Option: option, Message: fmt.Sprintf(format, args...)}
}

func (p *confParser) has(i int) bool { return i < len(p.tokens) }

// separator steps over a separator.
func (p *confParser) separator(token string) error {
	p.i++
	if p.strict {
		if !p.has(p.i) || p.tokens[p.i] != token {
			return p.fail("", "Error parsing CachingAllocator settings, expected %s", token)
		}
		return nil
	}
	if !p.has(p.i) {
		return p.outOfBounds()
	}
	return nil
}

func (p *confParser) outOfBounds() error {
	return p.fail("", "Index out of bounds in ConfigTokenizer")
}

// value steps to the value of an option, or reports that it is missing.
func (p *confParser) value(option string) (string, error) {
	if err := p.separator(":"); err != nil {
		return "", err
	}
	p.i++
	if !p.has(p.i) {
		if !p.strict {
			return "", p.outOfBounds()
		}
		return "", p.fail(option, "Error, expecting %s value", option)
	}
	return p.tokens[p.i], nil
}

// leadingInteger reads digits as C's strtol does: white space, a sign, digits; what follows is ignored.
func leadingInteger(text string) (string, bool) {
	end := 0
	if end < len(text) && (text[end] == '-' || text[end] == '+') {
		end++
	}
	digits := end
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	return text[:end], end > digits
}

// integer reads a number: std::stoi until 2.9, std::stoull since. Both ignore what follows the digits and both wrap a minus sign around.
func (p *confParser) integer(option, text string) (uint64, error) {
	digits, ok := leadingInteger(text)
	name := "stoull"
	if p.strict {
		name = "stoi"
	}
	if !ok {
		return 0, p.fail(option, "%s", name)
	}
	if p.strict {
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil {
			return 0, p.fail(option, "%s", name)
		}
		return uint64(n), nil
	}
	negative := strings.HasPrefix(digits, "-")
	n, err := strconv.ParseUint(strings.TrimLeft(digits, "+-"), 10, 64)
	if err != nil {
		return 0, p.fail(option, "%s", name)
	}
	if negative {
		n = -n
	}
	return n, nil
}

// decimal reads a number as std::stod does, as far as settings need it: the longest prefix that is a number.
func (p *confParser) decimal(option, text string) (float64, error) {
	for end := len(text); end > 0; end-- {
		if f, err := strconv.ParseFloat(text[:end], 64); err == nil && !strings.Contains(text[:end], "_") {
			return f, nil
		}
	}
	return 0, p.fail(option, "stod")
}

// integerValue is the number of an option, decimalValue one that may have a fraction.
func (p *confParser) integerValue(option string) (uint64, error) {
	text, err := p.value(option)
	if err != nil {
		return 0, err
	}
	return p.integer(option, text)
}

func (p *confParser) decimalValue(option string) (float64, error) {
	text, err := p.value(option)
	if err != nil {
		return 0, err
	}
	return p.decimal(option, text)
}

func (p *confParser) boolean(option string) (bool, error) {
	if err := p.separator(":"); err != nil {
		return false, err
	}
	p.i++
	if !p.strict && !p.has(p.i) {
		return false, p.outOfBounds()
	}
	switch {
	case p.has(p.i) && p.tokens[p.i] == "True":
		return true, nil
	case p.has(p.i) && p.tokens[p.i] == "False":
		return false, nil
	case p.strict:
		return false, p.fail(option, "Expected a single True/False argument for %s", option)
	}
	return false, p.fail(option, "Expected 'True' or 'False' at index %d in ConfigTokenizer but got '%s'", p.i, p.tokens[p.i])
}

// parseAll is the single pass of 1.13 to 2.9.
func (p *confParser) parseAll() error {
	for p.i = 0; p.has(p.i); p.i++ {
		key := p.tokens[p.i]
		known, err := p.option(key)
		if err != nil {
			return err
		}
		if !known {
			return p.fail(key, "Unrecognized CachingAllocator option: %s", key)
		}
		if p.has(p.i + 1) {
			if err := p.separator(","); err != nil {
				return err
			}
		}
	}
	p.warnAsync()
	return nil
}

// parseTwice is the way of 2.10 and later: the accelerator's options first, then the CUDA ones; both passes see all keys.
func (p *confParser) parseTwice() error {
	if p.version.AtLeast(2, 11) {
		for p.i = 0; p.has(p.i); p.i++ {
			if p.tokens[p.i] == "large_segment_size_mb" {
				if err := p.largeSegment(); err != nil {
					return err
				}
			}
		}
	}
	for pass, known := range []map[string]bool{acceleratorKeys, cudaKeys} {
		other, where := cudaKeys, "Accelerator"
		if pass == 1 {
			other, where = acceleratorKeys, "CUDA"
		}
		for p.i = 0; p.has(p.i); p.i++ {
			key := p.tokens[p.i]
			switch {
			case known[key] && p.knows(key):
				if _, err := p.option(key); err != nil {
					return err
				}
			case other[key] && p.knows(key):
				if err := p.skip(); err != nil {
					return err
				}
			default:
				return p.fail(key, "Unrecognized key '%s' in %s allocator config.", key, where)
			}
			if p.has(p.i + 1) {
				if err := p.separator(","); err != nil {
					return err
				}
			}
		}
	}
	p.warnAsync()
	return nil
}

func (p *confParser) warnAsync() {
	if p.async {
		p.config.Backend = BackendAsync
		if p.native {
			p.warnings = append(p.warnings, "backend:cudaMallocAsync ignores max_split_size_mb,roundup_power2_divisions, and garbage_collect_threshold.")
		}
	}
}

var acceleratorKeys = map[string]bool{
	"large_segment_size_mb": true, "max_split_size_mb": true, "max_non_split_rounding_mb": true, "garbage_collection_threshold": true,
	"roundup_power2_divisions": true, "expandable_segments": true, "pinned_use_background_threads": true,
	"pinned_max_round_threshold_mb": true, "pinned_max_cached_size_mb": true,
}

var cudaKeys = map[string]bool{
	"backend": true, "release_lock_on_cudamalloc": true, "release_lock_on_hipmalloc": true, "pinned_use_cuda_host_register": true,
	"pinned_use_hip_host_register": true, "pinned_num_register_threads": true, "pinned_reserve_segment_size_mb": true,
	"graph_capture_record_stream_reuse": true, "per_process_memory_fraction": true, "throw_on_cudamalloc_oom": true,
}

// since is the first release that knows an option; absent: 1.13.
var since = map[string]Version{
	"large_segment_size_mb": {2, 11}, "max_non_split_rounding_mb": {2, 6}, "expandable_segments": {2, 1},
	"release_lock_on_cudamalloc": {2, 2}, "release_lock_on_hipmalloc": {2, 2}, "pinned_use_cuda_host_register": {2, 1},
	"pinned_use_hip_host_register": {2, 1}, "pinned_num_register_threads": {2, 1}, "pinned_use_background_threads": {2, 6},
	"graph_capture_record_stream_reuse": {2, 9}, "pinned_reserve_segment_size_mb": {2, 10}, "per_process_memory_fraction": {2, 10},
	"throw_on_cudamalloc_oom": {2, 12}, "pinned_max_round_threshold_mb": {2, 13}, "pinned_max_cached_size_mb": {2, 13}, "backend": {2, 0},
}

func (p *confParser) knows(key string) bool {
	v, gated := since[key]
	return !gated || p.version.AtLeast(v.Major, v.Minor)
}

// skip steps over the value of an option that another pass reads.
func (p *confParser) skip() error {
	if err := p.separator(":"); err != nil {
		return err
	}
	p.i++
	if !p.has(p.i) {
		return p.outOfBounds()
	}
	if p.tokens[p.i] != "[" {
		return nil
	}
	for p.i++; p.has(p.i) && p.tokens[p.i] != "]"; p.i++ {
	}
	if !p.has(p.i) {
		return p.fail("", "Expected closing bracket ']' in ConfigTokenizer but reached end of config")
	}
	return nil
}

// option reads one option at p.i; known is false for a key that this release does not have.
func (p *confParser) option(key string) (known bool, err error) {
	if key == "roundup_bypass_threshold_mb" {
		if p.version.AtLeast(2, 0) {
			return false, nil
		}
		n, err := p.integerValue(key)
		if err == nil && n == 0 {
			err = p.fail(key, "CachingAllocator option roundup_bypass_threshold_mb too small, must be > 0")
		}
		p.config.RoundupBypassBytes = n * mebibyte
		return true, err
	}
	if !acceleratorKeys[key] && !cudaKeys[key] || !p.knows(key) {
		return false, nil
	}
	if key != "backend" {
		p.native = true
	}
	switch key {
	case "large_segment_size_mb":
		return true, p.skip() // read before everything else
	case "max_split_size_mb":
		p.config.MaxSplitBytes, err = p.oversize(key)
	case "max_non_split_rounding_mb":
		p.config.MaxNonSplitBytes, err = p.oversize(key)
	case "garbage_collection_threshold":
		err = p.threshold(key)
	case "roundup_power2_divisions":
		err = p.divisions(key)
	case "expandable_segments":
		p.config.ExpandableSegments, err = p.boolean(key)
	case "throw_on_cudamalloc_oom":
		p.config.ThrowOnMallocOOM, err = p.boolean(key)
	case "graph_capture_record_stream_reuse":
		p.config.GraphCaptureRecordStreamReuse, err = p.boolean(key)
	case "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_cuda_host_register", "pinned_use_hip_host_register", "pinned_use_background_threads":
		_, err = p.boolean(strings.Replace(key, "hip", "cuda", 1))
	case "backend":
		err = p.backend()
	case "per_process_memory_fraction":
		err = p.fraction(key)
	case "pinned_num_register_threads":
		err = p.threads(key)
	case "pinned_reserve_segment_size_mb", "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb":
		var n uint64
		if n, err = p.integerValue(key); err == nil && n == 0 && key == "pinned_reserve_segment_size_mb" {
			err = p.fail(key, "Pinned reserve segment size has to be greater than 0")
		}
	}
	return true, err
}

func (p *confParser) largeSegment() error {
	const key = "large_segment_size_mb"
	n, err := p.integerValue(key)
	if err != nil {
		return err
	}
	if n <= largeExactBytes/mebibyte {
		return p.fail(key, "CachingAllocator option large_segment_size_mb must be > %d MB", largeExactBytes/mebibyte)
	}
	// A segment beyond any card cannot be had; the bound keeps the arithmetic safe.
	p.config.LargeSegmentBytes = min(n, maxRequestBytes/mebibyte) * mebibyte
	return nil
}

func (p *confParser) oversize(key string) (uint64, error) {
	n, err := p.integerValue(key)
	if err != nil {
		return 0, err
	}
	least := uint64(defaultLargeSegmentBytes / mebibyte)
	if p.config.LargeSegmentBytes != 0 {
		least = p.config.LargeSegmentBytes / mebibyte
	}
	switch {
	case p.strict && n <= least:
		return 0, p.fail(key, "CachingAllocator option %s too small, must be > %d", key, least)
	case !p.strict && n < least:
		return 0, p.fail(key, "CachingAllocator option %s too small, must be >= %d", key, least)
	}
	return min(n, math.MaxUint64/mebibyte) * mebibyte, nil
}

func (p *confParser) threshold(key string) error {
	f, err := p.decimalValue(key)
	if err != nil {
		return err
	}
	switch {
	case f > 0 && f < 1:
		p.config.GCThreshold = f
		return nil
	case !p.strict:
		return p.fail(key, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
	case f > 0:
		return p.fail(key, "garbage_collect_threshold too big, set it 0.0~1.0")
	}
	return p.fail(key, "garbage_collect_threshold too small, set it 0.0~1.0")
}

func (p *confParser) fraction(key string) error {
	f, err := p.decimalValue(key)
	if err != nil {
		return err
	}
	if !(f >= 0 && f <= 1) {
		return p.fail(key, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]")
	}
	p.config.MemoryFraction = f
	return nil
}

func (p *confParser) threads(key string) error {
	n, err := p.integerValue(key)
	if err != nil {
		return err
	}
	switch {
	case bits.OnesCount64(n) != 1 && p.strict:
		return p.fail(key, "Number of register threads has to be power of 2 ")
	case bits.OnesCount64(n) != 1:
		return p.fail(key, "Number of register threads has to be power of 2, got %d", n)
	case n > 128 && p.strict:
		return p.fail(key, "Number of register threads should be less than or equal to 128")
	case n > 128:
		return p.fail(key, "Number of register threads should be less than or equal to 128, got %d", n)
	}
	return nil
}

func (p *confParser) backend() error {
	if err := p.separator(":"); err != nil {
		return err
	}
	p.i++
	if !p.has(p.i) {
		if !p.strict {
			return p.outOfBounds()
		}
		return p.fail("backend", "Error parsing backend value")
	}
	switch p.tokens[p.i] {
	case "native":
		p.async = false
	case "cudaMallocAsync":
		p.async = true
	default:
		return p.fail("backend", "Unknown allocator backend, options are native and cudaMallocAsync")
	}
	return nil
}

// divisions reads one number for all sizes, or a list of SIZE_IN_MB:DIVISIONS where ">" stands for the rest.
func (p *confParser) divisions(key string) error {
	first, err := p.value(key)
	if err != nil {
		return err
	}
	word := "divisions"
	if !p.version.AtLeast(2, 9) {
		word = "divisons" // sic
	}
	table := &p.config.RoundupDivisions
	if first != "[" || !p.version.AtLeast(2, 0) {
		n, err := p.integer(key, first)
		if err != nil {
			return err
		}
		if bits.OnesCount64(n) != 1 {
			return p.fail(key, "For roundups, the %s has to be power of 2 ", word)
		}
		for i := range table {
			table[i] = n
		}
		return nil
	}
	last, seen := 0, false
	for p.i++; p.has(p.i) && p.tokens[p.i] != "]"; p.i++ {
		bound := p.tokens[p.i]
		if err := p.separator(":"); err != nil {
			return err
		}
		p.i++
		if !p.has(p.i) {
			if !p.strict {
				return p.outOfBounds()
			}
			return p.fail(key, "Error parsing roundup_power2_divisions value")
		}
		n, err := p.integer(key, p.tokens[p.i])
		if err != nil {
			return err
		}
		if bits.OnesCount64(n) != 1 && !p.version.AtLeast(2, 4) {
			return p.fail(key, "For roundups, the %s has to be power of 2 ", word)
		}
		if n != 0 && bits.OnesCount64(n) != 1 {
			return p.fail(key, "For roundups, the %s has to be power of 2 or 0 to disable roundup ", word)
		}
		if bound == ">" {
			from := last // until 2.9 the rest overwrites the last slot that was named
			if !p.strict {
				from++
			}
			for i := from; i < roundupSlots; i++ {
				table[i] = n
			}
		} else {
			digits, ok := leadingInteger(bound)
			size, err := strconv.ParseUint(strings.TrimLeft(digits, "+"), 10, 64)
			if !ok || err != nil {
				name := "stoull"
				if p.strict {
					name = "stoul"
				}
				return p.fail(key, "%s", name)
			}
			if bits.OnesCount64(size) != 1 {
				return p.fail(key, "For roundups, the intervals have to be power of 2 ")
			}
			slot := min(bits.Len64(size)-1, roundupSlots-1)
			if !seen {
				for i := range slot {
					table[i] = n
				}
				seen = true
			}
			table[slot] = n
			last = slot
		}
		if !p.has(p.i + 1) {
			// The original reads past its tokens here.
			return p.fail(key, "roundup_power2_divisions: the list has no closing bracket")
		}
		if p.tokens[p.i+1] != "]" {
			if err := p.separator(","); err != nil {
				return err
			}
		}
	}
	if !p.has(p.i) {
		return p.fail(key, "roundup_power2_divisions: the list has no closing bracket")
	}
	return nil
}
