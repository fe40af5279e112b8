package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkExchange calls job_submit in a stand-in for slurmctld: the plugin's
// own cost, a script of 16 KiB encoded and told to a daemon on this machine,
// without sbatch, Slurm and its locks.
func BenchmarkExchange(b *testing.B) {
	dir := openDir(b)
	plugin := buildPlugin(b, dir)
	driver := filepath.Join(dir, "driver")
	if output, err := exec.Command("cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-rdynamic", "-o", driver,
		"../tests/driver.c", "-ldl", "-lpthread").CombinedOutput(); err != nil {
		b.Fatalf("build the driver: %v\n%s", err, output)
	}
	socket := filepath.Join(dir, "healthy.sock")
	serveHolds(b, socket)
	absent := filepath.Join(dir, "none.sock")

	// Two calls after each load stay below the breaker, so both try.
	tries := strings.Repeat("load\nstorm 1 2\n", 500)
	cases := []struct{ name, socket, commands string }{
		{"healthy/1-thread", socket, "storm 1 2000\n"},
		{"healthy/8-threads", socket, "storm 8 500\n"},
		{"dead/tries", absent, tries},
		{"dead/breaker-open", absent, "storm 1 3\nstorm 1 5000\n"},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, runDriver(b, driver, plugin, c.socket, c.commands)...)
			}
			b.ReportMetric(0, "ns/op") // of a whole storm it says nothing
			b.ReportMetric(Millis(Quantile(took, 0.5)), "p50-ms")
			b.ReportMetric(Millis(Quantile(took, 0.99)), "p99-ms")
			b.ReportMetric(float64(len(took)), "calls")
		})
	}
}

func runDriver(b *testing.B, driver, plugin, socket, commands string) []time.Duration {
	b.Helper()
	conf := filepath.Join(filepath.Dir(driver), "plugin.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "socket = %s\ndeadline_ms = 1000\n", socket), 0o600); err != nil {
		b.Fatal(err)
	}
	run := exec.Command(driver, plugin)
	run.Env = append(os.Environ(), "GRESIZE_PLUGIN_CONF="+conf)
	run.Stdin = strings.NewReader(commands)
	var complaint bytes.Buffer
	run.Stderr = &complaint
	output, err := run.Output()
	if err != nil {
		b.Fatalf("driver: %v\n%s", err, complaint.String())
	}
	var took []time.Duration
	for _, word := range strings.Fields(string(output)) {
		if word == "storm" {
			continue
		}
		nanoseconds, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Duration(nanoseconds))
	}
	return took
}
