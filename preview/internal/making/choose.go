package making

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
)

// The reach and the deviations of a rung are chosen from these.
var (
	reaches    = append(steps(3, 0.25, 29), 11, 12, 13, 15, 17, 20, 24, 30, 40)
	deviations = append(steps(0.25, 0.25, 32), 9, 10, 11, 12, 14, 16, 20, 24, 30, 40)
)

func steps(from, step float64, n int) (x []float64) {
	for i := range n {
		x = append(x, from+float64(step*float64(i)))
	}
	return x
}

// factors are the allowed misses of the rungs, in multiples of the allowed misses of the normal
// rung.
var factors = []float64{128, 64, 32, 16, 8, 4, 2, 1, 0.5, 0.25}

// leastDeviations are the least of the normal rung, and previewing.LeastReach is its least reach: where the
// rise of labels finds nearly all of the best, held-out contexts hardly tell how far texts of other kinds need
// searches to look.
const leastDeviations = 1

// need has the settings that the search for one label takes: what it is found by without them is
// below 0.
type need struct{ reach, deviations float32 }

// survey has the needs of held-out contexts and their costs, found by a look at all labels.
type survey struct {
	n, k int
	best []need // of the k best labels of each context
	// For each of some of the contexts, the share of the codes within each reach, and the number of
	// labels within each of the deviations.
	costs        int
	looked, kept []float32
}

// places are the places of labels in panels.
func (m *maker) places() []int {
	places := make([]int, m.Labels)
	for i, id := range m.IDs {
		if places[id] = i; i >= m.Labels-m.Outliers {
			places[id] = -1 // an outlier: it is always found
		}
	}
	return places
}

const (
	// usualShare is the share of held-out contexts whose spread is usual.
	usualShare = 0.6
	// Rises count from the smallest spread on of the own states that this part of the least reach does not
	// find: the whole of it finds the few others.
	ofLeastReach = 0.9
)

// findSpreads finds the spreads from which on the distances of searches are others, and the usual length, by
// held-out contexts and the needs of own states.
func (m *maker) findSpreads(ctx context.Context, model *previewing.Model, held []float32, own []previewing.Need) error {
	n := len(held) / m.Dim
	spreads := make([][]float64, m.Stages())
	for j := range spreads {
		spreads[j] = make([]float64, n)
	}
	norms := make([]float64, n)
	err := m.each(ctx, model, held, nil, func(s *previewing.Searcher, c int, h []float32) error {
		s.Look().Coordinates(h)
		norms[c] = s.Look().Norm
		for j, x := range s.Look().Spread {
			spreads[j][c] = x
		}
		return nil
	})
	if err != nil {
		return err
	}
	for j := range spreads {
		slices.Sort(spreads[j])
		if far := spreads[j][n*99/100]; far < math.MaxFloat64 {
			m.Far[j] = far
		}
	}
	m.Usual = min(spreads[0][int(usualShare*float64(n))], math.MaxFloat64)
	m.Rising = m.Usual
	for _, x := range own {
		for j := range previewing.PanelStages {
			if x.Reach[j] > ofLeastReach*previewing.LeastReach*usualFactors[j] {
				m.Rising = min(m.Rising, x.Spread)
			}
		}
	}
	if m.Biased > 0 {
		m.MinNorm = slices.Sorted(slices.Values(norms))[n/100]
	}
	return nil
}

// survey looks at all labels for each of the held-out contexts, whose best labels are given.
func (m *maker) survey(ctx context.Context, model *previewing.Model, held []float32, best []exact.Prediction, places []int, done func(int)) (*survey, error) {
	n := len(held) / m.Dim
	v := &survey{n: n, k: m.K, best: make([]need, n*m.K), costs: (n + costEvery - 1) / costEvery}
	v.looked, v.kept = make([]float32, v.costs*len(reaches)), make([]float32, v.costs*len(deviations))
	raw := make([]previewing.Need, len(best))
	err := m.each(ctx, model, held, done, func(s *previewing.Searcher, c int, h []float32) error {
		var none exact.Request
		l, of := s.Look(), raw[c*m.K:(c+1)*m.K]
		known := l.Coordinates(h) // else the layer answers
		if known {
			l.First(m.K, &none)
		}
		for j, p := range best[c*m.K : (c+1)*m.K] {
			if of[j] = previewing.Found(); known && places[p.ID] >= 0 {
				of[j] = l.Needs(places[p.ID])
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.findFactors(raw)
	for i := range raw {
		reach, deviations := m.Takes(&raw[i])
		v.best[i] = need{float32(max(reach, -1)), float32(max(deviations, -1))}
	}
	type room struct {
		s   *previewing.Searcher
		req []float32 // of each row
	}
	fresh := func() room { return room{model.Over(m.layer), make([]float32, m.Labels-m.Outliers)} }
	return v, parallel.With(ctx, 0, v.costs, 4, nil, fresh, func(r room, lo, hi int) error {
		for i := lo; i < hi; i++ {
			if l, c := r.s.Look(), i*costEvery; l.Coordinates(held[c*m.Dim : (c+1)*m.Dim]) {
				m.cost(v, l, i, r.req)
			}
		}
		return nil
	})
}

// costEvery is the number of held-out contexts of which one tells what rungs cost.
const costEvery = 16

// leaves are the shares of the best labels that stages leave out with one reach: fewer where there are
// few labels left, so that to look farther costs little.
var leaves = [previewing.MostStages - 1]float64{0.01, 0.005, 0.001, 0.0005}

// findFactors finds the factors of the reach by the needs of best labels.
func (m *maker) findFactors(needs []previewing.Need) {
	at := make([]float64, m.Stages()-1)
	for j := range at {
		x := make([]float64, len(needs))
		for i := range needs {
			x[i] = m.UsualReach(&needs[i], j)
		}
		slices.Sort(x)
		at[j] = x[len(x)-1-int(leaves[j]*float64(len(x)))]
	}
	for j := range at {
		m.Factors[j] = usualFactors[j]
		if at[0] > 1 {
			m.Factors[j] = min(max(at[j]/at[0], usualFactors[j]), 2*usualFactors[j])
		}
	}
}

// usualFactors are the factors of the reach without held-out contexts, and the least.
var usualFactors = [previewing.MostStages - 1]float64{1, 0.95, 0.65, 0.4}

// cost finds the costs of a context, whose coordinates l has.
func (m *maker) cost(v *survey, l *previewing.Look, i int, req []float32) {
	var none exact.Request
	l.First(m.K, &none)
	shares := v.looked[i*len(reaches) : (i+1)*len(reaches)]
	for i := range req {
		req[i] = float32(math.Inf(-1))
	}
	for j := range m.Stages() {
		from, to := m.Stage(j)
		part := float32(to-from) / float32(m.Codes*len(req))
		if j == 0 {
			part /= kernels.PanelRows
		} else if j >= previewing.PanelStages {
			part *= linesTake
		}
		for _, x := range req {
			if i, _ := slices.BinarySearch(reaches, float64(x)); i < len(shares) {
				shares[i] += part
			}
		}
		if l.All(j); j < m.Stages()-1 {
			l.Reaches(j, req)
		}
	}
	sumUp(shares)
	for i := range req {
		req[i] = float32(math.Inf(-1))
	}
	l.Reaches(m.Stages()-1, req)
	kept := v.kept[i*len(deviations) : (i+1)*len(deviations)]
	for _, x := range req {
		if i, _ := slices.BinarySearch(deviations, float64(x)); i < len(kept) {
			kept[i]++
		}
	}
	sumUp(kept)
}

// linesTake is how many times as long a byte of a line takes as one of a panel: panels are read in order.
const linesTake = 2.5

func sumUp(x []float32) {
	for i := 1; i < len(x); i++ {
		x[i] += x[i-1]
	}
}

// option is a setting of a rung for looking or for scoring in full: its bound, the best labels that it
// misses, and its cost.
type option struct {
	bound  float64
	missed *bitset.Set // places of survey.best
	cost   float64
}

// options returns the settings that miss less than all settings that take less time, by ascending
// time.
func (v *survey) options(bounds []float64, amounts []float32, takes func(amount float64) float64, of func(n need) float32) []option {
	var list []option
	for at, bound := range bounds {
		o := option{bound: bound, missed: bitset.New(len(v.best))}
		for i, x := range v.best {
			if float64(of(x)) > bound {
				o.missed.Add(uint32(i))
			}
		}
		for c := range v.costs {
			o.cost += takes(float64(amounts[c*len(bounds)+at])) / float64(v.costs)
		}
		list = append(list, o)
	}
	slices.SortStableFunc(list, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.missed.Count(), b.missed.Count()))
	})
	var front []option
	for _, o := range list { // of two settings one finds what the other does
		if !slices.ContainsFunc(front, func(x option) bool { return x.missed.Count() <= o.missed.Count() }) {
			front = append(front, o)
		}
	}
	return front
}

// fewMissed is the least number of misses that a ratio is taken from.
const fewMissed = 10

// choose returns the rungs: for each of the factors the rung that takes least time among the rungs
// that, by estimate, miss at most that multiple of the labels that the normal rung may miss.
func (v *survey) choose(m *maker, miss1, missK float64) []previewing.Rung {
	// Times are reckoned in bytes: rows are read at random and scored twice, which takes some six
	// times as long.
	codes, row, crowd := float64(m.Labels*m.RowBytes()), float64(6*m.Dim), float64(m.Crowd(m.K))
	looks := v.options(reaches, v.looked, func(share float64) float64 { return codes * share }, func(n need) float32 { return n.reach })
	keeps := v.options(deviations, v.kept, func(n float64) float64 {
		if n > crowd {
			return float64(m.Labels * m.Dim) // of the exact layer
		}
		return row * n
	}, func(n need) float32 { return n.deviations })
	pairs := v.pairs(looks, keeps)
	widest := pair{look: option{bound: math.Inf(1)}, keep: option{bound: math.Inf(1)}}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.cost, b.cost) })
	// The normal rung looks far enough for other texts, also where few labels are missed anyway.
	normal := v.least(pairs, miss1, missK)
	normal.look.bound, normal.keep.bound = max(normal.look.bound, previewing.LeastReach), max(normal.keep.bound, leastDeviations)
	// From the normal rung on, others look less far, or farther.
	at := slices.Index(factors, 1)
	chosen := make([]pair, len(factors))
	chosen[at] = normal
	for i := at - 1; i >= 0; i-- {
		chosen[i] = v.least(between(pairs, pair{}, chosen[i+1]), factors[i]*miss1, factors[i]*missK)
	}
	for i := at + 1; i < len(factors); i++ {
		chosen[i] = chosen[i-1]
		if farther := between(pairs, chosen[i-1], widest); len(farther) > 0 {
			chosen[i] = v.least(farther, factors[i]*miss1, factors[i]*missK)
		}
	}
	var rungs []previewing.Rung
	for _, p := range chosen {
		rungs = append(rungs, previewing.Rung{Deviations: p.keep.bound, Reach: p.look.bound})
	}
	return rungs
}

// pair is a rung to choose.
type pair struct {
	look, keep         option
	miss1, missK, cost float64 // the misses are estimates, as shares
}

// pairs returns all pairs of settings. A label that both miss is one miss.
func (v *survey) pairs(looks, keeps []option) (pairs []pair) {
	one, some := 0.0, 0.0 // missed parts of the best labels, and of the k best labels
	for _, a := range looks {
		for _, b := range keeps {
			first, all := 0, 0
			for i := range v.best {
				if id := uint32(i); a.missed.Has(id) || b.missed.Has(id) {
					if all++; i%v.k == 0 {
						first++
					}
				}
			}
			p := pair{a, b, float64(first) / float64(v.n), float64(all) / float64(v.n*v.k), a.cost + b.cost}
			if pairs = append(pairs, p); first >= fewMissed && first < v.n/4 {
				one, some = one+p.miss1, some+p.missK
			}
		}
	}
	// A pair that misses hardly any labels misses few best labels, so that one more would decide. So four
	// fifths of the estimate are the missed part of the k best labels, times the ratio of best labels to k
	// best labels in the misses of other pairs.
	ratio := 1.0
	if some > 0 {
		ratio = one / some
	}
	for i := range pairs {
		p := &pairs[i]
		p.miss1 = (p.miss1 + float64(4*ratio*p.missK)) / 5
	}
	return pairs
}

// between returns the pairs between two others, these among them.
func between(pairs []pair, from, to pair) (list []pair) {
	for _, p := range pairs {
		if p.look.bound >= from.look.bound && p.look.bound <= to.look.bound && p.keep.bound >= from.keep.bound && p.keep.bound <= to.keep.bound {
			list = append(list, p)
		}
	}
	return list
}

// least returns the first of pairs, which are ordered by time, whose estimates are at most miss1
// and missK, the latter less half a deviation of the missed number. If there is none it returns the
// pair that misses least.
func (v *survey) least(pairs []pair, miss1, missK float64) pair {
	best := pairs[0]
	for _, p := range pairs {
		deviation := math.Sqrt(p.missK / float64(v.n*v.k))
		if p.miss1 <= miss1 && p.missK+deviation/2 <= missK {
			return p
		}
		if p.miss1+p.missK < best.miss1+best.missK {
			best = p
		}
	}
	return best
}
