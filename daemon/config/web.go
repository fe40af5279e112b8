package config

import (
	"fmt"
	"net"
	"strings"
)

// Web is the page on which people read decisions.
type Web struct {
	// Listen is "unix:/path" or an address with a port; empty: nowhere.
	Listen string `toml:"listen"`
	// Hosts are further names under which the page may be asked for, such as that of the site's web server.
	Hosts []string `toml:"hosts"`
	// Remote allows an address that other machines reach.
	Remote bool `toml:"remote"`
	// KeepBundles is how much may be kept of the bundles of ended jobs, for the pictures of their memory. It counts while Listen is given.
	KeepBundles Bytes `toml:"keep_bundles"`
}

// maxKeepBundles and maxWebHosts are far above what anybody wants.
const (
	maxKeepBundles = 1 << 40
	maxWebHosts    = 64
)

func (c *Config) checkWeb(found *faults) {
	checkListen(found, "web.listen", c.Web.Listen, "9190", c.Web.Remote,
		"listen on 127.0.0.1 or unix:/path and let the site's web server ask who reads it; web.remote = true if the network is trusted")
	if len(c.Web.Hosts) > maxWebHosts {
		found.add("web.hosts", "leave out those that nobody asks by", "%d names, at most %d", len(c.Web.Hosts), maxWebHosts)
	}
	for _, name := range c.Web.Hosts {
		if !plainWord.MatchString(name) && net.ParseIP(name) == nil {
			found.add("web.hosts", `names without a port, for example "gresize.cluster"`, "%q is no name of a host", name)
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			found.add("web.hosts", fmt.Sprintf("write %q", strings.Trim(name, ".")), "%q begins or ends with a dot", name)
		}
	}
	if c.Web.KeepBundles < 0 || c.Web.KeepBundles > maxKeepBundles {
		found.add("web.keep_bundles", `for example "256MiB"`, "%s is not between 0 and 1 TiB", c.Web.KeepBundles)
	}
}

// checkListen refuses an address that is none, and one that others reach where that is not wanted.
func checkListen(found *faults, field, address, port string, remote bool, hint string) {
	if address == "" {
		return
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		checkPath(found, field, path, true)
		return
	}
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		found.add(field, `for example "127.0.0.1:`+port+`"`, "%q is neither unix:/path nor an address with a port", address)
		return
	}
	checkPort(found, field, number, port)
	if !remote && !Loopback(host) {
		found.add(field, hint, "%q can be reached from elsewhere", address)
	}
}

// Loopback says whether only this machine reaches a host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
