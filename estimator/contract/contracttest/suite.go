// Package contracttest is the contract suite: what every estimator plugin must do, asked of the running program. Authors run it
// with `gresize estimator check`, and this repository on the estimators that it brings.
package contracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/gpu"
)

// Subject is the plugin that is looked at and what it is asked.
type Subject struct {
	Command contract.Command
	// Bundle is a sound trace bundle that was recorded on Card.
	Bundle string
	Card   *gpu.Profile
	// Deadline is the time for one call; 0: ten seconds.
	Deadline time.Duration
	// Scratch is a folder for damaged bundles.
	Scratch string
}

// Result is the outcome of one case; Err is nil where the plugin keeps the contract.
type Result struct {
	Case string
	Err  error
}

// cases are in an order in which the first to fail says most.
var cases = []struct {
	name string
	run  func(ctx context.Context, s Subject, c *contract.Client) error
}{
	{"answers", answers},
	{"answers again the same", repeats},
	{"answers four at once", parallel},
	{"gives no number for a bundle cut short", cutShort},
	{"gives no number for a bundle that is noise", noise},
	{"gives no number for no bundle", noBundle},
	{"ends when asked", ends},
}

// Check runs all cases, each on a process of its own. It returns one result for each case.
func Check(ctx context.Context, s Subject) []Result {
	if s.Deadline == 0 {
		s.Deadline = 10 * time.Second
	}
	results := make([]Result, 0, len(cases))
	for _, c := range cases {
		results = append(results, Result{c.name, checkOne(ctx, s, c.run)})
	}
	return results
}

func checkOne(ctx context.Context, s Subject, run func(context.Context, Subject, *contract.Client) error) error {
	command := s.Command
	command.Reads = append(slices.Clone(command.Reads), filepath.Dir(s.Bundle), s.Scratch)
	client, err := contract.Start(ctx, command)
	if err != nil {
		return err
	}
	defer client.Close()
	return run(ctx, s, client)
}

func ask(ctx context.Context, s Subject, c *contract.Client, bundle string) (estimator.Estimate, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	return c.Estimate(ctx, contract.NewRequest(bundle, s.Card))
}

func answers(ctx context.Context, s Subject, c *contract.Client) error {
	_, err := ask(ctx, s, c, s.Bundle)
	return err
}

func repeats(ctx context.Context, s Subject, c *contract.Client) error {
	var first []byte
	for range 3 {
		e, err := ask(ctx, s, c, s.Bundle)
		if err != nil {
			return err
		}
		e.WallSeconds = 0 // a measurement, not an answer
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if first != nil && !bytes.Equal(first, text) {
			return fmt.Errorf("two answers to one question: %.500s and %.500s", first, text)
		}
		first = text
	}
	return nil
}

func parallel(ctx context.Context, s Subject, c *contract.Client) error {
	faults := make([]error, 4)
	var wait sync.WaitGroup
	for i := range faults {
		wait.Go(func() { _, faults[i] = ask(ctx, s, c, s.Bundle) })
	}
	wait.Wait()
	return errors.Join(faults...)
}

func cutShort(ctx context.Context, s Subject, c *contract.Client) error {
	data, err := os.ReadFile(s.Bundle)
	if err != nil {
		return err
	}
	return noNumber(ctx, s, c, data[:len(data)/2])
}

func noise(ctx context.Context, s Subject, c *contract.Client) error {
	return noNumber(ctx, s, c, bytes.Repeat([]byte{0xff, 0x00, '{', '['}, 1<<14))
}

// noNumber asks about a damaged bundle, and about the sound one after it: a bad question must not spoil a good one.
func noNumber(ctx context.Context, s Subject, c *contract.Client, data []byte) error {
	path := filepath.Join(s.Scratch, "damaged.bundle")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return refuses(ctx, s, c, path)
}

func noBundle(ctx context.Context, s Subject, c *contract.Client) error {
	return refuses(ctx, s, c, filepath.Join(s.Scratch, "no-such.bundle"))
}

func refuses(ctx context.Context, s Subject, c *contract.Client, path string) error {
	e, err := ask(ctx, s, c, path)
	switch {
	case err == nil && e.Confidence != estimator.Unknown:
		return fmt.Errorf("a number with confidence %s for a bundle that cannot be read", e.Confidence)
	case err != nil && !errors.Is(err, contract.ErrRefused):
		return err
	}
	if _, err := ask(ctx, s, c, s.Bundle); err != nil {
		return fmt.Errorf("after a bundle that cannot be read: %w", err)
	}
	return nil
}

func ends(ctx context.Context, s Subject, c *contract.Client) error {
	if _, err := ask(ctx, s, c, s.Bundle); err != nil {
		return err
	}
	begun := time.Now()
	c.Close()
	if took := time.Since(begun); took >= 500*time.Millisecond {
		return fmt.Errorf("it had to be killed after %s", took.Round(time.Millisecond))
	}
	return nil
}
