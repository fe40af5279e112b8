package actuals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
)

const (
	// sacctJobs are asked for in one request.
	sacctJobs     = 200
	sacctLimit    = 30 * time.Second
	maxSacctBytes = 8 << 20
	// sacctSince is how far back jobs are asked for.
	sacctSince = 30 * 24 * time.Hour
)

// sacctFields have no text of a user in them.
const sacctFields = "JobIDRaw,UID,State,ExitCode,ElapsedRaw,AllocTRES,TRESUsageInMax"

// accounted is one job in Slurm's accounting.
type accounted struct {
	JobID, UID  uint32
	State, Exit string
	Elapsed     time.Duration
	GPUs        int64
	PeakBytes   int64
}

// parseSacct reads the lines of sacct --parsable2 --noconvert: one of each job, and those of its steps, of which the largest peak counts.
func parseSacct(out string) []accounted {
	var all []accounted
	at := map[uint32]int{}
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(cells) != 7 {
			continue
		}
		name, _, isStep := strings.Cut(cells[0], ".")
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			continue
		}
		i, known := at[uint32(id)]
		if !known {
			uid, err := strconv.ParseUint(cells[1], 10, 32)
			elapsed, err2 := strconv.ParseUint(cells[4], 10, 31)
			if isStep || err != nil || err2 != nil {
				continue
			}
			state, _, _ := strings.Cut(cells[2], " ") // "CANCELLED by 1001"
			i = len(all)
			at[uint32(id)] = i
			all = append(all, accounted{JobID: uint32(id), UID: uint32(uid), State: state, Exit: cells[3], Elapsed: time.Duration(elapsed) * time.Second, GPUs: tres(cells[5], "gres/gpu")})
		}
		if peak := tres(cells[6], "gres/gpumem"); peak >= leastPeakBytes && peak <= estimator.MaxBytes {
			all[i].PeakBytes = max(all[i].PeakBytes, peak)
		}
	}
	return all
}

// leastPeakBytes is less than any CUDA context: a smaller number has another unit than bytes, or was sampled before there was one.
const leastPeakBytes = 1 << 20

// tres is one count of a list such as cpu=8,gres/gpu=1,mem=4G; 0 when it is not there.
func tres(list, name string) int64 {
	for entry := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != name || value == "" {
			continue
		}
		scale := 1.0
		if i := strings.IndexByte("KMGT", value[len(value)-1]); i >= 0 {
			scale, value = float64(int64(1)<<(10*(i+1))), value[:len(value)-1]
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !(n >= 0) || n*scale > float64(estimator.MaxBytes) {
			return 0
		}
		return int64(n * scale)
	}
	return 0
}

// Sacct asks Slurm's accounting.
type Sacct struct {
	Path, ConfPath string
	Every          time.Duration
}

func (s Sacct) ask(ctx context.Context, ids []uint32) ([]accounted, error) {
	defer heartbeat.Call(ctx, sacctLimit)()
	ctx, cancel := context.WithTimeout(ctx, sacctLimit)
	defer cancel()
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatUint(uint64(id), 10)
	}
	command := exec.CommandContext(ctx, s.Path, "--noheader", "--parsable2", "--noconvert", "--allusers", "--jobs="+strings.Join(words, ","), "--format="+sacctFields)
	command.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=/usr/bin:/bin"}
	if s.ConfPath != "" {
		command.Env = append(command.Env, "SLURM_CONF="+s.ConfPath)
	}
	command.WaitDelay = time.Second
	var stderr bytes.Buffer
	command.Stderr = &stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	out, readErr := io.ReadAll(io.LimitReader(pipe, maxSacctBytes+1))
	if len(out) > maxSacctBytes {
		cancel()
		readErr = fmt.Errorf("more than %d bytes", maxSacctBytes)
	}
	if err := errors.Join(readErr, command.Wait()); err != nil {
		return nil, fmt.Errorf("sacct: %w: %.200s", err, stderr.String())
	}
	return parseSacct(string(out)), nil
}

// Account asks Slurm's accounting for jobs of which it has not spoken, one request in each interval, until ctx ends.
func (k *Keeper) Account(ctx context.Context, s Sacct) {
	if s.Every == 0 {
		return
	}
	var after int64
	failing := false
	beat := k.config.Heartbeat.Begin("the loop over Slurm's accounting", turn)
	defer beat.End()
	ctx = heartbeat.With(ctx, beat)
	for {
		beat.Wait(s.Every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Every):
		}
		beat.Turn()
		next, err := k.account(ctx, s.ask, after)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			k.config.Logger.Error("Slurm's accounting does not answer; what jobs took is not learnt from it", "error", err)
		case err == nil && failing:
			k.config.Logger.Info("Slurm's accounting answers again")
		}
		if failing = err != nil; !failing {
			after = next
		}
	}
}

func (k *Keeper) account(ctx context.Context, ask func(context.Context, []uint32) ([]accounted, error), after int64) (next int64, err error) {
	ids, next, err := k.config.Log.AwaitingAccounting(ctx, time.Now().Add(-sacctSince), after, sacctJobs)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	jobs, err := ask(ctx, ids)
	if err != nil {
		return after, err
	}
	for _, j := range jobs {
		outcome := decisionlog.Failed
		switch {
		case j.State == "COMPLETED":
			outcome = decisionlog.Completed
		case !(client.Job{State: j.State}).Ended():
			continue
		}
		story, err := k.config.Log.StoryOfOwner(ctx, j.JobID, j.UID)
		if errors.Is(err, decisionlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return after, err
		}
		seconds := int64(j.Elapsed/time.Second) * max(j.GPUs, 1)
		a := decisionlog.Actual{At: time.Now(), Source: decisionlog.SacctGPUMem, Outcome: outcome, ElapsedGPUSeconds: &seconds, PeakBytes: j.PeakBytes}
		_, a.AfterRewrite = change(story)
		if code, signal, ok := exitOf(j.Exit); ok {
			a.ExitCode, a.Signal = &code, &signal
		}
		if j.State != "COMPLETED" && j.State != "FAILED" {
			a.Detail = "Slurm says " + j.State
		}
		if err := k.record(ctx, story, a); err != nil {
			return after, err
		}
	}
	return next, nil
}
