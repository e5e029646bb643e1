package screen

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"weak"

	"github.com/learning-to-screen/l2s/softmax"
)

// A budget B bounds the mean number of candidates over the contexts of training (L-bar <= B,
// Equation 7 of the paper). The greedy knapsack takes candidates by falling share, so
// that a budget is a threshold: the candidates of a cell are the ids of its list whose share reaches
// it. One file serves every budget of its ladder.

// Rung is one budget of a model.
type Rung struct {
	// Budget is B, above 0 and finite. It ascends over the ladder.
	Budget float64 `json:"budget"`
	// Share is the threshold. It does not ascend over the ladder.
	Share uint16 `json:"share"`
	// MeanCandidates, P99Candidates and MaxCandidates are of the numbers of candidates of
	// held-out contexts: mean, 99th percentile and largest, all 0 if there were none.
	MeanCandidates float64 `json:"mean_candidates"`
	P99Candidates  int     `json:"p99_candidates"`
	MaxCandidates  int     `json:"max_candidates"`
	// Precision1 and PrecisionK are P@1 and P@k of these contexts.
	Precision1 Estimate `json:"precision_1"`
	PrecisionK Estimate `json:"precision_k"`
}

// Estimate is a measured number with its 95% interval: 0 <= Low <= Value <= High <= 1.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// maxRungs bounds the budgets of a model.
const maxRungs = 64

// Share returns the share of a probability as lists hold it: 65,535 for 1, 0 below 2^-31,
// between them its binary exponent and 11 bits of its mantissa in float32.
func Share(p float64) uint16 {
	const unit, least = 1 << 12, 96 << 23 // least: the bits of 2^-31
	bits := math.Float32bits(float32(p))
	switch {
	case !(p >= 0x1p-31): // or NaN
		return 0
	case p >= 1:
		return math.MaxUint16
	}
	return uint16((bits-least)/unit) + 1
}

func (m *Model) checkLadder() error {
	if n := len(m.c.Ladder); n < 1 || n > maxRungs {
		return fmt.Errorf("found %d budgets, expected 1 to %d", n, maxRungs)
	}
	if m.c.K < 0 || m.c.K > m.c.Labels || m.c.HeldOut < 0 || m.c.HeldOut > maxCount {
		return fmt.Errorf("found k %d and %d held-out contexts, expected 0 to the %d labels, and 0 or more", m.c.K, m.c.HeldOut, m.c.Labels)
	}
	for i, x := range m.c.Ladder {
		switch {
		case !(x.Budget > 0) || math.IsInf(x.Budget, 1) || i > 0 && x.Budget <= m.c.Ladder[i-1].Budget:
			return fmt.Errorf("rung %d: found budget %v, expected finite numbers above 0, ascending", i, x.Budget)
		case i > 0 && x.Share > m.c.Ladder[i-1].Share:
			return fmt.Errorf("rung %d: found share %d after %d, expected shares that do not ascend", i, x.Share, m.c.Ladder[i-1].Share)
		case !(x.MeanCandidates >= 0) || math.IsInf(x.MeanCandidates, 1) || x.P99Candidates < 0 || x.MaxCandidates < x.P99Candidates || x.MaxCandidates > m.c.Labels:
			return fmt.Errorf("rung %d: found %v, %d and %d candidates, expected a mean, a 99th percentile and a largest number", i, x.MeanCandidates, x.P99Candidates, x.MaxCandidates)
		}
		for _, e := range []Estimate{x.Precision1, x.PrecisionK} {
			if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
				return fmt.Errorf("rung %d: found precision %v within %v and %v, expected numbers from 0 to 1 in order", i, e.Value, e.Low, e.High)
			}
		}
	}
	return nil
}

// Ladder returns the budgets that the model knows, ascending. It must not be changed.
func (m *Model) Ladder() []Rung { return m.c.Ladder }

// LadderOf returns what the figures of the ladder are of: the k of PrecisionK, and the number
// of held-out contexts, 0 if nothing was measured.
func (m *Model) LadderOf() (k, heldOut int) { return m.c.K, m.c.HeldOut }

// Budget returns the budget of requests that name none.
func (m *Model) Budget() float64 { return m.c.Budget }

// WithBudget returns a copy of the model in which requests that name no budget have this one, the
// largest of the ladder that is not above it, or the smallest, and the exact layer answers below this lead, see Config; record is the training
// record, nil for the model's own. The two share their memory.
func (m *Model) WithBudget(budget, exactMargin float64, record json.RawMessage) (*Model, error) {
	with, err := m.withRecord(record)
	if err != nil {
		return nil, err
	}
	rung, err := m.rungOf(budget)
	if err = cmp.Or(err, checkExactMargin(exactMargin)); err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	with.c.Budget, with.c.ExactMargin = m.c.Ladder[rung].Budget, exactMargin
	return with, nil
}

// rungOf returns the place of the largest budget of the ladder that is not above the given one, or of
// the smallest: a request that one model takes is not refused by another one, which may take its place.
func (m *Model) rungOf(budget float64) (int, error) {
	if !(budget > 0) { // or NaN
		return 0, fmt.Errorf("budget: found %v, expected a number above 0", budget)
	}
	return max(0, sort.Search(len(m.c.Ladder), func(i int) bool { return m.c.Ladder[i].Budget > budget })-1), nil
}

// derived is what follows from a model and is made when it is needed: shared by its copies.
type derived struct {
	mu      sync.Mutex // of cuts
	cuts    map[uint16][]uint32
	packing sync.Mutex                               // of packs
	packs   map[packKey]weak.Pointer[softmax.Packed] // which searchers keep alive
}

// cut returns for each cell the number of its candidates of at least that share.
func (m *Model) cut(share uint16) []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cut, ok := m.cuts[share]; ok {
		return cut
	}
	cut := make([]uint32, m.Cells())
	for t := range cut {
		cut[t] = uint32(m.candidates(t, share))
	}
	m.cuts[share] = cut
	return cut
}

// candidates returns the number of candidates of a cell of at least that share.
func (m *Model) candidates(cell int, share uint16) int {
	shares := m.c.Lists[cell].Shares
	return sort.Search(len(shares), func(i int) bool { return shares[i] < share })
}

func (m *Model) first(cell, n int) []uint32 { return m.c.Lists[cell].IDs[:n:n] }

// Candidates returns the candidates that a cell has within a budget, best first, not to be
// changed: as [Budget] says. It returns an error if the budget is not above 0.
func (m *Model) Candidates(cell int, budget float64) ([]uint32, error) {
	at, err := m.rungOf(budget)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m.first(cell, m.candidates(cell, m.c.Ladder[at].Share)), nil
}

// Outcome says where the best labels of a context stand in the list of its cell: what the
// precision of every budget follows from.
type Outcome struct {
	Cell int
	// Places holds, for each of the k best labels of the exact layer, the number of candidates
	// at which it is one: its place in the list, from 1 on, or MaxInt32 if it is not there.
	Places []int32
}

// Outcome returns the outcome of a context of that cell whose best labels are these.
func (m *Model) Outcome(cell int, best []softmax.Prediction) Outcome {
	o := Outcome{cell, make([]int32, len(best))}
	for j, p := range best {
		o.Places[j] = math.MaxInt32
		if at := slices.Index(m.c.Lists[cell].IDs, p.ID); at >= 0 {
			o.Places[j] = int32(at + 1)
		}
	}
	return o
}

// Hits returns how many of the k best labels a searcher finds that looks at the first n
// candidates of the cell: all if there are fewer than k, since the exact layer answers then.
func (o *Outcome) Hits(k, n int) int {
	if n < k {
		return k
	}
	return o.among(k, n)
}

// among returns how many of the k best labels are among the first n candidates of the cell.
func (o *Outcome) among(k, n int) (hits int) {
	for _, place := range o.Places[:k] {
		if int(place) <= n {
			hits++
		}
	}
	return hits
}

// runs is the number of runs of neighbouring contexts that intervals are taken over.
const runs = 50

// Measure returns the ladder with the figures of these contexts, given in the order of the
// text: P@1, and P@k for the k of each outcome, at least 1.
func (m *Model) Measure(outcomes []Outcome, k int) []Rung {
	ladder := slices.Clone(m.c.Ladder)
	sizes := make([]int, len(outcomes))
	for i := range ladder {
		x := &ladder[i]
		if *x = (Rung{Budget: x.Budget, Share: x.Share}); len(outcomes) == 0 {
			continue
		}
		cut := m.cut(x.Share)
		for j := range outcomes {
			sizes[j] = int(cut[outcomes[j].Cell])
		}
		x.Precision1 = precisionOf(outcomes, sizes, 1)
		x.PrecisionK = precisionOf(outcomes, sizes, k)
		x.MeanCandidates, x.P99Candidates, x.MaxCandidates = spread(sizes)
	}
	return ladder
}

// spread returns the mean of sizes, their 99th percentile, and the largest. It sorts them.
func spread(sizes []int) (mean float64, p99, largest int) {
	total := 0
	for _, size := range sizes {
		total += size
	}
	slices.Sort(sizes)
	n := len(sizes)
	return float64(total) / float64(n), sizes[(99*n+99)/100-1], sizes[n-1]
}

// precisionOf is P@k of contexts with these numbers of candidates. Its interval is Student's,
// about, over runs of neighbours; where too few labels are missed for that it is the rule
// of three: what n contexts without a miss allow at 95%.
func precisionOf(outcomes []Outcome, sizes []int, k int) Estimate {
	n := len(outcomes)
	missed := make([]int, min(runs, n))
	all := 0
	for b := range missed {
		for i := b * n / len(missed); i < (b+1)*n/len(missed); i++ {
			missed[b] += k - outcomes[i].Hits(k, sizes[i])
		}
		all += missed[b]
	}
	labels := float64(n * k)
	mean := float64(all) / labels
	squares := 0.0
	for b, x := range missed {
		size := (b+1)*n/len(missed) - b*n/len(missed)
		off := float64(x) - float64(mean*float64(size*k))
		squares += float64(off * off)
	}
	half := 0.0
	if r := float64(len(missed)); r > 1 {
		half = 2 * math.Sqrt(float64(squares*r/(r-1))) / labels
	}
	three := min(3/float64(n), 1)
	return Estimate{Value: 1 - mean, Low: max(0, min(1-mean-half, 1-max(mean, three))), High: min(1, 1-mean+half)}
}
