package probeapi

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
)

// two are the probes of two users, alice's and mallory's: the key is the name.
type two struct{}

func (two) ProbeOwner(name, key string) (uint32, error) {
	if name != key {
		return 0, jobs.ErrUnknownProbe
	}
	if strings.HasPrefix(name, "mallory") {
		return 1002, nil
	}
	return 1001, nil
}

func (two) ProbeJob(string, string) (jobs.ProbeJob, error)      { return jobs.ProbeJob{}, nil }
func (two) ProbeBundle(string, string, []byte) error            { return nil }
func (two) ProbeFailure(string, string, estimator.Reason) error { return nil }
func (two) ProbeInputs(string, string, int, []byte) error       { return nil }
func (two) ProbeUnchanged(name, key string, row int64) error    { return nil }
func (two) ProbePlan(string, string, probejob.Plan) error       { return nil }

// TestSlowSendersStandInNobodysWay: whoever sends slowly, without a key or with one, in whatever number, another's probe is answered.
func TestSlowSendersStandInNobodysWay(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(two{}, slog.New(slog.DiscardHandler))
	// As the Epilogs' page: the body is read before anything is known of its sender.
	s.Handle("/v1/epilog", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
	go func() { _ = s.Serve(inner) }()
	t.Cleanup(func() { _ = s.Close() })
	client := &http.Client{Timeout: 10 * time.Second}
	ask := func() (p50, p99 time.Duration) {
		t.Helper()
		var took []time.Duration
		for i := range 60 {
			method, path, body := http.MethodGet, "/v1/probes/alice", ""
			if i%2 == 1 {
				method, path, body = http.MethodPost, "/v1/probes/alice/result", strings.Repeat("b", 100_000)
			}
			r, err := http.NewRequest(method, "http://"+inner.Addr().String()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer alice")
			began := time.Now()
			answer, err := client.Do(r)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				continue
			}
			_ = answer.Body.Close()
			took = append(took, time.Since(began))
			if answer.StatusCode/100 != 2 {
				t.Errorf("request %d: %s", i, answer.Status)
			}
			client.CloseIdleConnections()
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)-1]
	}
	p50, p99 := ask()
	t.Logf("quiet: p50 %s, longest %s", p50.Round(time.Microsecond), p99.Round(time.Microsecond))
	for _, c := range []struct{ name, path, key string }{
		{"without a key, the Epilogs' page", "/v1/epilog", ""},
		{"with a wrong key", "/v1/probes/alice/result", "x"},
		{"failures of one's own", "/v1/probes/mallory/failure", "mallory"},
		{"bundles of one's own, of many probes", "/v1/probes/mallory%d/result", "mallory%d"},
		{"nothing at all", "", ""},
	} {
		var open []net.Conn
		for i := range 1500 {
			connection, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, connection)
			path, key := c.path, c.key
			if strings.Contains(path, "%d") {
				path, key = fmt.Sprintf(path, i), fmt.Sprintf(key, i)
			}
			if path != "" {
				fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 10000\r\n\r\nx", path, key)
			}
		}
		p50, p99 := ask()
		t.Logf("1500 connections, %s: p50 %s, longest %s", c.name, p50.Round(time.Microsecond), p99.Round(time.Microsecond))
		for _, connection := range open {
			_ = connection.Close()
		}
	}
}
