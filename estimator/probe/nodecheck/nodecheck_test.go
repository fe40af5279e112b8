package nodecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/internal/finding"
)

// TestMain asks the question where a test has prepared a place for it.
func TestMain(m *testing.M) {
	sandbox.Main()
	if text := os.Getenv("GRESIZE_TEST_CHECK"); text != "" {
		var o Options
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			o.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GRESIZE_") })
			var r Report
			if r, err = Check(context.Background(), o); err == nil {
				err = json.NewEncoder(os.Stdout).Encode(r)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestPlaces prepares nodes of many kinds, each in a mount namespace of its own, and asks there as an ordinary user.
func TestPlaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can prepare such places")
	}
	library, err := filepath.Abs("../../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	asUser := `exec setpriv --reuid=54377 --regid=54377 --clear-groups -- "$0"`
	for _, c := range []struct {
		name, prepare string
		// want are findings that must be there: level, name, words of the text or of the setting.
		want [][3]string
	}{
		{"as it is", asUser, [][3]string{{"ok", "sandbox", "made in"}, {"ok", "directory", "can be written to"}, {"ok", "home", "can be written to"}, {"note", "PyTorch", "name the Python of a job"}, {"ok", "C library", "glibc 2."}}},
		{"asked by root", `exec "$0"`, [][3]string{{"note", "user", "ask as one, too"}, {"ok", "sandbox", "made in"}, {"note", "home", "ask as its owner"}}},
		{"TMPDIR that is closed", `chmod 700 "$PLACE/tmp"; chown 0 "$PLACE/tmp"; ` + asUser, [][3]string{{"refuse", "sandbox", "let TMPDIR name a folder"}}},
		{"no user namespaces", `echo 0 > /proc/sys/user/max_user_namespaces; exec "$0"`, [][3]string{{"refuse", "sandbox", "user.max_user_namespaces is 0"}}},
		{"too few user namespaces", `echo 1 > /proc/sys/user/max_user_namespaces; exec unshare -U "$0"`, [][3]string{{"refuse", "sandbox", "sysctl user.max_user_namespaces"}}},
		{"TMPDIR that is noexec", `mount -t tmpfs -o noexec,mode=1777 t "$PLACE/tmp"; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}, {"note", "TMPDIR", "permission denied"}, {"note", "TMPDIR", "without noexec"}}},
		{"TMPDIR that is not there", `export TMPDIR=/no/such; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}, {"ok", "directory", "can be written to"}}},
		{"a small disk", `truncate -s 64M "$PLACE/disk" && mkfs.ext4 -q "$PLACE/disk" && mount -o loop "$PLACE/disk" "$PLACE/tmp" && chmod 1777 "$PLACE/tmp"; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}, {"note", "free space", "let TMPDIR name another disk"}}},
		{"/tmp of its own", `mkdir "$PLACE/private" && chmod 1777 "$PLACE/private" && mount --bind "$PLACE/private" /tmp; export TMPDIR=/tmp; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}, {"ok", "private /tmp", "that of its job"}}},
		{"hidepid", `mount -t proc -o hidepid=2 proc /proc; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}, {"ok", "hidepid", "of its own"}}},
		{"a home that is read-only", `mount --bind "$PLACE/home" "$PLACE/home" && mount -o remount,bind,ro "$PLACE/home"; ` + asUser, [][3]string{{"ok", "sandbox", "made in"}}},
		{"a home without an overlay", `mkdir -p "$PLACE"/l/{1,2}/{u,w,m}
mount -t overlay o -o "lowerdir=$PLACE/home,upperdir=$PLACE/l/1/u,workdir=$PLACE/l/1/w" "$PLACE/l/1/m" && chown 54377 "$PLACE/l/1/m"
mount -t overlay o -o "lowerdir=$PLACE/l/1/m,upperdir=$PLACE/l/2/u,workdir=$PLACE/l/2/w" "$PLACE/home" && chown 54377 "$PLACE/home"; ` + asUser,
			[][3]string{{"ok", "sandbox", "made in"}, {"note", "view", "is read-only"}, {"refuse", "home", "give jobs a place on another one"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			place, err := os.MkdirTemp("/var/tmp", "gresize-check-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(place) })
			program := filepath.Join(place, "program")
			data, err := os.ReadFile("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, data, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"tmp", "home", "jobs"} {
				dir := filepath.Join(place, name)
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(os.Chown(dir, 54377, 54377), os.Chmod(filepath.Join(place, "tmp"), 0o777)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(place, 0o755); err != nil {
				t.Fatal(err)
			}
			options, err := json.Marshal(Options{Dir: filepath.Join(place, "jobs"), Python: "python3", LibDir: library})
			if err != nil {
				t.Fatal(err)
			}
			arguments := []string{"--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc"}
			if strings.Contains(c.prepare, "max_user_namespaces") {
				arguments = append(arguments, "--user", "--map-root-user") // the bound is this namespace's own
			}
			cmd := exec.CommandContext(t.Context(), "unshare", append(arguments, "bash", "-c", c.prepare, program)...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + place + "/home", "TMPDIR=" + place + "/tmp", "PLACE=" + place, "GRESIZE_TEST_CHECK=" + string(options)}
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			var r Report
			if err != nil || json.Unmarshal(out, &r) != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(r.Findings, func(f finding.Finding) bool {
					return string(f.Level) == want[0] && f.Name == want[1] && strings.Contains(f.Text+"\n"+f.Setting, want[2])
				}) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if refused := slices.ContainsFunc(c.want, func(want [3]string) bool { return want[0] == "refuse" }); refused != r.Refused() {
				t.Errorf("refused: %v, want %v\n%s", r.Refused(), refused, out)
			}
		})
	}
}

func TestParseMounts(t *testing.T) {
	mounts := parseMounts(strings.NewReader("1 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw\ngarbage\n2 1 0:5 /jobs/7 /tmp rw,noexec - xfs /dev/sdb rw,hidepid=2\n"))
	if len(mounts) != 2 || find(mounts, "/tmp").root != "/jobs/7" || kindOf(mounts, "/tmp/x/y") != "xfs" || kindOf(mounts, "/no/such") != "ext4" || kindOf(nil, "/") != "unknown file system" {
		t.Errorf("%+v", mounts)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("1 1 8:1 / / rw - ext4 /dev/sda rw\n")
	f.Fuzz(func(_ *testing.T, text string) { parseMounts(strings.NewReader(text)) })
}

// TestInSlurmJob has the cgroups of steps as slurmstepd of 24.11 and 26.05 made them, and one of version 1.
func TestInSlurmJob(t *testing.T) {
	for text, want := range map[string]bool{
		"0::/system.slice/gpu1_slurmstepd.scope/job_1/step_batch/user/task_0\n":      true,
		"0::/system.slice/gpu1_slurmstepd.scope/sEA5M8KYV4HM00/step_0/user/task_0\n": true,
		"9:name=systemd:/\n4:memory:/slurm/uid_1001/job_7/step_0/task_0\n0::/\n":     true,
		"0::/user.slice/user-1001.slice/session-3.scope\n":                           false,
		"0::/system.slice/slurmd.service\n":                                          false,
	} {
		if got := inSlurmJob([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
