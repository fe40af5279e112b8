// Package wire is the Go side of the protocol between the job_submit plugin and
// gresized: one request, one reply, described in FORMAT.md. It knows bytes and
// limits; what a request means is for others to say.
package wire

// TokenPrefix stands before the token in the AdminComment of a held job.
const TokenPrefix = "gresize:v1:"

// Flags are yes-or-no properties of a submitted job.
type Flags uint64

// The flags of a request. A bit that no constant names is refused.
const (
	FlagExclusive     Flags = 1 << iota // --exclusive: whole nodes
	FlagOversubscribe                   // --oversubscribe
	FlagRequeue                         // --requeue
	FlagNoRequeue                       // --no-requeue; neither: the site's default
	FlagOvercommit                      // --overcommit
	FlagContiguous                      // --contiguous

	knownFlags = FlagContiguous<<1 - 1
)

// Bits and sentinels that Slurm keeps inside its numbers.
const (
	// MemoryPerCPU marks in PnMinMemory that the value is MiB per CPU.
	MemoryPerCPU = uint64(1) << 63
	// InfiniteMinutes is TimeLimit for "no limit".
	InfiniteMinutes = uint32(0xffffffff)
)

// Request is what the plugin tells about a job that is being submitted. Text
// is bytes without a promise of UTF-8; it holds no NUL; an unset text is empty.
// A number that the user did not give is nil. It may hold secrets of the user
// (Environment, Script): never log it whole.
type Request struct {
	SlurmVersion uint32 // SLURM_VERSION_NUMBER of the controller, 0x160508 is 22.05.8
	SubmitUID    uint32 // who called sbatch, as Slurm authenticated it
	UserID       uint32 // whose job it will be
	GroupID      uint32
	Flags        Flags
	BeginTime    uint64 // Unix seconds, 0 when not given
	Deadline     uint64 // Unix seconds, 0 when not given

	Name          string
	Partition     string
	Account       string
	QOS           string
	Reservation   string
	Features      string
	Prefer        string // empty on releases that lack it
	TresPerJob    string
	TresPerNode   string
	TresPerSocket string
	TresPerTask   string
	CPUsPerTres   string
	MemPerTres    string
	ArrayInx      string
	Comment       string
	AdminComment  string
	Dependency    string
	Licenses      string
	WorkDir       string
	ReqNodes      string
	ExcNodes      string

	// SkipReason is set for a job that asks for a GPU and that the plugin leaves
	// alone whatever the answer is: the daemon notes why and answers with a pass.
	// It is one of the Skip constants, or one that a newer plugin knows. Argv,
	// Script and Environment are empty then.
	SkipReason string

	PnMinMemory   *uint64 // MiB per node, or MiB per CPU with MemoryPerCPU set; 0 means the whole node
	PnMinCPUs     *uint32
	MinCPUs       *uint32
	MinNodes      *uint32
	MaxNodes      *uint32
	NumTasks      *uint32
	CPUsPerTask   *uint32
	NtasksPerNode *uint32
	NtasksPerTres *uint32
	TimeLimit     *uint32 // minutes, InfiniteMinutes for none
	Priority      *uint32

	Argv        []string // cut at MaxArgvBytes
	ArgvTotal   uint32   // entries before the cut
	Script      string   // cut at MaxScriptBytes
	ScriptTotal uint64   // bytes before the cut
	Environment []string // NAME=value, cut at MaxEnvironmentBytes

	EnvironmentTotal uint32 // entries before the cut
}

// ScriptCut says whether the script was longer than what arrived.
func (r *Request) ScriptCut() bool { return r.ScriptTotal > uint64(len(r.Script)) }

// ArgvCut says whether there were more arguments than arrived.
func (r *Request) ArgvCut() bool { return uint64(r.ArgvTotal) > uint64(len(r.Argv)) }

// EnvironmentCut says whether there were more variables than arrived.
func (r *Request) EnvironmentCut() bool {
	return uint64(r.EnvironmentTotal) > uint64(len(r.Environment))
}

// Why the plugin leaves a job alone.
const (
	SkipNoScript       = "no_script"        // srun, salloc
	SkipCron           = "cron"             // scrontab: Slurm refuses updates
	SkipImmediate      = "immediate"        // --immediate
	SkipHet            = "het"              // a component of a heterogeneous job
	SkipDeadline       = "deadline"         // --deadline
	SkipOtherCluster   = "other_cluster"    // --clusters, a federation
	SkipBurstBuffer    = "burst_buffer"     //
	SkipOnHold         = "on_hold"          // --hold
	SkipTokenPresent   = "token_present"    // AdminComment carries a token already
	SkipOptOut         = "opt_out"          // its owner said gresize off
	SkipScriptTooLarge = "script_too_large" // over 16 MiB
	SkipNoGPU          = "no_gpu"           // no GPU asked for; told only when the site wants it
)

// Verdict is what the plugin is to do with the job.
type Verdict uint32

// The verdicts. There is no reject: gresize never refuses a job.
const (
	VerdictPass    Verdict = 1 // leave the job exactly as it is
	VerdictRewrite Verdict = 2 // change the fields in Rewrite
	VerdictHold    Verdict = 3 // keep the job back, stamp the token, apply Rewrite if any
)

// Rewrite names the job fields that the plugin may write. nil leaves a field
// alone; a pointer to "" clears it.
type Rewrite struct {
	Features      *string
	TresPerJob    *string
	TresPerNode   *string
	TresPerSocket *string
	TresPerTask   *string
	CPUsPerTres   *string
	MemPerTres    *string
	PnMinMemory   *uint64 // as in Request
	PnMinCPUs     *uint32
	MinCPUs       *uint32
}

// Reply is the daemon's answer.
type Reply struct {
	Verdict     Verdict
	HoldSeconds uint32   // at most MaxHoldSeconds, 0 stamps the token only; always 0 without VerdictHold
	Token       string   // [A-Za-z0-9_-], with VerdictHold only
	EnvDrop     []string // names of variables to take out, with VerdictHold only
	Rewrite     Rewrite
}
