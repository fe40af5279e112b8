// Package request owns a job's resource request as Slurm spells it: it reads
// every spelling of a GPU request, says how a pending job can be changed to
// another resource on a given release of Slurm, and prints what to send. It
// talks to nobody: package client carries the change out.
package request

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// Field is a field of a job that can name GPUs; its value is the key that `scontrol update` understands.
type Field string

// The fields that can name a GPU, in the order in which they are looked at.
const (
	PerNode   Field = "TresPerNode"
	PerJob    Field = "TresPerJob"
	PerSocket Field = "TresPerSocket"
	PerTask   Field = "TresPerTask"
)

// Fields lists every field that can name a GPU.
var Fields = []Field{PerNode, PerJob, PerSocket, PerTask}

// Request is the part of a job that says which GPU it wants. Values are as Slurm holds them.
type Request struct {
	TresPerNode   string `json:"tres_per_node,omitempty"`
	TresPerJob    string `json:"tres_per_job,omitempty"`
	TresPerSocket string `json:"tres_per_socket,omitempty"`
	TresPerTask   string `json:"tres_per_task,omitempty"`
	MemPerTres    string `json:"mem_per_tres,omitempty"`
	CpusPerTres   string `json:"cpus_per_tres,omitempty"`
	Features      string `json:"features,omitempty"`
	// MemPerNodeMiB is the host memory of --mem; 0: asked for in another way, or not of interest.
	MemPerNodeMiB uint64 `json:"mem_per_node_mib,omitempty"`
}

// Get returns the value of a field.
func (r Request) Get(f Field) string {
	switch f {
	case PerNode:
		return r.TresPerNode
	case PerJob:
		return r.TresPerJob
	case PerSocket:
		return r.TresPerSocket
	case PerTask:
		return r.TresPerTask
	}
	return ""
}

func (r *Request) set(f Field, value string) {
	switch f {
	case PerNode:
		r.TresPerNode = value
	case PerJob:
		r.TresPerJob = value
	case PerSocket:
		r.TresPerSocket = value
	case PerTask:
		r.TresPerTask = value
	}
}

// String shows the request the way a person would type it.
func (r Request) String() string {
	var parts []string
	for _, f := range Fields {
		if v := r.Get(f); v != "" {
			parts = append(parts, shownAs(f, v))
		}
	}
	if r.Features != "" {
		parts = append(parts, "--constraint="+r.Features)
	}
	if r.MemPerNodeMiB > 0 {
		parts = append(parts, fmt.Sprintf("--mem=%dM", r.MemPerNodeMiB))
	}
	if len(parts) == 0 {
		return "no GPU"
	}
	return strings.Join(parts, " ")
}

// shownAs is a field as the option that a person types for it. What a task is given is one list of all resources: from 23.11 on the CPUs of --cpus-per-task stand there too.
func shownAs(f Field, value string) string {
	name := optionNames[f][0]
	if list := ParseList(value); f == PerTask && (len(list) != 1 || list[0].Name != "gpu") {
		if len(list) == 1 && list[0].Name == "cpu" && list[0].Type == "" {
			return "--cpus-per-task=" + strconv.FormatUint(list[0].Count, 10)
		}
		name = "tres-per-task"
	}
	return "--" + name + "=" + typedText(name, value)
}

// Ask is one place in which a request names a GPU, or a share of one.
type Ask struct {
	Field Field
	Entry
}

// Asks lists every place in which the request names gpu, shard or mps.
func (r Request) Asks() []Ask {
	var asks []Ask
	for _, f := range Fields {
		for _, e := range ParseList(r.Get(f)) {
			if e.Name == "gpu" || e.Name == "shard" || e.Name == "mps" {
				asks = append(asks, Ask{Field: f, Entry: e})
			}
		}
	}
	return asks
}

// Equivalent reports whether two requests ask for the same, whatever their spelling. Host memory that one of them does not speak of makes no difference.
func Equivalent(a, b Request) bool {
	for _, f := range Fields {
		if canonical(a.Get(f)) != canonical(b.Get(f)) {
			return false
		}
	}
	// Slurm prints a size of many MiB with two decimals of a GiB.
	if less, more := min(a.MemPerNodeMiB, b.MemPerNodeMiB), max(a.MemPerNodeMiB, b.MemPerNodeMiB); less > 0 && more-less > more/128 {
		return false
	}
	return clean(a.Features) == clean(b.Features) && canonical(a.MemPerTres) == canonical(b.MemPerTres) && canonical(a.CpusPerTres) == canonical(b.CpusPerTres)
}

func clean(s string) string {
	if s == "(null)" {
		return ""
	}
	return s
}

func canonical(text string) string {
	var b strings.Builder
	for _, e := range ParseList(clean(text)) {
		if e.Name == "" {
			b.WriteString(e.Raw)
		} else {
			b.WriteString(e.Name + ":" + e.Type + ":" + strconv.FormatUint(e.Count, 10))
		}
		b.WriteByte(',')
	}
	return b.String()
}

// Codes of RefusedError, kept in the log.
const (
	CodeConstraint   = "constraint_left_alone"
	CodeSpelling     = "request_not_understood"
	CodeSlurmVersion = "slurm_cannot_change"
	CodeShardMemory  = "shard_with_memory_per_gpu"
	CodeSeveral      = "several_gpus"
	CodeInnerSrun    = "inner_srun_would_fail"
	CodeSharesGPU    = "shares_gpu"
)

// RefusedError says why a request cannot be changed to a target.
type RefusedError struct{ Code, Detail string }

func (e *RefusedError) Error() string { return e.Detail }

func refuse(code, format string, args ...any) error {
	return &RefusedError{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Target is one row of the site's table in Slurm's words.
type Target struct {
	// Gres is the generic resource, e.g. gpu:a100_3g.20gb:1; empty leaves the GPU request as it is.
	Gres string `json:"gres,omitempty"`
	// Constraint is a feature expression that is merged with the owner's own.
	Constraint string `json:"constraint,omitempty"`
	// Shards, when not 0, asks for that many shards in place of a GPU.
	Shards uint64 `json:"shards,omitempty"`
	// Counted is a count-only resource and its count on a node, e.g. vram:23, that is asked for beside the GPU; empty leaves what was asked for.
	Counted string `json:"counted,omitempty"`
	// MemPerNodeMiB is the host memory of a node; 0 leaves what was asked for.
	MemPerNodeMiB uint64 `json:"mem_per_node_mib,omitempty"`
}

// Assignment is one Key=Value of `scontrol update`.
type Assignment struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Change is how to get from one request to another.
type Change struct {
	Set    []Assignment `json:"set"`
	Result Request      `json:"result"`
}

// Options are the circumstances of a change.
type Options struct {
	Version release.Version
	// Own are the features of the site's table; see MergeFeatures.
	Own map[string]bool
	// EnvDropped says that no variable of the job's environment asks for the old resource, see InnerSrun.
	EnvDropped bool
}

// Change works out how a pending job is moved to target, each of its GPUs if it has several: their number stays. It returns a *RefusedError when
// this release of Slurm cannot do it or the outcome would not be certain.
func (r Request) Change(target Target, o Options) (Change, error) {
	asks := r.Asks()
	if len(asks) == 1 && asks[0].Name == "shard" {
		return r.changeShards(asks[0], target, o)
	}
	if len(asks) == 1 && asks[0].Name == "mps" {
		return Change{}, refuse(CodeSharesGPU, "MPS is a share of a GPU's time and says nothing of its memory: %s", r)
	}
	if len(asks) != 1 || asks[0].Name != "gpu" || asks[0].Count < 1 {
		return Change{}, refuse(CodeSpelling, "only a request that names GPUs in one place can be changed, this one is %s", r)
	}
	ask := asks[0]
	result := r
	if target.Shards > 0 && target.Gres != "" {
		return Change{}, refuse(CodeSpelling, "a target has either a gres or shards")
	}
	if target.Gres != "" {
		if err := changeType(&result, ask, target.Gres, o); err != nil {
			return Change{}, err
		}
	}
	if target.Shards > 0 {
		if err := changeToShards(&result, ask, target.Shards, o); err != nil {
			return Change{}, err
		}
	}
	if target.Counted != "" {
		if err := changeCount(&result, target.Counted, o); err != nil {
			return Change{}, err
		}
	}
	if target.MemPerNodeMiB > 0 && r.MemPerNodeMiB > 0 {
		result.MemPerNodeMiB = target.MemPerNodeMiB
	}
	features, err := MergeFeatures(r.Features, target.Constraint, o.Own)
	if err != nil {
		return Change{}, err
	}
	result.Features = features
	return Change{Set: Difference(r, result), Result: result}, nil
}

// Difference lists what to send, in one update, so that a job with request from becomes one with request to. Emptied fields come first.
func Difference(from, to Request) []Assignment {
	var set []Assignment
	for _, f := range Fields {
		if from.Get(f) != to.Get(f) && to.Get(f) == "" {
			set = append(set, Assignment{string(f), ""})
		}
	}
	for _, f := range Fields {
		if from.Get(f) != to.Get(f) && to.Get(f) != "" {
			set = append(set, Assignment{string(f), to.Get(f)})
		}
	}
	if from.Features != to.Features {
		set = append(set, Assignment{"Features", to.Features})
	}
	if from.MemPerNodeMiB != to.MemPerNodeMiB && to.MemPerNodeMiB > 0 {
		set = append(set, Assignment{"MinMemoryNode", strconv.FormatUint(to.MemPerNodeMiB, 10)})
	}
	return set
}

func changeType(result *Request, ask Ask, gres string, o Options) error {
	want := parseEntry(gres)
	if want.Name != "gpu" || want.Count != 1 {
		return refuse(CodeSpelling, "the target gres %q is not one GPU", gres)
	}
	if strings.EqualFold(want.Type, ask.Type) {
		return nil
	}
	if ask.Type != "" && !o.EnvDropped {
		return refuse(CodeInnerSrun, "an srun inside the job would still ask for type %s", ask.Type)
	}
	if !release.ReplacesGres.In(o.Version) {
		// An untyped request can be given a type by moving it to another field, but no later update takes the type away
		// again: a job that no node can then run would be stuck for ever (tried on 22.05.8).
		return refuse(CodeSlurmVersion, "Slurm %s cannot change the GPU type of a pending job to %q in a way that could be undone", o.Version, want.Type)
	}
	setEntry(result, ask, newEntry(o.Version, "gpu", want.Type, ask.Count))
	return nil
}

func changeToShards(result *Request, ask Ask, shards uint64, o Options) error {
	if !release.ReplacesGres.In(o.Version) {
		return refuse(CodeSlurmVersion, "Slurm %s cannot change a GPU of a pending job to shards", o.Version)
	}
	if ask.Count != 1 {
		return refuse(CodeSeveral, "a job with %d GPUs cannot become a shard job: its ranks would share a card", ask.Count)
	}
	if result.MemPerTres != "" || result.CpusPerTres != "" {
		return refuse(CodeShardMemory, "a job with --mem-per-gpu or --cpus-per-gpu cannot become a shard job")
	}
	if !strings.HasPrefix(ask.Prefix, "gres") && ask.Field != PerNode {
		return refuse(CodeSpelling, "the GPU request %q has no gres prefix", ask.Raw)
	}
	if !o.EnvDropped {
		return refuse(CodeInnerSrun, "an srun inside the job would still ask for a GPU")
	}
	entry := newEntry(o.Version, "shard", "", shards)
	if ask.Field == PerNode {
		setEntry(result, ask, entry)
	} else {
		moveEntry(result, ask, PerNode, entry)
	}
	return nil
}

// changeShards gives a job that asks for shards another number of them. It stays on shared cards: a whole one would be more than was asked for.
func (r Request) changeShards(ask Ask, target Target, o Options) (Change, error) {
	if target.Shards == 0 || target.Gres != "" || target.Constraint != "" || target.Counted != "" {
		return Change{}, refuse(CodeSharesGPU, "a request for shards can become one for other shards alone, this one is %s", r)
	}
	if ask.Field != PerNode || ask.Count < 1 || r.MemPerTres != "" || r.CpusPerTres != "" {
		return Change{}, refuse(CodeSharesGPU, "only shards of a node (--gres) can be changed, this one is %s", r)
	}
	if !release.Shards.In(o.Version) {
		return Change{}, refuse(CodeSlurmVersion, "Slurm %s has no shards", o.Version)
	}
	result := r
	if target.Shards != ask.Count {
		setEntry(&result, ask, newEntry(o.Version, "shard", ask.Type, target.Shards))
	}
	if target.MemPerNodeMiB > 0 && r.MemPerNodeMiB > 0 {
		result.MemPerNodeMiB = target.MemPerNodeMiB
	}
	return Change{Set: Difference(r, result), Result: result}, nil
}

// changeCount sets the count of a count-only resource of the node.
func changeCount(result *Request, counted string, o Options) error {
	want := parseEntry(counted)
	if want.Name == "" || want.Name == "gpu" || want.Name == "shard" || want.Name == "mps" || want.Type != "" {
		return refuse(CodeSpelling, "the target %q is no count of a resource", counted)
	}
	if result.TresPerSocket != "" && !release.ReplacesGres.In(o.Version) {
		return refuse(CodeSlurmVersion, "Slurm %s refuses a %s beside --gpus-per-socket in an update of a pending job", o.Version, want.Name)
	}
	entry := newEntry(o.Version, want.Name, "", want.Count)
	list, asked := ParseList(result.TresPerNode), false
	for i := range list {
		if list[i].Name == want.Name {
			if asked || list[i].Type != "" {
				return refuse(CodeSpelling, "%s is asked for more than once, or by type: %s", want.Name, result.TresPerNode)
			}
			list[i], asked = entry, true
		}
	}
	if !asked {
		if !release.ReplacesGres.In(o.Version) {
			// A job that no node can run keeps the count then, whatever is put back (tried on 22.05.8).
			return refuse(CodeSlurmVersion, "Slurm %s cannot add %s to a pending job in a way that could be undone", o.Version, want.Name)
		}
		list = append(list, entry)
	}
	result.TresPerNode = list.String()
	return nil
}

// setEntry replaces one entry of a list and keeps its neighbours.
func setEntry(r *Request, ask Ask, entry Entry) {
	list := ParseList(r.Get(ask.Field))
	for i := range list {
		if list[i].Raw == ask.Raw {
			list[i] = entry
			break
		}
	}
	r.set(ask.Field, list.String())
}

// moveEntry takes an entry out of its field and puts another into field to.
func moveEntry(r *Request, ask Ask, to Field, entry Entry) {
	var rest List
	removed := false
	for _, e := range ParseList(r.Get(ask.Field)) {
		if !removed && e.Raw == ask.Raw {
			removed = true
			continue
		}
		rest = append(rest, e)
	}
	r.set(ask.Field, rest.String())
	r.set(to, append(ParseList(r.Get(to)), entry).String())
}

// IsRefused unwraps a RefusedError.
func IsRefused(err error) (*RefusedError, bool) {
	var refused *RefusedError
	ok := errors.As(err, &refused)
	return refused, ok
}
