package exact_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

func TestPackRefuses(t *testing.T) {
	l := newLayer(t, make([]float32, 12), nil, 3)
	for _, c := range []struct {
		name   string
		ids    []uint32
		starts []int
		want   string
	}{
		{"an id that is no label", []uint32{1, 4}, []int{0, 2}, "ids[1]: found label 4, expected one below the 4 labels"},
		{"no starts", nil, nil, "starts: found [], expected 0 to the 0 ids"},
		{"ids before the first list", []uint32{1, 2}, []int{1, 2}, "starts: found [1 2], expected 0 to the 2 ids"},
		{"ids after the last list", []uint32{1, 2}, []int{0, 1}, "starts: found [0 1], expected 0 to the 2 ids"},
		{"lists that go back", []uint32{1, 2}, []int{0, 2, 1, 2}, "starts[2]: found 1 after 2, expected at least that"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := l.Pack(c.ids, c.starts)
			if err == nil || !errors.Is(err, exact.ErrRequest) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found error %v, expected %q", err, c.want)
			}
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

// The short path, for which the query has room, gives the answers of the long one, bit for bit, or
// reports that it does not handle the case. Nothing is allocated.
func TestTheShortWayIsFind(t *testing.T) {
	const labels, dim = 300, 20
	r := rand.New(rand.NewPCG(5, 5))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	w := random(labels * dim)
	copy(w[(labels-7)*dim:(labels-6)*dim], w[(labels-9)*dim:]) // a tie
	l := newLayer(t, w, random(labels), dim)
	var ids []uint32
	starts := []int{0}
	for _, size := range []int{0, 1, 5, 40, 100, 299} {
		for id := range size {
			ids = append(ids, uint32(id+labels-size))
		}
		starts = append(starts, len(ids))
	}
	packed, err := l.Pack(ids, starts)
	if err != nil {
		t.Fatal(err)
	}
	simdtest.EachLevel(t, func(t *testing.T) {
		s, q, short := exact.NewSearcher(l), exact.NewQuery(dim), exact.NewQuery(dim)
		short.Reserve(299)
		for range 20 {
			h := random(dim)
			if err := errors.Join(q.Set(h), short.Set(h)); err != nil {
				t.Fatal(err)
			}
			length := math.Sqrt(kernels.RefDot(h, h))
			if low, high := short.Length(); !(low <= length && length <= high && high <= low*(1+1e-5)) {
				t.Fatalf("found a length from %v to %v, expected %v", low, high, length)
			}
			for list := range len(starts) - 1 {
				size := packed.Size(list)
				plain := exact.Only(ids[starts[list]:starts[list+1]])
				find := func(k int, sum bool, among exact.Labels) ([]exact.Prediction, float64) {
					top, answer := make([]exact.Prediction, k), make([]exact.Answer, 1)
					if err := s.Find(top, answer, []*exact.Query{q}, &exact.Request{LogSum: sum, Among: among}); err != nil {
						t.Fatal(err)
					}
					return top, answer[0].LogSum
				}
				for _, among := range []exact.Labels{packed.List(list), plain} {
					first, low, high, answered := s.Nearest(short, &exact.Request{Among: among})
					if answered != (size > 0) {
						t.Fatalf("the best of %d labels: found answered %v, expected %v", size, answered, size > 0)
					}
					if answered {
						if want, _ := find(1, false, packed.List(list)); first != want[0].ID || !(low <= want[0].Logit && want[0].Logit <= high) {
							t.Errorf("the best of %d labels: found %d with a logit from %v to %v, expected %v", size, first, low, high, want[0])
						}
					}
				}
				for k := range 22 {
					for _, withSum := range []bool{false, true} {
						var got, other [22]exact.Prediction
						var a, b exact.Answer
						answered := s.Short(got[:k], &a, short, &exact.Request{LogSum: withSum, Among: packed.List(list)})
						if s.Short(other[:k], &b, short, &exact.Request{LogSum: withSum, Among: plain}) && (!answered || got != other || a != b) {
							t.Errorf("%d of %d labels: found %v, %+v packed, %v, %+v not packed", k, size, got, a, other, b)
						}
						if possible := k > 0 && 2*k <= size; answered && !possible || !answered && possible && !withSum {
							t.Fatalf("%d of %d labels, sum %v: found answered %v, expected %v", k, size, withSum, answered, possible)
						}
						if !answered {
							if got != [22]exact.Prediction{} || a != (exact.Answer{}) {
								t.Fatalf("%d of %d labels: found something written without an answer", k, size)
							}
							continue
						}
						want, wantSum := find(k, withSum, packed.List(list))
						if !slices.Equal(got[:k], want) {
							t.Errorf("%d of %d labels: found %v, expected %v", k, size, got[:k], want)
						}
						if expected := (exact.Answer{Count: k, LogSum: wantSum}); a != expected {
							t.Errorf("%d of %d labels: found %+v, expected %+v", k, size, a, expected)
						}
					}
				}
				// The first labels of a list are a set like any.
				for _, n := range []int{size / 2, size - 1} {
					for _, k := range []int{1, 5, n / 2} {
						if k < 1 || n < k {
							continue
						}
						got, sum := find(k, true, packed.First(list, n))
						want, wantSum := find(k, true, exact.Only(ids[starts[list]:starts[list]+n]))
						if !slices.Equal(got, want) || sum != wantSum {
							t.Errorf("%d of the first %d of %d labels: found %v, %v, expected %v, %v", k, n, size, got, sum, want, wantSum)
						}
						for _, id := range []uint32{ids[starts[list]], ids[starts[list]+n]} { // one of them, and one that is not
							req := exact.Request{LogSum: true, Among: packed.First(list, n)}
							_, sum, err := s.LogitAndSum(q, id, &req)
							req.Among = exact.Only(ids[starts[list] : starts[list]+n])
							if _, want, wantErr := s.LogitAndSum(q, id, &req); err != nil || wantErr != nil || sum != want {
								t.Errorf("label %d and the sum of the first %d of %d labels: found %v, %v, expected %v, %v", id, n, size, sum, err, want, wantErr)
							}
						}
					}
				}
				if size == 299 && !s.Short(make([]exact.Prediction, 5), new(exact.Answer), short, &exact.Request{LogSum: true, Among: packed.List(list)}) {
					t.Error("found no answer with a sum for 5 of 299 labels, expected one")
				}
			}
		}
		h := random(dim)
		if err := errors.Join(q.Set(h), short.Set(h)); err != nil {
			t.Fatal(err)
		}
		few := exact.NewQuery(dim)
		few.Reserve(16)
		if err := few.Set(h); err != nil {
			t.Fatal(err)
		}
		other, narrow := newLayer(t, random(labels*dim), nil, dim), newLayer(t, random(2*labels), nil, 2)
		all, part := packed.List(5), packed.First(5, 290)
		for _, c := range []struct {
			name string
			s    *exact.Searcher
			q    *exact.Query
			req  exact.Request
			want bool
		}{
			{"two of a list", s, short, exact.Request{Among: all}, true},
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
			var top [2]exact.Prediction
			if got := c.s.Short(top[:], new(exact.Answer), c.q, &c.req); got != c.want {
				t.Errorf("%s: found the short way taken %v, expected %v", c.name, got, c.want)
			}
		}
		// Contexts of too large numbers go the longer way, and others are refused.
		large := make([]float32, dim)
		large[3] = 0x1p60
		if err := errors.Join(q.Set(large), short.Set(large)); err != nil {
			t.Fatal(err)
		}
		if low, high := short.Length(); low == low || high == high {
			t.Errorf("found a length from %v to %v, expected NaN", low, high)
		}
		notANumber := make([]float32, dim)
		notANumber[19] = float32(math.NaN())
		var top, want [2]exact.Prediction
		var answers [2]exact.Answer
		req := exact.Request{LogSum: true, Among: all}
		if _, _, _, ok := s.Nearest(short, &req); ok || s.Short(top[:], &answers[0], short, &req) {
			t.Error("found the short way taken by a context without intervals, expected the longer one")
		}
		err := errors.Join(s.Find(top[:], answers[:1], []*exact.Query{short}, &req), s.Find(want[:], answers[1:], []*exact.Query{q}, &req))
		if err != nil || top != want || answers[0] != answers[1] {
			t.Errorf("found %v, %+v, %v, expected %v, %+v", top, answers[0], err, want, answers[1])
		}
		for _, h := range [][]float32{nil, make([]float32, dim-1), notANumber} {
			if err := short.Set(h); !errors.Is(err, exact.ErrContext) {
				t.Errorf("found error %v for %v, expected ErrContext", err, h)
			}
			if s.Short(top[:], &answers[0], short, &req) {
				t.Errorf("found an answer after %v, expected none", h)
			}
		}
		if err := short.Set(h); err != nil {
			t.Fatal(err)
		}
		qs := []*exact.Query{short}
		if n := simdtest.AllocsPerRun(20, func() { err = s.Find(top[:], answers[:1], qs, &req) }); n != 0 || err != nil {
			t.Errorf("found %v allocations, %v, expected none", n, err)
		}
	})
}

func TestPackedBytesArePanels(t *testing.T) {
	for _, dim := range []int{1, 48, 64, 200} {
		l := newLayer(t, make([]float32, 3*dim), nil, dim)
		for _, c := range []struct {
			starts []int
			panels int
		}{{nil, 0}, {[]int{0}, 0}, {[]int{0, 1}, 1}, {[]int{0, 16, 16, 33}, 3}} {
			if got, want := l.PackedBytes(c.starts), int64(c.panels*kernels.Int8PanelBytes(dim)); got != want {
				t.Errorf("dimension %d, lists %v: found %d bytes, expected %d", dim, c.starts, got, want)
			}
		}
	}
}
