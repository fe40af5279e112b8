package probeapi

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// FuzzUploads sends a probe's pages what a user's process might: the right key and any body, any key, any path. Nothing is taken without the key, and a bundle only when it can be read.
func FuzzUploads(f *testing.F) {
	f.Add("/v1/probes/p/result", "Bearer k", []byte("PK\x03\x04"))
	f.Add("/v1/probes/p/failure", "Bearer k", []byte(`{"code":"script_failed","detail":"x"}`))
	f.Add("/v1/probes/p/inputs", "Bearer k", []byte("\x1f\x8b"))
	f.Add("/v1/probes/p/unchanged", "Bearer k", []byte(`{"job":31}`))
	f.Add("/v1/probes/p/result", "Bearer x", []byte{})
	f.Add("/v1/probes/../p", "k", []byte{})
	f.Fuzz(func(t *testing.T, path, authorization string, body []byte) {
		o := &one{}
		s := New(o, slog.New(slog.DiscardHandler))
		request, err := http.NewRequest(http.MethodPost, "http://h/", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Path = path
		request.Header.Set("Authorization", authorization)
		answer := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(answer, request)
		if answer.Code == http.StatusInternalServerError {
			t.Fatalf("%q: %d %s", path, answer.Code, answer.Body)
		}
		if took := o.bundle != nil || o.failure != nil || o.packed != nil; took && (authorization != "Bearer k" || answer.Code != http.StatusNoContent) {
			t.Fatalf("%q with %q was taken and answered with %d", path, authorization, answer.Code)
		}
	})
}
