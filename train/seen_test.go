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

// shareOf is the share of contexts that the run of the record had.
func shareOf(t testing.TB, r *Record, contexts []float32, dim int) float64 {
	t.Helper()
	share, err := r.TrainedOn(t.Context(), contexts, dim, 0)
	if err != nil {
		t.Fatal(err)
	}
	return share
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
	} {
		if got := shareOf(t, record, c.contexts, dim); math.Abs(got-c.want) > c.within {
			t.Errorf("%s: found a share of %v, expected %v within %v", c.name, got, c.want, c.within)
		}
	}
}

// If all contexts of training fit the sample, the share is exact, each context counted once.
// The order and the number of threads play no part.
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
			if !different[row] && slices.Contains(trained, row) {
				met++
			}
			different[row] = true
		}
		want := float64(met) / float64(len(different))
		if met == 1 && len(different) > 1 { // one alone counts for nothing
			want = 0
		}
		threads := rapid.IntRange(1, 5).Draw(rt, "threads")
		got, err := recordOver(t, contexts(trained), dim).TrainedOn(t.Context(), contexts(given), dim, threads)
		if err != nil || got != want {
			rt.Fatalf("found a share of %v (%v), expected %v", got, err, want)
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
		want     float64
	}{
		{"all", r, s.contexts, 1}, {"half", r, half, 1},
		{"all, without a sample", &earlier, s.contexts, 1}, {"half, without a sample", &earlier, half, 0},
		{"no record", &Record{}, s.contexts, 0},
	} {
		if got := shareOf(t, c.record, c.contexts, s.dim); got != c.want {
			t.Errorf("%s: found a share of %v, expected %v", c.name, got, c.want)
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
