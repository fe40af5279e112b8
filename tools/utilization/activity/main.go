// Command activity prints, for each operators.jsonl that it is given, how busy a card would be: name, seconds a step, SM activity with its ends.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
)

func main() {
	model := flag.String("gpu", "a100-40", "GPU model")
	flag.Parse()
	if err := run(*model, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "activity:", err)
		os.Exit(1)
	}
}

func run(model string, files []string) error {
	card, err := gpu.Load(model)
	if err != nil {
		return err
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s, err := utilization.Read(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		a := utilization.Estimate(s, card)
		fmt.Printf("%s\t%g\t%g\t%g\t%g\t%s\n", path, a.StepSeconds.Value, a.SMActivity.Value, a.SMActivity.Low, a.SMActivity.High, a.Bound)
	}
	return nil
}
