// Package calibration turns what jobs really used into the margin of the next
// one: an adaptive conformal quantile of actual over estimate, by GPU,
// estimator and confidence. It is pure: it reads no log and no clock, and the
// same actuals in the same order always give the same margin.
package calibration

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

const (
	// window is how many of the latest actuals of a group count: older ones speak of other programs, drivers and estimators.
	window = 1000
	// oneUser is how many of them may be of one user: beyond it his later ones take the place of his earlier ones, so that nobody fills a group by himself, with what
	// his probes were made to say.
	oneUser = window / 2
	// rate is the step of the adaptation. The long-run failure rate is off its target by at most about 1/(rate·n) after n jobs.
	rate = 0.005
	// beyondDeath is by how much a job that died is taken to have needed more than what it had, or than the margin of its moment. It is not known; that it
	// died lowers the level as well, so the rate holds whatever stands here.
	beyondDeath = 1.05
	// maxRatio is beyond what an estimate can be wrong by; a larger one is an error of the measurement.
	maxRatio = 100
	// maxGroups bounds the memory; a site has some dozens.
	maxGroups = 4096
)

// Options are what the site sets.
type Options struct {
	// TargetFailureRate is the part of the jobs that may need more than estimate and margin together; 0: nothing is calibrated.
	TargetFailureRate float64
}

// Key is what estimates have in common whose errors are alike.
type Key struct{ GPU, Estimator, Confidence string }

// Observation is one run of which it is known how much it took.
type Observation struct {
	Key
	// Ratio is the measured peak over the upper end of the estimate; of a job that died, it is what is known that it needed more than, 0 when nothing is.
	Ratio float64
	// Died says that the job ran out of memory: it needed more than can be measured.
	Died bool
	// User is whose job it was; 0: not known, or nobody's.
	User uint32
}

// Margin is a margin and its evidence.
type Margin struct {
	// Calibrated is false while too little is known; the site's fixed margin stands then.
	Calibrated bool
	// Ratio is by what the upper end of an estimate is to be multiplied; at least 1.
	Ratio float64
	// Group is where it comes from, Actuals how many there are in it and Died how many of them ran out of memory.
	Group         string
	Actuals, Died int
	// TargetFailureRate is the site's.
	TargetFailureRate float64
}

// Table holds the groups. It is not safe for concurrent use.
type Table struct {
	options Options
	groups  map[Key]*group
}

// New makes an empty table.
func New(options Options) *Table { return &Table{options: options, groups: map[Key]*group{}} }

// group holds the latest scores twice: in the order in which they came, and sorted.
type group struct {
	recent []score
	sorted []float64
	died   int
	// level is the failure rate that is aimed at at this moment: below the target after failures, above it after none.
	level float64
}

type score struct {
	ratio float64
	died  bool
	user  uint32
}

// widen lists the groups that a key belongs to, the narrowest first.
func widen(k Key) [3]Key {
	return [3]Key{k, {Estimator: k.Estimator, Confidence: k.Confidence}, {Estimator: k.Estimator}}
}

// Add takes an actual into all groups that it belongs to.
func (t *Table) Add(o Observation) {
	if math.IsNaN(o.Ratio) || o.Ratio < 0 || o.Ratio > maxRatio {
		return
	}
	for _, k := range widen(o.Key) {
		g := t.groups[k]
		if g == nil {
			if len(t.groups) >= maxGroups {
				continue
			}
			g = &group{level: t.options.TargetFailureRate}
			t.groups[k] = g
		}
		g.add(o, t.options.TargetFailureRate)
	}
}

func (g *group) add(o Observation, target float64) {
	// Whether this job would have kept to the margin of its moment decides on the margin of the next.
	q, known := g.quantile(target)
	if o.Died {
		o.Ratio = min(max(o.Ratio, q, 1)*beyondDeath, maxRatio)
	}
	full, mine := o.User != 0 && g.of(o.User) >= oneUser, func(s score) bool { return s.user == o.User }
	if known {
		failed := 0.0
		if o.Ratio > q {
			failed = 1
		}
		if failed > 0 || !full {
			g.level += rate * (target - failed)
			g.level = min(max(g.level, -10*rate), 2*target)
		}
	}
	switch {
	case full:
		g.remove(slices.IndexFunc(g.recent, mine))
	case len(g.recent) == window:
		g.remove(0)
	}
	g.recent = append(g.recent, score{o.Ratio, o.Died, o.User})
	g.died += count(o.Died)
	g.sorted = slices.Insert(g.sorted, sort.SearchFloat64s(g.sorted, o.Ratio), o.Ratio)
}

// Died takes up that the run of an observation, which was measured and added without it, died of memory: it needed more than what was measured.
func (t *Table) Died(o Observation) {
	for _, k := range widen(o.Key) {
		if g := t.groups[k]; g != nil {
			g.markDied(o.Ratio, t.options.TargetFailureRate)
		}
	}
}

func (g *group) markDied(ratio, target float64) {
	// The latest of them: nobody else's run has the same bytes by accident, and if so nothing is lost.
	for i := range g.recent {
		s := &g.recent[len(g.recent)-1-i]
		if s.died || s.ratio != ratio {
			continue
		}
		q, known := g.quantile(target)
		if known && ratio <= q {
			g.level = max(g.level-rate, -10*rate) // it was taken for one that kept to its margin
		}
		at := sort.SearchFloat64s(g.sorted, ratio)
		g.sorted = slices.Delete(g.sorted, at, at+1)
		s.ratio, s.died = min(max(ratio, q, 1)*beyondDeath, maxRatio), true
		g.sorted = slices.Insert(g.sorted, sort.SearchFloat64s(g.sorted, s.ratio), s.ratio)
		g.died++
		return
	}
}

// of is how many of the actuals are of a user.
func (g *group) of(user uint32) int {
	n := 0
	for _, s := range g.recent {
		n += count(s.user == user)
	}
	return n
}

func (g *group) remove(i int) {
	old := g.recent[i]
	at := sort.SearchFloat64s(g.sorted, old.ratio)
	g.sorted = slices.Delete(g.sorted, at, at+1)
	g.died -= count(old.died)
	g.recent = slices.Delete(g.recent, i, i+1)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// quantile is the conformal quantile at the group's level. It is not known before there are so many actuals that one of them can stand for it.
func (g *group) quantile(target float64) (q float64, known bool) {
	n := len(g.sorted)
	if rank(n, target) > n {
		return 0, false
	}
	if k := rank(n, max(g.level, 0)); k <= n {
		return g.sorted[k-1], true
	}
	// Too many failed lately: the largest of all, and as much again as it lies above the target's own quantile.
	top, usual := g.sorted[n-1], g.sorted[rank(n, target)-1]
	return top + (top - usual), true
}

// rank is the place of the quantile among n scores: ⌈(n+1)(1-level)⌉.
func rank(n int, level float64) int { return int(math.Ceil(float64(n+1)*(1-level) - 1e-9)) }

// Margin is the margin of an estimate: that of the narrowest group which knows one.
func (t *Table) Margin(k Key) Margin {
	m := Margin{TargetFailureRate: t.options.TargetFailureRate}
	if m.TargetFailureRate <= 0 {
		return m
	}
	for i, wider := range widen(k) {
		g := t.groups[wider]
		if g == nil {
			continue
		}
		q, known := g.quantile(m.TargetFailureRate)
		if i == 0 {
			// What little is known of the narrowest group is told even where it is not enough.
			m.Group, m.Actuals, m.Died = wider.String(), len(g.sorted), g.died
		}
		if !known {
			continue
		}
		m.Calibrated, m.Ratio, m.Group, m.Actuals, m.Died = true, max(q, 1), wider.String(), len(g.sorted), g.died
		break
	}
	// A wider group knows nothing of what this card's own few have shown.
	if m.Calibrated && m.Group != k.String() {
		m.Ratio = max(m.Ratio, t.Worst(k))
	}
	return m
}

// Worst is the largest ratio of a key, 0 when there is none: a fixed margin must not be smaller than what has been seen.
func (t *Table) Worst(k Key) float64 {
	if g := t.groups[k]; g != nil {
		return g.sorted[len(g.sorted)-1]
	}
	return 0
}

// Needed is how many actuals a group must have before it has a margin of its own.
func Needed(target float64) int {
	if target <= 0 {
		return math.MaxInt
	}
	return int(math.Ceil(1/target-1e-9)) - 1
}

// String is the group in the words of the log.
func (k Key) String() string {
	text := "estimator=" + k.Estimator
	if k.GPU != "" {
		text = "gpu=" + k.GPU + " " + text
	}
	if k.Confidence != "" {
		text = fmt.Sprintf("%s confidence=%s", text, k.Confidence)
	}
	return text
}
