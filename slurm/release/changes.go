package release

import (
	"fmt"
	"strings"
)

// Change is one thing that is otherwise from a release on.
type Change struct {
	Since Version
	// What is otherwise from then on; Source is the file of Slurm's source, or the experiment, where that can be seen.
	What, Source string
}

// In reports whether the change is in a release.
func (c *Change) In(v Version) bool { return v.AtLeast(c.Since.Major, c.Since.Minor, c.Since.Micro) }

// The changes that decide what gresize does.
var (
	GresColon = &Change{Version{21, 8, 0}, "the tres_per_* fields name a generic resource as gres:gpu:1, not gpu:1", "src/common/proc_args.c, xfmt_tres, and its callers"}
	Shards    = &Change{Version{22, 5, 0}, "gres/shard: a GPU that jobs share", "RELEASE_NOTES of 22.05"}
	// Before it, a typed record can neither change its type nor lose it, and a GPU can never become a shard.
	ReplacesGres = &Change{Version{23, 2, 6}, "an update of a pending job builds its list of generic resources anew; before, it is merged into the old one", "src/slurmctld/job_mgr.c, _update_job; run on 22.05.8 and 24.11.5"}
	TresPerTask  = &Change{Version{23, 2, 0}, "sbatch has --tres-per-task", "src/common/slurm_opt.c"}
	GresSlash    = &Change{Version{23, 11, 0}, "the fields name it as gres/gpu:1; the earlier prefixes are misread", "src/common/proc_args.c, xfmt_tres, and its callers"}
	// Where a task is bound to a GPU, an srun asks for one that a job with shards has not.
	BindingHidesShards = &Change{Version{25, 11, 0}, "a step with SLURM_TRES_BIND has no GPU in a job with shards: the variable goes", "run on 25.11.7 and 26.05.5"}
	// 23.11.11 stores TresPerTask=gres/gpu:1.
	TaskEquals = &Change{Version{24, 5, 0}, "the count of --gpus-per-task stands behind an equals sign, gres/gpu=1", "src/common/slurm_opt.c; run on 23.11.11 and 24.05.8"}
	Prefer     = &Change{Version{22, 5, 0}, "sbatch has --prefer, and job_desc_msg_t has prefer (a branch of the preprocessor in slurm/plugin/job_describe.c)", "slurm/slurm.h"}
	// Between these two, nothing but silence tells that a job of no account can never start.
	UnaccountedSkipped = &Change{Version{23, 11, 0}, "without slurmdbd jobs seem to have an invalid account: the main scheduler passes them over, and the backfill scheduler alone starts them", "src/slurmctld/job_scheduler.c; run on 23.11.11 and 24.05.8"}
	UnaccountedJudged  = &Change{Version{24, 11, 0}, "the main scheduler looks at them again", "src/slurmctld/job_scheduler.c; run on 24.11.5"}
	// What the mini-cluster is made of, and what its tests need.
	RateLimit = &Change{Version{23, 2, 0}, "SlurmctldParameters=rl_enable: a client that asks too often is told to wait", "src/slurmctld/rate_limit.c"}
	// Which commands a slurmctld answers, see Beside.
	ThreeBack      = &Change{Version{24, 11, 0}, "slurmctld answers the commands of the three releases before it; until then of two", "src/common/slurm_protocol_common.h, SLURM_MIN_PROTOCOL_VERSION"}
	GPUMemory      = &Change{Version{23, 2, 0}, "jobacct_gather keeps gres/gpumem, the memory of GPUs", "src/plugins/gpu/nvml, src/common/read_config.c"}
	Stepmgr        = &Change{Version{24, 5, 0}, "SlurmctldParameters=enable_stepmgr: a job's own node makes its steps", "RELEASE_NOTES of 24.05"}
	AuthSlurm      = &Change{Version{23, 11, 0}, "AuthType=auth/slurm, without munge", "RELEASE_NOTES of 23.11"}
	CgroupPlugin   = &Change{Version{21, 8, 0}, "cgroup.conf has CgroupPlugin", "src/interfaces/cgroup.c"}
	Cgroup2        = &Change{Version{22, 5, 0}, "CgroupPlugin=cgroup/v2", "RELEASE_NOTES of 22.05"}
	CgroupDisabled = &Change{Version{24, 5, 0}, "CgroupPlugin=disabled", "src/interfaces/cgroup.c"}
)

// Changes are all of them, and below them those that gresize meets without asking for the release: what it does is right on both sides.
var Changes = []*Change{GresColon, CgroupPlugin, Cgroup2, Shards, Prefer, TresPerTask, RateLimit, GPUMemory, ReplacesGres, GresSlash, UnaccountedSkipped, AuthSlurm, TaskEquals, CgroupDisabled, Stepmgr, UnaccountedJudged, ThreeBack, BindingHidesShards}

// Met are changes that gresize is built around: nothing asks for them.
var Met = []*Change{
	{Version{21, 8, 0}, "job_submit.lua lies beside slurm.conf; before, in the folder that Slurm was built for", "src/plugins/job_submit/lua/job_submit_lua.c; run on 20.11.4 and 22.05.8"},
	{Version{21, 8, 0}, "scontrol ping ends with 1 where no slurmctld answers; before, with 0, and its words tell", "src/scontrol/scontrol.c, _ping_slurmctld; run on 20.11.4 and 22.05.8"},
	{Version{22, 5, 0}, "a plugin without plugin_version is refused", "src/common/plugin.c"},
	{Version{23, 2, 0}, "job_modify has a fourth argument (a branch in slurm/plugin/plugin.c), and calls of job_submit are concurrent", "src/interfaces/job_submit.c"},
	{Version{23, 2, 0}, "squeue prints an exit code as code:signal, not as the status of wait(2); both are read", "src/squeue/print.c, _print_job_exit_code"},
	{Version{23, 11, 0}, "sbatch has no --export-file up to 24.05, and from 26.05 ignores it without --export: gresize uses neither", "src/sbatch/sbatch.c; run on 23.11.11 and 26.05.5"},
	{Version{23, 11, 0}, "TresPerTask has the CPUs of --cpus-per-task, too (cpu=2)", "src/common/slurm_opt.c"},
	{Version{23, 11, 0}, "sbatch leaves SLURM_TRES_BIND of --gpus-per-task in the environment", "src/common/env.c"},
	{Version{24, 11, 0}, "TresPerJob=gres/shard:N and a shard without a prefix are taken and never start: neither is sent", "run on 24.11.5"},
	{Version{25, 11, 0}, "scontrol show job prints SubmitLine as it was typed, and StdErr empty where none was given: squeue is read instead", "src/scontrol/info_job.c"},
	{Version{25, 11, 0}, "jobs have the state EXPEDITING: what is not known to be an end is none", "src/common/slurm_protocol_defs.c, job_state_string"},
	{Version{26, 5, 0}, "squeue prints a user id above 2^31 as it is, not as a negative number; both are read", "src/squeue/print.c, _print_job_user_id"},
	{Version{26, 5, 0}, "a job's cgroup has a name of Slurm's own, and no longer job_ID: `gresize probe check` knows the step below it", "src/plugins/cgroup/v2/cgroup_v2.c; run on 24.11.5 and 26.05.5"},
}

// Markdown is the page docs/releases.md.
func Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Releases of Slurm\n\ngresize is run on %s: [plugin.md](plugin.md) says what was run where, [rewrites.md](rewrites.md) what each can change. ", strings.Join(Names, ", "))
	b.WriteString("The plugin belongs to one release, micro\nnumbers aside; everything else is one build for all. This page is written from the table in `slurm/release`, the one place where releases are told apart.\n\n" +
		"A job is changed in the words of the release of the slurmctld that asked for it, for scontrol hands them on as they are. scontrol and squeue may be older than slurmctld, by two releases, from 24.11 on by three;\n" +
		"Slurm refuses newer ones. gresized says in its journal which of the two it is, and `gresize slurm check` before.\n\n" +
		"A release newer than the last one is taken to be like it, and the journal says that it is not known. The plugin for it is built from its headers: where they have another layout it is right, and where something that\n" +
		"gresize uses is gone it does not compile. What fails later is an error in the journal, and the job runs as its owner asked.\n\n" +
		"## What gresize asks for\n\n| since | what is otherwise | source |\n|---|---|---|\n")
	rows := func(changes []*Change) {
		for _, c := range changes {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.TrimSuffix(c.Since.String(), ".0"), c.What, c.Source)
		}
	}
	rows(Changes)
	b.WriteString("\n## What it is built around\n\nNothing asks for these: what gresize does is right before and after.\n\n| since | what is otherwise | source |\n|---|---|---|\n")
	rows(Met)
	return b.String()
}

// Prefix is what a release writes before the name of a generic resource in the tres_per_* fields.
// A later release misreads the prefix of an earlier one, so a writer has to choose.
func (v Version) Prefix() string {
	switch {
	case GresSlash.In(v):
		return "gres/"
	case GresColon.In(v):
		return "gres:"
	}
	return ""
}
