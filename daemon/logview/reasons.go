package logview

import "github.com/gresize/gresize/estimator/printable"

// whyWords are the codes of decisions as a list says them.
var whyWords = map[string]string{
	"smaller_row_fits": "a smaller card holds it", "row_chosen": "this card holds it", "larger_row_needed": "it would die on what it asked for", "host_memory_lowered": "less host memory holds it",
	"already_smallest": "already the smallest", "confidence_too_low": "not sure enough", "invalid_estimate": "the estimate cannot be", "needs_more_than_asked": "needs more than it asked for", "fits_nothing": "fits no card of the site",
	"unknown_gpu": "the card is not in the table", "card_asked_by_name": "the card was asked for by name", "constraint_left_alone": "its constraint is left alone", "request_not_understood": "the request is not understood",
	"slurm_cannot_change": "this Slurm cannot change it", "shard_with_memory_per_gpu": "shards with memory by the GPU", "inner_srun_would_fail": "an inner srun would fail",
	"no_script": "no script", "cron": "scrontab", "immediate": "--immediate", "het": "heterogeneous job", "deadline": "has a deadline", "other_cluster": "for another cluster", "burst_buffer": "burst buffer", "on_hold": "on hold",
	"token_present": "has a mark already", "opt_out": "its owner opted out", "script_too_large": "script too large", "no_gpu": "no GPU",
	"shares_gpu": "shares a GPU", "several_gpus": "several nodes", "array_job": "an array", "exclusive_node": "whole nodes", "nodes_named": "nodes named", "has_dependency": "waits for another job", "has_prefer": "--prefer",
	"in_reservation": "in a reservation", "root_job": "of root", "too_large": "too large", "odd_job_name": "odd job name", "odd_script": "odd script", "busy": "too many at once", "log_unwritable": "the log could not be written", "queue_unreadable": "the queue could not be read",
	"outside_scope": "left out by the site", "probe_refused": "the probe was refused", "probe_lost": "the probe was lost", "probe_queue_full": "no place for a probe in time", "spool_lost": "its script was lost",
	"probes_failing": "probes are failing", "request_changed_at_submit": "changed by another filter", "clock_set_back": "the clock was set back", "owner_lifted_hold": "its owner lifted the hold", "owner_changed_job": "its owner changed it",
	"job_ended": "it ended", "hold_passed": "its hold passed", "never_seen": "never seen", "ambiguous_record": "its record is not certain", "array_next_task": "the next task is tried", "tried_on_the_new_card": "is tried on the new card",
	"cards_disagree": "the cards disagree", "update_refused": "Slurm refused the change", "impossible_on_this_cluster": "no node can run it", "limit_forbids": "a limit stands against it", "waited_too_long": "waited too long",
	"mode_changed": "the mode was changed", "answered_from_cache": "as an earlier job", "died_after_rewrite": "the same job died before", "owners_jobs_die": "its owner's jobs keep dying",
}

// Why is a code in a few words; one that is not known stays as it is.
func Why(code string) string {
	if words := whyWords[code]; words != "" {
		return words
	}
	return printable.Clip(Spaced(code), 60)
}
