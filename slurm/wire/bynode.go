package wire

// ByNode asks for memory and CPUs of the node in place of those that a request asks for by the GPU. 0: nothing was asked for.
func ByNode(r *Request, memMiB uint64, cpus uint32) Rewrite {
	var w Rewrite
	if memMiB > 0 {
		w.MemPerTres, w.PnMinMemory = new(string), &memMiB
	}
	if cpus > 0 {
		w.CPUsPerTres, w.PnMinCPUs = new(string), &cpus
		least := cpus
		if r.MinCPUs != nil && *r.MinCPUs > least {
			least = *r.MinCPUs
		}
		w.MinCPUs = &least
	}
	return w
}
