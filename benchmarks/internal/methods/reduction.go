package methods

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// reduction turns the search for the largest inner product into one for the nearest neighbour
// (Bachrach et al. 2014; Neyshabur and Srebro 2015): labels become the points
//
//	x_s = [w_s; b_s; sqrt(U^2 - ||w_s||^2 - b_s^2)],  U^2 = max_s ||w_s||^2 + b_s^2
//
// which are on the sphere of radius U, and a context becomes q = c [h; 1; 0]. As ||x_s - q||^2 =
// U^2 + ||q||^2 - 2c (w_s.h + b_s), the nearest point is the label with the largest logit, for any
// c > 0. The context is put on the sphere too, ||q|| = U, so that points and contexts are alike; on
// the layer of a language model a PCA tree finds most with that c.
type reduction struct {
	points []float32 // L x dim
	dim    int       // d+2
	radius float64   // U

	squares []float64 // ||w_s||^2 + b_s^2
}

func newReduction(l *exact.Layer) *reduction {
	n, d, w := l.Labels(), l.Dim(), dense.Weights(l)
	r := &reduction{points: make([]float32, n*(d+2)), dim: d + 2, squares: make([]float64, n)}
	for s := range n {
		p := r.points[s*r.dim : (s+1)*r.dim]
		copy(p, w[s*d:(s+1)*d])
		p[d] = l.Bias()[s]
		r.squares[s] = kernels.RefDot(p, p)
	}
	largest := slices.Max(r.squares)
	for s, sq := range r.squares {
		r.points[(s+1)*r.dim-1] = float32(math.Sqrt(largest - sq))
	}
	r.radius = math.Sqrt(largest)
	return r
}

// scale returns the c that puts the context h on the sphere.
func (r *reduction) scale(h []float32) float32 {
	sum := 1.0
	for _, v := range h {
		sum += float64(v) * float64(v)
	}
	return float32(r.radius / math.Sqrt(sum))
}

// split returns the two parts of the directions, rows of dim elements, that are multiplied with a
// context: the parts for h, row-major, and the parts for its 1. The last element of a context is 0.
func (r *reduction) split(directions []float32) (forH, forOne []float32) {
	for at := 0; at < len(directions); at += r.dim {
		forH = append(forH, directions[at:at+r.dim-2]...)
		forOne = append(forOne, directions[at+r.dim-2])
	}
	return forH, forOne
}
