package client

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gresize/gresize/slurm/request"
)

// Job is what `scontrol show job -o` says of one job.
type Job struct {
	ID uint32
	// ArrayID is the id of the job array of which this is a task, or the whole; 0: of none. Tasks that have not begun share the record with that id.
	ArrayID   uint32
	Name      string
	UserID    uint32
	State     string
	Reason    string
	Partition string
	Account   string
	QOS       string
	NodeList  string
	ExitCode  string
	// StdOut and StdErr are the files of a batch job's output, as its owner named them.
	StdOut, StdErr string
	// Restarts is how often the job was requeued.
	Restarts int
	// RunTime is that of the present or last run.
	RunTime time.Duration
	// EligibleAt is the time before which the job does not start: its begin time while that lies ahead.
	EligibleAt   time.Time
	StartAt      time.Time
	AdminComment string
	Request      request.Request
	// Ambiguous says that a key stands twice on the line or that the record has several lines, as when a job is named to look like
	// another one; such a record is not acted upon.
	Ambiguous bool
}

// Pending reports whether the job waits to start.
func (j Job) Pending() bool { return j.State == "PENDING" }

// Ended reports whether the job will not run any more. A state that is not known is not taken for an end: what waits for one has a time of its own.
func (j Job) Ended() bool { return endStates[j.State] }

// endStates are the ends among Slurm's states, the same from 20.11 to 26.05 (job_state_string in src/common/slurm_protocol_defs.c). All others, EXPEDITING (25.11) among them, are of
// jobs that wait, run, or are about to do either again.
var endStates = map[string]bool{"COMPLETED": true, "CANCELLED": true, "FAILED": true, "TIMEOUT": true, "NODE_FAIL": true, "PREEMPTED": true, "BOOT_FAIL": true, "DEADLINE": true, "OUT_OF_MEMORY": true, "REVOKED": true}

// tokenMark introduces the token that the plugin leaves in AdminComment.
const tokenMark = "gresize:v1:"

// Token returns the token that the plugin left in the job, or "".
func (j Job) Token() string {
	_, rest, found := strings.Cut(j.AdminComment, tokenMark)
	if !found {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
	if end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// knownKeys are the keys that are read, and those that end a value with blanks in it.
var knownKeys = map[string]bool{
	"JobId": true, "ArrayJobId": true, "ArrayTaskId": true, "JobName": true, "UserId": true, "GroupId": true, "JobState": true, "Reason": true, "EligibleTime": true, "StartTime": true,
	"Partition": true, "Account": true, "QOS": true, "NodeList": true, "ExitCode": true, "Restarts": true, "RunTime": true, "Features": true, "MinMemoryNode": true, "Command": true, "WorkDir": true, "AdminComment": true, "SystemComment": true,
	"Comment": true, "StdErr": true, "StdIn": true, "StdOut": true, "Power": true, "Extra": true, "Container": true, "CpusPerTres": true, "MemPerTres": true,
	"TresPerJob": true, "TresPerNode": true, "TresPerSocket": true, "TresPerTask": true, "MailUser": true, "MailType": true, "TresBind": true, "TresFreq": true,
}

// slurmTime is how scontrol prints a time when SLURM_TIME_FORMAT is unset; the child's TZ is UTC.
const slurmTime = "2006-01-02T15:04:05"

// ParseJob reads one line of `scontrol show job -o`. ok is false when the line describes no job.
func ParseJob(line []byte) (j Job, ok bool) {
	line = bytes.TrimRight(line, "\r\n ")
	if !bytes.HasPrefix(line, []byte("JobId=")) {
		return Job{}, false
	}
	values := make(map[string]string, len(knownKeys))
	key, start := "", 0
	take := func(end int) {
		if key == "" {
			return
		}
		if _, twice := values[key]; twice {
			j.Ambiguous = true
			return
		}
		values[key] = string(line[start:end])
	}
	for i := 0; i < len(line); {
		word := line[i:]
		if end := bytes.IndexByte(word, ' '); end >= 0 {
			word = word[:end]
		}
		if eq := bytes.IndexByte(word, '='); eq > 0 && knownKeys[string(word[:eq])] {
			take(max(i-1, 0))
			key, start = string(word[:eq]), i+eq+1
		}
		i += len(word) + 1
	}
	take(len(line))

	// first cuts what an unknown key of another release may have left behind a value that has no blanks.
	first := func(k string) string {
		v, _, _ := strings.Cut(values[k], " ")
		if v == "(null)" || v == "N/A" {
			return ""
		}
		return v
	}
	id, err := strconv.ParseUint(first("JobId"), 10, 32)
	if err != nil {
		return Job{}, false
	}
	uid, ok := numberInParentheses(first("UserId"))
	if !ok {
		return Job{}, false
	}
	j.ID, j.UserID = uint32(id), uid
	if array, err := strconv.ParseUint(first("ArrayJobId"), 10, 32); err == nil {
		j.ArrayID = uint32(array)
	}
	j.Name, j.AdminComment = values["JobName"], values["AdminComment"]
	j.State, j.Reason, j.Partition, j.NodeList, j.ExitCode = first("JobState"), first("Reason"), first("Partition"), first("NodeList"), first("ExitCode")
	j.Account, j.QOS = first("Account"), first("QOS")
	j.StdOut, j.StdErr = values["StdOut"], values["StdErr"]
	j.Restarts, _ = strconv.Atoi(first("Restarts"))
	j.RunTime = parseElapsed(first("RunTime"))
	j.EligibleAt, j.StartAt = parseTime(first("EligibleTime")), parseTime(first("StartTime"))
	j.Request = request.Request{
		TresPerNode: first("TresPerNode"), TresPerJob: first("TresPerJob"), TresPerSocket: first("TresPerSocket"), TresPerTask: first("TresPerTask"),
		MemPerTres: first("MemPerTres"), CpusPerTres: first("CpusPerTres"), Features: first("Features"),
		MemPerNodeMiB: parseMiB(first("MinMemoryNode")),
	}
	return j, j.State != ""
}

// PlainName reports whether a job of this name has a record that can be read with certainty.
func PlainName(name string) bool {
	j, ok := ParseJob([]byte("JobId=1 JobName=" + name + " UserId=u(1) JobState=PENDING"))
	return ok && !j.Ambiguous && j.Name == name && !strings.ContainsFunc(name, unicode.IsControl)
}

// numberInParentheses reads 1001 out of alice(1001); a name may itself hold parentheses.
func numberInParentheses(s string) (uint32, bool) {
	open := strings.LastIndexByte(s, '(')
	if open < 0 || !strings.HasSuffix(s, ")") {
		return 0, false
	}
	n, err := strconv.ParseUint(s[open+1:len(s)-1], 10, 32)
	return uint32(n), err == nil
}

// parseMiB reads 200M, 1.50G or 1T, as scontrol prints it: with two decimals where the unit is a larger one. 0 is what cannot be read.
func parseMiB(s string) uint64 {
	unit, found := map[string]float64{"M": 1, "G": 1 << 10, "T": 1 << 20}[s[max(len(s)-1, 0):]]
	if !found {
		return 0
	}
	n, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if err != nil || !(n >= 0 && n < 1<<40) {
		return 0
	}
	return uint64(math.Round(n * unit))
}

func parseTime(s string) time.Time {
	t, err := time.ParseInLocation(slurmTime, s, time.UTC)
	if err != nil {
		return time.Time{}
	}
	return t
}

// parseElapsed reads [days-]hours:minutes:seconds; 0 when it is something else.
func parseElapsed(s string) time.Duration {
	days, clock, found := strings.Cut(s, "-")
	if !found {
		days, clock = "0", s
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return 0
	}
	var total time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, err := strconv.ParseUint(append([]string{days}, parts...)[i], 10, 20)
		if err != nil {
			return 0
		}
		total += time.Duration(n) * unit
	}
	return total
}
