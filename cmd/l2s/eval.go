package main

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

func evalVerb() *verb {
	return &verb{
		name: "eval", args: "m.l2s --weights SRC --bias SRC --contexts SRC",
		summary: "measure the precision of a screen against the exact layer",
		help: `
Answers each context by the screen and by the exact layer and prints P@k, the
share of the exact top-k that the screen found (Section 4 of the paper), and
L-bar, the mean number of candidates a query was given. Use contexts that were
not trained on.

Example:
  l2s eval m.l2s --weights W.npy --bias b.npy --contexts H.test.npy --k 1,5`,
		run: runEval,
	}
}

// evaluation is what eval --json prints.
type evaluation struct {
	Precision     map[string]float64 `json:"precision"`
	AvgCandidates float64            `json:"avg_candidates"`
	Clusters      int                `json:"clusters"`
	Dim           int                `json:"dim"`
	Labels        int                `json:"labels"`
	Contexts      int                `json:"contexts"`
	Level         string             `json:"level"`
}

func runEval(ctx context.Context, e *env) error {
	f := e.flags
	var in inputs
	in.register(e)
	ks := f.String("k", "1,5", "`list` of k, separated by commas")
	quiet := f.Bool("quiet", false, "show no progress")
	asJSON := f.Bool("json", false, "print JSON")
	pos, err := e.parse("the screen file")
	if err != nil {
		return err
	}
	k, err := intList("k", *ks)
	if err != nil {
		return err
	}
	layer, contexts, err := in.load(e)
	defer in.close()
	if err != nil {
		return err
	}
	for _, n := range k {
		if err := checkK(n, layer.Labels()); err != nil {
			return err
		}
	}
	m, err := loadModel(pos[0], layer)
	if err != nil {
		return err
	}
	p := e.printer(*quiet)
	defer p.Close()
	res, err := evaluate(ctx, m, layer, contexts, k, func(done, total int) { p.Update("evaluating", done, total) })
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(e.stdout, res)
	}
	for _, n := range k {
		fmt.Fprintf(e.stdout, "P@%-4d %.4f\n", n, res.Precision[fmt.Sprint(n)])
	}
	fmt.Fprintf(e.stdout, "L-bar  %.1f candidates a query of %d labels, %d clusters, %d contexts\n",
		res.AvgCandidates, res.Labels, res.Clusters, res.Contexts)
	return nil
}

func evaluate(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, k []int, progress func(done, total int)) (*evaluation, error) {
	ev, err := screen.Evaluate(ctx, m, layer, contexts, screen.EvaluateOptions{K: k, Progress: progress})
	if err != nil {
		return nil, err
	}
	res := &evaluation{
		Precision: map[string]float64{}, AvgCandidates: ev.MeanCandidates,
		Clusters: m.Clusters(), Dim: m.Dim(), Labels: m.Labels(), Contexts: ev.Contexts, Level: kernels.Level(),
	}
	for _, a := range ev.AtK {
		res.Precision[fmt.Sprint(a.K)] = a.Precision
	}
	return res, nil
}
