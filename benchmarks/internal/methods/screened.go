package methods

import (
	"context"
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// L2S is learning to screen, the method of this project: "Learning to Screen
// for Fast Softmax Inference on Large Vocabulary Neural Networks" (Chen et al.,
// ICLR 2019). Package train learns the screen, package screen asks it.
//
// Screens for several budgets come from one run: V is learned for Budget, the
// candidate sets are chosen for each of Budgets. So the budget is a parameter of
// the construction that is swept like one of the query.
type L2S struct {
	// Clusters is r. With Groups, it is the number of all clusters, which are found
	// through the groups: on two levels, where each cluster belongs to one group, or
	// with Overlap through lists of clusters that overlap.
	Clusters, Groups int
	Overlap          bool
	// KMeansOnly keeps the clusters of spherical k-means, the paper's baseline
	// (its appendix), with the candidate sets of one knapsack.
	KMeansOnly bool
	// ProbeShare is the share of the contexts that look at the candidates of
	// two clusters, see train.Options.
	ProbeShare float64
	// Counts chooses the sets by the counts of labels alone, as the paper does, and not
	// by the geometry of the layer too.
	Counts bool
	// Budget is the B for which V is learned.
	Budget float64
	// Budgets are the B of the settings, ascending. nil: Budget alone.
	Budgets []float64
}

// Name returns "L2S", "L2S, two levels", "L2S, overlapping groups", or the names of
// spherical k-means, with ", counts alone" behind if there is no geometry.
func (m L2S) Name() string {
	name := "L2S"
	if m.KMeansOnly {
		name = "Spherical k-means"
	}
	switch {
	case m.Overlap:
		name += ", overlapping groups"
	case m.Groups > 0:
		name += ", two levels"
	}
	if m.Counts {
		name += ", counts alone"
	}
	return name
}

// Params returns such as "r=100 learned for B=150".
func (m L2S) Params() string {
	var b strings.Builder
	fmt.Fprintf(&b, "r=%d", m.Clusters)
	switch {
	case m.Overlap:
		fmt.Fprintf(&b, " through %d groups", m.Groups)
	case m.Groups > 0:
		fmt.Fprintf(&b, " in %d groups", m.Groups)
	}
	if !m.KMeansOnly {
		fmt.Fprintf(&b, " learned for B=%g", m.Budget)
	}
	if m.ProbeShare > 0 {
		fmt.Fprintf(&b, ", %g%% look at two clusters", 100*m.ProbeShare)
	}
	return b.String()
}

// Build trains on in.Contexts with the options of train.DefaultOptions. Where
// there are in.Labels they are used.
func (m L2S) Build(ctx context.Context, in *Input) (Index, error) {
	opt := train.DefaultOptions()
	opt.Clusters = m.Clusters
	switch {
	case m.Overlap:
		opt.SetOverlap(m.Clusters, m.Groups)
	case m.Groups > 0:
		opt.SetLevels(m.Groups, m.Clusters/m.Groups)
		if opt.Clusters != m.Clusters {
			return nil, fmt.Errorf("methods: clusters: found %d, expected a multiple of the %d groups", m.Clusters, m.Groups)
		}
	}
	opt.Budget, opt.KMeansOnly, opt.ProbeShare = m.Budget, m.KMeansOnly, m.ProbeShare
	if m.Counts {
		opt.Geometry = 0
	}
	opt.K, opt.Seed, opt.Labels = in.K, in.Seed, in.Labels
	if in.Note != nil {
		opt.Progress = func(p train.Progress) {
			if p.Message != "" {
				in.Note("%s: %s", p.Stage, p.Message)
			}
		}
	}
	budgets := m.Budgets
	if budgets == nil {
		budgets = []float64{m.Budget}
	}
	screens, _, err := train.RunBudgets(ctx, in.Layer, in.Contexts, opt, budgets)
	if err != nil {
		return nil, err
	}
	x := new(screenIndex)
	for i, s := range screens {
		x.settings = append(x.settings, Screened{in.Layer, s, budgets[i], m})
	}
	return x, nil
}

type screenIndex struct{ settings []Setting }

// Bytes returns the memory of the largest screen: [Screened.Bytes] is the memory of
// each.
func (x *screenIndex) Bytes() int64 {
	var most int64
	for _, s := range x.settings {
		most = max(most, s.(Screened).Bytes())
	}
	return most
}

func (x *screenIndex) Settings() []Setting { return x.settings }

// Screened is the setting of L2S and of spherical k-means: a screen of its own.
type Screened struct {
	layer *softmax.Layer
	// Model is the screen.
	Model *screen.Model
	// Budget is B.
	Budget float64
	// L2S is the construction, the zero value for a screen that was trained elsewhere.
	L2S L2S
}

// Params returns such as "B=150".
func (s Screened) Params() string { return fmt.Sprintf("B=%g", s.Budget) }

// Bytes returns the memory of the screen: the vectors in float32 and in int8
// codes, the candidate sets, and the int8 codes of the layer.
func (s Screened) Bytes() int64 {
	m := s.Model
	vectors := int64(m.Clusters() + m.Groups())
	n := vectors * int64(4*m.Dim()+kernels.Int8Stride(m.Dim()))
	for t := range m.Clusters() * (1 + len(m.Shells())) {
		n += 4 * int64(len(m.Candidates(t)))
	}
	return n + layerCodes(s.layer)
}

// Searcher returns a searcher of package screen, with its exact answers within
// the candidate set.
func (s Screened) Searcher() Searcher {
	sr, err := screen.NewSearcher(s.Model, s.layer)
	if err != nil {
		panic(err) // the screen was made for the layer
	}
	return searcherFunc(func(dst []softmax.Prediction, h []float32) int {
		n, err := sr.TopK(dst, h)
		if err != nil {
			panic(err)
		}
		return n
	})
}

// NewScreened returns the setting of a screen that was trained elsewhere for the
// layer l and the budget.
func NewScreened(l *softmax.Layer, m *screen.Model, budget float64) (Screened, error) {
	_, err := screen.NewSearcher(m, l)
	return Screened{layer: l, Model: m, Budget: budget}, err
}
