package train

import (
	"encoding/json"
	"fmt"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// newModels makes the screen for each budget, with its record: what is recorded
// of the run, and the figures of the sets, on the held-out slice too unless unseen is nil.
func newModels(layer *softmax.Layer, d *data, s *finalSets, unseen *unseen, run *Record, budgets []float64) (models []*screen.Model, records []*Record, err error) {
	u, v, sizes, lists := s.clusters.routing(d.dim)
	for _, budget := range budgets {
		r := *run
		r.Options.Budget = budget
		if budget != run.Options.Budget && len(r.Alternations) > 0 {
			r.LearnedFor = run.Options.Budget
		}
		sets, margin, f := s.take(d, budget)
		r.MeanCandidates, r.Precision1, r.PrecisionK = f.meanCandidates, f.precision1, f.precisionK
		d.report.message("training contexts: " + f.text(d.k))
		if unseen != nil {
			r.Unseen = unseen.figures(budget)
			d.report.message(r.Unseen.text(d.k))
		}
		encoded, err := json.Marshal(r)
		if err != nil {
			return nil, nil, fmt.Errorf("record: %w", err)
		}
		model, err := screen.NewModel(screen.Config{
			Dim: d.dim, Labels: d.universe, Clusters: v, Groups: u, GroupSizes: sizes, GroupClusters: lists, ProbeMargin: margin,
			Shells: s.shells.list(), Sets: sets.sets[:s.cells.clusters], Pairs: s.pairs.list(s.cells, sets.sets), Always: s.ranked.always,
			Fingerprint: layer.Fingerprint(), Record: encoded,
		})
		if err != nil {
			return nil, nil, err
		}
		models, records = append(models, model), append(records, &r)
	}
	return models, records, nil
}
