package policy

import "github.com/gresize/gresize/daemon/decision"

// Calibrated is a margin that was learnt from what jobs have used. The zero value is one of which nothing is known.
type Calibrated struct {
	// Ratio is by what the upper end of the estimate is to be multiplied; 0: too little is known, and the fixed margin stands.
	Ratio float64
	// Worst is the largest ratio that was seen for the card, 0 when none was.
	Worst float64
}

// maxMarginRatio bounds what a margin can be: a need that is a hundred times the estimate fits nothing anyway, and must not overflow.
const maxMarginRatio = 100

// margin is what is added to the upper end of an estimate, and of which kind it is.
func (r Rules) margin(highBytes int64, c Calibrated) (bytes int64, kind string) {
	over := func(ratio float64) int64 { return int64(float64(highBytes) * (min(ratio, maxMarginRatio) - 1)) }
	if c.Ratio <= 0 {
		bytes = max(highBytes/100*int64(r.MarginPercent), r.MarginMinBytes)
		if seen := over(c.Worst); seen > bytes {
			return seen, decision.MarginSeen
		}
		return bytes, decision.MarginFixed
	}
	if floor := max(highBytes/100*int64(r.FloorPercent), r.FloorMinBytes); over(c.Ratio) < floor {
		return floor, decision.MarginFloor
	}
	return over(c.Ratio), decision.MarginCalibrated
}
