// Package buildinfo says which build of gresize a program is. It is apart so that the smallest program can say so without the rest.
package buildinfo

import "runtime/debug"

// stamped is set by the linker: the version of the packages.
var stamped string

// Version is the version of this program: the one of its package, of its module, or the revision that it was built from.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				version = "devel-" + s.Value[:12]
			}
		}
	}
	return version
}
