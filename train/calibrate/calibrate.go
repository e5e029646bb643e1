// Package calibrate sets the margins of a screen on contexts that it was not
// trained on, such that a precision is reached with a given confidence.
package calibrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/internal/member"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// Options are the options of [Run].
type Options struct {
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
	// the ratio of the measured times serves better. At most 2^53.
	ExactCost float64
	// ExactLimit is the largest share of the contexts that the exact layer may
	// answer: a screen that asks it more often is no screen, and [Run] returns an
	// error instead. 0 to 1; 1 allows any.
	ExactLimit float64
	// Block is the number of consecutive contexts whose mean loss is one
	// observation, at least 1. Larger blocks are for contexts that depend on
	// their neighbours, as in a running text: then blocks, not
	// contexts, have to be independent. An incomplete last block is left out.
	Block int
	// Seed decides which contexts choose the path and which test it.
	Seed uint64
	// Threads is the number of goroutines; 0 means runtime.GOMAXPROCS(0). It
	// does not change the result.
	Threads int
	// Progress, unless nil, is told how many contexts are done in the stages
	// train.StageLabels and "route", which finds the two best clusters of every
	// context.
	Progress func(train.Progress)
}

// DefaultOptions asks for P@5 of 0.99 with confidence 0.95 on single contexts,
// half of them at most answered by the exact layer.
func DefaultOptions() Options {
	return Options{Target: 0.99, K: 5, Confidence: 0.95, ExactLimit: 0.5, Block: 1, Seed: 1}
}

// Calibration says what [Run] had to reach and what it found. It stands in the
// record of the screen, under the name "calibration".
type Calibration struct {
	Target     float64 `json:"target"`
	K          int     `json:"k"`
	Confidence float64 `json:"confidence"`
	ExactCost  float64 `json:"exact_cost"` // in rows
	Block      int     `json:"block"`
	Seed       uint64  `json:"seed"`
	// Choosing is the number of contexts that chose the path, Testing the number
	// of contexts that tested it. All figures below are of the latter.
	Choosing int `json:"choosing_contexts"`
	Testing  int `json:"testing_contexts"`
	// TrainedOn says which share of the contexts the screen was trained on; nil for none.
	// The promise is void then, unless such contexts recur in use too.
	TrainedOn *train.Overlap `json:"trained_on,omitempty"`
	// ProbeMargin and ExactMargin are the margins of the screen. Both are 0 if it
	// reaches the target without.
	ProbeMargin float64 `json:"probe_margin"`
	ExactMargin float64 `json:"exact_margin"`
	// Path is the number of pairs of margins on the path, Passed the number of
	// tests passed before the first that failed, or before the end of the path.
	Path   int `json:"path"`
	Passed int `json:"passed"`
	// PValue is the p-value of the pair chosen, for the hypothesis that its precision
	// is below the target.
	PValue float64 `json:"p_value"`
	// Calibrated are the figures with the margins, Plain those without any.
	Calibrated Figures `json:"calibrated"`
	Plain      Figures `json:"plain"`
}

// Figures are means over the contexts that tested.
type Figures struct {
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

// Run sets the margins of a screen such that P@K is at least the target
// with the confidence of the options, at the least cost that it finds. It returns the
// screen with its margins, whose record has the Calibration too. Margins that m
// has already play no part.
//
// The contexts, N x layer.Dim(), row-major, must not be contexts of training. The
// promise is about the draw of the contexts: in at least Confidence of all draws
// the P@K expected of the contexts of use, answered by a Searcher without the
// option Short, is at least Target. It assumes that the contexts of
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
// that are not whole rows, a NaN or Inf (the context is named), the contexts more
// than half of which the model was trained on by its record, a target that is not reached,
// cannot be shown with so few contexts, or takes more exact answers than ExactLimit, ctx
// cancelled (errors.Is with ctx.Err() holds).
func Run(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt Options) (*screen.Model, *Calibration, error) {
	calibrated, c, err := run(ctx, m, layer, contexts, &opt)
	if err != nil {
		return nil, nil, fmt.Errorf("calibrate: %w", err)
	}
	return calibrated, c, nil
}

func run(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt *Options) (*screen.Model, *Calibration, error) {
	if len(contexts)%layer.Dim() != 0 {
		return nil, nil, fmt.Errorf("contexts: found %d values, expected rows of %d, the dimension of the layer", len(contexts), layer.Dim())
	}
	if err := opt.check(layer.Labels(), len(contexts)/layer.Dim()); err != nil {
		return nil, nil, err
	}
	// A model of another maker has a record of another form, or none.
	var made train.Record
	var trained train.Overlap
	if json.Unmarshal(m.Record(), &made) == nil {
		var err error
		if trained, err = made.TrainedOn(ctx, contexts, layer.Dim(), opt.Threads); err != nil {
			return nil, nil, err
		}
		if err := checkOverlap(trained); err != nil {
			return nil, nil, err
		}
	}
	if opt.ExactCost == 0 {
		opt.ExactCost = float64(layer.Labels())
	}
	all, err := findOutcomes(ctx, m, layer, contexts, opt)
	if err != nil {
		return nil, nil, err
	}
	c, err := choose(all, opt)
	if err != nil {
		return nil, nil, err
	}
	if trained.Share > 0 {
		c.TrainedOn = &trained
	}
	record, err := member.Set(m.Record(), "calibration", c)
	if err != nil {
		return nil, nil, fmt.Errorf("record: %w", err)
	}
	calibrated, err := m.WithMargins(c.ProbeMargin, c.ExactMargin, record)
	return calibrated, c, err
}

// checkOverlap refuses contexts more than half of which the screen was trained on. Fewer may
// recur where contexts depend on few words.
func checkOverlap(o train.Overlap) error {
	least, about := o.Share, ""
	if !o.Exact { // what the share is at least, with a probability of 99%
		least -= 1.17 / math.Sqrt(float64(max(o.Compared, 1)))
		about = "about "
	}
	switch {
	case least <= 0.5:
		return nil
	case o.Exact && o.Share == 1:
		return errors.New("contexts: found the contexts that the screen was trained on, expected others: the promise is about contexts that it has not met")
	default:
		return fmt.Errorf("contexts: found %s%.0f%% of them among the contexts that the screen was trained on, expected others: the promise is about contexts that it has not met", about, 100*o.Share)
	}
}

func (o *Options) check(labels, n int) error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"target", o.Target}, {"confidence", o.Confidence}} {
		if !(f.value > 0 && f.value < 1) {
			return fmt.Errorf("%s: found %v, expected more than 0 and less than 1", f.name, f.value)
		}
	}
	switch {
	case o.K < 1 || o.K > labels:
		return fmt.Errorf("k: found %d, expected 1 to %d, the number of labels", o.K, labels)
	case !(o.ExactLimit >= 0 && o.ExactLimit <= 1):
		return fmt.Errorf("exact limit: found %v, expected 0 to 1", o.ExactLimit)
	case !(o.ExactCost >= 0 && o.ExactCost <= maxExactCost):
		return fmt.Errorf("exact cost: found %v, expected a finite number, 0 to 2^53", o.ExactCost)
	case o.Block < 1:
		return fmt.Errorf("block: found %d, expected at least 1", o.Block)
	case o.Threads < 0:
		return fmt.Errorf("threads: found %d, expected at least 0", o.Threads)
	}
	// What takes all work is not begun in vain.
	blocks, least := n/o.Block, o.leastBlocks()
	if math.IsInf(least, 1) {
		return fmt.Errorf("target: found %v, expected one so far below 1 that some number of contexts shows it", o.Target)
	}
	if float64(blocks) < least {
		return fmt.Errorf("contexts: found %d, %d blocks of %d, expected at least %.0f blocks to show a target of %v at confidence %v",
			n, blocks, o.Block, least, o.Target, o.Confidence)
	}
	return nil
}

// maxExactCost keeps sums of costs finite.
const maxExactCost = 1 << 53

// leastBlocks is the least n with leastTests blocks beside choosingOf(n) and the
// seams: n - floor(n/4) = ceil(3n/4) is to be m, which it is from n > 4(m-1)/3 on.
func (o *Options) leastBlocks() float64 {
	m := o.leastTests() + float64(o.seams())
	return math.Floor(4*(m-1)/3) + 1
}

// leastTests is the number of blocks without any loss that pass a test, at least 1;
// +Inf if the gain of a block is lost in rounding.
func (o *Options) leastTests() float64 {
	alpha := 1 - o.Target
	return max(1, math.Ceil(o.threshold()/kernels.Log(1+float64(largestBet(alpha)*alpha))))
}

// threshold is the logarithm of the capital at which a test is passed.
func (o *Options) threshold() float64 { return -kernels.Log(1 - o.Confidence) }

// choosingOf is the number of blocks, of n, that choose the path. They also give
// the bets, but it is the others that the promise is made of.
func choosingOf(n int) int { return n / 4 }

// split says which of the blocks choose the path and which test it. Single
// contexts are drawn. Longer blocks are there because neighbours depend on each
// other: those that choose then lie together, from a place drawn on, and the block
// at each of their ends is left out.
func (o *Options) split(blocks int) (choosing, testing []uint32) {
	r := rng.New(o.Seed, rng.Split, 0)
	order := make([]uint32, blocks)
	for i := range order {
		order[i] = uint32(i)
	}
	n := choosingOf(blocks)
	if o.Block == 1 {
		r.Shuffle(order)
		return order[:n], order[n:]
	}
	start := int(r.Below(uint64(blocks - n + 1)))
	end := start + n
	return order[start:end], slices.Concat(order[:max(start-1, 0)], order[min(end+1, blocks):])
}

// seams is the number of blocks that split leaves out, at most.
func (o *Options) seams() int {
	if o.Block == 1 {
		return 0
	}
	return 2
}

// choose finds the margins.
func choose(all []outcome, opt *Options) (*Calibration, error) {
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
	calibrated, plain := best.figures(testing, opt), point{}.figures(testing, opt)
	if calibrated.ExactShare > opt.ExactLimit {
		return nil, fmt.Errorf("target %v at confidence %v takes the exact layer for %.1f%% of the contexts, expected at most %.1f%%: found P@%d %.4f of the screen alone on %d contexts; more contexts, a lower target, or a screen of a larger budget is needed",
			opt.Target, opt.Confidence, 100*calibrated.ExactShare, 100*opt.ExactLimit, opt.K, plain.Precision, len(testing))
	}
	return &Calibration{
		Target: opt.Target, K: opt.K, Confidence: opt.Confidence, ExactCost: opt.ExactCost, Block: opt.Block, Seed: opt.Seed,
		Choosing: len(choosing), Testing: len(testing), ProbeMargin: best.probe, ExactMargin: best.exact,
		Path: len(path), Passed: passed, PValue: kernels.Exp(-capital),
		Calibrated: calibrated, Plain: plain,
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

func (p point) figures(outcomes []outcome, opt *Options) Figures {
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
	return Figures{
		Precision:  1 - float64(missed)/(n*float64(opt.K)),
		ExactShare: float64(exact) / n,
		ProbeShare: float64(probes) / n,
		Cost:       (float64(rows) + float64(opt.ExactCost*float64(exact))) / n,
	}
}
