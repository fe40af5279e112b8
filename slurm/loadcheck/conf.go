package loadcheck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

const (
	maxConfBytes = 1 << 20
	// maxIncludes bounds the files that one slurm.conf includes: one that includes itself has no end.
	maxIncludes = 64
)

// conf is what slurm.conf says of some keys, read as slurmctld reads it (src/common/parse_config.c, the same from 20.11 to 26.05): blanks around the equals sign,
// quotes, lines that go on behind a backslash, files that are included in their place, and of a key that stands twice the last.
type conf struct {
	dir    string
	values map[string][]string
	files  int
	// missing are files that could not be read, each with the reason.
	missing []string
}

var keyValue = regexp.MustCompile(`^\s*([[:alnum:]_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?:\s|$)`)

func readConf(path string) (*conf, error) {
	c := &conf{dir: filepath.Dir(path), values: map[string][]string{}}
	return c, c.read(path)
}

// last is the value of a key that is in force, and how often the key stands there.
func (c *conf) last(key string) (value string, times int) {
	all := c.values[strings.ToLower(key)]
	if len(all) == 0 {
		return "", 0
	}
	return all[len(all)-1], len(all)
}

func (c *conf) read(path string) error {
	if c.files++; c.files > maxIncludes {
		return fmt.Errorf("%s: more than %d files are included", path, maxIncludes)
	}
	// O_NONBLOCK: a pipe in this place would wait for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is no regular file", path), err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfBytes))
	if err != nil {
		return err
	}
	var line []byte
	for part := range bytes.Lines(text) {
		part = withoutComment(bytes.TrimRight(part, "\r\n"))
		// An odd number of backslashes at the end: the line goes on.
		body := bytes.TrimRight(part, " \t")
		if slashes := len(body) - len(bytes.TrimRight(body, `\`)); slashes%2 == 1 {
			line = append(line, body[:len(body)-1]...)
			continue
		}
		c.line(string(append(line, part...)))
		line = nil
	}
	c.line(string(line))
	return nil
}

func (c *conf) line(line string) {
	if words := strings.Fields(line); len(words) > 1 && strings.EqualFold(words[0], "include") {
		path := words[1]
		if name, _ := c.last("ClusterName"); name != "" {
			path = strings.ReplaceAll(path, "%c", strings.ToLower(name))
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.dir, path)
		}
		if err := c.read(path); err != nil {
			c.missing = append(c.missing, err.Error())
		}
		return
	}
	for {
		m := keyValue.FindStringSubmatchIndex(line)
		if m == nil {
			return
		}
		key, value := strings.ToLower(line[m[2]:m[3]]), ""
		if m[4] >= 0 {
			value = line[m[4]:m[5]]
		} else {
			value = line[m[6]:m[7]]
		}
		c.values[key] = append(c.values[key], value)
		line = line[m[1]:]
	}
}

// withoutComment cuts a line at its first # that no odd number of backslashes stands before.
func withoutComment(line []byte) []byte {
	slashes := 0
	for i, b := range line {
		switch {
		case b == '#' && slashes%2 == 0:
			return line[:i]
		case b == '\\':
			slashes++
		default:
			slashes = 0
		}
	}
	return line
}

// checkConf looks whether slurm.conf names the plugin, once and as the last one.
func (r *Report) checkConf(o Options) error {
	c, err := readConf(o.Conf)
	if err != nil {
		return err
	}
	for _, why := range c.missing {
		r.add(Note, "a file that %s includes cannot be read: %s", o.Conf, why)
	}
	plugins, times := c.last("JobSubmitPlugins")
	if times > 1 {
		r.add(Note, "%s has JobSubmitPlugins %d times, of which slurmctld takes the last: %s", o.Conf, times, plugins)
	}
	var names []string
	for name := range strings.SplitSeq(plugins, ",") {
		if name != "" {
			names = append(names, strings.TrimPrefix(name, "job_submit/"))
		}
	}
	at := slices.Index(names, "gresize")
	odd := slices.IndexFunc(names, func(name string) bool { return strings.ContainsAny(name, " \t") })
	switch {
	case odd >= 0:
		r.add(Note, "%s names %q in JobSubmitPlugins with a blank, for which slurmctld finds no file: it will not start; write the names with commas alone", o.Conf, names[odd])
	case at < 0:
		r.add(Note, "%s does not name gresize in JobSubmitPlugins: slurmctld will not load it", o.Conf)
	case slices.Contains(names[at+1:], "gresize"):
		r.add(Note, "%s names gresize more than once: it is called that often for each job, and only the first call does something", o.Conf)
	case at < len(names)-1:
		r.add(Note, "%s names %s after gresize, which then does not see what it changes: put gresize last", o.Conf, strings.Join(names[at+1:], ","))
	default:
		r.add(OK, "%s names gresize, as the last", o.Conf)
	}
	if dirs, _ := c.last("PluginDir"); dirs != "" && !slices.Contains(strings.Split(dirs, ":"), filepath.Dir(o.Plugin)) {
		r.add(Note, "PluginDir in %s is %s, where slurmctld will not find %s", o.Conf, dirs, o.Plugin)
	}
	if filepath.Base(o.Plugin) != FileName {
		r.add(Note, "the file must be called %s where slurmctld looks for it", FileName)
	}
	return nil
}
