package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

const mib = int64(1) << 20

// mock is what the scripts would record on a card; change alters it.
func mock(t *testing.T, change func(map[string]any)) []byte {
	t.Helper()
	base, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	attributes := map[string]any{}
	data, err := json.Marshal(base.Attributes)
	if err == nil {
		err = json.Unmarshal(data, &attributes)
	}
	if err != nil {
		t.Fatal(err)
	}
	use := func(name string, outsideMiB int64) map[string]any {
		return map[string]any{"name": name, "peak": 0, "outside": outsideMiB * mib}
	}
	m := map[string]any{
		"device": map[string]any{
			"torch": "2.6.0", "cuda": "12.4", "cudnn": 90100, "driver_version": 12080, "driver": "570.86.15",
			"properties":      map[string]any{"name": "NVIDIA H100 80GB HBM3", "major": 9, "minor": 0, "total_memory": 85029158912},
			"cuda_attributes": attributes, "mem_get_info": map[string]any{"total": 85029158912, "free": 84500000000},
		},
		"context": map[string]any{"here": 520 * mib, "bare_lazy": map[string]any{"before": 520 * mib, "used": 1000 * mib}, "bare_eager": "no"},
		"first_use": []any{use("context", 520), use("fill_kernel", 522), use("elementwise", 523), use("matmul_fp32", 555), use("matmul_bf16", 560), use("linear_bias_fp32", 561),
			use("conv_forward", 600), map[string]any{"name": "fp8_scaled_mm", "error": "no"}, use("conv_backward", 590), use("softmax", 601), use("fft", 610),
			map[string]any{"name": "cublas_environment", "value": nil}},
		"cudnn": map[string]any{"device_json": `{"major": 9}`},
	}
	if change != nil {
		change(m)
	}
	if data, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestProfileOfARecord(t *testing.T) {
	p, err := Profile(mock(t, nil), "")
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != "h100" || p.Total.Bytes != 85029158912 || !p.Total.Measured || p.Context.Bytes != 480*mib || p.DriverVersion != "570.86.15" || p.CUDADriverVersion != 12080 {
		t.Errorf("%+v", p)
	}
	if string(p.CuDNNDevice) != `{"major": 9}` || !strings.HasPrefix(p.Context.Source, "measured: ") || !strings.Contains(p.Context.Source, "PyTorch 2.6.0, CUDA 12.4, cuDNN 90100, driver 570.86.15") {
		t.Errorf("%s %s", p.CuDNNDevice, p.Context.Source)
	}
	want := map[string][2]int64{"torch": {2, 2 + 1 + 1}, "cublas": {32, 37}, "cublaslt": {1, 1}, "cudnn": {39, 39}, "cufft": {9, 9}}
	for _, l := range p.Libraries {
		if w := want[l.Library]; l.Bytes != w[0]*mib || l.HighBytes != w[1]*mib {
			t.Errorf("%s: %d..%d MiB, want %v", l.Library, l.Bytes/mib, l.HighBytes/mib, w)
		}
		delete(want, l.Library)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	// A profile is for others to read.
	path := filepath.Join(t.TempDir(), "own.json")
	data, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if back, err := gpu.Load(path); err != nil || back.Context != p.Context {
		t.Errorf("%v %+v", err, back)
	}
}

func TestProfileOfAnUnknownModel(t *testing.T) {
	p, err := Profile(mock(t, func(m map[string]any) {
		d := m["device"].(map[string]any)
		d["properties"] = map[string]any{"name": "NVIDIA Z900 MIG 3g.40gb", "major": 9, "minor": 0}
		delete(d, "driver")
		m["context"] = map[string]any{"here": 1, "bare_lazy": "Traceback"}
	}), "")
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != "z900-mig-3g.40gb" || p.Architecture != "Hopper" || p.Context.Bytes != 520*mib || p.MIG == nil || p.MIG.Profile != "3g.40gb" || p.PeakFLOPS["fp32"] < 1e13 || p.MemoryBandwidthBytesPerSecond < 1e12 {
		t.Errorf("%+v", p)
	}
	if p, err = Profile(mock(t, nil), "own"); err != nil || p.ID != "own" {
		t.Errorf("%v %+v", err, p)
	}
}

func TestProfileRefusesABadRecord(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"no JSON":       {[]byte("Traceback"), "invalid character"},
		"nothing":       {[]byte("{}"), "no device section"},
		"device failed": {[]byte(`{"errors":{"device":"RuntimeError('no card')"}}`), "no card"},
		"no context":    {mock(t, func(m map[string]any) { delete(m, "context"); delete(m, "first_use") }), "neither a context nor a first_use"},
		"a context larger than the card": {mock(t, func(m map[string]any) {
			m["context"] = map[string]any{"bare_lazy": map[string]any{"before": 0, "used": 1 << 45}}
		}), "context"},
		"no attributes": {mock(t, func(m map[string]any) { delete(m["device"].(map[string]any), "cuda_attributes") }), "attributes[1]"},
		"a hostile name": {mock(t, func(m map[string]any) {
			m["device"].(map[string]any)["properties"].(map[string]any)["name"] = "x\nattr.16=1"
		}), "control character"},
		"a wrong id": {nil, "id"},
	} {
		id := ""
		if c.data == nil {
			c.data, id = mock(t, nil), "Not An ID"
		}
		if _, err := Profile(c.data, id); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(`{"device":{"properties":{"name":"x"},"mem_get_info":{"total":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := Profile(data, ""); err == nil && p.Validate() != nil {
			t.Fatal("an invalid profile came back")
		}
	})
}

// TestNoGPUIsSaid: each way of having none has words of its own.
func TestNoGPUIsSaid(t *testing.T) {
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ python, says string }{
		{"/no/such/python", "no such file"},
		{"/bin/true", "no answer"},
		{python3, "cannot use PyTorch (import torch: No module named"},
		{torchtest.Python(t, "2.6.0"), "cannot use PyTorch (import torch: libcublas"}, // without NVIDIA's libraries
	} {
		_, err := Run(t.Context(), Options{Python: c.python, Seconds: 5, Env: []string{"PATH=" + os.Getenv("PATH")}})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), withoutDevice()) {
			t.Errorf("%s: %v, want %q and %q", c.python, err, c.says, withoutDevice())
		}
	}
}

// TestCaptureOfTheVirtualGPU runs the scripts themselves, with the virtual GPU for a stand-in, and gets its profile back.
func TestCaptureOfTheVirtualGPU(t *testing.T) {
	lib, err := filepath.Abs("../../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	want, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	native := filepath.Join(t.TempDir(), "profile")
	f, err := os.Create(native)
	if err == nil {
		err = errors.Join(want.WriteNative(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	env, err := vgpu.Environment(vgpu.Options{LibDir: lib, ProfilePath: native, WithoutPython: true}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Python: torchtest.Python(t, "2.6.0"), Seconds: 100, Sections: []string{"device", "context", "first_use"}, Env: append(os.Environ(), env...)}
	var none *NoGPUError
	if _, err := Run(t.Context(), o); !errors.As(err, &none) || !strings.Contains(err.Error(), "virtual") {
		t.Fatalf("the virtual GPU passes for a real one: %v", err)
	}
	without := o
	without.Env = append(without.Env, "GRESIZE_VGPU_COUNT=0")
	if _, err := Run(t.Context(), without); !errors.As(err, &none) || !strings.Contains(err.Error(), "no GPU is to be seen by PyTorch 2.6.0") {
		t.Errorf("a machine without a GPU: %v", err)
	}
	o.AllowVirtual = true
	record, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Profile(record, "")
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, record)
	}
	// The virtual card charges PyTorch's own kernels with the context: what is in use before the first tensor cannot tell them apart.
	context, _ := want.OutsideBytes([]string{"torch"})
	if got.ID != want.ID || got.Total.Bytes != want.Total.Bytes || got.Total.Measured || got.Context.Bytes != context ||
		got.DriverVersion != want.DriverVersion || got.CUDADriverVersion != want.CUDADriverVersion || !strings.HasPrefix(got.Context.Source, "virtual GPU, not measured") {
		t.Errorf("%+v", got)
	}
	for id, v := range want.Attributes {
		if id != attributePCIBus && got.Attributes[id] != v {
			t.Errorf("attribute %d: %d, want %d", id, got.Attributes[id], v)
		}
	}
	for _, library := range []string{"cublas", "cudnn", "cufft", "cusolver", "cusparse"} {
		with, _ := want.OutsideBytes([]string{library})
		i := slices.IndexFunc(got.Libraries, func(l gpu.LibraryUse) bool { return l.Library == library })
		if i < 0 || got.Libraries[i].Bytes != with-context || got.Libraries[i].Measured {
			t.Errorf("%s: want %d bytes, not measured, of %+v", library, with-context, got.Libraries)
		}
	}
}

// TestAFirstStepThatFailedMeasuresNothing: a library is not known to take nothing because the script broke before its first use.
func TestAFirstStepThatFailedMeasuresNothing(t *testing.T) {
	use := func(name string, outside int64) map[string]any {
		return map[string]any{"name": name, "outside": outside * mib}
	}
	failed := func(name string, outside int64) map[string]any {
		return map[string]any{"name": name, "error": "TypeError()", "outside": outside * mib}
	}
	p, err := Profile(mock(t, func(m map[string]any) {
		m["first_use"] = []any{use("context", 520), use("fill_kernel", 522), failed("matmul_fp32", 522), use("matmul_bf16", 550), use("linear_bias_fp32", 551),
			failed("fp8_scaled_mm", 553), failed("conv_forward", 553)}
	}), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range p.Libraries {
		got = append(got, fmt.Sprintf("%s %d to %d", l.Library, l.Bytes/mib, l.HighBytes/mib))
	}
	if want := []string{"cublaslt 1 to 3", "torch 2 to 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHidden: no GPU is a fact only where none of the ways to one is there.
func TestHidden(t *testing.T) {
	with := func(names ...string) string {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(root, "dev", name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	for name, c := range map[string]struct {
		env  []string
		root string
		says string
	}{
		"a card":                    {nil, with("nvidia0", "nvidiactl"), ""},
		"the driver and no card":    {nil, with("nvidiactl", "nvidia-uvm"), "shows no NVIDIA GPU"},
		"nothing":                   {nil, with(), "shows no NVIDIA GPU"},
		"WSL":                       {nil, with("dxg"), ""},
		"a board":                   {nil, with("nvhost-gpu"), ""},
		"the virtual one":           {[]string{"GRESIZE_VGPU_DIR=/lib"}, with(), ""},
		"a card that Slurm hides":   {[]string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, with("nvidia0"), "CUDA_VISIBLE_DEVICES=NoDevFiles hides every GPU"},
		"one that the user hides":   {[]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES="}, with("nvidia0"), "hides every GPU"},
		"one of several is visible": {[]string{"CUDA_VISIBLE_DEVICES=1"}, with("nvidia0", "nvidia1"), ""},
	} {
		if got := hidden(c.env, c.root); got != c.says && (c.says == "" || !strings.Contains(got, c.says)) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}
