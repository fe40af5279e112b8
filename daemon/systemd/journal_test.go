package systemd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// sent is what a handler gave to the journal.
type sent struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

func TestFields(t *testing.T) {
	var got []sent
	var text bytes.Buffer
	var broken error
	handler := fields{text: slog.NewTextHandler(&text, nil), send: func(m string, p journal.Priority, f map[string]string) error {
		got = append(got, sent{m, p, f})
		return broken
	}}
	logger := slog.New(handler)
	logger.Info("decided", "slurm_job_id", 7, "verdict", "rewrite", "reason", "it fits", "message_id", "abc")
	logger.With("token", "t").WithGroup("g").Warn("b", "name", "a\nPRIORITY=0\nMESSAGE=forged", slog.Group("in", "n", 1))
	logger.Error("long", "text", strings.Repeat("é", maxFieldBytes), "odd key é=", "")
	logger.Debug("unseen")
	if len(got) != 3 || text.Len() != 0 {
		t.Fatalf("%d records, %s", len(got), text.String())
	}
	for i, want := range []struct {
		message  string
		priority journal.Priority
		fields   map[string]string
	}{
		{`decided slurm_job_id=7 verdict=rewrite reason="it fits"`, journal.PriInfo, map[string]string{"SLURM_JOB_ID": "7", "GRESIZE_VERDICT": "rewrite", "GRESIZE_REASON": "it fits", "MESSAGE_ID": "abc", "SYSLOG_IDENTIFIER": identifier}},
		{`b token=t g.name="a PRIORITY=0 MESSAGE=forged" g.in.n=1`, journal.PriWarning, map[string]string{"GRESIZE_TOKEN": "t", "GRESIZE_G_NAME": "a PRIORITY=0 MESSAGE=forged", "GRESIZE_G_IN_N": "1"}},
		{"", journal.PriErr, map[string]string{"GRESIZE_ODD_KEY___": ""}},
	} {
		if want.message != "" && got[i].message != want.message || got[i].priority != want.priority {
			t.Errorf("%q, priority %d", got[i].message, got[i].priority)
		}
		for name, value := range want.fields {
			if got[i].fields[name] != value {
				t.Errorf("%s is %q, want %q in %v", name, got[i].fields[name], value, got[i].fields)
			}
		}
	}
	if n := len(got[2].fields["GRESIZE_TEXT"]); n > maxFieldBytes || len(got[2].message) > maxFieldBytes {
		t.Errorf("a field of %d bytes", n)
	}
	// A journal that cannot be reached costs no line.
	broken = errors.New("no journal")
	logger.With("token", "t").Info("heard", "a", 1)
	if !strings.Contains(text.String(), "msg=heard token=t a=1") {
		t.Errorf("%q", text.String())
	}
}

// inOwnRun runs a test of this package again where /run is empty and its own, and returns what it wrote.
func inOwnRun(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", `mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; exec "$0" -test.run "^$1$" -test.count 1 -test.v`, os.Args[0], name)
	cmd.Env = append(os.Environ(), ownRun+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+name)) {
		t.Errorf("%v\n%s", err, out)
	}
}

const ownRun = "GRESIZE_TEST_OWN_RUN"

// likeAService makes standard error look like what systemd gives to a service.
func likeAService(t *testing.T) {
	t.Helper()
	var is syscall.Stat_t
	if err := syscall.Fstat(syscall.Stderr, &is); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", is.Dev, is.Ino))
}

// TestTheJournalsSocket listens where journald does, and reads what arrives as journald would.
func TestTheJournalsSocket(t *testing.T) {
	if os.Getenv(ownRun) == "" {
		inOwnRun(t, t.Name())
		return
	}
	likeAService(t)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/run/systemd/journal/socket", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	logger := slog.New(LogHandler(os.Stderr))
	logger.Warn("decided", "slurm_job_id", 7, "verdict", "rewrite", "reason", "two\nlines", "message_id", "0123456789abcdef0123456789abcdef")
	buffer := make([]byte, 64<<10)
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := socket.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	got := parseJournal(t, buffer[:n])
	for name, want := range map[string]string{"MESSAGE": `decided slurm_job_id=7 verdict=rewrite reason="two lines"`, "PRIORITY": "4", "SYSLOG_IDENTIFIER": identifier, "SLURM_JOB_ID": "7",
		"GRESIZE_VERDICT": "rewrite", "GRESIZE_REASON": "two lines", "MESSAGE_ID": "0123456789abcdef0123456789abcdef"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%v", got)
	}
}

// parseJournal reads journald's own protocol: NAME=value, or NAME, the length and the value.
func parseJournal(t *testing.T, data []byte) map[string]string {
	t.Helper()
	got := map[string]string{}
	for len(data) > 0 {
		line, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			t.Fatalf("%q has no end", data)
		}
		data = rest
		if name, value, ok := bytes.Cut(line, []byte("=")); ok {
			got[string(name)] = string(value)
			continue
		}
		size := binary.LittleEndian.Uint64(data)
		got[string(line)] = string(data[8 : 8+size])
		data = data[8+size+1:]
	}
	return got
}

// TestWithoutAJournal: on a terminal and in a file the log is text, as ever.
func TestWithoutAJournal(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("JOURNAL_STREAM", "1:2")
	slog.New(LogHandler(&out)).Info("a", "b", 1, "message_id", "0123")
	if !strings.HasSuffix(out.String(), "level=INFO msg=a b=1\n") {
		t.Errorf("%q", out.String())
	}
}

// TestJournald asks journald itself, alone in a /run of its own, what it has understood.
func TestJournald(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: a machine without systemd has no journald; make nightly has one")
	}
	if os.Getenv(ownRun) == "" {
		inOwnRun(t, t.Name())
		return
	}
	likeAService(t)
	if err := os.MkdirAll("/run/log/journal", 0o755); err != nil {
		t.Fatal(err)
	}
	journald := exec.Command("/lib/systemd/systemd-journald")
	if err := journald.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = journald.Process.Kill()
		_ = journald.Wait()
	}()
	waitFor(t, "journald", func() bool { return journal.Enabled() })
	id := "c0de" + strings.Repeat("7", 28)
	slog.New(LogHandler(os.Stderr)).With("token", "t").Warn("decided", "slurm_job_id", 7, "reason", "two\nlines é", "message_id", id)
	var out []byte
	waitFor(t, "the record", func() bool {
		out, _ = exec.Command("journalctl", "-D", "/run/log/journal", "-o", "json", "SLURM_JOB_ID=7", "MESSAGE_ID="+id).Output()
		return len(out) > 0
	})
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"MESSAGE": `decided token=t slurm_job_id=7 reason="two?lines é"`, "PRIORITY": "4", "SYSLOG_IDENTIFIER": identifier, "GRESIZE_TOKEN": "t",
		"GRESIZE_REASON": "two?lines é", "_TRANSPORT": "journal", "_PID": strconv.Itoa(os.Getpid())} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func waitFor(t *testing.T, what string, there func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !there(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// TestHostileTextIsOneLine: what users, scripts and other programs chose can neither begin a record of its own in the journal, nor give a line another priority, nor move a cursor.
func TestHostileTextIsOneLine(t *testing.T) {
	for _, text := range []string{"a\nb", "a\n<0>time=2026 level=EMERG msg=forged", "\x1b[2J", "\r<2>x", "\x00", "\u202e", "\u009b2J", "\xff\x9b", "a=b msg=\"forged\"", strings.Repeat("long\n", 1000)} {
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"journal": func(b *bytes.Buffer) slog.Handler {
				return fields{text: slog.NewTextHandler(b, nil), send: func(message string, _ journal.Priority, fields map[string]string) error {
					for name, value := range fields {
						if strings.ContainsFunc(name+value, func(r rune) bool { return !unicode.IsPrint(r) }) {
							t.Errorf("%s is %q", name, value)
						}
					}
					_, err := fmt.Fprintf(b, " msg=%s\n", message)
					return err
				}}
			},
			"text": func(b *bytes.Buffer) slog.Handler { return LogHandler(b) },
		} {
			var out bytes.Buffer
			logger := slog.New(handler(&out)).With("job_name", text)
			logger.Warn("refused", "error", errors.New(text), "detail", text, "raw", []byte(text))
			if got := strings.Count(out.String(), "\n"); got != 1 || !strings.HasSuffix(out.String(), "\n") {
				t.Errorf("%s: %d lines of %q: %q", name, got, text, out.String())
			}
			for _, r := range strings.TrimSuffix(out.String(), "\n") {
				if !unicode.IsPrint(r) {
					t.Errorf("%s prints %q for %q", name, r, text)
					break
				}
			}
			if strings.Count(out.String(), " msg=") != 1 && !strings.Contains(text, "msg=") {
				t.Errorf("%s: %q", name, out.String())
			}
		}
	}
}
