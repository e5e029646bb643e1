package train

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/softmax"
)

// unseen measures screens on the held-out slice: their sets are chosen by the
// other contexts.
type unseen struct {
	pool   *data
	sets   *finalSets
	held   *data
	at     *clusters // of the held-out contexts, or their cells
	probes *probes   // of the held-out contexts, nil without a second probe
}

// measureUnseen chooses the sets without the held-out slice. It returns nil if
// nothing is held out.
func measureUnseen(ctx context.Context, d *data, layer *softmax.Layer, v *clusters, opt *Options, most float64) (*unseen, error) {
	pool, held := holdOut(d.n, opt.HeldOut)
	if len(held) == 0 || len(pool) == 0 {
		return nil, nil
	}
	u := &unseen{pool: d.part(pool), held: d.part(held), at: v.part(held)}
	d.report.stage(StageMeasure, 0, len(held)) // whose parts follow
	u.pool.report, u.held.report = d.report.within(StageMeasure), &reporter{}
	var err error
	if u.sets, err = chooseSets(ctx, u.pool, layer, v.part(pool), &opt.SetOptions, most); err != nil {
		return nil, err
	}
	var shells *shells
	if s := u.sets.shells; s != nil {
		if shells, err = findShellsWithin(ctx, u.held, u.at, s.cosines); err != nil {
			return nil, err
		}
	}
	if p := u.sets.probes; p != nil {
		if u.probes, err = findProbesWithin(ctx, u.held, u.at, shells, p.margin); err != nil {
			return nil, err
		}
	}
	if shells != nil {
		u.at = shells.cells(u.at)
	}
	return u, nil
}

// part is the clusters of some of the contexts.
func (c *clusters) part(contexts []uint32) *clusters {
	p := &clusters{c.levels, c.weights, make([]uint32, len(contexts)), c.through}
	for j, i := range contexts {
		p.cluster[j] = c.cluster[i]
	}
	return p
}

// figures returns the figures of the sets for a budget on the held-out slice.
func (u *unseen) figures(budget float64) *Unseen {
	sets, _, _ := u.sets.take(u.pool, budget)
	m := measured{u.held, u.at.cluster, sets, u.probes, u.sets.pairs}
	all := u.held.all()
	f := m.figures(all)
	// Neighbours resemble each other: runs of them are the observations.
	runs := min(heldOutBlocks, len(all))
	squares := 0.0
	for b := range runs {
		lo, hi := b*len(all)/runs, (b+1)*len(all)/runs
		off := float64((m.figures(all[lo:hi]).precisionK - f.precisionK) * float64(hi-lo))
		squares += float64(off * off)
	}
	deviation := 0.0
	if runs > 1 {
		deviation = math.Sqrt(squares*float64(runs)/float64(runs-1)) / float64(len(all))
	}
	return &Unseen{len(all), f.meanCandidates, f.precision1, f.precisionK, deviation}
}
