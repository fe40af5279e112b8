// Package hostmem measures how much memory a set of processes takes together,
// cheaply enough to do it many times a second: what the same processes would
// need on a node with the GPU that they believe in, and what they hold here.
// It owns no policy.
package hostmem

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// interval between two looks at the processes.
	interval = 50 * time.Millisecond
	// A look at every mapping walks the page tables. It is made at once when processes have grown by a twentieth of all and by growthBytes, since
	// what has grown may be shared; and else, for pages that stop being shared while nothing grows, so seldom that it costs this share of the time.
	growthDivisor = 20
	growthBytes   = 16 << 20
	restTimes     = 20
	leastRest     = 500 * time.Millisecond
	// patience is how long the counters wait for such a look: many mappings make it slow, and whoever made them may take memory meanwhile.
	patience = 100 * time.Millisecond
)

// Use is what the processes take together, in bytes.
type Use struct {
	// NeedBytes is what they would take on a node with the GPU: memory of their own and shared memory, each page once; pinned memory in full; the pages
	// of programs and libraries; page tables. Files that they map are the kernel's to drop and not in it, nor is the memory of the virtual card.
	NeedBytes int64
	// HeldBytes is what they take here: without the pages of pinned memory that nobody has touched, and with those of the virtual card.
	HeldBytes int64
}

func (u Use) max(v Use) Use {
	return Use{NeedBytes: max(u.NeedBytes, v.NeedBytes), HeldBytes: max(u.HeldBytes, v.HeldBytes)}
}

func (u Use) plus(v Use) Use {
	return Use{NeedBytes: u.NeedBytes + v.NeedBytes, HeldBytes: u.HeldBytes + v.HeldBytes}
}

// Lister names the processes to measure.
type Lister func() []int

// Sampler measures until it is stopped.
type Sampler struct {
	list   Lister
	step   int64
	notify func(peak Use)
	stop   chan struct{}
	done   sync.WaitGroup
	// inside says that the segments and the files in /dev/shm which can be seen are those of the processes that are measured.
	inside bool
	// scratch are the mount points of other files in memory that they write, which are bounded by themselves.
	scratch []string
	hidden  hidden

	peak, notified Use
	limits         Limits
	lastLimits     Limits           // of processes that had ended; no look has a part in them
	known          map[int]*process // by number, as at the last look
	lastSum        int64            // plain sum when every mapping was looked at
	lastUse        Use
	lastShared     int64 // shared memory of the whole machine then
	lastLook       time.Time
	rest           time.Duration
	running        chan closeLook // a look that has not ended yet
}

// process is what is known of one process.
type process struct {
	status
	mappings mappings // when they were looked at
	plain    int64    // its plain bytes then
	// frozen: what it takes now is for gresize's own report of it. It holds nowBytes all the same.
	frozen   bool
	nowBytes int64
	// baseBytes is what it had when it was first seen, or when its mappings were.
	baseBytes int64
}

// Start begins to measure. notify, when given, is told the peak each time it has grown by stepBytes.
func Start(list Lister, stepBytes int64, notify func(peak Use)) *Sampler {
	return start(&Sampler{list: list, step: stepBytes, notify: notify})
}

// StartInside is Start for the first process of a process, a mount and an IPC namespace: all that it can see is measured. scratch are the mount points of
// other files in memory that the processes write, whose size has a bound of its own.
func StartInside(list Lister, stepBytes int64, notify func(peak Use), scratch ...string) *Sampler {
	s := &Sampler{list: list, step: stepBytes, notify: notify, inside: true, scratch: scratch}
	s.hidden.bytes(scratch)
	return start(s)
}

func start(s *Sampler) *Sampler {
	s.stop = make(chan struct{})
	s.done.Add(1)
	go s.run()
	return s
}

// Stop ends the measurement and returns the peak.
func (s *Sampler) Stop() Use {
	close(s.stop)
	s.done.Wait()
	return s.peak
}

// Limits are those that the processes were under; to be asked after Stop.
func (s *Sampler) Limits() Limits { return s.limits.lowered(s.lastLimits) }

// Ended is called with a child that has ended and is not reaped yet: it may have taken its limits after the last look. What calls it asks for Limits, too.
func (s *Sampler) Ended(pid int) { s.lastLimits = s.lastLimits.lowered(readLimits(pid)) }

func (s *Sampler) run() {
	defer s.done.Done()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.sample()
		}
	}
}

func (s *Sampler) sample() {
	pids := s.list()
	sum, grown, spike := s.look(pids)
	if sum == 0 {
		return
	}
	if s.running == nil && s.due(sum, grown) {
		s.running = make(chan closeLook, 1)
		go lookClosely(s.running, s.open(pids), pids, s.inside)
	}
	if s.running != nil {
		select {
		case seen := <-s.running:
			s.running = nil
			s.take(seen, pids, sum)
			grown = 0
		case <-time.After(patience):
			// What is shared is not known yet, but that a process has grown since it was first seen is.
			s.tell(s.peak.max(Use{HeldBytes: s.lastUse.HeldBytes + s.grownSinceSeen() + s.besides()}))
			return
		}
	}
	// Between two close looks the growth is taken as memory of its own.
	grown += spike
	use := s.lastUse.plus(Use{NeedBytes: grown, HeldBytes: grown})
	use.HeldBytes += s.besides()
	s.tell(s.peak.max(use))
}

func (s *Sampler) tell(peak Use) {
	s.peak = peak
	if s.notify != nil && (s.peak.NeedBytes >= s.notified.NeedBytes+s.step || s.peak.HeldBytes >= s.notified.HeldBytes+s.step) {
		s.notified = s.peak
		s.notify(s.peak)
	}
}

// besides is what is held and needed by none of the programs: for reports of ours, and where no process has it.
func (s *Sampler) besides() int64 {
	var sum int64
	for _, p := range s.known {
		if p.frozen {
			sum += max(0, p.nowBytes-p.plainBytes())
		}
	}
	if s.inside {
		sum += s.hidden.bytes(s.scratch)
	}
	return sum
}

func (s *Sampler) grownSinceSeen() int64 {
	var sum int64
	for _, p := range s.known {
		sum += max(0, p.nowBytes-p.baseBytes)
	}
	return sum
}

// open lists the processes whose mappings are to be looked at.
func (s *Sampler) open(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return s.known[pid] == nil || s.known[pid].frozen })
}

// look reads the counters of every process: their sum, in which what is shared counts for each, by how much processes have grown since the last close look, and
// how much higher they were for a moment since the last look.
func (s *Sampler) look(pids []int) (sum, grown, spike int64) {
	seen := make(map[int]*process, len(pids))
	for _, pid := range pids {
		now, ok := readStatus(pid)
		if !ok {
			continue
		}
		if slices.Contains(pids, now.parent) && shareMemory(pid, now.parent) {
			continue
		}
		p := s.known[pid]
		had, reporting := now.reporting()
		switch {
		case p == nil:
			p = &process{status: now, baseBytes: now.plainBytes()}
			s.hidden.meet(pid, s.inside)
			s.limits = s.limits.lowered(readLimits(pid))
		case reporting:
			if !p.frozen { // what it took since the last look was still the program's
				p.ownBytes += max(0, had-p.ownBytes-p.sharedBytes)
			}
			p.highestBytes = now.highestBytes
		default:
			if now.highestBytes > p.highestBytes {
				spike += max(0, now.highestBytes-max(now.residentBytes(), p.residentBytes()))
			}
			p.status = now
		}
		p.frozen, p.nowBytes = reporting, now.plainBytes()
		seen[pid] = p
		sum += p.plainBytes()
		grown += max(0, p.plainBytes()-p.plain)
	}
	s.known = seen
	return sum, grown, spike
}

// due says whether the mappings are to be looked at.
func (s *Sampler) due(sum, grown int64) bool {
	if grown > max(s.lastUse.NeedBytes/growthDivisor, growthBytes) {
		return true
	}
	since := time.Since(s.lastLook)
	if since > max(s.rest, leastRest) {
		return true
	}
	if since < s.rest/4 {
		return false
	}
	shared := sharedOfMachine()
	return sum < s.lastSum-max(s.lastSum/growthDivisor, growthBytes) || shared > s.lastShared+growthBytes || shared < s.lastShared-growthBytes
}

// closeLook is what every mapping of every process says.
type closeLook struct {
	begun, ended    time.Time
	sharedOfMachine int64
	of              map[int]processSeen
	// namelessBytes are in files without a name that processes have open; hidden: there may be more.
	namelessBytes int64
	hidden        bool
}

type processSeen struct {
	// mappings are read piece by piece: what the process moves meanwhile (mremap) may be in them twice.
	mappings mappings
	// open: it could be looked at; now is what it was then.
	open  bool
	now   status
	found bool
}

// alive is false of a process that has ended, of which neither mappings nor sizes can be read. One that closes itself to others still shows its sizes.
func (p *processSeen) alive() bool { return p.found && p.now.alive() }

// lookClosely looks at the processes and says so on the channel. It keeps nothing: it may take its time, and be forgotten.
func lookClosely(answer chan<- closeLook, pids, all []int, inside bool) {
	look := closeLook{begun: time.Now(), sharedOfMachine: sharedOfMachine(), of: make(map[int]processSeen, len(pids))}
	for _, pid := range pids {
		var p processSeen
		p.mappings, p.open = readMappings(pid)
		p.now, p.found = readStatus(pid) // it may have grown meanwhile, and that is in its mappings now
		look.of[pid] = p
	}
	look.namelessBytes, look.hidden = memoryFiles(all, inside)
	look.ended = time.Now()
	answer <- look
}

// take works out what the processes take together, as a close look found them.
func (s *Sampler) take(look closeLook, pids []int, sum int64) {
	s.lastShared = look.sharedOfMachine
	var own, whole, device, nameless, sharedFiles, shared int64
	pinned, libraries := pinnedRanges{}, map[string]int64{}
	for _, pid := range pids {
		p := s.known[pid]
		if p == nil {
			continue
		}
		seen, looked := look.of[pid]
		before := looked && seen.open && seen.found && !seen.now.isReporting() // it was looked at before it began to report
		switch {
		case p.frozen, looked && !before && seen.open && p.plain > 0: // what it took between the last close look at it and its report
			if before {
				p.mappings, p.plain = seen.mappings, seen.now.plainBytes()
			}
			p.mappings.ownBytes += max(0, p.plainBytes()-p.plain)
		case !looked, !seen.open && !seen.alive(): // it came meanwhile, or has ended
			continue
		case seen.open:
			p.mappings = seen.mappings
			if seen.found {
				// Of what was moved meanwhile, and is in them twice, at most what the process has in all.
				p.mappings.sharedBytes = min(p.mappings.sharedBytes, max(p.sharedBytes, seen.now.sharedBytes))
				most := max(p.ownBytes, seen.now.ownBytes) + p.mappings.sharedBytes
				p.mappings.ownBytes, p.mappings.wholeBytes = min(p.mappings.ownBytes, most), min(p.mappings.wholeBytes, most)
			}
			if before {
				p.status = seen.now
			}
		default: // all that is known of it is its plain bytes
			p.mappings = mappings{ownBytes: p.ownBytes + p.sharedBytes}
		}
		p.plain = p.plainBytes()
		p.baseBytes = p.plain
		own += p.mappings.ownBytes + p.tableBytes
		whole = max(whole, p.mappings.wholeBytes+p.tableBytes)
		device += p.mappings.deviceBytes
		nameless += p.mappings.namelessBytes
		sharedFiles += p.mappings.sharedFileBytes
		shared += p.mappings.sharedBytes
		s.limits = s.limits.lowered(readLimits(pid))
		s.hidden.meet(pid, s.inside)
		pinned.add(pid, p.parent, p.mappings.pinned)
		for path, resident := range p.mappings.libraries { // most of the pages that processes have of one are the same
			libraries[path] = max(libraries[path], resident)
		}
	}
	held, segments := s.held(max(look.namelessBytes, nameless), sharedFiles)
	s.hidden.seenBytes, s.hidden.is = max(look.namelessBytes, nameless)+segments+shared, s.hidden.is || look.hidden
	// A child that ended before it was looked at leaves only its parent's part of what they shared.
	need := max(own, whole) + held
	for _, resident := range libraries {
		need += resident
	}
	s.lastUse = Use{NeedBytes: need + pinned.untouchedBytes(), HeldBytes: need + device}
	s.lastSum = sum
	s.lastLook = look.ended
	s.rest = restTimes * look.ended.Sub(look.begun)
}

// AllButSelf lists every process that this one can see except itself: what is
// wanted by the first process of a process namespace.
func AllButSelf() []int {
	self := os.Getpid()
	pids := make([]int, 0, 16)
	for _, pid := range allProcesses() {
		if pid != self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TreeOf lists a process and its descendants.
func TreeOf(root int) Lister {
	return func() []int {
		children := map[int][]int{}
		for _, pid := range allProcesses() {
			if parent := parentOf(pid); parent > 0 {
				children[parent] = append(children[parent], pid)
			}
		}
		tree := []int{root}
		for i := 0; i < len(tree); i++ {
			tree = append(tree, children[tree[i]]...)
		}
		return tree
	}
}

func allProcesses() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf reads the field after the command name, which may itself hold blanks and brackets. It is asked of every process of the machine: the
// file "status" would cost more.
func parentOf(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}
