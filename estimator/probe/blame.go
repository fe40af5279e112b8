package probe

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe/hostmem"
)

// The words of the C library and of Python for what a machine, or the sandbox, does not give. They never make an answer
// surer: a command that failed with them may not be at fault itself.
var (
	noSpace  = regexp.MustCompile(`No space left on device|Disk quota exceeded`)
	noMemory = regexp.MustCompile(`[Cc]annot allocate memory|can't allocate memory|\bMemoryError|std::bad_alloc`)
	noFiles  = regexp.MustCompile(`Too many open files`)
	tooLarge = regexp.MustCompile(`File too large`)
	noCUDA   = regexp.MustCompile(`\blib(?:cu|nv|nccl)[A-Za-z0-9_.*\[\]-]*.{0,40}(?:cannot open shared object file|not found in the system path)`)
)

// faultSignals are those by which a program ends that does not want to.
var faultSignals = map[int]string{int(syscall.SIGSEGV): "SIGSEGV", int(syscall.SIGABRT): "SIGABRT", int(syscall.SIGBUS): "SIGBUS", int(syscall.SIGILL): "SIGILL", int(syscall.SIGFPE): "SIGFPE"}

// blame names what else than the command may have made it fail. It looks at a command that failed by itself.
func (r *run) blame(reports Reports) []estimator.Reason {
	var found []estimator.Reason
	text := r.output.text()
	signal := r.exit.Code - 128 // as a shell says it of its child
	limits := r.exit.Limits
	add := func(code, format string, args ...any) {
		found = append(found, reason(code, fmt.Sprintf(format, args...)))
	}
	switch {
	case limits.CPUSeconds > 0 && (signal == int(syscall.SIGKILL) || signal == int(syscall.SIGXCPU)):
		add(estimator.CodeResourceLimit, "a process was ended at its time on the CPU: %d s (ulimit -t)", limits.CPUSeconds)
	case signal == int(syscall.SIGKILL):
		add(estimator.CodeOutOfHostMemory, "a process was killed, as the kernel does when the machine or the job's group has no memory left")
	case signal == int(syscall.SIGXFSZ):
		add(estimator.CodeResourceLimit, "a file grew to the limit of %d bytes (ulimit -f)", limits.FileBytes)
	case faultSignals[signal] != "" && reports.TorchSeen:
		add(estimator.CodeCrashedOnVirtual, "ended by %s", faultSignals[signal])
	}
	if r.exit.TooLarge != "" {
		add(estimator.CodeOutOfDisk, "%s", r.exit.TooLarge)
	} else if noSpace.MatchString(text) {
		add(estimator.CodeOutOfDisk, "%q%s", noSpace.FindString(text), unpacked(r.options.Command, r.scriptText()))
	}
	if word := noMemory.FindString(text); word != "" && signal != int(syscall.SIGKILL) {
		if limit := memoryLimits(limits); limit != "" {
			add(estimator.CodeAddressSpace, "%q, under %s", word, limit)
		} else {
			add(estimator.CodeOutOfHostMemory, "%q", word)
		}
	}
	if noFiles.MatchString(text) {
		add(estimator.CodeResourceLimit, "%q: %d are allowed (ulimit -n)", noFiles.FindString(text), limits.OpenFiles)
	}
	if tooLarge.MatchString(text) && limits.FileBytes > 0 {
		add(estimator.CodeResourceLimit, "%q: %d bytes are allowed (ulimit -f)", tooLarge.FindString(text), limits.FileBytes)
	}
	if !reports.TorchSeen && noCUDA.MatchString(text) {
		add(estimator.CodeEnvironmentReplaced, "a program that nobody saw wants a library of NVIDIA's: %s", noCUDA.FindString(text))
	}
	return found
}

// memoryLimits names the limits on the memory of one process.
func memoryLimits(l hostmem.Limits) string {
	var names []string
	if l.AddressBytes > 0 {
		names = append(names, fmt.Sprintf("a limit of %d MiB on address space (ulimit -v)", l.AddressBytes>>20))
	}
	if l.DataBytes > 0 {
		names = append(names, fmt.Sprintf("a limit of %d MiB on data (ulimit -d)", l.DataBytes>>20))
	}
	return strings.Join(names, " and ")
}

// leastFileBytes is what the reports of a process may need.
const leastFileBytes = 64 << 20

// unwritten names what may have kept processes from leaving their reports.
func (r *run) unwritten() []estimator.Reason {
	var found []estimator.Reason
	if r.reportsFull {
		found = append(found, reason(estimator.CodeOutOfDisk, "the place for the reports was full: they are not complete"))
	}
	if n := r.exit.Limits.FileBytes; n > 0 && n < leastFileBytes {
		found = append(found, reason(estimator.CodeResourceLimit, fmt.Sprintf("files may have %d bytes (ulimit -f): a report may be cut off", n)))
	}
	return found
}
