package actuals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/listen"
)

const (
	// maxCredentialBytes is above a report in munge's form.
	maxCredentialBytes = 64 << 10
	// maxAtOnce bounds the credentials that are read at the same moment: anybody can send some.
	maxAtOnce     = 4
	unmungeLimit  = 5 * time.Second
	handlingLimit = 20 * time.Second
	// readingLimit is for the arrival of a credential, which is a few KiB.
	readingLimit = 2 * time.Second
)

// Munge reads credentials: it says who made one, on this cluster, and what is in it.
type Munge struct {
	// Unmunge is the program, Socket that of munged; empty: its default place.
	Unmunge, Socket string
}

// Open returns the payload of a credential and the user id of who made it. munged itself refuses what is old, was read before, or has another key.
func (m Munge) Open(ctx context.Context, credential []byte) (payload []byte, uid uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, unmungeLimit)
	defer cancel()
	args := []string{"--keys=STATUS,UID", "--numeric"}
	if m.Socket != "" {
		args = append(args, "--socket="+m.Socket)
	}
	command := exec.CommandContext(ctx, m.Unmunge, args...)
	command.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	command.Stdin = bytes.NewReader(credential)
	command.WaitDelay = time.Second
	out, err := command.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("unmunge: %w", err)
	}
	return parseUnmunged(out)
}

// parseUnmunged reads "STATUS: 0", "UID: 0", an empty line, and the payload.
func parseUnmunged(out []byte) (payload []byte, uid uint32, err error) {
	head, payload, found := bytes.Cut(out, []byte("\n\n"))
	if !found {
		return nil, 0, errors.New("unmunge: no payload")
	}
	values := map[string]string{}
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(line, ":")
		values[key] = strings.TrimSpace(value)
	}
	n, err := strconv.ParseUint(values["UID"], 10, 32)
	if err != nil || values["STATUS"] != "0" {
		return nil, 0, fmt.Errorf("unmunge: status %q, uid %q", values["STATUS"], values["UID"])
	}
	return payload, uint32(n), nil
}

// Opener is Munge, or *epilog.Key where there is none.
type Opener interface {
	Open(ctx context.Context, credential []byte) (payload []byte, uid uint32, err error)
}

// ErrRefused wraps what the sender can mend.
var ErrRefused = errors.New("refused")

// Handler takes reports of Epilogs: a munge credential that root of a node has made, in the body of a POST.
func (k *Keeper) Handler(opener Opener) http.Handler {
	return Credentialed(k.config.Logger, opener, func(uid uint32) bool { return uid == 0 }, "root", func(ctx context.Context, _ uint32, payload []byte) (any, error) {
		report, err := epilog.ParseReport(payload)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return k.Epilog(ctx, report)
	})
}

// ToldHandler takes what the site's own monitoring says, from root or from our own user on any machine of this cluster.
func (k *Keeper) ToldHandler(opener Opener) http.Handler {
	own := uint32(os.Geteuid())
	return Credentialed(k.config.Logger, opener, func(uid uint32) bool { return uid == 0 || uid == own }, "root or SlurmUser", func(ctx context.Context, _ uint32, payload []byte) (any, error) {
		told, err := epilog.ParseTold(payload)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return k.Told(ctx, told)
	})
}

// Credentialed hands on what a welcome user of this cluster has sent, and nothing else. handle is told who that is.
func Credentialed(logger *slog.Logger, opener Opener, welcome func(uid uint32) bool, who string, handle func(ctx context.Context, uid uint32, payload []byte) (any, error)) http.Handler {
	slots := make(chan struct{}, maxAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Whoever sends slowly, or never, takes no place from the others.
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(readingLimit)); err != nil {
			logger.Debug("no deadline for a credential", "error", err)
		}
		credential, ok := listen.Body(w, r, maxCredentialBytes)
		if !ok {
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "busy, try again", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), handlingLimit)
		defer cancel()
		payload, uid, err := opener.Open(ctx, credential)
		if err != nil || !welcome(uid) {
			logger.Warn("credential refused", "path", r.URL.Path, "from", r.RemoteAddr, "uid", uid, "error", err)
			http.Error(w, "not a credential of "+who+" of this cluster", http.StatusForbidden)
			return
		}
		answer, err := handle(ctx, uid, payload)
		switch {
		case errors.Is(err, ErrRefused):
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case err != nil:
			logger.Error("question or report about a job not served", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
			http.Error(w, "not possible at this moment", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}
