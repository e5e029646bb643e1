package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// The spectra of llm-65k, the head of a language model with 384 dimensions: of its contexts around their mean, and
// of (W - mean row) S with S S^T their second moments, without the first, which is the mean of contexts, and so the
// frequency of labels. Both are squares by the share of the dimensions that come before.
var (
	fractions = []float64{0, .0026, .0052, .0104, .0182, .0286, .0391, .0599, .0807, .1224, .1641, .2474, .3307, .4974, .6641, .8307, 1}
	ofMoments = []float64{1, .502, .226, .159, .110, .0890, .0676, .0482, .0375, .0233, .0161, .00808, .00433, .00162, .00069, .00031, .00011}
	ofLogits  = []float64{.109, .0766, .0340, .0208, .0143, .00893, .00677, .00459, .00345, .00209, .00148, .000743, .000407, .000150, .000062, .000028, .000010}
)

// along returns the value of a spectrum at a share of the dimensions, its logarithm being linear between two.
func along(spectrum []float64, x float64) float64 {
	i := min(max(sort.SearchFloat64s(fractions, x), 1), len(fractions)-1)
	t := (x - fractions[i-1]) / (fractions[i] - fractions[i-1])
	return math.Exp((1-t)*math.Log(spectrum[i-1]) + t*math.Log(spectrum[i]))
}

const (
	// topics is the number of directions that labels lean to, and topicShare the part of their variance.
	topics, topicShare = 200, 0.5
	// information is the mean of what the label of a context gains by it, in nats.
	information = 9
	// decline is the power by which the probability of labels falls.
	decline = 1.25
	// turned is the largest number of coordinates that are turned together.
	turned = 64
)

// made is a layer that is the best one for its contexts. A context is drawn by its label s, whose probability p_s falls
// as (1+s)^-decline: in whitened coordinates
//
//	z_j = rho_j a_sj + sqrt(1 - rho_j^2) noise,  a_s = sqrt(topicShare) topic + sqrt(1 - topicShare) noise
//
// and h_j is z_j times the root of the spectrum of contexts. The probability of a label given h is then that of a
// softmax layer, with the bias log p_s - sum rho_j^2 a_sj^2 / (2 (1 - rho_j^2)) and rows that have
// rho_j/(1 - rho_j^2) a_sj in these coordinates. These are proportional to the spectrum of logits, and as large as
// information says. Rows are rounded to bfloat16, and coordinates turned in groups that have all parts of the
// spectrum, as no model has the directions of its contexts for axes.
type made struct {
	labels, dim int
	seed        uint64
	rho, root   []float64   // of each coordinate
	centres     [][]float64 // the topics
	turn        []float32   // n x n, orthogonal
	n           int
	cumulative  []float64 // of the probabilities of labels
}

func newMade(labels, dim int, seed uint64) *made {
	m := &made{labels: labels, dim: dim, seed: seed, rho: make([]float64, dim), root: make([]float64, dim), cumulative: make([]float64, labels)}
	slope, gain := make([]float64, dim), 0.0
	for j := range dim {
		x := float64(j) / float64(dim)
		m.root[j] = 10 * math.Sqrt(along(ofMoments, x))
		slope[j] = math.Sqrt(along(ofLogits, x))
	}
	// rho/(1-rho^2) = c slope, and the sum of rho^2/(1-rho^2) ascends with c.
	low, high := 0.0, 1e6
	for range 100 {
		c := (low + high) / 2
		gain = 0
		for j, x := range slope {
			y := 2 * c * x
			m.rho[j] = y / (1 + math.Sqrt(1+y*y))
			gain += m.rho[j] * m.rho[j] / (1 - m.rho[j]*m.rho[j])
		}
		if gain < information {
			low = c
		} else {
			high = c
		}
	}
	r := rand.New(rand.NewPCG(seed, 1<<40))
	for range topics {
		m.centres = append(m.centres, normal(r, dim))
	}
	for m.n = min(turned, dim); dim%m.n != 0; {
		m.n--
	}
	m.turn = orthogonal(r, m.n)
	sum := 0.0
	for s := range labels {
		sum += math.Pow(float64(1+s), -decline)
		m.cumulative[s] = sum
	}
	return m
}

func normal(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// orthogonal returns n orthonormal rows, by Gram and Schmidt.
func orthogonal(r *rand.Rand, n int) []float32 {
	var rows [][]float64
	flat := make([]float32, 0, n*n)
	for len(rows) < n {
		x := normal(r, n)
		for range 2 {
			for _, y := range rows {
				p := 0.0
				for i := range x {
					p += x[i] * y[i]
				}
				for i := range x {
					x[i] -= p * y[i]
				}
			}
		}
		length := 0.0
		for _, v := range x {
			length += v * v
		}
		for i := range x {
			x[i] /= math.Sqrt(length)
			flat = append(flat, float32(x[i]))
		}
		rows = append(rows, x)
	}
	return flat
}

// rotate writes x with its coordinates turned: each group has every (dim/n)-th of them.
func (m *made) rotate(dst []float32, x []float64) {
	groups, part := m.dim/m.n, make([]float32, m.n)
	for g := range groups {
		for i := range part {
			part[i] = float32(x[i*groups+g])
		}
		kernels.Scan(dst[g*m.n:(g+1)*m.n], m.turn, nil, part)
	}
}

// anchor writes a_s.
func (m *made) anchor(dst []float64, s int) {
	r := rand.New(rand.NewPCG(m.seed, uint64(s)))
	topic, own := m.centres[r.IntN(topics)], math.Sqrt(1-topicShare)
	for j := range dst {
		dst[j] = math.Sqrt(topicShare)*topic[j] + own*r.NormFloat64()
	}
}

// layer returns the layer, with weights of bfloat16.
func (m *made) layer() (*softmax.Layer, error) {
	w, b := make([]uint16, m.labels*m.dim), make([]float32, m.labels)
	a, x, row := make([]float64, m.dim), make([]float64, m.dim), make([]float32, m.dim)
	total := m.cumulative[m.labels-1]
	for s := range m.labels {
		m.anchor(a, s)
		bias := -decline*math.Log(float64(1+s)) - math.Log(total)
		for j, v := range a {
			rest := 1 - m.rho[j]*m.rho[j]
			bias -= m.rho[j] * m.rho[j] * v * v / (2 * rest)
			x[j] = m.rho[j] / rest * v / m.root[j]
		}
		b[s] = float32(bias)
		m.rotate(row, x)
		for j, v := range row {
			bits := math.Float32bits(v)
			w[s*m.dim+j] = uint16((bits + 0x7fff + bits>>16&1) >> 16) // to the nearest, ties to even
		}
	}
	return softmax.NewLayer(kernels.BFloat16Rows(w, m.dim), b)
}

// contexts returns n contexts, other ones for each stream, and the labels that they are drawn by.
func (m *made) contexts(n int, stream uint64) (rows []float32, drawn []uint32) {
	r := rand.New(rand.NewPCG(m.seed, 1<<41+stream))
	rows = make([]float32, n*m.dim)
	a, x := make([]float64, m.dim), make([]float64, m.dim)
	for i := range n {
		s := sort.SearchFloat64s(m.cumulative, r.Float64()*m.cumulative[m.labels-1])
		drawn = append(drawn, uint32(s))
		m.anchor(a, s)
		for j, v := range a {
			x[j] = m.root[j] * (m.rho[j]*v + math.Sqrt(1-m.rho[j]*m.rho[j])*r.NormFloat64())
		}
		m.rotate(rows[i*m.dim:(i+1)*m.dim], x)
	}
	return rows, drawn
}

// parseShape reads such as 10000x1500.
func parseShape(text string) (labels, dim int, err error) {
	var rest string
	if n, _ := fmt.Sscanf(text+" ", "%dx%d%1s", &labels, &dim, &rest); n != 2 || labels < 2 || dim < 1 {
		return 0, 0, fmt.Errorf("--made: found %q, expected LABELSxDIM, such as 10000x1500", text)
	}
	return labels, dim, nil
}
