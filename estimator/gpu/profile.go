// Package gpu owns the profiles of GPU models: what a card of that model
// answers when a program asks about it, how much memory it has, what a process
// takes of it before the first tensor, and where each figure comes from. A
// profile is data; the package knows nothing of jobs, of Slurm or of how an
// estimate is made.
package gpu

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gresize/gresize/internal/regular"
	"github.com/gresize/gresize/internal/strictjson"
)

// Schema names the JSON form of a Profile.
const Schema = "gresize.gpu/1"

// Limits on a profile file, which a site may write by hand.
const (
	maxFileBytes   = 1 << 20
	maxTextBytes   = 512
	maxNameBytes   = 128 // the native reader's lines are short
	maxAliases     = 32
	maxAttributes  = 512
	maxAttributeID = 1023
	maxLibraries   = 64
	maxMemoryBytes = int64(1) << 45
	maxCuDNNBytes  = 256 << 10
)

// Figure is a number of bytes with its origin.
type Figure struct {
	Bytes int64 `json:"bytes"`
	// HighBytes is the upper end of the interval; zero means Bytes itself.
	HighBytes int64 `json:"high_bytes,omitempty"`
	// Measured says that the figure was read on a real card of this model under known software.
	Measured bool `json:"measured"`
	// Source says where the figure comes from, in words.
	Source string `json:"source"`
}

// High returns the upper end of the interval.
func (f Figure) High() int64 { return max(f.Bytes, f.HighBytes) }

// LibraryUse is the device memory that the first use of one library takes from
// the card: its handles and the kernels that it loads.
type LibraryUse struct {
	// Library is the name that Profile.OutsideBytes takes: torch, cublas, cublaslt, cudnn, nccl, cufft.
	Library string `json:"library"`
	Figure
}

// Slice says that a profile is a MIG slice of another one.
type Slice struct {
	Parent        string `json:"parent"`
	Profile       string `json:"profile"`
	ComputeSlices int    `json:"compute_slices"`
	MemorySlices  int    `json:"memory_slices"`
}

// Profile describes one GPU model, or one MIG slice of a model.
type Profile struct {
	Schema string `json:"schema"`
	// ID is the short stable name, such as "a100-80".
	ID string `json:"id"`
	// Name is what CUDA calls the device.
	Name              string   `json:"name"`
	Aliases           []string `json:"aliases"`
	Architecture      string   `json:"architecture"`
	ComputeCapability string   `json:"compute_capability"`
	// Total is the memory that cudaMemGetInfo calls total.
	Total Figure `json:"total"`
	// Context is what the CUDA context takes, before any library is used.
	Context           Figure `json:"context"`
	DriverVersion     string `json:"driver_version"`
	CUDADriverVersion int    `json:"cuda_driver_version"`
	// PeakFLOPS maps a number type (fp32, tf32, bf16, fp16, fp8, fp64) to operations per second, dense.
	PeakFLOPS                     map[string]float64 `json:"peak_flops"`
	MemoryBandwidthBytesPerSecond float64            `json:"memory_bandwidth_bytes_per_second"`
	// Source is the origin of the peak figures.
	Source string `json:"source"`
	// Libraries holds first-use figures of this model; where it is empty, the package's general bounds are used.
	Libraries []LibraryUse `json:"libraries,omitempty"`
	MIG       *Slice       `json:"mig,omitempty"`
	// Attributes maps a CUdevice_attribute number to the value that the card gives.
	Attributes       map[int]int64 `json:"attributes"`
	AttributesSource string        `json:"attributes_source"`
	// CuDNNDevice is cuDNN's own description of the card, as it was captured; it is kept with the profile for whoever plans
	// convolutions with it.
	CuDNNDevice json.RawMessage `json:"cudnn_device,omitempty"`
}

// Attribute numbers of CUdevice_attribute that must be present and positive:
// PyTorch divides by them or sizes launches with them.
var requiredAttributes = []int{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 36, 37, 38, 39, 75, 81, 82, 97, 106,
}

const (
	attributeMultiprocessors = 16
	attributeMemoryBusBits   = 37
	attributeCapabilityMajor = 75
	attributeCapabilityMinor = 76
)

// Multiprocessors is the number of streaming multiprocessors.
func (p *Profile) Multiprocessors() int { return int(p.Attributes[attributeMultiprocessors]) }

// Capability returns the compute capability as two numbers.
func (p *Profile) Capability() (major, minor int) {
	return int(p.Attributes[attributeCapabilityMajor]), int(p.Attributes[attributeCapabilityMinor])
}

//go:embed profiles/*.json
var profileFiles embed.FS

var bundled = sync.OnceValues(func() ([]Profile, error) {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		return nil, fmt.Errorf("read bundled GPU profiles: %w", err)
	}
	profiles := make([]Profile, 0, len(entries))
	for _, e := range entries {
		data, err := profileFiles.ReadFile("profiles/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read bundled GPU profile %s: %w", e.Name(), err)
		}
		p, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("bundled GPU profile %s: %w", e.Name(), err)
		}
		profiles = append(profiles, *p)
	}
	slices.SortFunc(profiles, func(a, b Profile) int {
		if a.Total.Bytes != b.Total.Bytes {
			return int(min(1, max(-1, a.Total.Bytes-b.Total.Bytes)))
		}
		return strings.Compare(a.ID, b.ID)
	})
	return profiles, nil
})

// List returns the bundled profiles, the smallest memory first.
func List() []Profile {
	profiles, err := bundled()
	if err != nil {
		panic(err) // the files are part of the binary; a test reads them all
	}
	return slices.Clone(profiles)
}

// ErrUnknown is what Load returns for a name that no profile carries.
var ErrUnknown = errors.New("unknown GPU")

// DefaultID is the profile on which something is tried out when nobody has said on which.
const DefaultID = "a100-80"

// Load finds a bundled profile by its ID, its CUDA name or an alias, whatever
// the case. A name that ends in ".json" is read as a file.
func Load(name string) (*Profile, error) {
	if strings.HasSuffix(name, ".json") {
		return ParseFile(name)
	}
	want := fold(name)
	all := List()
	known := make([]string, 0, len(all))
	for i := range all {
		p := &all[i]
		known = append(known, p.ID)
		if fold(p.ID) == want || fold(p.Name) == want || slices.ContainsFunc(p.Aliases, func(a string) bool { return fold(a) == want }) {
			return p, nil
		}
	}
	// A model that was sold with different memories is not guessed at.
	var sizes []string
	for i := range all {
		if base, memory, ok := strings.Cut(all[i].ID, "-"); ok && fold(base) == model(want) && !strings.Contains(memory, ".") {
			sizes = append(sizes, all[i].ID)
		}
	}
	if len(sizes) > 0 {
		return nil, fmt.Errorf("%w %q: it comes with different memories, name %s", ErrUnknown, name, strings.Join(sizes, " or "))
	}
	near := ""
	if ids := nearest(all, want); len(ids) > 0 {
		near = "near it: " + strings.Join(ids, ", ") + "; "
	}
	return nil, fmt.Errorf("%w %q: %sknow %s, or the path of a profile file that ends in .json, which `gresize gpu capture` writes on a machine with that GPU", ErrUnknown, name, near, strings.Join(known, ", "))
}

// mostNear bounds how many names are proposed.
const mostNear = 3

// nearest are the models whose names begin with the most of one that is not known.
func nearest(all []Profile, want string) (ids []string) {
	const leastCommon = 2
	best := leastCommon
	for i := range all {
		common := 0
		for _, name := range append([]string{all[i].ID, all[i].Name}, all[i].Aliases...) {
			common = max(common, commonBegin(fold(name), want), commonBegin(model(fold(name)), model(want)))
		}
		switch {
		case common < best || common == best && len(ids) == mostNear:
		case common > best:
			best, ids = common, []string{all[i].ID}
		default:
			ids = append(ids, all[i].ID)
		}
	}
	return ids
}

// model is a folded name without the names of the maker and its product lines.
func model(name string) string {
	for _, word := range []string{"nvidia", "tesla", "geforce", "quadro"} {
		name = strings.TrimPrefix(name, word)
	}
	return name
}

// commonBegin is how many bytes two names have in common at their begin.
func commonBegin(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// fold makes spellings of one name equal: case, blanks, dashes and underscores do not count.
func fold(s string) string {
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(strings.TrimSpace(s)))
}

// ParseFile reads a profile that a site wrote or captured.
func ParseFile(path string) (*Profile, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open GPU profile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read GPU profile %s: %w", path, err)
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("GPU profile %s: %w", path, err)
	}
	return p, nil
}

func parse(data []byte) (*Profile, error) {
	p := new(Profile)
	if err := strictjson.Unmarshal(data, maxFileBytes, p); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

var (
	idShape         = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	capabilityShape = regexp.MustCompile(`^[1-9][0-9]?\.[0-9]$`)
	driverShape     = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4}){1,3}$`)
	libraryShape    = regexp.MustCompile(`^[a-z][a-z0-9_]{1,31}$`)
	flopsShape      = regexp.MustCompile(`^[a-z][a-z0-9]{1,7}$`)
)

// Validate returns the first fault of a profile with the name of its field.
func (p *Profile) Validate() error {
	if p.Schema != Schema {
		return fmt.Errorf("schema: %q, want %q", p.Schema, Schema)
	}
	if !idShape.MatchString(p.ID) {
		return fmt.Errorf("id: %q is no short name of lower-case letters, digits, dot and dash", p.ID)
	}
	if err := plainText("name", p.Name); err != nil {
		return err
	}
	if len(p.Name) > maxNameBytes {
		return fmt.Errorf("name: %d bytes, at most %d", len(p.Name), maxNameBytes)
	}
	if len(p.Aliases) > maxAliases {
		return fmt.Errorf("aliases: %d, at most %d", len(p.Aliases), maxAliases)
	}
	for _, a := range p.Aliases {
		if err := plainText("aliases", a); err != nil {
			return err
		}
	}
	if err := p.MIG.validate(); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{{"architecture", p.Architecture}, {"source", p.Source}, {"attributes_source", p.AttributesSource}} {
		if err := plainText(f.name, f.text); err != nil {
			return err
		}
	}
	if err := p.Total.validate("total", 64<<20); err != nil {
		return err
	}
	if err := p.Context.validate("context", 0); err != nil {
		return err
	}
	if p.Context.High() >= p.Total.Bytes {
		return errors.New("context: larger than the card")
	}
	if !driverShape.MatchString(p.DriverVersion) {
		return fmt.Errorf("driver_version: %q is no version", p.DriverVersion)
	}
	if p.CUDADriverVersion < 10000 || p.CUDADriverVersion > 99990 {
		return fmt.Errorf("cuda_driver_version: %d is not like 12040", p.CUDADriverVersion)
	}
	for name, v := range p.PeakFLOPS {
		if !flopsShape.MatchString(name) || !(v > 0 && v < 1e18) {
			return fmt.Errorf("peak_flops: %q = %g", name, v)
		}
	}
	if b := p.MemoryBandwidthBytesPerSecond; !(b > 0 && b < 1e15) {
		return fmt.Errorf("memory_bandwidth_bytes_per_second: %g", b)
	}
	if len(p.Libraries) > maxLibraries {
		return fmt.Errorf("libraries: %d, at most %d", len(p.Libraries), maxLibraries)
	}
	for i, l := range p.Libraries {
		if !libraryShape.MatchString(l.Library) {
			return fmt.Errorf("libraries[%d].library: %q", i, l.Library)
		}
		if err := l.validate(fmt.Sprintf("libraries[%d]", i), 0); err != nil {
			return err
		}
	}
	if len(p.CuDNNDevice) > maxCuDNNBytes {
		return fmt.Errorf("cudnn_device: %d bytes, at most %d", len(p.CuDNNDevice), maxCuDNNBytes)
	}
	return p.validateAttributes()
}

func (p *Profile) validateAttributes() error {
	if len(p.Attributes) > maxAttributes {
		return fmt.Errorf("attributes: %d, at most %d", len(p.Attributes), maxAttributes)
	}
	for id, v := range p.Attributes {
		if id < 1 || id > maxAttributeID || v < -1<<31 || v > 1<<31-1 {
			return fmt.Errorf("attributes[%d]: %d is out of range", id, v)
		}
	}
	for _, id := range requiredAttributes {
		if p.Attributes[id] <= 0 {
			return fmt.Errorf("attributes[%d]: must be given and positive", id)
		}
	}
	if !capabilityShape.MatchString(p.ComputeCapability) {
		return fmt.Errorf("compute_capability: %q is not like 8.6", p.ComputeCapability)
	}
	major, minor := p.Capability()
	if got := fmt.Sprintf("%d.%d", major, minor); got != p.ComputeCapability {
		return fmt.Errorf("compute_capability: %s, but attributes 75 and 76 say %s", p.ComputeCapability, got)
	}
	return nil
}

func (f Figure) validate(name string, least int64) error {
	if f.Bytes < least || f.Bytes > maxMemoryBytes || f.HighBytes < 0 || f.HighBytes > maxMemoryBytes {
		return fmt.Errorf("%s: %d..%d bytes is out of range", name, f.Bytes, f.HighBytes)
	}
	if f.HighBytes != 0 && f.HighBytes < f.Bytes {
		return fmt.Errorf("%s: the upper end is below the point", name)
	}
	return plainText(name+".source", f.Source)
}

func (s *Slice) validate() error {
	if s == nil {
		return nil
	}
	if err := plainText("mig.profile", s.Profile); err != nil {
		return err
	}
	if s.Profile == "" || len(s.Profile) > maxNameBytes || len(s.Parent) > maxNameBytes || s.ComputeSlices < 0 || s.ComputeSlices > maxSlices || s.MemorySlices < 0 || s.MemorySlices > maxSlices {
		return fmt.Errorf("mig: a profile is needed, and short names, and at most %d compute and memory slices", maxSlices)
	}
	return plainText("mig.parent", s.Parent)
}

// maxSlices is how many parts a card has at most: seven for compute, eight for memory.
const maxSlices = 8

// plainText refuses what would break a line-based file or a terminal.
func plainText(field, s string) error {
	if s == "" || len(s) > maxTextBytes {
		return fmt.Errorf("%s: %d bytes, want 1 to %d", field, len(s), maxTextBytes)
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return fmt.Errorf("%s: holds a control character", field)
		}
	}
	return nil
}

// WriteNative writes the flat key=value file that the virtual GPU reads inside
// a user's process, where no JSON reader is wanted. Keys come in a fixed order.
func (p *Profile) WriteNative(w io.Writer) error {
	major, minor := p.Capability()
	var b bytes.Buffer
	fmt.Fprintf(&b, "name=%s\ncc_major=%d\ncc_minor=%d\ntotal_bytes=%d\ncontext_bytes=%d\ndriver_version=%s\ncuda_driver_version=%d\n",
		p.Name, major, minor, p.Total.Bytes, p.Context.Bytes+p.firstUse("torch").Bytes, p.DriverVersion, p.CUDADriverVersion)
	for _, library := range chargedLibraries {
		fmt.Fprintf(&b, "library.%s=%d\n", library, p.firstUse(library).Bytes)
	}
	ids := make([]int, 0, len(p.Attributes))
	for id := range p.Attributes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		b.WriteString("attr." + strconv.Itoa(id) + "=" + strconv.FormatInt(p.Attributes[id], 10) + "\n")
	}
	if p.MIG != nil {
		card, total := p.MIG.Parent, p.Total.Bytes // of a captured slice whose card has no profile, only the name is known
		if parent, err := Load(p.MIG.Parent); err == nil {
			card, total = parent.Name, parent.Total.Bytes
		}
		fmt.Fprintf(&b, "mig_profile=%s\nmig_card=%s\nmig_card_bytes=%d\nmig_compute_slices=%d\nmig_memory_slices=%d\n", p.MIG.Profile, card, total, p.MIG.ComputeSlices, p.MIG.MemorySlices)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// SmallestFor returns the bundled whole cards and slices that hold the given
// number of bytes, smallest first.
func SmallestFor(bytes int64) []Profile {
	return slices.DeleteFunc(List(), func(p Profile) bool { return p.Total.Bytes < bytes })
}
