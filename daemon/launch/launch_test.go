package launch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/internal/account"
)

// jobUser is an unprivileged user of the machine, made by tools/setup.
const jobUser = "gresize-user"

func request(t *testing.T) Request {
	t.Helper()
	u, err := user.Lookup(jobUser)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return Request{UID: uint32(uid), GID: uint32(gid), Name: NamePrefix + "abcdefgh", Key: strings.Repeat("k", 52), URL: "http://127.0.0.1:1/v1/probes/" + NamePrefix + "abcdefgh", WorkDir: "/tmp",
		Environment: [][]byte{[]byte("A=1 2\n3"), []byte("SLURM_JOB_ID=5"), []byte("SBATCH_PARTITION=x"), []byte("GRESIZE_PROBE_KEY=old")}, TimeLimitMinutes: 5, CPUs: 2, MemoryMiB: 100}
}

func TestValidate(t *testing.T) {
	good := request(t)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Request){
		"name":              func(r *Request) { r.Name = "job" },
		"name with blank":   func(r *Request) { r.Name = NamePrefix + "abc defgh" },
		"key":               func(r *Request) { r.Key = "short" },
		"url":               func(r *Request) { r.URL = "http://host/;reboot" },
		"relative folder":   func(r *Request) { r.WorkDir = "x" },
		"folder with NUL":   func(r *Request) { r.WorkDir = "/a\x00" },
		"no time":           func(r *Request) { r.TimeLimitMinutes = 0 },
		"too long":          func(r *Request) { r.TimeLimitMinutes = 1 << 20 },
		"no cpu":            func(r *Request) { r.CPUs = 0 },
		"no memory":         func(r *Request) { r.MemoryMiB = -1 },
		"option in account": func(r *Request) { r.Account = "--uid=0" },
		"partition list":    func(r *Request) { r.Partition = "a,b" },
		"nameless variable": func(r *Request) { r.Environment = [][]byte{[]byte("=x")} },
		"NUL in variable":   func(r *Request) { r.Environment = [][]byte{[]byte("A=\x00B=1")} },
		"no variable":       func(r *Request) { r.Environment = [][]byte{[]byte("A")} },
	} {
		r := request(t)
		change(&r)
		if r.Validate() == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestEnvironmentHasNothingOfAnEnclosingJob(t *testing.T) {
	r := request(t)
	got := (&Server{config: Config{SlurmConf: "/etc/slurm/slurm.conf"}}).environment(r)
	want := []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "GRESIZE_PROBE_KEY=" + r.Key, "GRESIZE_PROBE_URL=" + r.URL, "SLURM_CONF=/etc/slurm/slurm.conf", "GRESIZE_JOB_A=1 2\n3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// serve starts the privileged half with a script in place of sbatch. Tests run as root.
func serve(t *testing.T, sbatch string, change func(*Config)) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "gresize-launch-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "sbatch")
	if err := os.WriteFile(script, []byte("#!/bin/bash\n"+sbatch), 0o755); err != nil {
		t.Fatal(err)
	}
	config := Config{Sbatch: script, Probe: script, MinUID: 1000, Timeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&config)
	}
	s, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), listener) }()
	t.Cleanup(func() {
		listener.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &Client{Path: socket, Timeout: 5 * time.Second}
}

func TestSubmitRunsAsTheOwner(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(out, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{out, filepath.Dir(out), filepath.Dir(filepath.Dir(out))} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	client := serve(t, `{ id -u; id -g; grep -E '^Cap(Prm|Eff)' /proc/self/status; printf '%s\n' "$@"; cat; tr '\0' '\n' < /proc/$$/environ; } > `+out+"\necho '42;cluster'\n", nil)
	r := request(t)
	id, err := client.Submit(t.Context(), r)
	if err != nil || id != 42 {
		t.Fatal(id, err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{strconv.Itoa(int(r.UID)) + "\n" + strconv.Itoa(int(r.GID)) + "\n", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "--export=ALL\n", "--job-name=" + r.Name,
		"--chdir=/tmp", "--mem=100M", "#!/bin/sh\nexec ", "/sbatch run\n", "\nGRESIZE_PROBE_KEY=" + r.Key + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	for _, wrong := range []string{"\nA=1", "SLURM_", "SBATCH_", "--account", "--gres", "--export-file"} {
		if strings.Contains(text, wrong) {
			t.Errorf("%q is in:\n%s", wrong, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	client := serve(t, "echo 42", nil)
	var refused *RefusedError
	for name, change := range map[string]func(*Request){
		"root":           func(r *Request) { r.UID, r.GID = 0, 0 },
		"system account": func(r *Request) { r.UID = 999 },
		"no user":        func(r *Request) { r.UID = 4_000_000_000 },
		"nobody":         func(r *Request) { r.UID, r.GID = 65534, 65534 },
		"foreign group":  func(r *Request) { r.GID = 0 },
		"bad field":      func(r *Request) { r.Account = "a b" },
	} {
		r := request(t)
		change(&r)
		if id, err := client.Submit(t.Context(), r); !errors.As(err, &refused) || id != 0 {
			t.Errorf("%s: %d %v", name, id, err)
		}
	}
	if _, err := serve(t, "echo no >&2; exit 1", nil).Submit(t.Context(), request(t)); !errors.As(err, &refused) || !strings.Contains(err.Error(), "no") {
		t.Errorf("an sbatch that fails: %v", err)
	}
	if _, err := (&Client{Path: "/nonexistent", Timeout: time.Second}).Submit(t.Context(), request(t)); !errors.As(err, &refused) {
		t.Errorf("nobody listens: %v", err)
	}
	// After these nobody knows whether there is a job.
	for name, script := range map[string]string{"hangs": "sleep 30", "says nothing": "true", "says words": "echo Submitted batch job 4"} {
		if _, err := serve(t, script, nil).Submit(t.Context(), request(t)); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSlurmUserIsNotProbed: who asks is nobody's job; with its rights every job of the cluster can be changed.
func TestSlurmUserIsNotProbed(t *testing.T) {
	r := request(t)
	client := serve(t, "echo 42", func(c *Config) { c.AllowedUIDs = []uint32{r.UID} })
	var refused *RefusedError
	if id, err := client.Submit(t.Context(), r); !errors.As(err, &refused) || id != 0 || !strings.Contains(err.Error(), "SlurmUser") {
		t.Error(id, err)
	}
}

// TestUsersOfADirectory: a user whom no file of this machine has gets a probe with all groups; one of whom nothing can be learnt in time gets none.
func TestUsersOfADirectory(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for p := dir; len(p) > len(os.TempDir()); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	users := func(script string) account.System {
		path := filepath.Join(t.TempDir(), "getent")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return account.System{Getent: path, Limit: time.Second}
	}
	if err := errors.Join(os.WriteFile(out, nil, 0o666), os.Chmod(out, 0o666)); err != nil {
		t.Fatal(err)
	}
	r := request(t)
	r.UID, r.GID = 70001, 70002
	directory := users("case $1 in passwd) echo 'ldap user@x:*:70001:70000::/h:/bin/sh';; *) echo 'ldap user@x  70002 70003';; esac")
	client := serve(t, "{ id -u; id -g; id -G; } > "+out+"; echo 42", func(c *Config) { c.Users = directory })
	if id, err := client.Submit(t.Context(), r); err != nil || id != 42 {
		t.Fatal(id, err)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "70001\n70002\n70002 70000 70003\n" {
		t.Errorf("%s %v", text, err)
	}
	var refused *RefusedError
	for says, script := range map[string]string{"no such user": "exit 2", "no answer in time": "exec sleep 60", "exit status 1": "exit 1"} {
		began := time.Now()
		client := serve(t, "echo 42", func(c *Config) { c.Users = users(script) })
		if id, err := client.Submit(t.Context(), r); !errors.As(err, &refused) || id != 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %d %v", script, id, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%q: %s", script, took)
		}
	}
}

func TestProgramsThatOthersCanChangeAreRefused(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "p")
	link := filepath.Join(dir, "link")
	reset := func() {
		os.Remove(program)
		os.Remove(link)
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		path   string
		change func() error
		ok     bool
	}{
		"good":              {program, func() error { return nil }, true},
		"link to a good":    {link, func() error { return os.Symlink(program, link) }, true},
		"writable":          {program, func() error { return os.Chmod(program, 0o777) }, false},
		"group-writable":    {program, func() error { return os.Chmod(program, 0o775) }, false},
		"not root's":        {program, func() error { return os.Chown(program, 1001, 0) }, false},
		"folder writable":   {program, func() error { return os.Chmod(dir, 0o777) }, false},
		"folder not root's": {program, func() error { return os.Chown(dir, 1001, 0) }, false},
		"not executable":    {program, func() error { return os.Chmod(program, 0o644) }, false},
		"missing":           {program, func() error { return os.Remove(program) }, false},
		"relative":          {"p", func() error { return nil }, false},
		"with a blank":      {"/bin/a b", func() error { return nil }, false},
		"with dots":         {dir + "/../" + filepath.Base(dir) + "/p", func() error { return nil }, false},
	} {
		reset()
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if err := secure(c.path); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewServer(Config{Sbatch: "/bin/true", Probe: "/bin/true"}); err == nil {
		t.Error("a smallest user id of 0 was taken")
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := write(&b, &Request{UID: 5}, maxRequestBytes); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if err := read(bytes.NewReader(data), &r, maxRequestBytes); err != nil {
			return
		}
		if err := r.Validate(); err == nil && strings.ContainsAny(strings.Join(arguments(r), ""), "\x00") {
			t.Fatalf("arguments with NUL: %q", arguments(r))
		}
	})
}
