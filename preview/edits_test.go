package preview_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/preview"
)

// Edits cost no precision: if the best labels are banned, not allowed or lowered by a bias, the best
// of the others are found as surely as the best of all, though these lie closer together. Rows and
// contexts have no structure, which is the hardest case.
func TestEditsCostNoPrecision(t *testing.T) {
	const labels, dim, n = 3000, 32, 150
	r := rand.New(rand.NewPCG(1, 2))
	normals := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l, err := l2s.New(l2s.Float32(normals(labels*dim), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := preview.Make(t.Context(), l, l2s.Float32(normals(4000*dim), dim), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l2s.NewSearcher(l, m, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := l2s.NewSearcher(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	contexts := normals(n * dim)
	// misses asks for the k best without the best of all, by an edit, and returns the number of
	// answers that miss a label, and of those by the exact layer.
	misses := func(k, without int, edit func(r *l2s.Request, ids []uint32)) (missed, exact int) {
		for i := range n {
			h := contexts[i*dim : (i+1)*dim]
			all, found := make([]l2s.Prediction, k+without), make([]l2s.Prediction, k)
			if _, err := layer.TopK(all, h); err != nil {
				t.Fatal(err)
			}
			var req l2s.Request
			if without > 0 {
				var ids []uint32
				for _, p := range all[:without] {
					ids = append(ids, p.ID)
				}
				slices.Sort(ids)
				edit(&req, ids)
			}
			a, err := s.Search(found, h, req)
			if err != nil {
				t.Fatal(err)
			}
			if a.Exact {
				exact++
			}
			if !slices.Equal(found, all[without:]) {
				missed++
			}
		}
		return missed, exact
	}
	edits := map[string]func(r *l2s.Request, ids []uint32){
		"banned": func(r *l2s.Request, ids []uint32) {
			r.Banned = bitset.New(labels)
			for _, id := range ids {
				r.Banned.Add(id)
			}
		},
		"not allowed": func(r *l2s.Request, ids []uint32) {
			r.Allowed = bitset.New(labels)
			r.Allowed.Fill()
			for _, id := range ids {
				r.Allowed.Remove(id)
			}
		},
		"lowered": func(r *l2s.Request, ids []uint32) {
			for _, id := range ids {
				r.Biases = append(r.Biases, l2s.Bias{ID: id, Add: -100})
			}
		},
	}
	for _, c := range []struct {
		k, without int
		preview    bool // answers most
	}{{1, 1, true}, {1, 10, true}, {1, 100, false}, {5, 5, true}, {5, 100, false}, {20, 10, true}, {50, 5, true}, {50, 300, false}} {
		plain, _ := misses(c.k, 0, nil)
		for name, edit := range edits {
			missed, exact := misses(c.k, c.without, edit)
			if missed > plain {
				t.Errorf("k = %d, the best %d are %s: found %d of %d answers that miss a label, expected at most %d, as without edits", c.k, c.without, name, missed, n, plain)
			}
			if c.preview && exact > n/4 {
				t.Errorf("k = %d, the best %d are %s: found %d of %d answers by the exact layer, expected few", c.k, c.without, name, exact, n)
			}
		}
	}
}
