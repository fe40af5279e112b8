package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ShimLog is the file in ReportDir in which the shims say what they did, one JSON object a line.
const ShimLog = "shims.jsonl"

// ShimCall is one line of ShimLog.
type ShimCall struct {
	Name string `json:"name"`
	// Action is ran, refused or answered.
	Action string   `json:"action"`
	Args   []string `json:"args"`
}

// Limits on what one call writes to the log.
const (
	maxLoggedArgs     = 64
	maxLoggedArgBytes = 512
)

// A shim stands in for a command that would reach outside.
type shim struct {
	run func(name string, args []string) int
	// real says that the command itself may be wanted, when it stays local.
	real bool
}

var shims map[string]shim

func init() { // a literal would refer to itself through the functions
	shims = map[string]shim{
		"srun":     {run: runLocally(srunOptions)},
		"mpirun":   {run: runLocally(mpirunOptions)},
		"mpiexec":  {run: runLocally(mpirunOptions)},
		"sbatch":   {run: refuse},
		"salloc":   {run: refuse},
		"scancel":  {run: refuse},
		"scontrol": {run: answerScontrol},
		"ssh":      {run: refuse},
		"mail":     {run: refuse},
		"mailx":    {run: refuse},
		"sendmail": {run: refuse},
		"scp":      {run: localOnly, real: true},
		"rsync":    {run: localOnly, real: true},
	}
}

func shimNames() []string {
	names := make([]string, 0, len(shims))
	for name := range shims {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func runsReal(name string) bool { return shims[name].real }

// shimName says whether this process was started as a shim: from ShimDir, or
// from the place of the real command that is covered by this executable.
func shimName() (string, bool) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", false
	}
	name := filepath.Base(exe)
	if exe == exePath {
		name = filepath.Base(os.Args[0])
	}
	_, ok := shims[name]
	return name, ok
}

func runShim(name string, args []string) int { return shims[name].run(name, args) }

func logCall(name, action string, args []string) {
	kept := make([]string, 0, min(len(args), maxLoggedArgs))
	for _, a := range args[:min(len(args), maxLoggedArgs)] {
		kept = append(kept, a[:min(len(a), maxLoggedArgBytes)])
	}
	line, err := json.Marshal(ShimCall{name, action, kept})
	if err != nil {
		return
	}
	if f, err := os.OpenFile(filepath.Join(ReportDir, ShimLog), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err == nil {
		_, _ = f.Write(append(line, '\n'))
		_ = f.Close()
	}
}

// refuse says so and succeeds: the script should go on to its training.
func refuse(name string, args []string) int {
	logCall(name, "refused", args)
	fmt.Fprintf(os.Stderr, "gresize: %s is not run while the job's memory is estimated\n", name)
	return 0
}

// answerScontrol knows the one question that scripts ask to find the first node.
func answerScontrol(name string, args []string) int {
	for i, a := range args {
		if a == "show" && i+1 < len(args) && strings.HasPrefix(args[i+1], "hostname") {
			host, err := os.Hostname()
			if err != nil {
				return 1
			}
			logCall(name, "answered", args)
			fmt.Println(host)
			return 0
		}
	}
	return refuse(name, args)
}

// localOnly runs the real command when no argument names another machine.
func localOnly(name string, args []string) int {
	for _, a := range args {
		if before, _, ok := strings.Cut(a, ":"); ok && !strings.HasPrefix(a, "-") && !strings.Contains(before, "/") {
			return refuse(name, args)
		}
	}
	logCall(name, "ran", args)
	return execBehindShims(append([]string{name}, args...), os.Environ())
}

// behindShims finds the command that PATH has after ShimDir.
func behindShims(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(d string) bool {
		_, isShim := shims[name]
		return isShim && d == ShimDir
	})
	return lookPath(name, []string{"PATH=" + strings.Join(dirs, ":")})
}

// execBehindShims replaces this process by the command that PATH has after ShimDir.
func execBehindShims(argv, env []string) int {
	path, err := behindShims(argv[0])
	if err != nil {
		fmt.Fprintf(os.Stderr, "gresize: %s: %v\n", argv[0], err)
		return exitNotFound
	}
	err = syscall.Exec(path, argv, env)
	fmt.Fprintf(os.Stderr, "gresize: %s: %v\n", argv[0], err)
	return exitNotExecutable
}

// launcherOptions says how a launcher's options take their values.
type launcherOptions struct {
	// flags are the options that take no value; every other option takes the
	// next argument unless it holds a "=", or, for one letter, text behind it.
	flags []string
	// twoValues are the options that take two.
	twoValues []string
	// oneDash says that long options may stand behind a single dash.
	oneDash bool
	// layout reads what was given; task is the environment of one of its tasks.
	layout func(given, job map[string]string) layout
	task   func(l layout, task int) []string
}

var srunOptions = launcherOptions{
	flags: strings.Fields(`-E -H -K -k -l -O -Q -s -u -v -vv -vvv -X -Z
		--preserve-env --hold --kill-on-bad-exit --no-kill --label --overcommit --quiet --oversubscribe --unbuffered --verbose
		--disable-status --no-allocate --exclusive --exact --whole --overlap --pty --immediate --contiguous --reboot --spread-job
		--use-min-nodes --compress --bcast --accel-bind --propagate --multi-prog --nice --send-libs --wait-all-nodes`),
	layout: srunLayout, task: srunTask,
}

var mpirunOptions = launcherOptions{
	flags: strings.Fields(`--oversubscribe -oversubscribe --allow-run-as-root -allow-run-as-root --report-bindings -report-bindings
		--display-map -display-map --display-allocation --tag-output -tag-output --timestamp-output -q --quiet -v --verbose
		--nooversubscribe -nolocal --nolocal --bind-to-core --bynode --byslot -l -prepend-rank --bycore`),
	twoValues: strings.Fields("-mca --mca -gmca --gmca -genv -env"),
	oneDash:   true,
	layout:    mpirunLayout, task: mpirunTask,
}

// split finds where the launcher's own options end, and what values they were given.
func (o *launcherOptions) split(args []string) (command []string, given map[string]string) {
	given = map[string]string{}
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, assigned := strings.Cut(a, "=")
		switch {
		case a == "--":
			return args[i+1:], given
		case len(a) < 2 || a[0] != '-':
			return args[i:], given
		case slices.Contains(o.flags, a):
		case assigned:
			given[name] = value
		case slices.Contains(o.twoValues, a):
			i += 2
		case strings.HasPrefix(a, "--") || o.oneDash || len(a) == 2:
			if i++; i < len(args) {
				given[a] = args[i]
			}
		default:
			given[a[:2]] = a[2:]
		}
	}
	return nil, given
}
