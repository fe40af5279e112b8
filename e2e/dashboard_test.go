package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/browser"
	"github.com/gresize/gresize/estimator"
)

// panel is one of contrib/grafana/gresize.json.
type panel struct {
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
}

// series is one line of an answer of Prometheus.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// last is the newest value.
func (s series) last() float64 { return s.value(len(s.Values) - 1) }

func (s series) value(i int) float64 {
	text, _ := s.Values[i][1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// prometheus is a real one that scrapes a gresized.
type prometheus struct {
	t   *testing.T
	url string
}

// freeAddress is one on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	rules, err := filepath.Abs("../contrib/prometheus/alerts.yml")
	must(t, err)
	dir, address := t.TempDir(), freeAddress(t)
	config := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(config, []byte(fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: gresize\n    static_configs: [{targets: [%q]}]\n", rules, target)), 0o644))
	var said bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (tools/setup prometheus installs it)", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", said.String())
		}
	})
	p := prometheus{t, "http://" + address}
	waitUntil(t, time.Minute, "Prometheus", func() bool {
		r, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == 200
	})
	return p
}

// get asks the API of Prometheus.
func (p prometheus) get(path string, query url.Values, into any) {
	p.t.Helper()
	r, err := http.Get(p.url + path + "?" + query.Encode())
	must(p.t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(p.t, err)
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	must(p.t, json.Unmarshal(body, &answer))
	if answer.Status != "success" {
		p.t.Fatalf("%s %v: %s", path, query, answer.Error)
	}
	must(p.t, json.Unmarshal(answer.Data, into))
}

func (p prometheus) over(expression string, from, to time.Time) []series {
	p.t.Helper()
	var data struct{ Result []series }
	p.get("/api/v1/query_range", url.Values{"query": {expression}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(to.Unix())}, "step": {"1"}}, &data)
	return data.Result
}

// alerts are the states of the site's rules by name.
func (p prometheus) alerts() map[string]string {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	p.get("/api/v1/rules", nil, &data)
	states := map[string]string{}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			states[r.Name] = r.State
			if r.Health != "ok" && r.Health != "unknown" {
				p.t.Errorf("the rule %s: %s", r.Name, r.LastError)
			}
		}
	}
	return states
}

// TestDashboardOnPrometheus asks a real Prometheus, which scrapes a real gresized with real jobs, each question of the dashboard and each alert rule. Grafana
// itself is in none of the registries that this is tested with: that it draws the panels is not tested. With GRESIZE_PICTURES=FOLDER what Prometheus
// answered is drawn, by this test.
func TestDashboardOnPrometheus(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" && os.Getenv("GRESIZE_PICTURES") == "" {
		t.Skip("run by make nightly: Prometheus is installed for make nightly; daemon/metrics holds names and form")
	}
	text, err := os.ReadFile("../contrib/grafana/gresize.json")
	must(t, err)
	var dashboard struct{ Panels []panel }
	must(t, json.Unmarshal(text, &dashboard))
	s := newFakeSite(t, "enforce", time.Minute)
	// Prometheus reads no unix socket, so something stands between, as at a site.
	between := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "gresized"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.MetricsPath())
		}}})
	defer between.Close()
	address := between.Listener.Addr().String()
	from := time.Now()
	p := startPrometheus(t, address)

	check := exec.Command("promtool", "check", "metrics")
	page, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer page.Body.Close()
	check.Stdin = page.Body
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}

	// A rule that compares with what has never happened wants it to be there, as 0.
	waitUntil(t, 30*time.Second, "a rule that compares with reports of which there are none", func() bool {
		return len(p.over(`increase(gresize_job_states_total{state="reported"}[1m]) == 0`, time.Now().Add(-time.Second), time.Now())) > 0
	})
	s.answer(says(t, 7, estimator.Exact))
	for round := range 4 {
		var ids []string
		for _, args := range [][]string{nil, {"--comment=gresize:off"}, {"--exclusive"}} {
			ids = append(ids, s.submit(append(append([]string{}, tooLarge...), args...)...))
		}
		s.completed(ids[0], time.Minute)
		if round == 2 {
			s.answer(says(t, 7, estimator.Unknown))
		}
	}
	time.Sleep(3 * time.Second) // three more scrapes
	to := time.Now()
	drawn := map[string][]series{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			found := p.over(target.Expr, from, to)
			if len(found) == 0 {
				t.Errorf("%s: nothing is there for %s", panel.Title, target.Expr)
			}
			for i := range found {
				for name, value := range found[i].Metric {
					found[i].Metric["legend"] = strings.ReplaceAll(target.LegendFormat, "{{"+name+"}}", value)
					if found[i].Metric["legend"] != target.LegendFormat {
						break
					}
				}
				if found[i].Metric["legend"] == "" {
					found[i].Metric["legend"] = target.LegendFormat
				}
				if strings.Contains(found[i].Metric["legend"], "{{") {
					t.Errorf("%s: a line is called %s", panel.Title, found[i].Metric["legend"])
				}
			}
			drawn[panel.Title] = append(drawn[panel.Title], found...)
		}
	}
	values := map[string]float64{}
	for _, s := range drawn["Decisions an hour"] {
		values[s.Metric["verdict"]] = s.last()
	}
	if values["rewrite"] <= 0 || values["leave_alone"] <= 0 {
		t.Errorf("decisions: %v", values)
	}
	if mode := drawn["Mode"]; len(mode) != 1 || mode[0].Metric["legend"] != "enforce" {
		t.Errorf("mode: %+v", mode)
	}
	for name, state := range p.alerts() {
		if state != "inactive" {
			t.Errorf("%s is %s while all is well", name, state)
		}
	}
	drawDashboard(t, dashboard.Panels, drawn)
	s.KillDaemon()
	waitUntil(t, 30*time.Second, "the alert that nobody is there", func() bool { return p.alerts()["GresizeDown"] == "pending" })
}

// drawDashboard draws what Prometheus answered, on the grid of the dashboard.
func drawDashboard(t *testing.T, panels []panel, answers map[string][]series) {
	t.Helper()
	if os.Getenv("GRESIZE_PICTURES") == "" {
		return
	}
	var out strings.Builder
	out.WriteString(`<!doctype html><meta charset="utf-8"><title>gresize</title><style>body{margin:8px;background:#111217;color:#ccccdc;font:13px sans-serif;position:relative}
		.p{position:absolute;background:#181b1f;border:1px solid #2c2f34;border-radius:3px;padding:8px;overflow:hidden}.big{font-size:30px;padding-top:12px;text-align:center}.l{font-size:11px}</style>`)
	colours := []string{"#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#fade2a", "#5794f2", "#ffa6b0", "#c0d8ff", "#e0b400", "#96d98d", "#ca95e5", "#ffcb7d"}
	const cell, row = 56, 34
	for _, p := range panels {
		w, h := p.GridPos.W*cell-8, p.GridPos.H*row-8
		fmt.Fprintf(&out, `<div class="p" style="left:%dpx;top:%dpx;width:%dpx;height:%dpx"><b>%s</b>`, p.GridPos.X*cell, p.GridPos.Y*row, w-18, h-18, html.EscapeString(p.Title))
		if p.Type == "stat" {
			text := "–"
			if all := answers[p.Title]; len(all) > 0 {
				text = strconv.FormatFloat(all[0].last(), 'g', 4, 64)
				if p.Title == "Mode" {
					text = all[0].Metric["legend"]
				}
			}
			fmt.Fprintf(&out, `<div class="big">%s</div></div>`, html.EscapeString(text))
			continue
		}
		most, first, last := 1e-12, math.Inf(1), math.Inf(-1)
		for _, s := range answers[p.Title] {
			for i := range s.Values {
				if v := s.value(i); !math.IsNaN(v) {
					most = max(most, v)
				}
				at, _ := s.Values[i][0].(float64)
				first, last = min(first, at), max(last, at)
			}
		}
		pw, ph := float64(w-30), float64(h-80)
		fmt.Fprintf(&out, `<div class="l">up to %.4g</div><svg width="%.0f" height="%.0f"><path d="M0,%.1fH%.1f" stroke="#3a3d44"/>`, most, pw, ph, ph-1, pw)
		var legend strings.Builder
		for n, s := range answers[p.Title] {
			var d strings.Builder
			for i := range s.Values {
				at, _ := s.Values[i][0].(float64)
				if v := s.value(i); !math.IsNaN(v) {
					fmt.Fprintf(&d, " %.1f,%.1f", (at-first)/max(last-first, 1)*pw, ph-2-v/most*(ph-6))
				}
			}
			colour := colours[n%len(colours)]
			fmt.Fprintf(&out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, d.String(), colour)
			fmt.Fprintf(&legend, `<span style="color:%s">▬</span> %s `, colour, html.EscapeString(s.Metric["legend"]))
		}
		fmt.Fprintf(&out, `</svg><div class="l">%s</div></div>`, legend.String())
	}
	out.WriteString(`<div style="height:` + strconv.Itoa(28*row) + `px"></div>`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, out.String())
	}))
	defer server.Close()
	b, err := browser.Start()
	must(t, err)
	defer func() { must(t, b.Close()) }()
	page, err := b.NewPage(browser.Looks{Width: 24*cell + 16, Height: 900})
	must(t, err)
	must(t, page.Open(server.URL))
	picture(t, page, "dashboard")
}
