package gpu

import "slices"

const mib = int64(1) << 20

// generalLibraries holds bounds for models on which no first-use figures were
// measured. The point is taken from the H100 capture where there is one.
var generalLibraries = []LibraryUse{
	{"torch", Figure{Bytes: 8 * mib, HighBytes: 64 * mib, Source: "bounded: kernels of PyTorch that CUDA loads at first use"}},
	{"cublas", Figure{Bytes: 26 * mib, HighBytes: 96 * mib, Source: "published: with torch's 8 MiB it is 34 MiB (RTX 3060) and 30 MiB (RTX 4060) in xMem's transformer runs that record the place of zero_grad, to the MiB"}},
	{"cublaslt", Figure{Bytes: 0, HighBytes: 32 * mib, Source: "bounded: shares cuBLAS's handle in most programs"}},
	{"cudnn", Figure{Bytes: 40 * mib, HighBytes: 160 * mib, Source: "bounded: handle and kernels of the chosen engines"}},
	{"cufft", Figure{Bytes: 8 * mib, HighBytes: 32 * mib, Source: "bounded: plan kernels"}},
	{"cusolver", Figure{Bytes: 16 * mib, HighBytes: 96 * mib, Source: "bounded: handle and kernels"}},
	{"cusparse", Figure{Bytes: 8 * mib, HighBytes: 64 * mib, Source: "bounded: handle and kernels"}},
	{"nccl", Figure{Bytes: 200 * mib, HighBytes: 1024 * mib, Source: "bounded: channel buffers for each peer"}},
}

// chargedLibraries take their memory from the virtual card at their first use, as from a real one; NCCL's depends on the group, and the torch
// modules come with the context.
var chargedLibraries = []string{"cublas", "cublaslt", "cudnn", "cufft", "cusolver", "cusparse"}

// unknownLibrary is the bound for a library that neither table names.
var unknownLibrary = Figure{Bytes: 8 * mib, HighBytes: 64 * mib, Source: "bounded: a library without figures"}

// OutsideBytes is the device memory of one process that PyTorch's allocator
// never sees: the CUDA context, and for each library in use its handles and the
// kernels that it loads. The second answer is the upper end of the interval.
// PyTorch's own kernels count for every process ("torch" need not be given).
func (p *Profile) OutsideBytes(librariesUsed []string) (pointBytes, highBytes int64) {
	pointBytes, highBytes = p.Context.Bytes, p.Context.High()
	names := append([]string{"torch"}, librariesUsed...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f := p.firstUse(name)
		pointBytes += f.Bytes
		highBytes += f.High()
	}
	return pointBytes, highBytes
}

func (p *Profile) firstUse(library string) Figure {
	for _, table := range [][]LibraryUse{p.Libraries, generalLibraries} {
		if i := slices.IndexFunc(table, func(l LibraryUse) bool { return l.Library == library }); i >= 0 {
			return table[i].Figure
		}
	}
	return unknownLibrary
}
