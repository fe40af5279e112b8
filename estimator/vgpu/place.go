package vgpu

import (
	"regexp"
	"slices"

	"github.com/gresize/gresize/estimator"
)

var (
	missingLibrary = regexp.MustCompile(`\b(lib(?:cu|nv|nccl)[A-Za-z0-9_.+*\[\]-]*).*(?:cannot open shared object file|not found in the system path)`)
	// What PyTorch's and DeepSpeed's builders of extensions say where a program with CUDA sources finds no toolkit.
	// PyTorch looks for Ninja first, and then for nvcc.
	missingCompiler = regexp.MustCompile(`^(?:CUDA_HOME (?:environment variable is not set|does not exist)|Ninja is required to load C\+\+ extensions)`)
	missingSymbol   = regexp.MustCompile("undefined symbol: ([A-Za-z0-9_]+)|version `([A-Za-z0-9_.]+)' not found")
)

// placeReasons says what of the place where a program ran, and not of the program, kept the virtual GPU from it. Each is found once.
func placeReasons(processes []process) []estimator.Reason {
	var found []estimator.Reason
	add := func(code, detail string) {
		if !slices.ContainsFunc(found, func(r estimator.Reason) bool { return r.Code == code }) {
			found = append(found, estimator.Reason{Code: code, Detail: clip(detail)})
		}
	}
	for i := range processes {
		p := &processes[i]
		if py := p.python; py != nil {
			lost := py.EnvironmentKept != nil && !*py.EnvironmentKept
			switch {
			case py.Reason == reasonImportFailed && py.Foreign != "":
				add(estimator.CodeOtherArchitecture, py.Foreign)
			case lost && (py.Reason == reasonImportFailed || py.CUDA != nil && !py.Virtual):
				add(estimator.CodeEnvironmentReplaced, "LD_AUDIT no longer names gresize's module where PyTorch was imported")
			case py.Reason == reasonImportFailed && py.Exception != nil:
				if m := missingLibrary.FindStringSubmatch(py.Exception.Text); m != nil {
					add(estimator.CodeStubMissing, m[1])
				} else if m := missingSymbol.FindStringSubmatch(py.Exception.Text); m != nil {
					add(estimator.CodeSymbolMissing, m[1]+m[2])
				}
			case py.Exception != nil && missingCompiler.MatchString(py.Exception.Text):
				add(estimator.CodeNoCUDACompiler, py.Exception.Type+": "+py.Exception.Text)
			}
		}
		if p.native == nil {
			// Both reports are written together.
			if p.python != nil && p.python.Virtual && p.usedGPU() {
				add(estimator.CodeReportLost, "a process used a GPU, and the report of the replaced libraries is not there: what they keep on the card is not in the figure")
			}
			continue
		}
		if p.python == nil && !p.jax.onCard() && p.usedGPU() {
			add(estimator.CodePythonLayerMissing, "a process took device memory, and no Python layer reported from it")
		}
		if slices.ContainsFunc(p.native.Devices, func(d NativeDevice) bool { return d.HostRefused > 0 }) {
			add(estimator.CodeAddressSpace, "the card had room for a request and the host had none")
		}
	}
	return found
}
