package bundled

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/horus"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/modules"
)

// The two forms of Horus.
const (
	horusName          = "horus"
	horusPublishedName = horusName + Published
)

// layers is how a command is run for the estimators that know a network by its layers.
var layers = trace.Recording{Parts: []trace.Part{trace.PartModules}}

// horusMeant answers with the formula as it was meant, beside what the card's context and libraries take.
func horusMeant(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	outside, outsideHigh := card.OutsideBytes(b.Manifest.Libraries)
	return byLayers(horusName, b, card, outside, outsideHigh, horus.MeantBytes)
}

// horusPublished answers with the formula as it was printed, and its constant.
func horusPublished(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	return byLayers(horusPublishedName, b, card, horus.PublishedOutsideBytes, horus.PublishedOutsideBytes, func(t *modules.Table) (int64, error) {
		counts, err := horus.CountPublished(t)
		return counts.PublishedBytes(), err
	})
}

// byLayers answers for each rank from its table of modules.
func byLayers(name string, b *trace.Bundle, card *gpu.Profile, outside, outsideHigh int64, formula func(*modules.Table) (int64, error)) (estimator.Estimate, error) {
	e := estimator.Estimate{Confidence: estimator.Low, Fits: true, Reasons: append(slices.Clone(b.Manifest.Reasons),
		estimator.Reason{Code: estimator.CodeRuleOfThumb, Detail: "a formula of layers, parameters and the batch: no optimizer, no workspaces, no allocator"})}
	for i := range b.Ranks {
		data := b.Ranks[i].Parts[trace.PartModules]
		if len(data) == 0 {
			return notCovered(name, b, card, fmt.Sprintf("rank %d has no table of modules", i)), nil
		}
		table, err := modules.Read(data)
		if err != nil {
			return estimator.Estimate{}, fmt.Errorf("ranks/%d/modules.jsonl: %w", i, err)
		}
		bytes, err := formula(table)
		if errors.Is(err, horus.ErrNotCovered) {
			return notCovered(name, b, card, err.Error()), nil
		}
		if err != nil {
			return estimator.Estimate{}, err
		}
		e.Ranks = append(e.Ranks, wholeRank(i, bytes, outside, outsideHigh))
		e.Fits = e.Fits && bytes+outside <= card.Total.Bytes
	}
	return e, nil
}

// wholeRank is a rank whose blocks and segments a method does not tell apart.
func wholeRank(number int, bytes, outside, outsideHigh int64) estimator.Rank {
	return estimator.Rank{Rank: number, PeakAllocatedBytes: bytes, PeakReservedBytes: bytes, OutsideBytes: outside,
		ComfortableBytes: bytes + outside, ComfortableHighBytes: bytes + max(outside, outsideHigh)}
}

func notCovered(name string, b *trace.Bundle, card *gpu.Profile, detail string) estimator.Estimate {
	return estimator.NewUnknown(name, card.ID, append(slices.Clone(b.Manifest.Reasons), estimator.Reason{Code: estimator.CodeNotCovered, Detail: detail})...)
}
