package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/batch"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// askedOf is the resource request of a submission.
func askedOf(r *wire.Request) request.Request {
	return request.Request{TresPerNode: r.TresPerNode, TresPerJob: r.TresPerJob, TresPerSocket: r.TresPerSocket, TresPerTask: r.TresPerTask,
		MemPerTres: r.MemPerTres, CpusPerTres: r.CPUsPerTres, Features: r.Features}
}

// memPerNode is the host memory of --mem in MiB; 0 for the whole node's (--mem=0), for --mem-per-cpu, and where nothing was given.
func memPerNode(r *wire.Request) uint64 {
	if r.PnMinMemory == nil || *r.PnMinMemory&wire.MemoryPerCPU != 0 {
		return 0
	}
	return *r.PnMinMemory
}

// skipReasons are what the plugin found itself, in words.
var skipReasons = map[string]string{
	wire.SkipNoScript:       "there is no batch script (srun, salloc): nothing can be probed",
	wire.SkipCron:           "it belongs to scrontab, whose jobs Slurm lets nobody change",
	wire.SkipImmediate:      "it must start at once (--immediate)",
	wire.SkipHet:            "it is part of a heterogeneous job",
	wire.SkipDeadline:       "it has a deadline",
	wire.SkipOtherCluster:   "it may run on another cluster",
	wire.SkipBurstBuffer:    "it uses a burst buffer",
	wire.SkipOnHold:         "its owner submitted it on hold",
	wire.SkipTokenPresent:   "it carries a token already",
	wire.SkipOptOut:         "its owner opted out",
	wire.SkipScriptTooLarge: "its script is too large to look through",
	wire.SkipNoGPU:          "it asks for no GPU",
}

// ineligible says why a submission is left alone, or returns "". shards says that one shard stands for an amount of memory here.
func ineligible(r *wire.Request, shards bool) (code, reason string) {
	asked := askedOf(r)
	asks, odd := asked.Asks(), notUnderstood(asked)
	switch {
	case r.SkipReason != "":
		reason, known := skipReasons[r.SkipReason]
		if !known {
			reason = "the plugin left it alone: " + r.SkipReason
		}
		return r.SkipReason, reason
	case optedOut(r):
		return wire.SkipOptOut, skipReasons[wire.SkipOptOut]
	case r.ScriptTotal == 0:
		return wire.SkipNoScript, skipReasons[wire.SkipNoScript]
	case r.ScriptCut() || r.EnvironmentCut() || r.ArgvCut():
		return decision.CodeCut, "its script, arguments or environment are larger than gresize reads"
	case !strings.HasPrefix(r.Script, "#!"):
		return decision.CodeOddScript, "its script does not begin with #!: what would run it is not certain"
	case odd != "":
		return request.CodeSpelling, fmt.Sprintf("its request %.100q was not understood", odd)
	case len(asks) == 0:
		return wire.SkipNoGPU, skipReasons[wire.SkipNoGPU]
	case strings.ContainsFunc(r.Name+r.WorkDir, unicode.IsControl):
		return decision.CodeOddName, "its name or its folder has a line break or another control character"
	case r.UserID == 0:
		return decision.CodeRoot, "it belongs to root, and no probe runs as root"
	case notAnArray(r.ArrayInx) != nil:
		return decision.CodeArray, "its array was not understood: " + notAnArray(r.ArrayInx).Error()
	case r.Priority != nil && *r.Priority == 0:
		return wire.SkipOnHold, skipReasons[wire.SkipOnHold]
	case r.Deadline != 0:
		return wire.SkipDeadline, skipReasons[wire.SkipDeadline]
	case r.Dependency != "":
		return decision.CodeDependency, "it depends on other jobs, whose output its probe would miss"
	case r.Prefer != "":
		// Slurm looks for the preferred nodes first, whatever the constraint says.
		return decision.CodePrefer, "it prefers nodes (--prefer), which overrules a constraint"
	case r.Reservation != "":
		return decision.CodeReservation, "it runs in a reservation"
	case r.ReqNodes != "":
		return decision.CodeNodesNamed, "its owner named the nodes"
	case r.Flags&wire.FlagExclusive != 0:
		return decision.CodeExclusive, "it takes whole nodes"
	}
	switch {
	case len(asks) > 1:
		return request.CodeSeveral, "it names GPUs in more than one place: " + asked.String()
	case asks[0].Name == "mps":
		return request.CodeSharesGPU, "it asks for MPS, a share of a GPU's time that says nothing of its memory: " + asked.String()
	case asks[0].Name != "gpu" && (!shards || asks[0].Field != request.PerNode || asks[0].Count < 1 || moreThanOne(r.NumTasks)):
		return request.CodeSharesGPU, "it asks for a share of a GPU already: " + asked.String()
	case moreThanOne(r.MinNodes) || moreThanOne(r.MaxNodes):
		return request.CodeSeveral, "it asks for more than one node"
	case asks[0].Name != "gpu":
		return "", "" // shards of one card
	case asks[0].Count < 1 || asks[0].Count > mostGPUs:
		return request.CodeSeveral, fmt.Sprintf("it asks for %d GPUs, at most %d on one node are tried out", asks[0].Count, mostGPUs)
	case asks[0].Count > 1 && !onOneNode(r, asks[0].Field):
		return request.CodeSeveral, fmt.Sprintf("it asks for %d GPUs that may be on more than one node", asks[0].Count)
	case asks[0].Field == request.PerTask && moreThanOne(r.NumTasks):
		return request.CodeSeveral, "it asks for a GPU for each of several tasks"
	case asks[0].Field == request.PerSocket:
		return request.CodeSeveral, "it asks for a GPU for each socket"
	case r.NtasksPerTres != nil:
		return request.CodeSpelling, "it asks for tasks by the GPU"
	}
	return "", ""
}

// notAnArray says what is wrong with a list of array tasks; a job that is no array has none.
func notAnArray(list string) error {
	if list == "" {
		return nil
	}
	_, err := batch.ParseArray(list)
	return err
}

// mostGPUs is how many GPUs of one node the virtual GPU stands for.
const mostGPUs = 16

// onOneNode says whether several GPUs that are asked for in a field are certainly on one node: Slurm spreads tasks, and the GPUs of a
// whole job, over nodes unless it is told how many.
func onOneNode(r *wire.Request, field request.Field) bool {
	if r.MaxNodes != nil && *r.MaxNodes == 1 {
		return field == request.PerNode || field == request.PerJob
	}
	return field == request.PerNode && !moreThanOne(r.NumTasks)
}

// devicesOf is the number of GPUs that a job asks for on its node.
func devicesOf(asked request.Request) int {
	if asks := asked.Asks(); len(asks) == 1 && asks[0].Name == "gpu" && asks[0].Count > 1 && asks[0].Count <= mostGPUs {
		return int(asks[0].Count)
	}
	return 1
}

// tasksOf is the number of tasks of a job on one node.
func tasksOf(r *wire.Request) int {
	for _, n := range []*uint32{r.NumTasks, r.NtasksPerNode} {
		if n != nil && *n > 0 && *n <= mostTasks {
			return int(*n)
		}
	}
	return 1
}

// oneTask says whether a job is certain to be one task on one node.
func oneTask(r *wire.Request) bool {
	return !moreThanOne(r.NumTasks) && !moreThanOne(r.NtasksPerNode) && !moreThanOne(r.MinNodes) && r.NtasksPerTres == nil
}

// mostTasks is beyond what one node runs; a larger number is no number of tasks.
const mostTasks = 1024

// notUnderstood returns a part of a request that seems to name a GPU and cannot be read.
func notUnderstood(asked request.Request) string {
	for _, f := range request.Fields {
		for _, e := range request.ParseList(asked.Get(f)) {
			if e.Name == "" && strings.Contains(strings.ToLower(e.Raw), "gpu") {
				return e.Raw
			}
		}
	}
	return ""
}

// moreThanOne is about a number that the user may not have given; Slurm's "unset" never arrives.
func moreThanOne(n *uint32) bool { return n != nil && *n > 1 }

// The words of a line #GRESIZE: off opts a job out, noswap out of a card that is too small for it.
const (
	off    = "off"
	noSwap = "noswap"
)

// optedOut repeats what the plugin looks for, so that a site's own submit filter can opt jobs out as well.
func optedOut(r *wire.Request) bool {
	for word := range strings.FieldsFuncSeq(r.Comment, func(c rune) bool { return strings.ContainsRune(" \t,;", c) }) {
		if strings.EqualFold(word, "gresize:off") {
			return true
		}
	}
	for _, v := range r.Environment {
		if strings.EqualFold(v, "GRESIZE=off") {
			return true
		}
	}
	return directed(r.Script, off)
}

// directed says whether a script has a line #GRESIZE with a word.
func directed(script, wanted string) bool {
	// From mark to mark: a script may have a million lines.
	const mark = "#GRESIZE"
	for rest, begins := script, true; ; {
		if !begins {
			next := strings.Index(rest, "\n"+mark)
			if next < 0 {
				break
			}
			rest = rest[next+1:]
		}
		begins = false
		after, found := strings.CutPrefix(rest, mark)
		if !found {
			continue
		}
		rest = after
		word := strings.TrimLeft(after, " \t")
		if len(word) < len(after) && len(word) >= len(wanted) && strings.EqualFold(word[:len(wanted)], wanted) && (len(word) == len(wanted) || strings.ContainsRune(" \t\r\n\v\f", rune(word[len(wanted)]))) {
			return true
		}
	}
	return false
}

// sessionVariables begin the names of the variables that differ between two submissions of the same job and tell a training script nothing: those of a login
// session, and Slurm's own, whose content is in the request. Any other may be what the script takes its batch size from.
var sessionVariables = []string{"SLURM_", "SSH_", "XDG_", "DBUS_", "TMUX", "STY=", "WINDOW=", "WINDOWID=", "TERM=", "TERM_", "COLORTERM=", "DISPLAY=", "XAUTHORITY=", "SHLVL=", "PWD=", "OLDPWD=", "_=",
	"LS_COLORS=", "LINES=", "COLUMNS=", "HIST", "KRB5CCNAME=", "GPG_", "MAIL=", "HOSTNAME=", "VSCODE_", "INVOCATION_ID=", "JOURNAL_STREAM="}

// fingerprint identifies a job by what decides the memory that it takes. An answer from the cache needs the same, and the same owner.
func fingerprint(r *wire.Request) string {
	var b bytes.Buffer
	add := func(s string) {
		b.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		b.WriteString(s)
	}
	add("gresize.fingerprint/2")
	add(r.Script)
	add(r.WorkDir)
	if r.ArrayInx != "" {
		add("array " + r.ArrayInx)
	}
	asked := askedOf(r)
	for _, f := range request.Fields {
		add(asked.Get(f))
	}
	add(asked.Features)
	add(fmt.Sprint(len(r.Argv)))
	for _, a := range r.Argv {
		add(a)
	}
	var variables []string
	for _, v := range r.Environment {
		if !slices.ContainsFunc(sessionVariables, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			variables = append(variables, v)
		}
	}
	slices.Sort(variables)
	for _, v := range variables {
		add(v)
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}
