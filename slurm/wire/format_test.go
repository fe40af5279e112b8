package wire

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFormatDocumentListsEveryField compares the two tables of FORMAT.md with
// the codec's.
func TestFormatDocumentListsEveryField(t *testing.T) {
	document, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(document), "\n## ")
	for title, fields := range map[string][]field{
		"Fields of a request": new(Request).fields(),
		"Fields of a reply":   new(Reply).fields(),
	} {
		var want, got []string
		for i := range fields {
			want = append(want, fmt.Sprintf("%d %s %s", fields[i].tag, fields[i].name, fields[i].typeName()))
		}
		for _, section := range sections {
			if !strings.HasPrefix(section, title) {
				continue
			}
			for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\| (\\w+) ").FindAllStringSubmatch(section, -1) {
				got = append(got, strings.Join(row[1:], " "))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("FORMAT.md, %q (-codec +document):\n%s", title, diff)
		}
	}
}

func (f *field) typeName() string {
	switch {
	case f.list != nil:
		return "list"
	case f.text != nil, f.maybe != nil:
		return "text"
	default:
		return "number"
	}
}
