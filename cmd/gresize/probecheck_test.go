package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestProbeCheck asks on this machine, with a real PyTorch; places of other kinds are in estimator/probe/nodecheck.
func TestProbeCheck(t *testing.T) {
	library, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", library)
	args := []string{"probe", "check", "--dir", t.TempDir(), "--python", torchtest.Python(t, "2.6.0")}
	var out, said bytes.Buffer
	if code := run(t.Context(), args, &out, &said); code != exitOK || !strings.Contains(out.String(), "  ok      PyTorch: ") || said.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, out.String(), said.String())
	}
	out.Reset()
	if code := run(t.Context(), append(args, "--json"), &out, &said); code != exitOK {
		t.Errorf("exit code %d\n%s", code, said.String())
	}
	var report struct {
		Schema   string
		Findings []struct{ Level, Name, Text string }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Schema != schemaProbeCheck || len(report.Findings) < 5 {
		t.Errorf("%v %+v", err, report)
	}
	out.Reset()
	if code := run(t.Context(), []string{"probe", "check", "--dir", "/no/such"}, &out, &said); code != exitUsage || !strings.Contains(said.String(), "/no/such") {
		t.Errorf("exit code %d\n%s", code, said.String())
	}
}
