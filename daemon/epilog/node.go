package epilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/regular"
)

const (
	// maxAccounted is above the processes that NVML remembers of one GPU.
	maxAccounted      = 16384
	maxAccountedBytes = 4 << 20
	// scanBytes of the end of an output are looked through: what a job dies of stands there.
	scanBytes = 256 << 10
)

// accounting are the columns that are asked for; time is how long the process ran, in milliseconds.
const accounting = "--query-accounted-apps=gpu_uuid,pid,time,max_memory_usage"

// app is one process that has ended, or runs, on a GPU.
type app struct {
	line      string
	gpu       string
	peakBytes int64
}

// parseAccounted reads what nvidia-smi prints with --format=csv,noheader,nounits. Lines that are not understood are passed over.
func parseAccounted(out string) []app {
	var apps []app
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), ",")
		if len(cells) != 4 || len(apps) >= maxAccounted {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		mib, err := strconv.ParseInt(strings.TrimSuffix(cells[3], " MiB"), 10, 64)
		if err != nil || mib < 1 || mib > estimator.MaxBytes>>20 || !gpuName.MatchString(cells[0]) {
			continue
		}
		apps = append(apps, app{line: strings.Join(cells, ","), gpu: cells[0], peakBytes: mib << 20})
	}
	return apps
}

// Accounting reads NVML's accounting by means of nvidia-smi. NVML remembers the processes of all jobs of a GPU: those that were there after the job before
// are kept in a folder of root, so that nothing has to be cleared that others may want to read.
type Accounting struct {
	NvidiaSMI string
	// Folder belongs to root and goes with the next start of the machine, as NVML's memory does.
	Folder string
}

// Peaks returns the largest process since the last call for each of the GPUs, which are those of Slurm's SLURM_JOB_GPUS. On a GPU of which nothing was
// remembered before, nothing is known.
func (a Accounting) Peaks(ctx context.Context, gpus string) ([]Peak, error) {
	if err := os.MkdirAll(a.Folder, 0o700); err != nil {
		return nil, err
	}
	var peaks []Peak
	for i, gpu := range strings.Split(gpus, ",") {
		if gpu = strings.TrimSpace(gpu); gpu == "" || i >= MaxPeaks || !gpuName.MatchString(gpu) {
			continue
		}
		command := exec.CommandContext(ctx, a.NvidiaSMI, accounting, "--format=csv,noheader,nounits", "-i", gpu)
		command.WaitDelay = time.Second
		out, err := command.Output()
		if err != nil {
			return peaks, fmt.Errorf("nvidia-smi: %w", err)
		}
		if len(out) > maxAccountedBytes {
			return peaks, fmt.Errorf("nvidia-smi printed %d bytes", len(out))
		}
		peak, known, err := a.since(gpu, parseAccounted(string(out)))
		if err != nil {
			return peaks, err
		}
		if known {
			peaks = append(peaks, peak)
		}
	}
	return peaks, nil
}

// since compares with what was remembered, and remembers what is there now.
func (a Accounting) since(gpu string, apps []app) (peak Peak, known bool, err error) {
	path := filepath.Join(a.Folder, "accounted-"+strings.NewReplacer("/", "_", ":", "_").Replace(gpu))
	before, err := os.ReadFile(path)
	first := errors.Is(err, os.ErrNotExist)
	if err != nil && !first {
		return Peak{}, false, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(before)) {
		seen[strings.TrimSpace(line)] = true
	}
	var now bytes.Buffer
	for _, x := range apps {
		now.WriteString(x.line + "\n")
		if seen[x.line] {
			continue
		}
		peak.GPU = gpu
		peak.Processes++
		peak.PeakBytes = max(peak.PeakBytes, x.peakBytes)
	}
	part := path + ".part"
	if err := errors.Join(os.WriteFile(part, now.Bytes(), 0o600), os.Rename(part, path)); err != nil {
		return Peak{}, false, err
	}
	// The first list may hold jobs from before; with a single process in it there is no doubt.
	return peak, peak.Processes > 0 && (!first || len(apps) == 1), nil
}

// memoryUsedUp are the words of CUDA's libraries and of the frameworks for a GPU without free memory.
var memoryUsedUp = regexp.MustCompile(`CUDA out of memory|torch(?:\.cuda)?\.OutOfMemoryError|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor`)

// slowStep is a line of a job with a plan.
var slowStep = regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(SlowStep))

// MemoryLine looks through the end of a text for the last line that says that the GPU's memory was used up, or that the job is too slow with its plan.
func MemoryLine(text []byte) string {
	found := memoryUsedUp.FindAllIndex(text, -1)
	found = append(found, slowStep.FindAllIndex(text, -1)...)
	if len(found) == 0 {
		return ""
	}
	at := found[len(found)-1]
	start := bytes.LastIndexByte(text[:at[0]], '\n') + 1
	line := text[start:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	if start < at[0]-100 {
		line = line[at[0]-100-start:] // a progress bar may stand before it on the same line
	}
	clean := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(line), "?"))
	for len(clean) > MaxLineBytes {
		clean = strings.ToValidUTF8(clean[:MaxLineBytes], "")
	}
	return clean
}

// ScanFile looks through the end of a file. It must run as the user of the job: the path is the user's choice.
func ScanFile(path string) (string, error) {
	file, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-scanBytes), scanBytes))
	if err != nil {
		return "", err
	}
	return MemoryLine(text), nil
}

// ScanAs looks through files as their user, in a process of this program that has given up all rights of root; verb is the argument that makes this
// program call ScanFile on the others and print what it finds.
func ScanAs(ctx context.Context, uid, gid uint32, verb string, paths []string) string {
	if uid == 0 || len(paths) == 0 {
		return ""
	}
	command := exec.CommandContext(ctx, "/proc/self/exe", append([]string{verb}, paths...)...)
	command.Env = []string{}
	command.Dir = "/"
	command.WaitDelay = time.Second
	if os.Geteuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	out, err := command.Output()
	if err != nil || len(out) > 2*MaxLineBytes {
		return ""
	}
	return strings.TrimSpace(string(out))
}
