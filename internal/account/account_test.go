package account

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stands makes a program that answers in getent's place.
func stands(t *testing.T, script string) System {
	t.Helper()
	path := filepath.Join(t.TempDir(), "getent")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return System{Getent: path}
}

func TestThisMachine(t *testing.T) {
	root, err := ByID(0)
	if err != nil || root != (User{Name: "root", Home: "/root", UID: 0, GID: 0}) {
		t.Errorf("%+v %v", root, err)
	}
	if again, err := ByName("root"); err != nil || again != root {
		t.Errorf("%+v %v", again, err)
	}
	if _, err := ByID(3_999_999_999); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	// An option, a number, a line of its own, another field: no names.
	for _, name := range []string{"", "--help", "-s", "0", "ro\not", "root:x", "no-such-user-here"} {
		if u, err := ByName(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %+v %v", name, u, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	const passwd = `alice:*:70001:70000:Alice, of "physics":/home/physics/alice:/bin/bash`
	good := func(groups string) string {
		return fmt.Sprintf("case $1 in passwd) echo '%s';; initgroups) echo '%s';; esac", passwd, groups)
	}
	many := make([]string, MaxGroups)
	for i := range many {
		many[i] = fmt.Sprint(100_000 + i)
	}
	for name, c := range map[string]struct {
		script string
		groups []uint32
		says   string
	}{
		"no other group":             {good("alice               "), []uint32{70000}, ""},
		"several, each once":         {good("alice                 70002 70000 70001 70002"), []uint32{70000, 70001, 70002}, ""},
		"more than Linux knows":      {good("alice " + strings.Join(many, " ")), nil, "65537 groups"},
		"another user's groups":      {good("alicea 70002"), nil, "no list of the groups"},
		"a group that is none":       {good("alice x"), nil, "invalid syntax"},
		"a group of 33 bits":         {good("alice 4294967296"), nil, "out of range"},
		"no such user":               {"exit 2", nil, ErrUnknown.Error()},
		"getent fails":               {"exit 3", nil, "exit status 3"},
		"nothing is printed":         {"exit 0", nil, "no entry of a user"},
		"two users":                  {"echo '" + passwd + "'; echo '" + passwd + "'", nil, "no entry of a user"},
		"another number":             {"echo 'bob:x:70002:70000::/home/bob:/bin/sh'", nil, ErrUnknown.Error()},
		"eight fields":               {"echo 'bob:x:70001:70000:a:b:/home/bob:/bin/sh'", nil, "no entry of a user"},
		"an endless answer":          {"exec yes", nil, "more than"},
		"a directory that is asleep": {"exec sleep 60", nil, "no answer in time"},
		"and leaves a child behind":  {"sleep 60 & exec sleep 60", nil, "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, began := stands(t, c.script), time.Now()
			if s.Limit = 20 * time.Second; strings.Contains(c.says, "no answer") {
				s.Limit = 300 * time.Millisecond
			}
			u, groups, err := s.Member(context.Background(), 70001)
			if c.says == "" && (err != nil || u.Name != "alice" || u.Home != "/home/physics/alice" || !slices.Equal(groups, c.groups)) {
				t.Errorf("%+v %v %v", u, groups, err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%+v %v, want %q", u, err, c.says)
			}
			if took := time.Since(began); took > s.Limit+5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestOddNames: what a directory may call its users.
func TestOddNames(t *testing.T) {
	for _, name := range []string{"-x", "alice@physics.example", `PHYSICS\alice`, "Alice Smith", "älice", "a$(reboot)"} {
		s := stands(t, `[ "$2" = -- ] || exit 9
case $1 in passwd) cat <<'E'
`+name+`:x:70001:70000::/home/a:/bin/sh
E
;; initgroups) printf '%-21s 70005\n' "$3";; esac`)
		u, groups, err := s.Member(context.Background(), 70001)
		if err != nil || u.Name != name || !slices.Equal(groups, []uint32{70000, 70005}) {
			t.Errorf("%q: %+v %v %v", name, u, groups, err)
		}
		if u, err := s.ByName(context.Background(), name); err != nil || u.UID != 70001 {
			t.Errorf("%q: %+v %v", name, u, err)
		}
	}
}

// inModule tells the test's own process that its users come from a module of the C library.
const inModule = "GRESIZE_TEST_NSS"

// TestModule: users whom no file of the machine's own has, by a real module of the C library, libnss_extrausers.
func TestModule(t *testing.T) {
	if os.Getenv(inModule) == "" {
		if _, err := os.Stat("/usr/lib/libnss_extrausers.so.2"); err != nil {
			t.Skip("libnss-extrausers is not installed (tools/setup slurm)")
		}
		dir := t.TempDir()
		for name, text := range map[string]string{
			"passwd":        "ldapuser:x:70001:70000::/home/physics/ldapuser:/bin/bash\n",
			"group":         "physics:x:70000:\nlarge:x:70002:ldapuser\n",
			"nsswitch.conf": "passwd: files extrausers\ngroup: files extrausers\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", `
			mkdir -p /var/lib/extrausers
			mount --bind "$1" /var/lib/extrausers
			mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
			exec "$2" -test.v -test.run '^TestModule$'`, "sh", dir, os.Args[0])
		cmd.Env = append(os.Environ(), inModule+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestModule") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	u, groups, err := System{}.Member(t.Context(), 70001)
	if err != nil || u != (User{Name: "ldapuser", Home: "/home/physics/ldapuser", UID: 70001, GID: 70000}) || !slices.Equal(groups, []uint32{70000, 70002}) {
		t.Errorf("%+v %v %v", u, groups, err)
	}
	if u, err := ByName("ldapuser"); err != nil || u.UID != 70001 {
		t.Errorf("%+v %v", u, err)
	}
	// The module is asked after the files.
	if u, err := ByName("root"); err != nil || u.UID != 0 {
		t.Errorf("%+v %v", u, err)
	}
}

// FuzzAnswer: whatever a module makes getent print is a user with a name and groups that Linux can take, or an error.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("alice:x:1:2:g:/h:/s\n"), []byte("alice      3 4\n"))
	f.Add([]byte("a b:x:1:2::/:\n"), []byte("a b 2 2 2\n"))
	f.Fuzz(func(t *testing.T, passwd, list []byte) {
		u, err := parsePasswd(passwd)
		if err != nil {
			return
		}
		if u.Name == "" || strings.ContainsAny(u.Name+u.Home, ":\n\x00") {
			t.Fatalf("%q became %+v", passwd, u)
		}
		groups, err := parseGroups(u, list)
		if err != nil {
			return
		}
		if groups[0] != u.GID || len(groups) > MaxGroups || slices.Contains(groups[1:], u.GID) || !slices.IsSorted(groups[1:]) {
			t.Fatalf("%q became %v", list, groups)
		}
	})
}
