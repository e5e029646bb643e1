package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
	"github.com/learning-to-screen/l2s/kernels"
)

// evalResult is the JSON of l2s eval.
type evalResult struct {
	// Precision is P@k by k: the share of the k labels of the exact layer that are among the k
	// of the screen, the mean over the contexts.
	Precision      map[string]float64 `json:"precision"`
	MeanCandidates float64            `json:"mean_candidates"` // of a context
	P99Candidates  int                `json:"p99_candidates"`
	MaxCandidates  int                `json:"max_candidates"`
	// RowsScanned is the mean number of rows that a query for the largest k scans: the vectors
	// that find the cluster, and the candidates, or all labels if the exact layer answers.
	RowsScanned    float64            `json:"rows_scanned"`
	RowsScannedAtK map[string]float64 `json:"rows_scanned_at_k"` // the same for each k
	Clusters       int                `json:"clusters"`
	Dim            int                `json:"dim"`
	Labels         int                `json:"labels"`
	Contexts       int                `json:"contexts"`
	Budget         float64            `json:"budget"` // the budget of these figures
	Ladder         []rungResult       `json:"ladder"` // of every budget of the screen
	TrainedOn      bool               `json:"trained_on,omitempty"`
	// ExactAnswers has, by k, the number of contexts that the exact layer answered because they had
	// fewer than k candidates.
	ExactAnswers map[string]int `json:"exact_answers"`
	// The perplexities of the targets, by the probabilities of the screen and of the layer.
	Perplexity      float64 `json:"perplexity,omitempty"`
	ExactPerplexity float64 `json:"exact_perplexity,omitempty"`
	Level           string  `json:"level"`

	ks   []int
	more bool // k is larger than in training
}

// rungResult are the figures of one budget.
type rungResult struct {
	Budget         float64 `json:"budget"`
	MeanCandidates float64 `json:"mean_candidates"`
	P99Candidates  int     `json:"p99_candidates"`
	MaxCandidates  int     `json:"max_candidates"`
	RowsScanned    float64 `json:"rows_scanned"`
	// Precision is P@1 and P@k for the largest k, with 95% intervals.
	Precision map[string]precision.Estimate `json:"precision,omitempty"`
}

// screenResult is the description of a screen in the results of train and inspect.
type screenResult struct {
	Clusters int     `json:"clusters"`
	Dim      int     `json:"dim"`
	Labels   int     `json:"labels"`
	Budget   float64 `json:"budget"` // of requests without a budget
	// Ladder has all budgets, with figures on HeldOut contexts, on which a screen with the same
	// options was not trained: held out, or from --validation.
	Ladder  []rungResult `json:"ladder"`
	HeldOut int          `json:"held_out"`

	k int // of the ladder
}

func screenResultOf(m *screening.Model) screenResult {
	c := m.Config()
	return screenResult{m.Clusters(), m.Dim(), m.Labels(), m.Budget(), rungsOf(m.Ladder(), m.Clusters(), c.K), c.HeldOut, c.K}
}

// ladderText is the table of the ladder, empty if nothing was measured.
func (r *screenResult) ladderText() string {
	if r.HeldOut == 0 {
		return ""
	}
	return fmt.Sprintf("\nBudgets on %s held-out contexts, with 95%% intervals; a star marks the budget of requests that name none:\n\n",
		progress.Count(r.HeldOut)) + ladderText(r.Ladder, r.k, r.Budget)
}

// rungsOf are the figures of a ladder, of P@1 and P@k; k is 0 if nothing was measured.
func rungsOf(ladder []screening.Rung, clusters, k int) []rungResult {
	list := make([]rungResult, len(ladder))
	for i, x := range ladder {
		list[i] = rungResult{
			Budget: x.Budget, MeanCandidates: x.MeanCandidates, P99Candidates: x.P99Candidates, MaxCandidates: x.MaxCandidates, RowsScanned: float64(clusters) + x.MeanCandidates,
		}
		if k > 0 {
			list[i].Precision = map[string]precision.Estimate{"1": x.Precision1, strconv.Itoa(k): x.PrecisionK}
		}
	}
	return list
}

// ladderText is the table of a ladder, with a mark at a budget.
func ladderText(list []rungResult, k int, budget float64) string {
	var b strings.Builder
	b.WriteString("    budget   candidates       p99      rows scanned   P@1")
	if k > 1 {
		fmt.Fprintf(&b, "                    P@%d", k)
	}
	b.WriteByte('\n')
	interval := func(e precision.Estimate) string {
		return fmt.Sprintf("   %.4f (%.4f-%.4f)", e.Value, e.Low, e.High)
	}
	for _, x := range list {
		mark := " "
		if x.Budget == budget {
			mark = "*"
		}
		fmt.Fprintf(&b, "  %s %6v %12.1f %9s %17.1f", mark, x.Budget, x.MeanCandidates, progress.Count(x.P99Candidates), x.RowsScanned)
		b.WriteString(interval(x.Precision["1"]))
		if k > 1 {
			b.WriteString(interval(x.Precision[strconv.Itoa(k)]))
		}
		b.WriteByte('\n')
	}
	b.WriteString("Larger budgets find hardly more labels; the exact layer finds all.\n")
	return b.String()
}

func evalVerb(f *flags) action {
	f.screen, f.previews = true, true
	ks := custom(f, "k", []int{1, 5}, wholeList)
	most := func() int { return (*ks)[len(*ks)-1] }
	f.layerAndContexts(true, most)
	budget := f.budget("l2s eval measures against the exact layer, which finds all labels")
	targets := f.text("targets")
	own := f.own()
	threads := f.threads()
	return func(ctx context.Context, in *inputs) (fmt.Stringer, error) {
		l := in.layer
		f.noteK(in, most())
		f.noteBudget(in, *budget)
		if in.preview != nil {
			if *targets != "" {
				return nil, fmt.Errorf("%s: found a preview, expected a screen for --targets", in.path)
			}
			e, err := evaluatePreview(ctx, in, in.rows, *ks, *budget, *threads, f.progress)
			if err != nil {
				return nil, err
			}
			if *own > 0 {
				if e.Own, err = evaluateOwn(parallel.Limit(ctx, *threads), in, in.rows, *own, *budget, f.progress); err != nil {
					return nil, err
				}
			}
			return e, nil
		}
		if *own > 0 {
			return nil, fmt.Errorf("%s: found a screen, expected a preview for --own", in.path)
		}
		var next []int64
		if *targets != "" {
			if err := in.needsTail("--targets"); err != nil {
				return nil, err
			}
			tensor, err := loading(ctx, tensorfile.OpenTensor, *targets)
			if err != nil {
				return nil, err
			}
			defer tensor.Close()
			if next, err = tensor.Int64s(); err != nil {
				return nil, err
			}
			if l.head.IDs() != nil {
				return nil, fmt.Errorf("%s: found a draft head, expected one of all labels for --targets", l.name)
			}
		}
		trained, err := f.noteTraining(ctx, in, *threads)
		if err != nil {
			return nil, err
		}
		r, err := evaluateScreen(ctx, in.screen, l, in.rows, next, *ks, *threads, f.progress, l2s.Options{Budget: searcherBudget(*budget)})
		if err != nil {
			return nil, err
		}
		r.TrainedOn = trained
		if next != nil {
			if why := misfit(l, in.rows, next); why != "" {
				f.warn(*targets, "%s", why)
			}
		}
		if r.ExactPerplexity > float64(l.Labels()) {
			f.warn(*targets, "the perplexity by the layer is above the number of labels, %s, which a guess has: do the targets belong to these contexts?", progress.Count(l.Labels()))
		}
		return r, nil
	}
}

// misfitSample is the number of contexts that misfit uses.
const misfitSample = 64

// misfit returns a warning if the targets fit logits of another scale much better than the model's
// logits, and "" otherwise. In the first case the contexts lack a scale, or have one twice. A model
// that has learned its text fits it best at a scale near 1.
func misfit(l *layer, rows []float32, targets []int64) string {
	d := l.Dim()
	n := len(rows) / d
	var scales, losses []float64
	for k := -20; k <= 20; k++ {
		scales = append(scales, math.Exp2(float64(k)/2))
	}
	losses = make([]float64, len(scales))
	raw, logits, used := make([]float64, l.Labels()), make([]float64, l.Labels()), 0
	for i := range min(misfitSample, n) {
		at := i * (n / min(misfitSample, n))
		target := targets[at]
		if target < 0 || target >= int64(l.Labels()) {
			continue
		}
		used++
		l.head.Rows().RefScan(raw, l.head.Bias(), rows[at*d:][:d])
		for j, scale := range scales {
			for s, x := range raw {
				logits[s] = l.head.Logit(x * scale)
			}
			losses[j] += kernels.LogSumExp(logits) - logits[target]
		}
	}
	best := 0
	for j := range losses {
		if losses[j] < losses[best] {
			best = j
		}
	}
	const one = 20
	gain := (losses[one] - losses[best]) / float64(max(used, 1))
	if used < misfitSample/4 || gain < 0.25 || scales[best] > 0.6 && scales[best] < 1.7 {
		return ""
	}
	why := ""
	for _, known := range []float64{l.head.StateScale(), l.head.LogitScale()} {
		for _, x := range []float64{known, 1 / known} {
			if known != 1 && why == "" && math.Abs(math.Log(scales[best]/x)) < math.Log(1.5) {
				why = fmt.Sprintf(", and the model has a scale of %.4g", known)
			}
		}
	}
	perplexity := func(j int) float64 { return math.Exp(losses[j] / float64(used)) }
	return fmt.Sprintf("logits %.3g times as large fit the targets better, on a sample with perplexity %.3g instead of %.3g%s: were the states taken at the place that docs/head.md gives for this model?", scales[best], perplexity(best), perplexity(one), why)
}

// evaluateScreen measures the precision of a screen with progress on p.
func evaluateScreen(ctx context.Context, m *screening.Model, l *layer, rows []float32, targets []int64, ks []int, threads int, p *progress.Printer, opts l2s.Options) (*evalResult, error) {
	p.Start("eval", "contexts", len(rows)/l.Dim())
	e, err := evaluate.Run(ctx, m, l.exact(), rows, evaluate.Options{
		K: ks, Threads: threads, Targets: targets, Progress: func(done, _ int) { p.Set(done) },
		Searcher: screening.Options{Budget: opts.Budget, Copies: int64(opts.Copies)},
	})
	if err != nil {
		return nil, err
	}
	p.End()
	routing, k := float64(e.Routing), ks[len(ks)-1]
	r := &evalResult{
		Precision: map[string]float64{}, RowsScannedAtK: map[string]float64{}, MeanCandidates: e.MeanCandidates, P99Candidates: e.P99Candidates, MaxCandidates: e.MaxCandidates, RowsScanned: routing + e.AtK[len(e.AtK)-1].MeanScored,
		Clusters: m.Clusters(), Dim: m.Dim(), Labels: m.Labels(), Contexts: e.Contexts, Budget: e.Budget, Ladder: rungsOf(e.Ladder, m.Clusters(), k),
		ExactAnswers: map[string]int{}, Perplexity: e.Perplexity, ExactPerplexity: e.ExactPerplexity, Level: kernels.Level(), ks: ks,
	}
	r.more = k > m.Config().K
	for _, at := range e.AtK {
		r.Precision[strconv.Itoa(at.K)] = at.Precision
		r.RowsScannedAtK[strconv.Itoa(at.K)] = routing + at.MeanScored
		r.ExactAnswers[strconv.Itoa(at.K)] = at.Exact
	}
	return r, nil
}

func (r *evalResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contexts          %s\n", progress.Count(r.Contexts))
	fmt.Fprintf(&b, "labels            %s\n", progress.Count(r.Labels))
	fmt.Fprintf(&b, "dimension         %d\n", r.Dim)
	fmt.Fprintf(&b, "clusters          %d\n", r.Clusters)
	fmt.Fprintf(&b, "budget            %v\n", r.Budget)
	fmt.Fprintf(&b, "candidates        %.1f a context on average, 99th percentile %s, at most %s\n", r.MeanCandidates, progress.Count(r.P99Candidates), progress.Count(r.MaxCandidates))
	for _, k := range r.ks {
		fmt.Fprintf(&b, "%-16s  %.4f   %.1f rows scanned", fmt.Sprintf("P@%d", k), r.Precision[strconv.Itoa(k)], r.RowsScannedAtK[strconv.Itoa(k)])
		if n := r.ExactAnswers[strconv.Itoa(k)]; n > 0 {
			fewer := fmt.Sprintf("fewer than %d candidates", k)
			if k == 1 {
				fewer = "no candidate"
			}
			fmt.Fprintf(&b, "   (the exact layer answered %s of the contexts: %s)", progress.Count(n), fewer)
		}
		b.WriteByte('\n')
	}
	if r.Perplexity > 0 {
		fmt.Fprintf(&b, "perplexity        %.2f, by the layer %.2f\n", r.Perplexity, r.ExactPerplexity)
	}
	fmt.Fprintf(&b, "level             %s\n\n", r.Level)
	k := r.ks[len(r.ks)-1]
	b.WriteString(ladderText(r.Ladder, k, r.Budget))
	if r.more {
		fmt.Fprintf(&b, "Contexts with fewer than %d candidates count as found in this table, since the exact layer answers them; its rows are not in it.\n", k)
	}
	return b.String()
}
