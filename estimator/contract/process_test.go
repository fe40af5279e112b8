package contract

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
)

// roleVariable makes this test's own program a plugin.
const roleVariable = "GRESIZE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if Starter() {
		os.Exit(StartPlugin())
	}
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "newer":
		serveVersions(teller{}, Version, Version+1)
	case "newest":
		serveVersions(teller{}, Version+1)
	case "silent":
		select {}
	case "elsewhere":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		select {}
	case "unending":
		for {
			_, _ = os.Stdout.WriteString(strings.Repeat("1|1|unix|", 1<<12))
		}
	case "far":
		fmt.Println("1|1|unix|/run/munge/munge.socket.2|grpc|")
		select {}
	case "climbing":
		dir, _ := os.Getwd()
		fmt.Println("1|1|unix|" + dir + "/../../other.socket|grpc|")
		select {}
	case "linked":
		dir, _ := os.Getwd()
		_ = os.Symlink(os.Getenv(targetVariable), dir+"/s")
		fmt.Println("1|1|unix|" + dir + "/s|grpc|")
		select {}
	case "odd name":
		Serve(called{Name: "../vgpu\x1b[2J", Version: "1"})
	case "long name":
		Serve(called{Name: strings.Repeat("a", 900_000), Version: "1"})
	case "no version":
		Serve(called{Name: "teller"})
	case "screen":
		Serve(called{Name: "teller", Version: "1\x1b[2J\n2"})
	default:
		Serve(teller{})
	}
}

// targetVariable names the socket to which a plugin leads its host.
const targetVariable = "GRESIZE_TEST_TARGET"

// called is an estimator that says this of itself.
type called Info

func (c called) Info() Info { return Info(c) }

func (called) Estimate(context.Context, Request) (estimator.Estimate, error) {
	return estimator.Estimate{}, errors.New("never asked")
}

// teller answers with what it sees of its process.
type teller struct{}

func (teller) Info() Info { return Info{Name: "teller", Version: "1"} }

func (teller) Estimate(_ context.Context, r Request) (estimator.Estimate, error) {
	detail := ""
	switch r.Bundle {
	case "environment":
		detail = strings.Join(os.Environ(), " ")
	case "files":
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return estimator.Estimate{}, err
		}
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			detail += to + " "
		}
	case "fork":
		child := exec.Command("/bin/sleep", "600")
		if err := child.Start(); err != nil {
			return estimator.Estimate{}, err
		}
		detail = strconv.Itoa(child.Process.Pid)
	case "reach":
		detail = reach()
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Minute)
	case "largest":
		all := int64(1<<63 - 1)
		return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "teller", GPU: r.GPU.ID, Confidence: estimator.High,
			Ranks: []estimator.Rank{{PeakAllocatedBytes: all, PeakReservedBytes: all, OutsideBytes: 1, ComfortableBytes: -all - 1, ComfortableHighBytes: all}}}, nil
	case "ranks":
		e := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "teller", GPU: r.GPU.ID, Confidence: estimator.High}
		e.Ranks = make([]estimator.Rank, estimator.MaxRanks+1)
		return e, nil
	case "error":
		return estimator.Estimate{}, errors.New(strings.Repeat("\x1b[2J\nforged row ", 1<<15))
	case "memory":
		block := make([]byte, 1<<30)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		detail = strconv.Itoa(len(block))
	}
	return estimator.NewUnknown("teller", r.GPU.ID, estimator.Reason{Code: "told", Detail: detail[:min(len(detail), estimator.MaxDetailBytes)]}), nil
}

func command(t *testing.T, role string) Command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Path: path, Dir: t.TempDir(), Env: []string{roleVariable + "=" + role}}
}

func ask(t *testing.T, c *Client, what string) (string, error) {
	t.Helper()
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	e, err := c.Estimate(ctx, NewRequest(what, card))
	if err != nil {
		return "", err
	}
	return e.Reasons[0].Detail, nil
}

func TestNegotiation(t *testing.T) {
	c, err := Start(t.Context(), command(t, "newer"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.ContractVersion() != Version {
		t.Errorf("version %d, want the highest that both have, %d", c.ContractVersion(), Version)
	}
	if _, err := Start(t.Context(), command(t, "newest")); !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "version") {
		t.Errorf("a plugin of no common version: %v", err)
	}
}

func TestStartFaults(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		says    string
	}{
		"no program": {Command{Path: "/nonexistent/plugin"}, "no such file"},
		"relative":   {Command{Path: "plugin"}, "absolute"},
		"no plugin":  {Command{Path: "/bin/echo", Args: []string{"hello"}}, "hello"},
		"ends":       {Command{Path: "/bin/false"}, "it ended (exit status 1) before it said where it listens: is it an estimator plugin?"},
		"silent":     {command(t, "silent"), ""},
		"elsewhere":  {command(t, "elsewhere"), "127.0.0.1:1"},
		"unending":   {command(t, "unending"), "it wrote"},
		"far":        {command(t, "far"), "not in its folder"},
		"climbing":   {command(t, "climbing"), "not in its folder"},
		"odd name":   {command(t, "odd name"), "no plain name"},
		"long name":  {command(t, "long name"), "no plain name"},
		"no version": {command(t, "no version"), "version"},
		"screen":     {command(t, "screen"), "version"},
	} {
		c.command.StartTimeout = time.Second
		begun := time.Now()
		client, err := Start(t.Context(), c.command)
		if err == nil {
			client.Close()
		}
		if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

// TestNothingIsInherited starts a plugin from a host that has a secret in its environment and an open file without the close-on-exec flag.
func TestNothingIsInherited(t *testing.T) {
	t.Setenv("GRESIZE_TEST_SECRET", "hunter2")
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(secret, syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	dir := command(t, "teller")
	c, err := Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if text, err := ask(t, c, "environment"); err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, "LANG=C.UTF-8") {
		t.Errorf("environment: %v: %s", err, text)
	}
	if text, err := ask(t, c, "files"); err != nil || strings.Contains(text, "secret") || !strings.Contains(text, "/dev/null") {
		t.Errorf("files: %v: %s", err, text)
	}
	c.Close()
	if left, err := os.ReadDir(dir.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestHostileAnswers: whatever a plugin does in a call, its host has an error of bounded length in bounded time, and ends it.
func TestHostileAnswers(t *testing.T) {
	for what, want := range map[string]error{"stop": ErrDeadline, "largest": ErrAnswer, "ranks": ErrAnswer, "error": nil} {
		c, err := Start(t.Context(), command(t, "teller"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := ask(t, c, what)
		if err == nil || want != nil && !errors.Is(err, want) || len(err.Error()) > 8<<10 {
			t.Errorf("%s: %q, %.300v", what, text, err)
		}
		begun := time.Now()
		c.Close()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%s: ended after %s", what, took)
		}
	}
}

// TestALinkIsNoSocket: a plugin that leads its host to a socket of another by a link in its own folder reaches nobody.
func TestALinkIsNoSocket(t *testing.T) {
	target := t.TempDir() + "/s"
	l, err := net.Listen("unix", target)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan bool, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			reached <- true
			c.Close()
		}
	}()
	linked := command(t, "linked")
	linked.Env = append(linked.Env, targetVariable+"="+target)
	linked.StartTimeout = 2 * time.Second
	c, err := Start(t.Context(), linked)
	if err == nil {
		c.Close()
	}
	select {
	case <-reached:
		t.Error("the host connected to the other's socket")
	case <-time.After(100 * time.Millisecond):
	}
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "no socket") {
		t.Error(err)
	}
}

func TestMemoryIsLimited(t *testing.T) {
	c, err := Start(t.Context(), command(t, "teller"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Go's runtime ends with status 2 where it gets no memory; its words depend on who wanted some, the program or the collector.
	if text, err := ask(t, c, "memory"); !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("a GiB under the default limit: %q %v", text, err)
	}
}

// TestGroupIsEnded lets a plugin fork, and ends it politely, by force, and by the hand of a stranger.
func TestGroupIsEnded(t *testing.T) {
	for name, end := range map[string]func(c *Client){
		"closed":  func(c *Client) { c.Close() },
		"killed":  func(c *Client) { c.Kill() },
		"crashed": func(c *Client) { _ = c.process.cmd.Process.Kill(); <-c.Done(); c.Close() },
		"stopped": func(c *Client) { _ = c.process.cmd.Process.Signal(syscall.SIGSTOP); c.Close() },
	} {
		c, err := Start(t.Context(), command(t, "teller"))
		if err != nil {
			t.Fatal(err)
		}
		child, err := ask(t, c, "fork")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		end(c)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
		if !gone(child) {
			t.Errorf("%s: the child %s lives", name, child)
		}
	}
}

// gone waits until a process has ended; one that waits for its new parent has.
func gone(pid string) bool {
	for range 100 {
		status, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}
