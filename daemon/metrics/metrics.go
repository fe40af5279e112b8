// Package metrics counts what the daemon does, in the form that Prometheus
// reads, and says whether it lives and is ready. It owns no decision and is the
// only user of the Prometheus client. No label holds a user, a job or a path:
// their number is bounded by the code.
package metrics

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/wire"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Live is what is read at the moment of a scrape.
type Live struct {
	// OpenJobs and OpenProbes are how many jobs are looked after, and how many probes are out for them.
	OpenJobs, OpenProbes func() int
	// Refused is how many connections were closed since too many were open.
	Refused func() int64
	// Backlog is how many submissions wait to be written, and how many were given up.
	Backlog func() (waiting, dropped int64)
	// ProbesFailing says whether no job is held since probes fail, of how many owners none is, and how often either began.
	ProbesFailing func() (all bool, owners int, opened int64)
	// Mode is the mode in force.
	Mode func() string
	// States are those that a job can reach.
	States []string
	// Ready says why the daemon could not decide now, nil when it can.
	Ready func(context.Context) error
}

// Build names what runs.
type Build struct{ Version, Slurm string }

// Metrics are the counters of one daemon.
type Metrics struct {
	registry *prometheus.Registry
	live     Live

	states, decisions, actuals *prometheus.CounterVec
	diedAfterChange            prometheus.Counter
	answers                    *prometheus.HistogramVec

	mu    sync.Mutex
	codes map[string]bool
}

// maxCodes bounds the values of the label "code"; the codes of this release are fewer.
const maxCodes = 128

// readyTimeout bounds the question whether the daemon is ready.
const readyTimeout = 2 * time.Second

// modes are the values of the label of gresize_mode.
var modes = []string{"off", "shadow", "enforce"}

// New makes the counters.
func New(build Build, live Live) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), live: live, codes: map[string]bool{},
		states: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gresize_job_states_total", Help: "Jobs that reached a state, by state; docs/decisionlog.md explains them."}, []string{"state"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gresize_decisions_total", Help: "Decisions, by verdict and by the code of their reason."}, []string{"verdict", "code"}),
		actuals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gresize_actuals_total", Help: "Reports of what jobs really used, by source and by how the job ended."}, []string{"source", "outcome"}),
		diedAfterChange: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gresize_out_of_memory_after_change_total", Help: "Jobs that ran out of GPU memory on what gresize had given them."}),
		answers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gresize_submit_answer_duration_seconds", Help: "Time to answer the plugin about one submission, by verdict.",
			Buckets: []float64{.0001, .0005, .001, .002, .005, .01, .02, .05, .1}}, []string{"verdict"}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registry.MustRegister(m.states, m.decisions, m.actuals, m.diedAfterChange, m.answers,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("gresize_jobs_open", "Jobs that are looked after now.", func() float64 { return float64(live.OpenJobs()) }),
		gauge("gresize_probes_open", "Probes that are asked for and have not reported.", func() float64 { return float64(live.OpenProbes()) }),
		gauge("gresize_submissions_waiting", "Submissions that wait in memory since the log cannot be written.", func() float64 { waiting, _ := live.Backlog(); return float64(waiting) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gresize_submissions_not_recorded_total", Help: "Submissions that were answered and given up before they could be written."},
			func() float64 { _, dropped := live.Backlog(); return float64(dropped) }),
		gauge("gresize_probes_failing", "1 while no job is held since the probes of several owners fail one after the other.", func() float64 {
			if all, _, _ := live.ProbesFailing(); all {
				return 1
			}
			return 0
		}),
		gauge("gresize_probes_failing_owners", "Owners of whose jobs none is held since their probes fail one after the other.", func() float64 { _, owners, _ := live.ProbesFailing(); return float64(owners) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gresize_probes_failing_total", Help: "How often jobs were no longer held since probes failed, for all owners or for one."},
			func() float64 { _, _, opened := live.ProbesFailing(); return float64(opened) }),
		gauge("gresize_ready", "1 when the daemon can decide: its log can be written.", func() float64 {
			if m.ready(context.Background()) != nil {
				return 0
			}
			return 1
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gresize_submit_connections_refused_total", Help: "Submissions that passed unchanged since too many were asked about at once."},
			func() float64 { return float64(live.Refused()) }),
	)
	for _, mode := range modes {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gresize_mode", Help: "1 for the mode in force.", ConstLabels: prometheus.Labels{"mode": mode}}, func() float64 {
			if live.Mode() == mode {
				return 1
			}
			return 0
		}))
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "gresize_build_info", Help: "What runs; the value is 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "slurm": build.Slurm}})
	info.Set(1)
	m.registry.MustRegister(info)
	// An alert on a rate wants the series to be there before the first event.
	for _, v := range []decision.Verdict{decision.Rewrite, decision.Keep, decision.LeaveAlone} {
		m.decisions.WithLabelValues(string(v), "none")
	}
	for _, state := range live.States {
		m.states.WithLabelValues(state)
	}
	for _, source := range []decisionlog.Source{decisionlog.SacctGPUMem, decisionlog.NVMLAccounting, decisionlog.EpilogOOM, decisionlog.Reported} {
		for _, outcome := range []decisionlog.Outcome{decisionlog.Completed, decisionlog.Failed, decisionlog.OutOfMemory, decisionlog.NotKnown} {
			m.actuals.WithLabelValues(string(source), string(outcome))
		}
	}
	return m
}

// Observed counts what the decision log has just made durable.
func (m *Metrics) Observed(o decisionlog.Observation) {
	if o.State != "" {
		m.states.WithLabelValues(o.State).Inc()
	}
	if d := o.Decision; d != nil {
		m.decisions.WithLabelValues(string(d.Verdict), m.code(d.Code)).Inc()
	}
	if a := o.Actual; a != nil {
		m.actuals.WithLabelValues(string(a.Source), string(a.Outcome)).Inc()
		if a.AfterRewrite && a.Outcome == decisionlog.OutOfMemory {
			m.diedAfterChange.Inc()
		}
	}
}

// code keeps the number of series bounded, whatever comes.
func (m *Metrics) code(code string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.codes[code] {
		return code
	}
	if len(m.codes) >= maxCodes {
		return "other"
	}
	m.codes[code] = true
	return code
}

// Answerer answers the plugin.
type Answerer interface {
	Answer(*wire.Request) *wire.Reply
}

// timed answers as another does, and measures it.
type timed struct {
	metrics *Metrics
	next    Answerer
}

// Timed measures an Answerer.
func (m *Metrics) Timed(next Answerer) Answerer { return timed{m, next} }

var verdictNames = map[wire.Verdict]string{wire.VerdictPass: "pass", wire.VerdictRewrite: "rewrite", wire.VerdictHold: "hold"}

// Answer implements Answerer.
func (t timed) Answer(r *wire.Request) *wire.Reply {
	begin := time.Now()
	reply := t.next.Answer(r)
	verdict := "none"
	if reply != nil {
		verdict = verdictNames[reply.Verdict]
	}
	t.metrics.answers.WithLabelValues(verdict).Observe(time.Since(begin).Seconds())
	return reply
}

func (m *Metrics) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return m.live.Ready(ctx)
}

// Handler serves /metrics, /livez, /readyz and /healthz, the names that slurmctld uses.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	ready := func(w http.ResponseWriter, r *http.Request) {
		if err := m.ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
		if all, _, _ := m.live.ProbesFailing(); all {
			// Jobs pass at once and unchanged: nothing that taking the daemon out of service would mend.
			_, _ = w.Write([]byte("probes fail one after the other: no job is held\n"))
		}
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", ready)
	return mux
}
