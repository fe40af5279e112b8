package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/printable"
)

// reasonWord says in words what a reason code means to whoever reads an estimate.
type reasonWord struct {
	// text is the sentence; the detail of the reason follows it.
	text string
	// ours: the run may have ended because of gresize or of the place where it ran, and not because of the command.
	ours bool
}

// reasonWords has every code of docs/architecture.md.
var reasonWords = map[string]reasonWord{
	"values_read_back":     {text: "the program reads values that only a real GPU would have computed"},
	"values_compared":      {text: "the program decides by values that only a real GPU would have computed"},
	"values_bounded":       {text: "values that only a real GPU would have computed decide sizes; a policy answered, and the interval covers it"},
	"symbol_unanswered":    {text: "a CUDA function was called that the virtual GPU has no answer for", ours: true},
	"symbol_missing":       {text: "a CUDA function was wanted that the virtual GPU does not have", ours: true},
	"stub_missing":         {text: "a CUDA library was wanted that the virtual GPU does not have", ours: true},
	"other_architecture":   {text: "this PyTorch is built for another processor than that of this machine", ours: true},
	"no_cuda_compiler":     {text: "the command compiles CUDA sources, and this machine has no CUDA toolkit (nvcc) to do it with", ours: true},
	"no_step_seen":         {text: "no training step was seen"},
	"budget_spent":         {text: "the run was ended before enough was seen; --budget gives it more time"},
	"script_failed":        {text: "the command failed"},
	"phase_not_reached":    {text: "a part of the program was not reached"},
	"memory_grows":         {text: "the program keeps more the longer it runs"},
	"batches_vary":         {text: "the batches differ in size: a later one may be larger"},
	"memory_fraction":      {text: "the program allows itself a part of the card only"},
	"run_cut_short":        {text: "only the first steps were run"},
	"cpu_only_torch":       {text: "this PyTorch is built without CUDA"},
	"no_torch":             {text: "no PyTorch was seen"},
	"static_runtime":       {text: "the CUDA runtime of this PyTorch cannot be replaced", ours: true},
	"environment_replaced": {text: "the command took gresize's variables out of the environment of a program", ours: true},
	"python_layer_missing": {text: "the Python layer could not be put into a program, so its steps were not counted", ours: true},
	"workspace_bounded":    {text: "sizes of library workspaces are a model and not the library's own answer"},
	"kernels_chosen":       {text: "kernels were chosen by times that only a real GPU would measure"},
	"no_sandbox":           {text: "there is no sandbox on this machine; --no-sandbox runs the command as it is", ours: true},
	"out_of_memory":        {text: "the card was full"},
	"near_capacity":        {text: "the card was full once and PyTorch gave back what it had cached: it may run, slowly"},
	"out_of_disk":          {text: "the command writes more than the sandbox lets it", ours: true},
	"too_many_processes":   {text: "the command started more processes than the sandbox lets it", ours: true},
	"out_of_host_memory":   {text: "this machine has less memory for programs than the command needs", ours: true},
	"address_space":        {text: "a limit on the memory of a process (ulimit -v, ulimit -d) is in the way", ours: true},
	"resource_limit":       {text: "a limit on what a process may use (ulimit) was met", ours: true},
	"crashed_on_virtual":   {text: "a program that used the virtual GPU was ended by a signal: that may be gresize's fault", ours: true},
	"peak_still_rising":    {text: "the memory in use was still growing; --steps sees more"},
	"unknown_release":      {text: "this release of PyTorch was never tried"},
	"forged_environment":   {text: "the run's own record was tampered with", ours: true},
	"bundle_invalid":       {text: "the run's own record cannot be read", ours: true},
	"probe_lost":           {text: "the probe was lost", ours: true},
	"probe_refused":        {text: "the probe was refused", ours: true},
	"not_covered":          {text: "the estimator's method does not cover this"},
	"profile_missing":      {text: "the run left no trace of the profiler"},
	"profile_unusable":     {text: "the profiler's trace cannot be used", ours: true},
	"rule_of_thumb":        {text: "the estimator is a formula that knows little of the run"},
	"earlier_runs":         {text: "the answer is what earlier runs really used"},
	"few_actuals":          {text: "of too few earlier runs it is known what they used"},
	"actuals_disagree":     {text: "what earlier runs used contradicts itself or the run of now"},
	"fake_tensors":         {text: "the run was made with tensors that have no content: no allocator, no workspaces"},
	"kernels_of_cpu":       {text: "the run was on a CPU"},
	"no_estimator":         {text: "no estimator was asked"},
	"no_gpu_used":          {text: "the command put nothing on a GPU"},
	"several_gpus":         {text: "several processes used a GPU at once"},
	"estimator_fell_back":  {text: "another estimator was asked first and had no answer"},
	"recorded_otherwise":   {text: "the run was made for another estimator"},
	"array_tasks":          {text: "an array is judged by some of its tasks"},
	"ranks_not_run":        {text: "only some ranks of the job were run"},
}

// words is the reason as a person reads it, with the code at its end for whoever looks it up.
func words(r estimator.Reason) string {
	w, known := reasonWords[r.Code]
	switch {
	case !known:
		return r.Code + ": " + r.Detail
	case r.Detail == "":
		return w.text + " [" + r.Code + "]"
	}
	return w.text + ": " + r.Detail + " [" + r.Code + "]"
}

// sharedReasons are the reasons of several answers, each sentence once with the numbers of those whose it is.
type sharedReasons struct {
	// of is what is numbered, and all how many of them there are.
	of    string
	all   int
	text  []string
	whose [][]string
}

func (s *sharedReasons) add(number int, reasons []estimator.Reason) {
	for _, r := range reasons {
		text := words(r)
		i := slices.Index(s.text, text)
		if i < 0 {
			i, s.text, s.whose = len(s.text), append(s.text, text), append(s.whose, nil)
		}
		s.whose[i] = append(s.whose[i], fmt.Sprint(number))
	}
}

// print writes one line a sentence; what is true of all has no number before it.
func (s *sharedReasons) print(out io.Writer, indent string) error {
	for i, text := range s.text {
		who := ""
		switch n := len(s.whose[i]); {
		case n == 1 && s.all > 1:
			who = s.of + " " + s.whose[i][0] + ": "
		case n < s.all:
			who = s.of + "s " + strings.Join(s.whose[i], ", ") + ": "
		}
		if _, err := fmt.Fprintf(out, "%sbecause  %s%s\n", indent, who, printable.Text(text)); err != nil {
			return err
		}
	}
	return nil
}
