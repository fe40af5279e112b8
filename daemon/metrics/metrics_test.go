package metrics

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/slurm/wire"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var update = flag.Bool("update", false, "write the golden file anew")

type answerer struct{ verdict wire.Verdict }

func (a answerer) Answer(*wire.Request) *wire.Reply { return &wire.Reply{Verdict: a.verdict} }

func example(ready error) *Metrics {
	m := New(Build{Version: "1.2.3", Slurm: "22.05.8"}, Live{
		OpenJobs: func() int { return 3 }, OpenProbes: func() int { return 2 }, Backlog: func() (int64, int64) { return 0, 0 }, Refused: func() int64 { return 7 },
		ProbesFailing: func() (bool, int, int64) { return true, 2, 5 },
		Mode:          func() string { return "shadow" }, States: []string{"held", "probing", "reported"}, Ready: func(context.Context) error { return ready },
	})
	m.Observed(decisionlog.Observation{State: "held"})
	m.Observed(decisionlog.Observation{State: "decided", Decision: &decisionlog.Decision{Verdict: decision.Rewrite, Code: "smaller_fits"}})
	m.Observed(decisionlog.Observation{State: "left_alone", Decision: &decisionlog.Decision{Verdict: decision.LeaveAlone, Code: "opted_out"}})
	m.Observed(decisionlog.Observation{Actual: &decisionlog.Actual{Source: decisionlog.EpilogOOM, Outcome: decisionlog.OutOfMemory, AfterRewrite: true}})
	m.Observed(decisionlog.Observation{Actual: &decisionlog.Actual{Source: decisionlog.EpilogOOM, Outcome: decisionlog.OutOfMemory}})
	m.Timed(answerer{wire.VerdictHold}).Answer(nil)
	return m
}

// scraped is the page without what differs from run to run.
func scraped(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(page)) {
		if strings.Contains(line, "gresize_") && !strings.Contains(line, "_seconds_bucket") && !strings.Contains(line, "_seconds_sum") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func TestMetricsOverASocket(t *testing.T) {
	m := example(nil)
	path := filepath.Join(t.TempDir(), "metrics.sock")
	// One that a dead daemon left.
	dead, err := listen.On("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	listener, err := listen.On("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- m.Serve(ctx, listener) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	got := scraped(t, client, "http://gresized/metrics")
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("not as in %s (-update writes it anew):\n%s", golden, diff)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestNames asks the linter of Prometheus.
func TestNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(example(nil).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gresize_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		ready error
		path  string
		want  int
	}{{nil, "/livez", 200}, {nil, "/readyz", 200}, {errors.New("disk full"), "/livez", 200}, {errors.New("disk full"), "/readyz", 503}, {errors.New("disk full"), "/healthz", 503}, {nil, "/other", 404}} {
		listener, err := listen.On("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go example(c.ready).Serve(t.Context(), listener)
		response, err := http.Get("http://" + listener.Addr().String() + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		listener.Close()
		if response.StatusCode != c.want || c.want == 503 && !strings.Contains(string(body), "disk full") {
			t.Errorf("%s, ready %v: %d %s", c.path, c.ready, response.StatusCode, body)
		}
	}
}

func TestCodesAreBounded(t *testing.T) {
	m := example(nil)
	for i := range 1000 {
		m.Observed(decisionlog.Observation{Decision: &decisionlog.Decision{Verdict: decision.Keep, Code: strings.Repeat("x", i%500+1)}})
	}
	if n := testutil.CollectAndCount(m.decisions); n > maxCodes+4 {
		t.Errorf("%d series", n)
	}
}

// TestPagesNameOnlyWhatIsThere holds the manual, the alert rules and the dashboard to the metrics of the code, and the manual to all of them.
func TestPagesNameOnlyWhatIsThere(t *testing.T) {
	families, err := example(nil).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "gresize_") {
			known[f.GetName()] = true
		}
	}
	name := regexp.MustCompile(`\bgresize_[a-z_]+`)
	for _, page := range []string{"docs/metrics.md", "contrib/prometheus/alerts.yml", "contrib/grafana/gresize.json"} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, n := range name.FindAllString(string(text), -1) {
			n = strings.TrimSuffix(n, "_bucket")
			named[n] = true
			if !known[n] {
				t.Errorf("%s: there is no %s", page, n)
			}
		}
		for n := range known {
			if page == "docs/metrics.md" && !named[n] {
				t.Errorf("%s does not explain %s", page, n)
			}
		}
		if len(named) < 5 {
			t.Errorf("%s names only %d metrics", page, len(named))
		}
	}
}

// TestSilentConnections: a crowd that connects and asks nothing takes few of the daemon's descriptors and keeps nobody out.
func TestSilentConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go example(nil).Serve(t.Context(), listener)
	var crowd []net.Conn
	for range 300 {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		crowd = append(crowd, c)
	}
	reply, err := http.Get("http://" + listener.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Error(reply.Status)
	}
	open := 0
	for _, c := range crowd {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	if open >= maxConnections {
		t.Errorf("%d of 300 silent connections are kept", open)
	}
}

// TestOddRequests: what no scraper sends is refused, and answered by the rules of the addresses that strangers reach.
func TestOddRequests(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go example(nil).Serve(t.Context(), listener)
	for request, want := range map[string]string{
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                             "HTTP/1.1 400",
		"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc": "HTTP/1.1 405",
		"GET /../metrics HTTP/1.1\r\nHost: x\r\n\r\n":                       "HTTP/1.1 30",
		"GET /metrics HTTP/1.1\r\n\r\n":                                     "HTTP/1.1 400",
		"GET /debug/pprof/ HTTP/1.1\r\nHost: x\r\n\r\n":                     "HTTP/1.1 404",
	} {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q: %q %v, want %s", request, got, err, want)
		}
	}
}
