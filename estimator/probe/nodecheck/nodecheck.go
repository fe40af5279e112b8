// Package nodecheck finds out what of a probe works on this machine, for the
// user who asks: it tries each thing in a sandbox as a probe has it, and names
// the one setting to change where something does not work.
package nodecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/probe/private"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/internal/quantity"
	"golang.org/x/sys/unix"
)

// The levels; with one Refuse no probe works here.
const (
	OK     = finding.OK
	Note   = finding.Note
	Refuse = finding.Refuse
)

// Report is everything that was found.
type Report struct {
	Node     string            `json:"node"`
	User     int               `json:"uid"`
	Kernel   string            `json:"kernel"`
	Dir      string            `json:"directory"`
	Findings []finding.Finding `json:"findings"`
}

// Refused tells that no probe works here.
func (r *Report) Refused() bool {
	return finding.Refused(r.Findings)
}

func (r *Report) add(level finding.Level, name, setting, format string, args ...any) {
	r.Findings = append(r.Findings, finding.Finding{Level: level, Name: name, Text: trace.Clip([]byte(fmt.Sprintf(format, args...)), maxTextBytes), Setting: setting})
}

// Options say what to try.
type Options struct {
	// Dir is a folder from which jobs are submitted.
	Dir string
	// URL is where probes of this node report; empty: that is not tried.
	URL string
	// Python is the program with which the jobs run.
	Python string
	// Env is the environment of a job.
	Env []string
	// Engine is the virtual GPU, LibDir where it is; empty in all but tests.
	Engine probe.Engine
	LibDir string
	// Policy is that of the sandbox, for tests.
	Policy sandbox.Policy
}

const (
	maxTextBytes = 600
	tryTime      = 40 * time.Second
	torchTime    = 90 * time.Second
	reachTime    = 10 * time.Second
	// diskWanted is what changes may take on the disk, and reports beside them.
	diskWanted = sandbox.DefaultScratchBytes + sandbox.DefaultReportBytes
)

// Check tries everything. The error is about the options alone.
func Check(ctx context.Context, o Options) (Report, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return Report{}, err
	}
	if fi, err := os.Stat(dir); err != nil {
		return Report{}, err
	} else if !fi.IsDir() {
		return Report{}, fmt.Errorf("%s is no directory", dir)
	}
	o.Dir = dir
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Report{}, err
	}
	r := Report{Node: unix.ByteSliceToString(name.Nodename[:]), User: os.Geteuid(), Kernel: unix.ByteSliceToString(name.Release[:]), Dir: dir}
	if r.User == 0 {
		r.add(Note, "user", "", "asked by root: a probe runs as its job's owner, who may meet something else; ask as one, too")
	}
	r.reach(ctx, o)
	mounts := readMounts()
	inside := r.trySandbox(ctx, o)
	r.places(o, mounts, inside)
	r.temporary(o, mounts, inside)
	r.surroundings(mounts)
	r.glibc(ctx)
	if !r.Refused() {
		r.python(ctx, o)
	}
	return r, nil
}

// reach asks gresized whether it is there, as a probe does before and after its run: outside of the sandbox.
func (r *Report) reach(ctx context.Context, o Options) {
	if o.URL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err == nil {
		var response *http.Response
		if response, err = http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}
	if err != nil {
		r.add(Refuse, "gresized", "probe.listen must be an address that this node reaches, and probe.url must name it", "probes cannot fetch their jobs and report from here: %v", err)
		return
	}
	r.add(OK, "gresized", "", "answers at %s", o.URL)
}

// insideScript does what every training script does, and says how it went: one line a place.
const insideScript = `
for place in "$GRESIZE_CHECK_DIR" "$HOME" "${TMPDIR:-/tmp}" /dev/shm; do
	if file=$(mktemp "$place/.gresize-check.XXXXXX" 2>&1); then echo "writes $place"; else echo "refused $place ${file##*: }"; continue; fi
	printf '#!/bin/sh\nexit 0\n' > "$file" && chmod 700 "$file" && if "$file" 2>/dev/null; then echo "runs $place"; fi
done
if ls /proc/1 >/dev/null 2>&1; then echo "proc"; fi
`

// trySandbox makes one and runs a script in it. It returns the lines that the script printed.
func (r *Report) trySandbox(ctx context.Context, o Options) []string {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	env := append(slices.Clone(o.Env), "GRESIZE_CHECK_DIR="+o.Dir)
	var out bytes.Buffer
	policy := o.Policy
	policy.RecordOpens = true
	p, err := sandbox.Start(ctx, sandbox.Spec{Argv: []string{"/bin/sh", "-c", insideScript}, Env: env, Dir: o.Dir, Output: &out, Policy: policy})
	if err != nil {
		var unavailable *sandbox.UnavailableError
		setting := ""
		if errors.As(err, &unavailable) {
			setting = unavailable.Setting()
			err = fmt.Errorf("%s: %w", unavailable.Op, unavailable.Err)
		}
		r.add(Refuse, "sandbox", setting, "none can be made, so no job of this user is ever probed here: %v", err)
		return nil
	}
	exit := p.Wait()
	_, complete := p.Seen()
	if err := p.Close(); err != nil {
		r.add(Note, "sandbox", "", "%v", err)
	}
	if exit.Killed || exit.Code != 0 {
		r.add(Refuse, "sandbox", "", "a script of the shell ends with status %d in it: %s", exit.Code, lastLine(out.String()))
		return nil
	}
	by := "namespaces of this user"
	if exit.ByHelper {
		by = sandbox.HelperName + ", since this user may make no namespaces"
	}
	r.add(OK, "sandbox", "", "made in %d ms, by %s", exit.Setup.Milliseconds(), by)
	if len(exit.Lacks) > 0 {
		r.add(Note, "kernel", "", "%s has no %s: done without, see Older kernels in docs/sandbox.md", r.Kernel, strings.Join(exit.Lacks, ", "))
	}
	if !complete {
		r.add(Note, "files read", "", "what a script reads is not seen (seccomp of Linux 5.5 is wanted), so an unchanged job is probed again")
	}
	for _, note := range exit.Notes {
		r.add(Note, "view", "", "%s", note)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// places says what can be written to, and on what file systems the places are.
func (r *Report) places(o Options, mounts []mount, inside []string) {
	if inside == nil {
		return
	}
	seen := map[string]bool{}
	for _, place := range []struct{ name, path string }{{"directory", o.Dir}, {"home", value(o.Env, "HOME")}} {
		if place.path == "" || seen[place.path] {
			continue
		}
		seen[place.path] = true
		kind := kindOf(mounts, place.path)
		i := slices.IndexFunc(inside, func(line string) bool { return strings.HasPrefix(line, "refused "+place.path+" ") })
		outside := unix.Access(place.path, unix.W_OK)
		switch {
		case i < 0 && slices.Contains(inside, "writes "+place.path):
			r.add(OK, place.name, "", "%s (%s) can be written to in the sandbox, and stays as it is", place.path, kind)
		case outside != nil:
			r.add(Note, place.name, "", "%s (%s) cannot be written to by this user outside of the sandbox either: %v", place.path, kind, outside)
		case i >= 0 && r.User == 0:
			r.add(Note, place.name, "", "%s (%s) cannot be written to in root's sandbox, where root has no right over files of others: ask as its owner", place.path, kind)
		case i >= 0:
			r.add(Refuse, place.name, "", "%s (%s) cannot be written to in the sandbox (%s), which most scripts want: such jobs run as asked. No overlay can be made over this file system: give jobs a place on another one",
				place.path, kind, strings.TrimPrefix(inside[i], "refused "+place.path+" "))
		default:
			r.add(Note, place.name, "", "%s (%s) was not tried: the script in the sandbox ended early", place.path, kind)
		}
	}
}

// temporary is about TMPDIR: where the sandbox has its mount point, older kernels keep changes, and compilers put programs.
func (r *Report) temporary(o Options, mounts []mount, inside []string) {
	dir := private.TemporaryDir()
	kind := kindOf(mounts, dir)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		r.add(Refuse, "TMPDIR", "let TMPDIR name a folder that is there", "%s: %v", dir, err)
		return
	}
	if failed := new(os.PathError); errors.As(runsPrograms(dir), &failed) && failed.Op == "fork/exec" && errors.Is(failed, unix.EACCES) {
		text := "programs in it are refused to jobs"
		if slices.Contains(inside, "runs "+dir) {
			text += ", but run in the sandbox"
		} else {
			text += " and in the sandbox"
		}
		r.add(Note, "TMPDIR", "let TMPDIR name a folder on a file system without noexec where jobs compile (torch.compile, Triton, CUDA extensions)", "%s (%s): %s: %v", dir, kind, text, failed)
	}
	free := int64(st.Bavail) * st.Bsize //nolint:unconvert // the types differ by architecture
	switch err := reserve(dir, diskWanted); {
	case isMemory(st) || err == nil:
		r.add(OK, "free space", "", "%s (%s) has %s free", dir, kind, quantity.FormatBytes(free))
	case errors.Is(err, unix.EDQUOT):
		r.add(Note, "free space", "raise the quota, or let TMPDIR name a disk of the node", "%s (%s): the quota of this user is in the way of %s", dir, kind, quantity.FormatBytes(diskWanted))
	case errors.Is(err, unix.ENOSPC), free < diskWanted:
		r.add(Note, "free space", "free some, or let TMPDIR name another disk", "%s (%s) has %s free; changes may take %s", dir, kind, quantity.FormatBytes(free), quantity.FormatBytes(diskWanted))
	default:
		r.add(OK, "free space", "", "%s (%s) has %s free", dir, kind, quantity.FormatBytes(free))
	}
}

// reserve asks the file system for room, as a quota would count it, and gives it back.
func reserve(dir string, bytes int64) error {
	f, err := os.CreateTemp(dir, ".gresize-check.")
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	return unix.Fallocate(int(f.Fd()), 0, 0, bytes)
}

func isMemory(st unix.Statfs_t) bool { return st.Type == unix.TMPFS_MAGIC }

// runsPrograms tries one.
func runsPrograms(dir string) error {
	f, err := os.CreateTemp(dir, ".gresize-check.")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString("#!/bin/sh\nexit 0\n")
	if err := errors.Join(err, f.Chmod(0o700), f.Close()); err != nil {
		return err
	}
	return exec.Command(f.Name()).Run() // #nosec G204 -- written above
}

// surroundings are what a site puts around a job and a probe does not mind, and what it minds.
func (r *Report) surroundings(mounts []mount) {
	if m := find(mounts, "/tmp"); m != nil && m.root != "/" {
		r.add(OK, "private /tmp", "", "/tmp is a folder of its own (%s): a probe has that of its job", m.root)
	}
	if m := find(mounts, "/proc"); m != nil && slices.ContainsFunc(m.options, func(o string) bool { return strings.HasPrefix(o, "hidepid=") && o != "hidepid=0" && o != "hidepid=off" }) {
		r.add(OK, "hidepid", "", "processes of others are hidden (hidepid): a sandbox has a /proc of its own")
	}
	if text, err := os.ReadFile("/etc/pam.d/sshd"); err == nil && bytes.Contains(text, []byte("pam_slurm_adopt")) {
		r.add(OK, "pam_slurm_adopt", "", "is about logins: a probe is a job. What is tried here over ssh has the limits of the job that the login was given to")
	}
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil && inSlurmJob(text) {
		r.add(OK, "job", "", "this runs in a Slurm job, whose bounds on memory hold for a probe, too")
	}
}

// inSlurmJob says whether /proc/self/cgroup is that of a step. The job above it has its id in its name up to 25.11, and from 26.05 on another name of Slurm's own.
func inSlurmJob(cgroup []byte) bool { return bytes.Contains(cgroup, []byte("/step_")) }

// glibc: the part in the job needs one of some age.
func (r *Report) glibc(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getconf", "GNU_LIBC_VERSION").Output()
	var major, minor int
	if n, _ := fmt.Sscanf(string(out), "glibc %d.%d", &major, &minor); err != nil || n != 2 {
		r.add(Note, "C library", "", "getconf GNU_LIBC_VERSION does not tell that it is glibc, which PyTorch's CUDA builds need")
		return
	}
	if major == 2 && minor < 17 {
		r.add(Refuse, "C library", "run jobs on nodes with glibc 2.17 or later", "glibc %d.%d", major, minor)
		return
	}
	r.add(OK, "C library", "", "glibc %d.%d", major, minor)
}

// oneStep is the smallest training script.
const oneStep = `import torch
net = torch.nn.Linear(64, 64).cuda()
step = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(8):
    net(torch.zeros(8, 64, device="cuda")).sum().backward(); step.step(); step.zero_grad()
`

// python runs a small training script as a probe would.
func (r *Report) python(ctx context.Context, o Options) {
	ctx, cancel := context.WithTimeout(ctx, torchTime)
	defer cancel()
	profile, err := gpu.Load(gpu.DefaultID)
	if err != nil {
		r.add(Refuse, "virtual GPU", "", "%v", err)
		return
	}
	began := time.Now()
	result, err := probe.Run(ctx, probe.Options{
		Command: []string{o.Python, "-c", oneStep}, Dir: o.Dir, Env: o.Env, GPU: profile, Budget: torchTime - 20*time.Second, Sandbox: o.Policy, Engine: o.Engine, LibDir: o.LibDir,
	})
	if err != nil {
		r.add(Refuse, "virtual GPU", "install the package gresize on the nodes, too", "%v", err)
		return
	}
	m := result.Bundle.Manifest
	switch {
	case m.Outcome == trace.Completed || m.Outcome == trace.Stopped:
		r.add(OK, "PyTorch", "", "%s has PyTorch %s, which took %d steps on the virtual GPU in %.1f s", o.Python, m.Versions.Torch, m.Steps, time.Since(began).Seconds())
	case len(result.Estimate.Reasons) > 0:
		why := result.Estimate.Reasons[0]
		r.add(Note, "PyTorch", "name the Python of a job: gresize probe check --python PATH, or ask with its environment active", "%s does not train on the virtual GPU: %s: %s", o.Python, why.Code, lastLine(why.Detail))
	default:
		r.add(Note, "PyTorch", "", "%s does not train on the virtual GPU: %s", o.Python, m.Outcome)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func value(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
