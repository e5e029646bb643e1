package methods

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// In the paper's arithmetic the labels are the screen's and the logits
// within the rounding of float32: flat, through groups, and if the set is too small.
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
	c := screen.Config{Dim: 24, Labels: 600, Clusters: flat.ClusterWeights(), GroupSizes: []int{3, 4, 5}, Fingerprint: flat.Fingerprint()}
	for _, first := range []int{0, 3, 7} {
		c.Groups = append(c.Groups, c.Clusters[first*24:(first+1)*24]...)
	}
	for t := range flat.Clusters() {
		c.Sets = append(c.Sets, flat.Candidates(t))
	}
	grouped, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	c.GroupClusters = []uint32{0, 1, 5, 2, 3, 4, 5, 0, 6, 7, 9, 11}
	shared, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*screen.Model{"flat": flat, "two levels": grouped, "groups that overlap": shared, "small sets": small} {
		s, err := screen.NewSearcher(m, d.Layer)
		if err != nil {
			t.Fatal(err)
		}
		p := NewPaper(m, d.Layer)
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
