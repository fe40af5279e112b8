package e2e

import (
	"encoding/json"
	"testing"

	"github.com/gresize/gresize/estimator"
)

func bundleFor(t *testing.T, gib int64, c estimator.Confidence) []byte {
	e := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: c, Fits: true, Steps: 4, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: gib << 30, ComfortableBytes: gib << 30, ComfortableHighBytes: gib << 30}}}
	b, err := json.Marshal(e)
	must(t, err)
	return b
}
