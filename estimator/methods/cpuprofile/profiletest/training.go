package profiletest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"

	"github.com/gresize/gresize/estimator/trace"
)

// Sizes of the training that Training tells. Each is distinct, so that a figure shows what is in it.
const (
	MiB             = int64(1) << 20
	WeightBytes     = 16 * MiB
	ActivationBytes = 40 * MiB
	FunctionBytes   = 24 * MiB
	ScratchBytes    = 100 * MiB
	BatchBytes      = 12 * MiB
	HostBytes       = 200 * MiB
	LossBytes       = 2 * MiB
)

// Training tells so many iterations of a training with one leaf module "Linear_0" in a parent "Block_0", a function in the parent, a loss outside of
// all, and an optimizer that makes its state in the first step and has a temporary in each.
func Training(iterations int, convolution bool) *Trace {
	t := new(Trace)
	op := "aten::addmm"
	if convolution {
		op = "aten::convolution"
	}
	const long = 1000
	for i := range iterations {
		o := float64(i * long)
		at := func(n float64) float64 { return o + n }
		n := i * 10
		addr := uint64(i%2+1) << 40
		t.Mark(fmt.Sprintf("ProfilerStep#%d", i), at(0), at(999))
		t.Op("aten::randn", at(1), at(3), -1).Memory(at(2), 1<<30, HostBytes) // the loader's work
		t.Raw(fmt.Sprintf(`{"ph":"X","cat":"cpu_op","name":"aten::to","tid":%d,"ts":%.3f,"dur":1,"args":{"Concrete Inputs":["","6","0"],"Input Dims":[[%d]]}}`, process, at(9), BatchBytes/4))
		t.Raw(fmt.Sprintf(`{"ph":"X","cat":"cpu_op","name":"aten::to","tid":%d,"ts":%.3f,"dur":1,"args":{"Concrete Inputs":["","4","0"],"Input Dims":[[64]]}}`, process, at(11.5)))
		t.Mark("gresize.to_device", at(10), at(12)).Op("aten::clone", at(10.5), at(11.5), -1).Memory(at(11), addr+1, BatchBytes)
		if i > 0 { // what the names of the iteration before held
			t.Memory(at(11.6), uint64((i+1)%2+1)<<40+1, -BatchBytes)
		}
		t.Memory(at(13), 1<<30, -HostBytes)
		t.Mark("Optimizer.zero_grad#Adam.zero_grad", at(20), at(25))
		if i > 0 {
			t.Memory(at(22), 5<<40, -WeightBytes)
		}
		// The forward pass: a leaf with scratch in its operator, then a function of the parent.
		t.Module("Block_0", at(30), at(70)).Module("Linear_0", at(31), at(50))
		t.Op(op, at(32), at(48), n+1).Op("aten::empty", at(33), at(35), -1).Memory(at(34), 2<<30, ScratchBytes).Memory(at(40), addr+2, ActivationBytes).Memory(at(45), 2<<30, -ScratchBytes)
		t.Op("aten::add", at(55), at(60), n+2).Memory(at(56), addr+3, FunctionBytes)
		t.Op("aten::nll_loss", at(75), at(80), n+3).Memory(at(76), addr+4, LossBytes)
		// The backward pass, which frees what it has used.
		t.Mark("gresize.backward", at(100), at(200))
		t.Op("autograd::engine::evaluate_function: NllLossBackward0", at(101), at(110), n+3).Memory(at(105), addr+4, -LossBytes)
		t.Op("autograd::engine::evaluate_function: AddBackward0", at(120), at(130), n+2).Memory(at(125), addr+3, -FunctionBytes)
		t.Op("autograd::engine::evaluate_function: AddmmBackward0", at(140), at(180), n+1).Op("aten::mm", at(141), at(150), -1)
		t.Memory(at(145), 5<<40, WeightBytes).Memory(at(170), addr+2, -ActivationBytes)
		t.Mark("Optimizer.step#Adam.step", at(300), at(400))
		if i == 0 {
			t.Op("aten::zeros_like", at(310), at(312), -1).Memory(at(311), 6<<40, WeightBytes).Memory(at(313), 7<<40, 4) // the state, and the count of steps
		}
		t.Op("aten::_foreach_sqrt", at(320), at(340), -1).Op("aten::sqrt", at(321), at(339), -1).Memory(at(330), 3<<30, WeightBytes)
		t.Op("aten::_foreach_div_", at(350), at(360), -1).Memory(at(355), 4<<30, WeightBytes).Memory(at(356), 4<<30, -WeightBytes)
		t.Memory(at(390), 3<<30, -WeightBytes)
	}
	return t
}

// Report is what the Python layer would leave beside Training, with changes.
func Report(iterations int, recording string, changes map[string]any) json.RawMessage {
	report := map[string]any{
		"schema": "gresize.profile/1", "pid": process, "reason": "stopped", "torch": "2.6.0+cu124", "recording": recording, "steps": iterations, "iterations": iterations,
		"optimizers": []string{"Adam"}, "trace": "written", "weights": [][2]int64{{WeightBytes, 0}}, "replaced": []string{},
	}
	for key, value := range changes {
		report[key] = value
	}
	data, err := json.Marshal(report)
	if err != nil {
		panic(err) // the caller's values are no JSON
	}
	return data
}

// Bundle is a bundle with the one process.
func Bundle(report json.RawMessage, text string) *trace.Bundle {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(text)); err != nil {
		panic(err) // memory does not fail
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return &trace.Bundle{Manifest: trace.Manifest{Schema: trace.Schema, Mode: trace.ModeProfile, Outcome: trace.Stopped, RankCount: 1},
		Ranks: []trace.Rank{{Report: report, Profile: packed.Bytes()}}}
}
