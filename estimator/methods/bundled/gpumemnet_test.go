package bundled

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/methods/gpumemnet"
	"github.com/gresize/gresize/estimator/trace/modules"
)

// TestLayerList: a recorded table gives the layers of the summary on which the nets were trained. Both files of a kind are of one program.
func TestLayerList(t *testing.T) {
	for _, kind := range []string{"mlp", "cnn", "transformer"} {
		data, err := os.ReadFile("testdata/" + kind + "-modules.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		table, err := modules.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := layerList(table)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if data, err = os.ReadFile("testdata/" + kind + "-summary.json"); err != nil {
			t.Fatal(err)
		}
		var summary struct {
			Batch  int64    `json:"batch"`
			Layers [][3]any `json:"layers"`
		}
		if err := json.Unmarshal(data, &summary); err != nil {
			t.Fatal(err)
		}
		want := gpumemnet.Program{Batch: summary.Batch}
		for _, l := range summary.Layers {
			want.Layers = append(want.Layers, gpumemnet.Layer{Class: l[0].(string), Activations: int64(l[1].(float64)), Parameters: int64(l[2].(float64))})
		}
		for _, p := range []*gpumemnet.Program{&got, &want} { // the nets do not look at the order
			slices.SortFunc(p.Layers, func(a, b gpumemnet.Layer) int {
				return cmp.Or(strings.Compare(a.Class, b.Class), cmp.Compare(a.Activations, b.Activations), cmp.Compare(a.Parameters, b.Parameters))
			})
		}
		if got.OptimizerStates != 2 {
			t.Errorf("%s: %d states, Adam keeps 2", kind, got.OptimizerStates)
		}
		if got.Batch != want.Batch || !slices.Equal(got.Layers, want.Layers) {
			t.Errorf("%s: batch %d of %v\nwant batch %d of %v", kind, got.Batch, got.Layers, want.Batch, want.Layers)
		}
	}
}

func TestGPUMemNet(t *testing.T) {
	data, err := os.ReadFile("testdata/mlp-modules.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	e, err := ask(t, "gpumemnet", withModules(whole))
	if err != nil || e.Confidence != estimator.Low || len(e.Ranks) != 1 || e.Ranks[0].PeakReservedBytes != 1000<<20 || e.Ranks[0].OutsideBytes == 0 || !e.Fits {
		t.Errorf("%v, %+v", err, e)
	}
	for _, c := range []struct{ name, text, want string }{
		{"another optimizer", strings.Replace(whole, `"optimizer":"`, `"optimizer":"Lion","was":"`, 1), "Lion"},
		{"states of no whole number", strings.Replace(whole, `"state_bytes":`, `"state_bytes":1000000,"was":`, 1), "numbers for each parameter"},
		{"half", strings.Replace(whole, `"output_dtype":"float32"`, `"output_dtype":"float16"`, 3), "fp32"},
		{"compiled", strings.Replace(whole, `"compiled":false`, `"compiled":true`, 1), "compiled"},
		{"frozen", strings.Replace(whole, `"trainable":`, `"trainable":1,"was":`, 1), "gradients"},
		{"unknown layer", strings.ReplaceAll(whole, `"class":"GELU"`, `"class":"Wavelet"`), "unknown_layer: Wavelet"},
		{"large batch", strings.Replace(whole, `"batch":64`, `"batch":1`, 1), "outside_training"},
		{"no network", `{"modules":1}`, "no network"},
	} {
		if c.text == whole {
			t.Fatalf("%s: nothing replaced", c.name)
		}
		e, err := ask(t, "gpumemnet", withModules(c.text))
		if err != nil || e.Confidence != estimator.Unknown || len(e.Ranks) != 0 || e.Reasons[len(e.Reasons)-1].Code != "not_covered" ||
			!strings.Contains(e.Reasons[len(e.Reasons)-1].Detail, c.want) {
			t.Errorf("%s: %v, %+v: want unknown because of %q", c.name, err, e, c.want)
		}
	}
	if _, err := ask(t, "gpumemnet", withModules("{")); err == nil || !strings.Contains(err.Error(), "ranks/0/modules.jsonl") {
		t.Errorf("a damaged table: %v", err)
	}
}
