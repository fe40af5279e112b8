package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// BuiltinEstimator is the name of the estimator that needs no command, and the only one where the file names none.
const BuiltinEstimator = "vgpu"

const (
	maxEstimators           = 16
	defaultEstimatorTimeout = Duration(10 * time.Second)
)

// Estimator is one row of the list of estimators; the first that knows is believed.
type Estimator struct {
	Name string `toml:"name"`
	// Command is the plugin and its arguments; the built-in estimator has none.
	Command []string `toml:"command"`
	// Timeout is the time for one answer.
	Timeout Duration `toml:"timeout"`
}

func (c *Config) checkEstimators(bad func(field, hint, format string, args ...any) *FileError) *FileError {
	if len(c.Estimators) > maxEstimators {
		return bad("estimator", "", "%d rows, at most %d", len(c.Estimators), maxEstimators)
	}
	for i := range c.Estimators {
		e := &c.Estimators[i]
		field := func(name string) string { return fmt.Sprintf("estimator[%d].%s", i, name) }
		if !plainWord.MatchString(e.Name) {
			return bad(field("name"), "the name that the plugin gives itself", "%q is no plain name", e.Name)
		}
		if slices.ContainsFunc(c.Estimators[:i], func(other Estimator) bool { return other.Name == e.Name }) {
			return bad(field("name"), "", "%s is named twice", e.Name)
		}
		if len(e.Command) == 0 && e.Name != BuiltinEstimator {
			return bad(field("name"), `give command = ["/path/of/the/plugin"]`, "%s is not built in", e.Name)
		}
		if len(e.Command) > 0 && !filepath.IsAbs(e.Command[0]) {
			return bad(field("command"), "write a path that begins with /", "%q is no absolute path", e.Command[0])
		}
		if e.Timeout == 0 {
			e.Timeout = defaultEstimatorTimeout
		}
		if v := e.Timeout.Std(); v < 100*time.Millisecond || v > time.Minute {
			return bad(field("timeout"), "", "%s is not between 100ms and 1m", v)
		}
	}
	if len(c.Estimators) == 0 {
		c.Estimators = []Estimator{{Name: BuiltinEstimator, Timeout: defaultEstimatorTimeout}}
	}
	return nil
}
