package allocator

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is the PyTorch release whose allocator is simulated. Only the parts that change an answer matter, so the patch level is dropped.
type Version struct {
	Major, Minor int
}

// Oldest and Newest bound the releases whose behaviour is known. A newer release is simulated as Newest, and callers must say so.
var (
	Oldest = Version{1, 13}
	Newest = Version{2, 15}
)

// Change is a release from which on the allocator answers something otherwise than before.
type Change struct {
	From Version
	What string
	// History says that a history recorded under default settings shows it, so that the record tells on which side of the change it was written.
	History bool
}

// Changes are all that the simulator tells apart, oldest first: each AtLeast of this package has its row here.
var Changes = []Change{
	{From: Version{2, 0}, What: "rounding options for ranges of sizes"},
	{From: Version{2, 1}, What: "expandable segments"},
	{From: Version{2, 2}, What: "`release_lock_on_cudamalloc`"},
	{From: Version{2, 4}, What: "rounding to one division of a power of two"},
	{From: Version{2, 5}, What: "the mix of `max_split_size_mb` with expandable segments, and private pools in them"},
	{From: Version{2, 6}, What: "`max_non_split_rounding_mb`"},
	{From: Version{2, 8}, What: "pools that serve any request when the card is full"},
	{From: Version{2, 9}, What: "the order of pools and the second parser of settings"},
	{From: Version{2, 10}, What: "a fraction of 1 as no limit and pools without splitting"},
	{From: Version{2, 11}, What: "`large_segment_size_mb`"},
	{From: Version{2, 12}, What: "`throw_on_cudamalloc_oom`"},
	{From: Version{2, 13}, What: "free blocks of one size ordered by the age of their segment, and capture told apart from routing", History: true},
}

// before is the last release that a change is not in: of a first release of its line, the last of the line before.
func (v Version) before() Version {
	if v.Minor > 0 {
		return Version{v.Major, v.Minor - 1}
	}
	return Version{1, 13}
}

// Differing are releases, newest first, of which no two answer alike: the newest, and the last before each change. With inHistory, only
// changes that a recorded history shows count.
func Differing(inHistory bool) []Version {
	releases := []Version{Newest}
	for i := len(Changes) - 1; i >= 0; i-- {
		if Changes[i].History || !inHistory {
			releases = append(releases, Changes[i].From.before())
		}
	}
	return releases
}

// IsSmall reports whether the small pools serve a rounded request of this size; the rest of a large block that is as small is not split off it.
func (v Version) IsSmall(bytes uint64) bool { return bytes <= smallRequestBytes }

// ParseVersion reads "2.6", "2.6.0", "2.11.0+cu126" or "2.9.0a0+git1234".
func ParseVersion(text string) (Version, error) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("PyTorch version %q: want MAJOR.MINOR, for example 2.6", text)
	}
	major, errMajor := strconv.ParseUint(parts[0], 10, 8)
	minorDigits := parts[1]
	for i, r := range minorDigits {
		if r < '0' || r > '9' {
			minorDigits = minorDigits[:i]
			break
		}
	}
	minor, errMinor := strconv.ParseUint(minorDigits, 10, 8)
	if errMajor != nil || errMinor != nil {
		return Version{}, fmt.Errorf("PyTorch version %q: want MAJOR.MINOR, for example 2.6", text)
	}
	v := Version{int(major), int(minor)}
	if !v.AtLeast(Oldest.Major, Oldest.Minor) {
		return Version{}, fmt.Errorf("PyTorch version %q: the allocator of releases before %v is not known", text, Oldest)
	}
	return v, nil
}

// AtLeast reports whether v is the given release or a later one.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String prints MAJOR.MINOR.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Known reports whether the behaviour of this very release was studied, and not taken from the newest known one.
func (v Version) Known() bool {
	return v.AtLeast(Oldest.Major, Oldest.Minor) && (!v.AtLeast(Newest.Major, Newest.Minor) || v == Newest)
}
