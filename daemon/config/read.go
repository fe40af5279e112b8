package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gresize/gresize/internal/regular"
)

// Read reads and checks the file. The error is Faults.
func Read(path string) (*Config, error) {
	c, faults := Examine(path)
	if len(faults) > 0 {
		return nil, faults
	}
	return c, nil
}

// Examine reads a file and says all that is wrong with it. The configuration is nil where its values cannot be told, and may be looked at further otherwise.
func Examine(path string) (*Config, Faults) {
	text, err := readText(path)
	if err != nil {
		return nil, Faults{err}
	}
	return examine(path, text)
}

func readText(path string) (string, *FileError) {
	file, err := regular.Open(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return "", unreadable(path, err)
	}
	if len(data) > MaxFileBytes {
		return "", &FileError{Path: path, Problem: fmt.Sprintf("more than %d bytes", MaxFileBytes), Hint: "is it the right file?"}
	}
	return string(data), nil
}

// unreadable is a file that is not there or cannot be read, with what to do about it.
func unreadable(path string, err error) *FileError {
	fault := &FileError{Path: path, Problem: "the configuration cannot be read: " + reason(err), Hint: "is it a file that the user of the daemon may read?", cause: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fault.Problem = "there is no configuration: " + reason(err)
		fault.Hint = "begin with the annotated example /usr/share/doc/gresize/gresize.toml, or name another file"
	case errors.Is(err, fs.ErrPermission):
		fault.Hint = fmt.Sprintf("user %d may not read it: chmod a+r, or chown it to the user of the daemon", os.Geteuid())
	}
	return fault
}

// reason is the last part of an error of the system.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

var (
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,128}$`)
	oneTypedGPU = regexp.MustCompile(`^gpu:[A-Za-z0-9_.+-]*[A-Za-z_][A-Za-z0-9_.+-]*(:1)?$`)
	// features may be joined; brackets and counts would change how many nodes a job gets.
	featureExpression = regexp.MustCompile(`^[A-Za-z0-9_.:/+-]+(?:[&|][A-Za-z0-9_.:/+-]+)*$`)
)

// check finds what is wrong with the values, each with the field at which it lies.
func (c *Config) check(found *faults) {
	if c.Version != Version {
		found.add("version", fmt.Sprintf("write version = %d as the first line", Version), "missing")
	}
	if c.Mode != Off && c.Mode != Shadow && c.Mode != Enforce {
		found.add("mode", `one of "off", "shadow", "enforce"`, "%q is no mode", c.Mode)
	}
	c.checkPaths(found)
	for _, n := range []struct {
		field      string
		value      int64
		least, top int64
	}{
		{"socket.max_connections", int64(c.Socket.MaxConnections), 1, 4096},
		{"probe.steps", int64(c.Probe.Steps), 1, 1000},
		{"probe.cpus", int64(c.Probe.CPUs), 1, 1024},
		{"probe.max_running", int64(c.Probe.MaxRunning), 1, 1024},
		{"probe.breaker", int64(c.Probe.Breaker), 0, 1000},
		{"policy.margin_percent", int64(c.Policy.MarginPercent), 0, 100},
		{"shard.max", int64(c.Shard.Max), 0, 1 << 24},
		{"vram.max", c.Counted.Max, 0, 1 << 50},
		{"host.margin_percent", int64(c.Host.MarginPercent), 0, 1000},
		{"log.keep_days", int64(c.Log.KeepDays), 0, 36500},
	} {
		if n.value < n.least || n.value > n.top {
			found.add(n.field, fmt.Sprintf("a number from %d to %d", n.least, n.top), "%d is not between %d and %d", n.value, n.least, n.top)
		}
	}
	for _, d := range []struct {
		field      string
		value      Duration
		least, top time.Duration
	}{
		{"slurm.timeout", c.Slurm.Timeout, time.Second, time.Minute},
		{"probe.time_limit", c.Probe.TimeLimit, time.Minute, 24 * time.Hour},
		{"probe.breaker_pause", c.Probe.BreakerPause, time.Second, 15 * time.Minute},
		{"probe.budget", c.Probe.Budget, 5 * time.Second, MaxHold},
		{"probe.hold", c.Probe.Hold, MinHold, MaxHold},
		{"probe.start_within", c.Probe.StartWithin, 0, MaxHold},
		{"policy.watch", c.Policy.Watch, 5 * time.Second, time.Hour},
		{"policy.max_wait", c.Policy.MaxWait, 0, 30 * 24 * time.Hour},
	} {
		if v := time.Duration(d.value); v < d.least || v > d.top {
			found.add(d.field, fmt.Sprintf("a time from %s to %s", d.least, d.top), "%s is not between %s and %s", v, d.least, d.top)
		}
	}
	if c.Probe.Memory < 64<<20 {
		found.add("probe.memory", "PyTorch alone needs about 1GiB", "%s is too little", c.Probe.Memory)
	}
	c.checkSwap(found)
	c.checkTimes(found)
	c.checkAddress(found)
	for _, w := range []struct{ field, value string }{{"probe.partition", c.Probe.Partition}, {"probe.account", c.Probe.Account}, {"probe.qos", c.Probe.QOS}} {
		if w.value != "" && !plainWord.MatchString(w.value) {
			found.add(w.field, "letters, digits and _.+-", "%q is no plain name", w.value)
		}
	}
	c.checkJobs(found)
	if len(c.Policy.ActOn) == 0 {
		found.add("policy.act_on", `["exact", "high"] is the default`, "empty: nothing would ever be done")
	}
	for _, level := range c.Policy.ActOn {
		if level != "exact" && level != "high" && level != "low" {
			found.add("policy.act_on", `"exact", "high" or "low"; an unknown estimate has no number to act on`, "%q cannot be acted upon", level)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.GPU)) {
		if !plainWord.MatchString(name) || c.GPU[name].Profile == "" {
			found.add("gpu."+name, "[gpu.a100] with profile = \"A100-80\"", "needs a plain name and a profile")
		}
	}
	c.checkEstimators(found)
	c.checkActuals(found)
	c.checkMetrics(found)
	c.checkWeb(found)
	c.checkClashes(found)
	c.checkTargets(found)
}

func (c *Config) checkTargets(found *faults) {
	if len(c.Targets) > maxTargets {
		found.add("target", "give rows of the same card together", "%d rows, at most %d", len(c.Targets), maxTargets)
	}
	if c.Mode == Enforce && len(c.Targets) == 0 && c.Shard.Per == 0 && c.Counted.Gres == "" && !c.Host.LowerMem {
		found.add("target", "add [[target]] rows, or use mode = \"shadow\"", "mode is enforce but no target says what the site has")
	}
	switch {
	case c.Counted.Gres == "" && (c.Counted.Per > 0 || c.Counted.Max > 0):
		found.add("vram.gres", `its name in GresTypes, for example "vram"`, "missing")
	case c.Counted.Gres != "" && (!plainWord.MatchString(c.Counted.Gres) || slices.Contains([]string{"gpu", "shard", "mps"}, strings.ToLower(c.Counted.Gres))):
		found.add("vram.gres", `a count-only resource (Flags=CountOnly in gres.conf), for example "vram"`, "%q is not used", c.Counted.Gres)
	case c.Counted.Gres != "" && c.Counted.Per <= 0:
		found.add("vram.per", `what one of it stands for, for example "1GiB"`, "missing")
	}
	for i, t := range c.Targets[:min(len(c.Targets), maxTargets)] {
		field := func(name string) string { return fmt.Sprintf("target[%d].%s", i, name) }
		if t.Fits <= 0 {
			found.add(field("fits"), `the memory that a job can use there, for example "20GiB"`, "missing")
		} else if i > 0 && t.Fits < c.Targets[i-1].Fits {
			found.add(field("fits"), "write the smallest first", "%s comes after %s", t.Fits, c.Targets[i-1].Fits)
		}
		if t.Gres == "" && t.Constraint == "" {
			found.add(field("gres"), "give gres, constraint or both", "the row says nothing that a job could ask for")
		}
		if t.Constraint != "" && !featureExpression.MatchString(t.Constraint) {
			found.add(field("constraint"), "features joined by & or |, without parentheses, counts or blanks", "%q is not used", t.Constraint)
		}
		if t.Gres != "" && !oneTypedGPU.MatchString(t.Gres) {
			found.add(field("gres"), `one GPU with a type, for example "gpu:a100_3g.20gb:1"`, "%q is not used", t.Gres)
		}
	}
}

// OwnFeatures are the features that tell the site's GPU sizes apart.
func (c *Config) OwnFeatures() map[string]bool {
	own := map[string]bool{}
	for _, t := range c.Targets {
		for _, word := range strings.FieldsFunc(t.Constraint, func(r rune) bool { return r == '&' || r == '|' }) {
			own[word] = true
		}
	}
	return own
}

// Words are all words with which the site tells its cards apart.
func (c *Config) Words() map[string]bool {
	words := c.OwnFeatures()
	for word := range c.GPU {
		words[word] = true
	}
	return words
}

// ProbeURL is how a probe reaches the daemon that listens at address.
func (c *Config) ProbeURL(address string) string {
	if c.Probe.URL != "" {
		return strings.TrimSuffix(c.Probe.URL, "/")
	}
	return "http://" + address
}

// misspelled are the keys that toml takes for known ones though their letters are others: Mode would stand beside mode, and one of them be obeyed.
func misspelled(meta toml.MetaData) []toml.Key {
	var found []toml.Key
	for _, key := range meta.Keys() {
		if !slices.ContainsFunc(knownKeys(), func(k knownKey) bool { return k.begins(key) }) {
			found = append(found, key)
		}
	}
	return found
}

// nearest proposes the known key that looks most like an unknown one. One of another table has to look more like it, and its table is named.
func nearest(key toml.Key) string {
	word, table := key[len(key)-1], strings.Join(key[:len(key)-1], ".")
	best, bestDistance := "", 4
	for _, known := range knownKeys() {
		name, d := known.word, distance(word, known.word)
		if mine := known.table == table || known.table == "gpu.NAME" && len(key) == 3 && key[0] == "gpu"; !mine {
			name, d = strings.TrimPrefix(known.table+"."+known.word, "."), d+1
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "remove it, or see packaging/gresize.toml for the keys of this release"
}

// distance is the number of letters to add, drop, change or swap with their neighbour between two words.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = last[j-1]
			if a[i-1] != b[j-1] {
				row[j]++
			}
			row[j] = min(row[j], last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

type knownKey struct{ table, word string }

// begins says whether the key or a table above it is spelled so.
func (k knownKey) begins(key toml.Key) bool {
	words := strings.Split(strings.TrimPrefix(k.table+"."+k.word, "."), ".")
	if len(key) > len(words) {
		return false
	}
	for i, word := range key {
		if word != words[i] && words[i] != "NAME" {
			return false
		}
	}
	return true
}

// knownKeys are the keys that the structs of this package have.
func knownKeys() []knownKey {
	var keys []knownKey
	var walk func(t reflect.Type, table string)
	walk = func(t reflect.Type, table string) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			if t.Kind() == reflect.Map {
				table += ".NAME"
			}
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			word := t.Field(i).Tag.Get("toml")
			keys = append(keys, knownKey{table, word})
			walk(t.Field(i).Type, strings.TrimPrefix(table+"."+word, "."))
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return keys
}
