package launch

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// openFolder makes a folder in which the job's owner can leave what the test reads.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gresize-launch-out-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOnlySlurmUserMayAsk has the socket open to all, and lets a user ask: the kernel says who it is, and there is not even an answer. As
// SlurmUser it gets one.
func TestOnlySlurmUserMayAsk(t *testing.T) {
	r := request(t)
	other := r
	other.UID, other.GID = 1, 1 // an account that every machine has; SlurmUser's own jobs are not probed
	data, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	frame := hex.EncodeToString(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	for name, c := range map[string]struct {
		allowed []uint32
		want    string
	}{"a user": {nil, ""}, "another user is SlurmUser": {[]uint32{r.UID + 1}, ""}, "SlurmUser": {[]uint32{r.UID}, `{"job_id":42}`}} {
		out := openFolder(t)
		client := serve(t, "touch "+out+"/ran; echo 42\n", func(config *Config) { config.AllowedUIDs, config.MinUID = c.allowed, 1 })
		if err := os.Chmod(client.Path, 0o777); err != nil {
			t.Fatal(err)
		}
		ask := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", `
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2])); sys.stdout.write(s.recv(1000)[4:].decode())
except ConnectionError: pass`, client.Path, frame)
		ask.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.UID, Gid: r.GID}}
		answer, err := ask.Output()
		if err != nil || string(answer) != c.want {
			t.Errorf("%s: answer %q, want %q (%v)", name, answer, c.want, err)
		}
		if _, err := os.Stat(out + "/ran"); (err == nil) != (c.want != "") {
			t.Errorf("%s: sbatch ran: %v", name, err == nil)
		}
	}
}

// TestArgumentsAreOptionsOfOursOnly: whatever a request says, what passes the check is one value each behind a name that is ours. Nothing of it can be an option, a
// second argument or a script, and the key is in none of them.
func TestArgumentsAreOptionsOfOursOnly(t *testing.T) {
	names := []string{"--parsable", "--export", "--job-name", "--chdir", "--output", "--error", "--no-requeue", "--gres", "--nodes", "--ntasks", "--cpus-per-task", "--mem", "--time", "--partition", "--account", "--qos"}
	hostile := rapid.SampledFrom([]string{"", "--wrap=id", "-w", "--uid=0", "a\n--uid=0", "$(id)", "`id`", "a b", "a;b", "a,b", "/", "/a\n#SBATCH --uid=0", "\x1b[2J", "/tmp/\x00", "normal", "gpu-long_1.2", "--", "-", "../../etc"})
	text := rapid.OneOf(hostile, rapid.String(), rapid.StringMatching(`[a-zA-Z0-9_./-]{0,40}`), rapid.Just("gpu"))
	// mostly is a value that passes, so that the others are looked at as well.
	mostly := func(value string) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			if rapid.IntRange(0, 9).Draw(t, "hostile") == 0 {
				return text.Draw(t, "text")
			}
			return value
		})
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		r := Request{UID: 1001, GID: 100, Name: mostly(NamePrefix+"abcdefgh").Draw(t, "name"), Key: mostly(strings.Repeat("k", 52)).Draw(t, "key"),
			URL: mostly("http://h:1/v1/probes/x").Draw(t, "url"), WorkDir: mostly("/home/ada/a b").Draw(t, "work_dir"),
			Partition: mostly("").Draw(t, "partition"), Account: mostly("physics").Draw(t, "account"), QOS: mostly("").Draw(t, "qos"),
			TimeLimitMinutes: rapid.IntRange(0, 1440).Draw(t, "minutes"), CPUs: rapid.IntRange(0, 1024).Draw(t, "cpus"), MemoryMiB: rapid.IntRange(0, 1<<24).Draw(t, "memory")}
		if r.Validate() != nil {
			return
		}
		taken++
		seen := map[string]bool{}
		for _, a := range arguments(r) {
			name, value, _ := strings.Cut(a, "=")
			if !slices.Contains(names, name) || seen[name] {
				t.Fatalf("argument %q", a)
			}
			seen[name] = true
			if strings.ContainsFunc(value, unicode.IsControl) || name != "--chdir" && strings.ContainsAny(value, " \t,;$`'\"\\") || strings.Contains(a, r.Key) {
				t.Fatalf("value %q", a)
			}
		}
	})
	if taken == 0 {
		t.Error("no request passed the check")
	}
}

// TestNothingOfTheOwnerSteersSbatch: whatever the job's environment holds, sbatch and the shell that starts the probe find no variable of it under its own name: no library to preload,
// no slurm.conf, no option, no file for a shell or for a filter of the site that is written in Lua.
func TestNothingOfTheOwnerSteersSbatch(t *testing.T) {
	out := openFolder(t)
	client := serve(t, `tr '\0' '\n' < /proc/$$/environ > `+out+"/env\necho 42\n", func(c *Config) { c.SlurmConf = "/etc/slurm/slurm.conf" })
	r := request(t)
	r.Environment = nil
	names := []string{"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN", "TMPDIR", "LUA_INIT", "LUA_PATH", "PATH", "LC_ALL", "LANGUAGE", "NLSPATH", "TZ", "HOME",
		"BASH_ENV", "ENV", "BASH_FUNC_exec%%", "PS4", "IFS", "MALLOC_CHECK_", "GODEBUG"}
	var want []string
	for _, name := range names {
		r.Environment = append(r.Environment, []byte(name+"=/home/ada/evil"))
		want = append(want, JobPrefix+name+"=/home/ada/evil")
	}
	for _, gone := range []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_DEBUG_FLAGS", "SLURM_EXIT_ERROR", "SLURM_HINT", "SLURM_UMASK", "SBATCH_UID", "SBATCH_EXPORT", "SBATCH_PARTITION", "SBATCH_CLUSTERS", "SBATCH_GRES", "SBATCH_WAIT",
		"SRUN_DEBUG", KeyVariable, URLVariable, JobPrefix + "HOME"} {
		r.Environment = append(r.Environment, []byte(gone+"=/home/ada/evil"))
	}
	if _, err := client.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, "env"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(data)), "\n")
	want = append([]string{"LC_ALL=C", "PATH=/usr/bin:/bin", KeyVariable + "=" + r.Key, URLVariable + "=" + r.URL, "SLURM_CONF=/etc/slurm/slurm.conf"}, want...)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
