package swap

// course is what a job does by step, whatever is chosen: worked out once for all plans of it.
type course struct {
	job *Job
	// load is what lives at each step, began when each begins without swapping.
	load, began []int64
	absences    []Absence
	// starts, ends and uses are blocks by step. A use in the step in which a block is made is its making.
	starts, ends, uses buckets
	// first is, by block, the index of the first access after that.
	first []int32
}

func newCourse(j *Job) *course {
	n := len(j.StepNanos)
	c := &course{job: j, load: j.load(), began: make([]int64, n+1), absences: j.absences(), starts: newBuckets(n), ends: newBuckets(n), uses: newBuckets(n), first: make([]int32, len(j.Blocks))}
	for i, nanos := range j.StepNanos {
		c.began[i+1] = c.began[i] + nanos
	}
	for pass := range 2 {
		for i, b := range j.Blocks {
			c.starts.add(pass, int32(b.Start), int32(i))
			if b.End < int64(n) {
				c.ends.add(pass, int32(b.End), int32(i))
			}
			for _, a := range j.Accesses[i] {
				if int64(a) > b.Start {
					c.uses.add(pass, a, int32(i))
				}
			}
		}
		c.starts.turn(pass)
		c.ends.turn(pass)
		c.uses.turn(pass)
	}
	for i, b := range j.Blocks {
		if a := j.Accesses[i]; len(a) > 0 && int64(a[0]) == b.Start {
			c.first[i] = 1
		}
	}
	return c
}

// buckets hold numbers by step, in two passes: count, then fill.
type buckets struct {
	from  []int32
	items []int32
}

func newBuckets(steps int) buckets { return buckets{from: make([]int32, steps+2)} }

func (b *buckets) add(pass int, step, item int32) {
	if pass == 0 {
		b.from[step+2]++
		return
	}
	b.items[b.from[step+1]] = item
	b.from[step+1]++
}

func (b *buckets) turn(pass int) {
	if pass == 0 {
		for i := 1; i < len(b.from); i++ {
			b.from[i] += b.from[i-1]
		}
		b.items = make([]int32, b.from[len(b.from)-1])
	}
}

func (b *buckets) at(step int32) []int32 { return b.items[b.from[step]:b.from[step+1]] }
