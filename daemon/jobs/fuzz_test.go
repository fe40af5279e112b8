package jobs

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/wire"
)

// FuzzSubmission looks at scripts, requests, names and comments as users write them. Whatever is not left alone can be named in a list of jobs, in a path and to scontrol, and belongs to nobody
// who opted out.
func FuzzSubmission(f *testing.F) {
	f.Add("#!/bin/sh\n#GRESIZE off\n", "gres:gpu:1", "a|b", "train", "/w", "gresize:off", "GRESIZE=off", "1-3")
	f.Add("#!/bin/sh\npython x\n", "gres/gpu=a100:2,gres:shard:1", "[a*2&b]", "tr\x1bain", "/w\nJobId=5", "", "A=1", "")
	f.Add("\x7fELF", "gpu:(null)", "", "", "", "", "", "0-4000000000:1")
	f.Fuzz(func(t *testing.T, script, tres, features, name, dir, comment, variable, array string) {
		r := &wire.Request{SlurmVersion: 0x160508, UserID: 1001, GroupID: 100, Name: name, WorkDir: dir, TresPerNode: tres, Features: features, Comment: comment, ArrayInx: array,
			Script: script, ScriptTotal: uint64(len(script)), Environment: []string{variable}, EnvironmentTotal: 1}
		code, reason := ineligible(r, true)
		_ = fingerprint(r)
		if code != "" {
			if reason == "" {
				t.Fatalf("%s without a reason", code)
			}
			return
		}
		switch {
		case !strings.HasPrefix(script, "#!"), strings.ContainsAny(name+dir, "\n\r\x1b\x00"), strings.EqualFold(variable, "GRESIZE=off"), strings.EqualFold(comment, "gresize:off"):
			t.Fatalf("held: %q %q %q %q", script, name, dir, variable)
		}
		if asks := askedOf(r).Asks(); len(asks) != 1 || asks[0].Count < 1 || asks[0].Count > mostGPUs {
			t.Fatalf("%+v", asks)
		}
	})
}
