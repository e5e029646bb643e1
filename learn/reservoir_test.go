package learn

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func reservoirOf(t interface{ Fatal(...any) }, dim, k, runs int, halfLife float64) *reservoir {
	r, err := newReservoir(dim, k, int64(runs)*(contextBytes(int64(dim), int64(k))*runLength+24), halfLife)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Narrowing and widening give back every float16; numbers that are too large have none.
func TestNarrow(t *testing.T) {
	var all []uint16
	for x := range 1 << 16 {
		if x>>10&31 != 31 {
			all = append(all, uint16(x))
		}
	}
	back := make([]uint16, len(all))
	if !narrow(back, widen(all)) || !slices.Equal(back, all) {
		t.Error("found other numbers, expected the same float16")
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 65520, -1e30} {
		if narrow(make([]uint16, 1), []float32{float32(x)}) {
			t.Errorf("found %v taken, expected it to be refused", x)
		}
	}
}

// A reservoir holds the last contexts that it was given, in order, each context once and never more
// than there is room for. No query waits while contexts are copied.
func TestAddingWaitsForNothing(t *testing.T) {
	r := reservoirOf(t, 1, 0, 1, 0)
	r.mu.Lock()
	if n := r.Add([]float32{1}, nil); n != 0 {
		t.Errorf("found %d contexts, expected it to be passed over", n)
	}
	r.mu.Unlock()
	if n := r.Add([]float32{1}, nil); n != 1 {
		t.Errorf("found %d contexts, expected the next one to be taken", n)
	}
}

// A context whose elements in float16 are zeros, or numbers of few bits, is not used for learning.
func TestTinyContexts(t *testing.T) {
	r := reservoirOf(t, 2, 0, 1, 0)
	for _, h := range [][]float32{{0, 0}, {1e-7, 1e-9}, {-0x1p-15, 0x1.8p-15}} {
		if n := r.Add(h, nil); n != 0 {
			t.Errorf("%v: found it taken", h)
		}
	}
	if n := r.Add([]float32{1e-7, -0x1p-14}, nil); n != 1 {
		t.Errorf("found %d contexts, expected the one with an element of 2^-14", n)
	}
}

func TestReservoir(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, k := rapid.IntRange(1, 5).Draw(t, "dim"), rapid.IntRange(0, 3).Draw(t, "k")
		places := rapid.IntRange(1, 5).Draw(t, "runs")
		r := reservoirOf(t, dim, k, places, rapid.SampledFrom([]float64{0, 100, 10000}).Draw(t, "half-life"))
		n := rapid.IntRange(0, 400).Draw(t, "contexts")
		distinct := rapid.IntRange(1, 400).Draw(t, "distinct")
		for i := range n {
			h, id := make([]float32, dim), 1+i%distinct
			h[0] = float32(id)
			var labels []uint32
			if id%2 == 0 && k > 0 {
				labels = make([]uint32, k)
				labels[0] = uint32(id)
			}
			r.Add(h, labels)
		}
		s := r.since(0)
		if len(s.Known) > places*runLength || uint64(len(s.Known)) > r.Kept() {
			t.Fatalf("found %d of %d contexts, %d taken", len(s.Known), n, r.Kept())
		}
		wide := widen(s.Contexts)
		for i, known := range s.Known {
			if i > 0 && s.Numbers[i] <= s.Numbers[i-1] {
				t.Errorf("found number %d after %d", s.Numbers[i], s.Numbers[i-1])
			}
			x := wide[i*dim]
			if known != (k > 0 && int(x)%2 == 0) || known && s.Labels[i*k] != uint32(x) {
				t.Errorf("found labels %v of context %v, known %v", s.Labels[i*k:(i+1)*k], x, known)
			}
		}
		if most := places * runLength; n <= most && len(s.Known) < min(n, distinct)-2 { // hashes may meet
			t.Errorf("found %d contexts, expected %d", len(s.Known), min(n, distinct))
		}
		if n >= 1 && distinct == 1 && len(s.Known) != 1 {
			t.Errorf("found one context %d times", len(s.Known))
		}
		r.Forget()
		if s := r.since(0); len(s.Known) != 0 {
			t.Errorf("found %d contexts after all were forgotten", len(s.Known))
		}
	})
}

// After the half-life half of the contexts are left.
func TestHalfLife(t *testing.T) {
	const reservoirs, places, halfLife = 16, 200, 50000
	left := 0
	for range reservoirs {
		r := reservoirOf(t, 1, 0, places, halfLife)
		h := []float32{0}
		next := func(n int, sign float32) {
			for range n {
				h[0] = sign * (1 + rand.Float32()*60000)
				r.Add(h, nil)
			}
		}
		next(2*places*runLength, 1)
		next(halfLife, -1)
		for _, x := range widen(r.since(0).Contexts) {
			if x > 0 {
				left++
			}
		}
	}
	// The share of one reservoir has a standard deviation of 0.035, the share of 16 of 0.009.
	if share := float64(left) / (reservoirs * places * runLength); math.Abs(share-0.5) > 0.065 {
		t.Errorf("found %.3f of the contexts after the half-life, expected a half", share)
	}
}

// l2s.OpenContexts and l2s train open the files that are written.
func TestWrittenContextsAreOpened(t *testing.T) {
	r := reservoirOf(t, 3, 0, 100, 0)
	var want []float32
	for i := range 1000 {
		h := []float32{float32(i), -0.5, 2}
		r.Add(h, nil)
	}
	want = widen(r.since(0).Contexts)
	var b bytes.Buffer
	n, err := r.WriteNPY(&b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "H.npy")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	c, release, err := heads.OpenContexts(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if !slices.Equal(c, want) || n != len(want)/3 || n < 900 {
		t.Errorf("found %d contexts, %d written", len(c)/3, n)
	}
}

// A context that came again is counted, since the mark, and one whose run was replaced is taken
// again.
func TestRepeatedContexts(t *testing.T) {
	// Contexts whose hashes have one place take it from each other: not these.
	apart := reservoirOf(t, 1, 0, 2, 0)
	for {
		for _, x := range []float32{1, 2, 3, 1, 2, 3} {
			apart.Add([]float32{x}, nil)
		}
		if apart.Kept() == 3 {
			break
		}
		apart = reservoirOf(t, 1, 0, 2, 0)
	}
	r := reservoirOf(t, 1, 0, 2, 0)
	r.seed = apart.seed
	add := func(x float32, times int) {
		for range times {
			r.Add([]float32{x}, nil)
		}
	}
	add(1, 3)
	add(2, 1)
	r.mark()
	add(1, 5)
	add(3, 2)
	if n := r.Kept(); n != 3 {
		t.Errorf("found %d contexts taken, expected 3", n)
	}
	if s := r.those(2, true); !slices.Equal(s.Numbers, []uint64{0, 2}) || !slices.Equal(s.again, []uint32{5, 1}) || !slices.Equal(widen(s.Contexts), []float32{1, 3}) {
		t.Errorf("found %+v, expected the context that came again, and the one that came after", s)
	}
	if s := r.since(2); !slices.Equal(s.Numbers, []uint64{2}) {
		t.Errorf("found the numbers %v, expected 2 alone", s.Numbers)
	}
	for x := float32(10); slices.Contains(widen(r.since(0).Contexts), 1); x++ {
		add(x, 1)
	}
	before := r.Kept()
	if add(1, 1); r.Kept() != before+1 {
		t.Error("found a context passed over whose run was replaced")
	}
}

func TestAddingAllocatesNothing(t *testing.T) {
	r := reservoirOf(t, 8, 2, 20, 0)
	h, labels := make([]float32, 8), []uint32{1, 2}
	if n := simdtest.AllocsPerRun(2000, func() { h[0]++; r.Add(h, labels) }); n != 0 {
		t.Errorf("found %v allocations", n)
	}
	if _, err := newReservoir(8, 2, 100, 0); err == nil {
		t.Error("found no error for 100 bytes")
	}
	for _, halfLife := range []float64{-1, 1.01e12, math.Inf(1), math.NaN()} {
		if _, err := newReservoir(8, 2, 1<<20, halfLife); err == nil {
			t.Errorf("a half-life of %v: found no error", halfLife)
		}
	}
}
