package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
)

// asker is munge: whoever asks is this user.
type asker struct{ uid uint32 }

func (a asker) Open(_ context.Context, credential []byte) ([]byte, uint32, error) {
	if string(credential) == "forged" {
		return nil, 0, errors.New("no credential")
	}
	return credential, a.uid, nil
}

// TestExplainIsForTheOwner: the owner of a job is told its story, root and SlurmUser too; to all others it is a job that does not exist.
func TestExplainIsForTheOwner(t *testing.T) {
	log, err := decisionlog.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	at := time.Now()
	ids, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "t", UID: 1001, Name: "secret-project", SubmittedAt: at, State: "held", Mode: "enforce"}, First: decisionlog.Event{At: at, State: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Advance(t.Context(), decisionlog.Transition{Job: ids[0], From: "held", To: "abandoned", At: at, Finished: true, SlurmJobID: 7}); err != nil {
		t.Fatal(err)
	}
	ask := func(uid uint32, body string) (int, string) {
		w := httptest.NewRecorder()
		explainHandler(log, asker{uid}, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, epilog.PathExplain, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	const seven, eight = `{"schema":"gresize.explain/1","job_id":7}`, `{"schema":"gresize.explain/1","job_id":8}`
	for _, uid := range []uint32{1001, 0, uint32(os.Geteuid())} {
		code, text := ask(uid, seven)
		var told epilog.Explained
		if err := json.Unmarshal([]byte(text), &told); code != http.StatusOK || err != nil || !strings.Contains(text, "secret-project") || len(told.Lines) < 4 {
			t.Errorf("%d: %d %s", uid, code, text)
		}
	}
	code, stranger := ask(1002, seven)
	if code != http.StatusBadRequest || strings.Contains(stranger, "secret") {
		t.Errorf("a stranger: %d %s", code, stranger)
	}
	if _, none := ask(1002, eight); none != strings.ReplaceAll(stranger, "7", "8") {
		t.Errorf("a stranger can tell a job that is there from one that is not: %q %q", none, stranger)
	}
	for _, bad := range []string{"", "{}", `{"schema":"gresize.explain/1","job_id":0}`, `{"schema":"gresize.explain/1","job_id":7,"uid":0}`} {
		if code, text := ask(1001, bad); code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", bad, code, text)
		}
	}
	if code, text := ask(0, "forged"); code != http.StatusForbidden {
		t.Errorf("forged: %d %s", code, text)
	}
}
