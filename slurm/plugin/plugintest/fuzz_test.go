package plugintest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/wire"
	"github.com/gresize/gresize/tools/peertest"
)

// FuzzConfig: whatever stands in plugin.conf, slurmctld lives, and the plugin is either off with a message that names the line, or has values in their bounds.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("socket = /run/gresize/submit.sock\ndeadline_ms=50\nenabled = yes\n# note\n\ntell_cpu_jobs=no"))
	f.Add([]byte("deadline_ms = 99999999999999999999\n"))
	f.Add([]byte("socket=/" + strings.Repeat("x", 200)))
	f.Add([]byte("=\n= =\nenabled\x00=yes"))
	peer := peertest.Start(f, "../config.c", "../tests/config_peer.c")
	f.Fuzz(func(t *testing.T, text []byte) {
		line := peer.Ask(t, binary.BigEndian.AppendUint32(nil, uint32(len(text))), text)
		var read, enabled, deadline, absolute, length int
		var message string
		if _, err := fmt.Sscan(line, &read, &enabled, &deadline, &absolute, &length, &message); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if deadline < 1 || deadline > 1000 || absolute != 1 || length > 107 || read == 0 && (enabled != 0 || message == "m") || read == 1 && message != "m" {
			t.Fatalf("%q gives %q", text, line)
		}
	})
}

// FuzzJob submits jobs whose every text is a user's through the sanitized plugin to a daemon that takes them. The job succeeds in silence and is not changed, and what arrives is what was
// submitted, or the plugin says why it left the job alone.
func FuzzJob(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n#GRESIZE off\n"), "gres:gpu:1", "train", "a gresize:off b", "A=1", "/home/ada")
	f.Add([]byte("#!/bin/sh\n#GRESIZE of"), "gres/gpu=2,;gres:shard", "x\x1b[2J", "", "GRESIZE=off", "")
	f.Add([]byte("#!/bin/sh\ntrain\n"), "gres:gpu:1", "train", "", "A=1", "/w")
	f.Add(bytes.Repeat([]byte("#GRESIZE \t"), 100), "gpu:(null)", "", "gresize:off", "=", "x")
	requests := make(chan *wire.Request, 16)
	dir := f.TempDir()
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { listener.Close() })
	bad := make(chan error, 16)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			request, err := wire.ReadRequest(connection)
			if err != nil {
				bad <- err
			} else if err := wire.WriteReply(connection, &wire.Reply{Verdict: wire.VerdictPass}); err != nil {
				bad <- err
			} else {
				requests <- request
			}
			connection.Close()
		}
	}()
	f.Fuzz(func(t *testing.T, script []byte, tres, name, comment, variable, workDir string) {
		for _, text := range []string{string(script), tres, name, comment, variable, workDir} {
			if strings.ContainsRune(text, 0) || len(text) > 20000 {
				return // a C string ends there; slurmctld hands over no other
			}
		}
		d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
		d.tell("job", text("script", string(script)), text("tres_per_node", tres), text("name", name), text("comment", comment), text("work_dir", workDir), environment("A=b", variable))
		before := d.dump()
		d.submit()
		if after := d.dump(); after != before {
			t.Fatalf("the job changed:\nfrom %s\nto   %s", before, after)
		}
		log := d.stop()
		select {
		case err := <-bad:
			t.Fatalf("the plugin's request: %v\n%s", err, log)
		case request := <-requests:
			if request.Name != name || request.WorkDir != workDir || request.Comment != comment || request.TresPerNode != tres || request.ScriptTotal != uint64(len(script)) {
				t.Fatalf("arrived as %+v", request)
			}
			if left := request.SkipReason != ""; left != (request.Script == "" && len(script) > 0) || left != (len(request.Environment) == 0) {
				t.Fatalf("left alone for %q, and arrived as %+v", request.SkipReason, request)
			}
			if request.SkipReason == "" && (request.Script != string(script) || !slices.Contains(request.Environment, variable)) {
				t.Fatalf("arrived as %+v", request)
			}
		case <-time.After(50 * time.Millisecond): // it asks for no GPU
		}
	})
}
