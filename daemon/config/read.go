package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gresize/gresize/estimator/quantity"
	"github.com/gresize/gresize/estimator/regular"
)

// FileError is a fault in the file, for a person.
type FileError struct {
	Path         string
	Line, Column int // 0 when no place in the file is at fault
	Field        string
	Problem      string
	Hint         string
	cause        error
}

// Unwrap is the error of the system, where there was one.
func (e *FileError) Unwrap() error { return e.cause }

func (e *FileError) Error() string {
	place := e.Path
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	text := place + ": "
	if e.Field != "" {
		text += e.Field + ": "
	}
	text += e.Problem
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Read reads and checks the file.
func Read(path string) (*Config, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

func readText(path string) (string, error) {
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
		fault.Hint = "begin with the annotated example /usr/share/doc/gresize/gresize.toml, or name another file with -config"
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

// Place gives faults that were found after reading the file, and have a field only, their place in it.
func Place(path string, faults []*FileError) {
	if len(faults) == 0 {
		return
	}
	data, err := readText(path)
	for _, fault := range faults {
		fault.Path = path
		if err == nil {
			fault.Line, fault.Column = position(data, strings.Split(fault.Field, "."))
		}
	}
}

// Parse reads and checks a text; path is only for errors.
func Parse(path, text string) (*Config, error) {
	c := Defaults()
	meta, err := toml.Decode(text, &c)
	if err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return nil, &FileError{Path: path, Line: parse.Position.Line, Column: max(parse.Position.Col, 1), Field: parse.LastKey, Problem: strings.TrimPrefix(parse.Message, "toml: "), Hint: hintOf(parse.Message)}
		}
		// A value of the wrong kind has its place in the text alone.
		if m := wrongKind.FindStringSubmatch(err.Error()); m != nil {
			line, _ := strconv.Atoi(m[1])
			return nil, &FileError{Path: path, Line: line, Column: 1, Field: m[2], Problem: kindProblem(m[3]), Hint: kindHint}
		}
		return nil, &FileError{Path: path, Problem: err.Error(), Hint: tomlHint}
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		key := unknown[0]
		line, column := position(text, key)
		return nil, &FileError{Path: path, Line: line, Column: column, Field: key.String(), Problem: "unknown key", Hint: nearest(key)}
	}
	if !meta.IsDefined("probe", "budget") {
		c.Probe.Budget = min(c.Probe.Budget, c.Probe.Hold)
	}
	if fault := c.check(); fault != nil {
		fault.Path = path
		if fault.Line == 0 {
			fault.Line, fault.Column = position(text, strings.Split(fault.Field, "."))
		}
		return nil, fault
	}
	return &c, nil
}

// What a person can do about a text that is no TOML, and about a value of another kind.
const (
	tomlHint = `texts stand in "quotes", tables in [brackets], one key = value a line; docs/configuration.md lists the keys`
	kindHint = `sizes, times and words stand in "quotes", numbers, true and false do not, lists in [brackets]; docs/configuration.md lists the keys`
)

// hintOf is the way out of what toml, or a value that reads itself, has found.
func hintOf(message string) string {
	switch {
	case strings.Contains(message, quantity.Words+" \""):
		return `sizes stand in "quotes"` // the rest it says itself
	case strings.Contains(message, wordsNoTime):
		return `for example "90s", "5m" or "1h30m"`
	}
	return tomlHint
}

var (
	wrongKind   = regexp.MustCompile(`^toml: line (\d+) \(last key "([^"]*)"\): (.*)$`)
	indexed     = regexp.MustCompile(`\[(\d+)\]`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,128}$`)
	oneTypedGPU = regexp.MustCompile(`^gpu:[A-Za-z0-9_.+-]*[A-Za-z_][A-Za-z0-9_.+-]*(:1)?$`)
	// features may be joined; brackets and counts would change how many nodes a job gets.
	featureExpression = regexp.MustCompile(`^[A-Za-z0-9_.:/+-]+(?:[&|][A-Za-z0-9_.:/+-]+)*$`)
)

// check returns the first fault with the field at which it lies.
func (c *Config) check() *FileError {
	bad := func(field, hint, format string, args ...any) *FileError {
		return &FileError{Field: field, Problem: fmt.Sprintf(format, args...), Hint: hint}
	}
	if c.Version != Version {
		return bad("version", fmt.Sprintf("write version = %d", Version), "is %d, this program reads version %d", c.Version, Version)
	}
	if c.Mode != Off && c.Mode != Shadow && c.Mode != Enforce {
		return bad("mode", `one of "off", "shadow", "enforce"`, "%q is no mode", c.Mode)
	}
	if fault := c.checkPaths(bad); fault != nil {
		return fault
	}
	for _, n := range []struct {
		field      string
		value      int64
		least, top int64
	}{
		{"socket.max_connections", int64(c.Socket.MaxConnections), 1, 4096},
		{"probe.steps", int64(c.Probe.Steps), 1, 1000},
		{"probe.cpus", int64(c.Probe.CPUs), 1, 1024},
		{"probe.max_running", int64(c.Probe.MaxRunning), 1, 1024},
		{"policy.margin_percent", int64(c.Policy.MarginPercent), 0, 100},
		{"shard.max", int64(c.Shard.Max), 0, 1 << 24},
		{"vram.max", c.VRAM.Max, 0, 1 << 50},
		{"host.margin_percent", int64(c.Host.MarginPercent), 0, 1000},
		{"log.keep_days", int64(c.Log.KeepDays), 0, 36500},
	} {
		if n.value < n.least || n.value > n.top {
			return bad(n.field, fmt.Sprintf("a number from %d to %d", n.least, n.top), "%d is not between %d and %d", n.value, n.least, n.top)
		}
	}
	for _, d := range []struct {
		field      string
		value      Duration
		least, top time.Duration
	}{
		{"slurm.timeout", c.Slurm.Timeout, time.Second, time.Minute},
		{"probe.time_limit", c.Probe.TimeLimit, time.Minute, 24 * time.Hour},
		{"probe.budget", c.Probe.Budget, 5 * time.Second, MaxHold},
		{"probe.hold", c.Probe.Hold, MinHold, MaxHold},
		{"probe.start_within", c.Probe.StartWithin, 0, MaxHold},
		{"policy.watch", c.Policy.Watch, 5 * time.Second, time.Hour},
		{"policy.max_wait", c.Policy.MaxWait, 0, 30 * 24 * time.Hour},
	} {
		if v := time.Duration(d.value); v < d.least || v > d.top {
			return bad(d.field, fmt.Sprintf("a time from %s to %s", d.least, d.top), "%s is not between %s and %s", v, d.least, d.top)
		}
	}
	if c.Probe.Memory < 64<<20 {
		return bad("probe.memory", "PyTorch alone needs about 1GiB", "%s is too little", c.Probe.Memory)
	}
	if fault := c.checkTimes(bad); fault != nil {
		return fault
	}
	if fault := c.checkAddress(bad); fault != nil {
		return fault
	}
	for _, w := range []struct{ field, value string }{{"probe.partition", c.Probe.Partition}, {"probe.account", c.Probe.Account}, {"probe.qos", c.Probe.QOS}} {
		if w.value != "" && !plainWord.MatchString(w.value) {
			return bad(w.field, "letters, digits and _.+-", "%q is no plain name", w.value)
		}
	}
	if fault := c.checkJobs(bad); fault != nil {
		return fault
	}
	if len(c.Policy.ActOn) == 0 {
		return bad("policy.act_on", `["exact", "high"] is the default`, "empty: nothing would ever be done")
	}
	for _, level := range c.Policy.ActOn {
		if level != "exact" && level != "high" && level != "low" {
			return bad("policy.act_on", `"exact", "high" or "low"; an unknown estimate has no number to act on`, "%q cannot be acted upon", level)
		}
	}
	for name, g := range c.GPU {
		if !plainWord.MatchString(name) || g.Profile == "" {
			return bad("gpu."+name, "[gpu.a100] with profile = \"A100-80\"", "needs a plain name and a profile")
		}
	}
	if fault := c.checkEstimators(bad); fault != nil {
		return fault
	}
	if fault := c.checkActuals(bad); fault != nil {
		return fault
	}
	if fault := c.checkMetrics(bad); fault != nil {
		return fault
	}
	if fault := c.checkWeb(bad); fault != nil {
		return fault
	}
	if fault := c.checkClashes(bad); fault != nil {
		return fault
	}
	return c.checkTargets(bad)
}

func (c *Config) checkTargets(bad fault) *FileError {
	if len(c.Targets) > maxTargets {
		return bad("target", "give rows of the same card together", "%d rows, at most %d", len(c.Targets), maxTargets)
	}
	if c.Mode == Enforce && len(c.Targets) == 0 && c.Shard.Per == 0 && c.VRAM.Gres == "" && !c.Host.LowerMem {
		return bad("target", "add [[target]] rows, or use mode = \"shadow\"", "mode is enforce but no target says what the site has")
	}
	switch {
	case c.VRAM.Gres == "" && (c.VRAM.Per > 0 || c.VRAM.Max > 0):
		return bad("vram.gres", `its name in GresTypes, for example "vram"`, "missing")
	case c.VRAM.Gres != "" && (!plainWord.MatchString(c.VRAM.Gres) || slices.Contains([]string{"gpu", "shard", "mps"}, strings.ToLower(c.VRAM.Gres))):
		return bad("vram.gres", `a count-only resource (Flags=CountOnly in gres.conf), for example "vram"`, "%q is not used", c.VRAM.Gres)
	case c.VRAM.Gres != "" && c.VRAM.Per <= 0:
		return bad("vram.per", `what one of it stands for, for example "1GiB"`, "missing")
	}
	for i, t := range c.Targets {
		field := func(name string) string { return fmt.Sprintf("target[%d].%s", i, name) }
		if t.Fits <= 0 {
			return bad(field("fits"), `the memory that a job can use there, for example "20GiB"`, "missing")
		}
		if i > 0 && t.Fits < c.Targets[i-1].Fits {
			return bad(field("fits"), "write the smallest first", "%s comes after %s", t.Fits, c.Targets[i-1].Fits)
		}
		if t.Gres == "" && t.Constraint == "" {
			return bad(field("fits"), "give gres, constraint or both", "the row says nothing that a job could ask for")
		}
		if t.Constraint != "" && !featureExpression.MatchString(t.Constraint) {
			return bad(field("constraint"), "features joined by & or |, without parentheses, counts or blanks", "%q is not used", t.Constraint)
		}
		if t.Gres != "" && !oneTypedGPU.MatchString(t.Gres) {
			return bad(field("gres"), `one GPU with a type, for example "gpu:a100_3g.20gb:1"`, "%q is not used", t.Gres)
		}
	}
	return nil
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

// position finds the line and column at which a key stands; (0, 0) when it does not stand in the text.
func position(text string, key toml.Key) (line, column int) {
	wanted, row := make([]string, 0, len(key)), -1
	for _, part := range key {
		if m := indexed.FindStringSubmatch(part); m != nil {
			row, _ = strconv.Atoi(m[1])
			part = part[:strings.IndexByte(part, '[')]
		}
		wanted = append(wanted, part)
	}
	table, seen := "", -1
	full := strings.Join(wanted, ".")
	tableLine := 0
	for i, raw := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(raw)
		column := strings.Index(raw, trimmed) + 1
		if strings.HasPrefix(trimmed, "[") {
			name := strings.Trim(strings.TrimSpace(strings.SplitN(trimmed, "#", 2)[0]), "[] ")
			table = strings.ReplaceAll(name, `"`, "")
			if table == strings.Join(wanted[:len(wanted)-1], ".") {
				if seen++; seen == row || row < 0 {
					tableLine = i + 1
				}
			}
			if table == full {
				return i + 1, column
			}
			continue
		}
		name, _, found := strings.Cut(trimmed, "=")
		if !found {
			continue
		}
		here := strings.Trim(strings.TrimSpace(name), `"'`)
		if table != "" {
			here = table + "." + here
		}
		if here == full && (row < 0 || seen == row) {
			return i + 1, column
		}
	}
	if tableLine > 0 {
		return tableLine, 1
	}
	return 0, 0
}

// nearest proposes the known key that looks most like an unknown one.
func nearest(key toml.Key) string {
	word := key[len(key)-1]
	best, bestDistance := "", 4
	for _, candidate := range knownWords() {
		if d := distance(word, candidate); d < bestDistance {
			best, bestDistance = candidate, d
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

// knownWords are the keys that the structs of this package have.
func knownWords() []string {
	var words []string
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			words = append(words, t.Field(i).Tag.Get("toml"))
			walk(t.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[Config]())
	slices.Sort(words)
	return slices.Compact(words)
}
