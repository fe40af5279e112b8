// Package jobs owns the life of a job that gresize looks after: an explicit
// state machine whose every transition is a row of the decision log before the
// action that it announces. A daemon that dies in any state goes on from the
// log. Whatever it cannot do, it leaves to time: a held job starts by itself,
// as its owner asked, when its hold is over.
package jobs

import (
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// The states of a job, in the order in which they are usually passed. A row with a state means that the state was
// reached, and that the action that it announces may have been begun.
const (
	// StateHeld: the plugin was told to hold the job and to stamp the token. Next: find it in the queue.
	StateHeld = "held"
	// StateStamped: as held, in shadow mode: the job carries the token and starts when it likes.
	StateStamped = "stamped"
	// StateFound: the token was seen on a job of the right owner, or it is to be tried on another card. Next: wait for a free place among the probes.
	StateFound = "found"
	// StateProbing: gresize-launch is asked, or was, to submit a probe. Next: its report.
	StateProbing = "probing"
	// StateReported: a bundle arrived and is on disk. Next: the estimate.
	StateReported = "reported"
	// StateEstimated: the estimate is known. Next: the decision.
	StateEstimated = "estimated"
	// StateDecided: the decision is known. Next: the update or the release.
	StateDecided = "decided"
	// StateUpdating: the update that changes and releases the job is sent, or was.
	StateUpdating = "updating"
	// StateUpdated: the job was seen with its new request. Next: watch whether it can start.
	StateUpdated = "updated"
	// StateRestoring: the new request can never start; the original is sent, or was.
	StateRestoring = "restoring"
	// StateReleasing: the release without a change is sent, or was.
	StateReleasing = "releasing"
)

// The last states. A job in one of them is never touched again.
const (
	// StateVerified: the changed job runs, or waits with nothing wrong at the end of the watch.
	StateVerified = "verified"
	// StateRestored: the job has its original request again.
	StateRestored = "restored"
	// StateReleased: the job was let go as its owner asked.
	StateReleased = "released"
	// StateAbandoned: the job left our hands: its owner acted, it was never seen, or its hold passed.
	StateAbandoned = "abandoned"
	// StateShadowed: shadow mode has recorded what would have been done.
	StateShadowed = "shadowed"
	// StateLeftAlone: the job was never held, with the reason.
	StateLeftAlone = "left_alone"
)

// Every state, for tests and documents.
var (
	OpenStates = []string{StateHeld, StateStamped, StateFound, StateProbing, StateReported, StateEstimated, StateDecided, StateUpdating, StateUpdated, StateRestoring, StateReleasing}
	LastStates = []string{StateVerified, StateRestored, StateReleased, StateAbandoned, StateShadowed, StateLeftAlone}
)

// CodeLooksSpent is the code of a job whose estimates went from card to card.
const CodeLooksSpent = "cards_disagree"

// CodeFromCache is the code of a job that was answered as an earlier one.
const CodeFromCache = "answered_from_cache"

// CodeProbesFailing is the code of a job that was not held, or no longer, since probes fail one after the other.
const CodeProbesFailing = "probes_failing"

// reasonNoSandbox is the reason of an estimate without a run: the node of the probe has no sandbox.
const reasonNoSandbox = "no_sandbox"

// ReasonReaderEnded is the reason of an estimate whose bundle ended the process that read it.
const ReasonReaderEnded = "reader_ended"

// Codes of events and decisions made here, kept in the log. Codes of decisions are also in packages policy and request.
const (
	codeNoGPU         = wire.SkipNoGPU
	codeNoScript      = wire.SkipNoScript
	codeSharesGPU     = request.CodeSharesGPU
	codeSeveralGPUs   = "several_gpus"
	codeNotUnderstood = "request_not_understood"
	codeArray         = "array_job"
	codePrefer        = "has_prefer"
	codeDeadline      = wire.SkipDeadline
	codeExclusive     = "exclusive_node"
	codeNodesNamed    = "nodes_named"
	codeDependency    = "has_dependency"
	codeReservation   = "in_reservation"
	codeUserHold      = wire.SkipOnHold
	codeRoot          = "root_job"
	codeCut           = "too_large"
	codeOddName       = "odd_job_name"
	codeOddScript     = "odd_script"
	codeOptedOut      = wire.SkipOptOut
	codeBusy          = "busy"
	codeLogUnwritable = "log_unwritable"
	// codeQueueUnreadable is the code of a job that was not held, since none is found.
	codeQueueUnreadable = "queue_unreadable"
	codeNeverSeen       = "never_seen"
	codeAmbiguous       = "ambiguous_record"
	codeChangedEarly    = "request_changed_at_submit"
	codeOwnerReleased   = "owner_lifted_hold"
	codeOwnerChanged    = "owner_changed_job"
	codeOwnerCancelled  = "job_ended"
	codeHoldPassed      = "hold_passed"
	codeClockSetBack    = "clock_set_back"
	codeProbeRefused    = "probe_refused"
	codeProbeLost       = "probe_lost"
	codeProbeQueue      = "probe_queue_full"
	codeSpoolLost       = "spool_lost"
	codeUpdateRefused   = "update_refused"
	codeImpossible      = "impossible_on_this_cluster"
	codeWaitedTooLong   = "waited_too_long"
	codeLimit           = "limit_forbids"
	codeModeChanged     = "mode_changed"
	codeDiedBefore      = "died_after_rewrite"
	codeOwnersDeaths    = "owners_jobs_die"
	codeLookAgain       = "tried_on_the_new_card"
	codeRunning         = "running"
	codeWaiting         = "waiting_with_nothing_wrong"
)
