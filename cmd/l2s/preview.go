package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

// budgets returns the budgets of the file in ascending order, and the budget of requests without a
// budget.
func (in *inputs) budgets() (all []float64, normal float64) {
	steps, at := in.index.Steps()
	for _, s := range steps {
		all = append(all, s.Budget)
	}
	return all, steps[at].Budget
}

// previewEval is the JSON of l2s eval of a preview.
type previewEval struct {
	Kind      string             `json:"kind"`
	Precision map[string]float64 `json:"precision"` // P@k by k
	// Intervals has P@k by k with its 95% interval, over 50 runs of neighbours.
	Intervals    map[string]precision.Estimate `json:"intervals"`
	Looked       float64                       `json:"looked"`        // mean share of the labels that a query for the largest k looks at
	MeanScored   float64                       `json:"mean_scored"`   // its mean number of labels scored in full
	ExactAnswers map[string]int                `json:"exact_answers"` // by k: contexts that the exact layer answered
	Budget       float64                       `json:"budget"`
	Labels       int                           `json:"labels"`
	Dim          int                           `json:"dim"`
	Contexts     int                           `json:"contexts"`
	Level        string                        `json:"level"`
	Own          *ownEval                      `json:"own,omitempty"` // with --own

	ks []int
}

// evaluatePreview measures the precision of a preview on all contexts, with progress on p.
func evaluatePreview(ctx context.Context, in *inputs, rows []float32, ks []int, budget float64, threads int, p *progress.Printer) (*previewEval, error) {
	l := in.layer
	d, most := l.Dim(), ks[len(ks)-1]
	n := len(rows) / d
	all, normal := in.budgets()
	taken := normal
	if budget > 0 { // the largest that is not above it, or else the smallest
		taken = all[max(0, sort.SearchFloat64s(all, math.Nextafter(budget, math.Inf(1)))-1)]
	}
	r := &previewEval{
		Kind: kindPreview, Precision: map[string]float64{}, Intervals: map[string]precision.Estimate{}, ExactAnswers: map[string]int{}, Budget: taken, Labels: l.Labels(), Dim: d,
		Contexts: n, Level: kernels.Level(), ks: ks,
	}
	searchers := make([]*l2s.Searcher, parallel.Threads(threads, n))
	for i := range searchers {
		var err error
		if searchers[i], err = l2s.NewSearcher(l.Layer, in.index, l2s.Options{}); err != nil {
			return nil, err
		}
	}
	whole := make([]*exact.Searcher, len(searchers))
	missed, exactly := make([][]int, len(ks)), make([][]int, len(searchers))
	for i := range missed {
		missed[i] = make([]int, n) // of each context
	}
	looked, scored := make([]uint64, len(searchers)), make([]uint64, len(searchers))
	for i := range searchers {
		whole[i], exactly[i] = exact.NewSearcher(l.exact()), make([]int, len(ks))
	}
	p.Start("eval", "contexts", n)
	err := parallel.Each(ctx, len(searchers), n, 16, parallel.Counter(n, p.Set), func(worker, lo, hi int) error {
		s, found := searchers[worker], make([]l2s.Prediction, most)
		best, answers := make([]exact.Prediction, (hi-lo)*most), make([]exact.Answer, hi-lo)
		var ids, right []uint32
		if err := whole[worker].SearchBatch(best, answers, rows[lo*d:hi*d], exact.Request{}); err != nil {
			return err
		}
		for c := lo; c < hi; c++ {
			for i, k := range ks {
				before := s.Stats()
				a, err := s.Search(found[:k], rows[c*d:(c+1)*d], l2s.Request{Budget: budget})
				if err != nil {
					return err
				}
				ids, right = ids[:0], ranking.IDs(right[:0], best[(c-lo)*most:][:k])
				for _, p := range found[:a.Count] {
					ids = append(ids, p.ID)
				}
				missed[i][c] = k - precision.Found(ids, right)
				after := s.Stats()
				exactly[worker][i] += int(after.Exact - before.Exact)
				if k == most {
					looked[worker] += after.Looked - before.Looked
					scored[worker] += after.Scored - before.Scored
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.End()
	var allLooked, allScored uint64
	for i := range searchers {
		allLooked, allScored = allLooked+looked[i], allScored+scored[i]
	}
	r.Looked, r.MeanScored = min(round(float64(allLooked)/float64(n)/float64(l.Labels())), 1), round(float64(allScored)/float64(n))
	for i, k := range ks {
		found, alone, name := n*k, 0, strconv.Itoa(k)
		for _, m := range missed[i] {
			found -= m
		}
		for w := range searchers {
			alone += exactly[w][i]
		}
		r.Precision[name], r.Intervals[name], r.ExactAnswers[name] = float64(found)/float64(n*k), precision.Interval(missed[i], k), alone
	}
	return r, nil
}

func (r *previewEval) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contexts   %s\nlabels     %s\ndimension  %d\nbudget     %v\n", progress.Count(r.Contexts), progress.Count(r.Labels), r.Dim, r.Budget)
	fmt.Fprintf(&b, "looked at  %.2f%% of the labels per context, and %.1f labels scored in full, on average\n", 100*r.Looked, r.MeanScored)
	for _, k := range r.ks {
		e := r.Intervals[strconv.Itoa(k)]
		fmt.Fprintf(&b, "%-9s  %.4f (%.4f to %.4f)", fmt.Sprintf("P@%d", k), r.Precision[strconv.Itoa(k)], e.Low, e.High)
		if n := r.ExactAnswers[strconv.Itoa(k)]; n > 0 {
			fmt.Fprintf(&b, "   (the exact layer answered %s of the contexts)", progress.Count(n))
		}
		b.WriteByte('\n')
	}
	if r.Own != nil {
		b.WriteString(r.Own.String())
	}
	fmt.Fprintf(&b, "level      %s\n", r.Level)
	return b.String()
}

// The kinds of files that l2s train makes.
const (
	kindAuto    = "auto"
	kindScreen  = "screen"
	kindPreview = "preview"
)

// leastContextsOfPreview is the number of contexts from which on a preview is made in addition to a
// screen.
const leastContextsOfPreview = 1000

// makePreview makes a preview from contexts that are spread over the rows, with progress on p.
func makePreview(ctx context.Context, l *layer, rows []float32, k int, o preview.Options, p *progress.Printer) (*l2s.Index, error) {
	// The shares of the time of the stages, about.
	from := map[string]float64{"coordinates": 0, "codes": 0.2, "fingerprint": 0.55, "precision": 0.6}
	to := map[string]float64{"coordinates": 0.2, "codes": 0.55, "fingerprint": 0.6, "precision": 1}
	const all = 10000
	p.Start(kindPreview, "percent", all)
	o.K, o.Progress = k, func(stage string, done float64) {
		p.Part(stage)
		p.Set(int(all * (from[stage] + (to[stage]-from[stage])*min(max(done, 0), 1))))
	}
	m, err := preview.Make(ctx, l.Layer, l2s.Float32(rows, l.Layer.Dim()), o)
	if errors.Is(err, preview.ErrTarget) {
		text, _, _ := strings.Cut(err.Error(), "; Options.")
		return nil, lessPrecise{text + "; --target P allows less"}
	}
	if err != nil {
		return nil, err
	}
	p.EndWith(fmt.Sprintf("%s contexts", progress.Count(len(rows)/l.Dim())))
	return m, nil
}

// lessPrecise is preview.ErrTarget with the flag that allows less in place of the options.
type lessPrecise struct{ text string }

func (e lessPrecise) Error() string { return e.text }
func (e lessPrecise) Unwrap() error { return preview.ErrTarget }

// fewForAScreen is the number of contexts below which no screen is trained if there is a preview that
// reaches the target, and fewer contexts than a quarter of the labels.
const fewForAScreen = 100000

// reaches reports whether these precisions, as they are printed, reach a target.
func reaches(p1, pK, least1, leastK float64) bool {
	return p1 >= least1-precision.Printed && pK >= leastK-precision.Printed
}

// previewReaches reports whether the default rung of a preview reaches a target.
func previewReaches(v *l2s.Index, least1, leastK float64) bool {
	steps, at := v.Steps()
	return reaches(steps[at].Precision1.Value, steps[at].PrecisionK.Value, least1, leastK)
}

// previewWarning is the reason to doubt a preview, "" if there is none.
func previewWarning(v *l2s.Index, target float64) string {
	least1, leastK := precision.Targets(target)
	k, heldOut := v.Measured()
	switch why := holes(v); {
	case heldOut == 0:
		return "there are no held-out contexts, so that nothing is known of the precision: measure it with l2s eval"
	case previewReaches(v, least1, leastK):
		return why
	default:
		if why != "" {
			why = "; " + why
		}
		return fmt.Sprintf("no budget reaches the target, P@1 %.4f and P@%d %.4f: %s; more contexts of such texts help%s", least1, k, leastK, rungText(v, nil), why)
	}
}

// holes is the reason to doubt a preview that misses more labels than it should, each in a state in
// which it leads, "" if there is none.
func holes(v *l2s.Index) string {
	states := (*engine.Index)(v).Preview().Parts().Own
	if own := rungOf(v).Own; states > 0 && own.Value < precision.TargetOwn {
		return fmt.Sprintf("no budget finds %v of the labels, each in a state in which it leads, but %.4f of %s: it may never find some rare labels, and the exact search finds all", precision.TargetOwn, own.Value, progress.Count(states))
	}
	return ""
}

// rungOf is the rung of requests that name no budget.
func rungOf(v *l2s.Index) previewing.Rung {
	p := (*engine.Index)(v).Preview().Parts()
	return p.Rungs[p.Normal]
}

// compare compares the indexes that may be written with each other and with the exact search, with
// progress on p.
func compare(ctx context.Context, l *layer, rows []float32, target float64, p *progress.Printer, among ...*l2s.Index) (*train.Comparison, error) {
	o := train.BetterOptions{Target: target, Progress: func(done, rounds int) {
		if done == 0 {
			p.Start("time of a query", "rounds", rounds)
		}
		p.Set(done)
	}}
	c, err := train.Better(ctx, l.Layer, l2s.Float32(rows, l.Dim()), among, o)
	if err != nil {
		return nil, err
	}
	p.EndWith(fmt.Sprintf("%.0f us, %.0f us by the exact search", micros(c.Best.Time), micros(exactOf(c).Time)))
	return c, nil
}

// exactOf returns the exact search of a comparison.
func exactOf(c *train.Comparison) train.Candidate { return c.Candidates[len(c.Candidates)-1] }

// warnsOfTimes lets training warn if the exact search is as fast, which depends on the machine: most
// tests do without.
var warnsOfTimes = true

// slow is the reason to take the exact search, "" if there is none.
func slow(c *train.Comparison) string {
	if c.Pays || !warnsOfTimes {
		return ""
	}
	return fmt.Sprintf("take the exact search, which misses no label: it takes %.0f us per query, and the %s %.0f", micros(exactOf(c).Time), c.Best.Index.Kind(), micros(c.Best.Time))
}

// decision tells which of the screen and the preview is written, and why. There may be no preview.
func decision(c *train.Comparison, noPreview error) string {
	if len(c.Candidates) == 2 {
		return fmt.Sprintf("a screen is written, since no preview is precise enough: %v", noPreview)
	}
	other := c.Candidates[0]
	if other.Index == c.Best.Index {
		other = c.Candidates[1]
	}
	kind := c.Best.Index.Kind()
	return fmt.Sprintf("a %s is written, with %s; the %s has %s: of the %s, %s; the exact search takes %.0f us",
		kind, figures(c.Best), other.Index.Kind(), figures(other), kind, c.Why, micros(exactOf(c).Time))
}

// figures tells the precision and the time of a candidate.
func figures(c train.Candidate) string {
	own := ""
	if c.Index.Kind() == kindPreview {
		own = fmt.Sprintf(", %.4f of own states", c.Own)
	}
	return fmt.Sprintf("P@1 %.4f, P@%d %.4f%s and %.0f us per query", c.Precision1, c.K, c.PrecisionK, own, micros(c.Time))
}

// rungText tells the precision of the default rung of a preview, or the reason that there is no
// preview.
func rungText(v *l2s.Index, none error) string {
	if v == nil {
		return none.Error()
	}
	p, r := (*engine.Index)(v).Preview().Parts(), rungOf(v)
	return fmt.Sprintf("P@1 %.4f, P@%d %.4f on %s held-out contexts, finds %.4f of %s own states, looks at %.1f%% of the labels and scores %.0f in full", r.Precision1.Value, p.K, r.PrecisionK.Value, progress.Count(p.HeldOut), r.Own.Value, progress.Count(p.Own), 100*r.Looked, r.Kept)
}

// previewTrained is the JSON of l2s train that makes a preview.
type previewTrained struct {
	Kind string `json:"kind"`
	previewResult
	Contexts  int                `json:"contexts"`
	Decisions []string           `json:"decisions,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"` // reasons to doubt the result
	Seconds   map[string]float64 `json:"seconds"`
	Level     string             `json:"level"`
}

func (r previewTrained) String() string {
	text := r.previewResult.String()
	for _, d := range r.Decisions {
		text += d + "\n"
	}
	return text + fmt.Sprintf("%s in all, at level %s\n", progress.Duration(time.Duration(r.Seconds["total"]*1e9)), r.Level)
}
