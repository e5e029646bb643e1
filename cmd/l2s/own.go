package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

// own adds the flag --own: a number of labels, or all.
func (f *flags) own() *int {
	return custom(f, "own", 0, func(s string) (int, error) {
		if s == "all" {
			return math.MaxInt, nil
		}
		n, err := parseWhole(s, 1)
		if err != nil {
			return 0, errors.New("expected a whole number of labels, at least 1, or all")
		}
		return n, nil
	})
}

// ownEval has the figures of the own states of labels.
type ownEval struct {
	Labels int                `json:"labels"` // whose own states were looked for
	States int                `json:"states"` // labels that have one
	Found  precision.Estimate `json:"found"`  // the share of these that are found in their own state
	Missed []uint32           `json:"missed"` // labels that are not, the first of them
}

// mostMissed bounds the list of missed labels.
const mostMissed = 1000

// evaluateOwn measures a preview on the own states of some labels, which begin at contexts.
func evaluateOwn(ctx context.Context, in *inputs, rows []float32, labels int, budget float64, p *progress.Printer) (*ownEval, error) {
	l := in.layer.exact()
	o, err := evaluate.NewOwn(ctx, l, rows)
	if err != nil {
		return nil, fmt.Errorf("--own: contexts: %w", err)
	}
	m := in.preview
	ids := evaluate.OwnSample(l.Labels(), labels, 0)
	rungs := []previewing.Rung{*m.Parts().RungOf(budget)}
	p.Start("own states", "labels", len(ids))
	outcomes, err := o.Outcomes(ctx, ids, 0, func() evaluate.Method { return previewing.NewSteps(m.Over(l), rungs, 0) }, parallel.Counter(len(ids), p.Set))
	if err != nil {
		return nil, err
	}
	p.End()
	r := &ownEval{Labels: len(ids), Missed: []uint32{}}
	r.States, r.Found = evaluate.OwnShare(outcomes, 0)
	for i, rung := range outcomes {
		if rung > 0 && len(r.Missed) < mostMissed {
			r.Missed = append(r.Missed, ids[i])
		}
	}
	return r, nil
}

func (r *ownEval) String() string {
	if r.States == 0 {
		return fmt.Sprintf("own states none of %s labels has one\n", progress.Count(r.Labels))
	}
	text := fmt.Sprintf("own states %.4f found (%.4f to %.4f) of %s, of %s labels", r.Found.Value, r.Found.Low, r.Found.High, progress.Count(r.States), progress.Count(r.Labels))
	if n := r.Labels - r.States; n > 0 {
		text += fmt.Sprintf("; %s cannot lead in a state as short as real ones", progress.Count(n))
	}
	if n := len(r.Missed); n > 0 {
		const some = 12
		text += "; not found: " + strings.Trim(fmt.Sprint(r.Missed[:min(n, some)]), "[]")
		if n > some {
			text += " and others"
		}
	}
	return text + "\n"
}
