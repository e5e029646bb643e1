package lstm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// testStack is a stack of 2 layers and some inputs for it.
func testStack(t *testing.T) (s *Stack, inputs func(rng *rand.Rand, rows int) []float32) {
	s = newSpec(1, 5, 7, 11, 2, false).read(t).stack
	return s, func(rng *rand.Rand, rows int) []float32 {
		x := make([]float32, rows*s.In())
		for i := range x {
			x[i] = 2*rng.Float32() - 1
		}
		return x
	}
}

// TestRunIsStep: streams that end one after the other, some time steps together, give the same bits
// as each stream alone, step by step.
func TestRunIsStep(t *testing.T) {
	s, inputs := testStack(t)
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			active := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 9).Draw(t, "active")
			slices.SortFunc(active, func(a, b int) int { return b - a })
			rows := 0
			for _, n := range active {
				rows += n
			}
			x := inputs(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), rows)
			split := rapid.IntRange(0, len(active)).Draw(t, "split")
			together := s.NewStreams(5)
			first := 0
			for _, n := range active[:split] {
				first += n
			}
			got := slices.Clone(together.Run(x[:first*s.In()], active[:split]))
			got = append(got, together.Run(x[first*s.In():], active[split:])...)

			alone := make([]*Streams, 5)
			for i := range alone {
				alone[i] = s.NewStreams(1)
			}
			row := 0
			for step, n := range active {
				for i := range n {
					want := alone[i].Step(x[row*s.In():(row+1)*s.In()], 1)
					if !slices.Equal(got[row*s.Dim():(row+1)*s.Dim()], want) {
						t.Fatalf("stream %d, step %d: another output than alone", i, step)
					}
					row++
				}
			}
			for i := range alone {
				want, state := make([]float32, s.StateLen()), make([]float32, s.StateLen())
				alone[i].Save(want, 0)
				if together.Save(state, i); !slices.Equal(state, want) {
					t.Fatalf("stream %d: another state than alone", i)
				}
			}
		})
	})
}

// TestStates: Grow and Reorder move states, and Restore restores the state that Save returned, as
// with a list of states.
func TestStates(t *testing.T) {
	s, inputs := testStack(t)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(1, 4).Draw(t, "streams")
		st := s.NewStreams(n)
		st.Step(inputs(rng, n), n)
		save := func(i int) []float32 {
			state := make([]float32, s.StateLen())
			st.Save(state, i)
			return state
		}
		var want [][]float32
		for i := range n {
			want = append(want, save(i))
		}
		for range 4 {
			switch rapid.SampledFrom([]string{"grow", "reorder", "restore"}).Draw(t, "call") {
			case "grow":
				more := rapid.IntRange(0, 9).Draw(t, "room")
				for st.Grow(more); len(want) < more; {
					want = append(want, make([]float32, s.StateLen()))
				}
			case "reorder":
				parents := rapid.SliceOfN(rapid.IntRange(0, len(want)-1), 0, 7).Draw(t, "parents")
				next := make([][]float32, len(parents))
				for i, p := range parents {
					next[i] = want[p]
				}
				want = append(next, want[min(len(next), len(want)):]...)
				st.Reorder(parents)
			case "restore":
				to, from := rapid.IntRange(0, len(want)-1).Draw(t, "to"), rapid.IntRange(0, len(want)-1).Draw(t, "from")
				want[to] = want[from]
				st.Restore(to, save(from))
			}
			for i := range want {
				if !slices.Equal(save(i), want[i]) {
					t.Fatalf("stream %d has another state", i)
				}
			}
		}
	})
}
