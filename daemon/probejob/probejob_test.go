package probejob

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	sound := func() Job {
		return Job{Schema: Schema, Script: []byte("#!/bin/sh\n"), WorkDir: "/", BudgetSeconds: 1, Recording: Recording{Mode: "profile", Parts: []string{"published"}}}
	}
	if j := sound(); j.Validate() != nil {
		t.Fatal(j.Validate())
	}
	for says, change := range map[string]func(*Job){
		"schema":                   func(j *Job) { j.Schema = "" },
		"script":                   func(j *Job) { j.Script = []byte("echo") },
		"work_dir":                 func(j *Job) { j.WorkDir = "x" },
		"steps or budget_seconds":  func(j *Job) { j.BudgetSeconds = 0 },
		"tasks":                    func(j *Job) { j.Tasks = -1 },
		"devices":                  func(j *Job) { j.Devices = 65 },
		`recording: "a,b"`:         func(j *Job) { j.Recording.Mode = "a,b" },
		`recording: "X=1"`:         func(j *Job) { j.Recording.Parts = []string{"X=1"} },
		"recording.parts: 17, at ": func(j *Job) { j.Recording.Parts = make([]string, 17) },
	} {
		j := sound()
		change(&j)
		if err := j.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want %q", err, says)
		}
	}
}
