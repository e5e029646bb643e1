package demolm

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

func load(t testing.TB) *Model {
	t.Helper()
	m, err := Load("../../benchmarks/lm/model")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func contexts(t testing.TB, m *Model, n int, seed uint64, progress func(int)) []float32 {
	t.Helper()
	rows, err := m.Contexts(context.Background(), n, seed, progress)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestTheModelWritesContexts(t *testing.T) {
	m := load(t)
	var told []int
	long := contexts(t, m, Stream+40, 1, func(done int) { told = append(told, done) })
	if len(long) != (Stream+40)*m.Layer.Dim() || len(told) == 0 || told[len(told)-1] != Stream+40 {
		t.Errorf("%d elements, progress %v", len(long), told)
	}
	if short := contexts(t, m, 30, 1, nil); !slices.Equal(short, long[:len(short)]) {
		t.Error("a shorter text is not the beginning of a longer one")
	}
	if slices.Equal(long[dim:40*dim], long[(Stream+1)*dim:]) {
		t.Error("the second piece is the first one again")
	}
	if other := contexts(t, m, 30, 2, nil); slices.Equal(other, long[:30*dim]) {
		t.Error("another seed gave the same text")
	}
}

// A step equals the definition of an LSTM in plain float64, and has the same bits on every level.
func TestStep(t *testing.T) {
	m := load(t)
	var first []float32
	simdtest.EachLevel(t, func(t *testing.T) {
		var all []float32
		state := m.NewState()
		h, c := make([][]float64, layers), make([][]float64, layers)
		for l := range layers {
			h[l], c[l] = make([]float64, dim), make([]float64, dim)
		}
		for _, word := range []uint32{1, 17, 19999, 0, 17} {
			x := make([]float64, dim)
			for j := range x {
				x[j] = float64(m.embeddings[int(word)*dim+j])
			}
			for l := range layers {
				gates := make([]float64, 4*dim)
				row := make([]float32, 2*dim)
				for i := range gates {
					m.weights[l].Widen(row, i)
					gates[i] = float64(m.biases[l][i])
					for j := range dim {
						gates[i] += float64(row[j])*x[j] + float64(row[dim+j])*h[l][j]
					}
				}
				for j := range dim {
					s := func(g int) float64 { return 1 / (1 + math.Exp(-gates[g*dim+j])) }
					c[l][j] = s(1)*c[l][j] + s(0)*math.Tanh(gates[2*dim+j])
					h[l][j] = s(3) * math.Tanh(c[l][j])
				}
				x = h[l]
			}
			found := state.Step(word)
			for j, want := range x {
				if math.Abs(float64(found[j])-want) > 1e-6 {
					t.Fatalf("word %d, element %d: found %v, want %v", word, j, found[j], want)
				}
			}
			all = append(all, found...)
		}
		if first == nil {
			first = all
		}
		if !slices.Equal(all, first) {
			t.Error("other bits than on the first level")
		}
	})
}

func BenchmarkContexts(b *testing.B) {
	m := load(b)
	for b.Loop() {
		contexts(b, m, 2*Stream, 1, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/(2*Stream), "us/word")
}
