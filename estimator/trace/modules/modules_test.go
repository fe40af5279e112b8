package modules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const sound = `{"modules":1,"steps":4,"compiled":false,"left_out":0}
{"root":0,"calls":5,"with_grad":true,"class":"Sequential","inputs":[[8,4]],"outputs":[[8,2]],"output_elements":16,"output_bytes":64,"parameters":10,"parameter_bytes":40,"trainable":10,"buffers":0,"buffer_bytes":0,"training":true,"batch":8}

{"module":"0","of":0,"calls":10,"calls_once":2,"class":"Linear","kind":"linear","leaf":true,"dtype":"float32","parameters":10,"parameter_bytes":40,"trainable":10,"inputs":[[8,4]],"outputs":[[8,2]],"output_elements":16,"output_bytes":64,"output_dtype":"float32","flops":128}
{"something":"newer"}
{"optimizer":"Adam","states":["exp_avg","exp_avg_sq"],"parameters":10,"parameter_bytes":40,"gradient_bytes":40,"state_bytes":80}
`

func TestRead(t *testing.T) {
	table, err := Read([]byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	n := table.Networks[0]
	m := n.Modules[0]
	if table.Steps != 4 || n.Batch != 8 || n.Parameters != 10 || m.Kind != Linear || m.CallsOnce != 2 || m.FLOPs != 128 || m.OutputElements != 16 || m.Inputs[0][1] != 4 {
		t.Errorf("%+v", table)
	}
	if o := table.Optimizers[0]; o.StateMultiplier() != 2 || (&Optimizer{StateBytes: 1}).StateMultiplier() != 0 {
		t.Errorf("%+v", o)
	}
}

func TestReadRefuses(t *testing.T) {
	head := `{"modules":1}` + "\n"
	network := head + `{"root":0,"class":"A"}` + "\n"
	many := strings.Repeat("[1],", 8) + "[1]"
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "empty"},
		"not JSON":         {head + "{", "line 2"},
		"version":          {`{"modules":2}`, "line 1: modules: version 2"},
		"steps":            {`{"modules":1,"steps":-1}`, "line 1: steps"},
		"left out":         {`{"modules":1,"left_out":-1}`, "line 1: left_out"},
		"no such network":  {head + `{"of":0,"module":"a"}`, "line 2: of: 0"},
		"a hole":           {head + `{"root":1}`, "line 2: root: 1, want 0"},
		"negative":         {network + `{"of":0,"parameters":-1}`, "line 3"},
		"huge":             {network + `{"of":0,"output_elements":4611686018427387904}`, "line 3: output_elements"},
		"beyond 64 bits":   {network + `{"of":0,"output_elements":9e30}`, "line 3"},
		"calls":            {network + `{"of":0,"calls_once":2,"calls":1}`, "line 3: calls_once"},
		"trainable":        {network + `{"of":0,"trainable":2,"parameters":1}`, "line 3: trainable"},
		"dimension":        {network + `{"of":0,"inputs":[[-1]]}`, "line 3: inputs: a dimension of -1"},
		"shapes":           {network + `{"of":0,"outputs":[` + many + `]}`, "line 3: outputs: 9 shapes"},
		"dimensions":       {network + `{"of":0,"outputs":[[1,1,1,1,1,1,1,1,1,1,1,1,1]]}`, "line 3: outputs: 13 dimensions"},
		"flops":            {network + `{"of":0,"flops":-1}`, "line 3: flops"},
		"name":             {network + `{"of":0,"module":"` + strings.Repeat("x", 2000) + `"}`, "line 3: module: 2000 bytes"},
		"class of a root":  {head + `{"root":0,"class":"` + strings.Repeat("x", 2000) + `"}`, "line 2: class"},
		"optimizer":        {head + `{"optimizer":"A","state_bytes":-1}`, "line 2: state_bytes"},
		"states":           {head + `{"optimizer":"A","states":["","","","","","","","",""]}`, "line 2: states: 9"},
		"many networks":    {head + many257(), "line 258: root: 256"},
		"many optimizers":  {head + strings.Repeat(`{"optimizer":"A"}`+"\n", MaxOptimizers+1), "more than 64 optimizers"},
		"too many modules": {network + strings.Repeat(`{"of":0}`+"\n", MaxRows+1), "more than 20000 modules"},
	} {
		if _, err := Read([]byte(c.text)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func many257() string {
	var b strings.Builder
	for i := range MaxNetworks + 1 {
		fmt.Fprintf(&b, "{\"root\":%d}\n", i)
	}
	return b.String()
}

// FuzzRead looks for a panic, and for a table beyond the limits that sums rely on.
func FuzzRead(f *testing.F) {
	f.Add([]byte(sound))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Read(data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v does not say that the table is invalid", err)
			}
			return
		}
		rows := 0
		for _, n := range table.Networks {
			rows += len(n.Modules)
			for _, m := range n.Modules {
				if m.OutputElements < 0 || m.OutputElements > maxCount || m.Parameters < 0 || m.CallsOnce > m.Calls || m.FLOPs < 0 {
					t.Errorf("%+v", m)
				}
			}
		}
		if rows > MaxRows || len(table.Networks) > MaxNetworks || len(table.Optimizers) > MaxOptimizers {
			t.Error("more than the limits")
		}
	})
}

func BenchmarkRead(b *testing.B) {
	line := sound[strings.Index(sound, `{"module":"0"`):strings.Index(sound, `{"something"`)]
	data := []byte(sound + strings.Repeat(line, 5000))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Read(data); err != nil {
			b.Fatal(err)
		}
	}
}
