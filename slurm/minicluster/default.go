package minicluster

// DefaultUser is the account that submits jobs; tools/setup creates it.
const DefaultUser = "gresize-user"

// DefaultSlurmUser is the account of slurmctld; Debian's package creates it.
const DefaultSlurmUser = "slurm"

// Default is the cluster of the demo and of most tests: one node without a
// GPU, one with a small card and one with a large card. Both cards can be
// shared, one shard for each GiB. Callers add the virtual GPU to the nodes that
// have a GPUModel.
func Default() Options {
	return Options{
		Nodes: []Node{
			{Name: "cpu1", CPUs: 8, RealMemoryMiB: 32 * 1024},
			{
				Name: "gpu1", CPUs: 8, RealMemoryMiB: 64 * 1024,
				GPUModel: "rtx3060", GPUType: "rtx3060", GPUs: 1, Shards: 12, Features: []string{"gpu12g"},
			},
			{
				Name: "gpu2", CPUs: 8, RealMemoryMiB: 64 * 1024,
				GPUModel: "a100-80", GPUType: "a100", GPUs: 1, Shards: 80, Features: []string{"gpu80g", "a100"},
			},
		},
	}
}
