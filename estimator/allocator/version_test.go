package allocator

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestChangesAreAllThatIsToldApart: a release that the code asks for has its row in Changes, and each row is asked for and is on the page.
func TestChangesAreAllThatIsToldApart(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	asked := map[Version]bool{}
	for _, v := range since {
		asked[v] = true
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`AtLeast\((\d+), (\d+)\)`).FindAllStringSubmatch(string(text), -1) {
			v, err := ParseVersion(m[1] + "." + m[2])
			if err != nil {
				t.Fatal(err)
			}
			asked[v] = true
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "allocator-traces.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(string(page)), " ")
	for i, c := range Changes {
		if !asked[c.From] {
			t.Errorf("nothing asks for %v", c.From)
		}
		delete(asked, c.From)
		if line := fmt.Sprintf("%s (%v)", c.What, c.From); !strings.Contains(said, line) {
			t.Errorf("docs/allocator-traces.md does not say %q", line)
		}
		if i > 0 && !c.From.AtLeast(Changes[i-1].From.Major, Changes[i-1].From.Minor) {
			t.Errorf("%v stands behind a later release", c.From)
		}
	}
	if len(asked) > 0 {
		t.Errorf("no row in Changes for %v", asked)
	}
}

func TestDifferingAreTheEndsOfEachStretch(t *testing.T) {
	if got := Differing(true); !slices.Equal(got, []Version{Newest, {2, 12}}) {
		t.Errorf("in a history: %v", got)
	}
	if last := Changes[len(Changes)-1].From; !Newest.AtLeast(last.Major, last.Minor) {
		t.Errorf("the newest release is %v, and %v has a change of its own", Newest, last)
	}
	all := Differing(false)
	if len(all) != len(Changes)+1 || all[0] != Newest || all[len(all)-1] != Oldest {
		t.Errorf("%v", all)
	}
}

// TestIsSmall: the pool, the segment and the rest of a block that is kept follow one rule, PyTorch's kSmallSize.
func TestIsSmall(t *testing.T) {
	for _, v := range Differing(false) {
		card, err := NewCard(1<<30, 0)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Options{Version: v, Device: card})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []uint64{minBlockBytes, 1 << 20, 1<<20 + minBlockBytes, 2 << 20, 2<<20 + minBlockBytes, 10 << 20} {
			small := size <= 1<<20 // PyTorch's kSmallSize
			if v.IsSmall(size) != small {
				t.Errorf("%v: IsSmall(%d) is %v", v, size, !small)
			}
			if a.poolFor(size, 0).small != small || (a.segmentSize(size) == smallSegmentBytes) != small || v.CanBeFree(size, false, false) == small {
				t.Errorf("%v: %d bytes, small %v", v, size, small)
			}
		}
	}
}
