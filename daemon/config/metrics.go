package config

// Metrics is where Prometheus finds the daemon's counters.
type Metrics struct {
	// Listen is "unix:/path" or a loopback address with a port; empty: nowhere.
	Listen string `toml:"listen"`
}

func (c *Config) checkMetrics(found *faults) {
	// What is counted is nobody's secret, but it is no public page either.
	checkListen(found, "metrics.listen", c.Metrics.Listen, "8918", false, "listen on 127.0.0.1 and let the site's web server publish it")
}
