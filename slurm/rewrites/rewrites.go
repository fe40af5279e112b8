// Package rewrites carries out, on a real Slurm with the plugin, the change of every spelling of a GPU request to every kind of target, and
// says what came of it: what was sent, what the controller then holds, whether it could be taken back, and what the job and an srun inside
// it see. docs/rewrites.md is what it found; its test finds the same again.
package rewrites

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// Spelling is a way to ask sbatch for a GPU.
type Spelling struct {
	Args []string
	// Env are variables of sbatch's own environment, which ask for what Like would on its command line.
	Env, Like []string
	// Since is the change of Slurm that brought it; nil: it was there.
	Since *release.Change
}

// Spellings are the ways that the table tries.
var Spellings = []Spelling{
	{Args: []string{"--gres=gpu:1"}},
	{Args: []string{"--gres=gpu:big:1"}},
	{Args: []string{"--gres=gpu:2"}},
	{Args: []string{"--gpus=1"}},
	{Args: []string{"--gpus=big:1"}},
	{Args: []string{"--gpus-per-node=1"}},
	{Args: []string{"--gpus-per-node=big:1"}},
	{Args: []string{"--ntasks=1", "--gpus-per-task=1"}},
	{Args: []string{"--ntasks=1", "--cpus-per-task=2", "--gpus-per-task=1"}},
	{Args: []string{"--sockets-per-node=1", "--gpus-per-socket=1"}},
	{Args: []string{"--ntasks=1", "--tres-per-task=gres/gpu:1"}, Since: release.TaskEquals},
	{Args: []string{"--gpus=1", "--mem-per-gpu=100M"}},
	{Args: []string{"--gpus=1", "--cpus-per-gpu=1"}},
	{Args: []string{"--gpus=1", "--constraint=gpu80g"}},
	{Args: []string{"--gres=gpu:a100_3g.20gb:1"}},
	{Args: []string{"--gres=shard:20"}, Since: release.Shards},
	{Env: []string{"SBATCH_GRES=gpu:big:1"}, Like: []string{"--gres=gpu:big:1"}},
	{Env: []string{"SBATCH_GPUS=1"}, Like: []string{"--gpus=1"}},
	{Env: []string{"SBATCH_GPUS_PER_NODE=1"}, Like: []string{"--gpus-per-node=1"}},
	{Args: []string{"--ntasks=1"}, Env: []string{"SBATCH_GPUS_PER_TASK=1"}, Like: []string{"--ntasks=1", "--gpus-per-task=1"}},
	{Env: []string{"SBATCH_GPUS=1", "SBATCH_MEM_PER_GPU=100M", "SBATCH_CPUS_PER_GPU=1"}, Like: []string{"--gpus=1", "--mem-per-gpu=100M", "--cpus-per-gpu=1"}},
}

// spellingsOfMPS are tried on a cluster of their own: where Slurm knows MPS, jobs with shards get no CUDA_VISIBLE_DEVICES (22.05.8, 24.11.5).
var spellingsOfMPS = []Spelling{{Args: []string{"--gres=mps:50"}}}

// String is what a person would type.
func (s Spelling) String() string {
	return strings.Join(append(slices.Clone(s.Env), s.Args...), " ")
}

// meaning are the options that mean the same.
func (s Spelling) meaning() []string {
	if s.Like != nil {
		return s.Like
	}
	return s.Args
}

// Kind is a kind of target.
type Kind struct {
	Name   string
	Target request.Target
	// Node is where such a job has to run; empty: anywhere.
	Node string
}

// Kinds are the targets that the table tries.
var Kinds = []Kind{
	{"constraint", request.Target{Constraint: "gpu12g"}, "small"},
	{"type", request.Target{Gres: "gpu:small:1"}, "small"},
	{"MIG type", request.Target{Gres: "gpu:a100_3g.20gb:1"}, "mig"},
	{"shard", request.Target{Shards: 10}, ""},
	{"count-only", request.Target{Counted: "vram:12"}, ""},
}

// own are the features of the table's cluster that tell sizes apart.
var own = map[string]bool{"gpu12g": true, "gpu20g": true, "gpu80g": true}

// nodes have several GPUs each, so that few jobs wait for others.
func nodes() []minicluster.Node {
	return []minicluster.Node{
		{Name: "small", CPUs: 16, RealMemoryMiB: 64 << 10, GPUType: "small", GPUs: 4, Shards: 4 * 12, Features: []string{"gpu12g"}, Counted: []string{"vram:48"}},
		{Name: "mig", CPUs: 16, RealMemoryMiB: 64 << 10, GPUType: "a100_3g.20gb", GPUs: 4, Shards: 4 * 20, Features: []string{"gpu20g"}, Counted: []string{"vram:80"}},
		{Name: "big", CPUs: 16, RealMemoryMiB: 64 << 10, GPUType: "big", GPUs: 4, Shards: 4 * 80, Features: []string{"gpu80g"}, Counted: []string{"vram:320"}},
	}
}

func nodesWithMPS() []minicluster.Node {
	return []minicluster.Node{{Name: "big", CPUs: 16, RealMemoryMiB: 64 << 10, GPUType: "big", GPUs: 1, MPS: 100, Features: []string{"gpu12g"}}}
}

// Row is what came of one spelling and one target.
type Row struct {
	Asked  string
	Target string
	// Outcome is Runs, Restored, or what else became of the job.
	Outcome string
	// Dropped are the variables that the plugin took out at submit.
	Dropped string
	// Sent is the update.
	Sent string
	// Undone tells whether a second update gave the job its own request back, before the first was sent again.
	Undone string
	// Job is what scontrol shows of the request when the job runs.
	Job string
	// Srun is what came of an srun inside the job.
	Srun string
	// Environment is what the job sees of its GPUs.
	Environment string
}

// The outcomes of a job that was changed, when all is well.
const (
	Runs = "runs"
	// Restored: no node has what it was changed to, so it was given its own request back.
	Restored = "BadConstraints, runs with its own request again"
	// Unsaid is the same where the controller does not say so: the job waited, and no other did any more.
	Unsaid = "waits and nobody says for what, runs with its own request again"
)

// Options say on which Slurm the table is run.
type Options struct {
	// Root is the folder of another release, see minicluster.Options; empty: this machine's.
	Root string
	// Plugin is the plugin for that release.
	Plugin string
	// Only chooses a part of the table when it is not nil.
	Only func(Spelling, Kind) bool
}

// Run starts the clusters of the table, one after another, and goes through it.
func Run(ctx context.Context, o Options) (version release.Version, rows []Row, err error) {
	for _, part := range []struct {
		nodes     []minicluster.Node
		spellings []Spelling
	}{{nodes(), Spellings}, {nodesWithMPS(), spellingsOfMPS}} {
		chosen := o.chosen(part.spellings)
		if len(chosen) == 0 {
			continue
		}
		var more []Row
		if version, more, err = o.run(ctx, part.nodes, chosen); err != nil {
			return version, nil, err
		}
		rows = append(rows, more...)
	}
	return version, rows, nil
}

// chosen are the spellings of which a part is wanted.
func (o Options) chosen(spellings []Spelling) []Spelling {
	return slices.DeleteFunc(slices.Clone(spellings), func(s Spelling) bool {
		return o.Only != nil && !slices.ContainsFunc(Kinds, func(k Kind) bool { return o.Only(s, k) })
	})
}

// run is Run on one cluster.
func (o Options) run(ctx context.Context, nodes []minicluster.Node, spellings []Spelling) (version release.Version, rows []Row, err error) {
	dir, err := os.MkdirTemp("", "gresize-rw-")
	if err != nil {
		return version, nil, err
	}
	defer os.RemoveAll(dir)
	d := &daemon{}
	conf, err := d.listen(dir)
	if err != nil {
		return version, nil, err
	}
	defer d.listener.Close()
	cluster, err := minicluster.Start(ctx, minicluster.Options{Root: o.Root, Show: []string{dir}, Nodes: nodes, Plugin: o.Plugin, PluginConf: conf})
	if err != nil {
		return version, nil, err
	}
	defer cluster.Stop()
	d.version = cluster.Version()
	t := &table{Cluster: cluster, daemon: d}
	if err := t.prepare(); err != nil {
		return version, nil, err
	}
	for _, s := range spellings {
		if s.Since != nil && !s.Since.In(d.version) {
			continue
		}
		for _, k := range Kinds {
			if o.Only != nil && !o.Only(s, k) {
				continue
			}
			if err := t.begin(ctx, s, k); err != nil {
				return version, nil, fmt.Errorf("%s to %s: %w", s, k.Name, err)
			}
		}
	}
	if err := t.finish(ctx); err != nil {
		return version, nil, err
	}
	for _, j := range t.jobs {
		rows = append(rows, j.row)
	}
	return d.version, rows, nil
}

// daemon answers the plugin as gresized does when it holds a job.
type daemon struct {
	listener net.Listener
	version  release.Version

	mu     sync.Mutex
	target request.Target
	inner  request.InnerSrun
	// byNode tells that what was asked for by the GPU was asked for by the node at submit.
	byNode  bool
	dropped []string
	tokens  int
}

func (d *daemon) listen(dir string) (conf string, err error) {
	socket := filepath.Join(dir, "s")
	if d.listener, err = net.Listen("unix", socket); err != nil {
		return "", err
	}
	conf = filepath.Join(dir, "plugin.conf")
	if err := os.WriteFile(conf, []byte("socket = "+socket+"\ndeadline_ms = 1000\n"), 0o644); err != nil {
		return "", err
	}
	slurm, err := user.Lookup(minicluster.DefaultSlurmUser)
	if err != nil {
		return "", err
	}
	uid, err := strconv.Atoi(slurm.Uid)
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.Chown(socket, uid, -1)); err != nil {
		return "", err
	}
	go func() {
		for {
			connection, err := d.listener.Accept()
			if err != nil {
				return
			}
			if r, err := wire.ReadRequest(connection); err == nil {
				// Without an answer the job is not held, which the table says of it.
				_ = wire.WriteReply(connection, d.answer(r))
			}
			connection.Close()
		}
	}()
	return conf, nil
}

func (d *daemon) answer(r *wire.Request) *wire.Reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := request.Request{TresPerNode: r.TresPerNode, TresPerJob: r.TresPerJob, TresPerSocket: r.TresPerSocket, TresPerTask: r.TresPerTask,
		MemPerTres: r.MemPerTres, CpusPerTres: r.CPUsPerTres, Features: r.Features}
	targets, options := []request.Target{d.target}, request.Options{Version: d.version, Own: own}
	d.tokens++
	reply := &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: wire.MaxHoldSeconds, Token: "t" + strconv.Itoa(d.tokens)}
	if byNode, ok := asked.ByNode(targets, options, r.Environment, r.Script); ok {
		asked, d.byNode, reply.EnvDrop = byNode.Request, true, byNode.Drop
		reply.Rewrite = wire.ByNode(r, byNode.MemMiB, byNode.CPUs)
	}
	d.inner = asked.InnerSrun(targets, options, r.Environment, r.Script)
	reply.EnvDrop = append(reply.EnvDrop, d.inner.Drop...)
	d.dropped = reply.EnvDrop
	return reply
}

// sees is what an srun says that has a GPU.
const sees = "ok, CUDA_VISIBLE_DEVICES set"

// script shows what a job sees. The patterns do not spell the variables out: a script that speaks of them keeps them.
const script = `#!/bin/sh
env | LC_ALL=C sort | grep -E '^(SLURM_(G[P]US|G[R]ES|SHARDS|JOB_G[P]US|T[R]ES_PER|M[E]M_PER_(GPU|NODE)|C[P]US_PER_GPU)|CUDA_VISIBLE)' | sed 's/^/env /'
srun sh -c 'echo "ok, CUDA_VISIBLE_DEVICES ${CUDA_VISIBLE_DEVICES+set}"' 2>&1 | sed -n '1s/^/step /p'
`

type table struct {
	*minicluster.Cluster
	daemon *daemon
	uid    string
	dir    string
	jobs   []*job
}

type job struct {
	id      string
	kind    Kind
	row     Row
	asked   request.Request
	result  request.Request
	waiting bool
	// restored is Restored or Unsaid where the job could not start and has its own request back.
	restored string
}

func (t *table) prepare() error {
	who, err := user.Lookup(minicluster.DefaultUser)
	if err != nil {
		return err
	}
	t.uid = who.Uid
	if t.dir, err = t.WorkDir(minicluster.DefaultUser); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dir, "job.sh"), []byte(script), 0o644)
}

// begin submits a job, changes it, changes it back and changes it again, and lets it go.
func (t *table) begin(ctx context.Context, s Spelling, k Kind) error {
	t.daemon.mu.Lock()
	t.daemon.target, t.daemon.inner, t.daemon.byNode, t.daemon.dropped = k.Target, request.InnerSrun{}, false, nil
	t.daemon.mu.Unlock()
	j := &job{kind: k, row: Row{Asked: s.String(), Target: k.Name}}
	t.jobs = append(t.jobs, j)
	record, err := t.held(ctx, s)
	if err != nil {
		return err
	}
	j.id = strconv.FormatUint(uint64(record.ID), 10)
	// What sbatch makes of the options is what ParseArgs says; the CPUs of a task are no part of it.
	t.daemon.mu.Lock()
	inner, byNode, dropped := t.daemon.inner, t.daemon.byNode, t.daemon.dropped
	t.daemon.mu.Unlock()
	want, _ := request.ParseArgs(s.meaning(), t.daemon.version)
	if byNode {
		want.MemPerTres, want.CpusPerTres = "", ""
	}
	if !request.Equivalent(want, record.Request) && !strings.Contains(j.row.Asked, "--cpus-per-task") {
		return fmt.Errorf("the controller stores %+v, read as %+v", record.Request, want)
	}
	j.row.Dropped = strings.Join(dropped, " ")
	change, err := record.Request.Change(k.Target, request.Options{Version: t.daemon.version, Own: own, EnvDropped: inner.Clear})
	if refused, ok := request.IsRefused(err); ok {
		j.row.Outcome, j.row.Job = "left alone: "+refused.Code, shown(record.Request)
		_, err := t.Run(ctx, "root", "scancel", j.id)
		return err
	} else if err != nil {
		return err
	}
	if len(change.Set) == 0 {
		j.row.Outcome, j.row.Job = "is that already", shown(record.Request)
		_, err := t.Run(ctx, "root", "scancel", j.id)
		return err
	}
	j.asked, j.result, j.row.Sent = record.Request, change.Result, assignments(change.Set)
	if refusal := t.update(ctx, j.id, change.Set); refusal != "" {
		j.row.Outcome = "refused: " + refusal
		_, err := t.Run(ctx, "root", "scancel", j.id)
		return err
	}
	j.row.Undone = t.undo(ctx, j.id, record.Request, change.Result)
	again := append(slices.Clone(change.Set), request.Assignment{Key: "StartTime", Value: "now"})
	if refusal := t.update(ctx, j.id, again); refusal != "" {
		j.row.Outcome = "refused the second time: " + refusal
		return nil
	}
	j.waiting = true
	return nil
}

// held submits a job that the plugin holds. On a machine that is very busy the daemon's answer may come too late, and the job passes as it should: then once more.
func (t *table) held(ctx context.Context, s Spelling) (client.Job, error) {
	const most = 3
	for try := 1; ; try++ {
		cmd, err := t.Command(ctx, minicluster.DefaultUser, "sbatch", append(append([]string{"--parsable", "--output=out-%j", "--time=5"}, s.Args...), "job.sh")...)
		if err != nil {
			return client.Job{}, err
		}
		cmd.Env = append(cmd.Env, s.Env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return client.Job{}, fmt.Errorf("sbatch: %w: %s", err, out)
		}
		id := strings.TrimSpace(string(out))
		record, err := t.record(ctx, id)
		if err != nil || record.Reason == "BeginTime" && record.Token() != "" {
			return record, err
		}
		if try == most {
			return record, fmt.Errorf("the plugin did not hold job %s: %s %s", id, record.State, record.Reason)
		}
		if _, err := t.Run(ctx, "root", "scancel", id); err != nil {
			return record, err
		}
	}
}

// undo gives the job its own request back and says whether it has it.
func (t *table) undo(ctx context.Context, id string, asked, changed request.Request) string {
	if record, err := t.record(ctx, id); err != nil || !request.Equivalent(record.Request, changed) {
		return fmt.Sprintf("stored as %s", shown(record.Request))
	}
	if refusal := t.update(ctx, id, request.Difference(changed, asked)); refusal != "" {
		return "refused: " + refusal
	}
	if record, err := t.record(ctx, id); err != nil || !request.Equivalent(record.Request, asked) {
		return fmt.Sprintf("no: %s", shown(record.Request))
	}
	return "yes"
}

// update sends an update in the owner's name; the answer is what the controller said against it.
func (t *table) update(ctx context.Context, id string, set []request.Assignment) string {
	args := []string{"--uid=" + t.uid, "update", "JobId=" + id}
	for _, a := range set {
		args = append(args, a.Key+"="+a.Value)
	}
	if _, err := t.Run(ctx, "root", "scontrol", args...); err != nil {
		_, said, _ := strings.Cut(err.Error(), "exit status ")
		return strings.Join(strings.Fields(said), " ")
	}
	return ""
}

func (t *table) record(ctx context.Context, id string) (client.Job, error) {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return client.Job{}, err
	}
	out, err := t.Run(ctx, "root", "squeue", client.JobArguments(uint32(number))...)
	if err != nil {
		return client.Job{}, err
	}
	j, ok, err := client.ReadJob(strings.NewReader(out), uint32(number))
	if err == nil && !ok {
		err = fmt.Errorf("squeue shows no job %s: %.200q", id, out)
	}
	if err != nil {
		return client.Job{}, err
	}
	shown, err := t.Job(ctx, id)
	if shown["MinMemoryNode"] == "" {
		j.Request.MemPerNodeMiB = 0 // that of each CPU, which squeue does not tell from it
	}
	return j, err
}

// finish waits for the jobs that were let go.
func (t *table) finish(ctx context.Context) error {
	const limit, silence = 2 * time.Minute, 15 * time.Second
	progress := time.Now()
	for deadline := time.Now().Add(limit); ; {
		left := 0
		for _, j := range t.jobs {
			if !j.waiting {
				continue
			}
			record, err := t.record(ctx, j.id)
			if err != nil {
				return err
			}
			switch {
			case record.Ended():
				t.describe(j, record)
				j.waiting, progress = false, time.Now()
			case j.restored == "" && (strings.HasPrefix(record.Reason, "BadConstraints") || record.Unexplained() && time.Since(progress) > silence):
				// What gresized does then, so that nobody's job stays stuck.
				if refusal := t.update(ctx, j.id, request.Difference(j.result, j.asked)); refusal != "" {
					j.row.Outcome, j.waiting = "BadConstraints, and its own request is refused: "+refusal, false
				}
				j.result, j.kind.Node, j.restored = j.asked, "", Restored
				if record.Unexplained() {
					j.restored = Unsaid
				}
				left++
			case time.Now().After(deadline):
				j.row.Outcome, j.row.Job, j.waiting = record.State+" "+record.Reason, shown(record.Request), false
			default:
				left++
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

var (
	jobNumber = regexp.MustCompile(`\bjob \d+`)
	// positions are the variables whose values depend on what else runs.
	positions = map[string]bool{"CUDA_VISIBLE_DEVICES": true, "SLURM_JOB_GPUS": true}
)

// describe fills a row in from a job that has ended and what it printed.
func (t *table) describe(j *job, record client.Job) {
	j.row.Job = shown(record.Request)
	switch {
	case record.State != "COMPLETED":
		j.row.Outcome = record.State + " " + record.ExitCode
	case !request.Equivalent(record.Request, j.result):
		j.row.Outcome = "runs with another request"
	case j.kind.Node != "" && record.NodeList != j.kind.Node:
		j.row.Outcome = "runs on " + record.NodeList
	case j.restored != "":
		j.row.Outcome = j.restored
	default:
		j.row.Outcome = Runs
	}
	out, err := os.ReadFile(filepath.Join(t.dir, "out-"+j.id))
	if err != nil {
		j.row.Srun = err.Error()
		return
	}
	var seen []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if variable, ok := strings.CutPrefix(line, "env "); ok {
			if name, _, _ := strings.Cut(variable, "="); positions[name] {
				variable = name
			}
			seen = append(seen, variable)
		}
		if step, ok := strings.CutPrefix(line, "step "); ok {
			j.row.Srun = jobNumber.ReplaceAllString(strings.TrimPrefix(step, "srun: "), "job N")
		}
	}
	j.row.Environment = strings.Join(seen, " ")
}

func assignments(set []request.Assignment) string {
	words := make([]string, len(set))
	for i, a := range set {
		words[i] = a.Key + "=" + a.Value
	}
	return strings.Join(words, " ")
}

// shown is a request in scontrol's words.
func shown(r request.Request) string {
	var words []string
	for _, f := range request.Fields {
		if v := r.Get(f); v != "" {
			words = append(words, string(f)+"="+v)
		}
	}
	for _, w := range []struct{ name, value string }{{"MemPerTres", r.MemPerTres}, {"CpusPerTres", r.CpusPerTres}, {"Features", r.Features}} {
		if w.value != "" {
			words = append(words, w.name+"="+w.value)
		}
	}
	if r.MemPerNodeMiB > 0 {
		words = append(words, fmt.Sprintf("MinMemoryNode=%dM", r.MemPerNodeMiB))
	}
	return strings.Join(words, " ")
}
