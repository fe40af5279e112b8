// Package probeapi owns the HTTP side of probes. A probe fetches its job and
// leaves its bundle, with a key that opens that one probe's pages and only
// until its report. Whoever speaks here is a user's process: sizes, times and
// the form of everything are bounded, and nothing that arrives is trusted.
//
//	GET  /v1/probes/NAME          the job, see probejob.Job
//	POST /v1/probes/NAME/result   the bundle, application/octet-stream
//	POST /v1/probes/NAME/inputs   the files that the script read, before the result (estimator/probe/inputs)
//	POST /v1/probes/NAME/plan     before the result, where a plan was asked for: see probejob.Plan
//	POST /v1/probes/NAME/unchanged  {"job": …} in place of a result, when the files of that earlier job are unchanged
//	POST /v1/probes/NAME/failure  {"code": …, "detail": …} when there is no bundle
//
// The key stands in "Authorization: Bearer KEY".
package probeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe/inputs"
	"github.com/gresize/gresize/internal/strictjson"
)

// Bounds on what a stranger may send and how slowly.
const (
	// MaxBundleBytes bounds the body of a result.
	MaxBundleBytes   = spool.MaxBundleBytes
	maxDocumentBytes = 16 << 10
	maxHeaderBytes   = 16 << 10
	// readTimeout bounds a request until its key is known, and a document; a bundle has longer, by its size.
	readTimeout   = 5 * time.Second
	longestUpload = time.Minute
	writeTimeout  = time.Minute
	// stopTimeout is what is left to reports that are arriving when the daemon ends. A connection on which nothing was asked would use all of it.
	stopTimeout = time.Second
)

// Source knows the probes; *jobs.Manager is the real one.
type Source interface {
	// ProbeOwner is the user whose probe it is. It is asked before anything else and answers from memory.
	ProbeOwner(name, key string) (uid uint32, err error)
	ProbeJob(name, key string) (jobs.ProbeJob, error)
	ProbeBundle(name, key string, bundle []byte) error
	ProbeFailure(name, key string, reason estimator.Reason) error
	ProbeInputs(name, key string, files int, packed []byte) error
	ProbeUnchanged(name, key string, row int64) error
	ProbePlan(name, key string, plan probejob.Plan) error
}

// Server is the HTTP side.
type Server struct {
	// Recording is what each probe is told to record; it is set before Serve.
	Recording probejob.Recording
	// Heartbeat, when set before Serve, is told of every request in work.
	Heartbeat *heartbeat.Monitor

	source Source
	logger *slog.Logger
	places *places
	mux    *http.ServeMux
	http   http.Server
}

// New makes a server; it starts nothing.
func New(source Source, logger *slog.Logger) *Server {
	s := &Server{source: source, logger: logger, places: newPlaces()}
	mux := http.NewServeMux()
	s.mux = mux
	mux.HandleFunc("GET /v1/probes/{name}", s.known(s.job))
	mux.HandleFunc("POST /v1/probes/{name}/result", s.known(s.result))
	mux.HandleFunc("POST /v1/probes/{name}/failure", s.known(s.failure))
	mux.HandleFunc("POST /v1/probes/{name}/inputs", s.known(s.inputs))
	mux.HandleFunc("POST /v1/probes/{name}/unchanged", s.known(s.unchanged))
	mux.HandleFunc("POST /v1/probes/{name}/plan", s.known(s.plan))
	s.http = http.Server{Handler: mux, ConnContext: listen.WithConnection, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: 5 * time.Second,
		MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	return s
}

// Handle serves one more page on the same address, for POST requests only; its handler has bounds of its own. It must be called before Serve.
func (s *Server) Handle(path string, handler http.Handler) { s.mux.Handle("POST "+path, handler) }

// Serve answers until Close.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(listen.Guarded(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("probe API: %w", err)
	}
	return nil
}

// Close stops and waits a moment for reports that are arriving.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

// Handler serves the pages, for tests.
func (s *Server) Handler() http.Handler { return s.http.Handler }

func (s *Server) job(w http.ResponseWriter, r *http.Request) {
	job, err := s.source.ProbeJob(r.PathValue("name"), key(r))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	body := probejob.Job{Schema: probejob.Schema, Script: job.Script, Argv: job.Arguments, WorkDir: job.WorkDir, GPU: job.Profile, Steps: job.Steps, BudgetSeconds: int(job.Budget / time.Second), Devices: job.Devices, Tasks: job.Tasks, Array: job.Array, Recording: s.Recording,
		RecordInputs: job.RecordInputs, Inputs: job.Inputs, InputsOf: job.InputsOf, Swap: job.Swap}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.logger.Debug("job not sent to probe", "probe", r.PathValue("name"), "error", err)
	}
}

func (s *Server) result(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		http.Error(w, "a bundle comes with its length", http.StatusLengthRequired)
		return
	}
	done, ok := s.places.upload(r.Context(), ownerOf(r))
	if !ok {
		return
	}
	defer done()
	patience(w, r)
	bundle, ok := listen.Body(w, r, MaxBundleBytes)
	if !ok {
		return
	}
	if err := s.source.ProbeBundle(r.PathValue("name"), key(r), bundle); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// document reads the body into v, or refuses the request in the name of what it was to be.
func document(w http.ResponseWriter, r *http.Request, name string, most int, v any) bool {
	data, ok := listen.Body(w, r, int64(most))
	if !ok {
		return false
	}
	err := strictjson.Unmarshal(data, most, v)
	if err != nil {
		http.Error(w, name+": "+err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func (s *Server) failure(w http.ResponseWriter, r *http.Request) {
	var reason estimator.Reason
	if !document(w, r, "failure", maxDocumentBytes, &reason) {
		return
	}
	if err := s.source.ProbeFailure(r.PathValue("name"), key(r), reason); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) inputs(w http.ResponseWriter, r *http.Request) {
	patience(w, r)
	packed, ok := listen.Body(w, r, inputs.MaxPackedBytes)
	if !ok {
		return
	}
	list, err := inputs.Unpack(packed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err := s.source.ProbeInputs(r.PathValue("name"), key(r), list.Files(), packed); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) unchanged(w http.ResponseWriter, r *http.Request) {
	var body probejob.Unchanged
	if !document(w, r, "unchanged", maxDocumentBytes, &body) {
		return
	}
	if err := s.source.ProbeUnchanged(r.PathValue("name"), key(r), body.Job); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	done, ok := s.places.upload(r.Context(), ownerOf(r))
	if !ok {
		return
	}
	defer done()
	patience(w, r)
	var plan probejob.Plan
	if !document(w, r, "plan", 2*probejob.MaxPlanBytes, &plan) {
		return
	}
	if err := plan.Validate(); err != nil {
		http.Error(w, "plan: "+err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.source.ProbePlan(r.PathValue("name"), key(r), plan); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse does not tell a stranger which part was wrong.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, jobs.ErrUnknownProbe) {
		s.logger.Warn("probe refused", "probe", r.PathValue("name"), "from", r.RemoteAddr)
		http.Error(w, jobs.ErrUnknownProbe.Error(), http.StatusForbidden)
		return
	}
	if errors.Is(err, jobs.ErrBadReason) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.logger.Error("probe not served", "probe", r.PathValue("name"), "error", err)
	http.Error(w, "not possible at this moment", http.StatusInternalServerError)
}

func key(r *http.Request) string {
	k, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return k
}
