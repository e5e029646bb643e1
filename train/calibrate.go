package train

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// CalibrateOptions are the options of [Calibrate].
type CalibrateOptions struct {
	// Target is the precision P@K that the screen is to reach, above 0 and
	// below 1.
	Target float64
	// K is the number of labels of an answer, 1 to L. It need not be the K that
	// the screen was trained with.
	K int
	// Confidence is the least probability, over the draw of the contexts, that
	// the screen reaches the target, above 0 and below 1.
	Confidence float64
	// ExactCost is the cost of an answer of the exact layer, in rows of a
	// candidate set; 0 means L. Int8 codes make a row of the exact scan cheaper:
	// the ratio of the measured times serves better.
	ExactCost float64
	// Block is the number of consecutive contexts whose mean loss is one
	// observation, at least 1. Larger blocks are for contexts that depend on
	// their neighbours, such as those of a running text: then blocks, not
	// contexts, have to be independent. An incomplete last block is left out.
	Block int
	// Seed decides which contexts choose the path and which test it.
	Seed uint64
	// Threads is the number of goroutines; 0 means runtime.GOMAXPROCS(0). It
	// does not change the result.
	Threads int
	// Progress, unless nil, is told how many contexts are done.
	Progress func(Progress)
}

// DefaultCalibrateOptions asks for P@5 of 0.99 with confidence 0.95 on single
// contexts.
func DefaultCalibrateOptions() CalibrateOptions {
	return CalibrateOptions{Target: 0.99, K: 5, Confidence: 0.95, Block: 1, Seed: 1}
}

// Calibration says what [Calibrate] was asked for and what it found. It stands
// in the record of the screen.
type Calibration struct {
	Target     float64 `json:"target"`
	K          int     `json:"k"`
	Confidence float64 `json:"confidence"`
	ExactCost  float64 `json:"exact_cost"` // in rows
	Block      int     `json:"block"`
	Seed       uint64  `json:"seed"`
	// Choosing is the number of contexts that chose the path, Testing that of
	// those that tested it. All figures below are of the latter.
	Choosing int `json:"choosing_contexts"`
	Testing  int `json:"testing_contexts"`
	// ProbeMargin and ExactMargin are those of the screen. Both are 0 where it
	// reaches the target without.
	ProbeMargin float64 `json:"probe_margin"`
	ExactMargin float64 `json:"exact_margin"`
	// Path is the number of pairs of margins on the path, Passed the number of
	// tests passed before the first that failed, or before the end of the path.
	Path   int `json:"path"`
	Passed int `json:"passed"`
	// PValue is that of the pair chosen, for the hypothesis that its precision
	// is below the target.
	PValue float64 `json:"p_value"`
	// Calibrated are the figures with the margins, Plain those without any.
	Calibrated CalibrationFigures `json:"calibrated"`
	Plain      CalibrationFigures `json:"plain"`
}

// CalibrationFigures are means over the contexts that tested.
type CalibrationFigures struct {
	// Precision is P@K.
	Precision float64 `json:"precision"`
	// ExactShare is the share of contexts that the exact layer answered: for
	// the exact margin, or because the set held fewer than K labels.
	ExactShare float64 `json:"exact_share"`
	// ProbeShare is the share of contexts whose answer came from the sets of two
	// clusters.
	ProbeShare float64 `json:"probe_share"`
	// Cost is the mean number of rows of candidate sets, ExactCost for an exact
	// answer. The vectors that find the cluster are not in it: their number does
	// not depend on the margins.
	Cost float64 `json:"cost"`
}

// Calibrate sets the margins of a screen such that P@K is at least the target
// with the confidence asked for, at the least cost that it finds. It returns the
// screen with its margins, whose record has the Calibration too. Margins that m
// has already play no part.
//
// The contexts, N x layer.Dim(), row-major, must not be those of training. The
// promise is about the draw of the contexts: in at least Confidence of all draws
// the P@K expected of the contexts of use, answered by a Searcher without the
// options Float32 and Short, is at least Target. It assumes that the contexts of
// calibration are independent draws from the distribution of use, or with Block
// that their blocks are. A second run on the same contexts with another seed,
// target or block, because the first has failed, voids it.
//
// The method is Learn then Test (Angelopoulos, Bates, Candes, Jordan and Lei
// 2021) with fixed-sequence testing. A part of the contexts chooses a path of
// margin pairs, from exact answers for all to the least cost. The others test
// along it, each pair by the betting bound of Waudby-Smith and Ramdas (2024) on
// the mean of the loss 1 - |A_k and S_k|/k, up to the first pair that fails. The
// last that passed is taken. Since the path does not depend on the contexts that
// test, no correction for the number of tests is due.
//
// Errors: options out of range, a model that does not go with the layer, contexts
// that are not whole rows, a NaN or Inf (the context is named), a target that is
// not reached or cannot be shown with so few contexts, ctx cancelled (errors.Is
// with ctx.Err() holds).
func Calibrate(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt CalibrateOptions) (calibrated *screen.Model, c *Calibration, err error) {
	err = guard(func() (err error) {
		calibrated, c, err = calibrateOn(ctx, m, layer, contexts, opt)
		return err
	})
	return calibrated, c, err
}

func calibrateOn(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt CalibrateOptions) (*screen.Model, *Calibration, error) {
	n, err := contextCount(layer, contexts)
	if err != nil {
		return nil, nil, err
	}
	if err := opt.check(layer.Labels(), n); err != nil {
		return nil, nil, fmt.Errorf("train: calibrate: %w", err)
	}
	if opt.ExactCost == 0 {
		opt.ExactCost = float64(layer.Labels())
	}
	all, err := routeAll(ctx, m, layer, contexts, n, &opt)
	if err != nil {
		return nil, nil, err
	}
	c, err := calibrate(all, &opt)
	if err != nil {
		return nil, nil, fmt.Errorf("train: calibrate: %w", err)
	}
	record, err := withCalibration(m.Record(), c)
	if err != nil {
		return nil, nil, fmt.Errorf("train: calibrate: record: %w", err)
	}
	calibrated, err := m.WithMargins(c.ProbeMargin, c.ExactMargin, record)
	if err != nil {
		return nil, nil, err
	}
	return calibrated, c, nil
}

func (o *CalibrateOptions) check(labels, n int) error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"target", o.Target}, {"confidence", o.Confidence}} {
		if !(f.value > 0 && f.value < 1) {
			return fmt.Errorf("%s: found %v, want more than 0 and less than 1", f.name, f.value)
		}
	}
	switch {
	case o.K < 1 || o.K > labels:
		return fmt.Errorf("k: found %d, want 1 to %d, the number of labels", o.K, labels)
	case !(o.ExactCost >= 0) || math.IsInf(o.ExactCost, 0):
		return fmt.Errorf("exact cost: found %v, want a finite number, at least 0", o.ExactCost)
	case o.Block < 1:
		return fmt.Errorf("block: found %d, want at least 1", o.Block)
	case o.Threads < 0:
		return fmt.Errorf("threads: found %d, want at least 0", o.Threads)
	}
	// What takes all work is not begun in vain.
	blocks, tests := n/o.Block, o.leastTests()
	least := tests
	for least-choosingOf(least)-o.seams() < tests {
		least++
	}
	if blocks < least {
		return fmt.Errorf("contexts: found %d, %d blocks of %d, want at least %d blocks to show a target of %v at confidence %v",
			n, blocks, o.Block, least, o.Target, o.Confidence)
	}
	return nil
}

// leastTests is the number of blocks without any loss that pass a test.
func (o *CalibrateOptions) leastTests() int {
	alpha := 1 - o.Target
	return int(math.Ceil(o.threshold() / kernels.Log(1+float64(largestBet(alpha)*alpha))))
}

// threshold is the logarithm of the capital at which a test is passed.
func (o *CalibrateOptions) threshold() float64 { return -kernels.Log(1 - o.Confidence) }

// outcome is what the margins can make of one context.
type outcome struct {
	lead float64
	// The answers from the set of the best cluster and from the sets of the two
	// best: how many of the k labels they miss, and among how many labels they
	// are sought; exactAnswer where the exact layer answers, and misses none.
	missed [2]uint32
	rows   [2]uint32
}

// exactAnswer stands for a number of rows that is the exact layer's. No set has
// as many: ids are below 2^32 - 1 labels.
const exactAnswer = math.MaxUint32

// routeAll finds the outcomes of all contexts.
func routeAll(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, n int, opt *CalibrateOptions) ([]outcome, error) {
	threads := threadCount(opt.Threads)
	searchers := make([]*screen.Searcher, threads)
	for i := range searchers {
		s, err := screen.NewSearcher(m, layer)
		if err != nil {
			return nil, err
		}
		searchers[i] = s
	}
	report := &reporter{call: opt.Progress}
	labels, err := topLabels(ctx, layer, contexts, n, opt.K, threads, report)
	if err != nil {
		return nil, err
	}
	all := make([]outcome, n)
	dim := layer.Dim()
	err = forEach(ctx, threads, n, assignChunk, report.stage(StageRoute, 0, n), func(worker, lo, hi int) error {
		for i := lo; i < hi; i++ {
			first, second, lead, err := searchers[worker].BestTwo(contexts[i*dim : (i+1)*dim])
			if err != nil {
				return fmt.Errorf("train: context %d: %w", i, err)
			}
			a, b := m.Candidates(first), m.Candidates(second)
			o := outcome{lead: lead, rows: [2]uint32{uint32(len(a)), uint32(unionSize(a, b))}}
			for _, id := range labels[i*opt.K : (i+1)*opt.K] {
				if _, ok := slices.BinarySearch(a, id); ok {
					continue
				}
				o.missed[0]++
				if _, ok := slices.BinarySearch(b, id); !ok {
					o.missed[1]++
				}
			}
			for j, rows := range o.rows {
				if rows < uint32(opt.K) {
					o.missed[j], o.rows[j] = 0, exactAnswer
				}
			}
			all[i] = o
		}
		return nil
	})
	return all, err
}

// choosingOf is the number of blocks, of n, that choose the path. They also give
// the bets, but it is the others that the promise is made of.
func choosingOf(n int) int { return n / 4 }

// split says which of the blocks choose the path and which test it. Single
// contexts are drawn. Longer blocks are there because neighbours depend on each
// other: those that choose then lie together, from a place drawn on, and the block
// at each of their ends is left out.
func (o *CalibrateOptions) split(blocks int) (choosing, testing []uint32) {
	r := newRNG(o.Seed, streamSplit, 0)
	order := make([]uint32, blocks)
	for i := range order {
		order[i] = uint32(i)
	}
	n := choosingOf(blocks)
	if o.Block == 1 {
		r.shuffle(order)
		return order[:n], order[n:]
	}
	start := int(r.below(uint64(blocks - n + 1)))
	end := start + n
	return order[start:end], slices.Concat(order[:max(start-1, 0)], order[min(end+1, blocks):])
}

// seams is the number of blocks that split leaves out, at most.
func (o *CalibrateOptions) seams() int {
	if o.Block == 1 {
		return 0
	}
	return 2
}

// calibrate chooses the margins.
func calibrate(all []outcome, opt *CalibrateOptions) (*Calibration, error) {
	blocks := len(all) / opt.Block
	of := func(list []uint32) (part []outcome) {
		for _, b := range list {
			part = append(part, all[int(b)*opt.Block:(int(b)+1)*opt.Block]...)
		}
		return part
	}
	first, second := opt.split(blocks)
	choosing, testing := of(first), of(second)
	path := newPath(choosing, opt.ExactCost)
	threshold := opt.threshold()
	passed, capital := 0, 0.0
	for _, p := range path {
		bet := p.bet(choosing, len(testing)/opt.Block, opt)
		x := p.losses(testing, opt.K, opt.Block).capital(1-opt.Target, bet)
		if x < threshold {
			if passed == 0 {
				return nil, fmt.Errorf("target %v is not reached at confidence %v: found P@%d %.6f on %d contexts where the exact layer answers wherever it can",
					opt.Target, opt.Confidence, opt.K, p.figures(testing, opt).Precision, len(testing))
			}
			break
		}
		passed, capital = passed+1, x
	}
	best := path[passed-1]
	return &Calibration{
		Target: opt.Target, K: opt.K, Confidence: opt.Confidence, ExactCost: opt.ExactCost, Block: opt.Block, Seed: opt.Seed,
		Choosing: len(choosing), Testing: len(testing), ProbeMargin: best.probe, ExactMargin: best.exact,
		Path: len(path), Passed: passed, PValue: kernels.Exp(-capital),
		Calibrated: best.figures(testing, opt), Plain: point{}.figures(testing, opt),
	}, nil
}

// point is a pair of margins.
type point struct{ probe, exact float64 }

// answer says how the context is answered: how many labels are missed, among how
// many rows they are sought, and whether those are the rows of two sets.
func (p point) answer(o *outcome) (missed, rows uint32, both bool) {
	switch {
	case o.lead < p.exact:
		return 0, exactAnswer, false
	case o.lead < p.probe:
		return o.missed[1], o.rows[1], true
	}
	return o.missed[0], o.rows[0], false
}

func (p point) figures(outcomes []outcome, opt *CalibrateOptions) CalibrationFigures {
	var missed, rows, exact, probes uint64
	for i := range outcomes {
		x, y, both := p.answer(&outcomes[i])
		missed += uint64(x)
		switch {
		case y == exactAnswer:
			exact++
			continue
		case both:
			probes++
		}
		rows += uint64(y)
	}
	n := float64(len(outcomes))
	return CalibrationFigures{
		Precision:  1 - float64(missed)/(n*float64(opt.K)),
		ExactShare: float64(exact) / n,
		ProbeShare: float64(probes) / n,
		Cost:       (float64(rows) + float64(opt.ExactCost*float64(exact))) / n,
	}
}

// losses counts the blocks by the number of labels missed in them.
type losses struct {
	blocks []int
	labels int // of a block: k times its contexts
}

func (p point) losses(outcomes []outcome, k, block int) losses {
	l := losses{labels: k * block}
	for start := 0; start < len(outcomes); start += block {
		sum := 0
		for i := range outcomes[start : start+block] {
			missed, _, _ := p.answer(&outcomes[start+i])
			sum += int(missed)
		}
		for sum >= len(l.blocks) {
			l.blocks = append(l.blocks, 0)
		}
		l.blocks[sum]++
	}
	return l
}

// capital is the logarithm of prod_i (1 + bet (alpha - loss_i)). For any bet
// within 0 and 1/(1 - alpha) that does not depend on these losses the product is
// not negative, and where the mean of a loss is alpha or more its expectation is
// at most 1. So it exceeds 1/delta with probability delta at most (Markov), and
// its inverse is a p-value (Waudby-Smith and Ramdas 2024, with a constant bet).
// It does not depend on the order of the losses.
func (l losses) capital(alpha, bet float64) float64 {
	sum := 0.0
	for missed, n := range l.blocks {
		if n > 0 {
			gain := alpha - float64(missed)/float64(l.labels)
			sum += float64(float64(n) * kernels.Log(1+float64(bet*gain)))
		}
	}
	return sum
}

// largestBet bounds the bets: at 1/(1 - alpha) one loss of 1 would take all.
func largestBet(alpha float64) float64 { return 0.9 / (1 - alpha) }

// bet is the one that needs the smallest lead of the mean loss below alpha to
// pass with tests blocks: the capital is near exp(n (bet gap - bet^2 s/2)) with s
// the mean square of alpha - loss. The contexts that chose the path tell s; one
// more observation without loss keeps it from 0.
func (p point) bet(choosing []outcome, tests int, opt *CalibrateOptions) float64 {
	alpha := 1 - opt.Target
	l := p.losses(choosing, opt.K, opt.Block)
	sum, n := float64(alpha*alpha), 1
	for missed, blocks := range l.blocks {
		gain := alpha - float64(missed)/float64(l.labels)
		sum += float64(float64(blocks) * float64(gain*gain))
		n += blocks
	}
	bet := math.Sqrt(float64(2*opt.threshold()) * float64(n) / float64(float64(tests)*sum))
	return min(bet, largestBet(alpha))
}

// The path.

// maxGrid bounds the number of margins of a kind that are tried, fewest and
// finestStep that of the pairs tested: the next pair on the path costs less by
// this share at least.
const (
	maxGrid    = 512
	finestStep = 0.002
)

// candidate is a pair of margins with what it makes of the contexts that choose.
type candidate struct {
	point
	missed uint64
	cost   float64
}

// newPath returns pairs of margins from the safest, with which the exact layer
// answers all that it can, to the cheapest: those of the grid of all quantiles of
// the leads that no other pair beats both in cost and in labels missed.
func newPath(outcomes []outcome, exactCost float64) []point {
	t := newTable(outcomes)
	margins := t.grid()
	var all []candidate
	for i, exact := range margins {
		for _, probe := range margins[i:] {
			c := t.at(exact, probe, exactCost)
			if probe == exact {
				c.probe = 0 // the exact layer comes first
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.missed != b.missed:
			return compare(a.missed, b.missed)
		case a.cost != b.cost:
			return compare(a.cost, b.cost)
		case a.exact != b.exact:
			return compare(a.exact, b.exact)
		}
		return compare(a.probe, b.probe)
	})
	path := []point{{exact: math.MaxFloat64}}
	// The ascent in missed labels passes the undominated pairs with falling cost.
	least, last := math.Inf(1), math.Inf(1)
	var cheapest point
	for _, c := range all {
		if c.cost >= least {
			continue
		}
		least, cheapest = c.cost, c.point
		if c.cost <= float64((1-finestStep)*last) {
			last = c.cost
			path = append(path, c.point)
		}
	}
	if path[len(path)-1] != cheapest {
		path = append(path, cheapest)
	}
	return path
}

func compare[T uint64 | float64](a, b T) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// table gives the figures of a pair of margins from sums over the contexts in
// the order of their leads.
type table struct {
	leads []float64
	sums  []tableSums // over the contexts before
}

// tableSums are over some contexts, for one set and for two.
type tableSums struct{ missed, rows, exact [2]uint64 }

func newTable(outcomes []outcome) *table {
	order := slices.Clone(outcomes)
	slices.SortFunc(order, func(a, b outcome) int { return compare(a.lead, b.lead) })
	t := &table{sums: make([]tableSums, len(order)+1)}
	for i, o := range order {
		t.leads = append(t.leads, o.lead)
		s := t.sums[i]
		for j, rows := range o.rows {
			s.missed[j] += uint64(o.missed[j])
			if rows == exactAnswer {
				s.exact[j]++
			} else {
				s.rows[j] += uint64(rows)
			}
		}
		t.sums[i+1] = s
	}
	return t
}

// grid returns the margins to try, ascending: 0, quantiles of the leads, and the
// largest number. The quantiles are of the shares (i/n)^2, finer where small: few
// contexts should need the exact layer.
func (t *table) grid() []float64 {
	n := min(maxGrid, max(32, len(t.leads)/8))
	margins := []float64{0}
	for i := range n {
		// Of n^2 parts, the first i^2.
		if at := uint64(len(t.leads)) * uint64(i*i) / uint64(n*n); at < uint64(len(t.leads)) {
			margins = append(margins, min(t.leads[at], math.MaxFloat64))
		}
	}
	return slices.Compact(append(margins, math.MaxFloat64))
}

// at gives the figures of a pair, probe >= exact.
func (t *table) at(exact, probe, exactCost float64) candidate {
	i, _ := slices.BinarySearch(t.leads, exact)
	j, _ := slices.BinarySearch(t.leads, probe)
	first, second, all := &t.sums[i], &t.sums[j], &t.sums[len(t.leads)]
	sum := func(get func(*tableSums) [2]uint64) uint64 {
		return get(second)[1] - get(first)[1] + get(all)[0] - get(second)[0]
	}
	answers := uint64(i) + sum(func(s *tableSums) [2]uint64 { return s.exact })
	return candidate{
		point:  point{probe, exact},
		missed: sum(func(s *tableSums) [2]uint64 { return s.missed }),
		cost:   float64(sum(func(s *tableSums) [2]uint64 { return s.rows })) + float64(exactCost*float64(answers)),
	}
}

// withCalibration returns the record, a JSON object, with the calibration in it,
// last and once. All else stands as it stood.
func withCalibration(record json.RawMessage, c *Calibration) (json.RawMessage, error) {
	const name = "calibration"
	value, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(record))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte("{")
	add := func(name string, value json.RawMessage) error {
		key, err := json.Marshal(name)
		out = append(append(append(append(out, key...), ':'), value...), ',')
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if key != name {
			if err := add(key.(string), value); err != nil {
				return nil, err
			}
		}
	}
	if err := add(name, value); err != nil {
		return nil, err
	}
	out[len(out)-1] = '}'
	return out, nil
}
