package vgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

// Limits on a report directory. A user's processes wrote it.
const (
	maxReportBytes  = 4 << 20
	maxStepsListed  = 2048
	maxEventsBytes  = 32 << 20
	maxEventsInAll  = 64 << 20 // of all ranks: the rest of a bundle needs room too
	maxPartsInAll   = 24 << 20
	maxTextBytes    = 1024
	maxUnanswered   = 1024
	maxDevicesInOne = 64
	maxSteps        = 1 << 30
	maxSeconds      = 30 * 24 * 3600
	// maxMemoryBytes is beyond every card and every host, and leaves room for sums within estimator.MaxBytes.
	maxMemoryBytes = int64(1) << 44
)

// The schemas of the two files that a process leaves.
const (
	schemaNative = "gresize.vgpu.native/1"
	schemaPython = "gresize.vgpu.python/1"
)

// NativeDevice is one card as the stub libraries saw it.
type NativeDevice struct {
	Index        int   `json:"index"`
	TotalBytes   int64 `json:"total_bytes"`
	ContextBytes int64 `json:"context_bytes"`
	InUseBytes   int64 `json:"in_use_bytes"`
	PeakBytes    int64 `json:"peak_bytes"`
	Allocations  int64 `json:"allocations"`
	Refused      int64 `json:"refused"`
	// HostRefused counts requests for which the card had room, but the host no addresses.
	HostRefused int64 `json:"host_refused"`
	// PassedOver counts workspaces of libraries' plans that the card had no room for, so that PyTorch took the next plan.
	PassedOver int64 `json:"passed_over"`
}

// Bound is a kind of size that is a model and not a library's own answer.
type Bound struct {
	Calls        int64 `json:"calls"`
	LargestBytes int64 `json:"largest_bytes"`
}

// Native is what the stub libraries of one process report.
type Native struct {
	Schema          string           `json:"schema"`
	PID             int              `json:"pid"`
	Torch           string           `json:"torch"`
	CUDA            int              `json:"cuda"`
	CuDNN           int              `json:"cudnn"`
	NCCL            int              `json:"nccl"`
	Launches        int64            `json:"launches"`
	ValuesReadBack  int64            `json:"values_read_back"`
	ArraysReadBack  int64            `json:"arrays_read_back"`
	TrueReads       int64            `json:"true_reads"`
	PinnedPeakBytes int64            `json:"pinned_peak_bytes"`
	Devices         []NativeDevice   `json:"devices"`
	Libraries       map[string]int64 `json:"libraries"`
	Bounded         map[string]Bound `json:"bounded"`
	Communicators   []Communicator   `json:"communicators"`
	Unanswered      map[string]int64 `json:"unanswered"`
}

// PythonDevice is one card as PyTorch's allocator saw it.
type PythonDevice struct {
	Index              int   `json:"index"`
	PeakAllocatedBytes int64 `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64 `json:"peak_reserved_bytes"`
	PeakRequestedBytes int64 `json:"peak_requested_bytes"`
	Segments           int64 `json:"segments"`
	Retries            int64 `json:"retries"`
	OOMs               int64 `json:"ooms"`
}

// Tuning is what the process chose by time, where no kernel takes any.
type Tuning struct {
	// Lists counts the products, convolutions and attentions for which a kernel was chosen; Candidates and Dropped their kernels, and
	// those of them that were not tried.
	Lists      int64 `json:"lists"`
	Candidates int64 `json:"candidates"`
	Dropped    int64 `json:"dropped"`
	// WorkspaceBytes is the largest workspace of a kernel that was not tried.
	WorkspaceBytes int64 `json:"workspace_bytes"`
}

// Python is what the Python layer of one process reports.
type Python struct {
	Schema          string           `json:"schema"`
	PID             int              `json:"pid"`
	Reason          string           `json:"reason"`
	Exception       *trace.Exception `json:"exception"`
	Python          string           `json:"python"`
	Torch           string           `json:"torch"`
	CUDA            *string          `json:"cuda"`
	CuDNN           *int             `json:"cudnn"`
	CUDAInitialized bool             `json:"cuda_initialized"`
	Virtual         bool             `json:"virtual"`
	Rank            *int             `json:"rank"`
	WorldSize       *int             `json:"world_size"`
	// Node is the number of the node that the rank would be on.
	Node int `json:"node"`
	// Cards are the numbers on the node of the cards that the program sees, where it was given some of them.
	Cards          []int          `json:"cards"`
	Steps          int            `json:"steps"`
	BackwardCalls  int            `json:"backward_calls"`
	ScalerSteps    int            `json:"scaler_steps"`
	Optimizers     int            `json:"optimizers"`
	Flat           bool           `json:"flat"`
	PerStep        [][]int64      `json:"per_step"`
	Devices        []PythonDevice `json:"devices"`
	ValuesReadBack int64          `json:"values_read_back"`
	// Decisions counts comparisons of values that were read back. LoadersUnread are data loaders that were made and not read;
	// LargerLoaderUnread says that one of them has a larger batch than all that were read.
	Decisions int64 `json:"decisions"`
	// Values says how the process was answered where only a kernel could have known.
	Values        ValuesSide `json:"values"`
	LoadersUnread int        `json:"loaders_unread"`
	// EpochsCutShort: a data loader was ended early so that what follows an epoch was seen.
	EpochsCutShort bool `json:"epochs_cut_short"`
	// TimeLapse says how the program was followed after the first answer; empty: it was not.
	TimeLapse string `json:"time_lapse"`
	Ahead
	LargerLoaderUnread bool    `json:"larger_loader_unread"`
	IdleOptimizer      bool    `json:"idle_optimizer"`
	MemoryFraction     bool    `json:"memory_fraction"`
	Tuning             Tuning  `json:"tuning"`
	HostPeakBytes      int64   `json:"host_peak_bytes"`
	BeganUnix          float64 `json:"began_unix"`
	WallSeconds        float64 `json:"wall_seconds"`
	// EnvironmentKept says whether the variables that put the virtual GPU under a process were still there. Foreign names a library
	// of torch that is for another processor.
	EnvironmentKept *bool  `json:"environment_kept"`
	Foreign         string `json:"foreign"`
}

// The reasons for which the Python layer writes a report.
const (
	reasonStopped     = "stopped"
	reasonRunning     = "running" // written on the way; a process that leaves no other was killed or left without its exit handlers
	reasonBudgetSpent = "budget_spent"
	reasonCPUOnly     = "cpu_only_torch"
	// reasonImportFailed: torch could not be imported.
	reasonImportFailed = "import_failed"
)

// backwardFactor is how many backward passes stand for a step where a program has no optimizer; the Python layer has the same.
const backwardFactor = 4

// steps is the number of training steps that the process took.
func (p *Python) steps() int {
	if p.Steps > 0 || p.Optimizers > 0 {
		return p.Steps
	}
	return p.BackwardCalls / backwardFactor
}

// valuesPerStep is how many values the loop reads back each time round; what was read before the first step is not its.
func (p *Python) valuesPerStep() float64 {
	if n := len(p.PerStep); n >= 2 {
		first, last := p.PerStep[0], p.PerStep[n-1]
		return float64(last[3]-first[3]) / float64(max(last[0]-first[0], 1))
	}
	return float64(p.ValuesReadBack) / float64(max(p.steps(), 1))
}

// Reports sums up what the processes of one run left.
type Reports struct {
	// TorchSeen says that some process imported PyTorch or JAX; CPUOnly that none of PyTorch's builds knows CUDA.
	TorchSeen, CPUOnly bool
	// Stopped says that enough was seen for an answer, and that the run was ended on purpose, or goes on in time-lapse.
	Stopped bool
	// TimeLapse says that a process goes on after its first answer.
	TimeLapse bool
	// NotRun are blocks of the program that were not run and that may take memory, though nothing says that they will be run.
	NotRun []string
	// BudgetSpent says that the run was ended on purpose because its time was over.
	BudgetSpent bool
	// OutOfMemory says that an allocation was refused and the program did not get over it.
	OutOfMemory bool
	// Failure is the exception that the program failed of, which its last words need not name; empty when none was seen.
	Failure           string
	Steps             int
	Libraries         []string
	UnansweredSymbols []trace.Symbol
	ValuesReadBack    int64
	Versions          estimator.Versions
	Ranks             []trace.Rank
	// OutOfMemoryMet says that PyTorch raised an out-of-memory error at all, whoever caught it.
	OutOfMemoryMet bool
	// PeakReservedBytes is the most that PyTorch reserved on one card.
	PeakReservedBytes int64
	// Reasons are causes for less confidence that are known without the profile.
	Reasons []estimator.Reason
}

var reportName = regexp.MustCompile(`^(native|python|jax)-([0-9]{1,10})\.json$`)

// process is the reports of one process; either may be missing.
type process struct {
	pid    int
	native *Native
	python *Python
	jax    *JAX
	events []byte
	parts  map[trace.Part][]byte
}

// ReadReports reads the files of a report directory. Files with other names are
// passed over; a report that cannot be read is an error that names the file.
func ReadReports(dir string) (Reports, error) {
	processes, err := readProcesses(dir)
	if err != nil {
		return Reports{}, err
	}
	return sumUp(processes)
}

func readProcesses(dir string) ([]process, error) {
	byPID := map[int]*process{}
	err := trace.ReadReports(dir, reportName, maxReportBytes, func(match []string, data []byte) error {
		pid, err := strconv.Atoi(match[2])
		if err != nil {
			return err
		}
		p := byPID[pid]
		if p == nil {
			p = &process{pid: pid}
			byPID[pid] = p
		}
		switch match[1] {
		case "native":
			p.native, err = ParseNative(data)
		case "jax":
			p.jax, err = ParseJAX(data)
		default:
			p.python, err = ParsePython(data)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vgpu: %w", err)
	}
	processes := make([]process, 0, len(byPID))
	for _, p := range byPID {
		// Events help other estimators; without them, or with too many, this answer is the same.
		if events, err := trace.ReadRegular(filepath.Join(dir, fmt.Sprintf("events-%d.jsonl", p.pid)), maxEventsBytes); err == nil {
			p.events = events
		}
		for _, part := range trace.Parts() {
			if data, err := trace.ReadRegular(filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl", part, p.pid)), part.MaxBytes()); err == nil && len(data) > 0 {
				if p.parts == nil {
					p.parts = map[trace.Part][]byte{}
				}
				p.parts[part] = data
			}
		}
		processes = append(processes, *p)
	}
	slices.SortFunc(processes, func(a, b process) int { return a.pid - b.pid })
	return processes, nil
}

// ParseNative reads and checks the report of the stub libraries.
func ParseNative(data []byte) (*Native, error) {
	var n Native
	if err := trace.UnmarshalReport(data, &n, &n.Schema, schemaNative); err != nil {
		return nil, err
	}
	if err := checkCommunicators(n.Communicators); err != nil {
		return nil, err
	}
	if len(n.Devices) > maxDevicesInOne || len(n.Unanswered) > maxUnanswered || len(n.Libraries) > maxDevicesInOne || len(n.Bounded) > maxDevicesInOne {
		return nil, errors.New("devices, libraries, bounded or unanswered: too many entries")
	}
	counts := []int64{n.Launches, n.ValuesReadBack, n.ArraysReadBack, n.TrueReads}
	sizes := []int64{n.PinnedPeakBytes}
	for _, d := range n.Devices {
		if d.Index < 0 || d.Index >= maxDevicesInOne {
			return nil, fmt.Errorf("devices: index %d", d.Index)
		}
		sizes = append(sizes, d.TotalBytes, d.ContextBytes, d.InUseBytes, d.PeakBytes)
		counts = append(counts, d.Allocations, d.Refused, d.HostRefused, d.PassedOver)
	}
	for name, b := range n.Bounded {
		if !trace.PlainName(name) {
			return nil, fmt.Errorf("bounded: %.40q is no name", name)
		}
		sizes, counts = append(sizes, b.LargestBytes), append(counts, b.Calls)
	}
	for _, table := range []map[string]int64{n.Libraries, n.Unanswered} {
		for name, calls := range table {
			if !trace.PlainName(name) {
				return nil, fmt.Errorf("libraries or unanswered: %.40q is no name", name)
			}
			counts = append(counts, calls)
		}
	}
	return &n, checkNumbers(counts, sizes)
}

// ParsePython reads and checks the report of the Python layer.
func ParsePython(data []byte) (*Python, error) {
	var p Python
	if err := trace.UnmarshalReport(data, &p, &p.Schema, schemaPython); err != nil {
		return nil, err
	}
	if len(p.Devices) > maxDevicesInOne || len(p.Cards) > maxDevicesInOne || len(p.PerStep) > maxStepsListed {
		return nil, errors.New("devices or per_step: too many entries")
	}
	for _, s := range []int{p.Steps, p.BackwardCalls, p.ScalerSteps, p.Optimizers} {
		if s < 0 || s > maxSteps {
			return nil, fmt.Errorf("steps or calls: %d is out of range", s)
		}
	}
	for i := range p.Cards {
		if err := checkPlace(&p.Cards[i], nil, 0); err != nil {
			return nil, fmt.Errorf("cards: %w", err)
		}
	}
	if err := checkPlace(p.Rank, p.WorldSize, p.Node); err != nil {
		return nil, err
	}
	for _, seconds := range []float64{p.WallSeconds, p.BeganUnix} {
		if math.IsNaN(seconds) || seconds < 0 || seconds > math.MaxInt32*maxSeconds {
			return nil, errors.New("wall_seconds or began_unix: out of range")
		}
	}
	if p.WallSeconds > maxSeconds {
		return nil, errors.New("wall_seconds: out of range")
	}
	var sizes []int64
	counts := []int64{p.ValuesReadBack, p.Values.Followed}
	if err := p.Values.check(); err != nil {
		return nil, err
	}
	if err := p.Ahead.check(); err != nil {
		return nil, err
	}
	for _, calls := range p.Values.Uses {
		counts = append(counts, calls)
	}
	for i, step := range p.PerStep {
		if len(step) != 4 {
			return nil, fmt.Errorf("per_step[%d]: %d numbers, want 4", i, len(step))
		}
		counts, sizes = append(counts, step[0], step[3]), append(sizes, step[1], step[2])
	}
	for _, d := range p.Devices {
		if d.Index < 0 || d.Index >= maxDevicesInOne {
			return nil, fmt.Errorf("devices: index %d", d.Index)
		}
		if d.PeakAllocatedBytes > d.PeakReservedBytes {
			return nil, fmt.Errorf("devices[%d]: allocated is larger than reserved", d.Index)
		}
		sizes = append(sizes, d.PeakAllocatedBytes, d.PeakReservedBytes, d.PeakRequestedBytes)
		counts = append(counts, d.Segments, d.Retries, d.OOMs)
	}
	p.Python, p.Torch, p.Reason, p.Foreign, p.TimeLapse = clip(p.Python), clip(p.Torch), clip(p.Reason), clip(p.Foreign), clip(p.TimeLapse)
	if p.CUDA != nil {
		*p.CUDA = clip(*p.CUDA)
	}
	if p.Exception != nil {
		p.Exception.Type, p.Exception.Text = clip(p.Exception.Type), clip(p.Exception.Text)
	}
	counts = append(counts, p.Tuning.Lists, p.Tuning.Candidates, p.Tuning.Dropped)
	return &p, checkNumbers(counts, append(sizes, p.Tuning.WorkspaceBytes, p.HostPeakBytes))
}

func clip(s string) string { return trace.Clip([]byte(s), maxTextBytes) }

func checkNumbers(counts, sizes []int64) error {
	for _, c := range counts {
		if c < 0 {
			return fmt.Errorf("a count of %d", c)
		}
	}
	for _, s := range sizes {
		if s < 0 || s > maxMemoryBytes {
			return fmt.Errorf("a size of %d bytes", s)
		}
	}
	return nil
}

// usedGPU says that the process put something on a card.
func (p *process) usedGPU() bool {
	if p.native != nil {
		for _, d := range p.native.Devices {
			if d.PeakBytes > 0 || d.Refused > 0 {
				return true
			}
		}
	}
	return p.python != nil && slices.ContainsFunc(p.python.Devices, func(d PythonDevice) bool { return d.PeakReservedBytes > 0 || d.OOMs > 0 })
}

// EndedBeforeItsTime begins the detail of a reason that says of what a program died.
const EndedBeforeItsTime = "a Python program ended before its time: "

func sumUp(processes []process) (Reports, error) {
	var r Reports
	r.CPUOnly = true
	var ranks []rankReport
	unanswered, libraries := map[string]int64{}, map[string]bool{}
	virtual, withCUDA, failed := false, false, false
	if e := firstFailure(processes); e != nil {
		// The job script may have gone on, and ended well, all the same.
		failed = true
		r.Failure = clip(e.Type + ": " + e.Text)
		r.Reasons = append(r.Reasons, estimator.Reason{Code: estimator.CodePhaseNotReached, Detail: clip(EndedBeforeItsTime + r.Failure)})
		if hint, ok := readBeforeFailure(processes, e); ok {
			r.Reasons = append(r.Reasons, hint)
		}
	}
	for i := range processes {
		p := &processes[i]
		if py := p.python; py != nil {
			r.TorchSeen = true
			r.CPUOnly = r.CPUOnly && py.Reason == reasonCPUOnly
			r.Stopped = r.Stopped || py.Reason == reasonStopped
			r.TimeLapse = r.TimeLapse || py.TimeLapse == lapseOn
			r.addNotRun(py.NotRun)
			r.BudgetSpent = r.BudgetSpent || py.Reason == reasonBudgetSpent
			r.OutOfMemory = r.OutOfMemory || py.Exception != nil && py.Exception.OutOfMemory
			if py.Reason == reasonRunning && py.CUDAInitialized && !p.usedGPU() && !failed {
				failed = true
				r.Reasons = append(r.Reasons, estimator.Reason{Code: estimator.CodePhaseNotReached, Detail: "a Python program was ended without a word after it had begun to use the GPU"})
			}
			virtual, withCUDA = virtual || py.Virtual, withCUDA || py.CUDA != nil
			if r.Versions.Torch == "" || p.usedGPU() {
				r.Versions = versions(py)
			}
		}
		if j := p.jax; j != nil && j.Reason != reasonTensorFlow {
			r.addJAX(j)
		}
		if p.native != nil {
			if p.usedGPU() {
				r.TorchSeen, r.CPUOnly = r.TorchSeen || p.native.Torch != "", false
			}
			for name, calls := range p.native.Unanswered {
				unanswered[name] += calls
			}
			for name := range p.native.Libraries {
				libraries[name] = true
			}
		}
		if p.usedGPU() {
			ranks = append(ranks, newRankReports(p)...)
		}
	}
	r.CPUOnly = r.CPUOnly && r.TorchSeen
	r.BudgetSpent = r.BudgetSpent && !r.Stopped
	place := append(placeReasons(processes), jaxReasons(processes)...)
	r.Reasons = append(r.Reasons, place...)
	if withCUDA && !virtual && len(place) == 0 {
		r.Reasons = append(r.Reasons, estimator.Reason{Code: estimator.CodeStaticRuntime, Detail: "PyTorch did not load the replaced libraries: its CUDA runtime may be linked into it"})
	}
	if overlapping(ranks) {
		r.Reasons = append(r.Reasons, estimator.Reason{Code: estimator.CodeSeveralGPUs, Detail: "several processes used a GPU at the same time: whether they share one is not known"})
	}
	var err error
	if r.UnansweredSymbols, err = symbols(unanswered); err != nil {
		return Reports{}, err
	}
	for name := range libraries {
		r.Libraries = append(r.Libraries, name)
	}
	slices.Sort(r.Libraries)
	return r, r.addRanks(ranks)
}

func (r *Reports) addNotRun(places []string) {
	for _, place := range placesAhead(places) {
		if !slices.Contains(r.NotRun, place) && len(r.NotRun) < placesMost {
			r.NotRun = append(r.NotRun, place)
		}
	}
}

// addJAX adds what one process of JAX says of the run.
func (r *Reports) addJAX(j *JAX) {
	r.TorchSeen = true
	r.CPUOnly = r.CPUOnly && !j.onCard()
	r.Stopped = r.Stopped || j.Reason == reasonStopped
	r.TimeLapse = r.TimeLapse || j.GoesOn
	r.addNotRun(j.NotRun)
	r.BudgetSpent = r.BudgetSpent || j.Reason == reasonBudgetSpent
	r.OutOfMemory = r.OutOfMemory || j.Exception != nil && j.Exception.OutOfMemory
	if r.Versions.Torch == "" || j.onCard() {
		r.Versions.Python, r.Versions.JAX = j.Python, j.JAX
	}
}

func versions(p *Python) estimator.Versions {
	v := estimator.Versions{Python: p.Python, Torch: p.Torch}
	if p.CUDA != nil {
		v.CUDA = *p.CUDA
	}
	if p.CuDNN != nil {
		unit := 10000
		if *p.CuDNN < 90000 { // 8902 is 8.9.2
			unit = 1000
		}
		v.CuDNN = fmt.Sprintf("%d.%d.%d", *p.CuDNN/unit, *p.CuDNN%unit/100, *p.CuDNN%100)
	}
	return v
}

var unionOfAll = sync.OnceValues(func() (map[string]manifest.Library, error) {
	all, err := manifest.All()
	if err != nil {
		return nil, err
	}
	return manifest.Union(all)
})

// symbols names the library of each unanswered symbol.
func symbols(unanswered map[string]int64) ([]trace.Symbol, error) {
	union, err := unionOfAll()
	if err != nil {
		return nil, err
	}
	var list []trace.Symbol
	for name, calls := range unanswered {
		s := trace.Symbol{Library: "libcuda.so.1", Name: name, Calls: calls} // what is looked up by name is the driver's
		for soname, lib := range union {
			if _, found := slices.BinarySearch(lib.Symbols, name); found && (s.Library == "libcuda.so.1" || soname < s.Library) {
				s.Library = soname
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b trace.Symbol) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// addRanks numbers the ranks and takes the least advanced one for the number of steps.
func (r *Reports) addRanks(ranks []rankReport) error {
	slices.SortStableFunc(ranks, compareRanks)
	numberRanks(ranks)
	if len(ranks) > trace.MaxRanks {
		return fmt.Errorf("vgpu: reports: %d processes used a GPU, at most %d are handled", len(ranks), trace.MaxRanks)
	}
	room, partsRoom := maxEventsInAll, maxPartsInAll
	for i := range ranks {
		k := &ranks[i]
		r.ValuesReadBack += k.Coverage.ValuesReadBack
		if k.Steps > 0 && (r.Steps == 0 || k.Steps < r.Steps) {
			r.Steps = k.Steps
		}
		r.OutOfMemoryMet = r.OutOfMemoryMet || k.OOMs > 0
		r.PeakReservedBytes = max(r.PeakReservedBytes, k.PeakReservedBytes)
		data, err := json.Marshal(k)
		if err != nil {
			return fmt.Errorf("vgpu: reports: %w", err)
		}
		rank := trace.Rank{Report: data}
		if n := len(k.events); n > 0 && n <= room {
			rank.Events, rank.EventsFormat = k.events, trace.EventsJSON
			room -= n
		}
		for _, part := range slices.Sorted(maps.Keys(k.parts)) {
			data := k.parts[part]
			if len(data) > partsRoom {
				continue
			}
			if rank.Parts == nil {
				rank.Parts = map[trace.Part][]byte{}
			}
			rank.Parts[part] = data
			partsRoom -= len(data)
		}
		r.Ranks = append(r.Ranks, rank)
	}
	return nil
}
