package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/spool"
)

// TestPageIsOnlyThereWhenItIsWanted: without an address nothing listens and no bundle is kept; with one, rows can be read while the daemon writes them.
func TestPageIsOnlyThereWhenItIsWanted(t *testing.T) {
	dir := t.TempDir()
	files, err := spool.Open(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := decisionlog.Open(t.Context(), filepath.Join(dir, "log.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := config.Defaults()
	c.Log.Path = filepath.Join(dir, "log.db")
	parts := daemonParts{version: "1.2.3", files: files, words: c.Words, logger: slog.New(slog.DiscardHandler), ready: log.Ping}
	end := func(token string) error {
		return errors.Join(files.PutBundle(token, []byte("bundle")), files.Remove(token))
	}
	if p, err := openPage(t.Context(), &c, parts); p != nil || err != nil {
		t.Fatal(p, err)
	}
	if err := end("a"); err != nil {
		t.Fatal(err)
	}
	c.Web.Listen = "unix:" + filepath.Join(dir, "web.sock")
	ctx, stop := context.WithCancel(t.Context())
	p, err := openPage(ctx, &c, parts)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx) }()
	if err := end("b"); err != nil {
		t.Fatal(err)
	}
	for token, kept := range map[string]bool{"a": false, "b": true} {
		if _, err := files.FindBundle(token); (err == nil) != kept || !kept && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", token, err)
		}
	}
	if _, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "tok", Mode: "shadow", Name: "train", Finished: true, SubmittedAt: time.Now()}, First: decisionlog.Event{At: time.Now(), State: "left_alone"}}); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "web.sock"))
	}}}
	r, err := client.Get("http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.Contains(string(body), "<bdi>train</bdi>") {
		t.Errorf("%v\n%s", err, body)
	}
	stop()
	if err := errors.Join(<-served, p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "web.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	for _, none := range []string{"127.0.0.1:99999", "unix:" + c.Log.Path + "/web.sock"} {
		c.Web.Listen = none
		if _, err := openPage(t.Context(), &c, parts); err == nil || !strings.Contains(err.Error(), "web: ") || strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%s: %v", none, err)
		}
	}
}

// TestHealthIsAskedSeldom: a question about the daemon's health takes the way of a submission, and whoever loads the page again and again must not crowd that out.
func TestHealthIsAskedSeldom(t *testing.T) {
	asked := 0
	trouble := seldom(func(context.Context) error { asked++; return errors.New("no") })
	for range 100 {
		if trouble(t.Context()) == nil {
			t.Fatal("well")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
