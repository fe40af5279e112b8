package request

import "strconv"

// ByNode is a request in which the memory and the CPUs that were asked for by the GPU are asked for by the node.
type ByNode struct {
	Request Request
	// MemMiB and CPUs are what the node has to have; 0: nothing was asked for by the GPU.
	MemMiB uint64
	CPUs   uint32
	// Drop are the variables to take out of the job's environment, by which an srun inside it would ask by the GPU again.
	Drop []string
}

// byGPUVariables are what sbatch leaves of --mem-per-gpu and --cpus-per-gpu.
const (
	memPerGPUVariable  = "SLURM_MEM_PER_GPU"
	cpusPerGPUVariable = "SLURM_CPUS_PER_GPU"
)

// Bounds on what one GPU brings with it: a larger number is no number of MiB or CPUs.
const (
	maxMemPerGPUMiB = 1 << 30
	maxCPUsPerGPU   = 1 << 12
)

// ByNode asks by the node for what a request with one GPU asks by the GPU: of one GPU both mean the same. No update can do that later, and a job
// that keeps it can never be given shards (tried on 24.11.5): so it is done when the job is submitted, where a target is shards and the release can give
// them. The caller makes sure that the job has one task on one node. ok is false where nothing is to be changed.
func (r Request) ByNode(targets []Target, o Options, environment []string, script string) (b ByNode, ok bool) {
	asks := r.Asks()
	if r.MemPerTres == "" && r.CpusPerTres == "" || r.MemPerNodeMiB > 0 || len(asks) != 1 || asks[0].Name != "gpu" || asks[0].Count != 1 {
		return ByNode{}, false
	}
	memory, cpus := perGPU(r.MemPerTres), perGPU(r.CpusPerTres)
	if r.MemPerTres != "" && (memory == 0 || memory > maxMemPerGPUMiB) || r.CpusPerTres != "" && (cpus == 0 || cpus > maxCPUsPerGPU) {
		return ByNode{}, false
	}
	b = ByNode{Request: r, MemMiB: memory, CPUs: uint32(cpus)}
	b.Request.MemPerTres, b.Request.CpusPerTres = "", ""
	if !b.Request.reachesShards(targets, o, environment, script) {
		return ByNode{}, false
	}
	for _, name := range []string{memPerGPUVariable, cpusPerGPUVariable} {
		if !has(environment, name) {
			continue
		}
		if speaksOf(script, name) {
			return ByNode{}, false
		}
		b.Drop = append(b.Drop, name)
	}
	return b, true
}

// perGPU is the number of a list such as gres/gpu:8192; 0 where it is another list.
func perGPU(text string) uint64 {
	list := ParseList(text)
	if len(list) != 1 || list[0].Name != "gpu" || list[0].Type != "" {
		return 0
	}
	// Slurm writes a plain number of MiB or CPUs there; with a unit it would be another one.
	digits := strconv.FormatUint(list[0].Count, 10)
	if raw := list[0].Raw; len(raw) <= len(digits) || raw[len(raw)-len(digits):] != digits {
		return 0
	}
	return list[0].Count
}

// reachesShards tells whether one of the targets is shards that the request can be changed to.
func (r Request) reachesShards(targets []Target, o Options, environment []string, script string) bool {
	o.EnvDropped = r.InnerSrun(targets, o, environment, script).Clear
	for _, t := range targets {
		if t.Shards == 0 {
			continue
		}
		if _, err := r.Change(t, o); err == nil {
			return true
		}
	}
	return false
}
