// Package probeapi owns the HTTP side of probes. A probe fetches its job and
// leaves its bundle, with a key that opens that one probe's pages and only
// until its report. Whoever speaks here is a user's process: sizes, times and
// the form of everything are bounded, and nothing that arrives is trusted.
//
//	GET  /v1/probes/NAME          the job, see probejob.Job
//	POST /v1/probes/NAME/result   the bundle, application/octet-stream
//	POST /v1/probes/NAME/inputs   the files that the script read, before the result (estimator/probe/inputs)
//	POST /v1/probes/NAME/unchanged  {"job": …} in place of a result, when the files of that earlier job are unchanged
//	POST /v1/probes/NAME/failure  {"code": …, "detail": …} when there is no bundle
//
// The key stands in "Authorization: Bearer KEY".
package probeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe/inputs"
	"github.com/gresize/gresize/estimator/strictjson"
)

// Bounds on what a stranger may send and how slowly.
const (
	// MaxBundleBytes bounds the body of a result.
	MaxBundleBytes   = spool.MaxBundleBytes
	maxDocumentBytes = 16 << 10
	maxHeaderBytes   = 16 << 10
	maxAtOnce        = 64
	maxUploads       = 4
	readTimeout      = time.Minute
	writeTimeout     = time.Minute
	// stopTimeout is what is left to reports that are arriving when the daemon ends. A connection on which nothing was asked would use all of it.
	stopTimeout = time.Second
)

// Source knows the probes; *jobs.Manager is the real one.
type Source interface {
	ProbeJob(name, key string) (jobs.ProbeJob, error)
	ProbeBundle(name, key string, bundle []byte) error
	ProbeFailure(name, key string, reason estimator.Reason) error
	ProbeInputs(name, key string, files int, packed []byte) error
	ProbeUnchanged(name, key string, row int64) error
}

// Check reads a bundle defensively and returns what is wrong with it.
type Check func(io.ReaderAt, int64) error

// Server is the HTTP side.
type Server struct {
	// Recording is what each probe is told to record; it is set before Serve.
	Recording probejob.Recording
	// Heartbeat, when set before Serve, is told of every request in work.
	Heartbeat *heartbeat.Monitor

	source  Source
	check   Check
	logger  *slog.Logger
	slots   chan struct{}
	uploads chan struct{}
	mux     *http.ServeMux
	http    http.Server
}

// New makes a server; it starts nothing.
func New(source Source, check Check, logger *slog.Logger) *Server {
	s := &Server{source: source, check: check, logger: logger, slots: make(chan struct{}, maxAtOnce), uploads: make(chan struct{}, maxUploads)}
	mux := http.NewServeMux()
	s.mux = mux
	mux.HandleFunc("GET /v1/probes/{name}", s.job)
	mux.HandleFunc("POST /v1/probes/{name}/result", s.result)
	mux.HandleFunc("POST /v1/probes/{name}/failure", s.failure)
	mux.HandleFunc("POST /v1/probes/{name}/inputs", s.inputs)
	mux.HandleFunc("POST /v1/probes/{name}/unchanged", s.unchanged)
	s.http = http.Server{Handler: s.bounded(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: 5 * time.Second,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	return s
}

// Handle serves one more page on the same address, for POST requests only; its handler has bounds of its own. It must be called before Serve.
func (s *Server) Handle(path string, handler http.Handler) { s.mux.Handle("POST "+path, handler) }

// Serve answers until Close.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
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

func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			defer s.Heartbeat.Begin("a page of a probe", readTimeout+writeTimeout).End()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
		}
	})
}

func (s *Server) job(w http.ResponseWriter, r *http.Request) {
	job, err := s.source.ProbeJob(r.PathValue("name"), key(r))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	body := probejob.Job{Schema: probejob.Schema, Script: job.Script, Argv: job.Arguments, WorkDir: job.WorkDir, GPU: job.Profile, Steps: job.Steps, BudgetSeconds: int(job.Budget / time.Second), Devices: job.Devices, Tasks: job.Tasks, Array: job.Array, Recording: s.Recording,
		RecordInputs: job.RecordInputs, Inputs: job.Inputs, InputsOf: job.InputsOf}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.logger.Debug("job not sent to probe", "probe", r.PathValue("name"), "error", err)
	}
}

func (s *Server) result(w http.ResponseWriter, r *http.Request) {
	// The key is looked at before the body is read: a stranger cannot fill memory.
	if _, err := s.source.ProbeJob(r.PathValue("name"), key(r)); err != nil {
		s.refuse(w, r, err)
		return
	}
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	case <-r.Context().Done():
		return
	}
	bundle, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBundleBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err := s.check(bytes.NewReader(bundle), int64(len(bundle))); err != nil {
		http.Error(w, "bundle: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err := s.source.ProbeBundle(r.PathValue("name"), key(r), bundle); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// document reads the body into v, or refuses the request in the name of what it was to be.
func document(w http.ResponseWriter, r *http.Request, name string, v any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDocumentBytes))
	if err == nil {
		err = strictjson.Unmarshal(data, maxDocumentBytes, v)
	}
	if err != nil {
		http.Error(w, name+": "+err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func (s *Server) failure(w http.ResponseWriter, r *http.Request) {
	// As above: a stranger's slow body must not take the place of a probe.
	if _, err := s.source.ProbeJob(r.PathValue("name"), key(r)); err != nil {
		s.refuse(w, r, err)
		return
	}
	var reason estimator.Reason
	if !document(w, r, "failure", &reason) {
		return
	}
	if err := s.source.ProbeFailure(r.PathValue("name"), key(r), reason); err != nil {
		s.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) inputs(w http.ResponseWriter, r *http.Request) {
	if _, err := s.source.ProbeJob(r.PathValue("name"), key(r)); err != nil {
		s.refuse(w, r, err)
		return
	}
	packed, err := io.ReadAll(http.MaxBytesReader(w, r.Body, inputs.MaxPackedBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
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
	if _, err := s.source.ProbeJob(r.PathValue("name"), key(r)); err != nil {
		s.refuse(w, r, err)
		return
	}
	var body probejob.Unchanged
	if !document(w, r, "unchanged", &body) {
		return
	}
	if err := s.source.ProbeUnchanged(r.PathValue("name"), key(r), body.Job); err != nil {
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
	s.logger.Error("probe not served", "probe", r.PathValue("name"), "error", err)
	http.Error(w, "not possible at this moment", http.StatusInternalServerError)
}

func key(r *http.Request) string {
	k, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return k
}
