package client

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gresize/gresize/slurm/request"
)

// Job is what Slurm says of one job.
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
	// NodeList is the node on which the batch script runs or ran; empty: it never began.
	NodeList string
	ExitCode string
	// Restarts is how often the job was requeued.
	Restarts int
	// RunTime is that of the present or last run.
	RunTime time.Duration
	// EligibleAt is the time before which the job does not start: its begin time while that lies ahead.
	EligibleAt   time.Time
	StartAt      time.Time
	AdminComment string
	// Request is what the job asks for. Its host memory may be that of each CPU: Slurm's list does not tell.
	Request request.Request
	// Ambiguous says that a value may be longer than its place in the list; such a record is not acted upon.
	Ambiguous bool
}

// Pending reports whether the job waits to start.
func (j Job) Pending() bool { return j.State == "PENDING" }

// Unexplained reports whether the reason for which the job waits is no answer to whether a node can run it. Slurm 23.11 and 24.05 without slurmdbd give no other.
func (j Job) Unexplained() bool { return j.Reason == "InvalidAccount" || j.Reason == "None" }

// Ended reports whether the job will not run any more. A state that is not known is not taken for an end: what waits for one has a time of its own.
func (j Job) Ended() bool { return endStates[j.State] }

// endStates are the ends among Slurm's states, the same from 20.11 to 26.05 (job_state_string in src/common/slurm_protocol_defs.c). All others, EXPEDITING (25.11) among them, are of
// jobs that wait, run, or are about to do either again.
var endStates = map[string]bool{"COMPLETED": true, "CANCELLED": true, "FAILED": true, "TIMEOUT": true, "NODE_FAIL": true, "PREEMPTED": true, "BOOT_FAIL": true, "DEADLINE": true, "OUT_OF_MEMORY": true, "REVOKED": true}

// tokenMark introduces the token that the plugin leaves in AdminComment.
const tokenMark = "gresize:v1:"

// Token returns the token that the plugin left in the job, or "". Only slurmctld's plugins and its operators write there.
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

// slurmTime is how Slurm prints a time when SLURM_TIME_FORMAT is unset; the child's TZ is UTC.
const slurmTime = "2006-01-02T15:04:05"

// parseRecord reads a line of as many bytes as the columns have together. ok is false when it describes no job.
func parseRecord(line []byte, columns []column) (j Job, ok bool) {
	values := make(map[string]string, len(columns))
	at := 0
	for _, c := range columns {
		value := string(bytes.TrimLeft(line[at:at+c.width], " "))
		at += c.width
		j.Ambiguous = j.Ambiguous || c.exact && len(value) == c.width
		if value == "(null)" || value == "N/A" || value == "n/a" {
			value = ""
		}
		values[c.name] = value
	}
	id, err := strconv.ParseUint(values["JobID"], 10, 32)
	if err != nil || id == 0 {
		return Job{}, false
	}
	// A user id above 2^31 is printed as a negative number before 26.05 (_print_job_user_id in src/squeue/print.c).
	uid, err := strconv.ParseInt(values["UserID"], 10, 64)
	if err != nil || uid < math.MinInt32 || uid > math.MaxUint32 {
		return Job{}, false
	}
	j.ID, j.UserID = uint32(id), uint32(uid)
	if array, _, isTask := strings.Cut(values["JobArrayID"], "_"); isTask {
		number, err := strconv.ParseUint(array, 10, 32)
		if err != nil {
			return Job{}, false
		}
		j.ArrayID = uint32(number)
	}
	j.Name, j.AdminComment = values["Name"], values["admin_comment"]
	j.State, j.Reason, j.Partition, j.NodeList, j.ExitCode = values["State"], values["Reason"], values["Partition"], values["BatchHost"], parseExit(values["exit_code"])
	j.Account, j.QOS = values["Account"], values["QOS"]
	j.Restarts, _ = strconv.Atoi(values["RestartCnt"])
	j.RunTime = parseElapsed(values["TimeUsed"])
	j.EligibleAt, j.StartAt = parseTime(values["EligibleTime"]), parseTime(values["StartTime"])
	j.Request = request.Request{
		TresPerNode: values["tres-per-node"], TresPerJob: values["tres-per-job"], TresPerSocket: values["tres-per-socket"], TresPerTask: values["tres-per-task"],
		MemPerTres: values["mem-per-tres"], CpusPerTres: values["cpus-per-tres"], Features: values["Feature"],
		MemPerNodeMiB: parseMiB(values["MinMemory"]),
	}
	return j, j.State != ""
}

// parseExit makes code:signal of an exit code: before 23.02 squeue prints the status of wait(2) (_print_job_exit_code in src/squeue/print.c).
func parseExit(text string) string {
	status, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return text
	}
	switch w := syscall.WaitStatus(status); {
	case w.Exited():
		return fmt.Sprintf("%d:0", w.ExitStatus())
	case w.Signaled():
		return fmt.Sprintf("0:%d", w.Signal())
	}
	return ""
}

// parseMiB reads 200M, 1.50G or 1T, as Slurm prints it: with two decimals where the unit is a larger one. 0 is what cannot be read.
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

// parseElapsed reads [days-][hours:]minutes:seconds; 0 when it is something else.
func parseElapsed(s string) time.Duration {
	days, clock, found := strings.Cut(s, "-")
	if !found {
		days, clock = "0", s
	}
	parts := strings.Split(clock, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
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
