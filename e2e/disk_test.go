package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/wire"
)

// health asks /readyz: "ok", or why not.
func (c *chaos) health() string { return healthAt(filepath.Join(c.dir, "metrics")) }

func healthAt(socket string) string {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Get("http://gresized/readyz")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	return strings.TrimSpace(string(text))
}

// withMetrics has the daemon serve its health.
func (c *chaos) withMetrics() {
	c.t.Helper()
	text, err := os.ReadFile(c.config)
	must(c.t, err)
	must(c.t, os.WriteFile(c.config, fmt.Appendf(text, "[metrics]\nlisten = %q\n", "unix:"+filepath.Join(c.dir, "metrics")), 0o600))
}

// TestFullDisk: on a disk that takes nothing more the daemon goes on answering, says within a second that it is not well, holds nobody, keeps in memory what it cannot write, and has written
// all of it soon after there is room again, without a restart.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
	red, held := c.disturbDisk(func() { c.undoDisk = c.fillDisk() })
	c.undoDisk()
	back := time.Now()
	for c.health() != "ok" {
		if time.Since(back) > 30*time.Second {
			t.Fatalf("30 s after there is room the daemon says %q\n%s", c.health(), c.lastWords())
		}
		time.Sleep(50 * time.Millisecond)
	}
	green := time.Since(back)
	c.stopGently()
	last := c.lastLife()
	t.Logf("red after %s, %d of %d submissions held meanwhile, well again %s after there was room; %d answered, %d recorded", red.Round(time.Millisecond), held, disturbed, green.Round(time.Millisecond), last.Answered, last.Recorded)
	if last.Answered != last.Recorded || last.Recorded < disturbed {
		t.Errorf("rows are missing: %+v", last)
	}
}

// TestReadOnlyDisk is a file system that the kernel has made read-only, as it does after an error of the disk, under the daemon that has its files open. Such a file system has to be
// mounted anew, so the daemon ends; the next one says what is missing.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
	image := c.onFilesystem()
	red, held := c.disturbDisk(func() { must(t, unix.Mount("", c.state(), "", unix.MS_REMOUNT, "abort")) })
	c.stopGently()
	c.mu.Lock()
	said := strings.Contains(c.lines.String(), fmt.Sprintf("not_recorded=%d", disturbed))
	c.mu.Unlock()
	must(t, unix.Unmount(c.state(), 0))
	// A copy: a sandbox that has started meanwhile may hold the old file system in its own namespace, and the same image would be that one again.
	again := image + ".again"
	left, err := os.ReadFile(image)
	must(t, err)
	must(t, os.WriteFile(again, left, 0o600))
	if out, err := exec.Command("mount", "-o", "loop", again, c.state()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.mu.Lock()
	c.stopping = false
	c.mu.Unlock()
	c.start()
	waitUntil(t, 20*time.Second, "the next daemon to be well", func() bool { return c.health() == "ok" })
	c.stopGently()
	log, err := c.open()
	must(t, err)
	defer log.Close()
	lives, err := log.Lives(t.Context())
	must(t, err)
	t.Logf("red after %s, %d of %d submissions held meanwhile; the daemon says at its end that they are not recorded", red.Round(time.Millisecond), held, disturbed)
	// What such a disk had not written back is gone, the count of the answers with it: the next life knows that it does not know.
	if len(lives) != 2 || lives[0].Answered != -1 || lives[0].Recorded != 1 || !said {
		t.Errorf("%+v, %d are missing, said: %v", lives, held, said)
	}
}

// disturbed is how many submissions meet a disk that takes nothing.
const disturbed = 30

// disturbDisk starts the daemon, breaks its disk and submits. It returns how long the daemon took to say that it is not well, and how many jobs it held.
func (c *chaos) disturbDisk(fault func()) (red time.Duration, held int) {
	c.t.Helper()
	c.withMetrics()
	c.start()
	waitUntil(c.t, 20*time.Second, "the daemon to be well", func() bool { return c.health() == "ok" })
	c.submit(rand.New(rand.NewPCG(1, 1)), false)
	waitUntil(c.t, 20*time.Second, "the row", func() bool { return c.lastLife().Recorded == 1 })
	waitUntil(c.t, 2*chaosHold, "the story to end", func() bool { return c.unfinished() == 0 })
	fault()
	for began := time.Now(); c.health() == "ok"; time.Sleep(20 * time.Millisecond) {
		if red = time.Since(began); red > 5*time.Second {
			c.t.Fatal("the disk takes nothing, and the daemon says that it is well")
		}
	}
	if red > 1500*time.Millisecond {
		c.t.Errorf("red only after %s", red)
	}
	ask := func() {
		if reply := c.ask(sampleRequest()); reply != nil && reply.Verdict == wire.VerdictHold {
			held++
		}
	}
	ask()
	waitUntil(c.t, 5*time.Second, "the daemon to see that it cannot write", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Contains(c.lines.String(), "no job is held")
	})
	for range disturbed - 1 {
		ask()
	}
	if held != 1 {
		c.t.Errorf("%d submissions were held, of which the first alone could not know", held)
	}
	return red, held
}

// lastLife is the account of the daemon's latest life.
func (c *chaos) lastLife() decisionlog.Missing {
	c.t.Helper()
	log, err := c.open()
	must(c.t, err)
	defer log.Close()
	lives, err := log.Lives(c.t.Context())
	must(c.t, err)
	return lives[len(lives)-1]
}

func sampleRequest() *wire.Request {
	r := &wire.Request{SlurmVersion: 0x160508, UserID: 1001, SubmitUID: 1001, GroupID: 100, Name: "train", WorkDir: "/w", TresPerNode: "gres:gpu:1", Features: "gpu80g",
		Argv: []string{"/w/job.sh"}, ArgvTotal: 1, Environment: []string{"A=1"}, EnvironmentTotal: 1, Script: "#!/bin/sh\n"}
	r.ScriptTotal = uint64(len(r.Script))
	return r
}

func (c *chaos) state() string { return c.stateDir }

// fillDisk leaves no byte on the daemon's disk.
func (c *chaos) fillDisk() (undo func()) {
	ballast := filepath.Join(c.state(), "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		return nil
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = file.Write(block)
	}
	for block := make([]byte, 1); err == nil || len(block) == 1; block = nil {
		_, err = file.Write(block)
	}
	file.Close()
	return func() { os.Remove(ballast) }
}

// onFilesystem puts the daemon's state on an ext4 of its own, in a file that it returns.
func (c *chaos) onFilesystem() (image string) {
	c.t.Helper()
	image = filepath.Join(c.dir, "disk")
	must(c.t, os.WriteFile(image, nil, 0o600))
	must(c.t, os.Truncate(image, 64<<20))
	for _, command := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, c.state()}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	must(c.t, os.Chmod(c.state(), 0o700))
	c.t.Cleanup(func() { c.kill(); _ = unix.Unmount(c.state(), unix.MNT_DETACH) })
	return image
}

// TestEndIsQuick: whoever keeps the daemon waiting does not keep it from ending.
func TestEndIsQuick(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(c *chaos, probes string){
		"nobody": func(*chaos, string) {},
		"connections to the socket on which nothing comes": func(c *chaos, _ string) {
			for range 20 {
				connection, err := net.Dial("unix", c.socket)
				must(t, err)
				_, _ = connection.Write([]byte("GRSZ\x00\x01"))
				t.Cleanup(func() { connection.Close() })
			}
		},
		"connections of probes on which nothing comes": func(_ *chaos, probes string) {
			for range 20 {
				connection, err := net.Dial("tcp", probes)
				must(t, err)
				t.Cleanup(func() { connection.Close() })
			}
		},
		"a Slurm that hangs":          func(c *chaos, _ string) { c.cluster.set(&c.cluster.commands, "hang") },
		"a gresize-launch that hangs": func(c *chaos, _ string) { c.cluster.set(&c.cluster.probes, "hang") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
			c.start()
			c.answering()
			disturb(c, c.probes)
			random := rand.New(rand.NewPCG(1, 1))
			for range 5 {
				c.submit(random, false)
			}
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			c.signal(syscall.SIGTERM)
			c.mu.Lock()
			c.stopping = true
			exited := c.exited
			c.mu.Unlock()
			select {
			case <-exited:
			case <-time.After(20 * time.Second):
			}
			took := time.Since(began)
			t.Logf("%s: %d ms from SIGTERM to the end", name, took.Milliseconds())
			if took > 2*time.Second {
				t.Errorf("%s: the end took %s", name, took)
			}
		})
	}
}
