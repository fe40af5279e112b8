package probeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe/inputs"
)

// one knows a single probe.
type one struct {
	bundle  []byte
	failure *estimator.Reason
	disk    error
	files   int
	packed  []byte
}

func (o *one) ProbeJob(name, key string) (jobs.ProbeJob, error) {
	if name != "p" || key != "k" || o.bundle != nil || o.failure != nil {
		return jobs.ProbeJob{}, jobs.ErrUnknownProbe
	}
	return jobs.ProbeJob{Script: []byte("#!/bin/sh\n\xff"), Arguments: [][]byte{[]byte("a")}, WorkDir: "/w", Profile: "a100-80", Steps: 4, Budget: 90 * time.Second, Devices: 1}, nil
}

func (o *one) ProbeOwner(name, key string) (uint32, error) {
	_, err := o.ProbeJob(name, key)
	return 1001, err
}

func (o *one) ProbeBundle(name, key string, bundle []byte) error {
	if _, err := o.ProbeJob(name, key); err != nil {
		return err
	}
	if o.disk != nil {
		return o.disk
	}
	o.bundle = bundle
	return nil
}

func (o *one) ProbeFailure(name, key string, reason estimator.Reason) error {
	if _, err := o.ProbeJob(name, key); err != nil {
		return err
	}
	o.failure = &reason
	return nil
}

func (o *one) ProbeInputs(name, key string, files int, packed []byte) error {
	_, err := o.ProbeJob(name, key)
	o.files, o.packed = files, packed
	return err
}

func (o *one) ProbeUnchanged(name, key string, row int64) error {
	if _, err := o.ProbeJob(name, key); err != nil || row != 31 {
		return jobs.ErrUnknownProbe
	}
	o.bundle = []byte("unchanged")
	return nil
}

func (o *one) ProbePlan(name, key string, plan probejob.Plan) error {
	_, err := o.ProbeJob(name, key)
	return err
}

func TestInputsAndUnchanged(t *testing.T) {
	list := &inputs.List{Schema: inputs.Schema, Folders: []inputs.Folder{{Path: "/a/", Names: []string{"b"}, Digest: strings.Repeat("a", 32)}}}
	packed, err := list.Pack()
	if err != nil {
		t.Fatal(err)
	}
	source := &one{}
	s := New(source, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		page, key, body string
		code            int
	}{
		{"inputs", "x", string(packed), 403}, {"inputs", "k", "no gzip", 422}, {"inputs", "k", string(packed), 204}, {"inputs", "k", strings.Repeat("x", inputs.MaxPackedBytes+1), 413},
		{"plan", "x", `{"slowdown":1,"host_bytes":0,"moved_bytes":0,"body":"e30="}`, 403}, {"plan", "k", `{"slowdown":1,"host_bytes":0,"moved_bytes":0,"body":"e30="}`, 204},
		{"plan", "k", `{"slowdown":0.5,"host_bytes":0,"moved_bytes":0,"body":"e30="}`, 400}, {"plan", "k", `{"slowdown":1,"host_bytes":-1,"moved_bytes":0,"body":"e30="}`, 400},
		{"plan", "k", `{"slowdown":1,"host_bytes":0,"moved_bytes":0,"body":""}`, 400}, {"plan", "k", `{"slowdown":1,"more":1}`, 400}, {"plan", "k", "{", 400},
		{"unchanged", "k", "x", 400}, {"unchanged", "k", `{"job":30}`, 403}, {"unchanged", "k", `{"job":31}`, 204}, {"unchanged", "k", `{"job":31}`, 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/probes/p/"+c.page, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+c.key)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s %.20q: %d %s, want %d", c.page, c.body, w.Code, w.Body, c.code)
		}
	}
	if source.files != 1 || !bytes.Equal(source.packed, packed) {
		t.Errorf("%d files", source.files)
	}
}

func call(s *Server, method, path, key string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestJobAndResult(t *testing.T) {
	source := &one{}
	s := New(source, slog.New(slog.DiscardHandler))
	w := call(s, "GET", "/v1/probes/p", "k", nil)
	var job probejob.Job
	if err := json.Unmarshal(w.Body.Bytes(), &job); err != nil || w.Code != 200 || job.Schema != probejob.Schema || string(job.Script) != "#!/bin/sh\n\xff" || job.BudgetSeconds != 90 || job.GPU != "a100-80" {
		t.Fatalf("%d %+v %v", w.Code, job, err)
	}
	source.disk = errors.New("disk full at /var/lib/secret")
	if w := call(s, "POST", "/v1/probes/p/result", "k", strings.NewReader("good")); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a full disk: %d %s", w.Code, w.Body)
	}
	source.disk = nil
	if w := call(s, "POST", "/v1/probes/p/result", "k", strings.NewReader("good one")); w.Code != http.StatusNoContent || string(source.bundle) != "good one" {
		t.Errorf("a good bundle: %d", w.Code)
	}
	if w := call(s, "POST", "/v1/probes/p/result", "k", strings.NewReader("good two")); w.Code != http.StatusForbidden {
		t.Errorf("a second bundle: %d", w.Code)
	}
}

func TestStrangers(t *testing.T) {
	for _, c := range []struct {
		method, path, key string
		code              int
	}{
		{"GET", "/v1/probes/p", "", 403}, {"GET", "/v1/probes/p", "K", 403}, {"GET", "/v1/probes/q", "k", 403}, {"GET", "/v1/probes/", "k", 404}, {"GET", "/", "k", 404},
		{"POST", "/v1/probes/p/result", "x", 403}, {"POST", "/v1/probes/p/failure", "x", 403}, {"DELETE", "/v1/probes/p", "k", 405}, {"GET", "/v1/probes/../p", "k", 307},
	} {
		source := &one{}
		s := New(source, slog.New(slog.DiscardHandler))
		w := call(s, c.method, c.path, c.key, strings.NewReader(`{"code":"no_torch"}`))
		if w.Code != c.code || source.bundle != nil || source.failure != nil {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.key, w.Code, c.code)
		}
	}
}

// endless never ends, and counts what was read.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) { e.read += int64(len(p)); return len(p), nil }

func TestSizes(t *testing.T) {
	s := New(&one{}, slog.New(slog.DiscardHandler))
	body := &endless{}
	if w := call(s, "POST", "/v1/probes/p/result", "k", body); w.Code != http.StatusLengthRequired || body.read != 0 {
		t.Errorf("an endless bundle: %d after %d bytes", w.Code, body.read)
	}
	if w := call(s, "POST", "/v1/probes/p/result", "k", bytes.NewReader(make([]byte, MaxBundleBytes+1))); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a bundle that is too large: %d", w.Code)
	}
	body = &endless{}
	if w := call(s, "POST", "/v1/probes/p/result", "wrong", body); w.Code != 403 || body.read > 1<<20 {
		t.Errorf("an endless bundle with a wrong key: %d after %d bytes", w.Code, body.read)
	}
	body = &endless{}
	if w := call(s, "POST", "/v1/probes/p/failure", "wrong", body); w.Code != 403 || body.read != 0 {
		t.Errorf("an endless failure with a wrong key: %d after %d bytes", w.Code, body.read)
	}
	for _, text := range []string{"", "[]", `{"code": 1}`, `{"code":"a","more":1}`} {
		if w := call(s, "POST", "/v1/probes/p/failure", "k", strings.NewReader(text)); w.Code != 400 {
			t.Errorf("failure %.20q: %d", text, w.Code)
		}
	}
	if w := call(s, "POST", "/v1/probes/p/failure", "k", strings.NewReader(`{"code":"`+strings.Repeat("x", 1<<20))); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a failure of a MiB: %d", w.Code)
	}
}

func TestFailure(t *testing.T) {
	source := &one{}
	s := New(source, slog.New(slog.DiscardHandler))
	if w := call(s, "POST", "/v1/probes/p/failure", "k", strings.NewReader(`{"code":"no_sandbox","detail":"why"}`)); w.Code != 204 || source.failure == nil || source.failure.Code != "no_sandbox" {
		t.Errorf("%d %+v", w.Code, source.failure)
	}
}
