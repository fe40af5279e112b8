package veritasest

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/methods/cpuprofile/profiletest"
)

// TestLeafModules: the function in the parent and the temporaries of the optimizer are not the method's, weights, state, batch, activation and
// gradient are.
func TestLeafModules(t *testing.T) {
	p, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	e, err := Estimate(profiletest.Bundle(profiletest.Report(3, cpuprofile.RecordingWhole, nil), profiletest.Training(3, true).Text()), p)
	if err != nil {
		t.Fatal(err)
	}
	want := 3*profiletest.WeightBytes + profiletest.BatchBytes + profiletest.ActivationBytes
	if got := e.Ranks[0].PeakAllocatedBytes; got != want {
		t.Errorf("%d MiB are allocated at the peak, want %d MiB", got/profiletest.MiB, want/profiletest.MiB)
	}
}

func TestOnlyConvolutionalNetworks(t *testing.T) {
	p, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"none":      profiletest.Training(3, false).Text(),
		"attention": profiletest.Training(3, true).Op("aten::embedding", 35, 36, 5).Text(),
	} {
		e, err := Estimate(profiletest.Bundle(profiletest.Report(3, cpuprofile.RecordingWhole, nil), text), p)
		if err != nil || e.Confidence != estimator.Unknown || e.Reasons[len(e.Reasons)-1].Code != "not_covered" {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
	}
}
