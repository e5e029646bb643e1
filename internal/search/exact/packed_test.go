package exact_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func TestPackRefuses(t *testing.T) {
	l := newLayer(t, make([]float32, 12), nil, 3)
	for _, c := range []struct {
		name   string
		ids    []uint32
		starts []int
		want   string
	}{
		{"an id that is no label", []uint32{1, 4}, []int{0, 2}, "encode: id out of range"},
		{"ids before the first list", []uint32{1, 2}, []int{1, 2}, "encode: starts are not from 0 to the number of ids"},
		{"ids after the last list", []uint32{1, 2}, []int{0, 1}, "encode: starts are not from 0 to the number of ids"},
		{"lists that go back", []uint32{1, 2}, []int{0, 2, 1, 2}, "encode: starts are not ascending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if found := recover(); found != c.want {
					t.Errorf("found the panic %v, expected %q", found, c.want)
				}
			}()
			_, err := l.Pack(c.ids, c.starts)
			t.Errorf("found error %v, expected a panic", err)
		})
	}
}

func TestAPackedListIsOfItsLayerAlone(t *testing.T) {
	w := []float32{1, 2, 3, 4, 5, 6}
	packed, err := newLayer(t, w, nil, 2).Pack([]uint32{0, 2}, []int{0, 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = exact.NewSearcher(newLayer(t, w, nil, 2)).Search(make([]exact.Prediction, 1), []float32{1, 1}, exact.Request{Among: packed.List(0)})
	if want := "packed for another layer"; err == nil || !errors.Is(err, exact.ErrRequest) || !strings.Contains(err.Error(), want) {
		t.Errorf("found error %v, expected %q", err, want)
	}
}

func TestALayerWithoutCodesPacksNothing(t *testing.T) {
	l := newLayer(t, []float32{0x1p50, 1, 2, 3}, nil, 2)
	if packed, err := l.Pack([]uint32{1}, []int{0, 1}); packed != nil || err != nil {
		t.Errorf("found %v, %v, expected none", packed, err)
	}
}

// The short way is taken by requests for the best labels of a list, with or without a sum, for which
// the query has room, and by no others. It allocates nothing. TestAnswersAreTheirDefinition compares
// its answers.
func TestWhereTheShortWayIsTaken(t *testing.T) {
	const labels, dim = 300, 20
	r := newRand(5)
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l := newLayer(t, random(labels*dim), random(labels), dim)
	packed, err := l.Pack(allIDs(299), []int{0, 299})
	if err != nil {
		t.Fatal(err)
	}
	s, q, short, few := exact.NewSearcher(l), exact.NewQuery(dim), exact.NewQuery(dim), exact.NewQuery(dim)
	short.Reserve(299)
	few.Reserve(16)
	h, large, notANumber := random(dim), random(dim), random(dim)
	large[3], notANumber[19] = 0x1p60, float32(math.NaN())
	if err := errors.Join(q.Set(h), short.Set(h), few.Set(h)); err != nil {
		t.Fatal(err)
	}
	length := math.Sqrt(kernels.RefDot(h, h))
	if low, high := short.Length(); !(low <= length && length <= high && high <= low*(1+1e-5)) {
		t.Errorf("found a length from %v to %v, expected %v", low, high, length)
	}
	other, narrow := newLayer(t, random(labels*dim), nil, dim), newLayer(t, random(2*labels), nil, 2)
	all, part := packed.List(0), packed.First(0, 290)
	var top [2]exact.Prediction
	for _, c := range []struct {
		name string
		s    *exact.Searcher
		q    *exact.Query
		req  exact.Request
		want bool
	}{
		{"two of a list", s, short, exact.Request{Among: all}, true},
		{"two of a list that is not packed", s, short, exact.Request{Among: exact.Only(allIDs(299))}, true},
		{"with a sum", s, short, exact.Request{Among: all, LogSum: true}, true},
		{"a budget, which is none of the layer's business", s, short, exact.Request{Among: all, Budget: 5}, true},
		{"no room", s, q, exact.Request{Among: all}, false},
		{"less room than labels", s, few, exact.Request{Among: all}, false},
		{"all labels", s, short, exact.Request{}, false},
		{"a part of a packed list", s, short, exact.Request{Among: part}, false},
		{"a temperature", s, short, exact.Request{Among: all, Temperature: 2}, false},
		{"a distance", s, short, exact.Request{Among: all, Within: 2}, false},
		{"an exact sum", s, short, exact.Request{Among: all, LogSum: true, ExactSum: true}, false},
		{"banned labels", s, short, exact.Request{Among: all, Banned: bitset.New(labels)}, false},
		{"allowed labels", s, short, exact.Request{Among: all, Allowed: bitset.New(labels)}, false},
		{"biased labels", s, short, exact.Request{Among: all, Biases: []exact.Bias{{ID: 1, Add: 1}}}, false},
		{"a list of another layer", exact.NewSearcher(other), short, exact.Request{Among: all}, false},
		{"a layer of another dimension", exact.NewSearcher(narrow), short, exact.Request{Among: exact.Only([]uint32{1, 2, 3, 4})}, false},
	} {
		top = [2]exact.Prediction{}
		if got := c.s.Short(top[:], new(exact.Answer), c.q, &c.req); got != c.want || !got && top != [2]exact.Prediction{} {
			t.Errorf("%s: found the short way taken %v, expected %v; written %v", c.name, got, c.want, top)
		}
	}
	req, answers, qs := exact.Request{LogSum: true, Among: all}, make([]exact.Answer, 1), []*exact.Query{short}
	if n := simdtest.AllocsPerRun(20, func() { err = s.Find(top[:], answers, qs, &req) }); n != 0 || err != nil {
		t.Errorf("found %v allocations, %v, expected none", n, err)
	}
	// Contexts of too large numbers go the longer way, and others are refused.
	for _, h := range [][]float32{large, nil, make([]float32, dim-1), notANumber} {
		if err := short.Set(h); (err == nil) != (len(h) == dim && h[3] == 0x1p60) || err != nil && !errors.Is(err, exact.ErrContext) {
			t.Errorf("found error %v for %v", err, h)
		}
		low, _ := short.Length()
		if _, _, _, ok := s.Nearest(short, &req); ok || low == low || s.Short(top[:], &answers[0], short, &req) {
			t.Errorf("found the short way taken by a context without intervals, %v", h)
		}
	}
}

func TestPackedBytesArePanels(t *testing.T) {
	for _, dim := range []int{1, 48, 64, 200} {
		l := newLayer(t, make([]float32, 3*dim), nil, dim)
		for _, c := range []struct {
			starts []int
			panels int
		}{{nil, 0}, {[]int{0}, 0}, {[]int{0, 1}, 1}, {[]int{0, 16, 16, 33}, 3}} {
			if got, want := l.PackedBytes(c.starts), int64(c.panels*kernels.PanelBytes(dim, false)); got != want {
				t.Errorf("dimension %d, lists %v: found %d bytes, expected %d", dim, c.starts, got, want)
			}
		}
	}
}
