package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/gpu"
)

// record is what of the scripts' output goes into a profile.
type record struct {
	Device struct {
		Torch      string `json:"torch"`
		CUDA       string `json:"cuda"`
		CuDNN      int    `json:"cudnn"`
		Virtual    bool   `json:"virtual"`
		Properties struct {
			Name        string `json:"name"`
			Major       int64  `json:"major"`
			Minor       int64  `json:"minor"`
			TotalMemory int64  `json:"total_memory"`
		} `json:"properties"`
		CUDAAttributes   map[string]int64 `json:"cuda_attributes"`
		DriverAttributes map[string]int64 `json:"driver_attributes"`
		DriverVersion    int              `json:"driver_version"`
		Driver           string           `json:"driver"`
		MemGetInfo       struct {
			Total int64 `json:"total"`
		} `json:"mem_get_info"`
	} `json:"device"`
	Context struct {
		Here     int64           `json:"here"`
		BareLazy json.RawMessage `json:"bare_lazy"`
	} `json:"context"`
	FirstUse []firstUse `json:"first_use"`
	CuDNN    struct {
		DeviceJSON string `json:"device_json"`
	} `json:"cudnn"`
	Errors map[string]string `json:"errors"`
}

type firstUse struct {
	Name    string `json:"name"`
	Error   string `json:"error"`
	Outside int64  `json:"outside"`
}

const (
	attributePCIBus = 33
	mostAttributes  = 200
	maxFirstUses    = 512
)

// libraryOf says whose memory a step of the first_use section takes, by the beginning of its name. What is not named is PyTorch's own kernels.
var libraryOf = []struct{ prefix, library string }{
	{"linear_bias", "cublaslt"}, {"fp8_scaled_mm", "cublaslt"}, {"matmul", "cublas"}, {"bmm", "cublas"}, {"linalg", "cusolver"}, {"sparse", "cusparse"},
	{"fft", "cufft"}, {"conv", "cudnn"}, {"lstm", "cudnn"}, {"gru", "cudnn"}, {"batch_norm", "cudnn"}, {"sdpa_cudnn", "cudnn"}, {"ctc", "cudnn"}, {"nccl", "nccl"},
}

// architectures by compute capability, and how many single-precision operations a multiprocessor does in a clock.
var architectures = map[string]struct {
	name  string
	cores int64
}{
	"6.0": {"Pascal", 64}, "6.1": {"Pascal", 128}, "7.0": {"Volta", 64}, "7.5": {"Turing", 64}, "8.0": {"Ampere", 64}, "8.6": {"Ampere", 128},
	"8.9": {"Ada Lovelace", 128}, "9.0": {"Hopper", 128}, "10.0": {"Blackwell", 128}, "10.3": {"Blackwell", 128}, "12.0": {"Blackwell", 128},
}

// Profile makes a profile of a record. id names it; empty takes that of the bundled profile of the same model, or one made of the card's name.
// The record is read as a stranger's file; the profile that comes back is valid.
func Profile(data []byte, id string) (*gpu.Profile, error) {
	if len(data) > maxRecordBytes {
		return nil, fmt.Errorf("capture: a record of %d bytes, at most %d", len(data), maxRecordBytes)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	d := &r.Device
	if d.Properties.Name == "" || d.MemGetInfo.Total == 0 {
		return nil, fmt.Errorf("capture: the record has no device section%s", r.fault("device"))
	}
	if len(r.FirstUse) > maxFirstUses {
		return nil, fmt.Errorf("capture: first_use: %d steps, at most %d", len(r.FirstUse), maxFirstUses)
	}
	p := &gpu.Profile{
		Schema: gpu.Schema, ID: id, Name: d.Properties.Name, Aliases: []string{}, ComputeCapability: fmt.Sprintf("%d.%d", d.Properties.Major, d.Properties.Minor),
		DriverVersion: d.Driver, CUDADriverVersion: d.DriverVersion, Attributes: map[int]int64{}, AttributesSource: r.source("attributes"),
	}
	p.Total = gpu.Figure{Bytes: d.MemGetInfo.Total, Measured: !d.Virtual, Source: r.source("total of cudaMemGetInfo")}
	if p.DriverVersion == "" {
		p.DriverVersion = "0.0" // NVML was not there to say it
	}
	setAttributes(p, &r)
	setModel(p, id)
	if blob := r.CuDNN.DeviceJSON; json.Valid([]byte(blob)) && !d.Virtual {
		p.CuDNNDevice = json.RawMessage(blob)
	}
	if err := setOutside(p, &r); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("capture: the record makes no valid profile: %w", err)
	}
	return p, nil
}

func (r *record) fault(section string) string {
	if e := r.Errors[section]; e != "" {
		return ": " + clip(e)
	}
	return ""
}

const clipBytes = 64

func clip(s string) string { return s[:min(len(s), clipBytes)] }

// source says under which software a figure was read.
func (r *record) source(what string) string {
	where := "measured"
	if r.Device.Virtual {
		where = "virtual GPU, not measured"
	}
	return plain(fmt.Sprintf("%s: %s; PyTorch %s, CUDA %s, cuDNN %d, driver %s", where, what, clip(r.Device.Torch), clip(r.Device.CUDA), r.Device.CuDNN, clip(r.Device.Driver)))
}

// plain keeps what a record says from breaking the line-based form of a profile.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return -1
		}
		return c
	}, s)
}

// setAttributes takes the runtime's attributes and where it has none the driver's. The bus number is that of the one card.
func setAttributes(p *gpu.Profile, r *record) {
	for _, table := range []map[string]int64{r.Device.DriverAttributes, r.Device.CUDAAttributes} {
		for text, v := range table {
			if n, err := strconv.Atoi(text); err == nil && n > 0 && n < mostAttributes {
				p.Attributes[n] = v
			}
		}
	}
	p.Attributes[attributePCIBus] = 27
}

var migName = regexp.MustCompile(`^(.*) MIG ([1-7])g\.([0-9]{1,3})gb`)

// setModel fills in what the scripts cannot read: speeds, from the bundled profile of the same model or from clocks and widths.
func setModel(p *gpu.Profile, id string) {
	a := architectures[p.ComputeCapability]
	p.Architecture = a.name
	if a.name == "" {
		p.Architecture = "compute capability " + p.ComputeCapability
	}
	known, err := gpu.Load(p.Name)
	if err == nil && known.ComputeCapability == p.ComputeCapability {
		p.PeakFLOPS, p.MemoryBandwidthBytesPerSecond, p.Source = known.PeakFLOPS, known.MemoryBandwidthBytesPerSecond, known.Source
		p.MIG, p.Aliases = known.MIG, known.Aliases
		if id == "" {
			p.ID = known.ID
		}
		return
	}
	p.Source = "computed from clocks, bus width and the architecture's operations per clock"
	p.PeakFLOPS = map[string]float64{}
	if clockKHz := float64(p.Attributes[13]); a.cores > 0 && clockKHz > 0 {
		p.PeakFLOPS["fp32"] = 2 * float64(a.cores*p.Attributes[16]) * clockKHz * 1000
	}
	p.MemoryBandwidthBytesPerSecond = 2 * float64(p.Attributes[36]) * 1000 * float64(p.Attributes[37]) / 8
	if m := migName.FindStringSubmatch(p.Name); m != nil {
		slices, _ := strconv.Atoi(m[2])
		p.MIG = &gpu.Slice{Parent: m[1], Profile: m[2] + "g." + m[3] + "gb", ComputeSlices: slices}
	}
	if id == "" {
		p.ID = slug(p.Name)
	}
}

var notSlug = regexp.MustCompile(`[^a-z0-9.]+`)

func slug(name string) string {
	s := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(strings.TrimPrefix(name, "NVIDIA ")), "-"), "-.")
	return s[:min(len(s), 64)]
}

// setOutside takes the context from a process that did nothing else, and each library's first use from the steps that were the first to need it.
// A library whose first step failed has no figure: what the step would have taken is not known, and the bundled bounds stand.
func setOutside(p *gpu.Profile, r *record) error {
	i := slices.IndexFunc(r.FirstUse, func(f firstUse) bool { return f.Name == "context" })
	var bare struct{ Before, Used int64 }
	alone := json.Unmarshal(r.Context.BareLazy, &bare) == nil && bare.Used > bare.Before
	switch {
	case alone:
		p.Context = gpu.Figure{Bytes: bare.Used - bare.Before, Measured: !r.Device.Virtual, Source: r.source("a second process with nothing but a context, modules loaded lazily")}
	case i >= 0 && r.FirstUse[i].Outside > 0:
		p.Context = gpu.Figure{Bytes: r.FirstUse[i].Outside, Measured: !r.Device.Virtual, Source: r.source("in use on the card before PyTorch's first allocation")}
	default:
		return errors.New("capture: the record has neither a context nor a first_use section" + r.fault("context") + r.fault("first_use"))
	}
	if i < 0 {
		return nil // the bundled bounds of the libraries stand
	}
	sums := map[string]*gpu.LibraryUse{}
	before := r.FirstUse[i].Outside
	for _, f := range r.FirstUse[i+1:] {
		if f.Outside == 0 {
			continue // an entry that is no step
		}
		grown := max(f.Outside-before, 0)
		before = max(before, f.Outside)
		library := "torch"
		for _, l := range libraryOf {
			if strings.HasPrefix(f.Name, l.prefix) {
				library = l.library
				break
			}
		}
		if u, known := sums[library]; known {
			if u != nil {
				u.HighBytes += grown
			}
			continue
		}
		if f.Error != "" {
			sums[library] = nil
			continue
		}
		sums[library] = &gpu.LibraryUse{Library: library, Figure: gpu.Figure{Bytes: grown, HighBytes: grown, Measured: !r.Device.Virtual,
			Source: r.source("growth outside PyTorch's allocator at the first use (" + plain(clip(f.Name)) + "); the upper end over all its steps")}}
	}
	for _, u := range sums {
		if u != nil {
			p.Libraries = append(p.Libraries, *u)
		}
	}
	slices.SortFunc(p.Libraries, func(a, b gpu.LibraryUse) int { return strings.Compare(a.Library, b.Library) })
	return nil
}
