package minicluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gresize/gresize/slurm/release"
)

// everyChange are those of them on which every change is tested: one in the middle and the newest.
var everyChange = []string{"24.11", "26.05"}

// ReleaseVariable names the releases that the tests run on, with blanks between them. Where it is one, it is also the Slurm of every cluster that names no root.
const ReleaseVariable = "GRESIZE_SLURM_RELEASE"

// Releases are the releases that a test runs on which goes through them: all of them in `make nightly`.
func Releases() []string {
	switch chosen := strings.Fields(os.Getenv(ReleaseVariable)); {
	case len(chosen) > 0:
		return chosen
	case os.Getenv("GRESIZE_NIGHTLY") != "":
		return slices.Clone(release.Names)
	}
	return slices.Clone(everyChange)
}

// ThisMachines is the name under which a test runs on the Slurm of a cluster that names no root.
const ThisMachines = "this machine's"

// Pair are the two releases of a test that says what one user can do to another: this machine's, and one in the middle of the releases, which is in
// make nightly alone. Where the tests run on one release, it is that one.
func Pair() []string {
	switch chosen := strings.Fields(os.Getenv(ReleaseVariable)); {
	case len(chosen) == 1:
		return chosen
	case os.Getenv("GRESIZE_NIGHTLY") != "":
		return []string{ThisMachines, everyChange[0]}
	}
	return []string{ThisMachines}
}

// KnownReleases are all of them in `make nightly`, whatever release the tests run on.
func KnownReleases() []string {
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		return slices.Clone(release.Names)
	}
	return slices.Clone(everyChange)
}

// RootDir is where tools/setup puts the folder with another release of Slurm, e.g. 24.11: in GRESIZE_CACHE.
func RootDir(release string) string {
	cache := os.Getenv("GRESIZE_CACHE")
	if cache == "" {
		cache = "/var/cache/gresize"
	}
	return filepath.Join(cache, "slurm-"+release)
}

// RootForTest is the root of a release. A test skips where this machine does not have it.
func RootForTest(t Testing, release string) string {
	t.Helper()
	root := RootDir(release)
	if _, err := os.Stat(filepath.Join(root, "usr/include/slurm/slurm.h")); err != nil {
		t.Skipf("no Slurm %s on this machine (tools/setup slurm-%s)", release, release)
	}
	return root
}

// NeedsRelease skips a test about something that a release of Slurm has not yet.
func NeedsRelease(t Testing, name string, change *release.Change) {
	t.Helper()
	if change == nil {
		return
	}
	if v, err := release.Parse(name); err != nil || !v.AtLeast(change.Since.Major, change.Since.Minor, 0) {
		t.Skipf("before %s, Slurm %s has not: %s", change.Since, name, change.What)
	}
}

// defaultRoot is the root of a cluster that names none: that of the one release that the tests run on, else this machine's.
func defaultRoot() string {
	if chosen := strings.Fields(os.Getenv(ReleaseVariable)); len(chosen) == 1 {
		return RootDir(chosen[0])
	}
	return ""
}

// IncludeArgument is what has make build the plugin for a cluster with the root, or for one that names none.
func IncludeArgument(root string) string {
	if root == "" {
		root = defaultRoot()
	}
	if root == "" {
		return "SLURM_INCLUDE="
	}
	return "SLURM_INCLUDE=" + filepath.Join(root, "usr", "include")
}
