package config

import (
	"net"
	"strings"
)

// Metrics is where Prometheus finds the daemon's counters.
type Metrics struct {
	// Listen is "unix:/path" or a loopback address with a port; empty: nowhere.
	Listen string `toml:"listen"`
}

func (c *Config) checkMetrics(bad func(field, hint, format string, args ...any) *FileError) *FileError {
	const field = "metrics.listen"
	if c.Metrics.Listen == "" {
		return nil
	}
	if path, ok := strings.CutPrefix(c.Metrics.Listen, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return bad(field, `for example "unix:/run/gresize/metrics.sock"`, "the path of a socket begins with /")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(c.Metrics.Listen)
	if err != nil {
		return bad(field, `for example "127.0.0.1:8918"`, "%q is neither unix:/path nor an address with a port", c.Metrics.Listen)
	}
	// What is counted is nobody's secret, but it is no public page either.
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return bad(field, "listen on 127.0.0.1 and let the site's web server publish it", "%q can be reached from elsewhere", c.Metrics.Listen)
	}
	return nil
}
