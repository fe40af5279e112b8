package allocator

// freeKey is the order of free blocks: by size, then by the age of their memory where the release knows it, then by address.
type freeKey struct {
	size, addr uint64
	born       uint32
}

func (k freeKey) less(o freeKey) bool {
	if k.size != o.size {
		return k.size < o.size
	}
	if k.born != o.born {
		return k.born < o.born
	}
	return k.addr < o.addr
}

// freeEntry is one free block as the search sees it.
type freeEntry struct {
	freeKey
	block blockRef
}

// runLen bounds one run of a freeSet: a shift of half a run costs less than a cache miss of a balanced tree would.
const runLen = 64

type freeRun struct {
	n int
	e [runLen]freeEntry
}

// freeSet keeps the free blocks of one stream in one pool in order. It is a two-level array: a directory of short sorted runs, none empty.
type freeSet struct {
	dir []runHead
	// spare keeps one emptied run, so that a set that flickers around a boundary does not allocate.
	spare *freeRun
	count int
}

// runHead repeats the last entry of its run, so that the directory is searched without touching the runs.
type runHead struct {
	last freeKey
	run  *freeRun
}

// cursor is a position in a freeSet. It is void after any change of the set.
type cursor struct{ d, i int }

func (s *freeSet) at(c cursor) *freeEntry { return &s.dir[c.d].run.e[c.i] }

func (s *freeSet) valid(c cursor) bool { return c.d < len(s.dir) }

func (s *freeSet) next(c cursor) cursor {
	if c.i+1 < s.dir[c.d].run.n {
		return cursor{c.d, c.i + 1}
	}
	return cursor{c.d + 1, 0}
}

// prev steps back; ok is false at the first entry. The end position may be stepped back from.
func (s *freeSet) prev(c cursor) (cursor, bool) {
	if c.i > 0 {
		return cursor{c.d, c.i - 1}, true
	}
	if c.d == 0 {
		return c, false
	}
	return cursor{c.d - 1, s.dir[c.d-1].run.n - 1}, true
}

// lowerBound finds the first entry that is not below key.
func (s *freeSet) lowerBound(key freeKey) cursor {
	d := 0
	if len(s.dir) > 1 {
		lo, hi := 0, len(s.dir)
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if s.dir[mid].last.less(key) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		d = lo
	}
	if d == len(s.dir) {
		return cursor{d, 0}
	}
	run := s.dir[d].run
	lo, hi := 0, run.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if run.e[mid&(runLen-1)].less(key) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == run.n { // only when there is a single run whose head was not consulted
		return cursor{d + 1, 0}
	}
	return cursor{d, lo}
}

func (s *freeSet) insert(e freeEntry) {
	s.count++
	if len(s.dir) == 0 {
		run := s.newRun()
		run.n = 1
		run.e[0] = e
		s.dir = append(s.dir, runHead{e.freeKey, run})
		return
	}
	c := s.lowerBound(e.freeKey)
	if c.d == len(s.dir) {
		c = cursor{c.d - 1, s.dir[c.d-1].run.n}
	}
	run := s.dir[c.d].run
	if run.n == runLen {
		s.split(c.d)
		if half := s.dir[c.d].run.n; c.i > half {
			c = cursor{c.d + 1, c.i - half}
		}
		run = s.dir[c.d].run
	}
	copy(run.e[c.i+1:run.n+1], run.e[c.i:run.n])
	run.e[c.i] = e
	run.n++
	if c.i == run.n-1 {
		s.dir[c.d].last = e.freeKey
	}
}

func (s *freeSet) newRun() *freeRun {
	if r := s.spare; r != nil {
		s.spare = nil
		return r
	}
	return new(freeRun)
}

func (s *freeSet) split(d int) {
	left := s.dir[d].run
	right := s.newRun()
	half := runLen / 2
	right.n = copy(right.e[:], left.e[half:])
	left.n = half
	s.dir = append(s.dir, runHead{})
	copy(s.dir[d+2:], s.dir[d+1:])
	s.dir[d+1] = runHead{s.dir[d].last, right}
	s.dir[d].last = left.e[half-1].freeKey
}

// remove takes the entry at c out.
func (s *freeSet) remove(c cursor) {
	s.count--
	run := s.dir[c.d].run
	copy(run.e[c.i:run.n-1], run.e[c.i+1:run.n])
	run.n--
	if run.n == 0 {
		s.spare = run
		s.dir = append(s.dir[:c.d], s.dir[c.d+1:]...)
		return
	}
	if c.i == run.n {
		s.dir[c.d].last = run.e[run.n-1].freeKey
	}
}

// take removes the entry with exactly this key, which must be there.
func (s *freeSet) take(key freeKey) {
	c := s.lowerBound(key)
	if !s.valid(c) || s.at(c).freeKey != key {
		panic("allocator: a free block is missing from its set")
	}
	s.remove(c)
}

// moveDown replaces the entry at c by a smaller one; it saves a removal and an insertion when the new one stays in the run.
func (s *freeSet) moveDown(c cursor, e freeEntry) {
	if c.d > 0 {
		if e.less(s.dir[c.d-1].last) {
			s.remove(c)
			s.insert(e)
			return
		}
	}
	run := s.dir[c.d].run
	i := c.i
	for i > 0 && !run.e[i-1].less(e.freeKey) {
		run.e[i] = run.e[i-1]
		i--
	}
	run.e[i] = e
	s.refreshHead(c.d, c.i)
}

// replaceUp exchanges the entry with the key old, which must be there, for a larger one.
func (s *freeSet) replaceUp(old freeKey, e freeEntry) {
	c := s.lowerBound(old)
	if !s.valid(c) || s.at(c).freeKey != old {
		panic("allocator: a free block is missing from its set")
	}
	if c.d+1 < len(s.dir) && s.dir[c.d].last.less(e.freeKey) {
		s.remove(c)
		s.insert(e)
		return
	}
	run := s.dir[c.d].run
	i := c.i
	for i+1 < run.n && run.e[i+1].less(e.freeKey) {
		run.e[i] = run.e[i+1]
		i++
	}
	run.e[i] = e
	s.refreshHead(c.d, i)
}

// refreshHead repeats the last entry of run d in the directory, when position i, which was written, is the last.
func (s *freeSet) refreshHead(d, i int) {
	run := s.dir[d].run
	if i == run.n-1 {
		s.dir[d].last = run.e[i].freeKey
	}
}
