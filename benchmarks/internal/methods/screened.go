package methods

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train"
)

// Form is a form of screens.
type Form int

const (
	// Decided is the form that package train decides without options.
	Decided Form = iota
	// The others are the paper's form: clusters alone, with lists by the counts of labels.
	// KMeans keeps the clusters of spherical k-means, the paper's baseline (its appendix).
	// Gumbel learns them by the paper's estimator, Gumbel straight-through, and Expected by
	// the gradient of the expected loss.
	KMeans
	Gumbel
	Expected
)

var formNames = []string{"l2s", "L2S k-means", "L2S learned, Gumbel straight-through", "L2S learned, expected loss"}

// L2S is learning to screen, the method of this project: "Learning to Screen for Fast Softmax
// Inference on Large Vocabulary Neural Networks" (Chen et al., ICLR 2019). Package train makes the
// screen, package screen asks it. It is trained once: its settings are the budgets of its ladder.
// The zero value leaves the form to package train.
type L2S struct {
	Form Form
	// Clusters is r, and Budget the B for which V is learned, which is on the ladder, for all forms
	// except Decided.
	Clusters int
	Budget   float64
}

// Name returns "l2s", "L2S k-means", "L2S learned, Gumbel straight-through" or "L2S learned,
// expected loss".
func (m L2S) Name() string { return formNames[m.Form] }

// Params returns such as "r=100 learned for B=150", and "" if the form is decided later.
func (m L2S) Params() string {
	if m.Form == Decided {
		return ""
	}
	opt := m.Options()
	return paramsOf(&opt)
}

// Options returns the options of the training, without those that the contexts decide.
func (m L2S) Options() train.Options {
	opt := train.DefaultOptions()
	if m.Form == Decided {
		return opt
	}
	opt.Clusters, opt.Budget, opt.Geometry = m.Clusters, m.Budget, 0
	switch m.Form {
	case KMeans:
		opt.Iterations = 0
	case Gumbel:
		opt.Learning.Budget, opt.Learning.Estimator = m.Budget, "gumbel-st"
	case Expected:
		opt.Learning.Budget, opt.Learning.Estimator = m.Budget, "expected"
	}
	return opt
}

// paramsOf are the parameters of a screen with these options.
func paramsOf(o *train.Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "r=%d", o.Clusters)
	if o.Iterations > 0 {
		b.WriteString(" learned")
		if o.Learning.Budget > 0 {
			fmt.Fprintf(&b, " for B=%g", o.Learning.Budget)
		}
	}
	if len(o.Shells) > 0 {
		b.WriteString(", shells")
	}
	return b.String()
}

// Build trains on in.Contexts with the options of train.DefaultOptions except for the form. It uses
// in.Labels if there are any.
func (m L2S) Build(ctx context.Context, in *Input) (Index, error) {
	if m.Form != Decided && m.Clusters < 1 {
		return nil, fmt.Errorf("methods: clusters: found %d, expected at least 1", m.Clusters)
	}
	opt := m.Options()
	opt.K, opt.Seed, opt.Labels = in.K, in.Seed, in.Labels
	made, _, err := train.Run(ctx, (*l2s.Layer)(engine.Over(in.Layer)), l2s.Float32(in.Contexts, in.Layer.Dim()), opt)
	if err != nil {
		return nil, err
	}
	s, x := (*engine.Index)(made).Screen(), new(screenIndex)
	for _, rung := range s.Ladder() {
		setting, err := NewScreened(in.Layer, s, rung.Budget)
		if err != nil {
			return nil, err
		}
		x.settings = append(x.settings, setting)
	}
	return x, nil
}

type screenIndex struct{ settings []Setting }

// Bytes returns the memory of the largest budget: [Screened.Bytes] is the memory of each.
func (x *screenIndex) Bytes() int64 { return x.settings[len(x.settings)-1].(Screened).Bytes() }

func (x *screenIndex) Settings() []Setting { return x.settings }

// Screened is the setting of L2S: a screen and one of the budgets of its ladder.
type Screened struct {
	layer *exact.Layer
	// Model is the screen.
	Model *screening.Model
	// Budget is B.
	Budget float64
	// Build has the parameters of the construction, with the decisions of training.
	Build string
}

// NewScreened returns the setting of a screen, made by package train for the layer l, and one
// of its budgets.
func NewScreened(l *exact.Layer, m *screening.Model, budget float64) (Screened, error) {
	var made train.Record
	if err := json.Unmarshal(m.Record(), &made); err != nil {
		return Screened{}, fmt.Errorf("methods: the record of a screen: %w", err)
	}
	_, err := screening.NewSearcher(m, l, screening.Options{Budget: budget})
	return Screened{l, m, budget, paramsOf(&made.Options)}, err
}

// Params returns such as "B=150".
func (s Screened) Params() string { return fmt.Sprintf("B=%g", s.Budget) }

// Bytes returns the memory of the screen that queries of the budget read: the vectors in
// float32 and in int8 codes, the candidates, and the int8 codes of the layer.
func (s Screened) Bytes() int64 {
	m := s.Model
	n := int64(m.Clusters()) * int64(4*m.Dim()+kernels.Int8Stride(m.Dim()))
	for cell := range m.Cells() {
		ids, err := m.Candidates(cell, s.Budget)
		if err != nil {
			panic(err) // the budget is one of the ladder
		}
		n += 4 * int64(len(ids))
	}
	return n + layerCodes(s.layer)
}

// Searcher returns a searcher of package screen, with its exact answers within the candidates.
func (s Screened) Searcher() Searcher {
	sr, err := screening.NewSearcher(s.Model, s.layer, screening.Options{Budget: s.Budget})
	if err != nil {
		panic(err) // the screen was made for the layer
	}
	return searcherFunc(func(dst []exact.Prediction, h []float32) int {
		n, err := sr.TopK(dst, h)
		if err != nil {
			panic(err)
		}
		return n
	})
}
