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
