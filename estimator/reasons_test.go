package estimator

import (
	"os"
	"strings"
	"testing"
)

func TestEveryReasonHasWordsAndEveryWordAReason(t *testing.T) {
	data, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(data), "carries a reason with a stable code:")
	list, _, _ = strings.Cut(list, "\n\n")
	page, err := os.ReadFile("../docs/estimate.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for i, part := range strings.Split(list, "`") {
		if i%2 == 1 {
			listed[part] = true
		}
	}
	for code := range listed {
		if meanings[code].text == "" {
			t.Errorf("%s has no words", code)
		}
		if !strings.Contains(string(page), "| `"+code+"` |") {
			t.Errorf("docs/estimate.md does not explain %s", code)
		}
	}
	for code := range meanings {
		if !listed[code] {
			t.Errorf("%s is not in docs/architecture.md", code)
		}
	}
}

func TestWordsOfAReason(t *testing.T) {
	for _, c := range []struct {
		reason        Reason
		words, hinted string
	}{
		{Reason{Code: "no_torch"}, "neither PyTorch nor JAX was seen [no_torch]", "neither PyTorch nor JAX was seen [no_torch]"},
		{Reason{Code: "budget_spent", Detail: "120 s"}, "the run was ended before enough was seen: 120 s [budget_spent]", "the run was ended before enough was seen; --budget gives it more time: 120 s [budget_spent]"},
		{Reason{Code: "of_a_plugin", Detail: "so it says"}, "of_a_plugin: so it says", "of_a_plugin: so it says"},
		{Reason{Code: "of_a_plugin"}, "of_a_plugin", "of_a_plugin"},
	} {
		if got := c.reason.Words(); got != c.words {
			t.Errorf("%q, want %q", got, c.words)
		}
		if got := c.reason.WordsWithHint(); got != c.hinted {
			t.Errorf("%q, want %q", got, c.hinted)
		}
	}
}
