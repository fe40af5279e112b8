package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// Limits of the kernel.
const (
	maxPathBytes   = 4095
	maxSocketBytes = 107
)

// checkPaths looks at every path that has to name a file; whether it is there is not looked at.
func (c *Config) checkPaths(found *faults) {
	for _, p := range []struct {
		field, value string
		socket, none bool // none: it may be empty
	}{
		{"socket.path", c.Socket.Path, true, false}, {"log.path", c.Log.Path, false, false}, {"log.spool", c.Log.Spool, false, false}, {"slurm.scontrol", c.Slurm.Scontrol, false, false},
		{"slurm.conf", c.Slurm.Conf, false, true}, {"probe.launch_socket", c.Probe.LaunchSocket, true, false},
		{"actuals.unmunge", c.Actuals.Unmunge, false, false}, {"actuals.munge_socket", c.Actuals.MungeSocket, true, true}, {"actuals.key", c.Actuals.Key, false, true}, {"actuals.sacct", c.Actuals.Sacct, false, false},
	} {
		if p.value == "" && p.none {
			continue
		}
		checkPath(found, p.field, p.value, p.socket)
	}
	spool := filepath.Clean(c.Log.Spool)
	if log := filepath.Clean(c.Log.Path); log == spool || strings.HasPrefix(log, spool+"/") {
		found.add("log.path", "keep the log beside the spool, for example in "+filepath.Dir(spool), "%s lies in log.spool, from which files are removed", c.Log.Path)
	}
}

// checkPath refuses what can be the path of no file.
func checkPath(found *faults, field, path string, socket bool) {
	most := maxPathBytes
	if socket {
		most = maxSocketBytes
	}
	switch {
	case !filepath.IsAbs(path):
		found.add(field, "write a path that begins with /", "%.200q is no absolute path", path)
	case strings.ContainsFunc(path, unicode.IsControl):
		found.add(field, "take it out", "%.200q holds a control character", path)
	case strings.HasSuffix(path, "/"):
		found.add(field, "write the path of the file in it", "%.200q is a folder", path)
	case len(path) > most:
		found.add(field, fmt.Sprintf("at most %d bytes", most), "a path of %d bytes is more than the kernel takes", len(path))
	}
}

// checkAddress looks at where probes report, and how they reach it.
func (c *Config) checkAddress(found *faults) {
	host, port, err := net.SplitHostPort(c.Probe.Listen)
	if err != nil {
		found.add("probe.listen", `for example "127.0.0.1:8917"`, "%.200q is no address with a port", c.Probe.Listen)
		return
	}
	checkPort(found, "probe.listen", port, "8917")
	checkHost(found, "probe.listen", host)
	if c.Probe.URL == "" {
		if everywhere(host) {
			found.add("probe.listen", "write in probe.url how the nodes reach this machine, for example \"http://slurmctl.cluster:"+port+"\"", "%q is every address of this machine and none that a probe could ask", c.Probe.Listen)
		}
		return
	}
	const example = `for example "http://10.0.0.1:8917"`
	u, err := url.Parse(c.Probe.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		found.add("probe.url", example, "%.200q is no address of the web", c.Probe.URL)
		return
	}
	if u.Port() != "" {
		checkPort(found, "probe.url", u.Port(), "8917")
	}
	checkHost(found, "probe.url", u.Hostname())
	if everywhere(u.Hostname()) {
		found.add("probe.url", "the name or the address of this machine, "+example, "no node reaches %q", c.Probe.URL)
	}
}

// LoopbackProbes tells whether probes of other machines than this one cannot report.
func (c *Config) LoopbackProbes() bool {
	host, _, err := net.SplitHostPort(c.Probe.Listen)
	return err == nil && c.Probe.URL == "" && Loopback(host)
}

// Program is a program that the daemon runs, and the field that names it.
type Program struct{ Field, Path string }

// Programs are those that have to be there: whether they are is for whoever runs them.
func (c *Config) Programs() []Program {
	programs := []Program{{"slurm.scontrol", c.Slurm.Scontrol}}
	if c.Actuals.Key == "" {
		programs = append(programs, Program{"actuals.unmunge", c.Actuals.Unmunge})
	}
	if c.Actuals.SacctEvery > 0 {
		programs = append(programs, Program{"actuals.sacct", c.Actuals.Sacct})
	}
	for i, e := range c.Estimators {
		if len(e.Command) > 0 {
			programs = append(programs, Program{fmt.Sprintf("estimator[%d].command", i), e.Command[0]})
		}
	}
	return programs
}

func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func checkPort(found *faults, field, port, usual string) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		found.add(field, "a number from 1 to 65535, for example "+usual, "%.80q is no port", port)
	}
}

// checkHost refuses what is neither an address nor a name; whether there is such a machine is not looked at.
func checkHost(found *faults, field, host string) {
	if host == "" {
		return
	}
	address, _, _ := strings.Cut(host, "%") // the zone of a link-local address
	if net.ParseIP(address) != nil {
		return
	}
	digits := strings.Trim(host, "0123456789.") == ""
	if digits || len(host) > 253 || !plainWord.MatchString(host) {
		found.add(field, "a name, or an address such as 10.0.0.1 or [fd00::1]", "%.200q is neither a name nor an address of a machine", host)
	}
}

// checkTimes looks at the times of a probe, each of which has to end before the one around it.
func (c *Config) checkTimes(found *faults) {
	switch budget := c.Probe.Budget; {
	case budget > c.Probe.Hold && !found.at("probe.budget", "probe.hold"):
		found.add("probe.budget", fmt.Sprintf("at most %s, or a longer hold", c.Probe.Hold.Std()), "%s is more than probe.hold, %s: a job's hold would end before its probe is done", budget.Std(), c.Probe.Hold.Std())
	case budget > c.Probe.TimeLimit && !found.at("probe.budget", "probe.time_limit"):
		found.add("probe.time_limit", fmt.Sprintf("at least %s, or a smaller budget", budget.Std()), "%s is less than probe.budget, %s: Slurm would end the probe before it is done", c.Probe.TimeLimit.Std(), budget.Std())
	}
}
