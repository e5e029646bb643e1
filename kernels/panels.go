package kernels

import "math"

// gen/panels and gen/neon know these too.
const (
	panelRows  = 32  // rows of a panel
	panelBlock = 128 // elements of a row that are summed together
)

// Panels is a matrix W of float32, packed for products with a few vectors at a
// time: the layers of a decoder, whose weights are read once for all hypotheses of
// a step. 32 rows form a panel, in which the elements j of all rows lie side by
// side. The last panel is filled up with zeros.
//
// Panels does not change and may be used by many goroutines.
type Panels struct {
	data   []float32
	n, dim int
}

// PanelsLen returns the number of elements that a matrix of n rows of dim
// elements takes in Panels.
func PanelsLen(n, dim int) int { return (n + panelRows - 1) / panelRows * panelRows * dim }

// NewPanels packs the rows of W, n rows of dim elements and row-major, in data, which
// has PanelsLen(n, dim) elements and belongs to the result from then on.
func NewPanels(data, rows []float32, n, dim int) *Panels {
	return packPanels(data, rows, n, dim, dim, 1)
}

// NewTransposedPanels is NewPanels for W given by its columns: dim rows of n elements,
// row-major.
func NewTransposedPanels(data, columns []float32, n, dim int) *Panels {
	return packPanels(data, columns, n, dim, 1, n)
}

// packPanels packs the matrix whose element j of row i is w[i*row+j*column].
func packPanels(data, w []float32, n, dim, row, column int) *Panels {
	switch {
	case n < 0 || dim <= 0:
		panic("kernels: Panels: number of rows is negative or dimension is not positive")
	case len(w) != n*dim:
		panic("kernels: Panels: length of the matrix differs from rows times dimension")
	case len(data) != PanelsLen(n, dim):
		panic("kernels: Panels: length of data differs from PanelsLen")
	}
	for first := 0; first < n; first += panelRows {
		panel := data[first*dim:][:panelRows*dim]
		for j := range dim {
			lanes := panel[j*panelRows:][:panelRows]
			for i := range lanes {
				lanes[i] = 0
				if first+i < n {
					lanes[i] = w[(first+i)*row+j*column]
				}
			}
		}
	}
	return &Panels{data, n, dim}
}

// Len returns the number of rows.
func (p *Panels) Len() int { return p.n }

// Dim returns the number of elements of a row.
func (p *Panels) Dim() int { return p.dim }

// A panel goes through the second-level cache once for vectorBytes of vectors, which
// stay there too.
const vectorBytes = 256 << 10

// AddProducts adds the products of all rows with each of n vectors to dst:
//
//	dst[s*Len+i] += W[i][0]*x[s*Dim] + W[i][1]*x[s*Dim+1] + ...
//
// in float32. dst is n x Len and x is n x Dim, row-major; they must not overlap.
//
// Each block of 128 elements is summed from 0, in the order of the elements, by fused
// multiply-adds, which round once; the sum is then added to dst. So the bits are equal on
// every level and every architecture, for every n. Plain Go, which has no such
// instruction for float32, computes the same rounding.
//
// The weights come from memory once for all vectors, and from the second-level cache
// once for 8 of them (AVX-512) or 3 (AVX2).
func (p *Panels) AddProducts(dst, x []float32, n int) {
	if n < 0 || len(dst) != n*p.n {
		panic("kernels: AddProducts: length of dst differs from vectors times rows")
	}
	if len(x) != n*p.dim {
		panic("kernels: AddProducts: length of x differs from vectors times dimension")
	}
	block := max(vectorBytes/(4*p.dim), panelVectors())
	for from := 0; from < n; from += block {
		to := min(from+block, n)
		p.addBlock(dst[from*p.n:to*p.n], x[from*p.dim:to*p.dim], to-from)
	}
}

func (p *Panels) addBlock(dst, x []float32, n int) {
	// Groups of vectors, as equal as can be: each is a call for every panel.
	groups := (n + panelVectors() - 1) / panelVectors()
	var rest [panelVectorsMost * panelRows]float32 // of the last panel, whose rows are fewer
	for first := 0; first < p.n; first += panelRows {
		panel, rows := p.data[first*p.dim:][:panelRows*p.dim], min(panelRows, p.n-first)
		for g := range groups {
			from, to := g*n/groups, (g+1)*n/groups
			out, ldd := dst[from*p.n+first:], p.n
			if rows < panelRows {
				out, ldd = rest[:(to-from)*panelRows], panelRows
				for s := from; s < to; s++ {
					copy(out[(s-from)*panelRows:], dst[s*p.n+first:][:rows])
				}
			}
			p.addPanel(out, ldd, panel, x[from*p.dim:to*p.dim], to-from)
			if rows < panelRows {
				for s := from; s < to; s++ {
					copy(dst[s*p.n+first:][:rows], out[(s-from)*panelRows:])
				}
			}
		}
	}
}

// addPanel adds the products of a panel with n <= panelVectors vectors.
func (p *Panels) addPanel(dst []float32, ldd int, panel, x []float32, n int) {
	for c := callsOf(p.dim, maxCallBytes/(4*panelRows)); c.at < c.n; c = c.next() {
		part := panel[c.at*panelRows : c.end*panelRows]
		raceReads(part)
		for s := range n {
			raceReads(x[s*p.dim+c.at : s*p.dim+c.end])
			raceWrites(dst[s*ldd : s*ldd+panelRows])
		}
		addPanelLeaf(dst, ldd, part, x[c.at:], p.dim, n)
	}
	checkpoint()
}

// addPanelGeneric takes four rows at a time, whose sums stay in registers: numbers of
// float32, widened.
func addPanelGeneric(dst []float32, ldd int, panel, x []float32, ldx, n int) {
	d := len(panel) / panelRows
	for s := range n {
		for first := 0; first < d; first += panelBlock {
			h := x[s*ldx:][first:min(first+panelBlock, d)]
			for i := 0; i < panelRows; i += 4 {
				w := panel[first*panelRows+i:]
				var y0, y1, y2, y3 float64
				for j, v := range h {
					w, v := (*[4]float32)(w[j*panelRows:]), float64(v)
					// Exact products, and sums that are rounded to float64.
					p0, p1, p2, p3 := float64(w[0])*v, float64(w[1])*v, float64(w[2])*v, float64(w[3])*v
					s0, s1, s2, s3 := p0+y0, p1+y1, p2+y2, p3+y3
					if roundsTwice(s0) || roundsTwice(s1) || roundsTwice(s2) || roundsTwice(s3) {
						y0, y1, y2, y3 = roundOnce(p0, y0, s0), roundOnce(p1, y1, s1), roundOnce(p2, y2, s2), roundOnce(p3, y3, s3)
						continue
					}
					y0, y1, y2, y3 = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
				}
				y := (*[4]float32)(dst[s*ldd+i:])
				y[0], y[1], y[2], y[3] = y[0]+float32(y0), y[1]+float32(y1), y[2]+float32(y2), y[3]+float32(y3)
			}
		}
	}
}

// roundsTwice says whether a sum that was rounded to float64 and is rounded to float32
// then may differ from the sum rounded once: if it lies in the middle between two numbers
// of float32, or if it is subnormal in float32, as the middles then lie elsewhere.
func roundsTwice(s float64) bool {
	b := math.Float64bits(s) << 1
	return b<<34 == 1<<63 || b-1 < (1023-126)<<53-1
}

// roundOnce rounds p + z, which is s rounded to float64, to float32 and widens that. If
// s is not exact its last bit is made odd, so that it does not lie in a middle.
func roundOnce(p, z, s float64) float64 {
	back := s - p
	lost := float64(p-float64(s-back)) + float64(z-back) // s + lost = p + z
	// An infinite s stays as it is.
	if b := math.Float64bits(s); lost != 0 && lost-lost == 0 && b&1 == 0 {
		// To the neighbour on the side of what is lost.
		if (lost > 0) == (s > 0) {
			b++
		} else {
			b--
		}
		s = math.Float64frombits(b)
	}
	return float64(float32(s))
}
