package vgpu

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestJAXTimeLapse: programs that would go on for hours come to their end, and what their later turns and phases need is in the figure; where that is not
// so, the answer is low.
func TestJAXTimeLapse(t *testing.T) {
	// The others are run every night.
	always := []string{"nothing_else", "evaluates_late", "a_later_phase", "counts_by_itself", "keeps_some", "collects_on_the_host", "over_a_loader", "rarely_a_longer_one", "counts_on_the_card"}
	const large = 64 * mib // the larger batch; the network that reads it makes as much again
	for name, want := range map[string]struct {
		confidence      estimator.Confidence
		atLeast, atMost int64
		says, prints    string
	}{
		"nothing_else":                    {estimator.High, 0, large, "to its end", "at its end 1000000"},
		"evaluates_late":                  {estimator.High, large, 4 * large, "to its end", ""},
		"epochs":                          {estimator.High, large, 4 * large, "to its end", ""},
		"a_later_phase":                   {estimator.High, large, 6 * large, "to its end", ""},
		"grows_by_a_test":                 {estimator.High, large, 6 * large, "to its end", ""},
		"counts_by_itself":                {estimator.High, large, 4 * large, "to its end", ""},
		"counts_on_the_card":              {estimator.High, large, 4 * large, "", "at its end 60"},
		"counts_what_was_left_out":        {estimator.High, large, 4 * large, "to its end", "at its end 1000000"},
		"larger_by_the_cards_counter":     {estimator.High, large, 4 * large, "to its end", "at its end 100020"},
		"larger_by_the_cards_stage":       {estimator.High, large, 6 * large, "to its end", "at its end 100000"},
		"counts_round":                    {estimator.Low, 0, 0, "values_bounded", ""},
		"keeps_arrays":                    {estimator.Low, 0, 0, "memory_grows", ""},
		"keeps_some":                      {estimator.Low, 0, 0, "memory_grows", ""},
		"collects_on_the_host":            {estimator.Low, 0, 0, "would have put", ""},
		"counts_and_collects":             {estimator.Low, 0, 0, "would have put", ""},
		"keeps_losses":                    {estimator.Low, 0, 0, "memory_grows", ""},
		"keeps_the_losses_of_an_epoch":    {estimator.High, 0, large, "to its end", ""},
		"never_ends":                      {estimator.Low, 0, 0, "phase_not_reached", ""},
		"fails_later":                     {estimator.Low, 0, 0, "ValueError: too few", ""},
		"over_a_loader":                   {estimator.High, large, 4 * large, "to its end", "at its end"},
		"over_a_numbered_loader":          {estimator.High, large, 4 * large, "to its end", "at its end 30000"},
		"one_large_batch":                 {estimator.High, large, 4 * large, "to its end", ""},
		"over_places":                     {estimator.High, large, 4 * large, "to its end", "at its end"},
		"over_settings":                   {estimator.High, large, 4 * large, "", ""},
		"by_what_is_in_it":                {estimator.Low, 0, 0, "phase_not_reached", ""},
		"rarely_a_longer_one":             {estimator.High, large, 4 * large, "to its end", ""},
		"rarely_a_longer_one_on_the_card": {estimator.High, large, 4 * large, "to its end", ""},
		"by_what_is_in_a_list":            {estimator.Low, 0, 0, "phase_not_reached", ""},
		"endless_loader":                  {estimator.High, large, 4 * large, "to its end", "at its end 1000000"},
		"evaluates_within":                {estimator.High, large, 4 * large, "to its end", ""},
		"slow_loader":                     {estimator.Low, 0, 0, "was not read to its end", ""},
		"keeps_each":                      {estimator.Low, 0, 0, "memory_grows", ""},
		"collects_each":                   {estimator.Low, 0, 0, "would have put", ""},
		"loader_fails":                    {estimator.Low, 0, 0, "ValueError: too few", ""},
	} {
		if !slices.Contains(always, name) && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more := []string{inTimeLapse}
			if name == "slow_loader" {
				more = append(more, "GRESIZE_PROBE_SECONDS=60")
			}
			o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, []string{"testdata/jax/lapse.py", name}, more...)
			as := trace.Completed
			if o.reports.Stopped {
				as = trace.Stopped
			}
			e := o.estimate(t, as)
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			needed := o.ranks[0].Pool.NeededBytes
			if e.Confidence != want.confidence || needed < want.atLeast || want.atMost > 0 && needed > want.atMost || !strings.Contains(reasonsText(e), want.says) || !strings.Contains(o.output, want.prints) {
				t.Errorf("confidence %s, %d MiB needed, %d steps, %q\n%s", e.Confidence, needed>>20, o.reports.Steps, reasonsText(e), o.output)
			}
		})
	}
}

// TestAFailedLookIsLowInJAX: a fault of what looks at later steps leaves no answer that anybody relies on, and the program runs on.
func TestAFailedLookIsLowInJAX(t *testing.T) {
	for _, where := range []string{"gresize_vgpu.program.lines_not_run Blocks look", "gresize_vgpu.steady.kept_by_turns Leaves turn", "gresize_vgpu.lapse.turn_numbers Notes landings", "gresize_jax.later Later look_beyond", "gresize_jax.later Later _executed", "gresize_vgpu.lapse.loops_over_items Items reach"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, append([]string{"testdata/jax/planted.py"}, strings.Fields(where)...), inTimeLapse)
			e := o.estimate(t, trace.Stopped)
			if o.failed || e.Confidence != estimator.Low || !strings.Contains(reasonsText(e), "could not be examined (KeyError)") {
				t.Errorf("failed %v, confidence %s, %q\n%s", o.failed, e.Confidence, reasonsText(e), o.output)
			}
		})
	}
}
