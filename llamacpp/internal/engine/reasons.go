package engine

import (
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	search "github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
)

// Fallbacks counts the tokens that the exact layer chose though no option asked for it.
type Fallbacks struct {
	// Far are of states unlike all that the preview was made from.
	Far int
	// Crowded are of other states, in which so many tokens look alike by the budget that the exact
	// layer is as fast.
	Crowded int
}

// doubter looks again at states that the exact layer has answered, to tell why.
type doubter struct {
	look *previewing.Look
	rung *previewing.Rung
	k    int
}

// newDoubter returns a doubter of a chooser by a preview with its budget, nil if it has none.
func newDoubter(c *Chooser) *doubter {
	if c == nil || !c.head.Previews() || c.Unpreviewed() != "" {
		return nil
	}
	m := (*l2sengine.Index)(c.head.Index()).Preview()
	rung := Rung(c.head.Index(), c.Options.Budget)
	k := 1
	if c.draw != nil {
		k = max(1, c.Options.TopK)
	}
	return &doubter{m.Over((*l2sengine.Layer)(c.head.Layer()).Exact()).Look(), &rung, k}
}

// count counts the reason of a state h.
func (d *doubter) count(h []float32, f *Fallbacks) {
	before := d.look.Stats
	d.look.Find(h, d.k, &search.Request{}, d.rung)
	switch after := d.look.Stats; {
	case after.Far > before.Far:
		f.Far++
	case after.Crowded > before.Crowded:
		f.Crowded++
	}
}
