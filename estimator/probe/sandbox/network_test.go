package sandbox

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// atHost is a Python program that serves at every address and reaches itself by each name; what is not here must be refused at once.
const atHost = `
import socket, sys, time
def attempt(name):
    begin = time.time()
    try:
        for family, kind, _, _, address in socket.getaddrinfo(name, server.getsockname()[1], type=socket.SOCK_STREAM):
            s = socket.socket(family); s.settimeout(5); s.connect(address)
        print(name, "reached", flush=True)
    except OSError as e: print(name, "refused" if time.time() - begin < 2 else "hung", flush=True)
server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) if socket.has_dualstack_ipv6() else socket.create_server(("", 0))
server.listen(50)
for name in sys.argv[1:]: attempt(name)
`

// TestTheHostIsReachedByItsNames has a host in a network and with a name of its own, as each kind of site sets them up, and asks inside for what programs ask for.
func TestTheHostIsReachedByItsNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes a network and a name of its own: run by root in make test")
	}
	for _, c := range []struct {
		name, host, hosts string
		addresses, env    []string
		reached, refused  []string
	}{
		{name: "an address of an interface", host: "node7", hosts: "127.0.0.1 localhost\n10.9.9.1 node7.cluster.test node7\n10.9.9.2 node8\n", addresses: []string{"10.9.9.1/24"},
			reached: []string{"node7", "node7.cluster.test", "10.9.9.1", "127.0.0.1"}, refused: []string{"10.9.9.77", "node8", "192.0.2.1"}},
		{name: "IPv6 alone", host: "node7", hosts: "::1 localhost\nfd00:9::1 node7\n", addresses: []string{"fd00:9::1/64"}, reached: []string{"node7", "fd00:9::1", "::1"}, refused: []string{"fd00:9::77", "2001:db8::1"}},
		{name: "the loopback of Debian", host: "node7", hosts: "127.0.0.1 localhost\n127.0.1.1 node7\n", reached: []string{"node7", "127.0.1.1"}},
		{name: "no line at all", host: "node7.cluster.test", hosts: "127.0.0.1 localhost", addresses: []string{"10.9.9.1/24"}, reached: []string{"node7", "node7.cluster.test", "10.9.9.1"}, refused: []string{"other"}},
		{name: "no file", host: "node7", addresses: []string{"10.9.9.1/24"}, reached: []string{"node7"}},
		{name: "nodes of a job", host: "node7", hosts: "10.9.9.1 node7\n10.9.9.8 node08\n", addresses: []string{"10.9.9.1/24"}, env: []string{"SLURM_JOB_NODELIST=node[07-08],gpu1", "SLURMD_NODENAME=node07"},
			reached: []string{"node7", "node07", "node08", "gpu1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts := filepath.Join(t.TempDir(), "hosts")
			if err := os.WriteFile(hosts, []byte(c.hosts), 0o644); err != nil {
				t.Fatal(err)
			}
			prepare := "hostname " + c.host + "; ip link set lo up; ip link add eth7 type dummy 2>/dev/null || ip link add eth7 type bridge; ip link set eth7 up; "
			for _, a := range c.addresses {
				prepare += "ip addr add " + a + " dev eth7; "
			}
			if c.hosts != "" {
				prepare += "mount --bind '" + hosts + "' /etc/hosts; "
			} else {
				prepare += "cp -a /etc '" + hosts + ".etc'; rm '" + hosts + ".etc/hosts'; mount --bind '" + hosts + ".etc' /etc; "
			}
			program := copyOfThisProgram(t, "/var/tmp")
			defer os.Remove(program)
			cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--uts", "--mount", "sh", "-ec", prepare+`mount -t tmpfs none /tmp -o mode=1777; exec setpriv --reuid=54344 --regid=54344 --clear-groups "$0" -test.run='^TestAtHost$' -test.v`, program)
			cmd.Env = append(os.Environ(), "TMPDIR=/tmp", "GRESIZE_TEST_NAMES="+strings.Join(append(c.reached, c.refused...), " "), "GRESIZE_TEST_ENV="+strings.Join(c.env, " "))
			cmd.Dir = "/"
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, name := range c.reached {
				if !strings.Contains(string(out), name+" reached\n") {
					t.Errorf("%s was not reached", name)
				}
			}
			for _, name := range c.refused {
				if !strings.Contains(string(out), name+" refused\n") {
					t.Errorf("%s was not refused at once", name)
				}
			}
			if len(c.addresses) > 0 && !strings.Contains(string(out), "eth7 is here\n") {
				t.Error("the interface is not there by its name")
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// TestAtHost is the part of TestTheHostIsReachedByItsNames that runs on that host, as an ordinary user.
func TestAtHost(t *testing.T) {
	names := os.Getenv("GRESIZE_TEST_NAMES")
	if names == "" {
		t.Skip("one half of another test, which starts it in a process of its own")
	}
	if syscall.Getuid() == 0 {
		t.Fatal("not as root")
	}
	_, out := run(t, "/", "", func(s *Spec) {
		s.Env = append(s.Env, strings.Fields(os.Getenv("GRESIZE_TEST_ENV"))...)
		s.Argv = []string{"sh", "-c", `python3 -c "$0" "$@"; grep -q eth7: /proc/net/dev && echo eth7 is here; hostname -f; cat /etc/hosts`, atHost}
		s.Argv = append(s.Argv, strings.Fields(names)...)
	})
	fmt.Print(out)
}

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "n1": "n1", "n1,n2": "n1 n2", "n[1-3]": "n1 n2 n3", "gpu1,node[01-03,7],x": "gpu1 node01 node02 node03 node7 x", "n[1-2]-ib,m": "n1-ib n2-ib m",
		"n[1": "", "n]1[": "", "n[1-x]": "", "n[9-1]": "", "n[0-99999999]": "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11 n12 n13 n14 n15", "n[-]": "",
	} {
		if got := strings.Join(expandNodes(list), " "); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

func TestHostsFile(t *testing.T) {
	n := network{Names: []hostName{
		{Name: "known", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, {Name: "node7", Canonical: "node7.cluster.test", Addresses: []netip.Addr{netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.0.0.7")}},
		{Name: "gpu1"}, {Name: "10.0.0.9"}, {Name: "commented"},
	}}
	got := n.hostsFile([]byte("127.0.0.1 localhost known # commented"))
	if diff := cmp.Diff("127.0.0.1 localhost known # commented\n10.0.0.7 node7.cluster.test node7\n127.0.0.1 gpu1\n127.0.0.1 commented\n", string(got)); diff != "" {
		t.Error(diff)
	}
}

func FuzzExpandNodes(f *testing.F) {
	for _, seed := range []string{"gpu1,node[01-03,7]", "n[", "],["} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if names := expandNodes(list); len(names) > maxNames {
			t.Errorf("%d names", len(names))
		}
	})
}
