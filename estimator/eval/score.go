package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
)

// LeastConstantRows is from how many rows at least a constant is taken: of fewer it would be the error of those rows.
const LeastConstantRows = 3

// Constant is what a machine's figures hold beside the reserve that an estimator speaks of: the median of measured minus
// estimated reserve over the rows that are marked for it. One that is not Sound is not used.
type Constant struct {
	Machine, Estimator string
	Bytes              int64
	// Rows is the number of rows that it was taken from, LowBytes and HighBytes the smallest and the largest difference among them.
	Rows                int
	LowBytes, HighBytes int64
}

// Sound says whether the constant can be one: it is of enough rows, and not below zero, for a machine takes nothing away. Where it cannot, what
// the estimator itself says lies outside of the reserve stands in for it, which comes from the profile of the card.
func (c *Constant) Sound() bool { return c.Rows >= LeastConstantRows && c.Bytes >= 0 }

// why says what is wrong with a constant that is not sound.
func (c *Constant) why() string {
	if c.Rows < LeastConstantRows {
		return fmt.Sprintf("of %s, %d are needed", quantity.Count(c.Rows, "row"), LeastConstantRows)
	}
	return "below zero"
}

// publishedSuffix marks the estimates that other authors published.
const publishedSuffix = " (published)"

// Case is one row with one estimator's answer, in the terms in which they are compared.
type Case struct {
	Row       Row
	Estimator string
	Answer    Answer
	// Answered is false where the answer is Unknown.
	Answered bool
	// AddedBytes is what stands for all that the measured figure holds beside the reserve: the machine's constant; where there is none that can be
	// used, what the estimator says lies outside of the reserve; nothing where the row names no machine.
	AddedBytes int64
	// EstimateBytes is the estimated reserve with AddedBytes.
	EstimateBytes int64
	// HighBytes is the upper end with AddedBytes; 0 for a published estimate.
	HighBytes int64
	// CardBytes is what the estimate takes of the card, CapacityBytes what the card has.
	CardBytes, CapacityBytes int64
	// ReserveBytes is the measured figure without AddedBytes.
	ReserveBytes int64
}

// Error is the relative error, negative where the estimate is below the truth.
func (c *Case) Error() float64 {
	return float64(c.EstimateBytes-c.Row.MeasuredBytes) / float64(c.Row.MeasuredBytes)
}

// Full says that the estimate foresees an out-of-memory error.
func (c *Case) Full() bool {
	return c.Answered && (c.Answer.Verdict == Full || c.CardBytes > c.CapacityBytes)
}

// scored says that the error of the case counts: the truth is exact, and both run and estimate end without an out-of-memory error.
func (c *Case) scored() bool { return c.Answered && c.Row.Truth == Exact && !c.Full() }

// Accurate is the judgement that the probability of estimation failure counts the opposite of: an out-of-memory error was foreseen
// where there was one and only there; and the run would pass once more with its reserve limited to the estimate, rounded to whole percent of
// the card, as the published second round does. Here that is arithmetic and no run: the library that takes a smaller workspace, or the
// allocator that gives back its cache, is given no credit.
func (c *Case) Accurate() bool {
	switch {
	case !c.Answered:
		return false
	case c.Row.Truth == OOM || c.Full():
		return c.Row.Truth == OOM && c.Full()
	}
	limit := math.Round(float64(c.CardBytes)/float64(c.CapacityBytes)*100) / 100 * float64(c.CapacityBytes)
	return float64(c.ReserveBytes) <= limit
}

// Comparable are the answers beside the truth.
type Comparable struct {
	Constants []Constant
	Cases     []Case
}

// Compare puts truth and answers together, for the estimators that have answers and those whose estimates the table has. Rows from which a
// constant was taken, crashes, and rows that the estimator was not asked about are in no case.
func Compare(rows []Row, answers *Answers) (*Comparable, error) {
	c, known := &Comparable{}, cards{}
	for _, name := range answers.Estimators() {
		constants := fit(rows, answers, name)
		for _, machine := range slices.Sorted(machines(constants)) {
			c.Constants = append(c.Constants, constants[machine])
		}
		for _, row := range rows {
			x, ok, err := newCase(known, row, name)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			answer, asked := answers.Find(row.Workload, name)
			if !asked {
				continue // the row is not in the sample
			}
			if answer.Verdict != Unknown {
				x.Answer, x.Answered = answer, true
				if constant, fitted := constants[row.Machine]; fitted && constant.Sound() {
					x.AddedBytes = constant.Bytes
				} else if row.Machine != "" {
					x.AddedBytes = answer.OutsideBytes
				}
				x.EstimateBytes, x.HighBytes = answer.ReservedBytes+x.AddedBytes, answer.HighBytes+x.AddedBytes
				x.CardBytes, x.ReserveBytes = answer.ReservedBytes+answer.OutsideBytes, row.MeasuredBytes-x.AddedBytes
			}
			c.Cases = append(c.Cases, x)
		}
	}
	return c, c.addPublished(known, rows, answers)
}

// addPublished adds what others published about the rows of the sample.
func (c *Comparable) addPublished(known cards, rows []Row, answers *Answers) error {
	names := answers.Estimators()
	for _, row := range rows {
		if !slices.ContainsFunc(names, func(name string) bool { _, asked := answers.Find(row.Workload, name); return asked }) {
			continue
		}
		for name, bytes := range row.Published {
			x, ok, err := newCase(known, row, name+publishedSuffix)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			x.Answered, x.EstimateBytes, x.CardBytes, x.ReserveBytes = true, bytes, bytes, row.MeasuredBytes
			x.Answer.Verdict = Fits
			c.Cases = append(c.Cases, x)
		}
	}
	return nil
}

func newCase(known cards, row Row, name string) (Case, bool, error) {
	if row.Fit || row.Truth == Crash || row.MeasuredBytes == 0 {
		return Case{}, false, nil
	}
	card, err := known.load(row.GPU)
	if err != nil {
		return Case{}, false, err
	}
	return Case{Row: row, Estimator: name, CapacityBytes: card.Total.Bytes}, true, nil
}

func machines(constants map[string]Constant) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range constants {
			if !yield(name) {
				return
			}
		}
	}
}

// fit takes the constants of one estimator from the rows that are marked for it.
func fit(rows []Row, answers *Answers, name string) map[string]Constant {
	differences := map[string][]float64{}
	for _, row := range rows {
		if a, ok := answers.Find(row.Workload, name); row.Fit && ok && a.Verdict == Fits {
			differences[row.Machine] = append(differences[row.Machine], float64(row.MeasuredBytes-a.ReservedBytes))
		}
	}
	constants := map[string]Constant{}
	for machine, d := range differences {
		slices.Sort(d)
		constants[machine] = Constant{machine, name, int64(median(d)), len(d), int64(d[0]), int64(d[len(d)-1])}
	}
	return constants
}

// Score says how wrong an estimator is on a part of the table.
type Score struct {
	Group, Estimator string
	// Rows are those that the estimator was asked about and whose truth can be compared, Answered those with an answer that is not unknown, Scored those whose error counts.
	Rows, Answered, Scored int
	// MedianError, MeanError, P95Error and LargestError are of the size of the relative error.
	MedianError, MeanError, P95Error, LargestError float64
	// Under is the share of scored rows, and of rows with a lower bound, that are estimated too low; Under5 those by more than 5 %.
	Under, Under5 float64
	// Covered is the share of scored rows whose truth is at most the upper end; NaN for published estimates.
	Covered float64
	// OOMRows ran out of memory on the real card, OOMForeseen of them were foreseen; FalseOOM others were wrongly thought to.
	OOMRows, OOMForeseen, FalseOOM int
	// Failure is the probability of estimation failure: the share of rows that are not accurate. A row without an answer is none.
	Failure float64
	// ConservedGiB is the memory that is saved on a run, on average: the rest of the card where the estimate is accurate, the whole card where an
	// out-of-memory error was foreseen; where it is not accurate the estimate is lost.
	ConservedGiB float64
	// ConservedAsPublishedGiB is the same as xMem's published code computes it, which takes the estimate from the card in other units than the card's:
	// each accurate row saves the whole card.
	ConservedAsPublishedGiB float64
	// Seconds is the median time of a row, with the run; EstimateSeconds that of the estimator alone, which is what xMem publishes as its run time.
	Seconds, EstimateSeconds float64
}

// AllGroups is the name of the sum of all groups.
const AllGroups = "all"

// Scores sums the cases up, for all rows together and for each group.
func (c *Comparable) Scores() []Score {
	type part struct{ group, estimator string }
	parts := map[part][]*Case{}
	var order []part
	add := func(p part, x *Case) {
		if parts[p] == nil {
			order = append(order, p)
		}
		parts[p] = append(parts[p], x)
	}
	for i := range c.Cases {
		x := &c.Cases[i]
		add(part{AllGroups, x.Estimator}, x)
		if x.Row.Group != "" {
			add(part{x.Row.Group, x.Estimator}, x)
		}
	}
	slices.SortStableFunc(order, func(a, b part) int {
		if first := cmp.Compare(b2i(a.group != AllGroups), b2i(b.group != AllGroups)); first != 0 {
			return first
		}
		return cmp.Or(strings.Compare(a.group, b.group), cmp.Compare(b2i(strings.HasSuffix(a.estimator, publishedSuffix)), b2i(strings.HasSuffix(b.estimator, publishedSuffix))))
	})
	scores := make([]Score, 0, len(order))
	for _, p := range order {
		scores = append(scores, score(p.group, p.estimator, parts[p]))
	}
	return scores
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

const gibibyte = 1 << 30

func score(group, name string, cases []*Case) Score {
	s := Score{Group: group, Estimator: name}
	var errors, seconds, estimateSeconds []float64
	var judged, failed, bounded, under, under5, covered int
	var saved, published float64
	for _, x := range cases {
		s.Rows++
		if x.Answered {
			s.Answered++
			seconds = append(seconds, x.Answer.RunSeconds+x.Answer.EstimateSeconds)
			estimateSeconds = append(estimateSeconds, x.Answer.EstimateSeconds)
		}
		if x.scored() {
			errors = append(errors, math.Abs(x.Error()))
			covered += b2i(x.Row.MeasuredBytes <= x.HighBytes)
		}
		if x.scored() || x.Answered && x.Row.Truth == AtLeast && !x.Full() {
			bounded++
			under += b2i(x.Error() < 0)
			under5 += b2i(x.Error() < -0.05)
		}
		if x.Row.Truth == AtLeast {
			continue // neither accurate nor inaccurate
		}
		judged++
		s.OOMRows += b2i(x.Row.Truth == OOM)
		s.OOMForeseen += b2i(x.Row.Truth == OOM && x.Full())
		s.FalseOOM += b2i(x.Row.Truth == Exact && x.Full())
		switch {
		case !x.Accurate():
			failed++
			saved -= float64(x.CardBytes)
			published -= float64(x.CardBytes)
		case x.Row.Truth == OOM:
			saved += float64(x.CapacityBytes)
			published += float64(x.CapacityBytes)
		default:
			saved += float64(x.CapacityBytes - x.CardBytes)
			published += float64(x.CapacityBytes) - float64(x.CardBytes)/gibibyte
		}
	}
	s.Scored = len(errors)
	slices.Sort(errors)
	s.MedianError, s.MeanError, s.P95Error, s.LargestError = median(errors), mean(errors), percentile(errors, 0.95), percentile(errors, 1)
	s.Under, s.Under5, s.Covered = share(under, bounded), share(under5, bounded), share(covered, s.Scored)
	s.Failure, s.ConservedGiB, s.ConservedAsPublishedGiB = share(failed, judged), saved/float64(judged)/gibibyte, published/float64(judged)/gibibyte
	if strings.HasSuffix(name, publishedSuffix) {
		s.Covered, s.Seconds, s.EstimateSeconds = math.NaN(), math.NaN(), math.NaN()
		return s
	}
	slices.Sort(seconds)
	slices.Sort(estimateSeconds)
	s.Seconds, s.EstimateSeconds = median(seconds), median(estimateSeconds)
	return s
}

func share(n, of int) float64 { return float64(n) / float64(of) }

// median is that of sorted values: the mean of the two in the middle where their number is even.
func median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// percentile is the smallest of sorted values that at least that share of them does not exceed.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// Largest are the scored cases of an estimator with the largest errors, at most n, and what it could not tell.
func (c *Comparable) Largest(name string, n int) []Case {
	var cases []Case
	for _, x := range c.Cases {
		if x.Estimator == name && x.scored() {
			cases = append(cases, x)
		}
	}
	slices.SortStableFunc(cases, func(a, b Case) int { return cmp.Compare(math.Abs(b.Error()), math.Abs(a.Error())) })
	return cases[:min(n, len(cases))]
}

func percent(v float64, digits int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f %%", digits, 100*v)
}
