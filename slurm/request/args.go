package request

import (
	"strconv"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// gpuOptions are the options of sbatch that are a field each, by their long names.
var gpuOptions = map[string]Field{"gres": PerNode, "gpus-per-node": PerNode, "gpus": PerJob, "gpus-per-socket": PerSocket, "gpus-per-task": PerTask, "tres-per-task": PerTask}

// otherOptions are those that say more about the GPUs, or about the node that has them.
var otherOptions = map[string]bool{"mem-per-gpu": true, "cpus-per-gpu": true, "constraint": true, "mem": true}

// shortOptions are the short names, with their long ones.
var shortOptions = map[string]string{"-G": "gpus", "-C": "constraint"}

// ParseArgs reads the options of sbatch that say which GPU a job wants, as the release stores them in the job. rest is what says nothing of
// that and what is not understood, in order and unchanged. The arguments end before the script's name.
func ParseArgs(args []string, v release.Version) (r Request, rest []string) {
	var typed typedOptions
	for i := 0; i < len(args); i++ {
		name, value, used := option(args[i:])
		if used == 0 || !typed.take(name, value, v) {
			// An option stays together with its value.
			used = max(used, 1)
			rest = append(rest, args[i:i+used]...)
		}
		i += used - 1
	}
	return typed.request(), rest
}

// option reads one option in any of its forms; used is how many words it takes, 0 when it is none of ours.
func option(args []string) (name, value string, used int) {
	word := args[0]
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, value, hasValue := strings.Cut(long, "=")
		_, ours := gpuOptions[name]
		switch {
		case !ours && !otherOptions[name]:
			return "", "", 0
		case hasValue:
			return name, value, 1
		case len(args) > 1:
			return name, args[1], 2
		}
		return "", "", 0
	}
	if len(word) < 2 {
		return "", "", 0
	}
	name, ours := shortOptions[word[:2]]
	switch {
	case !ours:
		return "", "", 0
	case len(word) > 2:
		return name, word[2:], 1
	case len(args) > 1:
		return name, args[1], 2
	}
	return "", "", 0
}

// typedOptions are the options so far; of two of a kind sbatch takes the last.
type typedOptions struct {
	fields     map[string]string
	mem        uint64
	mpt, cpt   string
	constraint string
}

// take keeps an option and tells whether it was understood.
func (t *typedOptions) take(name, value string, v release.Version) bool {
	if _, ours := gpuOptions[name]; ours {
		stored, ok := storedList(name, value, v)
		if ok {
			if t.fields == nil {
				t.fields = map[string]string{}
			}
			t.fields[name] = stored
		}
		return ok
	}
	switch name {
	case "constraint":
		if value == "" {
			return false
		}
		t.constraint = value
		return true
	case "cpus-per-gpu":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n == 0 {
			return false
		}
		t.cpt = v.Prefix() + "gpu:" + strconv.FormatUint(n, 10)
		return true
	case "mem-per-gpu":
		mib, ok := mebibytes(value)
		if ok {
			t.mpt = v.Prefix() + "gpu:" + strconv.FormatUint(mib, 10)
		}
		return ok
	}
	mib, ok := mebibytes(value) // --mem
	if ok {
		t.mem = mib
	}
	return ok
}

func (t *typedOptions) request() Request {
	r := Request{TresPerJob: t.fields["gpus"], TresPerSocket: t.fields["gpus-per-socket"], MemPerTres: t.mpt, CpusPerTres: t.cpt, Features: t.constraint, MemPerNodeMiB: t.mem}
	r.TresPerNode = joined(t.fields["gpus-per-node"], t.fields["gres"])
	r.TresPerTask = joined(t.fields["tres-per-task"], t.fields["gpus-per-task"])
	return r
}

func joined(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "," + second
}

// storedList spells the value of an option as the release stores it.
func storedList(name, value string, v release.Version) (string, bool) {
	if name == "tres-per-task" && !release.TresPerTask.In(v) {
		return "", false
	}
	parts := strings.Split(value, ",")
	for i, p := range parts {
		if name == "tres-per-task" {
			if parseEntry(p).Name == "" {
				return "", false
			}
			continue
		}
		if name != "gres" {
			if strings.Contains(p, "=") {
				return "", false
			}
			p = "gpu:" + p
		}
		e := parseEntry(p)
		if e.Name == "" || e.Prefix != "" {
			return "", false
		}
		if name == "gpus-per-task" && release.TaskEquals.In(v) {
			p = "gpu=" + strconv.FormatUint(e.Count, 10)
			if e.Type != "" {
				p = "gpu:" + e.Type + "=" + strconv.FormatUint(e.Count, 10)
			}
		}
		parts[i] = v.Prefix() + p
	}
	return strings.Join(parts, ","), true
}

// mebibytes reads an amount of memory as sbatch does: without a unit it is in MiB, and KiB are rounded up. 0 stands for all of a node, which is no amount.
func mebibytes(s string) (uint64, bool) {
	n, ok := parseCount(s)
	if !ok || n == 0 || n > 1<<60 {
		return 0, false
	}
	switch s[len(s)-1] {
	case 'k', 'K':
		return (n + 1<<20 - 1) >> 20, true
	case 'm', 'M', 'g', 'G', 't', 'T':
		return n >> 20, true
	case 'p', 'P':
		return 0, false
	}
	return n, true
}

// Args are the options of sbatch that make the release store this request. ok is false when no options do: such a request can be read and changed, but
// not typed.
func (r Request) Args(v release.Version) (args []string, ok bool) {
	ok = true
	for _, f := range Fields {
		if value := r.Get(f); value != "" {
			arg, typable := argOf(f, value, v)
			args, ok = append(args, arg), ok && typable
		}
	}
	if r.MemPerTres != "" {
		args = append(args, "--mem-per-gpu="+asTyped(r.MemPerTres, "gpu:")+"M")
	}
	if r.CpusPerTres != "" {
		args = append(args, "--cpus-per-gpu="+asTyped(r.CpusPerTres, "gpu:"))
	}
	if r.Features != "" {
		args = append(args, "--constraint="+r.Features)
	}
	if r.MemPerNodeMiB > 0 {
		args = append(args, "--mem="+strconv.FormatUint(r.MemPerNodeMiB, 10)+"M")
	}
	again, rest := ParseArgs(args, v)
	return args, ok && len(rest) == 0 && again == r
}

// optionNames are the options for each field, the usual one first.
var optionNames = map[Field][]string{PerNode: {"gres"}, PerJob: {"gpus"}, PerSocket: {"gpus-per-socket"}, PerTask: {"gpus-per-task", "tres-per-task"}}

// argOf is the option for a field, the first that the release stores as the value.
func argOf(f Field, value string, v release.Version) (arg string, ok bool) {
	for _, name := range optionNames[f] {
		text := typedText(name, value)
		arg = "--" + name + "=" + text
		if stored, ok := storedList(name, text, v); ok && stored == value {
			return arg, true
		}
	}
	return arg, false
}

// typedText is a field's value as a person types it behind the option.
func typedText(name, value string) string {
	switch name {
	case "gres":
		return asTyped(value, "")
	case "tres-per-task":
		return value
	}
	entries := strings.Split(asTyped(value, "gpu:"), ",")
	for i, text := range entries {
		// The newer releases' list of a task's resources has its counts behind an equals sign.
		if kind, count, ok := strings.Cut(text, "="); ok && ParseList(value)[i].Type == "" {
			entries[i] = count
		} else if ok {
			entries[i] = kind + ":" + count
		}
	}
	return strings.Join(entries, ",")
}

// asTyped takes away the prefixes that Slurm puts before each entry of a list, and the name that the option has already said.
func asTyped(list, said string) string {
	entries := strings.Split(list, ",")
	for i, e := range entries {
		if len(e) > len("gres:") && strings.EqualFold(e[:4], "gres") && (e[4] == ':' || e[4] == '/') {
			e = e[5:]
		}
		entries[i] = strings.TrimPrefix(e, said)
	}
	return strings.Join(entries, ",")
}
