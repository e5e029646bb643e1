package methods

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// screened returns a layer with a screen that has shells and pairs, and contexts.
func screened(t *testing.T) (in *Input, contexts [][]float32, m *screen.Model) {
	t.Helper()
	in, contexts = input(t, synthetic.Structured(600, 24, 12, 1300, 1), 1000)
	opt := train.DefaultOptions()
	opt.Clusters, opt.Iterations, opt.Shells, opt.PairShare = 6, 0, []float64{0.8}, 0.5
	m, _, err := train.Run(t.Context(), in.Layer, in.Contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Pairs()) == 0 || len(m.Shells()) == 0 {
		t.Fatal("found a screen without shells or pairs")
	}
	return in, contexts, m
}

// With previews that leave everything the answers are those of the screen, bit for bit; with
// the others they are labels of the same list, with their logits, and mostly the same.
func TestPreviewsAnswerAsTheScreen(t *testing.T) {
	in, contexts, m := screened(t)
	wide, err := NewPreviews(context.Background(), in.Layer, m, in.Contexts, 20)
	if err != nil {
		t.Fatal(err)
	}
	ladder := m.Ladder()
	for _, c := range []struct {
		width int
		rule  Rule
		same  float64 // of the labels, at least
	}{
		{20, Rule{Factor: 1e6}, 1}, {8, Rule{Factor: 1e6}, 1}, {8, Rule{Factor: 1e6, Length: true}, 1}, {8, Rule{Best: 100000}, 1},
		{20, Rule{Factor: 0.3}, 0.95}, {20, Rule{Factor: 0.5, Length: true}, 0.95}, {20, Rule{Best: 40}, 0.95},
	} {
		for _, budget := range []float64{ladder[len(ladder)/2].Budget, ladder[len(ladder)-1].Budget} {
			for _, copied := range []bool{true, false} {
				t.Run(fmt.Sprintf("w=%d %s B=%g copied=%v", c.width, c.rule, budget, copied), func(t *testing.T) {
					p, err := wide.First(c.width, in.Contexts)
					if err != nil {
						t.Fatal(err)
					}
					s, err := p.Setting(budget, c.rule, copied)
					if err != nil {
						t.Fatal(err)
					}
					if found := s.(*previewed).packed != nil; found != copied {
						t.Fatalf("found copies: %v, expected %v", found, copied)
					}
					by, err := NewScreened(in.Layer, m, budget)
					if err != nil {
						t.Fatal(err)
					}
					previews, screen, same, dst := s.Searcher(), by.Searcher(), 0, make([]softmax.Prediction, specK)
					for _, h := range contexts {
						got, want := answerOf(previews, h), answerOf(screen, h)
						for _, g := range got {
							at := slices.IndexFunc(want, func(w softmax.Prediction) bool { return w.ID == g.ID })
							if at >= 0 && want[at].Logit != g.Logit {
								t.Fatalf("label %d: found logit %v, expected %v", g.ID, g.Logit, want[at].Logit)
							}
							if at >= 0 {
								same++
							}
						}
						if c.same == 1 && !slices.Equal(got, want) {
							t.Fatalf("found %v, expected %v", got, want)
						}
						if n := testing.AllocsPerRun(1, func() { previews.TopK(dst, h) }); n != 0 {
							t.Fatalf("found %v allocations, expected none", n)
						}
					}
					if share := float64(same) / float64(specK*len(contexts)); share < c.same {
						t.Errorf("found %.4f of the screen's labels, expected %v", share, c.same)
					}
				})
			}
		}
	}
}

// A narrower view is that which the layer has at once, and what a context has outside its
// coordinates has the length of what remains of h without their directions.
func TestNarrowerPreviews(t *testing.T) {
	in, contexts, m := screened(t)
	wide, err := NewPreviews(context.Background(), in.Layer, m, in.Contexts, 20)
	if err != nil {
		t.Fatal(err)
	}
	const width = 8
	got, err := wide.First(width, in.Contexts)
	if err != nil {
		t.Fatal(err)
	}
	want, err := NewPreviews(context.Background(), in.Layer, m, in.Contexts, width)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.view.to, want.view.to) || !slices.Equal(got.view.rows, want.view.rows) {
		t.Error("found other columns than a view of that width has")
	}
	for s, r := range got.view.rest {
		if math.Abs(r-want.view.rest[s]) > 1e-5*r {
			t.Fatalf("label %d: found a rest of %v, expected %v", s, r, want.view.rest[s])
		}
	}
	d := in.Layer.Dim()
	z, u := make([]float32, width), make([]float32, width)
	for _, h := range contexts[:20] {
		kernels.Scan(z, got.view.to, nil, h)
		rest, basis := slices.Clone(h), [][]float32{}
		for i := range width { // Gram and Schmidt
			row := slices.Clone(got.view.to[i*d : (i+1)*d])
			for range 2 {
				for _, b := range basis {
					subtract(row, b)
				}
			}
			basis = append(basis, row)
			subtract(rest, row)
		}
		want := kernels.RefDot(rest, rest)
		if x := got.left(u, z, h); math.Abs(x-want) > 1e-3*want {
			t.Fatalf("found %v for the square of the length outside, expected %v", x, want)
		}
	}
}

// subtract takes the part of x in the direction of y from it.
func subtract(x, y []float32) {
	p := kernels.RefDot(x, y) / kernels.RefDot(y, y)
	for i := range x {
		x[i] -= float32(p * float64(y[i]))
	}
}
