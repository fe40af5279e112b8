package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/config"
)

// TestRecordingFor: the first bundled estimator says how jobs are run, and one that cannot live with that is named in the log.
func TestRecordingFor(t *testing.T) {
	for _, c := range []struct {
		names  []string
		mode   string
		parts  []string
		warned string
	}{
		{nil, "", nil, ""},
		{[]string{"vgpu"}, "", nil, ""},
		{[]string{"xmem"}, "profile", nil, ""},
		{[]string{"veritasest", "xmem"}, "profile", nil, ""},
		{[]string{"xmem-published"}, "profile", []string{"published"}, ""},
		{[]string{"vgpu", "xmem"}, "", nil, "estimator=xmem first=vgpu"},
		{[]string{"xmem", "vgpu"}, "profile", nil, "estimator=vgpu first=xmem"},
		{[]string{"their-own", "xmem"}, "profile", nil, ""},
	} {
		var out bytes.Buffer
		site := new(config.Config)
		for _, name := range c.names {
			e := config.Estimator{Name: name}
			if name == "their-own" || name == "veritasest" {
				e.Command = []string{"/bin/true"}
			}
			site.Estimators = append(site.Estimators, e)
		}
		r := recordingFor(site, slog.New(slog.NewTextHandler(&out, nil)))
		if r.Mode != c.mode || !slices.Equal(r.Parts, c.parts) || !strings.Contains(out.String(), c.warned) || c.warned == "" && out.Len() > 0 {
			t.Errorf("%v: %+v, %s", c.names, r, out.String())
		}
	}
}

// TestUntrustedPluginIsNamed holds that the log names at the start what would be refused at each question.
func TestUntrustedPluginIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := &config.Config{Estimators: []config.Estimator{{Name: "mine", Command: []string{path}}}}
	newEstimators(c, nil, nil, slog.New(slog.NewTextHandler(&log, nil))).Close()
	if !strings.Contains(log.String(), "estimator=mine") || !strings.Contains(log.String(), "chmod go-w") {
		t.Errorf("the log says %q", log.String())
	}
}
