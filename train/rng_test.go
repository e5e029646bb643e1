package train

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The first outputs of SplitMix64 for the seed 1234567, as published with the
// generator.
func TestGeneratorIsSplitMix64(t *testing.T) {
	r := rng{1234567}
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := r.next(); got != want {
			t.Errorf("output %d: found %d, want %d", i, got, want)
		}
	}
}

func TestGeneratorsOfDifferentUsesDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(5) {
		for stream := range uint64(5) {
			for position := range uint64(100) {
				r := newRNG(seed, stream, position)
				seen[r.next()] = true
			}
		}
	}
	if len(seen) != 2500 {
		t.Errorf("found %d different first outputs, want 2500", len(seen))
	}
}

func TestBelowIsUniform(t *testing.T) {
	r := newRNG(1, 2, 3)
	const n, draws = 7, 70000
	var count [n]int
	for range draws {
		count[r.below(n)]++
	}
	for x, c := range count {
		if math.Abs(float64(c)-draws/n) > 5*math.Sqrt(draws/n) {
			t.Errorf("%d: found %d times of %d", x, c, draws)
		}
	}
}

func TestUniformIsInsideTheOpenInterval(t *testing.T) {
	r := newRNG(1, 2, 3)
	sum := 0.0
	const draws = 100000
	for range draws {
		u := r.uniform()
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
		r := newRNG(rapid.Uint64().Draw(t, "seed"), 0, 0)
		ids := r.sample(n, m)
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

func TestShuffleIsAPermutation(t *testing.T) {
	x := ascending(100)
	r := newRNG(4, 5, 6)
	r.shuffle(x)
	if slices.IsSorted(x) {
		t.Error("the order did not change")
	}
	slices.Sort(x)
	if !slices.Equal(x, ascending(100)) {
		t.Errorf("found %v", x)
	}
}

func TestDrawFollowsTheWeights(t *testing.T) {
	r := newRNG(7, 8, 9)
	weights := []float64{0, 1, 0, 3, 0}
	var count [5]int
	const draws = 40000
	for range draws {
		count[draw(&r, weights)]++
	}
	if count[0]+count[2]+count[4] != 0 || math.Abs(float64(count[1])-draws/4) > 500 {
		t.Errorf("found %v", count)
	}
	if got := draw(&r, []float64{0}); got != 0 {
		t.Errorf("all weights zero: found %d", got)
	}
}

func TestHoldOutSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		share := rapid.Float64Range(0, 0.999).Draw(t, "share")
		pool, held := holdOut(n, share)
		if len(held) != int(share*float64(n)) || len(pool) == 0 {
			t.Fatalf("found %d held out of %d", len(held), n)
		}
		all := slices.Concat(pool, held)
		if !slices.IsSorted(pool) || !slices.IsSorted(held) {
			t.Fatal("not ascending")
		}
		slices.Sort(all)
		if !slices.Equal(all, ascending(n)) {
			t.Fatal("not a split of the contexts")
		}
	})
}
