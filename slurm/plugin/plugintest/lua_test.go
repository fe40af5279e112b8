package plugintest

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/wire"
)

// luaShim is a copy of contrib/lua/job_submit.lua with the settings of a test.
func luaShim(t *testing.T, settings map[string]string) string {
	t.Helper()
	text, err := os.ReadFile("../../../contrib/lua/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range settings {
		line := regexp.MustCompile(`(?m)^\t` + name + ` = .*$`)
		if !line.Match(text) {
			t.Fatalf("the shim has no setting %s", name)
		}
		text = line.ReplaceAll(text, []byte("\t"+name+" = "+value+","))
	}
	path := filepath.Join(t.TempDir(), "job_submit.lua")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLuaShim submits to a real slurmctld with Slurm's own job_submit/lua, which runs the shim over unix sockets of lua-posix.
func TestLuaShim(t *testing.T) {
	for _, release := range minicluster.Releases() {
		t.Run(release, func(t *testing.T) { submitToLua(t, minicluster.RootForTest(t, release)) })
	}
}

func submitToLua(t *testing.T, root string) {
	stamp := stampOf(t, root)
	version, err := release.Parse(stamp)
	if err != nil {
		t.Fatal(err)
	}
	peer := &moodyDaemon{}
	peer.answer(&wire.Reply{Verdict: wire.VerdictPass})
	socket := serve(t, peer.handle)
	dir := filepath.Dir(socket)
	for path, mode := range map[string]os.FileMode{dir: 0o755, socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	options := minicluster.Default()
	options.Root, options.Show = root, []string{dir}
	options.Lua = luaShim(t, map[string]string{"socket": `"` + socket + `"`, "deadline_ms": "1000", "slurm_version": `"` + stamp + `"`, "assume_environment": "true"})
	c := minicluster.ForTest(t, options)
	const script = "#!/bin/sh\nenv | grep ^SLURM_GPUS_PER_NODE=\necho end\n"

	peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "lua-1", Rewrite: wire.Rewrite{Features: ptr("gpu80g")}})
	id := sbatch(t, c, script, "--gpus-per-node=1", "--comment=caf\xe9", "--mem=100M", "--time=7")
	job, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if job["AdminComment"] != "gresize:v1:lua-1" || job["Reason"] != "BeginTime" || job["Features"] != "gpu80g" {
		t.Errorf("held job: %v", job)
	}
	if requests := peer.heard(); len(requests) != 1 {
		t.Errorf("%d requests", len(requests))
	} else if r := requests[0]; r.Script != script || r.TresPerNode != version.Prefix()+"gpu:1" || r.Comment != "caf\xe9" || r.SkipReason != "" || release.OfNumber(r.SlurmVersion) != version ||
		r.PnMinMemory == nil || *r.PnMinMemory != 100 || r.TimeLimit == nil || *r.TimeLimit != 7 || r.SubmitUID == 0 || r.SubmitUID != r.UserID || r.EnvironmentCut() ||
		!strings.Contains(strings.Join(r.Environment, "\n")+"\n", "SLURM_GPUS_PER_NODE=1\n") {
		t.Errorf("request %+v", r)
	}
	if _, err := c.Run(t.Context(), minicluster.DefaultUser, "scontrol", "update", "JobId="+id, "StartTime=now"); err != nil {
		t.Fatal(err)
	}
	completed(t, c, id)

	// Lua cannot take a variable out: the whole reply is not obeyed.
	peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "never", EnvDrop: []string{"SLURM_GPUS_PER_NODE"}})
	if job, output := completed(t, c, sbatch(t, c, script, "--gpus-per-node=1")); job["AdminComment"] != "" || output != "SLURM_GPUS_PER_NODE=1\nend\n" {
		t.Errorf("AdminComment=%q, output %q", job["AdminComment"], output)
	}
	peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "never"})
	completed(t, c, sbatch(t, c, script, "--gpus-per-node=1", "--comment=gresize:off"))
	if requests := peer.heard(); len(requests) != 1 || requests[0].SkipReason != wire.SkipOptOut || requests[0].Script != "" {
		t.Errorf("an opt-out: %+v", requests)
	}
	// Three connections that are closed without an answer: then the daemon is left alone.
	for range 3 {
		peer.behave(func(net.Conn, *wire.Request) {})
		if job, _ := completed(t, c, sbatch(t, c, script, "--gpus-per-node=1")); job["AdminComment"] != "" {
			t.Errorf("the job was changed: %v", job)
		}
	}
	peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "never"})
	completed(t, c, sbatch(t, c, script, "--gpus-per-node=1"))
	if requests := peer.heard(); len(requests) != 0 {
		t.Errorf("%d requests while the breaker is open", len(requests))
	}
}

// TestLuaShimStaysOff is the shim where it cannot work: jobs pass, and the log of slurmctld says once what is missing.
func TestLuaShimStaysOff(t *testing.T) {
	c := minicluster.ForTest(t, minicluster.Options{Lua: luaShim(t, nil), Nodes: []minicluster.Node{{Name: "gpu1", CPUs: 2, RealMemoryMiB: 4096, GPUType: "a100", GPUs: 1}}})
	for range 2 {
		completed(t, c, sbatch(t, c, "#!/bin/sh\ntrue\n", "--gres=gpu:1"))
	}
	log, err := os.ReadFile(filepath.Join(c.Dir(), "log", "slurmctld.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "job_submit/lua: gresize: off: settings.slurm_version is not set"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}
