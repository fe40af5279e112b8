package allocator

import "slices"

// privatePool is the memory of one CUDA graph or one torch.cuda.MemPool.
type privatePool struct {
	id           int64
	small, large *pool
	// users counts the graphs and pool objects that hold it.
	users    int
	segments int
	noSplit  bool
	useOnOOM bool
}

func (p *privatePool) holdsRange(a *Allocator) bool {
	for _, rng := range a.ranges {
		if rng.alive && (rng.pool == p.small.index || rng.pool == p.large.index) {
			return true
		}
	}
	return false
}

// route sends the requests of some streams to a private pool.
type route struct {
	pool    *privatePool
	streams []uint64 // empty: every stream
	capture bool
}

// PoolOptions describe a private pool.
type PoolOptions struct {
	// Streams are the streams whose requests go to the pool; empty: all.
	Streams []uint64
	// Capture is set for the capture of a CUDA graph, and not for plain use of a MemPool.
	Capture bool
	// NoSplit and UseOnOOM are options of newer MemPool objects.
	NoSplit, UseOnOOM bool
}

// BeginPool makes requests go to the private pool id, which is made when it does not exist.
func (a *Allocator) BeginPool(id int64, o PoolOptions) error {
	for _, r := range a.routes {
		if r.pool.id == id {
			return ErrPool
		}
	}
	p, ok := a.private[id]
	if !ok {
		p = &privatePool{id: id, noSplit: o.NoSplit && a.version.AtLeast(2, 10), useOnOOM: o.UseOnOOM && a.version.AtLeast(2, 8)}
		p.small = a.newPool(true, p)
		p.large = a.newPool(false, p)
		a.private[id] = p
	}
	if p.users == 0 {
		a.freeable = slices.DeleteFunc(a.freeable, func(f *privatePool) bool { return f == p })
	}
	p.users++
	a.routes = append(a.routes, route{pool: p, streams: slices.Clone(o.Streams), capture: o.Capture})
	return nil
}

// EndPool stops what BeginPool began. The pool keeps its memory.
func (a *Allocator) EndPool(id int64) error {
	for i, r := range a.routes {
		if r.pool.id == id {
			a.routes = slices.Delete(a.routes, i, i+1)
			return nil
		}
	}
	return ErrPool
}

// ReleasePool drops one use of the pool; without users its free segments go with the next release of everything.
func (a *Allocator) ReleasePool(id int64) error {
	p, ok := a.private[id]
	if !ok || p.users == 0 {
		return ErrPool
	}
	if p.users--; p.users == 0 {
		a.freeable = append(a.freeable, p)
	}
	return nil
}

// routing reports whether requests may go to a private pool now; completed events are not looked for then.
func (a *Allocator) routing() bool {
	if a.version.AtLeast(2, 13) {
		return a.capturing()
	}
	return len(a.routes) > 0
}

// retryBlocked reports whether releasing everything is out of question.
func (a *Allocator) retryBlocked() bool { return a.routing() }

// capturing reports whether a graph is being captured. Until 2.12 plain routing counted as a capture.
func (a *Allocator) capturing() bool {
	if !a.version.AtLeast(2, 13) {
		return len(a.routes) > 0
	}
	for _, r := range a.routes {
		if r.capture {
			return true
		}
	}
	return false
}

func (r *route) matches(stream uint64) bool {
	return len(r.streams) == 0 || slices.Contains(r.streams, stream)
}

// poolFor chooses the pool of a rounded request.
func (a *Allocator) poolFor(size, stream uint64) *pool {
	small, large := a.small, a.large
	if len(a.routes) > 0 {
		if p := a.routed(stream); p != nil {
			small, large = p.small, p.large
		}
	}
	if a.version.IsSmall(size) {
		return small
	}
	return large
}

// routed returns the private pool that serves the stream: the first registered one until 2.8, the last one from 2.9.
func (a *Allocator) routed(stream uint64) *privatePool {
	last := a.version.AtLeast(2, 9)
	var found *privatePool
	for i := range a.routes {
		if a.routes[i].matches(stream) {
			found = a.routes[i].pool
			if !last {
				break
			}
		}
	}
	return found
}

// searchFallbackPools looks in the pools that may serve any request when the card is full.
func (a *Allocator) searchFallbackPools(r *request) bool {
	if r.pool.private != nil {
		return false
	}
	var ids []int64
	for id, p := range a.private {
		if p.useOnOOM {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		p := a.private[id].large
		if r.pool.small {
			p = a.private[id].small
		}
		if int(r.stream) >= len(p.sets) || p.sets[r.stream] == nil {
			continue
		}
		own, set := r.pool, r.set
		r.pool, r.set = p, p.sets[r.stream]
		if a.search(r) {
			return true
		}
		r.pool, r.set = own, set
	}
	return false
}
