package methods

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// In the paper's arithmetic the labels are the screen's and the logits
// within the rounding of float32, also if there are too few candidates.
func TestThePapersArithmeticIsTheScreens(t *testing.T) {
	d := synthetic.Structured(600, 24, 12, 300, 1)
	flat, err := d.Screen(40)
	if err != nil {
		t.Fatal(err)
	}
	small, err := d.Screen(specK - 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*screen.Model{"a screen": flat, "small sets": small} {
		s, err := screen.NewSearcher(m, d.Layer, screen.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPaper(m, d.Layer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Len() {
			want, got := make([]softmax.Prediction, specK), make([]softmax.Prediction, specK)
			if _, err := s.TopK(want, d.Context(i)); err != nil {
				t.Fatal(err)
			}
			if n := p.TopK(got, d.Context(i)); n != specK || !slices.EqualFunc(got, want, func(a, b softmax.Prediction) bool {
				return a.ID == b.ID && math.Abs(a.Logit-b.Logit) < 1e-4*(1+math.Abs(b.Logit))
			}) {
				t.Errorf("%s, context %d: got %v, want %v", name, i, got, want)
			}
		}
	}
}

func TestThePapersArithmeticIsForClustersAlone(t *testing.T) {
	d := synthetic.Structured(60, 8, 3, 10, 1)
	lists := make([]screening.List, 6)
	for i := range lists {
		lists[i].IDs = []uint32{1, 2, 3}
	}
	m, err := synthetic.Screen(screening.Config{Dim: 8, Labels: 60, Clusters: d.Contexts[:3*8], Shells: []float64{0.5}, Lists: lists})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPaper(m, d.Layer); err == nil {
		t.Error("a screen with shells: no error")
	}
}
