package request

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is a release of Slurm. It decides how a request is spelled and which
// changes of a pending job the controller can carry out.
type Version struct{ Major, Minor, Micro int }

var versionText = regexp.MustCompile(`(\d{2})\.(\d{2})(?:[.-](\d{1,3}))?`)

// ParseVersion reads what `scontrol --version` prints, e.g. "slurm-wlm 22.05.8".
func ParseVersion(text string) (Version, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("no Slurm version in %.60q", text)
	}
	var v Version
	v.Major, _ = strconv.Atoi(m[1])
	v.Minor, _ = strconv.Atoi(m[2])
	v.Micro, _ = strconv.Atoi(m[3])
	return v, nil
}

// VersionOfNumber is the release behind SLURM_VERSION_NUMBER: 0x160508 is 22.05.8.
func VersionOfNumber(n uint32) Version {
	return Version{Major: int(n >> 16 & 0xff), Minor: int(n >> 8 & 0xff), Micro: int(n & 0xff)}
}

// String prints the release as Slurm does.
func (v Version) String() string { return fmt.Sprintf("%02d.%02d.%d", v.Major, v.Minor, v.Micro) }

// AtLeast reports whether v is the given release or a later one.
func (v Version) AtLeast(major, minor, micro int) bool {
	switch {
	case v.Major != major:
		return v.Major > major
	case v.Minor != minor:
		return v.Minor > minor
	}
	return v.Micro >= micro
}

// Prefix is what this release writes before the name of a generic resource in the tres_per_* fields.
// A later release misreads the prefix of an earlier one, so a writer has to choose by version.
func (v Version) Prefix() string {
	switch {
	case v.AtLeast(23, 11, 0):
		return "gres/"
	case v.AtLeast(21, 8, 0):
		return "gres:"
	}
	return ""
}

// bindingHidesShards reports whether an srun that binds its tasks to GPUs gives a job with shards none: from 25.11 on.
func (v Version) bindingHidesShards() bool { return v.AtLeast(25, 11, 0) }

// replacesGres reports whether an update of a pending job rebuilds its list of generic resources.
// Before 23.02.6 the controller merges the new list into the old one: a typed record can then
// neither change its type nor lose it, and a GPU can never become a shard.
func (v Version) replacesGres() bool { return v.AtLeast(23, 2, 6) }
