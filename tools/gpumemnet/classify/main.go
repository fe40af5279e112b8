// Command classify asks GPUMemNet's nets about programs: one JSON object a line in ({"batch":B,"optimizer_states":S,"layers":[[CLASS,OUTPUTS,PARAMETERS],…]}), one out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/gresize/gresize/estimator/methods/gpumemnet"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "classify:", err)
		os.Exit(1)
	}
}

// layer is a list of three in JSON.
type layer struct{ gpumemnet.Layer }

func (l *layer) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&l.Class, &l.Activations, &l.Parameters})
}

func run() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var line struct {
			Batch           int64
			OptimizerStates int64 `json:"optimizer_states"`
			Layers          []layer
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			return err
		}
		p := gpumemnet.Program{Batch: line.Batch, OptimizerStates: line.OptimizerStates}
		for _, l := range line.Layers {
			p.Layers = append(p.Layers, l.Layer)
		}
		a, err := gpumemnet.Classify(p)
		answer := map[string]any{"class": a.Class, "kind": a.Kind, "upper_mib": a.UpperBytes >> 20}
		var unknown *gpumemnet.Unknown
		if errors.As(err, &unknown) {
			answer = map[string]any{"unknown": unknown.Code, "detail": unknown.Detail}
		} else if err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}
