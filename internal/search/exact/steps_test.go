package exact_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// The steps of a short search, run by themselves, do what the search does: the scan leaves the
// intervals, and the selection as many labels as the search scores.
func TestTheStepsOfAShortSearchAreParts(t *testing.T) {
	const n, dim, k = 400, 64, 5
	r := newRand(9)
	blocks := make([]byte, n*dim/32*34)
	for i := range blocks {
		if blocks[i] = byte(r.IntN(256)); i%34 == 1 { // the high byte of a scale: 2^-5 to 2^-2
			blocks[i] = 0x28 + byte(r.IntN(12))
		}
	}
	w, h := make([]float32, n*dim), make([]float32, dim)
	for _, list := range [][]float32{w, h} {
		for i := range list {
			list[i] = float32(r.NormFloat64())
		}
	}
	ofBlocks, err := exact.NewLayer(kernels.QuantisedRows(blocks, kernels.Q8_0, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uint32, 300)
	for i := range ids {
		ids[i] = uint32(i)
	}
	for name, l := range map[string]*exact.Layer{"codes": newLayer(t, w, nil, dim), "blocks": ofBlocks} {
		packed, err := l.Pack(ids, []int{0, len(ids)})
		if err != nil {
			t.Fatal(err)
		}
		for form, among := range map[string]exact.Labels{"packed": packed.List(0), "listed": exact.Only(ids)} {
			simdtest.EachLevel(t, func(t *testing.T) {
				s, q := exact.NewSearcher(l), exact.NewQuery(dim)
				q.Reserve(len(ids))
				if err := q.Set(h); err != nil {
					t.Fatal(err)
				}
				lower, upper := q.Ends(len(ids))
				s.Scan(q, &among)
				scanned := slices.Concat(lower, upper)
				clear(lower)
				clear(upper)
				left := s.Select(q, &among, k)
				if got := slices.Concat(lower, upper); !slices.Equal(got, scanned) || slices.Max(scanned) <= 0 {
					t.Errorf("%s, %s: the scan left other intervals than the search", name, form)
				}
				var answers [1]exact.Answer
				dst := make([]exact.Prediction, k)
				if !s.Short(dst, &answers[0], q, &exact.Request{Among: among}) || left < k || left > len(ids)/2 {
					t.Errorf("%s, %s: found %d labels after the selection, expected %d or some more", name, form, left, k)
				}
				threshold := slices.Sorted(slices.Values(scanned[:len(ids)]))[len(ids)-k]
				reach := 0
				for _, x := range scanned[len(ids):] {
					if x >= threshold {
						reach++
					}
				}
				if left < reach {
					t.Errorf("%s, %s: found %d labels after the selection, expected the %d that may be among the best", name, form, left, reach)
				}
			})
		}
	}
}

// A search among all labels has a first pass if the layer has codes of 4 bits. All its steps run, also
// for a context without intervals, and refuse what a search refuses.
func TestTheStepsOfASearch(t *testing.T) {
	const dim = 16
	huge := make([]float32, dim)
	huge[3] = 1e38
	refused := make([]float32, dim)
	refused[0] = float32(math.NaN())
	r, w := newRand(3), make([]float32, 3000*dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	l := newLayer(t, w, nil, dim)
	var names []string
	for _, step := range l.Steps(5) {
		names = append(names, step.Name)
		for _, h := range [][]float32{w[:dim], huge, make([]float32, dim)} {
			if err := step.Run(h); err != nil {
				t.Errorf("%s: %v", step.Name, err)
			}
		}
		for _, h := range [][]float32{refused, w[:dim-1]} {
			if err := step.Run(h); !errors.Is(err, exact.ErrContext) {
				t.Errorf("%s: found error %v, expected one of the context", step.Name, err)
			}
		}
		if n := simdtest.AllocsPerRun(20, func() { step.Run(w[:dim]) }); n > 0 {
			t.Errorf("%s: found %v allocations, expected none: they would be timed", step.Name, n)
		}
	}
	want := []string{"quantise", "first pass", "scan", "rank"}
	if !l.HasCoarse() {
		want = slices.Delete(want, 1, 2)
	}
	if !slices.Equal(names, want) {
		t.Errorf("found the steps %q, expected %q", names, want)
	}
}
