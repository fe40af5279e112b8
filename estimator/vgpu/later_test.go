package vgpu

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// runEach runs cases of a script in processes that are forked from one that has imported PyTorch: a start of it for each would take minutes.
func runEach(t *testing.T, release, script string, cases []string, more ...string) map[string]*outcome {
	t.Helper()
	root := t.TempDir()
	for _, name := range cases {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := runInterpreter(t, torchtest.Python(t, release), 1, append([]string{"testdata/each.py", root, script}, cases...), append([]string{"GRESIZE_PROBE_SECONDS=300"}, more...)...)
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

// TestWhatALaterStepMayNeed: what programs need later, in whatever way they come to it, is in the figure, or the answer is low; and those whose steps stay as they are keep high.
func TestWhatALaterStepMayNeed(t *testing.T) {
	// seen is a row whose figure has what comes later, in MiB at least; needsNoMore one that has nothing to see; any other says why it is low.
	type row struct {
		name, says string
		seen       int64
	}
	const needsNoMore = ""
	const grows, phase, vary = "memory_grows: ", "phase_not_reached: ", "batches_vary: "
	for _, group := range []struct {
		script string
		rows   []row
		always bool // the others are run every night: each goes on for as long as something new comes
	}{
		{"testdata/ahead.py", []row{
			{name: "derived", seen: 900}, {name: "sizes_of_a_tuple", seen: 900}, {name: "at_the_end", seen: 190},
			{name: "keeps_some", says: grows + "each of the last steps left"}, {name: "by_chance", says: phase + "what was not run may take more memory: ahead.py line"},
		}, true},
		{"testdata/ahead.py", []row{{name: "in_a_bar", seen: 900}, {name: "by_a_plan", seen: 69}}, false},
		{"testdata/usual.py", []row{{name: "epochs"}, {name: "step_counter"}, {name: "several_optimizers"}}, true},
		{"testdata/lists.py", []row{{name: "tasks_by_chance", says: phase + "what was not run may take more memory: a data loader of TensorDataset"}, {name: "functions_by_chance", says: phase}}, false},
		{"testdata/kept.py", []row{{name: "losses"}, {name: "a_queue"}}, true},
		{"testdata/kept.py", []row{{name: "outputs", says: grows}}, false},
		{"testdata/ahead.py", []row{
			{name: "sizes_of_a_setting", seen: 900}, {name: "sizes_by_arithmetic", seen: 8700}, {name: "sizes_doubled", seen: 1800}, {name: "part_of_a_sequence", seen: 900},
			{name: "wider_models", seen: 49}, {name: "setting_of_a_table", seen: 69}, {name: "a_float", seen: 900}, {name: "two_deep", seen: 900}, {name: "copies", seen: 21}, {name: "far", seen: 900}, {name: "helper_allocates", seen: 190},
		}, false},
		{"testdata/ahead.py", []row{
			{name: "another_epoch", seen: 900}, {name: "counts_epochs", seen: 900}, {name: "keeps_all", says: grows}, {name: "average_begins_late", seen: 69}, {name: "model_counts", seen: 120},
			{name: "a_hook_counts", says: grows}, {name: "after_a_time", says: phase}, {name: "a_generator_grows", says: grows},
		}, false},
		{"testdata/ahead.py", []row{
			{name: "enumerated", says: phase}, {name: "beside_others", seen: 900}, {name: "backwards", seen: 900}, {name: "by_a_bar_of_a_library", seen: 900},
			{name: "items_grow", says: vary + "a later batch may be larger: Items gave (1, 64, 512) and (1, 588, 512)"}, {name: "lengths_vary", says: vary}, {name: "a_collate_grows"},
			{name: "a_thread_waits", says: phase + "what runs beside the loop"}, {name: "a_thread_sleeps", says: phase}, {name: "when_it_goes", seen: 140},
		}, false},
		{"testdata/ahead.py", []row{
			{name: "gradients_by_a_question", seen: 21}, {name: "a_context_is_chosen", seen: 21}, {name: "thaws_by_a_question", seen: 21}, {name: "thaws_in_passing", seen: 21}, {name: "deeper", seen: 45}, {name: "a_property", seen: 900},
			{name: "updates_a_setting", seen: 900}, {name: "a_list_times_more", seen: 1700}, {name: "by_chance_of_torch", says: phase}, {name: "keeps_by_key", says: grows}, {name: "keeps_on_a_heap", says: grows},
		}, false},
		{"testdata/evaluations.py", []row{
			{name: "a_larger_batch", seen: 21}, {name: "a_loader_is_made", seen: 200}, {name: "samples_more", seen: 200}, {name: "a_larger_batch_is_made", seen: 21}, {name: "a_loader_is_made_by_a_setting", seen: 200},
			{name: "samples_more_from_a_loader", seen: 200}, {name: "starts_from_zeros", seen: 21}, {name: "the_whole_data_set", seen: 600}, {name: "larger_parts", seen: 70}, {name: "without_a_cast", seen: 21}, {name: "a_method", seen: 74},
			{name: "counts_beside_the_step", seen: 200}, {name: "rows_of_a_list", seen: 80}, {name: "by_callbacks", seen: 21}, {name: "gathers_outputs", seen: 320},
		}, false},
		{"testdata/evaluations.py", []row{
			{name: "the_same_batch"}, {name: "estimates_its_loss"}, {name: "the_same_loader"}, {name: "samples_few"}, {name: "as_many_rows_of_a_list"}, {name: "a_trainer_with_the_same_batch"},
			{name: "gathers_numbers"}, {name: "the_same_noise"}, {name: "with_a_cast"},
		}, false},
		{"testdata/found.py", []row{
			{name: "lookahead_late", seen: 70}, {name: "averages_late", seen: 70}, {name: "statistics_of_each", seen: 70}, {name: "a_callback", seen: 70}, {name: "grid_comprehended", seen: 280}, {name: "grid_in_a_loop", seen: 280},
			{name: "grid_of_a_list", seen: 280}, {name: "keeps_an_epoch", says: grows}, {name: "sums_losses", seen: 1000},
			{name: "lookahead_soon"}, {name: "averages_soon"}, {name: "grid_of_rates"}, {name: "a_log"}, {name: "keeps_a_loss"},
		}, false},
		{"testdata/kept.py", []row{
			{name: "in_a_table", says: grows}, {name: "sums_of_lists", says: grows}, {name: "sums_of_tuples", says: grows}, {name: "joins", says: grows}, {name: "joins_in_an_object", says: grows}, {name: "joins_in_a_buffer", says: grows},
			{name: "after_epochs"}, {name: "prefetches", says: grows + "each step leaves"}, {name: "prefetches_and_waits"}, {name: "begins_anew"},
		}, false},
		{"testdata/lists.py", []row{
			{name: "drawn_at_random", seen: 1100}, {name: "sorted_by_length", seen: 300}, {name: "of_a_class", seen: 1100}, {name: "a_mixture", says: phase}, {name: "rows_of_a_file", says: vary},
			{name: "drawn_once", says: vary + "a later batch may be larger: a list of 1000000 rows has one of 4000"}, {name: "a_record_drawn_once", says: vary}, {name: "cut_once"},
			{name: "padded_to_all"}, {name: "cut_to_a_length"}, {name: "parts_of_documents"}, {name: "of_one_length"}, {name: "a_mixture_of_one_size"}, {name: "replays"}, {name: "an_agent"},
		}, false},
		{"testdata/sweeps.py", []row{
			{name: "maps", seen: 200}, {name: "maps_a_lambda", seen: 200}, {name: "threads", seen: 200}, {name: "product_of_a_table", seen: 200}, {name: "keywords", seen: 200}, {name: "nested_tables", seen: 200},
			{name: "command_lines", seen: 200}, {name: "positions", seen: 200}, {name: "jobs", seen: 200}, {name: "drawn_settings", seen: 200}, {name: "folds_are_kept", seen: 110}, {name: "weights_are_kept", seen: 90},
			{name: "maps_rates"}, {name: "a_study_of_a_rate"}, {name: "seeds"}, {name: "folds"}, {name: "read_by_threads"}, {name: "a_random_search_of_rates"}, {name: "smaller_ones"}, {name: "jobs_of_rates"},
		}, false},
		{"testdata/matching.py", []row{{name: "a_case", seen: 800}}, false},
		{"testdata/usual.py", []row{{name: "slices"}, {name: "trainer"}, {name: "asks_for_settings"}, {name: "master_weights"}, {name: "two_networks"}, {name: "phases_of_an_epoch"}, {name: "gathers"}, {name: "asks_for_its_names"}}, false},
	} {
		if !group.always && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		var names []string
		for _, r := range group.rows {
			names = append(names, r.name)
		}
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			outcomes := runEach(t, "2.6.0", group.script, names, inTimeLapse)
			for _, r := range group.rows {
				o := outcomes[r.name]
				e := o.estimate(t, trace.Stopped)
				said := reasonsText(e)
				if len(e.Ranks) == 0 { // the interpreter's time was up before it came to this one
					t.Errorf("%s: confidence %s, %q\n%s", r.name, e.Confidence, said, o.output)
					continue
				}
				t.Logf("%s: %s, %d MiB allocated", r.name, e.Confidence, e.Ranks[0].PeakAllocatedBytes>>20)
				if doubted := doubtsLater(e); doubted != (r.says != needsNoMore) || !strings.Contains(said, r.says) || e.Ranks[0].PeakAllocatedBytes < r.seen*mib {
					t.Errorf("%s: confidence %s, %d MiB allocated, %q\n%s", r.name, e.Confidence, e.Ranks[0].PeakAllocatedBytes>>20, said, o.output)
				}
				if o.failed || !o.reports.Stopped {
					t.Errorf("%s: failed %v, stopped %v\n%s", r.name, o.failed, o.reports.Stopped, o.output)
				}
			}
		})
	}
}

// doubtsLater says whether an answer is low by what may come later; one of one side of the values may be low by these.
func doubtsLater(e estimator.Estimate) bool {
	return slices.ContainsFunc(e.Reasons, func(r estimator.Reason) bool {
		return r.Code == "phase_not_reached" || r.Code == "batches_vary" && !strings.Contains(r.Detail, "covers") || r.Code == "memory_grows" && !strings.Contains(r.Detail, "covers") || r.Code == "peak_still_rising"
	})
}

// TestTheFirstAnswer: a run that ends at its first answer is low where a block that was not run may still come and take memory.
func TestTheFirstAnswer(t *testing.T) {
	for _, script := range []struct {
		name   string
		low    map[string]bool // case -> whether it is
		always bool            // the others are run every night
	}{
		{"testdata/ahead.py", map[string]bool{"derived": true, "by_chance": true, "sizes_of_a_tuple": true, "sizes_by_arithmetic": true}, true},
		{"testdata/ahead.py", map[string]bool{"counts_epochs": true, "another_epoch": true, "thaws_in_passing": true,
			// Sizes that a counter makes, without a branch.
			"part_of_a_sequence": true, "deeper": true}, false},
		{"testdata/ordinary.py", map[string]bool{"batch_warmup": true, "grows_layers": true}, true},
		{"testdata/ordinary.py", map[string]bool{"sequence_warmup": true, "adam_then_lbfgs": true, "stream_counts": true, "tokens_in_a_batch": true}, false},
		{"testdata/lapse.py", map[string]bool{"a_search": true}, true}, // by a library's loop
		{"testdata/found.py", map[string]bool{"grid_comprehended": true}, false},
		// By a loop in C, which has no frame of its own.
		{"testdata/sweeps.py", map[string]bool{"maps": true, "the_best_of_one": false}, true},
		{"testdata/sweeps.py", map[string]bool{"maps_a_lambda": true, "goes_through_a_map": true, "a_list_of_a_map": true}, false},
		{"testdata/usual.py", map[string]bool{"epochs": false, "gathers": false}, true},
		{"testdata/usual.py", map[string]bool{"step_counter": false, "slices": false}, false},
		{"testdata/later.py", map[string]bool{"grows_late": true, "validates_more_behind": true, "ordinary": false}, true},
	} {
		if !script.always && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		names := slices.Sorted(maps.Keys(script.low))
		outcomes := runEach(t, "2.6.0", script.name, names)
		for _, name := range names {
			o := outcomes[name]
			if e := o.estimate(t, trace.Stopped); o.failed || doubtsLater(e) != script.low[name] {
				t.Errorf("%s: failed %v, confidence %s, %q\n%s", name, o.failed, e.Confidence, reasonsText(e), o.output)
			}
		}
	}
}

// TestOtherProcessesAreWaitedFor: the first of several processes on one card to have seen enough does not end the others before they were seen.
func TestOtherProcessesAreWaitedFor(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // four starts of PyTorch
	}
	o := runPython(t, "2.6.0", 1, []string{"testdata/ahead.py", "four_processes"})
	e := o.estimate(t, trace.Stopped)
	all := len(e.Ranks) == 4 && e.HasReason("several_gpus")
	// On a busy machine PyTorch takes longer to be imported than anything is waited for; that is said.
	if o.failed || e.Confidence != estimator.Low || !all && !e.HasReason("phase_not_reached") {
		t.Errorf("failed %v, %d processes used the card, confidence %s, %q\n%s", o.failed, len(e.Ranks), e.Confidence, e.Reasons, o.output)
	}
}

// TestSettingsOfAPool: a process of a pool may be given larger settings than those that it was seen with.
func TestSettingsOfAPool(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // two starts of PyTorch
	}
	o := runPython(t, "2.6.0", 1, []string{"testdata/sweeps.py", "an_executor"}) // which fails, since its process has gone
	if e := o.estimate(t, trace.Stopped); e.Confidence != estimator.Low || !e.HasReason("phase_not_reached") {
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
