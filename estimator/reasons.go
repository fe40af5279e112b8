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

// Codes of reasons: stable, kept in bundles and logs. What each means is in meanings; docs/estimate.md has them for people.
const (
	CodeValuesReadBack      = "values_read_back"
	CodeValuesCompared      = "values_compared"
	CodeValuesBounded       = "values_bounded"
	CodeSymbolUnanswered    = "symbol_unanswered"
	CodeSymbolMissing       = "symbol_missing"
	CodeStubMissing         = "stub_missing"
	CodeOtherArchitecture   = "other_architecture"
	CodeNoCUDACompiler      = "no_cuda_compiler"
	CodeNoStepSeen          = "no_step_seen"
	CodeBudgetSpent         = "budget_spent"
	CodeScriptFailed        = "script_failed"
	CodePhaseNotReached     = "phase_not_reached"
	CodeMemoryGrows         = "memory_grows"
	CodeBatchesVary         = "batches_vary"
	CodeMemoryFraction      = "memory_fraction"
	CodeMemoryUncounted     = "memory_uncounted"
	CodeRunCutShort         = "run_cut_short"
	CodeCPUOnlyTorch        = "cpu_only_torch"
	CodeCPUOnlyJAX          = "cpu_only_jax"
	CodeJAXWithoutGPU       = "jax_without_gpu"
	CodeJAXWithTorch        = "jax_with_torch"
	CodeShareOfCard         = "share_of_card"
	CodeNoPtxas             = "no_ptxas"
	CodeTensorflow          = "tensorflow"
	CodeNoTorch             = "no_torch"
	CodeStaticRuntime       = "static_runtime"
	CodeEnvironmentReplaced = "environment_replaced"
	CodePythonLayerMissing  = "python_layer_missing"
	CodeReportLost          = "report_lost"
	CodeWorkspaceBounded    = "workspace_bounded"
	CodeKernelsChosen       = "kernels_chosen"
	CodeNoSandbox           = "no_sandbox"
	CodeSandboxEnded        = "sandbox_ended"
	CodeOutOfMemory         = "out_of_memory"
	CodeNearCapacity        = "near_capacity"
	CodeWithPlan            = "with_a_plan"
	CodeOutOfDisk           = "out_of_disk"
	CodeTooManyProcesses    = "too_many_processes"
	CodeOutOfHostMemory     = "out_of_host_memory"
	CodeAddressSpace        = "address_space"
	CodeResourceLimit       = "resource_limit"
	CodeCrashedOnVirtual    = "crashed_on_virtual"
	CodePeakStillRising     = "peak_still_rising"
	CodeUnknownRelease      = "unknown_release"
	CodeForgedEnvironment   = "forged_environment"
	CodeBundleInvalid       = "bundle_invalid"
	CodeReaderEnded         = "reader_ended"
	CodeProbeLost           = "probe_lost"
	CodeProbeRefused        = "probe_refused"
	CodeNotCovered          = "not_covered"
	CodeProfileMissing      = "profile_missing"
	CodeProfileUnusable     = "profile_unusable"
	CodeRuleOfThumb         = "rule_of_thumb"
	CodeEarlierRuns         = "earlier_runs"
	CodeFewActuals          = "few_actuals"
	CodeActualsDisagree     = "actuals_disagree"
	CodeFakeTensors         = "fake_tensors"
	CodeKernelsOfCPU        = "kernels_of_cpu"
	CodeNoEstimator         = "no_estimator"
	CodeNoGPUUsed           = "no_gpu_used"
	CodeSeveralGPUs         = "several_gpus"
	CodeEstimatorFellBack   = "estimator_fell_back"
	CodeRecordedOtherwise   = "recorded_otherwise"
	CodeArrayTasks          = "array_tasks"
	CodeRanksNotRun         = "ranks_not_run"
)

// meanings has every code.
var meanings = map[string]meaning{
	CodeValuesReadBack:      {text: "the program reads values that only a real GPU would have computed"},
	CodeValuesCompared:      {text: "the program decides by values that only a real GPU would have computed"},
	CodeValuesBounded:       {text: "the program asks for values that only a real GPU would have computed; it was run with answers of both kinds, and the interval covers them"},
	CodeSymbolUnanswered:    {text: "a CUDA function was called that the virtual GPU has no answer for", ours: true},
	CodeSymbolMissing:       {text: "a CUDA function was wanted that the virtual GPU does not have", ours: true},
	CodeStubMissing:         {text: "a CUDA library was wanted that the virtual GPU does not have", ours: true},
	CodeOtherArchitecture:   {text: "this PyTorch is built for another processor than that of this machine", ours: true},
	CodeNoCUDACompiler:      {text: "the command compiles sources of C++ or CUDA, and this machine lacks a program for that (Ninja, or nvcc of the CUDA toolkit)", ours: true},
	CodeNoStepSeen:          {text: "no training step was seen", hint: "a step is one of an optimizer: inference alone is not covered"},
	CodeBudgetSpent:         {text: "the run was ended before enough was seen", hint: "--budget gives it more time"},
	CodeScriptFailed:        {text: "the command failed"},
	CodePhaseNotReached:     {text: "a part of the program was not reached"},
	CodeMemoryGrows:         {text: "the program keeps more the longer it runs"},
	CodeBatchesVary:         {text: "the batches differ in size: a later one may be larger", hint: "--steps sees more, and batches padded to one length leave no doubt"},
	CodeMemoryFraction:      {text: "the program allows itself a part of the card: on a smaller card that part is smaller"},
	CodeMemoryUncounted:     {text: "no allocator of PyTorch's counted the memory", hint: "without PYTORCH_NO_CUDA_MEMORY_CACHING, or an allocator of the program's own, memory is followed step by step"},
	CodeRunCutShort:         {text: "only the first steps were run"},
	CodeCPUOnlyTorch:        {text: "this PyTorch is built without CUDA"},
	CodeCPUOnlyJAX:          {text: "this JAX has no plugin for CUDA"},
	CodeJAXWithoutGPU:       {text: "JAX found no GPU", ours: true},
	CodeJAXWithTorch:        {text: "PyTorch and JAX use one card"},
	CodeShareOfCard:         {text: "XLA's allocator allows itself a share of the card"},
	CodeNoPtxas:             {text: "XLA compiles with ptxas, and there is none", hint: "pip install nvidia-cuda-nvcc-cu12"},
	CodeTensorflow:          {text: "the program uses TensorFlow, which gresize does not follow"},
	CodeNoTorch:             {text: "neither PyTorch nor JAX was seen"},
	CodeStaticRuntime:       {text: "the CUDA runtime of this PyTorch cannot be replaced", ours: true},
	CodeEnvironmentReplaced: {text: "the command took gresize's variables out of the environment of a program", ours: true},
	CodePythonLayerMissing:  {text: "the Python layer could not be put into a program, so its steps were not counted", ours: true},
	CodeReportLost:          {text: "a part of the record of the run was lost", ours: true},
	CodeWorkspaceBounded:    {text: "sizes of library workspaces are a model and not the library's own answer"},
	CodeKernelsChosen:       {text: "kernels are chosen by times that only a real GPU would measure"},
	CodeNoSandbox:           {text: "there is no sandbox on this machine", hint: "--no-sandbox runs the command as it is", ours: true},
	CodeSandboxEnded:        {text: "the sandbox itself ended while the command ran", ours: true},
	CodeOutOfMemory:         {text: "the card was full"},
	CodeNearCapacity:        {text: "the card was full once and PyTorch gave back what it had cached: it may run, slowly"},
	CodeWithPlan:            {text: "a plan lies under the program: docs/run.md"},
	CodeOutOfDisk:           {text: "the command writes more than the sandbox lets it", ours: true},
	CodeTooManyProcesses:    {text: "the command started more processes than the sandbox lets it", ours: true},
	CodeOutOfHostMemory:     {text: "this machine has less memory for programs than the command needs", ours: true},
	CodeAddressSpace:        {text: "a limit on the memory of a process (ulimit -v, ulimit -d) is in the way", ours: true},
	CodeResourceLimit:       {text: "a limit on what a process may use (ulimit) was met", ours: true},
	CodeCrashedOnVirtual:    {text: "a program that used the virtual GPU was ended by a signal: that may be gresize's fault", ours: true},
	CodePeakStillRising:     {text: "the memory in use was still growing", hint: "--steps sees more"},
	CodeUnknownRelease:      {text: "this release was never tried"},
	CodeForgedEnvironment:   {text: "the run's own record was tampered with", ours: true},
	CodeBundleInvalid:       {text: "the run's own record cannot be read", ours: true},
	CodeReaderEnded:         {text: "reading the run's own record took too much memory or time", ours: true},
	CodeProbeLost:           {text: "the probe was lost", ours: true},
	CodeProbeRefused:        {text: "the probe was refused", ours: true},
	CodeNotCovered:          {text: "the estimator's method does not cover this"},
	CodeProfileMissing:      {text: "the run left no trace of the profiler"},
	CodeProfileUnusable:     {text: "the profiler's trace cannot be used", ours: true},
	CodeRuleOfThumb:         {text: "the estimator is a formula that knows little of the run"},
	CodeEarlierRuns:         {text: "the answer is what earlier runs really used"},
	CodeFewActuals:          {text: "of too few earlier runs it is known what they used"},
	CodeActualsDisagree:     {text: "what earlier runs used contradicts itself or the run of now"},
	CodeFakeTensors:         {text: "the run was made with tensors that have no content: no allocator, no workspaces"},
	CodeKernelsOfCPU:        {text: "the run was on a CPU"},
	CodeNoEstimator:         {text: "no estimator was asked"},
	CodeNoGPUUsed:           {text: "the command put nothing on a GPU"},
	CodeSeveralGPUs:         {text: "several processes used a GPU at once"},
	CodeEstimatorFellBack:   {text: "another estimator was asked first and had no answer"},
	CodeRecordedOtherwise:   {text: "the run was made for another estimator"},
	CodeArrayTasks:          {text: "an array is judged by some of its tasks"},
	CodeRanksNotRun:         {text: "only some ranks of the job were run"},
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
