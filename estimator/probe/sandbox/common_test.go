package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// TestWithoutCommon: of a crowded /tmp what the command needs or names stays, whatever else is there.
func TestWithoutCommon(t *testing.T) {
	b := &builder{needed: []string{"/tmp/home/dir"}, named: []string{"/tmp/zz/train.py", "/tmp/zy"}}
	var names []string
	for i := range 4 * maxCommon {
		names = append(names, fmt.Sprintf("other-%d", i))
	}
	names = append(names, "home", "zx", "zy", "zz")
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(b.distance("/tmp/"+x), b.distance("/tmp/"+y)) })
	kept := b.withoutCommon("/tmp", names)
	if len(kept) != 3+maxCommon || !slices.Equal(kept[:3], []string{"home", "zy", "zz"}) || len(b.notes) != 1 {
		t.Errorf("%d kept, first %v, notes %v", len(kept), kept[:4], b.notes)
	}
}
