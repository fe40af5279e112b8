// Package jobs owns the life of a job that gresize looks after: an explicit
// state machine whose every transition is a row of the decision log before the
// action that it announces. A daemon that dies in any state goes on from the
// log. Whatever it cannot do, it leaves to time: a held job starts by itself,
// as its owner asked, when its hold is over.
package jobs

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
