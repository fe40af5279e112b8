package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/offload"
)

const (
	// prologLimit bounds the wait of a job that begins.
	prologLimit = 5 * time.Second
	// mostProlog is what all releases of Slurm read of what a TaskProlog prints, less some room for what else the site's prints.
	mostProlog = 3 << 10
)

func newTaskPrologCommand() *cobra.Command {
	s := epilog.Sender{}
	cmd := &cobra.Command{
		Use:   "task-prolog --url URL",
		Short: "In Slurm's TaskProlog: put its plan under a job that got a smaller card",
		Long: `For the TaskProlog of GPU nodes, where gresize.toml has [swap] allow = true: asks
gresized whether the batch script that begins has a plan with which it fits a card
that is too small for it, and prints the lines by which Slurm puts it into the
script's environment. It asks once a job, not for each task, and only for a job with
one GPU. Whatever goes wrong it prints nothing and ends with 0: the job begins as if
there were no plan, and runs again as it was submitted where that is too little.`,
		Example: "  gresize task-prolog --url http://controller:8917",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), prologLimit)
			defer cancel()
			if err := putPlan(ctx, cmd.OutOrStdout(), s, os.Environ()); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "gresize task-prolog:", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.URL, "url", "", "ask gresized at `URL`: probe.url of gresize.toml")
	f.StringVar(&s.Munge, "munge", "/usr/bin/munge", "prove with this `PROGRAM` whose job it is")
	f.StringVar(&s.Socket, "munge-socket", "", "munged listens at `PATH`, if not in its default place")
	return cmd
}

// putPlan prints what puts a job's plan into the environment of its batch script.
func putPlan(ctx context.Context, w io.Writer, s epilog.Sender, env []string) error {
	id, asks := asksForPlan(env)
	if !asks {
		return nil
	}
	body, err := s.Post(ctx, epilog.PathPlan, epilog.Wanted{Schema: epilog.SchemaPlan, JobID: id})
	if err != nil {
		return err
	}
	var answer epilog.Plan
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("answer of gresized: %w", err)
	}
	if len(answer.Body) == 0 {
		return nil
	}
	path, err := keepPlan(id, answer.Body)
	if err != nil {
		return err
	}
	lines, err := prologLines(path, answer.Slowest, env)
	if err == nil && len(lines) > mostProlog {
		err = fmt.Errorf("%d bytes for the environment, at most %d: is PYTHONPATH so long?", len(lines), mostProlog)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	_, err = io.WriteString(w, lines)
	return err
}

// asksForPlan says whether these are the variables of a batch script with one GPU. Its steps have its environment.
func asksForPlan(env []string) (id uint32, asks bool) {
	values := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		values[name] = value
	}
	gpus := values["CUDA_VISIBLE_DEVICES"]
	n, err := strconv.ParseUint(values["SLURM_JOB_ID"], 10, 32)
	step := values["SLURM_STEP_ID"]
	batch := step == "" || step == "batch" || step == strconv.FormatUint(batchStep, 10)
	return uint32(n), err == nil && n > 0 && batch && gpus != "" && !strings.Contains(gpus, ",") && values["GRESIZE_OFFLOAD_PLAN"] == ""
}

// batchStep is Slurm's number for the step of a batch script.
const batchStep = 0xfffffffb

// keepPlan writes the plan to a file of the job's owner.
func keepPlan(id uint32, body []byte) (path string, err error) {
	f, err := os.CreateTemp(epilog.PlansFolder, epilog.PlanFile(id))
	if err != nil {
		return "", err
	}
	if _, err = f.Write(body); err == nil {
		err = f.Close()
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// prologLines are the lines for Slurm: each variable that the plan changes.
func prologLines(path string, slowest float64, env []string) (string, error) {
	plan, err := offload.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := plan.CheckHost(); err != nil {
		return "", err
	}
	with, err := withPlan(plan, path, env)
	if err != nil {
		return "", err
	}
	if slowest > 0 {
		with = append(with, fmt.Sprintf("GRESIZE_OFFLOAD_SLOWEST=%g", slowest))
	}
	var lines strings.Builder
	for _, kv := range with {
		if !slices.Contains(env, kv) {
			if strings.Contains(kv, "\n") {
				name, _, _ := strings.Cut(kv, "=")
				return "", fmt.Errorf("%s has more than one line", name)
			}
			lines.WriteString("export " + kv + "\n")
		}
	}
	return lines.String(), nil
}
