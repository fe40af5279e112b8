package check

// Line is one line of a history; times are Unix milliseconds. Which fields are set depends on Kind.
type Line struct {
	Kind string `json:"kind"` // submit, look, update, owner, start, fault, ready, exit, probe, row
	At   int64  `json:"at"`
	Job  uint32 `json:"job,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	// Asked is what the job asks for; of an update, what it asks for afterwards.
	Asked string `json:"asked,omitempty"`
	// Token and HoldMillis are what the daemon answered to a submission, empty and 0: nothing, in time.
	Token      string `json:"token,omitempty"`
	HoldMillis int64  `json:"hold_millis,omitempty"`
	TookMillis int64  `json:"took_millis,omitempty"`
	// Name is a fault, an act of the owner or a probe; On is set at the beginning of a fault.
	Name string `json:"name,omitempty"`
	On   bool   `json:"on,omitempty"`
	// Calm marks a submission at a time without faults, which must be answered, probed and changed.
	Calm bool `json:"calm,omitempty"`
	// The rest are of a row of the decision log.
	Finished bool     `json:"finished,omitempty"`
	Events   []Event  `json:"events,omitempty"`
	After    []string `json:"after,omitempty"` // what each decision to rewrite says that the job will ask for
	Probes   []string `json:"probes,omitempty"`
}

// Event is a transition in a row.
type Event struct {
	At    int64  `json:"at"`
	State string `json:"state"`
}

// Summary counts what was judged.
type Summary struct {
	Submitted, Held, Unanswered, Changed, Released, ByTime, Lost, Faults, Starts, Decided int
	SlowestReadyMillis, SlowestExitMillis, SlowestCalmMillis                              int64
}

// order is what may follow a state; each life of the daemon goes on where the one before ended.
var order = map[string]string{
	"held": "found abandoned", "stamped": "found abandoned", "found": "probing releasing abandoned shadowed", "probing": "probing reported releasing abandoned shadowed",
	"reported": "estimated abandoned", "estimated": "decided found releasing abandoned shadowed", "decided": "updating releasing shadowed", "updating": "updated releasing abandoned",
	"updated": "verified restoring abandoned", "restoring": "restored abandoned", "releasing": "released abandoned",
}

var last = []string{"verified", "restored", "released", "abandoned", "shadowed", "left_alone"}
