package probe

import (
	"fmt"
	"regexp"
	"syscall"

	"github.com/gresize/gresize/estimator"
)

// The words of the C library and of Python for what a machine, or the sandbox, does not give. They never make an answer
// surer: a command that failed with them may not be at fault itself.
var (
	noSpace  = regexp.MustCompile(`No space left on device|Disk quota exceeded`)
	noMemory = regexp.MustCompile(`Cannot allocate memory|can't allocate memory|\bMemoryError|std::bad_alloc`)
	noCUDA   = regexp.MustCompile(`\blib(?:cu|nv|nccl)[A-Za-z0-9_.*\[\]-]*.{0,40}(?:cannot open shared object file|not found in the system path)`)
)

// faultSignals are those by which a program ends that does not want to.
var faultSignals = map[int]string{int(syscall.SIGSEGV): "SIGSEGV", int(syscall.SIGABRT): "SIGABRT", int(syscall.SIGBUS): "SIGBUS", int(syscall.SIGILL): "SIGILL", int(syscall.SIGFPE): "SIGFPE"}

// blame names what else than the command may have made it fail. It looks at a command that failed by itself.
func (r *run) blame(reports Reports) []estimator.Reason {
	var found []estimator.Reason
	text := r.output.text()
	signal := r.exit.Code - 128 // as a shell says it of its child
	switch {
	case signal == int(syscall.SIGKILL):
		found = append(found, reason("out_of_host_memory", "a process was killed, as the kernel does when the machine or the job's group has no memory left"))
	case faultSignals[signal] != "" && reports.TorchSeen:
		found = append(found, reason("crashed_on_virtual", "ended by "+faultSignals[signal]))
	}
	if noSpace.MatchString(text) {
		found = append(found, reason("out_of_disk", fmt.Sprintf("%q", noSpace.FindString(text))))
	}
	if noMemory.MatchString(text) && signal != int(syscall.SIGKILL) {
		found = append(found, reason("out_of_host_memory", fmt.Sprintf("%q", noMemory.FindString(text))))
	}
	if !reports.TorchSeen && noCUDA.MatchString(text) {
		found = append(found, reason("environment_replaced", "a program that nobody saw wants a library of NVIDIA's: "+noCUDA.FindString(text)))
	}
	return found
}
