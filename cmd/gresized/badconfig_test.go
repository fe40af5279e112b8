package main

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/daemon/site"
	"github.com/gresize/gresize/estimator/gpu"
)

var update = flag.Bool("update", false, "write testdata/bad-configurations.txt anew")

// badConfigurations are files that no daemon can run with, or in which a row can be no card.
var badConfigurations = []struct{ name, text string }{
	{"an empty file", ""},
	{"another version", "version = 2\n"},
	{"a typo", "version = 1\n[probe]\n  hlod = \"60s\"\n"},
	{"an unknown table", "version = 1\n[prob]\nhold = \"60s\"\n"},
	{"half a file", "version = 1\n[probe]\nhold = \"60"},
	{"a binary file", "\x7fELF\x02\x01\x01\x00\x00"},
	{"Latin-1", "version = 1\n# f\xfcr alle\nmode = \"off\"\n"},
	{"a key twice", "version = 1\nmode = \"off\"\nmode = \"shadow\"\n"},
	{"a number for a word", "version = 1\nmode = 3\n"},
	{"a word for a list", "version = 1\n[jobs]\nusers = \"root\"\n"},
	{"a size without a unit", "version = 1\n[[target]]\nfits = \"20\"\nconstraint = \"a\"\n"},
	{"a time without a unit", "version = 1\n[probe]\nhold = \"60\"\n"},
	{"no mode", "version = 1\nmode = \"on\"\n"},
	{"enforce without a table", "version = 1\nmode = \"enforce\"\n"},
	{"port 0", "version = 1\n[probe]\nlisten = \"127.0.0.1:0\"\n"},
	{"port 65536", "version = 1\n[probe]\nlisten = \"127.0.0.1:65536\"\n"},
	{"a port by its name", "version = 1\n[probe]\nlisten = \"127.0.0.1:http\"\n"},
	{"no port", "version = 1\n[probe]\nlisten = \"127.0.0.1\"\n"},
	{"an address of five numbers", "version = 1\n[probe]\nlisten = \"10.0.0.0.1:8917\"\n"},
	{"an address beyond 255", "version = 1\n[probe]\nlisten = \"10.0.0.300:8917\"\n"},
	{"every address, and none to report to", "version = 1\n[probe]\nlisten = \"0.0.0.0:8917\"\n"},
	{"every address by nothing", "version = 1\n[probe]\nlisten = \":8917\"\n"},
	{"every address of IPv6", "version = 1\n[probe]\nlisten = \"[::]:8917\"\n"},
	{"a url to every address", "version = 1\n[probe]\nlisten = \"0.0.0.0:8917\"\nurl = \"http://0.0.0.0:8917\"\n"},
	{"a url with a port that is none", "version = 1\n[probe]\nurl = \"http://ctl:99999\"\n"},
	{"a url of another kind", "version = 1\n[probe]\nurl = \"file:///etc\"\n"},
	{"a url without a machine", "version = 1\n[probe]\nurl = \"http://:8917\"\n"},
	{"a budget beyond the hold", "version = 1\n[probe]\nhold = \"1m\"\nbudget = \"2m\"\n"},
	{"a budget beyond the time limit", "version = 1\n[probe]\ntime_limit = \"1m\"\nbudget = \"2m\"\n"},
	{"a hold that is too long", "version = 1\n[probe]\nhold = \"301s\"\n"},
	{"no steps", "version = 1\n[probe]\nsteps = 0\n"},
	{"a relative path", "version = 1\n[log]\npath = \"log.db\"\n"},
	{"a path that is a folder", "version = 1\n[log]\npath = \"/var/lib/gresize/\"\n"},
	{"a path with a line break", "version = 1\n[slurm]\nscontrol = \"/usr/bin/scontrol\\n\"\n"},
	{"a path longer than a socket's", "version = 1\n[socket]\npath = \"/" + strings.Repeat("s", 107) + "\"\n"},
	{"the log inside the spool", "version = 1\n[log]\npath = \"/var/lib/gresize/spool/d.db\"\n"},
	{"the log is the spool", "version = 1\n[log]\npath = \"/var/lib/gresize/spool\"\n"},
	{"one socket for two daemons", "version = 1\n[socket]\npath = \"/run/gresize-launch/launch.sock\"\n"},
	{"metrics on port 0", "version = 1\n[metrics]\nlisten = \"127.0.0.1:0\"\n"},
	{"metrics for everybody", "version = 1\n[metrics]\nlisten = \"0.0.0.0:8918\"\n"},
	{"metrics in a folder", "version = 1\n[metrics]\nlisten = \"unix:/run/gresize/\"\n"},
	{"the page at the probes' address", "version = 1\n[web]\nlisten = \"127.0.0.1:8917\"\n"},
	{"the page at the probes' address by its name", "version = 1\n[web]\nlisten = \"localhost:08917\"\n"},
	{"the page at the address of every probe", "version = 1\n[probe]\nlisten = \":9190\"\nurl = \"http://ctl:9190\"\n[web]\nlisten = \"127.0.0.1:9190\"\n"},
	{"the page at the metrics' address", "version = 1\n[metrics]\nlisten = \"[::1]:9190\"\n[web]\nlisten = \"[0:0::1]:9190\"\n"},
	{"the page at the submit socket", "version = 1\n[web]\nlisten = \"unix:/run/gresize/submit.sock\"\n"},
	{"one socket in two spellings", "version = 1\n[metrics]\nlisten = \"unix:/tmp/m.sock\"\n[web]\nlisten = \"unix:/tmp/a/../m.sock\"\n"},
	{"the page at the launcher's socket", "version = 1\n[web]\nlisten = \"unix:/run/gresize-launch/launch.sock\"\n"},
	{"the metrics at the decision log", "version = 1\n[metrics]\nlisten = \"unix:/var/lib/gresize/l.db-wal\"\n[log]\npath = \"/var/lib/gresize/l.db\"\n"},
	{"the decision log at the submit socket", "version = 1\n[log]\npath = \"/run/gresize/submit.sock\"\n"},
	{"the submit socket at the decision log", "version = 1\n[socket]\npath = \"/var/lib/gresize/d.db\"\n[log]\npath = \"/var/lib/gresize/d.db\"\n"},
	{"the page in the spool", "version = 1\n[web]\nlisten = \"unix:/var/lib/gresize/spool/web.sock\"\n"},
	{"a host with a dot at its end", "version = 1\n[web]\nhosts = [\"x.org.\"]\n"},
	{"sacct every second", "version = 1\n[actuals]\nsacct_every = \"1s\"\n"},
	{"sacct without a path", "version = 1\n[actuals]\nsacct = \"sacct\"\n"},
	{"a target rate above a half", "version = 1\n[margin]\ntarget_failure_rate = 0.9\n"},
	{"an estimator that is none", "version = 1\n[[estimator]]\nname = \"oracle\"\n"},
	{"an estimator twice", "version = 1\n[[estimator]]\nname = \"vgpu\"\n[[estimator]]\nname = \"vgpu\"\n"},
	{"a plugin without a path", "version = 1\n[[estimator]]\nname = \"mine\"\ncommand = [\"mine\"]\n"},
	{"a user that is none", "version = 1\n[jobs]\nusers = [\"no-such-user-here\"]\n"},
	{"in a list and its counterpart", "version = 1\n[jobs]\nqos = [\"a\"]\nexcept_qos = [\"a\"]\n"},
	{"a card that is none", "version = 1\n[gpu.a]\nprofile = \"a101\"\n"},
	{"a row without a request", "version = 1\n[[target]]\nfits = \"2GiB\"\n"},
	{"a row with two GPUs", "version = 1\n[[target]]\nfits = \"2GiB\"\ngres = \"gpu:a100:2\"\n"},
	{"a row with brackets", "version = 1\n[[target]]\nfits = \"2GiB\"\nconstraint = \"[a|b]*2\"\n"},
	{"rows in the wrong order", "version = 1\n[[target]]\nfits = \"2GiB\"\nconstraint = \"a\"\n[[target]]\nfits = \"1GiB\"\nconstraint = \"b\"\n"},
	{"a row larger than its card", "version = 1\n[gpu.gpu12g]\nprofile = \"rtx3060\"\n[[target]]\nfits = \"40GiB\"\nconstraint = \"gpu12g\"\n"},
}

// placed is a fault with its place, its field and a way out at the end.
var placed = regexp.MustCompile(`^gresize\.toml:\d+:\d+: [a-z_.A-Z0-9\[\]]+: .+ \(.+\)$`)

// TestBadConfigurations: the check, the start and a reload say the same of each, with line, column, field and the way out.
func TestBadConfigurations(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gresize.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(text string) string { return strings.ReplaceAll(text, dir+"/", "") }
	write("version = 1\n")
	started, _, err := site.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range gpu.List() {
		ids = append(ids, p.ID)
	}
	models := strings.Join(ids, ", ") // another model changes no line of the golden file
	var golden strings.Builder
	for _, c := range badConfigurations {
		write(c.text)
		var out, said bytes.Buffer
		if code := run(t.Context(), []string{"-check", path}, &out, &said); code != exitFailed {
			t.Errorf("%s: the check ends with %d: %s", c.name, code, out.String())
			continue
		}
		message := strings.TrimPrefix(strings.TrimSpace(plain(said.String())), "gresized: ")
		fmt.Fprintf(&golden, "%s\n    %s\n", c.name, strings.ReplaceAll(message, models, "EVERY MODEL"))
		// What is missing in the file has no line in it.
		if missing := strings.HasPrefix(c.name, "an empty") || strings.HasPrefix(c.name, "enforce without"); !missing && !placed.MatchString(message) && !noField[c.name] {
			t.Errorf("%s: no line, column, field or way out:\n%s", c.name, message)
		}
		if !strings.HasSuffix(message, ")") {
			t.Errorf("%s: no way out:\n%s", c.name, message)
		}

		_, impossible, loadErr := site.Load(path)
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var put configured
		r := reloader{path: path, address: "127.0.0.1:1", started: started.Config, manager: &put, logger: logger}
		r.reload()
		if text := unquoted(plain(log.String())); !strings.Contains(text, unquoted(message)) {
			t.Errorf("%s: a reload says\n%s\nand the check\n%s", c.name, text, message)
		}
		if (len(put) == 0) != (loadErr != nil) || loadErr == nil && len(impossible) == 0 {
			t.Errorf("%s: put in force %d times, error %v, %d impossible rows", c.name, len(put), loadErr, len(impossible))
		}
		if loadErr == nil {
			continue // it would start, with a warning
		}
		log.Reset()
		if err := serve(t.Context(), path, logger); err == nil || plain(err.Error()) != message {
			t.Errorf("%s: the start says\n%v\nand the check\n%s", c.name, err, message)
		}
	}
	file := filepath.Join("testdata", "bad-configurations.txt")
	if *update {
		if err := os.WriteFile(file, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), golden.String()); diff != "" {
		t.Error(diff)
	}
}

// noField are the texts that are no TOML: there is a place and no field.
var noField = map[string]bool{"a binary file": true, "Latin-1": true}

// unquoted takes out what the log's text handler adds.
func unquoted(text string) string { return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text) }

// TestNoConfiguration: what to do is said where there is none, or none that can be read.
func TestNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, says string }{
		{pipe, "the configuration cannot be read: a pipe and no regular file: save what comes out of it, and name that file (is it a file that the user of the daemon may read?)"},
		{filepath.Join(dir, "none"), "there is no configuration: no such file or directory (begin with the annotated example /usr/share/doc/gresize/gresize.toml, or name another file)"},
		{dir, "the configuration cannot be read: is a directory (is it a file that the user of the daemon may read?)"},
	} {
		for _, option := range []string{"-check", "-config"} {
			var out, said bytes.Buffer
			if code := run(t.Context(), []string{option, c.path}, &out, &said); code != exitFailed || !strings.Contains(unquoted(said.String()), c.path+": "+c.says) {
				t.Errorf("%s %s: %d\n%s", option, c.path, code, said.String())
			}
		}
	}
}
