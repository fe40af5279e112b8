package vgpu

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

const schemaJAX = "gresize.vgpu.jax/1"

// Limits on what one process of JAX reports.
const (
	maxComputations = 128
	maxBackends     = 16
)

// triedJAX are the releases whose programs were run on the virtual GPU.
var triedJAX = []string{"0.4.30", "0.4.38", "0.6.2", "0.10.2", "0.12.0.1"}

// reasonTensorFlow: the process imported TensorFlow, and JAX not yet.
const reasonTensorFlow = "tensorflow"

// JAXDevice is one card as the allocator of XLA saw it.
type JAXDevice struct {
	Index int `json:"index"`
	// PeakInUseBytes is the most that lived at once. LimitBytes is what the allocator may have of the card, PeakPoolBytes the most that it had.
	PeakInUseBytes int64 `json:"peak_in_use_bytes"`
	LimitBytes     int64 `json:"limit_bytes"`
	PeakPoolBytes  int64 `json:"peak_pool_bytes"`
	LargestBytes   int64 `json:"largest_bytes"`
	Allocations    int64 `json:"allocations"`
}

// Computation is one program that XLA compiled.
type Computation struct {
	Name           string `json:"name"`
	Executions     int64  `json:"executions"`
	ArgumentBytes  int64  `json:"argument_bytes"`
	OutputBytes    int64  `json:"output_bytes"`
	AliasBytes     int64  `json:"alias_bytes"`
	TemporaryBytes int64  `json:"temporary_bytes"`
}

// JAX is what the Python layer of one process reports of JAX.
type JAX struct {
	Schema        string            `json:"schema"`
	PID           int               `json:"pid"`
	Reason        string            `json:"reason"`
	Exception     *trace.Exception  `json:"exception"`
	Python        string            `json:"python"`
	JAX           string            `json:"jax"`
	Plugin        string            `json:"plugin"`
	PluginVersion string            `json:"plugin_version"`
	Backends      []string          `json:"backends"`
	Failures      map[string]string `json:"failures"`
	Devices       []JAXDevice       `json:"devices"`
	Allocator     string            `json:"allocator"`
	Preallocates  bool              `json:"preallocates"`
	// Processes is the number of processes of the program, on all nodes; Process is the number of this one, where there are several.
	Processes int  `json:"processes"`
	Process   *int `json:"process"`
	Node      int  `json:"node"`
	// Cards are the numbers on the node of the cards that the program sees, where it was given some of them.
	Cards []int `json:"cards"`
	// CompileSeconds is how long XLA compiled, ImportSeconds how long the import of jax took, of the processor: what the program needs of itself.
	CompileSeconds float64 `json:"compile_seconds"`
	ImportSeconds  float64 `json:"import_seconds"`
	// Interface is the minor version of PJRT's interface; -1 where the native layer does not know it.
	Interface    int           `json:"interface"`
	Steps        int           `json:"steps"`
	Flat         bool          `json:"flat"`
	Computations []Computation `json:"computations"`
	// AskedBytes is the most that arrays and an execution came to at once on the first card.
	AskedBytes int64 `json:"asked_bytes"`
	ValuesRead int64 `json:"values_read"`
	ArraysRead int64 `json:"arrays_read"`
	// Values says how the process was answered where it read what only a kernel could have known.
	Values ValuesSide `json:"values"`
	GoesOn bool       `json:"goes_on"`
	// TimeLapse and Ahead are those of a process of PyTorch.
	TimeLapse string `json:"time_lapse"`
	Ahead
	HostPeakBytes int64   `json:"host_peak_bytes"`
	BeganUnix     float64 `json:"began_unix"`
	WallSeconds   float64 `json:"wall_seconds"`
}

// ParseJAX reads and checks the report of the Python layer for JAX.
func ParseJAX(data []byte) (*JAX, error) {
	var j JAX
	if err := trace.UnmarshalReport(data, &j, &j.Schema, schemaJAX); err != nil {
		return nil, err
	}
	if len(j.Cards) > maxDevicesInOne || len(j.Devices) > maxDevicesInOne || len(j.Computations) > maxComputations || len(j.Backends) > maxBackends || len(j.Failures) > maxBackends {
		return nil, errors.New("cards, devices, computations, backends or failures: too many entries")
	}
	if err := checkPlace(j.Process, &j.Processes, j.Node); err != nil {
		return nil, err
	}
	for i := range j.Cards {
		if err := checkPlace(&j.Cards[i], nil, 0); err != nil {
			return nil, fmt.Errorf("cards: %w", err)
		}
	}
	if j.Steps < 0 || j.Steps > maxSteps || j.Processes < 0 || j.Processes > maxWorld {
		return nil, fmt.Errorf("steps or processes: %d or %d is out of range", j.Steps, j.Processes)
	}
	for _, seconds := range []float64{j.WallSeconds, j.BeganUnix, j.CompileSeconds, j.ImportSeconds} {
		if math.IsNaN(seconds) || seconds < 0 || seconds > math.MaxInt32*maxSeconds {
			return nil, errors.New("wall_seconds, began_unix, compile_seconds or import_seconds: out of range")
		}
	}
	counts, sizes := []int64{j.ValuesRead, j.ArraysRead}, []int64{j.HostPeakBytes, j.AskedBytes}
	for i, d := range j.Devices {
		if d.Index < 0 || d.Index >= maxDevicesInOne {
			return nil, fmt.Errorf("devices: index %d", d.Index)
		}
		if d.LimitBytes > 0 && d.PeakInUseBytes > d.LimitBytes {
			return nil, fmt.Errorf("devices[%d]: more in use than the limit", i)
		}
		counts, sizes = append(counts, d.Allocations), append(sizes, d.PeakInUseBytes, d.LimitBytes, d.PeakPoolBytes, d.LargestBytes)
	}
	for i := range j.Computations {
		c := &j.Computations[i]
		c.Name = clip(c.Name)
		counts, sizes = append(counts, c.Executions), append(sizes, c.ArgumentBytes, c.OutputBytes, c.AliasBytes, c.TemporaryBytes)
	}
	for _, text := range []*string{&j.Reason, &j.Python, &j.JAX, &j.Plugin, &j.PluginVersion, &j.Allocator, &j.TimeLapse} {
		*text = clip(*text)
	}
	if j.Exception != nil {
		j.Exception.Type, j.Exception.Text = clip(j.Exception.Type), clip(j.Exception.Text)
	}
	return &j, errors.Join(j.Values.check(), j.Ahead.check(), checkNumbers(counts, sizes))
}

// onCard says that the process has begun to use a card.
func (j *JAX) onCard() bool { return j != nil && len(j.Devices) > 0 }

// Pool is the part of a card that XLA's allocator has, in the report of a rank.
type Pool struct {
	// Release is that of JAX.
	Release string `json:"release"`
	// NeededBytes is the most that lived in it at once; ComputationBytes is what the largest program that XLA compiled needs alone, by XLA's own account.
	NeededBytes      int64 `json:"needed_bytes"`
	ComputationBytes int64 `json:"computation_bytes"`
	// AskedBytes is the most that the program asked for at once, whenever XLA gave memory back; 0 where it was not seen, as on any card but the first.
	AskedBytes int64 `json:"asked_bytes,omitempty"`
	// LimitBytes is what it may have of a card of CardBytes; 0: all. HeldBytes is what it had.
	LimitBytes   int64  `json:"limit_bytes,omitempty"`
	HeldBytes    int64  `json:"held_bytes"`
	CardBytes    int64  `json:"card_bytes"`
	Allocator    string `json:"allocator"`
	Preallocates bool   `json:"preallocates"`
	Interface    int    `json:"interface"`
	Processes    int    `json:"processes,omitempty"`
	// CompileSeconds is how long XLA compiled, ImportSeconds how long the import of jax took, of the processor.
	CompileSeconds float64 `json:"compile_seconds,omitempty"`
	ImportSeconds  float64 `json:"import_seconds,omitempty"`
	// Beside says that PyTorch had memory of the same card.
	Beside bool `json:"beside,omitempty"`
}

func (p *Pool) check() error {
	if p == nil {
		return nil
	}
	p.Release, p.Allocator = clip(p.Release), clip(p.Allocator)
	if p.Processes < 0 || p.Processes > maxWorld {
		return fmt.Errorf("pool.processes: %d", p.Processes)
	}
	for _, seconds := range []float64{p.CompileSeconds, p.ImportSeconds} {
		if math.IsNaN(seconds) || seconds < 0 || seconds > math.MaxInt32 {
			return errors.New("pool.compile_seconds or import_seconds: out of range")
		}
	}
	return checkNumbers(nil, []int64{p.NeededBytes, p.ComputationBytes, p.AskedBytes, p.LimitBytes, p.HeldBytes, p.CardBytes})
}

// addPool puts what XLA's allocator had of a card into its report.
func (r *rankReport) addPool(j *JAX, d JAXDevice, card *NativeDevice) {
	pool := Pool{
		Release: j.JAX, NeededBytes: d.PeakInUseBytes, LimitBytes: d.LimitBytes, HeldBytes: d.PeakPoolBytes,
		Allocator: j.Allocator, Preallocates: j.Preallocates, Interface: j.Interface, Processes: j.Processes,
		Beside: r.PeakReservedBytes > 0, CompileSeconds: j.CompileSeconds, ImportSeconds: j.ImportSeconds,
	}
	if d.Index == j.Devices[0].Index {
		pool.AskedBytes = j.AskedBytes
	}
	for _, c := range j.Computations {
		pool.ComputationBytes = max(pool.ComputationBytes, c.ArgumentBytes+c.OutputBytes-c.AliasBytes+c.TemporaryBytes)
	}
	if card != nil {
		pool.CardBytes = card.TotalBytes
		if d.LimitBytes == 0 { // each array is memory of the driver's own: an allocator without counters
			pool.NeededBytes = max(card.PeakBytes-r.PeakReservedBytes, 0)
			pool.HeldBytes = pool.NeededBytes
		}
	}
	r.Pool = &pool
	r.PeakAllocatedBytes += pool.NeededBytes
	r.PeakReservedBytes += pool.NeededBytes
}

// atLeast is the smallest card on which the allocator may have so many bytes: it allows itself a share of the card.
func (p *Pool) atLeast(bytes int64) int64 {
	if p == nil || p.LimitBytes == 0 || p.LimitBytes >= p.CardBytes {
		return 0
	}
	return int64(math.Ceil(float64(bytes) * float64(p.CardBytes) / float64(p.LimitBytes)))
}

// held is what so many bytes of an allocator take of a card: the smallest card of which they are its share, where it has one.
func (p *Pool) held(reservedBytes, deviceBytes int64) int64 {
	if card := p.atLeast(reservedBytes); card > 0 {
		return card
	}
	return max(reservedBytes, deviceBytes)
}

// What XLA's choice of kernels, which is left out, may add: the workspace that cuBLAS is offered, by compute capability, and what the best-fit
// allocator loses between its blocks.
const (
	workspaceBytes       = 4 << 20
	workspaceHopperBytes = 32 << 20
	betweenBlocksPercent = 3
)

func (p *Pool) allowance(cc string) int64 {
	if p == nil {
		return 0
	}
	workspace := int64(workspaceBytes)
	if major, _, _ := strings.Cut(cc, "."); len(major) > 1 || major >= "9" {
		workspace = workspaceHopperBytes
	}
	return workspace + p.NeededBytes/100*betweenBlocksPercent
}

// widenByPool makes the figures those of a card whose share holds the need.
func (r *rankReport) widenByPool(k *estimator.Rank, p *gpu.Profile) {
	if r.Pool == nil {
		return
	}
	k.ComfortableHighBytes += r.Pool.allowance(p.ComputeCapability)
	if r.Pool.CardBytes == 0 {
		return
	}
	// What the allocator leaves of such a card is outside of it.
	k.OutsideBytes += max(r.Pool.atLeast(r.Pool.NeededBytes)-k.ComfortableBytes, 0)
	k.ComfortableBytes = k.PeakReservedBytes + k.OutsideBytes
	k.ComfortableHighBytes = max(k.ComfortableHighBytes, r.Pool.atLeast(r.Pool.NeededBytes+r.Pool.allowance(p.ComputeCapability)))
}

// judgePool says what an answer for JAX rests on.
func (a *answer) judgePool(r *rankReport, p *gpu.Profile) {
	pool := r.Pool
	if pool == nil {
		return
	}
	if pool.Interface < 0 {
		a.lower(estimator.Unknown, estimator.CodeUnknownRelease, "the plugin of JAX "+pool.Release+" has an interface that is not known: what it executed was not seen")
	} else if !slices.Contains(triedJAX, pool.Release) {
		a.lower(estimator.High, estimator.CodeUnknownRelease, "JAX "+pool.Release+" is not among the releases that were tried")
	}
	a.lower(estimator.High, estimator.CodeKernelsChosen, "XLA's own choice among them was left out; the interval has the workspaces that others may need")
	if pool.LimitBytes > 0 {
		share := 100 * float64(pool.LimitBytes) / float64(max(pool.CardBytes, 1))
		detail := fmt.Sprintf("%.0f %%, and the program needs %d MiB of it: the figure is the card whose share holds them", share, pool.NeededBytes>>20)
		if pool.Preallocates {
			detail += fmt.Sprintf("; it takes its share at its start, so nvidia-smi will show %d MiB on %s, and other cards %.0f %% of theirs, whatever the program needs",
				pool.HeldBytes>>20, p.Name, share)
		}
		a.lower(estimator.Exact, estimator.CodeShareOfCard, detail)
	}
	if pool.Processes > 1 && r.GlobalRank == nil {
		a.lower(estimator.Low, estimator.CodeRanksNotRun, fmt.Sprintf("which of %d processes were run is not known", pool.Processes))
	}
	if pool.Beside {
		a.lower(estimator.Low, estimator.CodeJAXWithTorch, "PyTorch and JAX use the same card: what they need is added up, at whatever times they need it")
	}
}

var missingPTXAS = regexp.MustCompile(`(?i)\bptxas\b`)

// jaxReasons says what kept a program of JAX from the card.
func jaxReasons(processes []process) []estimator.Reason {
	var found []estimator.Reason
	add := func(code, detail string) {
		if !slices.ContainsFunc(found, func(r estimator.Reason) bool { return r.Code == code }) {
			found = append(found, estimator.Reason{Code: code, Detail: clip(detail)})
		}
	}
	// A program that uses the card otherwise may well compute something on the CPU by JAX, or read its data by TensorFlow.
	otherwise := slices.ContainsFunc(processes, func(p process) bool { return p.usedGPU() })
	for i := range processes {
		j := processes[i].jax
		switch {
		case j == nil:
		case j.Reason == reasonTensorFlow:
			if !otherwise && !slices.ContainsFunc(processes, func(p process) bool { return p.python != nil }) {
				add(estimator.CodeTensorflow, "a process imported TensorFlow, which is not followed yet")
			}
		case j.Exception != nil && missingPTXAS.MatchString(j.Exception.Text):
			add(estimator.CodeNoPtxas, j.Exception.Text)
		case j.onCard() || otherwise:
		case slices.Contains(j.Backends, "tpu"):
			add(estimator.CodeNotCovered, "JAX uses a TPU")
		case j.Plugin == "":
			add(estimator.CodeCPUOnlyJAX, "JAX "+j.JAX+" has no plugin for CUDA beside it (pip install \"jax[cuda12]\"): on a GPU node it would run on the CPU")
		default:
			if text := j.Failures["cuda"]; text != "" {
				add(estimator.CodeJAXWithoutGPU, text)
			}
		}
	}
	return found
}
