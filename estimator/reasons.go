package estimator

// meaning says in words what a reason code means to whoever reads an estimate.
type meaning struct {
	// text is the sentence; the detail of the reason follows it.
	text string
	// hint is what whoever has called `gresize estimate` can do about it.
	hint string
	// ours: the run may have ended because of gresize or of the place where it ran, and not because of the command.
	ours bool
}

// meanings has every code of docs/architecture.md.
var meanings = map[string]meaning{
	"values_read_back":     {text: "the program reads values that only a real GPU would have computed"},
	"values_compared":      {text: "the program decides by values that only a real GPU would have computed"},
	"values_bounded":       {text: "the program asks for values that only a real GPU would have computed; it was run with answers of both kinds, and the interval covers them"},
	"symbol_unanswered":    {text: "a CUDA function was called that the virtual GPU has no answer for", ours: true},
	"symbol_missing":       {text: "a CUDA function was wanted that the virtual GPU does not have", ours: true},
	"stub_missing":         {text: "a CUDA library was wanted that the virtual GPU does not have", ours: true},
	"other_architecture":   {text: "this PyTorch is built for another processor than that of this machine", ours: true},
	"no_cuda_compiler":     {text: "the command compiles sources of C++ or CUDA, and this machine lacks a program for that (Ninja, or nvcc of the CUDA toolkit)", ours: true},
	"no_step_seen":         {text: "no training step was seen", hint: "a step is one of an optimizer: inference alone is not covered"},
	"budget_spent":         {text: "the run was ended before enough was seen", hint: "--budget gives it more time"},
	"script_failed":        {text: "the command failed"},
	"phase_not_reached":    {text: "a part of the program was not reached"},
	"memory_grows":         {text: "the program keeps more the longer it runs"},
	"batches_vary":         {text: "the batches differ in size: a later one may be larger", hint: "--steps sees more, and batches padded to one length leave no doubt"},
	"memory_fraction":      {text: "the program allows itself a part of the card only"},
	"run_cut_short":        {text: "only the first steps were run"},
	"cpu_only_torch":       {text: "this PyTorch is built without CUDA"},
	"cpu_only_jax":         {text: "this JAX has no plugin for CUDA"},
	"jax_without_gpu":      {text: "JAX found no GPU", ours: true},
	"jax_with_torch":       {text: "PyTorch and JAX use one card"},
	"share_of_card":        {text: "XLA's allocator allows itself a share of the card"},
	"no_ptxas":             {text: "XLA compiles with ptxas, and there is none", hint: "pip install nvidia-cuda-nvcc-cu12"},
	"tensorflow":           {text: "the program uses TensorFlow, which gresize does not follow"},
	"no_torch":             {text: "neither PyTorch nor JAX was seen"},
	"static_runtime":       {text: "the CUDA runtime of this PyTorch cannot be replaced", ours: true},
	"environment_replaced": {text: "the command took gresize's variables out of the environment of a program", ours: true},
	"python_layer_missing": {text: "the Python layer could not be put into a program, so its steps were not counted", ours: true},
	"workspace_bounded":    {text: "sizes of library workspaces are a model and not the library's own answer"},
	"kernels_chosen":       {text: "kernels are chosen by times that only a real GPU would measure"},
	"no_sandbox":           {text: "there is no sandbox on this machine", hint: "--no-sandbox runs the command as it is", ours: true},
	"out_of_memory":        {text: "the card was full"},
	"near_capacity":        {text: "the card was full once and PyTorch gave back what it had cached: it may run, slowly"},
	"out_of_disk":          {text: "the command writes more than the sandbox lets it", ours: true},
	"too_many_processes":   {text: "the command started more processes than the sandbox lets it", ours: true},
	"out_of_host_memory":   {text: "this machine has less memory for programs than the command needs", ours: true},
	"address_space":        {text: "a limit on the memory of a process (ulimit -v, ulimit -d) is in the way", ours: true},
	"resource_limit":       {text: "a limit on what a process may use (ulimit) was met", ours: true},
	"crashed_on_virtual":   {text: "a program that used the virtual GPU was ended by a signal: that may be gresize's fault", ours: true},
	"peak_still_rising":    {text: "the memory in use was still growing", hint: "--steps sees more"},
	"unknown_release":      {text: "this release was never tried"},
	"forged_environment":   {text: "the run's own record was tampered with", ours: true},
	"bundle_invalid":       {text: "the run's own record cannot be read", ours: true},
	"reader_ended":         {text: "reading the run's own record took too much memory or time", ours: true},
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

// Known says whether a code is one of gresize's own. An estimator that is a plugin may have others.
func Known(code string) bool { return meanings[code].text != "" }

// Ours says whether a run with this reason may have ended because of gresize.
func Ours(code string) bool { return meanings[code].ours }

// Words is the reason as a person reads it, with the code at its end for whoever looks it up.
func (r Reason) Words() string { return r.words(meanings[r.Code].text) }

// WordsWithHint is Words for whoever has called `gresize estimate`.
func (r Reason) WordsWithHint() string {
	m := meanings[r.Code]
	if r.Detail == m.text {
		r.Detail = "" // it is said once
	}
	if m.hint != "" {
		m.text += "; " + m.hint
	}
	return r.words(m.text)
}

func (r Reason) words(text string) string {
	switch {
	case text == "" && r.Detail == "":
		return r.Code
	case text == "":
		return r.Code + ": " + r.Detail
	case r.Detail == "" || r.Detail == text:
		return text + " [" + r.Code + "]"
	}
	return text + ": " + r.Detail + " [" + r.Code + "]"
}
