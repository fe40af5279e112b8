// Package bench measures what the plugin costs a submission: sbatch to several
// clusters by turns, that differ in the plugin and its daemon alone. Its own
// benchmark uses a daemon that only answers; that of e2e the real one.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/slurm/minicluster"
)

// Lane is one cluster and the times of the submissions to it.
type Lane struct {
	Name    string
	Cluster *minicluster.Cluster
	// Check looks at the first job, whether the lane is what its name says. It may be nil.
	Check func(minicluster.Job) error
	took  []time.Duration
}

// script is 16 KiB of script, a large one.
var script = "#!/bin/sh\n" + strings.Repeat("# what this experiment is about, in many words\n", 348) + "exit 0\n"

// Submit times one sbatch of a GPU job that stays in the queue. It is an error
// when sbatch says anything but the job's number.
func (l *Lane) Submit(ctx context.Context) error {
	sbatch, err := l.Cluster.Command(ctx, minicluster.DefaultUser, "sbatch",
		"--parsable", "--gres=gpu:1", "--begin=now+1day", "--output=/dev/null")
	if err != nil {
		return err
	}
	sbatch.Stdin = strings.NewReader(script)
	var complaint strings.Builder
	sbatch.Stderr = &complaint
	start := time.Now()
	id, err := sbatch.Output()
	took := time.Since(start)
	if err == nil && complaint.Len() > 0 {
		err = errors.New("it is not silent")
	}
	if err != nil {
		return fmt.Errorf("%s: sbatch: %w: %s", l.Name, err, complaint.String())
	}
	l.took = append(l.took, took)
	if len(l.took) > 1 || l.Check == nil {
		return nil
	}
	job, err := l.Cluster.Job(ctx, strings.TrimSpace(string(id)))
	if err != nil {
		return err
	}
	if err := l.Check(job); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}

// Rounds submits one job to each lane in each round, in random order, so that
// whatever else the machine does falls on all alike, and pauses between rounds.
// Jobs before the first round of all are to warm up and do not count.
func Rounds(ctx context.Context, lanes []*Lane, rounds int, pause time.Duration) error {
	for _, l := range lanes {
		if len(l.took) > 0 {
			continue
		}
		if err := l.Submit(ctx); err != nil {
			return err
		}
		l.took[0] = 0
	}
	for range rounds {
		time.Sleep(pause)
		for _, i := range rand.Perm(len(lanes)) {
			if err := lanes[i].Submit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted are the times without that of the job that warmed up.
func (l *Lane) counted() []time.Duration { return l.took[1:] }

// Quantile returns the q-quantile of the durations.
func Quantile(durations []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// AddedMedian is the median over the rounds of what the lane took more than the
// base did in the same round.
func (l *Lane) AddedMedian(base *Lane) time.Duration {
	added := slices.Clone(l.counted())
	for i := range added {
		added[i] -= base.counted()[i]
	}
	return Quantile(added, 0.5)
}

var submitRPC = regexp.MustCompile(`REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:\d+\s+ave_time:(\d+)`)

// rpcAverage is slurmctld's own clock around a submission, without the client.
func (l *Lane) rpcAverage(ctx context.Context) (time.Duration, error) {
	text, err := l.Cluster.Run(ctx, "root", "sdiag")
	if err != nil {
		return 0, err
	}
	match := submitRPC.FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("%s: sdiag says nothing of submissions:\n%s", l.Name, text)
	}
	micros, err := strconv.Atoi(match[1])
	return time.Duration(micros) * time.Microsecond, err
}

// Table compares the lanes with the first one.
func Table(ctx context.Context, lanes []*Lane) (string, error) {
	base := lanes[0]
	baseRPC, err := base.rpcAverage(ctx)
	if err != nil {
		return "", err
	}
	baseMedian := Quantile(base.counted(), 0.5)
	var table strings.Builder
	fmt.Fprintf(&table, "%-16s %5s %11s %9s %15s %15s %12s %12s\n", "sbatch", "n", "median ms", "p99 ms",
		"median - base", "paired median", "RPC mean ms", "RPC - base")
	for _, l := range lanes {
		rpc, err := l.rpcAverage(ctx)
		if err != nil {
			return "", err
		}
		median := Quantile(l.counted(), 0.5)
		fmt.Fprintf(&table, "%-16s %5d %11.2f %9.2f %+15.2f %+15.2f %12.2f %+12.2f\n", l.Name, len(l.counted()),
			Millis(median), Millis(Quantile(l.counted(), 0.99)), Millis(median-baseMedian), Millis(l.AddedMedian(base)),
			Millis(rpc), Millis(rpc-baseRPC))
	}
	return table.String(), nil
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
