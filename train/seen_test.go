package train

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/labelfile"
)

// sampleOf is what a record keeps of contexts.
func sampleOf(t testing.TB, contexts []float32, dim, threads int) []byte {
	t.Helper()
	d := &data{contexts: contexts, n: len(contexts) / dim, dim: dim, threads: threads}
	sample, err := d.identifyAndSample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

// recordOver is the record of a run over contexts.
func recordOver(t testing.TB, contexts []float32, dim int) *Record {
	t.Helper()
	return &Record{Contexts: len(contexts) / dim, ContextsSample: sampleOf(t, contexts, dim, 0)}
}

// overlapOf says how many of the contexts the run of the record had.
func overlapOf(t testing.TB, r *Record, contexts []float32, dim int) Overlap {
	t.Helper()
	o, err := r.TrainedOn(t.Context(), contexts, dim, 0)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Files of which a part was trained on are found out, also if they are much smaller than all
// that was trained on, and others are not.
func TestTrainedOnFindsAPartOfTheContexts(t *testing.T) {
	const dim, n = 4, 200_000
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []float32 {
		x := make([]float32, n*dim)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	trained := draw(n)
	record := recordOver(t, trained, dim)
	if got := len(record.ContextsSample); got != 8*sampleSize {
		t.Fatalf("found a sample of %d bytes, expected %d words of 8", got, sampleSize)
	}
	for _, c := range []struct {
		name     string
		contexts []float32
		want     float64
		within   float64 // five standard errors of the estimate
	}{
		{"others", draw(n), 0, 0},
		{"all", trained, 1, 0},
		{"all, twice", slices.Concat(trained, trained), 1, 0},
		{"a twentieth of them", trained[n/2*dim : (n/2+n/20)*dim], 1, 0},
		{"half of them, and as many others", slices.Concat(draw(n/2), trained[:n/2*dim]), 0.5, 0.08},
		{"a tenth of them, and nine times as many others", slices.Concat(trained[:n/10*dim], draw(n*9/10)), 0.1, 0.05},
		{"all, and as many others", slices.Concat(trained, draw(n)), 0.5, 0.06},
		{"one of them", slices.Concat(trained[:dim], draw(n)), 0, 0},
		{"many times the same ones", slices.Concat(slices.Repeat(trained[:n/100*dim], 50), draw(n/2)), 0.5, 0.2},
	} {
		o := overlapOf(t, record, c.contexts, dim)
		if math.Abs(o.Share-c.want) > c.within || o.Exact {
			t.Errorf("%s: found %+v, expected an estimate of %v within %v", c.name, o, c.want, c.within)
		}
	}
}

// A single context that was met says nothing about the others, which were not compared.
func TestTrainedOnByOneContextSaysNothing(t *testing.T) {
	const dim, n = 1, 100_000
	trained := make([]float32, n)
	for i := range trained {
		trained[i] = float32(i)
	}
	record := recordOver(t, trained, dim)
	sample, limit := record.sampled()
	alone := func(x float32) uint64 {
		s := newSampler(1, 0, math.MaxUint64)
		if err := labelfile.EachRow(t.Context(), []float32{x}, dim, 0, 1, s.add); err != nil {
			t.Fatal(err)
		}
		return s.all()[0]
	}
	var known, others []float32
	for i := float32(0); len(known) < 2 || len(others) < 100; i++ {
		if sample[alone(i)] {
			known = append(known, i)
		}
		if x := i + n; alone(x) > limit {
			others = append(others, x)
		}
	}
	if o := overlapOf(t, record, append(known[:1:1], others...), dim); o != (Overlap{Compared: 1}) {
		t.Errorf("found %+v by one context, expected no share", o)
	}
	if o := overlapOf(t, record, append(known[:2:2], others...), dim); o != (Overlap{Share: 1, Compared: 2}) {
		t.Errorf("found %+v by two contexts, expected a share of 1", o)
	}
}

// If all contexts of training fit the sample, the share is exact, each context counted as often as
// it occurs. The order and the number of threads play no part.
func TestTrainedOnIsExactForFewContexts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const dim = 2
		rows := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 200)
		trained, given := rows.Draw(rt, "trained"), rows.Draw(rt, "given")
		contexts := func(rows []int) (x []float32) {
			for _, row := range rows {
				x = append(x, float32(row), -float32(row))
			}
			return x
		}
		different, met := map[int]bool{}, 0
		for _, row := range given {
			if different[row] = true; slices.Contains(trained, row) {
				met++
			}
		}
		want := Overlap{float64(met) / float64(len(given)), len(different), true}
		threads := rapid.IntRange(1, 5).Draw(rt, "threads")
		got, err := recordOver(t, contexts(trained), dim).TrainedOn(t.Context(), contexts(given), dim, threads)
		if err != nil || got != want {
			rt.Fatalf("found %+v (%v), expected %+v", got, err, want)
		}
	})
}

// The sample is the same for any number of threads and in any order, and it stays the same:
// it stands in files.
func TestSampleOfContexts(t *testing.T) {
	const dim, n = 3, 20_000
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, n*dim)
	for i := range x {
		x[i] = float32(2*r.Float64() - 1)
	}
	want := uint64(0x51e855c7f7bf437c)
	for threads := range 5 {
		sample := sampleOf(t, x, dim, threads)
		sum := fnv.New64a()
		sum.Write(sample)
		if got := sum.Sum64(); got != want || len(sample) != 8*sampleSize {
			t.Errorf("%d threads: found %d bytes with the hash %#x, expected %d with %#x", threads, len(sample), got, 8*sampleSize, want)
		}
		for i, j := 0, n-1; i < j; i, j = i+1, j-1 {
			for at := range dim {
				x[i*dim+at], x[j*dim+at] = x[j*dim+at], x[i*dim+at]
			}
		}
	}
}

// Run leaves the sample in the record. A record of an earlier release, without one, knows its
// contexts as a whole.
func TestTrainedOnByTheRecordOfARun(t *testing.T) {
	s := newSynthetic(t, 7, 300, 8, 60, 5, 0.3)
	_, r, err := Run(t.Context(), s.layer, s.contexts, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	half := s.contexts[:s.n/2*s.dim]
	earlier := *r
	earlier.ContextsSample = nil
	for _, c := range []struct {
		name     string
		record   *Record
		contexts []float32
		want     Overlap
	}{
		{"all", r, s.contexts, Overlap{1, s.n, true}}, {"half", r, half, Overlap{1, s.n / 2, true}},
		{"all, without a sample", &earlier, s.contexts, Overlap{1, s.n, true}}, {"half, without a sample", &earlier, half, Overlap{}},
		{"no record", &Record{}, s.contexts, Overlap{}},
	} {
		if got := overlapOf(t, c.record, c.contexts, s.dim); got != c.want {
			t.Errorf("%s: found %+v, expected %+v", c.name, got, c.want)
		}
	}
	zeros, negative := make([]float32, 2*s.dim), make([]float32, 2*s.dim)
	for i := range zeros {
		zeros[i], negative[i] = float32(i%2), float32(i%2)
		if i%2 == 0 {
			negative[i] = float32(math.Copysign(0, -1))
		}
	}
	if o := overlapOf(t, recordOver(t, zeros, s.dim), negative, s.dim); o.Share != 1 {
		t.Errorf("found %+v of contexts with -0 in place of 0, which are equal", o)
	}
	for _, dim := range []int{-1, 0, 7} {
		if _, err := r.TrainedOn(t.Context(), s.contexts, dim, 0); err == nil {
			t.Errorf("found no error for rows of %d, of %d numbers", dim, len(s.contexts))
		}
	}
	broken := slices.Clone(s.contexts)
	broken[5*s.dim] = float32(math.NaN())
	if _, err := r.TrainedOn(t.Context(), broken, s.dim, 0); err == nil || !strings.Contains(err.Error(), "context 5: found NaN") {
		t.Errorf("found the error %v, expected one that names context 5", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.TrainedOn(ended, s.contexts, s.dim, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("found the error %v after the end of the context, expected %v", err, context.Canceled)
	}
}
