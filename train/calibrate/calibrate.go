// Package calibrate chooses the budget of a screen on contexts that it was not trained on, such
// that it reaches a precision with a given confidence.
package calibrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/record"
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
	// ExactLimit is the largest share of the contexts that the exact layer may answer, which are
	// those with a small lead of the best cluster: at least 0, below 1. 0: the screen alone must
	// reach the target.
	ExactLimit float64
	// Block is the number of consecutive contexts whose mean loss is one observation, at least 1.
	// Larger blocks are for contexts that depend on their neighbours, as in a running text: then
	// blocks, not contexts, must be independent. An incomplete last block is left out.
	Block int
	// Seed decides which contexts choose the bets and which test.
	Seed uint64
	// Threads is the number of goroutines; 0 means runtime.GOMAXPROCS(0). It
	// does not change the result.
	Threads int
	// Progress, unless nil, gets the number of finished contexts in the stages "labels" and
	// "route".
	Progress func(train.Progress)
}

// DefaultOptions asks for P@5 of 0.998, as training does, with confidence 0.95 on single contexts,
// by the screen alone.
func DefaultOptions() Options {
	return Options{Target: precision.TargetK, K: 5, Confidence: 0.95, Block: 1, Seed: 1}
}

// Calibration has the target of [Run] and its results. It is kept in the record of the screen,
// under the name "calibration".
type Calibration struct {
	Target     float64 `json:"target"`
	K          int     `json:"k"`
	Confidence float64 `json:"confidence"`
	Block      int     `json:"block"`
	Seed       uint64  `json:"seed"`
	// Choosing is the number of contexts that chose the bets, Testing the number
	// of contexts that tested. All figures below are of the latter.
	Choosing int `json:"choosing_contexts"`
	Testing  int `json:"testing_contexts"`
	// Budget and ExactMargin are the ones of the screen: ExactMargin is the lead of the best
	// cluster below which the exact layer answers.
	Budget      float64 `json:"budget"`
	ExactMargin float64 `json:"exact_margin"`
	// Path is the number of points on the path, Passed the number of
	// tests passed before the first that failed, or before the end of the path.
	Path   int `json:"path"`
	Passed int `json:"passed"`
	// PValue is the p-value of the point chosen, for the hypothesis that its precision
	// is below the target.
	PValue float64 `json:"p_value"`
	// Calibrated are the figures of the screen after the calibration, Before the figures with its
	// old budget and without the exact layer.
	Calibrated Figures `json:"calibrated"`
	Before     Figures `json:"before"`
}

// Figures are means over the contexts that tested.
type Figures struct {
	// Precision is P@K.
	Precision float64 `json:"precision"`
	// ExactShare is the share of contexts that the exact layer answered for the margin.
	ExactShare float64 `json:"exact_share"`
	// Candidates is the mean number of candidates of the other contexts.
	Candidates float64 `json:"mean_candidates"`
}

// Run chooses the smallest budget of a screen's ladder with which P@K is at least the target
// with the confidence of the options. It returns the screen with this default budget, whose
// record has the Calibration too.
//
// The contexts, N x layer.Dim(), row-major, must not be contexts of training. The promise is about
// the draw of the contexts: in at least Confidence of all draws the expected P@K of the contexts in
// use is at least Target. It assumes that the contexts of calibration are independent draws from
// the distribution in use, or with Block that their blocks are. A second run on the same contexts
// with another seed, target or block, because the first has failed, voids it.
//
// The method is Learn then Test (Angelopoulos, Bates, Candes, Jordan and Lei 2021) with
// fixed-sequence testing: down the ladder from the largest budget, before which, if ExactLimit
// allows it, come shares of contexts for the exact layer. Each point is tested by the betting
// bound of Waudby-Smith and Ramdas (2024) on the mean of the loss 1 - |A_k and S_k|/k, up to the
// first that fails. The last that passed is taken. A part of the contexts chooses the bets and
// the margins. Since these and the path do not depend on the contexts that test, no correction
// for the number of tests is due.
//
// Errors: options out of range, a model of another layer, contexts that are not whole rows, a NaN
// or Inf (the context is named), the contexts that the model was trained on, a target that is not
// reached or cannot be shown with so few contexts, ctx cancelled (errors.Is with ctx.Err() holds).
func Run(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt Options) (*screen.Model, *Calibration, error) {
	calibrated, c, err := run(ctx, (*screening.Model)(m), layer, contexts, &opt)
	if err != nil {
		return nil, nil, fmt.Errorf("calibrate: %w", err)
	}
	return (*screen.Model)(calibrated), c, nil
}

func run(ctx context.Context, m *screening.Model, layer *softmax.Layer, contexts []float32, opt *Options) (*screening.Model, *Calibration, error) {
	if len(contexts)%layer.Dim() != 0 {
		return nil, nil, fmt.Errorf("contexts: found %d values, expected rows of %d, the dimension of the layer", len(contexts), layer.Dim())
	}
	if err := opt.check(layer.Labels(), len(contexts)/layer.Dim()); err != nil {
		return nil, nil, err
	}
	// A model from another program has a record of another form, or none.
	var made train.Record
	if json.Unmarshal(m.Record(), &made) == nil {
		trained, err := labelfile.SameContexts(ctx, contexts, layer.Dim(), made.Contexts, made.ContextsDigest, opt.Threads)
		if err != nil {
			return nil, nil, err
		}
		if trained {
			return nil, nil, errors.New("contexts: found the contexts that the screen was trained on, expected others: the promise is about contexts that it has not met")
		}
	}
	all, err := findOutcomes(ctx, m, layer, contexts, opt)
	if err != nil {
		return nil, nil, err
	}
	c, err := choose(all, m.Ladder(), m.Budget(), opt)
	if err != nil {
		return nil, nil, err
	}
	text, err := record.Set(m.Record(), "calibration", c)
	if err != nil {
		return nil, nil, fmt.Errorf("record: %w", err)
	}
	calibrated, err := m.WithBudget(c.Budget, c.ExactMargin, text)
	return calibrated, c, err
}

func (o *Options) check(labels, n int) error {
	var c record.Options
	c.Want(o.Target > 0 && o.Target < 1, "target", o.Target, "more than 0 and less than 1")
	c.Want(o.Confidence > 0 && o.Confidence < 1, "confidence", o.Confidence, "more than 0 and less than 1")
	c.Want(o.K >= 1 && o.K <= labels, "k", o.K, "1 to %d, the number of labels", labels)
	c.Want(o.ExactLimit >= 0 && o.ExactLimit < 1, "exact limit", o.ExactLimit, "at least 0 and below 1")
	c.Want(o.Block >= 1, "block", o.Block, "at least 1")
	c.Want(o.Threads >= 0, "threads", o.Threads, "at least 0")
	if c.Err != nil {
		return c.Err
	}
	// Too few blocks are an error before the work.
	least := o.leastBlocks()
	if math.IsInf(least, 1) {
		return fmt.Errorf("target: found %v, expected one so far below 1 that some number of contexts shows it", o.Target)
	}
	if float64(n/o.Block) < least {
		return fmt.Errorf("contexts: found %d, expected at least %.0f, in blocks of %d, to show a target of %v at confidence %v: more contexts, or a lower target",
			n, least*float64(o.Block), o.Block, o.Target, o.Confidence)
	}
	return nil
}

// leastBlocks is the least n with leastTests blocks in addition to choosingOf(n) and the seams: n -
// floor(n/4) = ceil(3n/4) must be at least m, which holds for n > 4(m-1)/3.
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

// choosingOf is the number of blocks, of n, that choose the bets; it is the others that
// the promise is made of.
func choosingOf(n int) int { return n / 4 }

// split returns the blocks that choose the bets and the blocks that test. Single contexts are
// drawn. Longer blocks depend on their neighbours: the blocks that choose are neighbours, from a
// random place on, and the block at each of their ends is left out.
func (o *Options) split(blocks int) (choosing, testing []uint32) {
	r := rng.New(o.Seed, rng.Split, 0)
	order := corpus.Ascending(blocks)
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

// choose finds the point.
func choose(all []outcome, ladder []screening.Rung, before float64, opt *Options) (*Calibration, error) {
	blocks := len(all) / opt.Block
	of := func(list []uint32) (part []outcome) {
		for _, b := range list {
			part = append(part, all[int(b)*opt.Block:(int(b)+1)*opt.Block]...)
		}
		return part
	}
	first, second := opt.split(blocks)
	choosing, testing := of(first), of(second)
	path := newPath(choosing, len(ladder), opt.ExactLimit)
	threshold := opt.threshold()
	passed, capital := 0, 0.0
	for _, p := range path {
		bet := p.bet(choosing, len(testing)/opt.Block, opt)
		x := p.losses(testing, opt.K, opt.Block).capital(1-opt.Target, bet)
		if x < threshold {
			break
		}
		passed, capital = passed+1, x
	}
	if passed == 0 {
		f := path[0].figures(testing, opt.K)
		with := ""
		if path[0].exact > 0 {
			with = fmt.Sprintf(" and the exact layer for %.1f%% of the contexts", 100*f.ExactShare)
		}
		return nil, fmt.Errorf("target %v cannot be promised at confidence %v: found P@%d %.4f on %d contexts with the largest budget%s; a lower target, more contexts, or a screen made from more contexts",
			opt.Target, opt.Confidence, opt.K, f.Precision, len(testing), with)
	}
	best := path[passed-1]
	at := slices.IndexFunc(ladder, func(x screening.Rung) bool { return x.Budget == before })
	return &Calibration{
		Target: opt.Target, K: opt.K, Confidence: opt.Confidence, Block: opt.Block, Seed: opt.Seed,
		Choosing: len(choosing), Testing: len(testing), Budget: ladder[best.rung].Budget, ExactMargin: best.exact,
		Path: len(path), Passed: passed, PValue: kernels.Exp(-capital),
		Calibrated: best.figures(testing, opt.K), Before: point{rung: at}.figures(testing, opt.K),
	}, nil
}

// figures returns the figures of contexts with k labels each.
func (p point) figures(outcomes []outcome, k int) Figures {
	var missed, candidates, exact uint64
	for i := range outcomes {
		o := &outcomes[i]
		missed += uint64(p.missed(o))
		if o.lead < p.exact {
			exact++
		} else {
			candidates += uint64(o.candidates[p.rung])
		}
	}
	n := float64(len(outcomes))
	return Figures{
		Precision:  1 - float64(missed)/(n*float64(k)),
		ExactShare: float64(exact) / n,
		Candidates: float64(candidates) / max(1, n-float64(exact)),
	}
}
