package audit

import (
	"encoding/json"
	"math"
	"slices"
	"sort"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
)

// Geometry describes the places of contexts relative to their clusters. Training keeps the geometry
// of held-out contexts in the record of the model.
type Geometry struct {
	// Cosine is of the cosines of contexts and the vectors of their clusters.
	Cosine Histogram `json:"cosine"`
}

// Histogram has the shares of bins. Bin i counts the numbers from Edges[i-1] on and below Edges[i],
// the first and the last without a lower or an upper end.
type Histogram struct {
	Edges  []float64 `json:"edges"`
	Shares []float64 `json:"shares"`
	// Most are the shares that a stretch of such contexts may have: contexts of one text are alike,
	// so that the shares of a stretch differ from the shares of all.
	Most []float64 `json:"most"`
}

// quantiles are the shares of contexts below the edges: fine at the contexts far from their
// clusters.
var quantiles = []float64{0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99}

// NewGeometry returns the geometry of contexts with these cosines, in the order of the text.
func NewGeometry(cosines []float64) *Geometry { return &Geometry{newHistogram(cosines)} }

func newHistogram(x []float64) (h Histogram) {
	n := len(x)
	if n == 0 {
		return h
	}
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	for _, q := range quantiles {
		if e := sorted[int(float64(q*float64(n)))]; e > sorted[0] && (len(h.Edges) == 0 || e > h.Edges[len(h.Edges)-1]) {
			h.Edges = append(h.Edges, e)
		}
	}
	bins, stretches := len(h.Edges)+1, min(precision.Runs, n)
	h.Shares, h.Most = make([]float64, bins), make([]float64, bins)
	of := make([][]float64, stretches) // the shares of each
	for b := range of {
		from, to := b*n/stretches, (b+1)*n/stretches
		of[b] = make([]float64, bins)
		for _, x := range x[from:to] {
			of[b][h.bin(x)]++
		}
		for i, count := range of[b] {
			h.Shares[i] += count / float64(n)
			of[b][i] = count / float64(to-from)
		}
	}
	for i, p := range h.Shares {
		h.Most[i] = most(p, of, i, n)
	}
	return h
}

// most is the share p of bin i, its error, and three standard deviations of stretches: their
// variation beyond the variation of independent draws.
func most(p float64, of [][]float64, i, n int) float64 {
	stretches, variance := float64(len(of)), 0.0
	for _, shares := range of {
		off := shares[i] - p
		variance += float64(off * off)
	}
	variance /= max(stretches-1, 1)
	between := max(0, variance-float64(p*(1-p))*stretches/float64(n))
	return min(1, p+float64(3*math.Sqrt(between))+float64(3*math.Sqrt(variance/stretches))+3/float64(n))
}

func (h *Histogram) bin(x float64) int {
	return sort.Search(len(h.Edges), func(i int) bool { return x < h.Edges[i] })
}

// valid reports whether h is a histogram, in the properties that its users need.
func (h *Histogram) valid() bool {
	ok := len(h.Edges) <= len(quantiles) && len(h.Shares) == len(h.Edges)+1 && len(h.Most) == len(h.Shares) && slices.IsSorted(h.Edges)
	for _, p := range h.Most {
		ok = ok && p > 0 && p <= 1
	}
	return ok
}

// geometryOf returns the geometry of the held-out contexts of training, nil if the record has none.
func geometryOf(of json.RawMessage) *Geometry {
	var record struct {
		Geometry *Geometry `json:"geometry"`
	}
	if json.Unmarshal(of, &record) != nil || record.Geometry == nil {
		return nil
	}
	if h := &record.Geometry.Cosine; !h.valid() {
		*h = Histogram{}
	}
	return record.Geometry
}
