package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/watch/audit"
	"github.com/learning-to-screen/l2s/train/internal/ladder"
	tailfit "github.com/learning-to-screen/l2s/train/internal/tail"
)

// screen makes the screen of an attempt from all contexts.
func (t *trainer) screen(ctx context.Context, x *attempt) (*screening.Model, error) {
	var rungs []screening.Rung
	if x.made != nil {
		// As in use, where contexts of training come, too.
		if t.record.Geometry = geometryOfRecord(geometryOf(x.held)); t.validation == nil {
			t.record.Geometry = geometryOfRecord(geometryOf(x.of(t.outIDs)))
		}
		outcomes := x.made.lists.Measure(t.held, cellsOf(x.made.router, x.held))
		rungs = t.rungs(x.made.lists, outcomes)
		for i, r := range rungs {
			rungs[i] = x.made.lists.Rung(r.Budget, r.Share, outcomes, t.K)
		}
		if err := t.misses(rungs[len(rungs)-1]); err != nil {
			return nil, err
		}
		x.made, x.held = nil, nil // as large as the arrays of the next steps
	}
	b, err := newBuilder(ctx, t.Corpus, t.layer, t.opt, stage.Lists, x.router, x.found)
	if err != nil {
		return nil, err
	}
	most := t.mostBudget()
	if rungs != nil {
		most = rungs[len(rungs)-1].Budget
	}
	made, err := b.build(ctx, x.shape, most)
	if err != nil {
		return nil, err
	}
	rungs = t.retarget(made.lists, rungs)
	budget := t.pickDefault(rungs)
	o := &t.record.Options
	o.Clusters, o.Iterations, o.Shells, o.Budget = x.clusters, x.iterations, x.shells, budget
	t.record.KMeans, t.record.Learning = iterationsOf(x.kmeans), courseOf(x.learning)
	m, err := screening.NewModel(t.config(made, rungs, budget))
	if err != nil {
		return nil, err
	}
	fitted, err := t.tail(ctx, m, made)
	if err != nil {
		return nil, err
	}
	record, err := json.Marshal(t.record)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	c := m.Config()
	c.Tail, c.Record = fitted, record
	return screening.NewModel(c)
}

// config is the model without its tail and its record.
func (t *trainer) config(made *built, rungs []screening.Rung, budget float64) screening.Config {
	made.lists.Cut(rungs[len(rungs)-1].Share)
	c := screening.Config{
		Dim: t.Dim, Labels: t.Labels, Clusters: made.router.Vectors(), Shells: made.router.Shells(),
		Lists: made.lists.Lists, Always: len(t.opt.always()), Ladder: rungs, Budget: budget, Fingerprint: t.layer.Fingerprint(),
	}
	if t.held.N > 0 {
		c.K, c.HeldOut = t.K, t.held.N
	}
	return c
}

// geometryOf describes the places of contexts relative to their clusters.
func geometryOf(found []router.Found) *audit.Geometry {
	cosines := make([]float64, len(found))
	for i, f := range found {
		cosines[i] = f.Cosine
	}
	return audit.NewGeometry(cosines)
}

// budgets returns the budgets of a ladder.
func (t *trainer) budgets(l *ladder.Lists, outcomes []precision.Outcome, most float64) []float64 {
	allowed1, allowedK := t.allowed()
	return l.Budgets(outcomes, t.leastBudget(), most, allowed1, allowedK)
}

// rungs returns the rungs of lists, without figures.
func (t *trainer) rungs(l *ladder.Lists, outcomes []precision.Outcome) []screening.Rung {
	budgets := t.budgets(l, outcomes, t.mostBudget())
	if b := t.opt.Budget; b > 0 {
		budgets = append(budgets, max(b, budgets[0]))
		slices.Sort(budgets)
		budgets = slices.Compact(budgets)
	}
	var rungs []screening.Rung
	for _, b := range budgets {
		share, _ := l.Threshold(b)
		rungs = append(rungs, screening.Rung{Budget: b, Share: share})
	}
	return rungs
}

// retarget returns the ladder for other lists, with its figures, if any.
func (t *trainer) retarget(l *ladder.Lists, rungs []screening.Rung) []screening.Rung {
	var climbed []screening.Rung
	for _, x := range rungs {
		if share, ok := l.Threshold(x.Budget); ok { // otherwise there are more certain candidates
			x.Share = share
			climbed = append(climbed, x)
		}
	}
	if climbed == nil {
		return t.rungs(l, nil)
	}
	return climbed
}

// pickDefault returns the budget of requests without a budget.
func (t *trainer) pickDefault(rungs []screening.Rung) float64 {
	last := rungs[len(rungs)-1]
	// first is the first rung that will do, or the last one.
	first := func(does func(x screening.Rung) bool) screening.Rung {
		if i := slices.IndexFunc(rungs, does); i >= 0 {
			return rungs[i]
		}
		return last
	}
	if b := t.opt.Budget; b > 0 {
		return first(func(x screening.Rung) bool { return x.Budget >= b }).Budget
	}
	if t.held.N == 0 {
		t.warn("there are no contexts to measure on that training has not met, so that nothing is known of the precision on others: measure it with l2s eval")
		return first(func(x screening.Rung) bool { return x.Budget >= 2*math.Sqrt(float64(t.Labels)) }).Budget
	}
	allowed1, allowedK := t.allowed()
	reaches := func(x screening.Rung) bool {
		return x.Precision1.Value >= 1-allowed1 && x.PrecisionK.Value >= 1-allowedK
	}
	if x := first(reaches); reaches(x) {
		t.decide("budget %v: %s", x.Budget, t.describe(x))
		return x.Budget
	}
	x := first(func(x screening.Rung) bool { return saturated(x, last) })
	t.warn("no budget reaches the target: %s with budget %v, and larger ones hardly gain; more contexts help", t.describe(x), x.Budget)
	return x.Budget
}

// far is the largest part of a precision that a screen may miss.
const far = 0.02

// misses returns an error if the largest budget misses the target by far.
func (t *trainer) misses(last screening.Rung) error {
	if t.opt.Budget > 0 || t.opt.AnyPrecision {
		return nil
	}
	name, found, want := "P@1", last.Precision1, float64(precision.Target1-precision.Printed)
	if t.opt.Target > 0 {
		name, found, want = fmt.Sprintf("P@%d", t.K), last.PrecisionK, t.opt.Target
	}
	if found.High >= want-far {
		return nil
	}
	return fmt.Errorf("%w: found %s %.4f (%.4f to %.4f) on %s held-out contexts with the largest budget, %.0f candidates, expected %.4f: more contexts help, and they must be the states that the layer is applied to",
		ErrTarget, name, found.Value, found.Low, found.High, progress.Count(t.held.N), last.Budget, want)
}

// saturated reports whether the labels that only the last rung finds are less than a quarter of the
// labels that x misses.
func saturated(x, last screening.Rung) bool {
	few := func(x, last screening.Estimate) bool { return 0.75*(1-x.Value) <= 1-last.Value }
	return few(x.Precision1, last.Precision1) && few(x.PrecisionK, last.PrecisionK)
}

// describe returns the figures of a rung as a text.
func (t *trainer) describe(x screening.Rung) string {
	return fmt.Sprintf("P@1 %.4f (%.4f to %.4f) and P@%d %.4f (%.4f to %.4f) on %s held-out contexts, %.0f candidates",
		x.Precision1.Value, x.Precision1.Low, x.Precision1.High, t.K, x.PrecisionK.Value, x.PrecisionK.Low, x.PrecisionK.High, progress.Count(t.held.N), x.MeanCandidates)
}

func (t *trainer) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.record.Warnings = append(t.record.Warnings, text)
	t.Report.Message("warning: " + text)
}

// tail fits the tail of the screen, nil if none is wanted.
func (t *trainer) tail(ctx context.Context, m *screening.Model, made *built) (*tail.Tail, error) {
	if t.opt.Tail == nil {
		return nil, nil
	}
	fitted, fit, err := tailfit.Find(ctx, t.Corpus, t.layer, m, made.router, made.cells, (*tailfit.Options)(t.opt.Tail))
	if errors.Is(err, tailfit.Err) {
		t.warn("%v: the screen has none, and no log-probabilities over all labels", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t.record.TailFit = fitOf(fit)
	t.Report.Message(fmt.Sprintf("tail: log-probabilities of %d contexts that it was not fitted on are off by %.3f (root mean square)", fit.HeldOut, fit.Errors[len(fit.Errors)-1].LogZ))
	return fitted, nil
}
