package jobs

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/request"
)

func TestADecisionIsSaidWithItsFields(t *testing.T) {
	var out bytes.Buffer
	m := &Manager{config: Config{Logger: slog.New(slog.NewJSONHandler(&out, nil))}}
	job := decisionlog.Job{SlurmJobID: 7, Token: "tok", UID: 1001, Partition: "gpu", Mode: "enforce", Asked: request.Request{Features: "gpu80g"}}
	m.say(job, nil)
	m.say(job, &decisionlog.Decision{Verdict: decision.Rewrite, Code: "smaller_row_fits", Reason: "it fits", NeedBytes: 5, MarginBytes: 2, Change: request.Change{Result: request.Request{Features: "gpu12g"}}})
	for _, want := range []string{`"msg":"decided"`, `"verdict":"rewrite"`, `"code":"smaller_row_fits"`, `"reason":"it fits"`, `"slurm_job_id":7`, `"uid":1001`, `"partition":"gpu"`, `"asked":"--constraint=gpu80g"`, `"now":"--constraint=gpu12g"`, `"need_bytes":5`, `"message_id":"` + messageDecided + `"`} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}

// TestManualNamesEveryMessage holds docs/journal.md to the numbers in the code.
func TestManualNamesEveryMessage(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`(?m)^(?:const |\t)message[A-Z]\w+\s+= "([0-9a-f]{32})"$`)
	known := map[string]bool{}
	for _, pattern := range []string{"../*/*.go", "../../cmd/gresized/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range number.FindAllStringSubmatch(string(text), -1) {
				known[m[1]] = true
			}
		}
	}
	if len(known) < 6 {
		t.Fatalf("only %d numbers found", len(known))
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([0-9a-f]{32})` \\|").FindAllStringSubmatch(string(manual), -1) {
		named[m[1]] = true
		if !known[m[1]] {
			t.Errorf("docs/journal.md: no line has the number %s", m[1])
		}
	}
	for id := range known {
		if !named[id] {
			t.Errorf("docs/journal.md does not explain %s", id)
		}
	}
}
