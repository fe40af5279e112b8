package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/fit"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/cobra"
)

// whatIf is one row of the table: what is other than in the command as it was given.
type whatIf struct {
	text  string
	gpu   string
	batch int
	// conf is PYTORCH_CUDA_ALLOC_CONF; setConf tells an empty one from none.
	conf    string
	setConf bool
}

// parseWhatIf reads gpu=NAME,batch=N,conf=SETTINGS. Settings hold commas themselves, so what follows conf= and is no key of its own belongs to it.
func parseWhatIf(text string) (whatIf, error) {
	w := whatIf{text: text}
	inConf := false
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		switch {
		case ok && key == "gpu":
			w.gpu, inConf = strings.TrimSpace(value), false
		case ok && key == "batch":
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || n < 1 {
				return w, fmt.Errorf("--what-if %s: batch: %q is no positive number", text, value)
			}
			w.batch, inConf = n, false
		case ok && key == "conf":
			w.conf, w.setConf, inConf = value, true, true
		case inConf && !ok:
			w.conf += "," + part
		default:
			return w, fmt.Errorf("--what-if %s: %q is not gpu=NAME, batch=N or conf=SETTINGS", text, part)
		}
	}
	if w.setConf {
		// Which release the command has is known behind its run; what neither the first nor the last one takes, none does.
		_, _, newest := allocator.ParseConfig(w.conf, allocator.Newest)
		if _, _, oldest := allocator.ParseConfig(w.conf, allocator.Oldest); newest != nil && oldest != nil {
			return w, fmt.Errorf("--what-if %s: conf: PyTorch %v says: %w", text, allocator.Newest, newest)
		}
	}
	return w, nil
}

// apply makes the options of the row's run from those of the command as it was given.
func (w *whatIf) apply(command, env []string, given *gpu.Profile) (probe.Options, error) {
	o := probe.Options{Command: command, GPU: given, Env: env}
	var err error
	if w.gpu != "" {
		if o.GPU, err = gpu.Load(w.gpu); err != nil {
			return o, fmt.Errorf("--what-if %s: %w", w.text, err)
		}
	}
	if w.batch > 0 {
		if o.Command, o.Env, err = fit.WithBatch(o.Command, o.Env, w.batch); err != nil {
			return o, fmt.Errorf("--what-if %s: %w", w.text, err)
		}
	}
	if w.setConf {
		// Releases from 2.9 on also read a second name, which would win.
		o.Env = slices.DeleteFunc(slices.Clone(o.Env), func(kv string) bool {
			return strings.HasPrefix(kv, "PYTORCH_CUDA_ALLOC_CONF=") || strings.HasPrefix(kv, "PYTORCH_ALLOC_CONF=")
		})
		o.Env = append(o.Env, "PYTORCH_CUDA_ALLOC_CONF="+w.conf)
	}
	return o, nil
}

// whatIfRow is a row with its answer.
type whatIfRow struct {
	WhatIf   string  `json:"what_if"`
	Estimate reading `json:"estimate"`
}

type whatIfTable struct {
	Schema string      `json:"schema"`
	Rows   []whatIfRow `json:"rows"`
}

const schemaWhatIf = "gresize.what-if/1"

// estimateWhatIfs runs the command as it was given, unless it has a mark where the batch size goes, and then each row.
func estimateWhatIfs(cmd *cobra.Command, flags estimateFlags, args []string, profile *gpu.Profile) error {
	var rows []whatIf
	marked := slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, fit.Mark) })
	if !marked {
		rows = append(rows, whatIf{})
	}
	for _, text := range flags.whatIfs {
		w, err := parseWhatIf(text)
		if err != nil {
			return usageError(err)
		}
		if marked && w.batch == 0 {
			return usageError(fmt.Errorf("--what-if %s: the command has %s where its batch size goes: name one with batch=N", text, fit.Mark))
		}
		rows = append(rows, w)
	}
	if flags.bundle != "" {
		return usageError(errors.New("estimate: --bundle keeps one run and --what-if makes several"))
	}
	options := make([]probe.Options, len(rows))
	for i := range rows {
		var err error
		if options[i], err = rows[i].apply(args, flags.env(), profile); err != nil {
			return usageError(err)
		}
	}
	table := whatIfTable{Schema: schemaWhatIf, Rows: []whatIfRow{}}
	progress := newProgressLine(cmd.ErrOrStderr(), flags.progress)
	var base followed
	for i, o := range options {
		progress.begin(fmt.Sprintf("%d of %d: ", i+1, len(options)))
		o = base.options(o)
		result, err := flags.run(cmd, o, progress)
		if err != nil {
			return err
		}
		if v := result.Bundle.Manifest.Versions; rows[i].setConf && v.JAX != "" && v.Torch == "" {
			return usageError(fmt.Errorf("--what-if %s: JAX does not read PYTORCH_CUDA_ALLOC_CONF; what its allocator goes by is set in the environment, XLA_PYTHON_CLIENT_MEM_FRACTION=.95 gresize estimate …", rows[i].text))
		}
		base.conclude(&result, o)
		table.Rows = append(table.Rows, whatIfRow{rows[i].text, newReading(&result, o.GPU)})
		if err := cmd.Context().Err(); err != nil {
			return errors.New("estimate: interrupted")
		}
	}
	var err error
	if flags.json {
		err = printJSON(cmd, table)
	} else {
		err = table.print(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("print the estimates: %w", err)
	}
	for i := range table.Rows {
		if err := table.Rows[i].Estimate.exit(); err != nil {
			return err
		}
	}
	return nil
}

func (t *whatIfTable) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT IF\tSTATUS\tGPU\tRESERVED\tNEEDED\tAT MOST\tHEADROOM\tCONFIDENCE")
	for _, row := range t.Rows {
		r := &row.Estimate
		name := row.WhatIf
		if name == "" {
			name = "(as given)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s (%s)\t%s\t%s\n", printable.Text(name), r.Status, r.GPU, quantity.GiB(r.CapacityBytes), strings.Join(r.cells(), "\t"), r.Confidence)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	shared := sharedReasons{of: "row", all: len(t.Rows)}
	for i, row := range t.Rows {
		shared.add(i+1, row.Estimate.Reasons)
	}
	return shared.print(out, "")
}

// cells are reserved, needed, at most and headroom of the largest rank.
func (r *reading) cells() []string {
	k, ok := r.Largest()
	if !ok {
		return []string{"-", "-", "-", "-"}
	}
	if !r.Fits {
		return []string{quantity.GiB(k.PeakReservedBytes), "> " + quantity.GiB(k.ComfortableBytes), "-", "-"}
	}
	left := "-"
	if r.Headroom != nil {
		if left = fmt.Sprintf("%s (%.0f %%)", quantity.GiB(r.Headroom.Bytes), r.Headroom.Percent); r.Headroom.Bytes < 0 {
			left = "-" + quantity.Size(uint64(-r.Headroom.Bytes)) // often some MiB, which are no -0.00 GiB
		}
	}
	return []string{quantity.GiB(k.PeakReservedBytes), quantity.GiB(k.ComfortableBytes), quantity.GiB(k.ComfortableHighBytes), left}
}
