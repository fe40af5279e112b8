package allocator

// Stat is one statistic over time, as torch.cuda.memory_stats counts it.
type Stat struct {
	Current, Peak int64
	// Allocated and Freed are the sums of all rises and of all falls.
	Allocated, Freed int64
}

func (s *Stat) rise(n int64) {
	s.Current += n
	if s.Current > s.Peak {
		s.Peak = s.Current
	}
	s.Allocated += n
}

func (s *Stat) fall(n int64) {
	s.Current -= n
	s.Freed += n
}

// PoolStat is a statistic for all pools together, for the small and for the large ones.
type PoolStat struct {
	All, Small, Large Stat
}

func (p *PoolStat) rise(small bool, n int64) {
	p.All.rise(n)
	if small {
		p.Small.rise(n)
	} else {
		p.Large.rise(n)
	}
}

func (p *PoolStat) fall(small bool, n int64) {
	p.All.fall(n)
	if small {
		p.Small.fall(n)
	} else {
		p.Large.fall(n)
	}
}

// change applies one net change, as a merge does.
func (p *PoolStat) change(small bool, n int64) {
	switch {
	case n > 0:
		p.rise(small, n)
	case n < 0:
		p.fall(small, -n)
	}
}

// Stats holds the counters of one allocator. Names follow torch.cuda.memory_stats.
type Stats struct {
	Allocation         PoolStat
	AllocatedBytes     PoolStat
	Active             PoolStat
	ActiveBytes        PoolStat
	RequestedBytes     PoolStat
	ReservedBytes      PoolStat
	Segment            PoolStat
	InactiveSplit      PoolStat
	InactiveSplitBytes PoolStat
	// OversizeAllocations and OversizeSegments count pieces of at least max_split_size.
	OversizeAllocations, OversizeSegments Stat

	Retries, OOMs, SyncAllStreams int64
	// DeviceAllocs and DeviceFrees count calls of the driver: cudaMalloc and map, cudaFree and unmap.
	DeviceAllocs, DeviceFrees int64
	// OOMRejections counts requests refused before the driver was asked (throw_on_cudamalloc_oom).
	OOMRejections int64
}
