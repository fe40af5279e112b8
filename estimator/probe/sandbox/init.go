package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/gresize/gresize/estimator/probe/hostmem"
	"golang.org/x/sys/unix"
)

// memoryStep is the growth of the peak that is worth a message.
const memoryStep = 16 << 20

// ownThreads is the room that the first process keeps for its own threads.
const ownThreads = 64

// startedThreads is how many it has from the beginning: those of Go's scheduler, and one for each call of the kernel that it may be in at a time.
const startedThreads = 24

// machineInterval is how often it is looked at what the machine has left.
const machineInterval = 50 * time.Millisecond

// exitNotFound is what a shell says of a command that it cannot find or run.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// initMain is the first process inside: it has no rights, starts the command,
// collects the orphans, watches the memory, and takes all with it when it ends.
func initMain() int {
	unix.CloseOnExec(configFD)
	unix.CloseOnExec(controlFD)
	ignoreSignals(true)
	// What the command says through the control socket would be taken for this process's word.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return report(step("close init to the command", err))
	}
	cfg, err := readConfig()
	if err != nil {
		return report(step("read the configuration", err))
	}
	go dieWithParent()
	if err := os.Chdir(cfg.Dir); err != nil {
		return report(step("enter the working directory", err))
	}
	noCore := syscall.Rlimit{}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &noCore); err != nil {
		return report(step("forbid core files", err))
	}
	// The kernel counts processes and threads of this user namespace (Linux 5.14), this process's own among them, but not root's: hence the watch, too.
	var elsewhere int64
	if len(os.Args) > 1 {
		elsewhere, _ = strconv.ParseInt(os.Args[1], 10, 32)
	}
	if err := limitTasks(elsewhere + tasksPerProcess*cfg.Policy.Processes + ownThreads); err != nil {
		return report(step("limit the number of processes", err))
	}
	startThreads()
	pid, err := spawn(cfg)
	keepThreads(pid)
	if err != nil {
		code := exitNotFound
		if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOEXEC) {
			code = exitNotExecutable
		}
		_, _ = os.Stderr.WriteString("gresize: " + cfg.Argv[0] + ": " + err.Error() + "\n")
		_ = send(message{Kind: "exit", Code: code}, nil)
		return code
	}
	sampler := hostmem.StartInside(watched(cfg.Policy.Processes), memoryStep, func(peak hostmem.Use) {
		_ = send(message{Kind: "memory", Bytes: peak.NeedBytes}, nil)
		if peak.HeldBytes > cfg.Policy.HostMemoryBytes {
			endAt(BoundHostMemory, fmt.Sprintf("%d MiB of host memory were held, at most %d are allowed", peak.HeldBytes>>20, cfg.Policy.HostMemoryBytes>>20))
		}
	}, "/", ReportDir)
	go watchMachine(hostmem.Available())
	status := reap(pid, sampler.Ended)
	if status.ExitStatus() != 0 {
		// A program that is refused a process often ends by itself, before the next check: what it has started is still there.
		if what := tooMany(cfg.Policy.Processes); what != "" {
			endAt(BoundProcesses, what)
		}
	}
	m := message{Kind: "exit", Code: status.ExitStatus(), Bytes: sampler.Stop().NeedBytes, Limits: sampler.Limits()}
	if status.Signaled() {
		m.Signal = int(status.Signal())
		m.Code = 128 + m.Signal
	}
	_ = send(m, nil)
	return 0
}

// startThreads starts the threads that this process may come to need, while there is room: a command that has taken the last place of the namespace (kernel.pid_max
// there holds for this process, too) would end it, since Go aborts when it cannot start one. An idle thread stays, and Go takes it before it starts another.
func startThreads() {
	var all, ready sync.WaitGroup
	begin := make(chan struct{})
	for range startedThreads {
		ready.Add(1)
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-begin
		})
	}
	ready.Wait()
	close(begin)
	all.Wait()
}

// watched lists the processes to measure, and ends everything when they are too many.
func watched(most int64) hostmem.Lister {
	return func() []int {
		pids := hostmem.AllButSelf()
		if int64(len(pids)) > most {
			endAt(BoundProcesses, manyAtOnce(len(pids), most))
		}
		return pids
	}
}

func manyAtOnce(processes int, most int64) string {
	return fmt.Sprintf("%d processes were there at once, at most %d are allowed", processes, most)
}

// tooMany says at which bound on processes the command stands, or returns "". The other limit may be the machine's own, where it is lower than the policy's.
func tooMany(most int64) string {
	pids := hostmem.AllButSelf()
	if int64(len(pids)) > most {
		return manyAtOnce(len(pids), most)
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	tasks := uint64(0)
	for _, pid := range pids {
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err == nil {
			tasks += uint64(len(threads))
		}
	}
	if allowed := limit.Cur - min(limit.Cur, ownThreads); tasks >= allowed-allowed/16 && tasks > 0 {
		return fmt.Sprintf("%d processes and threads were there at once, and at most %d are allowed", tasks, allowed)
	}
	return ""
}

// endAt says why, and ends this process, and with it everything inside.
func endAt(bound Bound, what string) {
	_ = send(message{Kind: "bound", Op: string(bound), Text: what}, nil)
	os.Exit(exitSetupFailed)
}

// watchMachine ends everything when the machine has a tenth left of what it had free: whatever took it, and wherever that is not to be seen.
func watchMachine(before int64) {
	for range time.Tick(machineInterval) {
		if free := hostmem.Available(); free > 0 && free < before/10 {
			endAt(BoundHostMemory, fmt.Sprintf("the machine had %d MiB of memory left, of %d when the command began", free>>20, before>>20))
		}
	}
}

// limitTasks bounds how many processes and threads this process and its descendants may be, ownThreads of which it will keep; never above what there was.
func limitTasks(most int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, uint64(most))
	limit.Cur = min(limit.Cur, limit.Max)
	if limit.Cur == uint64(most) {
		limit.Cur -= ownThreads
	}
	return unix.Setrlimit(unix.RLIMIT_NPROC, &limit)
}

// keepThreads takes from the command what this process keeps for its own threads: it would end without one, and could not say at which bound.
func keepThreads(command int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Max-limit.Cur != ownThreads {
		return
	}
	lower := unix.Rlimit{Cur: limit.Cur, Max: limit.Cur}
	if command > 0 {
		_ = unix.Prlimit(command, unix.RLIMIT_NPROC, &lower, nil)
	}
	limit.Cur = limit.Max
	_ = unix.Setrlimit(unix.RLIMIT_NPROC, &limit)
}

// spawn starts the command in a session of its own, so that it has no terminal.
func spawn(cfg *config) (int, error) {
	path, err := lookPath(cfg.Argv[0], cfg.Env)
	if err != nil {
		return 0, err
	}
	ignoreSignals(false) // what is ignored here must not be ignored there
	pid, err := syscall.ForkExec(path, cfg.Argv, &syscall.ProcAttr{
		Env: cfg.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	ignoreSignals(true)
	return pid, err
}

// ignoreSignals has what another process sends ignored: signals that end a process, and those that stand for a fault of a program, at which the runtime of Go would end this one. A
// fault of its own ends it as ever. The package signal is no use here: what its Ignore has ignored stays so after its Reset.
func ignoreSignals(ignore bool) {
	var action struct{ handler, flags, restorer, mask uintptr } // the kernel's struct sigaction: the default, 0, or to ignore, 1
	if ignore {
		action.handler = 1
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT, syscall.SIGSTKFLT} {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
	}
}

// lookPath searches the PATH of the command, not that of this process.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", errors.New("command not found")
}

// reap waits for the command and, meanwhile, for every orphan. Once a process has ended, and before the command is reaped, look is called with the command.
func reap(pid int, look func(pid int)) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		if unix.Waitid(unix.P_ALL, 0, &unix.Siginfo{}, unix.WEXITED|unix.WNOWAIT, nil) == nil {
			look(pid)
		}
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case got == pid && (status.Exited() || status.Signaled()):
			return status
		case errors.Is(err, syscall.ECHILD):
			return status
		case err != nil && !errors.Is(err, syscall.EINTR):
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// dieWithParent ends this process, and with it the whole sandbox, when the
// other end of the control socket is gone.
func dieWithParent() {
	poll := []unix.PollFd{{Fd: controlFD, Events: unix.POLLRDHUP | unix.POLLHUP}}
	for {
		if _, err := unix.Poll(poll, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		os.Exit(exitSetupFailed)
	}
}
