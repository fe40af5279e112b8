package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/e2e/check"
)

// slurmLog is what slurmctld wrote down of the jobs.
type slurmLog struct {
	lines []check.Line
	ended map[uint32]bool
}

var (
	slurmLine = regexp.MustCompile(`^\[([0-9T:.-]+)\] (.*)$`)
	slurmWord = regexp.MustCompile(`JobId=(\d+)`)
	// slurmTook is how long a request took; its line is written when it is over, and the job may have started by then.
	slurmTook = regexp.MustCompile(` usec=(\d+)$`)
)

// readSlurm reads slurmctld's log, in which every submission, update, start and end has its line.
func (c *chaos) readSlurm() slurmLog {
	c.t.Helper()
	file, err := os.Open(filepath.Join(c.real.Dir(), "log", "slurmctld.log"))
	must(c.t, err)
	defer file.Close()
	l := slurmLog{ended: map[uint32]bool{}}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := slurmLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		word := slurmWord.FindStringSubmatch(m[2])
		at, err := time.ParseInLocation("2006-01-02T15:04:05.000", m[1], time.Local)
		if word == nil || err != nil {
			continue
		}
		id64, _ := strconv.ParseUint(word[1], 10, 32)
		line := check.Line{At: at.UnixMilli(), Job: uint32(id64)}
		if took := slurmTook.FindStringSubmatch(m[2]); took != nil {
			micros, _ := strconv.ParseInt(took[1], 10, 64)
			line.At -= micros/1000 + 1
		}
		switch {
		case strings.Contains(m[2], "_slurm_rpc_submit_batch_job: JobId="):
			line.Kind = "submit"
		case strings.Contains(m[2], "_slurm_rpc_update_job: complete JobId="):
			line.Kind = "update"
		case strings.Contains(m[2], "sched: Allocate JobId="), strings.Contains(m[2], "_start_job: Started JobId="):
			line.Kind = "start"
		case strings.Contains(m[2], "_job_complete: JobId=") && strings.HasSuffix(m[2], " done"):
			l.ended[line.Job] = true
			continue
		default:
			continue
		}
		l.lines = append(l.lines, line)
	}
	must(c.t, lines.Err())
	return l
}

// allStarted waits until each job has ended, or has been started by slurmctld for a minute, which is long for what these jobs do, and then cancels it, so that the others have its place;
// it counts those. A slurmd that reads its configuration looks for munge at another place for a moment, and refuses what slurmctld sends: slurmctld believes for minutes that the job runs.
func (c *chaos) allStarted(ids map[uint32]int64, limit time.Duration) (neverBegun int) {
	c.t.Helper()
	given := map[uint32]bool{}
	waitUntil(c.t, limit, "every job to be started", func() bool {
		time.Sleep(time.Second)
		log := c.readSlurm()
		starts := map[uint32]int64{}
		for _, l := range log.lines {
			if l.Kind == "start" {
				starts[l.Job] = l.At
			}
		}
		open := 0
		for id := range ids {
			switch at, started := starts[id]; {
			case log.ended[id] || given[id]:
			case started && time.Since(time.UnixMilli(at)) > time.Minute:
				if out, err := c.real.Run(c.t.Context(), "root", "scancel", fmt.Sprint(id)); err != nil {
					c.t.Errorf("%v %s", err, out)
				}
				given[id] = true
			default:
				open++
			}
		}
		return open == 0
	})
	return len(given)
}
