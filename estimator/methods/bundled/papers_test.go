package bundled

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract/contracttest"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/horus"
	"github.com/gresize/gresize/estimator/trace"
)

const oneLayer = `{"modules":1,"steps":4}
{"root":0,"calls":5,"with_grad":true,"class":"Linear","parameters":10,"parameter_bytes":40,"trainable":10,"batch":8}
{"module":"","of":0,"calls":5,"calls_once":1,"class":"Linear","kind":"linear","leaf":true,"parameters":10,"parameter_bytes":40,"trainable":10,"outputs":[[8,2]],"output_elements":16,"output_bytes":32}
`

func ask(t *testing.T, name string, change func(*trace.Bundle)) (estimator.Estimate, error) {
	t.Helper()
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	method, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	b := contracttest.SoundBundle(card)
	change(b)
	return method.FromBundle(b, card)
}

func withModules(text string) func(*trace.Bundle) {
	return func(b *trace.Bundle) { b.Ranks[0].Parts = map[trace.Part][]byte{trace.PartModules: []byte(text)} }
}

func TestHorus(t *testing.T) {
	e, err := ask(t, "horus", withModules(oneLayer))
	if err != nil || e.Confidence != estimator.Low || e.Ranks[0].PeakReservedBytes != 32+40+40 || e.Ranks[0].OutsideBytes == 0 {
		t.Errorf("%v, %+v", err, e)
	}
	e, err = ask(t, "horus"+Published, withModules(oneLayer))
	if err != nil || e.Confidence != estimator.Low || e.Ranks[0].PeakReservedBytes != 4*(2*8+10+8*10) || e.Ranks[0].OutsideBytes != horus.PublishedOutsideBytes {
		t.Errorf("%v, %+v", err, e)
	}
	if e, err = ask(t, "horus", withModules(`{"modules":1}`)); err != nil || e.Confidence != estimator.Unknown || e.Reasons[len(e.Reasons)-1].Code != "not_covered" {
		t.Errorf("no network: %v, %+v", err, e)
	}
	if e, err = ask(t, "horus", func(*trace.Bundle) {}); err != nil || e.Confidence != estimator.Unknown {
		t.Errorf("no table: %v, %+v", err, e)
	}
	if _, err = ask(t, "horus", withModules("{")); err == nil || !strings.Contains(err.Error(), "ranks/0/modules.jsonl") {
		t.Errorf("a damaged table: %v", err)
	}
}

func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.jsonl")
	line := `{"arguments":["python","train.py"],"actual_bytes":1600000000,"estimate_bytes":1500000000}` + "\n"
	command := func(words ...string) func(*trace.Bundle) { return func(b *trace.Bundle) { b.Manifest.Command = words } }
	for name, c := range map[string]struct {
		rows       string
		command    []string
		confidence estimator.Confidence
		code       string
	}{
		"equal":     {strings.Repeat(line, 3), []string{"python", "train.py"}, estimator.High, "earlier_runs"},
		"other":     {strings.Repeat(line, 8), []string{"python", "train.py", "--large"}, estimator.Low, "earlier_runs"},
		"few":       {line, []string{"python", "train.py"}, estimator.Unknown, "few_actuals"},
		"far above": {strings.Repeat(strings.ReplaceAll(line, "1600000000", "60000000000"), 3), []string{"python", "train.py"}, estimator.Unknown, "actuals_disagree"},
	} {
		if err := os.WriteFile(file, []byte(c.rows), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(historyVariable, file)
		e, err := ask(t, "history", command(c.command...))
		if err != nil || e.Confidence != c.confidence || e.Reasons[len(e.Reasons)-1].Code != c.code {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
		if c.confidence == estimator.High && (e.Ranks[0].ComfortableBytes != 1600000000 || e.Ranks[0].ComfortableHighBytes != 1600000000) {
			t.Errorf("%s: %+v", name, e.Ranks)
		}
	}
	t.Setenv(historyVariable, filepath.Join(t.TempDir(), "none"))
	if _, err := ask(t, "history", command("python", "train.py")); err == nil || !strings.Contains(err.Error(), historyVariable) {
		t.Errorf("a file that is not there: %v", err)
	}
}
