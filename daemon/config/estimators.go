package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/methods/bundled"
)

var sha256Digits = regexp.MustCompile(`^[0-9a-f]{64}$`)

const (
	maxEstimators           = 16
	defaultEstimatorTimeout = Duration(10 * time.Second)
)

// Estimator is one row of the list of estimators; the first that knows is believed.
type Estimator struct {
	Name string `toml:"name"`
	// Command is the plugin and its arguments; a bundled estimator has none.
	Command []string `toml:"command"`
	// SHA256 pins the plugin's program: one that hashes to something else is not started.
	SHA256 string `toml:"sha256"`
	// Reads are folders and files that the plugin may read besides the system's, its program's and the bundles that it is asked about.
	Reads []string `toml:"reads"`
	// Timeout is the time for one answer.
	Timeout Duration `toml:"timeout"`
}

func (c *Config) checkEstimators(found *faults) {
	if len(c.Estimators) > maxEstimators {
		found.add("estimator", "leave out those that are not needed", "%d rows, at most %d", len(c.Estimators), maxEstimators)
	}
	for i := range min(len(c.Estimators), maxEstimators) {
		e := &c.Estimators[i]
		field := func(name string) string { return fmt.Sprintf("estimator[%d].%s", i, name) }
		if !plainWord.MatchString(e.Name) {
			found.add(field("name"), "the name that the plugin gives itself", "%q is no plain name", e.Name)
		} else if slices.ContainsFunc(c.Estimators[:i], func(other Estimator) bool { return other.Name == e.Name }) {
			found.add(field("name"), "leave one of them out", "%s is named twice", e.Name)
		} else if len(e.Command) == 0 {
			if _, err := bundled.Find(e.Name); err != nil {
				found.add(field("name"), `give command = ["/path/of/the/plugin"]`, "%v", err)
			}
		}
		if e.SHA256 != "" && (len(e.Command) == 0 || !sha256Digits.MatchString(e.SHA256)) {
			found.add(field("sha256"), "the first word that sha256sum prints for the plugin's program", "%.80q pins no program of a command", e.SHA256)
		}
		for j, path := range e.Reads {
			if len(e.Command) == 0 {
				found.add(field("reads"), "leave it out: it is for a plugin, which has a command", "an estimator of gresize's own reads nothing but the bundle")
				break
			}
			checkPath(found, fmt.Sprintf("%s[%d]", field("reads"), j), strings.TrimRight(path, "/"), false)
		}
		if len(e.Command) > 0 {
			checkPath(found, field("command"), e.Command[0], false)
		}
		if e.Timeout == 0 {
			e.Timeout = defaultEstimatorTimeout
		}
		if v := e.Timeout.Std(); v < 100*time.Millisecond || v > time.Minute {
			found.add(field("timeout"), "a time from 100ms to 1m", "%s is not between 100ms and 1m", v)
		}
	}
	if len(c.Estimators) == 0 {
		c.Estimators = []Estimator{{Name: bundled.Default, Timeout: defaultEstimatorTimeout}}
	}
}
