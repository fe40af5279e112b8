package plugintest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/slurm/wire"
)

func ptr[T any](value T) *T { return &value }

// TestDescription checks that every field of the job arrives under its own name.
func TestDescription(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictPass})
	d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
	d.tell(gpuJob()...)
	for _, field := range []string{"account", "qos", "reservation", "features", "prefer", "tres_per_job", "tres_per_socket", "tres_per_task",
		"cpus_per_tres", "mem_per_tres", "array_inx", "comment", "admin_comment", "dependency", "licenses", "req_nodes", "exc_nodes"} {
		d.tell(text(field, "the "+field+" \xff"))
	}
	for i, field := range []string{"begin_time", "pn_min_memory", "pn_min_cpus", "min_cpus", "min_nodes", "max_nodes", "num_tasks",
		"cpus_per_task", "ntasks_per_node", "ntasks_per_tres", "time_limit", "priority", "user_id", "group_id"} {
		d.tell(fmt.Sprintf("number %s %d", field, 100+i))
	}
	d.tell("number shared 0", "number overcommit 1", "number contiguous 1")
	before := d.dump()
	d.submit()
	if after := d.dump(); after != before {
		t.Errorf("a pass changed the job:\nfrom %s\nto   %s", before, after)
	}
	want := &wire.Request{
		SubmitUID: 1000, UserID: 112, GroupID: 113, BeginTime: 100,
		Flags: wire.FlagExclusive | wire.FlagRequeue | wire.FlagOvercommit | wire.FlagContiguous,
		Name:  "train.sh", Partition: "gpu", WorkDir: "/home/ada", TresPerNode: "gres:gpu:1",
		Account: "the account \xff", QOS: "the qos \xff", Reservation: "the reservation \xff", Features: "the features \xff",
		Prefer: "the prefer \xff", TresPerJob: "the tres_per_job \xff", TresPerSocket: "the tres_per_socket \xff",
		TresPerTask: "the tres_per_task \xff", CPUsPerTres: "the cpus_per_tres \xff", MemPerTres: "the mem_per_tres \xff",
		ArrayInx: "the array_inx \xff", Comment: "the comment \xff", AdminComment: "the admin_comment \xff",
		Dependency: "the dependency \xff", Licenses: "the licenses \xff", ReqNodes: "the req_nodes \xff", ExcNodes: "the exc_nodes \xff",
		PnMinMemory: ptr(uint64(101)), PnMinCPUs: ptr(uint32(102)), MinCPUs: ptr(uint32(103)), MinNodes: ptr(uint32(104)),
		MaxNodes: ptr(uint32(105)), NumTasks: ptr(uint32(106)), CPUsPerTask: ptr(uint32(107)), NtasksPerNode: ptr(uint32(108)),
		NtasksPerTres: ptr(uint32(109)), TimeLimit: ptr(uint32(110)), Priority: ptr(uint32(111)),
		Argv: []string{"/home/ada/train.sh", "3"}, ArgvTotal: 2, Script: script, ScriptTotal: uint64(len(script)),
		Environment:      []string{"HOME=/home/ada", "SLURM_GPUS=1", "SLURM_GPUS_PER_NODE=1", "A=b=c", "SLURM_MEM_PER_GPU=8192"},
		EnvironmentTotal: 5,
	}
	got := <-requests
	if got.SlurmVersion>>16 < 20 {
		t.Errorf("slurm_version %#x is no Slurm that can be supported", got.SlurmVersion)
	}
	want.SlurmVersion = got.SlurmVersion
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// TestUnsetFields submits a job of which nothing but a GPU is known.
func TestUnsetFields(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictPass})
	d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
	d.tell("job", text("tres_per_job", "gpu:2"), text("script", "#!/bin/sh\n"))
	d.submit()
	got := <-requests
	want := &wire.Request{SlurmVersion: got.SlurmVersion, SubmitUID: 1000, UserID: 1000, GroupID: 1000,
		TresPerJob: "gpu:2", Script: "#!/bin/sh\n", ScriptTotal: 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestLongContentsAreCut(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictPass})
	d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
	d.tell(gpuJob()...)
	variables := []string{"BIG=" + strings.Repeat("x", 200<<10), "BIG2=" + strings.Repeat("y", 100<<10), "LAST=1"}
	d.tell("big script 5000000", environment(variables...), fmt.Sprintf("argv %x %x", "s", strings.Repeat("a", 70<<10)))
	d.submit()
	got := <-requests
	if len(got.Script) != wire.MaxScriptBytes || got.ScriptTotal != 5000000 || !got.ScriptCut() {
		t.Errorf("script: %d of %d bytes, cut %t", len(got.Script), got.ScriptTotal, got.ScriptCut())
	}
	if len(got.Environment) != 1 || got.EnvironmentTotal != 3 || !got.EnvironmentCut() {
		t.Errorf("environment: %d of %d entries, cut %t", len(got.Environment), got.EnvironmentTotal, got.EnvironmentCut())
	}
	if len(got.Argv) != 1 || got.ArgvTotal != 2 || !got.ArgvCut() {
		t.Errorf("argv: %d of %d entries, cut %t", len(got.Argv), got.ArgvTotal, got.ArgvCut())
	}
}

// TestWhichJobsAreTold is the table of FORMAT.md's last section.
func TestWhichJobsAreTold(t *testing.T) {
	const told, silent = "", "silent"
	cases := []struct {
		name   string
		change []string
		want   string // told, silent, or the reason to skip
	}{
		{"a GPU by --gres", nil, told},
		{"20.11 spelling", []string{text("tres_per_node", "gpu:a100:1")}, told},
		{"23.11 spelling", []string{text("tres_per_node", "gres/gpu:1")}, told},
		{"no count", []string{text("tres_per_node", "gpu")}, told},
		{"upper case", []string{text("tres_per_node", "GRES:GPU:1")}, told},
		{"second in a list", []string{text("tres_per_node", "gres:nvme:1,gres:gpu:1")}, told},
		{"per job", []string{text("tres_per_node", ""), text("tres_per_job", "gres:gpu:2")}, told},
		{"per socket", []string{text("tres_per_node", ""), text("tres_per_socket", "gres:gpu:1")}, told},
		{"per task beside cpus", []string{text("tres_per_node", ""), text("tres_per_task", "cpu=2,gres/gpu=1")}, told},
		{"shard", []string{text("tres_per_node", "gres:shard:8")}, told},
		{"mps", []string{text("tres_per_node", "gres:mps:50")}, told},
		{"an array", []string{text("array_inx", "0-9%2")}, told},
		{"begin in the past", []string{"number begin_time 1"}, told},
		{"another GRESIZE variable", []string{environment("GRESIZE=on", "GRESIZEX=off")}, told},
		{"a comment that mentions it", []string{text("comment", "see gresize:offline")}, told},
		{"a directive inside a line", []string{text("script", "#!/bin/sh\n# #GRESIZE off\n#GRESIZE offset\n#GRESIZEoff\n")}, told},

		{"no GPU", []string{text("tres_per_node", "gres:nvme:1")}, silent},
		{"no gres", []string{text("tres_per_node", "")}, silent},
		{"a gres with a like name", []string{text("tres_per_node", "gres:gpuslot:1,gres:xgpu:1,gres:nvme:gpu:1")}, silent},

		{"cron", []string{"number bitflags 4194304"}, wire.SkipCron},
		{"cron, whose offset of a heterogeneous job is 0", []string{"number bitflags 4194304", "number het_job_offset 0"}, wire.SkipCron},
		{"immediate", []string{"number immediate 1"}, wire.SkipImmediate},
		{"het", []string{"number het_job_offset 0"}, wire.SkipHet},
		{"deadline", []string{"number deadline 2000000000"}, wire.SkipDeadline},
		{"clusters", []string{text("clusters", "other")}, wire.SkipOtherCluster},
		{"federation", []string{"number fed_siblings_viable 3"}, wire.SkipOtherCluster},
		{"burst buffer", []string{text("burst_buffer", "#BB x")}, wire.SkipBurstBuffer},
		{"on hold", []string{"number priority 0"}, wire.SkipOnHold},
		{"a token already", []string{text("admin_comment", "x,gresize:v1:abc")}, wire.SkipTokenPresent},
		{"comment", []string{text("comment", "exp 7, gresize:off")}, wire.SkipOptOut},
		{"environment", []string{environment("A=1", "GRESIZE=off")}, wire.SkipOptOut},
		{"directive", []string{text("script", "#!/bin/sh\n#GRESIZE off\n")}, wire.SkipOptOut},
		{"directive at the end", []string{text("script", "#!/bin/sh\n#GRESIZE  Off")}, wire.SkipOptOut},
		{"directive with a reason", []string{text("script", "#GRESIZE off because\r\n")}, wire.SkipOptOut},
		{"script too large", []string{"big script 17000000"}, wire.SkipScriptTooLarge},
	}
	// The reply would hold the job: a skipped one must not heed it.
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"})
	d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d.tell(gpuJob()...)
			d.tell(c.change...)
			before := d.dump()
			d.submit()
			changed := d.dump() != before
			request := received(requests)
			switch {
			case c.want == silent:
				if request != nil || changed {
					t.Errorf("told: %t, changed: %t; the daemon must not hear of it", request != nil, changed)
				}
			case request == nil:
				t.Fatal("the daemon heard nothing")
			case request.SkipReason != c.want:
				t.Errorf("skip_reason %q, want %q", request.SkipReason, c.want)
			case changed != (c.want == told):
				t.Errorf("the job was changed: %t", changed)
			}
		})
	}
	t.Run("jobs without a GPU, where the site wants to hear of them", func(t *testing.T) {
		d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\ntell_cpu_jobs=yes\n")
		d.tell(gpuJob()...)
		d.tell(text("tres_per_node", ""))
		before := d.dump()
		d.submit()
		if request := received(requests); request == nil || request.SkipReason != wire.SkipNoGPU || d.dump() != before {
			t.Errorf("request %+v, want skip_reason %s and the job as it was", request, wire.SkipNoGPU)
		}
		d.tell(text("name", "gresize-probe-abcdefgh"))
		d.submit()
		if request := received(requests); request != nil {
			t.Errorf("the daemon heard of a probe: %+v", request)
		}
	})
	t.Run("srun", func(t *testing.T) {
		d.tell("job", text("tres_per_job", "gres:gpu:1"))
		d.submit()
		if request := received(requests); request == nil || request.SkipReason != wire.SkipNoScript {
			t.Errorf("request %+v, want skip_reason %s", request, wire.SkipNoScript)
		}
	})
}

// submitWith submits the usual job after some changes and returns it before and
// after.
func submitWith(t *testing.T, reply *wire.Reply, change ...string) (before, after map[string]string) {
	t.Helper()
	path, _ := daemon(t, reply)
	d := start(t, sanitized, "socket="+path+"\ndeadline_ms=1000\n")
	d.tell(gpuJob()...)
	d.tell(change...)
	before = d.job()
	d.submit()
	after = d.job()
	d.stop()
	return before, after
}

// checkChanges fails unless exactly these fields changed. "" is unset.
func checkChanges(t *testing.T, before, after, want map[string]string) {
	t.Helper()
	expected := maps.Clone(before)
	for name, value := range want {
		if value == "" {
			delete(expected, name)
		} else {
			expected[name] = value
		}
	}
	if diff := cmp.Diff(expected, after); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func beginTime(t *testing.T, job map[string]string) time.Time {
	t.Helper()
	seconds, err := strconv.ParseInt(job["begin_time"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(seconds, 0)
}

func TestHold(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	before, after := submitWith(t, &wire.Reply{
		Verdict: wire.VerdictHold, HoldSeconds: 120, Token: "q3v-A_9",
		EnvDrop: []string{"SLURM_GPUS", "SLURM_MEM_PER_GPU", "NOT_THERE"},
	})
	until := beginTime(t, after)
	if until.Before(start.Add(120*time.Second)) || until.After(time.Now().Add(120*time.Second)) {
		t.Errorf("begin_time is %v from now, want 120 s", time.Until(until))
	}
	checkChanges(t, before, after, map[string]string{
		"begin_time":    after["begin_time"],
		"admin_comment": wire.TokenPrefix + "q3v-A_9",
		"environment":   "HOME=/home/ada\nSLURM_GPUS_PER_NODE=1\nA=b=c",
	})
}

func TestHoldKeepsALaterBeginTimeAndTheSitesComment(t *testing.T) {
	later := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	before, after := submitWith(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 300, Token: "t"},
		"number begin_time "+later, text("admin_comment", "project 7"))
	checkChanges(t, before, after, map[string]string{
		"begin_time": later, "admin_comment": "project 7," + wire.TokenPrefix + "t",
	})
}

func TestHoldWithRewrite(t *testing.T) {
	before, after := submitWith(t, &wire.Reply{
		Verdict: wire.VerdictHold, HoldSeconds: 1, Token: "t",
		Rewrite: wire.Rewrite{MemPerTres: ptr(""), PnMinMemory: ptr(uint64(8192)), CPUsPerTres: ptr(""), MinCPUs: ptr(uint32(6)), PnMinCPUs: ptr(uint32(6))},
	}, text("mem_per_tres", "gres/gpu:8192"), text("cpus_per_tres", "gres/gpu:6"))
	checkChanges(t, before, after, map[string]string{
		"begin_time": after["begin_time"], "admin_comment": wire.TokenPrefix + "t",
		"mem_per_tres": "", "cpus_per_tres": "", "pn_min_memory": "8192", "min_cpus": "6", "pn_min_cpus": "6",
	})
}

func TestRewrite(t *testing.T) {
	longest := strings.Repeat("f", wire.MaxRewriteBytes)
	before, after := submitWith(t, &wire.Reply{Verdict: wire.VerdictRewrite, Rewrite: wire.Rewrite{
		Features: ptr(longest), TresPerNode: ptr(""), TresPerJob: ptr("gres:gpu:v100:1"),
		TresPerSocket: ptr("s"), TresPerTask: ptr("t"), PnMinMemory: ptr(wire.MemoryPerCPU | 5),
	}}, text("features", "old"))
	checkChanges(t, before, after, map[string]string{
		"features": longest, "tres_per_node": "", "tres_per_job": "gres:gpu:v100:1", "tres_per_socket": "s", "tres_per_task": "t",
		"pn_min_memory": strconv.FormatUint(wire.MemoryPerCPU|5, 10),
	})
}

// TestHoldIsAllOrNothing asks to take out every variable, which Slurm would
// refuse: the token must not be stamped then either.
func TestHoldIsAllOrNothing(t *testing.T) {
	before, after := submitWith(t, &wire.Reply{
		Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t", EnvDrop: []string{"A"}, Rewrite: wire.Rewrite{Features: ptr("x")},
	}, environment("A=1"))
	checkChanges(t, before, after, nil)
}

func TestModifyDoesNothing(t *testing.T) {
	path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"})
	d := start(t, sanitized, "socket="+path+"\n")
	d.tell(gpuJob()...)
	before := d.dump()
	d.tell("modify")
	if got := d.line(); got != "modify 0 " {
		t.Errorf("got %q", got)
	}
	if d.dump() != before || received(requests) != nil {
		t.Error("job_modify must neither change the job nor ask anybody")
	}
}

// TestStamp is what shadow mode does: the token and nothing else.
func TestStamp(t *testing.T) {
	before, after := submitWith(t, &wire.Reply{Verdict: wire.VerdictHold, Token: "t"})
	checkChanges(t, before, after, map[string]string{"admin_comment": wire.TokenPrefix + "t"})
}
