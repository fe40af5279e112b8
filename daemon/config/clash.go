package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// place is what a key names: a path or a TCP address.
type place struct {
	field, value string
	// listens: the daemon opens it itself, and nobody else may.
	listens bool
	usual   bool // it is the default, and need not stand in the file
}

// checkClashes refuses two keys that name one place. Which of two listeners came first would be known at the start only, and a socket in the place of a file takes the file's.
func (c *Config) checkClashes(found *faults) {
	usual := Defaults()
	places := []place{
		{"log.path", c.Log.Path, false, c.Log.Path == usual.Log.Path},
		{"log.spool", c.Log.Spool, false, c.Log.Spool == usual.Log.Spool},
		{"probe.launch_socket", c.Probe.LaunchSocket, false, c.Probe.LaunchSocket == usual.Probe.LaunchSocket},
		{"actuals.munge_socket", c.Actuals.MungeSocket, false, c.Actuals.MungeSocket == usual.Actuals.MungeSocket},
		{"slurm.conf", c.Slurm.Conf, false, c.Slurm.Conf == usual.Slurm.Conf},
		{"socket.path", c.Socket.Path, true, c.Socket.Path == usual.Socket.Path},
		{"probe.listen", c.Probe.Listen, true, c.Probe.Listen == usual.Probe.Listen},
		{"metrics.listen", c.Metrics.Listen, true, false},
		{"web.listen", c.Web.Listen, true, false},
	}
	for i, later := range places {
		for _, earlier := range places[:i] {
			if later.value == "" || earlier.value == "" || !later.listens || !later.meets(earlier) || found.at(earlier.field, later.field) {
				continue
			}
			at, other := later, earlier
			if at.usual {
				at, other = earlier, later
			}
			found.add(at.field, "give each a place of its own", "%.200q cannot stand beside %s, %.200q", at.value, other.field, other.value)
		}
	}
}

// meets says whether two of the daemon's places cannot be there side by side.
func (p place) meets(q place) bool {
	mine, isPath := p.path()
	others, otherIsPath := q.path()
	if isPath != otherIsPath {
		return false
	}
	if !isPath {
		return sameAddress(p.value, q.value)
	}
	switch q.field {
	case "log.path": // SQLite writes beside it, too
		return mine == others || mine == others+"-wal" || mine == others+"-shm"
	case "log.spool":
		return mine == others || strings.HasPrefix(mine, others+"/")
	}
	return mine == others
}

// path is the path that is named, if it is one.
func (p place) path() (path string, ok bool) {
	path, prefixed := strings.CutPrefix(p.value, "unix:")
	return filepath.Clean(path), prefixed || filepath.IsAbs(p.value)
}

// sameAddress says whether one of two TCP addresses takes the other's place: they have one port, and one host or all hosts.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	numberA, _ := strconv.Atoi(portA)
	numberB, _ := strconv.Atoi(portB)
	if errA != nil || errB != nil || numberA != numberB {
		return false
	}
	ipA, okA := addressOf(hostA)
	ipB, okB := addressOf(hostB)
	if !okA || !okB { // a name: where it leads is not looked at
		return strings.EqualFold(hostA, hostB) || okA && ipA.IsUnspecified() || okB && ipB.IsUnspecified()
	}
	return ipA == ipB || takes(ipA, ipB) || takes(ipB, ipA)
}

// takes says whether whoever listens on a hears what is sent to b: all of IPv6 is all of IPv4, too.
func takes(a, b netip.Addr) bool { return a.IsUnspecified() && (a.Is6() || b.Is4()) }

func addressOf(host string) (netip.Addr, bool) {
	switch {
	case host == "":
		return netip.IPv6Unspecified(), true
	case strings.EqualFold(host, "localhost"):
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err == nil
}
