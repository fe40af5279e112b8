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

// fault makes a fault of a field, with the way out.
type fault func(field, hint, format string, args ...any) *FileError

// checkPaths looks at every path that has to name a file; whether it is there is not looked at.
func (c *Config) checkPaths(bad fault) *FileError {
	for _, p := range []struct {
		field, value string
		socket, none bool // none: it may be empty
	}{
		{"socket.path", c.Socket.Path, true, false}, {"log.path", c.Log.Path, false, false}, {"log.spool", c.Log.Spool, false, false}, {"slurm.scontrol", c.Slurm.Scontrol, false, false},
		{"slurm.conf", c.Slurm.Conf, false, true}, {"probe.launch_socket", c.Probe.LaunchSocket, true, false},
		{"actuals.unmunge", c.Actuals.Unmunge, false, false}, {"actuals.munge_socket", c.Actuals.MungeSocket, true, true}, {"actuals.sacct", c.Actuals.Sacct, false, false},
	} {
		if p.value == "" && p.none {
			continue
		}
		if f := checkPath(bad, p.field, p.value, p.socket); f != nil {
			return f
		}
	}
	spool := filepath.Clean(c.Log.Spool)
	if log := filepath.Clean(c.Log.Path); log == spool || strings.HasPrefix(log, spool+"/") {
		return bad("log.path", "keep the log beside the spool, for example in "+filepath.Dir(spool), "%s lies in log.spool, from which files are removed", c.Log.Path)
	}
	if filepath.Clean(c.Socket.Path) == filepath.Clean(c.Probe.LaunchSocket) {
		field := "probe.launch_socket"
		if c.Probe.LaunchSocket == Defaults().Probe.LaunchSocket {
			field = "socket.path"
		}
		return bad(field, "by default they are /run/gresize/submit.sock and /run/gresize-launch/launch.sock", "socket.path and probe.launch_socket are the same, and two daemons listen there")
	}
	return nil
}

// checkPath refuses what can be the path of no file.
func checkPath(bad fault, field, path string, socket bool) *FileError {
	most := maxPathBytes
	if socket {
		most = maxSocketBytes
	}
	switch {
	case !filepath.IsAbs(path):
		return bad(field, "write a path that begins with /", "%.200q is no absolute path", path)
	case strings.ContainsFunc(path, unicode.IsControl):
		return bad(field, "take it out", "%.200q holds a control character", path)
	case strings.HasSuffix(path, "/"):
		return bad(field, "write the path of the file in it", "%.200q is a folder", path)
	case len(path) > most:
		return bad(field, fmt.Sprintf("at most %d bytes", most), "a path of %d bytes is more than the kernel takes", len(path))
	}
	return nil
}

// checkAddress looks at where probes report, and how they reach it.
func (c *Config) checkAddress(bad fault) *FileError {
	host, port, err := net.SplitHostPort(c.Probe.Listen)
	if err != nil {
		return bad("probe.listen", `for example "127.0.0.1:8917"`, "%.200q is no address with a port", c.Probe.Listen)
	}
	if f := checkPort(bad, "probe.listen", port, "8917"); f != nil {
		return f
	}
	if f := checkHost(bad, "probe.listen", host); f != nil {
		return f
	}
	if c.Probe.URL == "" {
		if everywhere(host) {
			return bad("probe.listen", "write in probe.url how the nodes reach this machine, for example \"http://slurmctl.cluster:"+port+"\"", "%q is every address of this machine and none that a probe could ask", c.Probe.Listen)
		}
		return nil
	}
	const example = `for example "http://10.0.0.1:8917"`
	u, err := url.Parse(c.Probe.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return bad("probe.url", example, "%.200q is no address of the web", c.Probe.URL)
	}
	if u.Port() != "" {
		if f := checkPort(bad, "probe.url", u.Port(), "8917"); f != nil {
			return f
		}
	}
	if f := checkHost(bad, "probe.url", u.Hostname()); f != nil {
		return f
	}
	if everywhere(u.Hostname()) {
		return bad("probe.url", "the name or the address of this machine, "+example, "no node reaches %q", c.Probe.URL)
	}
	return nil
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
	programs := []Program{{"slurm.scontrol", c.Slurm.Scontrol}, {"actuals.unmunge", c.Actuals.Unmunge}}
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

func checkPort(bad fault, field, port, usual string) *FileError {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad(field, "a number from 1 to 65535, for example "+usual, "%.80q is no port", port)
	}
	return nil
}

// checkHost refuses what is neither an address nor a name; whether there is such a machine is not looked at.
func checkHost(bad fault, field, host string) *FileError {
	if host == "" {
		return nil
	}
	address, _, _ := strings.Cut(host, "%") // the zone of a link-local address
	if net.ParseIP(address) != nil {
		return nil
	}
	digits := strings.Trim(host, "0123456789.") == ""
	if digits || len(host) > 253 || !plainWord.MatchString(host) {
		return bad(field, "a name, or an address such as 10.0.0.1 or [fd00::1]", "%.200q is neither a name nor an address of a machine", host)
	}
	return nil
}

// checkTimes looks at the times of a probe, each of which has to end before the one around it.
func (c *Config) checkTimes(bad fault) *FileError {
	switch budget := c.Probe.Budget; {
	case budget > c.Probe.Hold:
		return bad("probe.budget", fmt.Sprintf("at most %s, or a longer hold", c.Probe.Hold.Std()), "%s is more than probe.hold, %s: a job would be let go before its probe is done", budget.Std(), c.Probe.Hold.Std())
	case budget > c.Probe.TimeLimit:
		return bad("probe.time_limit", fmt.Sprintf("at least %s, or a smaller budget", budget.Std()), "%s is less than probe.budget, %s: Slurm would end the probe before it is done", c.Probe.TimeLimit.Std(), budget.Std())
	}
	return nil
}
