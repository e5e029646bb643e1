package train

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// sampleMember is what a record holds of the contexts.
var sampleMember = regexp.MustCompile(`"contexts_sample":"[^"]*",`)

// TestGoldenScreens holds screens to the bits that they had on amd64: the same
// on every architecture and level, with assembly and without.
func TestGoldenScreens(t *testing.T) {
	const labels, dim, n = 120, 13, 500
	r := rand.New(rand.NewPCG(7, 7))
	// Uniform numbers alone: the numbers of NormFloat64 go through math.Exp, which
	// is not the same everywhere.
	uniform := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(2*r.Float64() - 1)
		}
		return x
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(uniform(labels*dim), dim), uniform(labels))
	if err != nil {
		t.Fatal(err)
	}
	contexts := uniform(n * dim)
	twoLevels := func(o *Options) {
		o.Groups, o.Clusters, o.Smoothing, o.Spread, o.Lambda = 3, 12, 20, 0.3, 0.00003
	}
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   uint64
		record uint64 // of the JSON
	}{
		{"flat, Gumbel-ST", func(o *Options) { o.Estimator = GumbelST }, 0x4594088016f392c2, 0x52494594f855671e},
		{"flat, expected, momentum, a second probe", func(o *Options) {
			o.Estimator, o.Optimizer, o.ProbeShare, o.Always = Expected, Momentum, 0.3, []uint32{5}
			o.PairWeight = 0
		}, 0x7f6d473dccea30f1, 0x26f7cbd2207bf87},
		{"two levels, expected, sets of pairs", func(o *Options) {
			twoLevels(o)
			o.Estimator, o.ProbeShare, o.Always = Expected, 0.5, []uint32{5}
		}, 0x3b496713907cbf11, 0x72cc0454a887ff94},
		{"two levels, Gumbel-ST, mini-batches", func(o *Options) {
			twoLevels(o)
			o.Estimator, o.KMeansBatch = GumbelST, 100
		}, 0xa0497e3a7436f226, 0x959dcac382e70ee1},
		{"two levels, expected", func(o *Options) { twoLevels(o); o.Estimator = Expected }, 0x4c695b35a5447bc8, 0xb0672de192634c81},
		{"two levels, sets of pairs, shells", func(o *Options) {
			twoLevels(o)
			o.Estimator, o.Geometry, o.ProbeShare, o.Shells, o.Always = Expected, 20, 0.5, []float64{0.4, 0.1}, []uint32{5}
		}, 0xd7e15e066217ad48, 0x19243d897a487b8f},
		{"groups that overlap, expected", func(o *Options) { o.SetOverlap(13, 4); o.Estimator = Expected }, 0x189b352b492576c7, 0x43d73a0e4c328f4},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				o := testOptions()
				o.Geometry, o.Measure = 0, false
				c.change(&o)
				m, _, err := Run(t.Context(), layer, contexts, o)
				if err != nil {
					t.Fatal(err)
				}
				sum := fnv.New64a()
				write := func(x any) {
					if err := binary.Write(sum, binary.LittleEndian, x); err != nil {
						t.Fatal(err)
					}
				}
				write(m.GroupWeights())
				write(m.ClusterWeights())
				write(m.ProbeMargin())
				if lists := m.GroupClusters(); lists != nil {
					write(lists)
				}
				for c := range m.Clusters() {
					write(m.Candidates(c))
				}
				for _, p := range m.Pairs() {
					write([]uint32{uint32(p.First), uint32(p.Second)})
					write(p.Set)
				}
				if got := sum.Sum64(); got != c.want {
					t.Errorf("hash of the screen: %#x, want %#x", got, c.want)
				}
				sum.Reset()
				record := sampleMember.ReplaceAll(m.Record(), nil) // which has a test of its own
				sum.Write(record)
				if got := sum.Sum64(); got != c.record {
					t.Errorf("hash of the record %s: %#x, want %#x", record, got, c.record)
				}
			})
		})
	}
}
