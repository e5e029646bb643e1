package rng

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The first outputs of SplitMix64 for the seed 1234567, as published with the
// generator.
func TestGeneratorIsSplitMix64(t *testing.T) {
	r := Source{1234567}
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := r.Next(); got != want {
			t.Errorf("output %d: found %d, want %d", i, got, want)
		}
	}
}

func TestGeneratorsOfDifferentUsesDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(5) {
		for stream := range uint64(5) {
			for position := range uint64(100) {
				r := New(seed, Stream(stream), position)
				seen[r.Next()] = true
			}
		}
	}
	if len(seen) != 2500 {
		t.Errorf("found %d different first outputs, want 2500", len(seen))
	}
}

func TestBelowIsUniform(t *testing.T) {
	r := New(1, 2, 3)
	const n, draws = 7, 70000
	var count [n]int
	for range draws {
		count[r.Below(n)]++
	}
	for x, c := range count {
		if math.Abs(float64(c)-draws/n) > 5*math.Sqrt(draws/n) {
			t.Errorf("%d: found %d times of %d", x, c, draws)
		}
	}
}

func TestUniformIsInsideTheOpenInterval(t *testing.T) {
	r := New(1, 2, 3)
	sum := 0.0
	const draws = 100000
	for range draws {
		u := r.Uniform()
		if u <= 0 || u >= 1 {
			t.Fatalf("found %v", u)
		}
		sum += u
	}
	if math.Abs(sum/draws-0.5) > 0.005 {
		t.Errorf("mean %v, want 0.5", sum/draws)
	}
}

func TestSampleIsAscendingAndDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		m := rapid.IntRange(1, n).Draw(t, "m")
		r := New(rapid.Uint64().Draw(t, "seed"), 0, 0)
		ids := r.Sample(n, m)
		if len(ids) != m || int(ids[m-1]) >= n {
			t.Fatalf("found %v", ids)
		}
		for i := 1; i < m; i++ {
			if ids[i] <= ids[i-1] {
				t.Fatalf("found %v", ids)
			}
		}
	})
}

func ascending() []uint32 {
	x := make([]uint32, 100)
	for i := range x {
		x[i] = uint32(i)
	}
	return x
}

func TestShuffleIsAPermutation(t *testing.T) {
	x := ascending()
	r := New(4, 5, 6)
	r.Shuffle(x)
	if slices.IsSorted(x) {
		t.Error("the order did not change")
	}
	slices.Sort(x)
	if !slices.Equal(x, ascending()) {
		t.Errorf("found %v", x)
	}
}
