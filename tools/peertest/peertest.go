// Package peertest asks C code of the tree under its sanitizers, for fuzz targets of Go: a program that answers each question with a line. Both halves of the
// house have such code, so it belongs to neither.
package peertest

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Peer is a running program.
type Peer struct {
	command   *exec.Cmd
	in        *bufio.Writer
	out       *bufio.Reader
	complaint bytes.Buffer
}

// Start builds a program with the sanitizers, from sources and options of the compiler, and starts it for the life of the target.
func Start(f *testing.F, arguments ...string) *Peer {
	f.Helper()
	program := filepath.Join(f.TempDir(), "peer")
	build := exec.Command("cc", append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program}, arguments...)...)
	if output, err := build.CombinedOutput(); err != nil {
		f.Fatalf("build: %v\n%s", err, output)
	}
	p := &Peer{command: exec.Command(program)}
	p.command.Stderr = &p.complaint
	in, err := p.command.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { in.Close(); _ = p.command.Wait() })
	p.in, p.out = bufio.NewWriter(in), bufio.NewReader(out)
	return p
}

// Ask sends a question and returns the line of the answer. A peer that died fails the test with what a sanitizer said.
func (p *Peer) Ask(t *testing.T, parts ...[]byte) string {
	t.Helper()
	for _, part := range parts {
		_, _ = p.in.Write(part) // Flush tells
	}
	err := p.in.Flush()
	var line string
	if err == nil {
		line, err = p.out.ReadString('\n')
	}
	if err != nil {
		_ = p.command.Wait()
		t.Fatalf("%v\n%s", err, p.complaint.String())
	}
	return strings.TrimSuffix(line, "\n")
}
