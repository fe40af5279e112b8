package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
)

// queued is one job of Slurm's.
type queued struct {
	record  client.Job
	err     error
	requeue bool
}

func (q *queued) Job(context.Context, uint32) (client.Job, error)  { return q.record, q.err }
func (q *queued) MayRequeue(context.Context, uint32) (bool, error) { return q.requeue, nil }

// TestAPlanIsForItsJobAsItWasChanged: the plan is given to the job's owner while the job asks for what it was changed to, with a limit on its steps only where it may run again.
func TestAPlanIsForItsJobAsItWasChanged(t *testing.T) {
	asked, given := request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, request.Request{TresPerNode: "gres/gpu:1", Features: "gpu12g"}
	type what struct {
		uid     uint32
		code    string
		state   string
		slurm   queued
		requeue bool
		body    string
	}
	for name, c := range map[string]struct {
		set     func(*what)
		code    int
		plan    bool
		slowest float64
	}{
		"its owner":                {func(*what) {}, 200, true, 1.05},
		"another user":             {func(w *what) { w.uid = 1002 }, 200, false, 0},
		"another decision":         {func(w *what) { w.code = decision.CodeSmaller }, 200, false, 0},
		"not changed yet":          {func(w *what) { w.state = jobs.StateUpdating }, 200, false, 0},
		"its request was put back": {func(w *what) { w.slurm.record.Request = asked }, 200, false, 0},
		"no certain record":        {func(w *what) { w.slurm.record.Ambiguous = true }, 200, false, 0},
		"Slurm does not answer":    {func(w *what) { w.slurm.err = errors.New("no controller") }, 500, false, 0},
		"it may not run again":     {func(w *what) { w.slurm.requeue = false }, 200, true, 0},
		"the site runs none again": {func(w *what) { w.requeue = false }, 200, true, 0},
		"it runs again already":    {func(w *what) { w.slurm.record.Restarts = 1 }, 200, true, 0},
		"another question":         {func(w *what) { w.body = `{"schema":"gresize.explain/1","job_id":7}` }, 400, false, 0},
		"forged":                   {func(w *what) { w.body = "forged" }, 403, false, 0},
	} {
		w := what{1001, decision.CodePlanned, jobs.StateVerified, queued{record: client.Job{ID: 7, UserID: 1001, Request: given}, requeue: true}, true, `{"schema":"gresize.plan/1","job_id":7}`}
		c.set(&w)
		log, err := decisionlog.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		at := time.Now()
		ids, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "t", UID: 1001, SubmittedAt: at, State: "held", Mode: "enforce", Asked: asked}, First: decisionlog.Event{At: at, State: "held"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Advance(t.Context(), decisionlog.Transition{Job: ids[0], From: "held", To: w.state, At: at, SlurmJobID: 7, Plan: &decisionlog.Plan{Slowdown: 1, Body: []byte("the plan")},
			Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: w.code, Change: request.Change{Result: given}}}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		planHandler(log, &w.slurm, asker{w.uid}, w.requeue, func() float64 { return 1.05 }, slog.New(slog.DiscardHandler)).ServeHTTP(r, httptest.NewRequest(http.MethodPost, epilog.PathPlan, strings.NewReader(w.body)))
		var plan epilog.Plan
		if r.Code == 200 {
			if err := json.Unmarshal(r.Body.Bytes(), &plan); err != nil {
				t.Fatal(err)
			}
		}
		if r.Code != c.code || (string(plan.Body) == "the plan") != c.plan || plan.Slowest != c.slowest {
			t.Errorf("%s: %d %q %v", name, r.Code, plan.Body, plan.Slowest)
		}
	}
}
