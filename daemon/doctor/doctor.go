// Package doctor checks an installation end to end, the way that a job goes
// through it, and names the one next step.
package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/site"
	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/loadcheck"
)

// Options say what to look at.
type Options struct {
	// Config is gresize.toml.
	Config string
	// Plugin and Slurmctld are files, empty where they were not found.
	Plugin, Slurmctld string
	// User is the one as whom a probe is tried on a node; empty: none is.
	User string
	// Gresize and Python are the programs that run there.
	Gresize, Python string
}

// Report is everything that was found, in the order of a job's way.
type Report struct {
	Host     string            `json:"host"`
	Findings []finding.Finding `json:"findings"`
	// Next is the one thing to do; empty when nothing is.
	Next string `json:"next"`
}

const (
	answerLimit = 10 * time.Second
	// nodeLimit is for a node to be had and a probe to be tried there.
	nodeLimit    = 4 * time.Minute
	maxTextRunes = 600
	maxBodyBytes = 1 << 20
)

// nodecheckTraining is the name of the finding of gresize probe check about a small training.
const nodecheckTraining = "PyTorch"

type doctor struct {
	o      Options
	c      *config.Config
	report Report
}

func (d *doctor) add(level finding.Level, name, setting, format string, args ...any) {
	d.report.Findings = append(d.report.Findings, finding.Finding{Level: level, Name: name, Text: printable.Clip(fmt.Sprintf(format, args...), maxTextRunes), Setting: printable.Clip(setting, maxTextRunes)})
}

// Check looks at everything and changes nothing.
func Check(ctx context.Context, o Options) Report {
	d := &doctor{o: o}
	if host, err := os.Hostname(); err == nil {
		d.report.Host = host
	}
	if d.configuration() {
		for _, look := range []func(context.Context){d.plugin, d.slurmctld, d.daemon, d.launcher, d.partition, d.munge, d.node, d.log, d.page} {
			look(ctx)
		}
	}
	d.report.Next = next(d.report.Findings)
	return d.report
}

// next is the way out of the first thing that does not work; where all does, of the first that is worth knowing.
func next(all []finding.Finding) string {
	for _, level := range []finding.Level{finding.Refuse, finding.Note} {
		for _, f := range all {
			if f.Level == level && (level == finding.Refuse || f.Setting != "") {
				return f.Name + ": " + cmp.Or(f.Setting, f.Text)
			}
		}
	}
	return ""
}

func (d *doctor) configuration() bool {
	s, impossible, err := site.Load(d.o.Config)
	var faults config.Faults
	errors.As(err, &faults)
	faults = append(faults, impossible...)
	if _, none := os.Stat(d.o.Config); none != nil {
		err, faults = none, nil
	}
	if err != nil && len(faults) == 0 {
		d.add(finding.Refuse, "configuration", "cp /usr/share/doc/gresize/gresize.toml "+d.o.Config+", and edit it", "%v", err)
		return false
	}
	if len(faults) > 0 {
		d.add(finding.Refuse, "configuration", "gresized -check "+d.o.Config, "%v", faults[0])
		return false
	}
	d.c = s.Config
	level, setting := finding.OK, ""
	if len(d.c.Targets) == 0 {
		level, setting = finding.Note, "add [[target]] rows that say what the site has to "+d.o.Config
	}
	d.add(level, "configuration", setting, "%s: mode %s, %d rows in its table", d.o.Config, d.c.Mode, len(d.c.Targets))
	return true
}

func (d *doctor) plugin(ctx context.Context) {
	if d.o.Plugin == "" || d.o.Slurmctld == "" {
		d.add(finding.Note, "plugin", "", "found no slurmctld with a %s here: ask on the controller", loadcheck.FileName)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	r, err := loadcheck.Check(ctx, loadcheck.Options{Plugin: d.o.Plugin, Slurmctld: d.o.Slurmctld})
	if err != nil {
		d.add(finding.Refuse, "plugin", "gresize slurm check", "%v", err)
		return
	}
	for _, f := range r.Findings {
		if f.Level == finding.Refuse {
			d.add(finding.Refuse, "plugin", "gresize slurm check names the package that this slurmctld needs", "%s", f.Text)
			return
		}
	}
	d.add(finding.OK, "plugin", "", "%s: this slurmctld loads it", d.o.Plugin)
}

// output runs a program of Slurm.
func (d *doctor) output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	path := filepath.Join(filepath.Dir(d.c.Slurm.Scontrol), name)
	command := exec.CommandContext(ctx, path, args...)
	command.Env = d.environment()
	command.WaitDelay = time.Second
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", path, err, printable.Clip(strings.TrimSpace(string(out)), 200))
	}
	return string(out), nil
}

func (d *doctor) environment() []string {
	env := []string{"LC_ALL=C", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	if d.c.Slurm.Conf != "" {
		env = append(env, "SLURM_CONF="+d.c.Slurm.Conf)
	}
	return env
}

func (d *doctor) slurmctld(ctx context.Context) {
	slurm := client.New(client.Config{Scontrol: d.c.Slurm.Scontrol, ConfPath: d.c.Slurm.Conf, Timeout: answerLimit})
	version, err := slurm.Version(ctx)
	if err == nil {
		err = slurm.Ping(ctx)
	}
	if err != nil {
		d.add(finding.Refuse, "slurmctld", "systemctl status slurmctld; slurm.scontrol and slurm.conf in "+d.o.Config+" say how it is asked", "%v", err)
		return
	}
	if missing, err := slurm.Unreadable(ctx); err != nil || len(missing) > 0 {
		why := "does not print " + strings.Join(missing, ", ")
		if err != nil {
			why = err.Error()
		}
		d.add(finding.Refuse, "slurmctld", "the squeue beside slurm.scontrol in "+d.o.Config+" must be of a release that gresize knows, and not newer than slurmctld (gresize slurm check)", "answers, and squeue does not print what gresized reads, so no job is found: %s", why)
		return
	}
	text, err := d.output(ctx, filepath.Base(d.c.Slurm.Scontrol), "show", "config")
	if err != nil {
		d.add(finding.Note, "slurmctld", "", "%v", err)
		return
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) != "JobSubmitPlugins" {
			continue
		}
		if !strings.Contains(value, "gresize") {
			d.add(finding.Refuse, "slurmctld", "JobSubmitPlugins=gresize in slurm.conf, then restart slurmctld", "%s answers, and asks nobody about submissions: JobSubmitPlugins is %s", version, strings.TrimSpace(value))
			return
		}
	}
	d.add(finding.OK, "slurmctld", "", "%s answers, with gresize among its JobSubmitPlugins", version)
}

// reach connects to a socket and says why it cannot.
func reach(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

func (d *doctor) daemon(ctx context.Context) {
	if err := reach(ctx, d.c.Socket.Path); err != nil {
		setting := "systemctl enable --now gresized; journalctl -u gresized -n 50 says why it does not stay"
		if errors.Is(err, os.ErrPermission) {
			setting = "ask as root"
		}
		d.add(finding.Refuse, "gresized", setting, "%v", err)
		return
	}
	if d.c.Metrics.Listen == "" {
		d.add(finding.OK, "gresized", "", "takes submissions at %s (whether it is well, [metrics] listen would say)", d.c.Socket.Path)
		return
	}
	text, status, err := get(ctx, d.c.Metrics.Listen, "/readyz")
	switch {
	case err != nil:
		d.add(finding.Note, "gresized", "", "takes submissions, and does not say at %s whether it is well: %v", d.c.Metrics.Listen, err)
	case status != http.StatusOK:
		d.add(finding.Refuse, "gresized", "journalctl -u gresized -n 50", "takes submissions, and is not well: %s", text)
	default:
		d.add(finding.OK, "gresized", "", "takes submissions at %s and is well", d.c.Socket.Path)
	}
}

// get asks an address of the configuration: unix:/path or host:port.
func get(ctx context.Context, address, path string) (text string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	network, to := "tcp", address
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		network, to = "unix", socket
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return "", 0, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
	return strings.TrimSpace(string(body)), response.StatusCode, err
}

func (d *doctor) launcher(ctx context.Context) {
	if err := reach(ctx, d.c.Probe.LaunchSocket); err != nil {
		setting := "systemctl enable --now gresize-launch"
		if errors.Is(err, os.ErrPermission) {
			setting = "ask as root"
		}
		d.add(finding.Refuse, "gresize-launch", setting, "probes cannot be submitted: %v", err)
		return
	}
	d.add(finding.OK, "gresize-launch", "", "submits probes, asked at %s", d.c.Probe.LaunchSocket)
}

func (d *doctor) partition(ctx context.Context) {
	text, err := d.output(ctx, "sinfo", "--noheader", "--partition="+d.c.Probe.Partition, "--format=%a %t %D")
	if err != nil {
		d.add(finding.Note, "probe partition", "", "%v", err)
		return
	}
	usable := 0
	for line := range strings.Lines(text) {
		var up, state string
		var nodes int
		if n, _ := fmt.Sscan(line, &up, &state, &nodes); n == 3 && up == "up" {
			switch strings.TrimRight(state, "*~#!%$@+^-") {
			case "idle", "mix", "alloc":
				if !strings.HasSuffix(state, "*") {
					usable += nodes
				}
			}
		}
	}
	if usable == 0 {
		d.add(finding.Refuse, "probe partition", "probe.partition in "+d.o.Config+" must name one with CPU nodes that are up (sinfo)", "%q has no node that is up: %s", d.c.Probe.Partition, strings.Join(strings.Fields(text), " "))
		return
	}
	d.add(finding.OK, "probe partition", "", "%q has %d nodes that are up", d.c.Probe.Partition, usable)
}

func (d *doctor) munge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var args []string
	if d.c.Actuals.MungeSocket != "" {
		args = append(args, "--socket="+d.c.Actuals.MungeSocket)
	}
	munge := exec.CommandContext(ctx, filepath.Join(filepath.Dir(d.c.Actuals.Unmunge), "munge"), append([]string{"--no-input"}, args...)...)
	credential, err := munge.Output()
	if err == nil {
		unmunge := exec.CommandContext(ctx, d.c.Actuals.Unmunge, args...)
		unmunge.Stdin = bytes.NewReader(credential)
		err = unmunge.Run()
	}
	if err != nil {
		d.add(finding.Note, "munge", "systemctl status munge; actuals.munge_socket in "+d.o.Config, "reports of Epilogs and questions of owners will be refused: %v", err)
		return
	}
	d.add(finding.OK, "munge", "", "makes and reads credentials")
}

// node tries a probe of a small program of gresize's own, as a user, on a node of the partition: the sandbox, the virtual GPU, and the way back to gresized.
func (d *doctor) node(ctx context.Context) {
	if d.o.User == "" {
		d.add(finding.Note, "probe", "gresize doctor --user NAME, an ordinary user with a Python that has PyTorch (--python)", "none was tried")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	options := d.c.Probe
	args := []string{"-u", d.o.User, "--", filepath.Join(filepath.Dir(d.c.Slurm.Scontrol), "srun"), "--quiet", "--partition=" + options.Partition, "--ntasks=1", fmt.Sprintf("--cpus-per-task=%d", options.CPUs),
		fmt.Sprintf("--mem=%dM", int64(options.Memory)>>20), "--time=4", "--immediate=60", "--chdir=/tmp"}
	if options.Account != "" {
		args = append(args, "--account="+options.Account)
	}
	if options.QOS != "" {
		args = append(args, "--qos="+options.QOS)
	}
	args = append(args, d.o.Gresize, "probe", "check", "--json", "--python", d.o.Python, "--url", cmp.Or(options.URL, "http://"+options.Listen))
	command := exec.CommandContext(ctx, "runuser", args...)
	command.Env = append(d.environment(), "GRESIZE=off") // an srun has no script; this is for filters of the site's own
	command.WaitDelay = time.Second
	var words bytes.Buffer
	command.Stderr = &words
	out, err := command.Output()
	var report struct {
		Node     string            `json:"node"`
		Findings []finding.Finding `json:"findings"`
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		d.add(finding.Refuse, "probe", "srun -p "+options.Partition+" gresize probe check, as "+d.o.User, "nothing came back from a node: %v: %s", cmp.Or(err, jsonErr), printable.Clip(strings.TrimSpace(words.String()), 300))
		return
	}
	refused, trained := false, false
	for _, f := range report.Findings {
		switch {
		case f.Level == finding.Refuse:
			refused = true
			d.add(finding.Refuse, "probe on "+report.Node, f.Setting, "%s: %s", f.Name, f.Text)
		case f.Name == nodecheckTraining && f.Level == finding.OK:
			trained = true
		case f.Name == nodecheckTraining:
			d.add(finding.Note, "probe on "+report.Node, "gresize doctor --user "+d.o.User+" --python PATH, a Python of that user's jobs", "a sandbox was made and gresized was reached; %s", f.Text)
		}
	}
	if !refused && trained {
		d.add(finding.OK, "probe on "+report.Node, "", "a small program was run on the virtual GPU in a sandbox, as %s, and gresized was reached", d.o.User)
	}
}

func (d *doctor) log(ctx context.Context) {
	log, err := decisionlog.OpenReadOnly(ctx, d.c.Log.Path)
	if err != nil {
		setting := "journalctl -u gresized -n 50: has it begun its log?"
		if errors.Is(err, os.ErrPermission) {
			setting = "ask as root"
		}
		d.add(finding.Refuse, "decision log", setting, "%v", err)
		return
	}
	defer log.Close()
	lines, err := log.List(ctx, 1, decisionlog.Filter{})
	switch {
	case err != nil:
		d.add(finding.Refuse, "decision log", "restart gresized: it begins a new log and keeps a damaged one aside", "%v", err)
	case len(lines) == 0:
		d.add(finding.Note, "decision log", "submit a job that asks for a GPU, and look at gresize log", "%s holds no job yet", d.c.Log.Path)
	default:
		d.add(finding.OK, "decision log", "", "%s, the newest job of %s", d.c.Log.Path, lines[0].Job.SubmittedAt.Local().Format(time.DateTime))
	}
}

func (d *doctor) page(ctx context.Context) {
	if d.c.Web.Listen == "" {
		d.add(finding.OK, "page", "", "off ([web] listen turns it on)")
		return
	}
	_, status, err := get(ctx, d.c.Web.Listen, "/health")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("it answers with %d", status)
	}
	if err != nil {
		d.add(finding.Refuse, "page", "systemctl restart gresized: [web] listen is read at its start", "%s: %v", d.c.Web.Listen, err)
		return
	}
	d.add(finding.OK, "page", "", "answers at %s", d.c.Web.Listen)
}
