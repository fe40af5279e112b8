package eval

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// MaxWorkers is how many runs may go on at once: more would disturb each other's times.
const MaxWorkers = 2

// Runner runs a workload on a virtual card as the recording says. An error means that nothing can be run at all; what becomes of
// the workload is in the bundle.
type Runner func(ctx context.Context, w Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error)

// Comparison is what is to be done.
type Comparison struct {
	Rows    []Row
	Methods []bundled.Method
	// Workers is 1 or 2.
	Workers int
	Run     Runner
	Answers *Answers
	// Again, when set, says of an answer that is there whether it is made once more.
	Again func(Answer) bool
	// Progress, when set, is told after each run how many of all have been done, and what came of it. It is called by one goroutine at a time.
	Progress func(done, all int, answers []Answer)
}

// job is one run and the estimators that are asked about it.
type job struct {
	workload  Workload
	recording trace.Recording
	methods   []bundled.Method
}

// codeFault is the reason of an answer that an estimator ended with an error instead of giving.
const codeFault = "estimator_fault"

// jobs are the runs that answers are missing for: of each workload one for each mode.
func (c *Comparison) jobs() []job {
	var jobs []job
	seen := map[Workload]bool{}
	rows := slices.Clone(c.Rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b2i(b.Fit), b2i(a.Fit)) }) // no other row can be judged before these
	for _, row := range rows {
		if row.Truth == Crash || seen[row.Workload] { // nothing can be said of a crash
			continue
		}
		seen[row.Workload] = true
		first := len(jobs)
		for _, m := range c.Methods {
			if a, done := c.Answers.Find(row.Workload, m.Name); done && a.Version == m.Version && (c.Again == nil || !c.Again(a)) {
				continue
			}
			jobs = addMethod(jobs, first, row.Workload, m)
		}
	}
	return jobs
}

// addMethod puts a method to the first of the workload's jobs whose run serves it, or to a new one.
func addMethod(jobs []job, first int, w Workload, m bundled.Method) []job {
	for i := first; i < len(jobs); i++ {
		if both, ok := jobs[i].recording.With(m.Recording); ok {
			jobs[i].recording, jobs[i].methods = both, append(jobs[i].methods, m)
			return jobs
		}
	}
	return append(jobs, job{w, m.Recording, []bundled.Method{m}})
}

// Do makes the missing answers. It returns with the first fault, or when the context ends; whatever was answered until then is in the file.
func (c *Comparison) Do(ctx context.Context) error {
	if c.Workers < 1 || c.Workers > MaxWorkers {
		return fmt.Errorf("%d workers, want 1 to %d", c.Workers, MaxWorkers)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := c.jobs()
	next := make(chan job)
	var lock sync.Mutex
	done := 0
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for j := range next {
				answers, err := c.answer(ctx, j)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", j.workload, err))
					return
				}
				lock.Lock()
				done++
				err = c.Answers.Append(answers...)
				if err == nil && c.Progress != nil {
					c.Progress(done, len(jobs), answers)
				}
				lock.Unlock()
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case next <- j:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// askOne asks an estimator. One that gives up in the middle costs its own answer and no other.
func askOne(m bundled.Method, b *trace.Bundle, card *gpu.Profile) (e estimator.Estimate, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("it panicked: %v", fault)
		}
	}()
	return m.FromBundle(b, card)
}

// answer makes one run and asks its estimators. A run that was interrupted gives no answers: they would say so for ever.
func (c *Comparison) answer(ctx context.Context, j job) ([]Answer, error) {
	card, err := gpu.Load(j.workload.GPU)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	bundle, err := c.Run(ctx, j.workload, card, j.recording)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	ran := time.Since(begun).Seconds()
	answers := make([]Answer, 0, len(j.methods))
	for _, m := range j.methods {
		begun := time.Now()
		e, err := askOne(m, bundle, card)
		if err != nil { // one estimator's fault is no reason to lose what the others say
			e = estimator.NewUnknown(m.Name, card.ID, estimator.Reason{Code: codeFault, Detail: err.Error()})
		}
		answers = append(answers, newAnswer(j.workload, m.Version, &e, ran, time.Since(begun).Seconds()))
	}
	return answers, nil
}
