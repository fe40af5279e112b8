// Package decision holds the words in which decisions are kept: the verdicts, the codes of decisions and of events, and what each says to a person. It
// decides nothing itself, and knows neither the policy nor the log.
package decision

import (
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// Verdict is what is to be done with a job.
type Verdict string

// The verdicts: change the request; the request is right as it is; nothing can be said, so nothing is done.
const (
	Rewrite    Verdict = "rewrite"
	Keep       Verdict = "keep"
	LeaveAlone Verdict = "leave_alone"
)

// The kinds of a margin: the site's, at least what was seen, learnt from actual use, and the least that a learnt one may be.
const (
	MarginFixed      = "fixed"
	MarginSeen       = "seen"
	MarginCalibrated = "calibrated"
	MarginFloor      = "floor"
)

// Codes of what the policy decides.
const (
	CodeSmaller       = "smaller_row_fits"
	CodeNarrowed      = "row_chosen"
	CodeUpsized       = "larger_row_needed"
	CodeAlready       = "already_smallest"
	CodeConfidence    = "confidence_too_low"
	CodeFitsNothing   = "fits_nothing"
	CodeNeedsMore     = "needs_more_than_asked"
	CodeUnknownGPU    = "unknown_gpu"
	CodeInvalidAnswer = "invalid_estimate"
	CodeOtherCard     = "card_asked_by_name"
	CodeOutsideScope  = "outside_scope"
	// CodeHostMemory: the GPU is right, and less host memory suffices.
	CodeHostMemory = "host_memory_lowered"
	// CodePlanned: a card that is one size too small, with a plan under the job.
	CodePlanned = "smaller_with_a_plan"
	// CodeNoEstimate: a replay has no estimate on the card that it would choose.
	CodeNoEstimate = "no_estimate_on_card"
)

// Codes of jobs that are not tried.
const (
	CodeArray         = "array_job"
	CodePrefer        = "has_prefer"
	CodeExclusive     = "exclusive_node"
	CodeNodesNamed    = "nodes_named"
	CodeDependency    = "has_dependency"
	CodeReservation   = "in_reservation"
	CodeRoot          = "root_job"
	CodeCut           = "too_large"
	CodeOddName       = "odd_job_name"
	CodeOddScript     = "odd_script"
	CodeBusy          = "busy"
	CodeLogUnwritable = "log_unwritable"
	// CodeQueueUnreadable: the job was not held, since none is found.
	CodeQueueUnreadable = "queue_unreadable"
	// CodeProbesFailing: the job is not held, or no longer, since probes fail one after the other.
	CodeProbesFailing = "probes_failing"
	CodeDiedBefore    = "died_after_rewrite"
	CodeOwnersDeaths  = "owners_jobs_die"
)

// Codes of what happens to a job while it is held or watched.
const (
	CodeNeverSeen      = "never_seen"
	CodeAmbiguous      = "ambiguous_record"
	CodeChangedEarly   = "request_changed_at_submit"
	CodeOwnerReleased  = "owner_lifted_hold"
	CodeOwnerChanged   = "owner_changed_job"
	CodeOwnerCancelled = "job_ended"
	CodeHoldPassed     = "hold_passed"
	CodeClockSetBack   = "clock_set_back"
	CodeProbeQueue     = "probe_queue_full"
	CodeSpoolLost      = "spool_lost"
	CodeUpdateRefused  = "update_refused"
	CodeImpossible     = "impossible_on_this_cluster"
	CodeWaitedTooLong  = "waited_too_long"
	CodeLimit          = "limit_forbids"
	CodeModeChanged    = "mode_changed"
	CodeNextTask       = "array_next_task"
	CodeTriedAgain     = "tried_on_the_new_card"
	// CodeCardsDisagree: its estimates went from card to card.
	CodeCardsDisagree = "cards_disagree"
	// CodeFromCache: it was answered as an earlier job.
	CodeFromCache = "answered_from_cache"
	// CodeTriedWithPlan: a plan for the next smaller card is made and tried; CodeNoPlan: there is none, and the job gets what it would have got.
	CodeTriedWithPlan = "tried_with_a_plan"
	CodeNoPlan        = "no_plan"
	CodeRunning       = "running"
	CodeWaiting       = "waiting_with_nothing_wrong"
)

// Codes of events after the last state of a job.
const (
	CodeDied            = "out_of_memory_after_rewrite"
	CodeRequeued        = "requeued"
	CodeRequestRestored = "request_restored"
	CodeRequeueRefused  = "requeue_refused"
	// CodeSlowWithPlan: the job found its steps to be slower than the site wants.
	CodeSlowWithPlan = "slow_with_a_plan"
)

// words are the codes as a list says them.
var words = map[string]string{
	CodeSmaller: "a smaller card holds it", CodeNarrowed: "this card holds it", CodeUpsized: "it would die on what it asked for", CodeHostMemory: "less host memory holds it", CodePlanned: "a smaller card holds it with a plan",
	CodeAlready: "already the smallest", CodeConfidence: "not sure enough", CodeInvalidAnswer: "the estimate cannot be", CodeNeedsMore: "needs more than it asked for", CodeFitsNothing: "fits no card of the site",
	CodeUnknownGPU: "the card is not in the table", CodeOtherCard: "the card was asked for by name", CodeOutsideScope: "left out by the site",

	request.CodeConstraint: "its constraint is left alone", request.CodeSpelling: "the request is not understood", request.CodeSlurmVersion: "this Slurm cannot change it",
	request.CodeShardMemory: "shards with memory by the GPU", request.CodeInnerSrun: "an inner srun would fail", request.CodeSharesGPU: "shares a GPU", request.CodeSeveral: "several nodes",

	wire.SkipNoScript: "no script", wire.SkipCron: "scrontab", wire.SkipImmediate: "--immediate", wire.SkipHet: "heterogeneous job", wire.SkipDeadline: "has a deadline", wire.SkipOtherCluster: "for another cluster",
	wire.SkipBurstBuffer: "burst buffer", wire.SkipOnHold: "on hold", wire.SkipTokenPresent: "has a mark already", wire.SkipOptOut: "its owner opted out", wire.SkipScriptTooLarge: "script too large", wire.SkipNoGPU: "no GPU",

	CodeArray: "an array", CodeExclusive: "whole nodes", CodeNodesNamed: "nodes named", CodeDependency: "waits for another job", CodePrefer: "--prefer", CodeReservation: "in a reservation", CodeRoot: "of root",
	CodeCut: "too large", CodeOddName: "odd job name", CodeOddScript: "odd script", CodeBusy: "too many at once", CodeLogUnwritable: "the log could not be written", CodeQueueUnreadable: "the queue could not be read", CodeProbesFailing: "probes are failing",
	CodeDiedBefore: "the same job died before", CodeOwnersDeaths: "its owner's jobs keep dying",

	estimator.CodeProbeRefused: "the probe was refused", estimator.CodeProbeLost: "the probe was lost", CodeProbeQueue: "no place for a probe in time", CodeSpoolLost: "its script was lost",
	CodeChangedEarly: "changed by another filter", CodeClockSetBack: "the clock was set back", CodeOwnerReleased: "its owner lifted the hold", CodeOwnerChanged: "its owner changed it", CodeOwnerCancelled: "it ended",
	CodeHoldPassed: "its hold passed", CodeNeverSeen: "never seen", CodeAmbiguous: "its record is not certain", CodeNextTask: "the next task is tried", CodeTriedAgain: "is tried on the new card",
	CodeCardsDisagree: "the cards disagree", CodeUpdateRefused: "Slurm refused the change", CodeImpossible: "no node can run it", CodeLimit: "a limit stands against it", CodeWaitedTooLong: "waited too long",
	CodeTriedWithPlan: "is tried with a plan", CodeNoPlan: "no plan for a smaller card", CodeModeChanged: "the mode was changed", CodeFromCache: "as an earlier job",
}

// Words is a code in a few words; empty for one that is not known, such as a reason of an estimate.
func Words(code string) string { return words[code] }
