package vgpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestWhatALaterStepDoes: what a loop's own counter brings soon is waited for; what it brings late lowers the confidence, unless it is logging or saving.
func TestWhatALaterStepDoes(t *testing.T) {
	const largeBatch = 65536 * 512 * 4 // one tensor of the larger batch
	for name, want := range map[string]struct {
		confidence estimator.Confidence
		atLeast    int64
		says       string
		always     bool // the others are run every night
	}{
		"grows_soon":                {estimator.High, 3 * largeBatch, "run_cut_short", true},
		"chooses_soon":              {estimator.High, 3 * largeBatch, "run_cut_short", false},
		"grows_while_it_gathers":    {estimator.High, 3 * largeBatch, "run_cut_short", false},
		"ends_before":               {estimator.High, 0, "run_cut_short", true},
		"ends_behind":               {estimator.Low, 0, "later.py line", true},
		"validates_more_at_the_end": {estimator.Exact, 2 * largeBatch, "", true},
		"takes_long_at_the_end":     {estimator.Low, 0, "later.py line", false},
		"grows_late":                {estimator.Low, 0, "later.py line 55, ", true},
		"trains_otherwise_late":     {estimator.Low, 0, "later.py line 63, ", false},
		"validates_more_behind":     {estimator.Low, 0, "later.py line 71", false},
		"evaluates_late":            {estimator.High, 0, "an evaluation was not reached (later.py line 79, ", false},
		"ordinary":                  {estimator.High, 0, "steps were seen: memory", true},
	} {
		if !want.always && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, []string{"testdata/later.py", name})
			e := o.estimate(t, trace.Stopped)
			var said []string
			for _, r := range e.Reasons {
				said = append(said, r.Code+": "+r.Detail)
			}
			if o.failed || e.Confidence != want.confidence || e.Ranks[0].PeakAllocatedBytes < want.atLeast || !strings.Contains(strings.Join(said, "\n"), want.says) {
				t.Errorf("failed %v, confidence %s, allocated %d, %q\n%s", o.failed, e.Confidence, e.Ranks[0].PeakAllocatedBytes, said, o.output)
			}
		})
	}
}

// runEach runs cases of a script in processes that are forked from one that has imported PyTorch: a start of it for each would take minutes.
func runEach(t *testing.T, release, script string, cases []string, more ...string) map[string]*outcome {
	t.Helper()
	root := t.TempDir()
	for _, name := range cases {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := runInterpreter(t, torchtest.Python(t, release), 1, append([]string{"testdata/each.py", root, script}, cases...), append(more, "GRESIZE_PROBE_SECONDS=300")...)
	outcomes := map[string]*outcome{}
	for _, name := range cases {
		o := &outcome{output: all.output, failed: all.failed || strings.Contains(all.output, "failed: "+name+"\n")}
		var err error
		if o.reports, err = ReadReports(filepath.Join(root, name)); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, all.output)
		}
		outcomes[name] = o
	}
	return outcomes
}

// TestWhatALaterStepMayNeed: programs that need more later, in whatever way they come to it, have no `high`; and those whose steps stay as they are keep it.
func TestWhatALaterStepMayNeed(t *testing.T) {
	type row struct{ name, code, says string }
	const covered = "the interval covers that"
	for _, group := range []struct {
		script string
		rows   []row
		always bool // the others are run every night
	}{
		{"testdata/ahead.py", []row{
			{"sizes_of_a_tuple", "phase_not_reached", ""}, {"derived", "phase_not_reached", "line 88, 50997 steps"}, {"helper_allocates", "phase_not_reached", "19997 steps"},
			{"keeps_some", "memory_grows", "ahead.py line"}, {"items_grow", "batches_vary", "Items gave (1, 64, 512) and (1, 588, 512)"}, {"at_the_end", "phase_not_reached", "beside the loop or after it may take memory: ahead.py line 31"},
		}, true},
		{"testdata/usual.py", []row{{"epochs", "", ""}, {"step_counter", "", ""}, {"slices", "", ""}, {"trainer", "", ""}, {"asks_for_settings", "", ""}, {"several_optimizers", "", ""}, {"master_weights", "", ""}}, true},
		{"testdata/ahead.py", []row{
			{"sizes_of_a_setting", "phase_not_reached", ""}, {"sizes_by_arithmetic", "phase_not_reached", ""}, {"sizes_doubled", "phase_not_reached", ""},
			{"part_of_a_sequence", "phase_not_reached", ""}, {"wider_models", "phase_not_reached", ""}, {"setting_of_a_table", "phase_not_reached", "19997 steps"},
			{"a_float", "phase_not_reached", "19998 steps"}, {"two_deep", "phase_not_reached", "19997 steps"}, {"copies", "phase_not_reached", ""}, {"far", "phase_not_reached", "4999997 steps"},
		}, false},
		{"testdata/ahead.py", []row{
			{"another_epoch", "phase_not_reached", ""}, {"counts_epochs", "phase_not_reached", ""}, {"gathers_more", "phase_not_reached", ""}, {"keeps_all", "memory_grows", "512 bytes"},
			{"average_begins_late", "phase_not_reached", ""}, {"model_counts", "phase_not_reached", ""}, {"a_hook_counts", "memory_grows", ""}, {"by_chance", "phase_not_reached", ""},
			{"after_a_time", "phase_not_reached", ""}, {"a_generator_grows", "phase_not_reached", ""},
		}, false},
		{"testdata/ahead.py", []row{
			{"a_stream_grows", "phase_not_reached", ""}, {"a_collate_grows", "phase_not_reached", ""}, {"lengths_vary", "batches_vary", ""},
			{"a_thread_waits", "phase_not_reached", "beside the loop"}, {"a_thread_sleeps", "phase_not_reached", "beside the loop"}, {"when_it_goes", "phase_not_reached", "beside the loop"},
		}, false},
		{"testdata/ahead.py", []row{
			{"gradients_by_a_question", "phase_not_reached", ""}, {"a_context_is_chosen", "phase_not_reached", ""}, {"thaws_by_a_question", "phase_not_reached", ""},
			{"thaws_in_passing", "phase_not_reached", "19997 steps"}, {"by_a_plan", "phase_not_reached", ""}, {"deeper", "phase_not_reached", ""}, {"a_property", "phase_not_reached", ""},
		}, true},
		{"testdata/ahead.py", []row{
			{"updates_a_setting", "phase_not_reached", "19997 steps"}, {"a_sum_of_more", "phase_not_reached", ""}, {"a_list_times_more", "phase_not_reached", ""},
			{"goes_round_more", "phase_not_reached", ""}, {"by_chance_of_torch", "phase_not_reached", ""}, {"keeps_by_key", "memory_grows", ""}, {"keeps_on_a_heap", "memory_grows", ""},
		}, false},
		{"testdata/evaluations.py", []row{
			{"a_larger_batch", "phase_not_reached", ""}, {"a_loader_is_made", "phase_not_reached", ""}, {"a_trainer_with_a_larger_batch", "phase_not_reached", "every 500 steps with batches of 4096, not 8"}, {"samples_more", "phase_not_reached", ""},
			{"the_same_batch", "run_cut_short", "an evaluation was not reached"}, {"estimates_its_loss", "run_cut_short", "an evaluation was not reached"},
			{"the_same_loader", "run_cut_short", "an evaluation was not reached"}, {"samples_few", "run_cut_short", "an evaluation was not reached"},
		}, true},
		{"testdata/evaluations.py", []row{
			{"a_larger_batch_is_made", "phase_not_reached", ""}, {"a_loader_is_made_by_a_setting", "phase_not_reached", ""},
			{"samples_more_from_a_loader", "phase_not_reached", ""}, {"starts_from_zeros", "phase_not_reached", ""}, {"the_whole_data_set", "phase_not_reached", ""},
			{"larger_parts", "phase_not_reached", ""}, {"without_a_cast", "phase_not_reached", ""}, {"a_method", "phase_not_reached", ""},
			{"counts_beside_the_step", "phase_not_reached", "evaluations.py line"}, {"rows_of_a_list", "phase_not_reached", "evaluations.py line"},
			{"as_many_rows_of_a_list", "run_cut_short", "an evaluation was not reached"}, {"a_trainer_keeps_all", "memory_grows", "eval_accumulation_steps"}, {"a_trainer_with_the_same_batch", "run_cut_short", "every 500 steps"},
			{"by_callbacks", "phase_not_reached", ""}, {"gathers_outputs", "memory_grows", "batches were not read, and each leaves 131072 bytes"}, {"gathers_numbers", "", ""},
			{"the_same_noise", "run_cut_short", "an evaluation was not reached"}, {"with_a_cast", "run_cut_short", "an evaluation was not reached"},
		}, false},
		{"testdata/found.py", []row{
			{"lookahead_late", "phase_not_reached", "found.py line"}, {"grid_comprehended", "phase_not_reached", "found.py line"}, {"keeps_an_epoch", "memory_grows", "found.py line"},
		}, true},
		{"testdata/found.py", []row{{"lookahead_soon", "", ""}, {"grid_of_rates", "", ""}}, true},
		{"testdata/found.py", []row{
			{"averages_late", "phase_not_reached", "found.py line"}, {"statistics_of_each", "phase_not_reached", "found.py line"}, {"a_callback", "phase_not_reached", "found.py line"},
			{"grid_of_a_list", "phase_not_reached", "found.py line"}, {"grid_in_a_loop", "phase_not_reached", ""}, {"sums_losses", "memory_grows", "batches were not read"}, {"crops_grow", "phase_not_reached", "found.py line"},
		}, false},
		{"testdata/found.py", []row{{"averages_soon", "", ""}, {"a_log", "", ""}, {"keeps_a_loss", "", ""}}, false},
		{"testdata/kept.py", []row{
			{"losses", "memory_grows", "000 steps leave 15360000: the interval covers that"}, {"losses_for_ever", "memory_grows", "1000000 steps leave 512000000: the interval covers that"}, {"outputs", "memory_grows", "131072 bytes"},
		}, true},
		{"testdata/kept.py", []row{
			{"in_a_table", "memory_grows", "kept.py line"}, {"sums_of_lists", "memory_grows", "kept.py line"}, {"after_epochs", "memory_grows", "kept.py line"},
			{"joins", "memory_grows", "kept.py line"}, {"joins_in_an_object", "memory_grows", "kept.py line"}, {"some_losses", "memory_grows", covered}, {"a_queue", "", ""},
		}, true},
		{"testdata/kept.py", []row{{"prefetches", "memory_grows", "record_stream"}, {"prefetches_and_waits", "", ""}}, true},
		{"testdata/kept.py", []row{{"sums_of_tuples", "memory_grows", "kept.py line"}, {"joins_in_a_buffer", "memory_grows", "kept.py line"}, {"begins_anew", "", ""}}, false},
		{"testdata/lists.py", []row{
			{"drawn_at_random", "batches_vary", "(lists.py line 56) has items of length 4000, and the longest so far had 32"}, {"in_buckets", "batches_vary", "length 512"},
			{"of_a_class", "batches_vary", "length 4000"}, {"of_a_data_set", "batches_vary", "4000"}, {"tasks_by_chance", "phase_not_reached", "samples of (4096,), 16 in a batch"},
			{"functions_by_chance", "phase_not_reached", "lists.py line"},
		}, true},
		{"testdata/lists.py", []row{
			{"padded_to_all", "", ""}, {"cut_to_a_length", "", ""}, {"parts_of_documents", "", ""}, {"of_one_length", "", ""}, {"a_mixture_of_one_size", "", ""}, {"replays", "", ""},
		}, true},
		{"testdata/lists.py", []row{
			{"sorted_by_length", "batches_vary", "length 1009"}, {"batches_are_made_before", "batches_vary", "length 519"}, {"examples_of_a_table", "batches_vary", "length 4000"},
			{"a_mixture", "phase_not_reached", "samples of (4096,)"}, {"rows_of_a_file", "batches_vary", "2000"}, {"texts_of_a_list", "batches_vary", "in what was made of it"},
			{"an_agent", "run_cut_short", "an evaluation was not reached"}, {"tensors_by_chance", "batches_vary", "length 4096"},
		}, false},
		{"testdata/sweeps.py", []row{
			{"maps", "phase_not_reached", "sweeps.py line"}, {"keywords", "phase_not_reached", "sweeps.py line"}, {"jobs", "phase_not_reached", "sweeps.py line"}, {"drawn_settings", "phase_not_reached", ""}, {"folds_are_kept", "memory_grows", ""}, {"a_study", "phase_not_reached", "sweeps.py line"},
		}, true},
		{"testdata/sweeps.py", []row{{"maps_rates", "", ""}, {"a_study_of_a_rate", "", ""}, {"seeds", "", ""}, {"folds", "", ""}, {"read_by_threads", "", ""}}, true},
		{"testdata/sweeps.py", []row{
			{"maps_a_lambda", "phase_not_reached", ""}, {"threads", "phase_not_reached", ""}, {"product_of_a_table", "phase_not_reached", ""}, {"nested_tables", "phase_not_reached", ""},
			{"command_lines", "phase_not_reached", ""}, {"positions", "phase_not_reached", ""}, {"weights_are_kept", "memory_grows", ""}, {"a_random_search_of_rates", "", ""}, {"smaller_ones", "", ""}, {"jobs_of_rates", "", ""},
		}, false},
		{"testdata/matching.py", []row{{"a_case", "phase_not_reached", "19997 steps"}}, false},
		{"testdata/usual.py", []row{{"two_networks", "", ""}, {"phases_of_an_epoch", "", ""}, {"gathers", "", ""}, {"asks_for_its_names", "", ""}}, false},
	} {
		if !group.always && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		var names []string
		for _, r := range group.rows {
			names = append(names, r.name)
		}
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			t.Parallel()
			outcomes := runEach(t, "2.6.0", group.script, names)
			for _, r := range group.rows {
				o := outcomes[r.name]
				e := o.estimate(t, trace.Stopped)
				want, found := estimator.High, r.code == ""
				if r.code != "" && r.code != "run_cut_short" && !strings.HasSuffix(r.says, covered) {
					want = estimator.Low
				}
				for _, reason := range e.Reasons {
					found = found || reason.Code == r.code && strings.Contains(reason.Detail, r.says)
				}
				if o.failed || !o.reports.Stopped || e.Confidence != want || !found {
					t.Errorf("%s: failed %v, stopped %v, confidence %s, %q\n%s", r.name, o.failed, o.reports.Stopped, e.Confidence, e.Reasons, o.output)
				}
			}
		})
	}
}

// TestOtherProcessesAreWaitedFor: the first of several processes on one card to have seen enough does not end the others before they were seen.
func TestOtherProcessesAreWaitedFor(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // four starts of PyTorch
	}
	o := runPython(t, "2.6.0", 1, []string{"testdata/ahead.py", "four_processes"})
	e := o.estimate(t, trace.Stopped)
	all := len(e.Ranks) == 4 && hasReason(e, "several_gpus")
	// On a busy machine PyTorch takes longer to be imported than anything is waited for; that is said.
	if o.failed || e.Confidence != estimator.Low || !all && !hasReason(e, "phase_not_reached") {
		t.Errorf("failed %v, %d processes used the card, confidence %s, %q\n%s", o.failed, len(e.Ranks), e.Confidence, e.Reasons, o.output)
	}
}

// TestSettingsOfAPool: a process of a pool may be given larger settings than those that it was seen with.
func TestSettingsOfAPool(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // two starts of PyTorch
	}
	o := runPython(t, "2.6.0", 1, []string{"testdata/sweeps.py", "an_executor"}) // which fails, since its process has gone
	if e := o.estimate(t, trace.Stopped); e.Confidence != estimator.Low || !hasReason(e, "phase_not_reached") {
		t.Errorf("confidence %s, %q\n%s", e.Confidence, e.Reasons, o.output)
	}
}

// TestPlacesAhead: what a program's own process reports is cut down to what a reason may hold.
func TestPlacesAhead(t *testing.T) {
	reported := make([]string, 100)
	for i := range reported {
		reported[i] = "a\nb " + strings.Repeat("ä", 1000)
	}
	places := placesAhead(reported)
	if len(places) != placesMost || len([]rune(places[0])) != placeRunesLimit || strings.Contains(places[0], "\n") || placesAhead(nil) != nil {
		t.Errorf("%d places, the first %q", len(places), places[0])
	}
}
