// Package hostmem measures how much memory a set of processes takes together,
// cheaply enough to do it many times a second. It owns no policy.
package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// interval between two looks at the processes.
const interval = 50 * time.Millisecond

// Pages that several processes share are counted once, by the proportional
// size that smaps_rollup gives. It walks page tables, so it is read only when
// the plain sum has grown by a twentieth and by growthBytes.
const (
	growthDivisor = 20
	growthBytes   = 16 << 20
)

// Lister names the processes to measure.
type Lister func() []int

// Sampler measures until it is stopped.
type Sampler struct {
	list   Lister
	step   int64
	notify func(peakBytes int64)
	stop   chan struct{}
	done   sync.WaitGroup

	peak         int64 // best known proportional peak
	notified     int64
	lastSum      int64 // plain sum at the last proportional reading
	lastPortions int64
	nameless     nameless
}

// Start begins to measure. notify, when given, is told each time the peak has grown by stepBytes.
func Start(list Lister, stepBytes int64, notify func(peakBytes int64)) *Sampler {
	return start(&Sampler{list: list, step: stepBytes, notify: notify})
}

// StartInside is Start for the first process of a process and an IPC namespace: all that it can see is measured.
func StartInside(list Lister, stepBytes int64, notify func(peakBytes int64)) *Sampler {
	return start(&Sampler{list: list, step: stepBytes, notify: notify, nameless: nameless{segments: true}})
}

func start(s *Sampler) *Sampler {
	s.stop = make(chan struct{})
	s.done.Add(1)
	go s.run()
	return s
}

// Stop ends the measurement and returns the peak in bytes.
func (s *Sampler) Stop() int64 {
	close(s.stop)
	s.done.Wait()
	return s.peak
}

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
	var sum int64
	for _, pid := range pids {
		sum += resident(pid)
	}
	if sum == 0 {
		return
	}
	if sum > s.lastSum+max(s.lastSum/growthDivisor, growthBytes) {
		var portions int64
		for _, pid := range pids {
			portions += proportional(pid)
		}
		if portions > 0 {
			s.lastSum, s.lastPortions = sum, portions
		}
	}
	// Between two readings the growth is taken as memory of its own.
	held := s.nameless.sample(pids)
	now := s.lastPortions + max(0, sum-s.lastSum) + held
	if s.lastPortions+held > 0 && now > s.peak {
		s.peak = now
	}
	if s.notify != nil && s.peak >= s.notified+s.step {
		s.notified = s.peak
		s.notify(s.peak)
	}
}

var pageSize = int64(os.Getpagesize())

// resident reads the second number of statm.
func resident(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * pageSize
}

func proportional(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return resident(pid)
	}
	if share := field(data, "Pss:"); share > 0 {
		return share
	}
	return resident(pid)
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

// parentOf reads the field after the command name, which may itself hold blanks and brackets.
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
