// Package release owns what differs between releases of Slurm: one table of all that gresize relies on and that has changed, each with the release in which it did and where
// that can be read. What is not in the table was found the same from Oldest to Newest.
package release

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// Version is a release of Slurm. It decides how a request is spelled and which
// changes of a pending job the controller can carry out.
type Version struct{ Major, Minor, Micro int }

// Names are the releases on which gresize is run, the oldest first.
var Names = []string{"20.11", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"}

// Oldest and Newest are the first and the last of them.
var (
	Oldest = Version{Major: 20, Minor: 11}
	Newest = Version{Major: 26, Minor: 5}
)

var versionText = regexp.MustCompile(`(\d{2})\.(\d{2})(?:[.-](\d{1,3}))?`)

// Parse reads what `scontrol --version` prints, e.g. "slurm-wlm 22.05.8".
func Parse(text string) (Version, error) {
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

// OfNumber is the release behind SLURM_VERSION_NUMBER: 0x160508 is 22.05.8.
func OfNumber(n uint32) Version {
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

// Same reports whether two versions are of one release, whatever their micro numbers.
func (v Version) Same(other Version) bool { return v.Major == other.Major && v.Minor == other.Minor }

// Beside says what it means that the commands are of another release than slurmctld, or returns "". Slurm itself takes commands of its own release and of older ones, two releases back
// up to 24.05 and three from 24.11 on (src/common/slurm_protocol_common.h), and refuses those of a newer one.
func Beside(commands, controller Version) string {
	switch {
	case commands.Same(controller):
		return ""
	case commands.AtLeast(controller.Major, controller.Minor, 0):
		return fmt.Sprintf("the commands of %s are newer than slurmctld %s, which refuses them: no job can be looked at or changed until slurmctld is upgraded, too; until then jobs run as their owners asked, when their hold ends", commands, controller)
	case place(controller)-place(commands) > takenBack(controller):
		return fmt.Sprintf("the commands of %s are too old for slurmctld %s, which refuses them: install those of %s where gresized runs", commands, controller, controller)
	}
	return fmt.Sprintf("the commands of %s are older than slurmctld %s, which takes them: as it should be in the middle of an upgrade; install those of %s after it", commands, controller, controller)
}

// place is where a release stands among all that were made, of which 21.08 is one that gresize is not run on.
func place(v Version) int {
	at := 0
	for _, name := range slices.Concat(Names, []string{"21.08"}) {
		if since, err := Parse(name); err == nil && v.AtLeast(since.Major, since.Minor, 0) {
			at++
		}
	}
	return at
}

// takenBack is how many releases back slurmctld takes a command.
func takenBack(controller Version) int {
	if ThreeBack.In(controller) {
		return 3
	}
	return 2
}

// Untried says why gresize was never run on a release, or returns "".
func (v Version) Untried() string {
	switch {
	case !v.AtLeast(Oldest.Major, Oldest.Minor, 0):
		return fmt.Sprintf("Slurm %s is older than %s, the oldest release that gresize knows: requests may be misread", v, Names[0])
	case v.AtLeast(Newest.Major, Newest.Minor, 0) && !v.Same(Newest):
		return fmt.Sprintf("Slurm %s is newer than %s, the newest release that gresize knows: it is taken to be like that one, and what it does otherwise is an error in the journal, with the job left as it is", v, Names[len(Names)-1])
	}
	return ""
}
