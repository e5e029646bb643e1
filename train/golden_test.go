package train

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// TestGoldenScreens compares screens with their bits on amd64: they are the same on every
// architecture and level, with assembly and without.
func TestGoldenScreens(t *testing.T) {
	const labels, dim, n = 120, 13, 500
	r := rand.New(rand.NewPCG(7, 7))
	// Uniform numbers alone: the numbers of NormFloat64 use math.Exp, which is not the same
	// everywhere.
	uniform := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(2*r.Float64() - 1)
		}
		return x
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(uniform(labels*dim), dim), uniform(labels))
	if err != nil {
		t.Fatal(err)
	}
	contexts := uniform(n * dim)
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   uint64
		record uint64 // of the JSON
	}{
		{"Gumbel-ST", func(o *Options) { o.Learning.Estimator = learn.GumbelST }, 0xcd893473b9037cf8, 0xdbfc24d64f7b13c3},
		{"expected, ids always", func(o *Options) { o.Learning.Estimator, o.Always = learn.Expected, []uint32{5} }, 0x8aef8a712b3bfa97, 0x6d1e131ed4f79ef4},
		{"shells by geometry", func(o *Options) {
			o.Learning.Estimator, o.Geometry, o.Shells, o.Always = learn.Expected, 20, []float64{0.4, 0.1}, []uint32{5}
		}, 0x190723160572cbbd, 0x0f87cd3b8138ca42},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				o := testOptions()
				o.Geometry = 0
				c.change(&o)
				m, _, err := runOver(t.Context(), layer, contexts, o)
				if err != nil {
					t.Fatal(err)
				}
				sum := fnv.New64a()
				write := func(x any) {
					if err := binary.Write(sum, binary.LittleEndian, x); err != nil {
						t.Fatal(err)
					}
				}
				write(m.Config().Clusters)
				for cell := range m.Cells() {
					write(m.List(cell).IDs)
					write(m.List(cell).Shares)
				}
				if got := sum.Sum64(); got != c.want {
					t.Errorf("hash of the screen: %#x, want %#x", got, c.want)
				}
				sum.Reset()
				sum.Write(m.Record())
				if got := sum.Sum64(); got != c.record {
					t.Errorf("hash of the record: %#x, want %#x", got, c.record)
				}
			})
		})
	}
}
