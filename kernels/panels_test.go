package kernels

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// fused is x*y + z, rounded to float32 once, from numbers of any precision.
func fused(x, y, z float32) float32 {
	if z-z != 0 {
		return z // infinite, or NaN; x and y are finite
	}
	exact := func(v float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(v)) }
	p := exact(x)
	p.Mul(p, exact(y))
	sum, _ := p.Add(p, exact(z)).Float32()
	return sum
}

// product is what AddProducts adds to y for a row and a vector, by its definition.
func product(y float32, row, x []float32) float32 {
	for from := 0; from < len(row); from += 128 {
		sum := float32(0)
		for j := from; j < min(from+128, len(row)); j++ {
			sum = fused(row[j], x[j], sum)
		}
		y += sum
	}
	return y
}

// Numbers of few bits, far from each other, make middles between two float32 often;
// tiny ones make subnormal sums.
func drawSpread(r *rand.Rand, exponent int) float32 {
	x := math.Ldexp(float64(r.IntN(64)-32), exponent+r.IntN(60)-30)
	if r.IntN(3) == 0 {
		x = math.Ldexp(r.NormFloat64(), exponent)
	}
	return float32(x)
}

func TestAddProductsSumsBlocksOfFusedProducts(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			r := newRand(rapid.Uint64().Draw(t, "seed"))
			rows, d, n := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.SampledFrom([]int{1, 2, 3, 31, 127, 128, 129, 257}).Draw(t, "dim"), rapid.IntRange(0, 3).Draw(t, "vectors")
			exponent := rapid.SampledFrom([]int{0, -65, -74, 40}).Draw(t, "exponent")
			draw := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = drawSpread(r, exponent)
				}
				return x
			}
			w, x, y := draw(rows*d), draw(n*d), draw(n*rows)
			got, columns := slices.Clone(y), make([]float32, rows*d)
			p := NewPanels(make([]float32, PanelsLen(rows, d)), w, rows, d)
			if p.Len() != rows || p.Dim() != d {
				t.Fatalf("%d rows of %d, want %d of %d", p.Len(), p.Dim(), rows, d)
			}
			p.AddProducts(got, x, n)
			for s := range n {
				// The big numbers are slow: some rows.
				for range 3 {
					i := r.IntN(rows)
					if want := product(y[s*rows+i], w[i*d:(i+1)*d], x[s*d:(s+1)*d]); !sameBits64(numbers(got[s*rows+i]), numbers(want)) {
						t.Fatalf("row %d, vector %d: %v, want %v", i, s, got[s*rows+i], want)
					}
				}
			}
			for i := range rows {
				for j := range d {
					columns[j*rows+i] = w[i*d+j]
				}
			}
			again := slices.Clone(y)
			NewTransposedPanels(make([]float32, PanelsLen(rows, d)), columns, rows, d).AddProducts(again, x, n)
			if !sameBits64(numbers(again...), numbers(got...)) {
				t.Fatal("the transposed matrix has other products")
			}
		})
	})
}

// A vector has the products that it has alone, whatever stands beside it and whatever
// the number of rows.
func TestAddProductsOfManyAreThoseOfEach(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(3)
		for _, c := range []struct{ rows, d, most, step int }{{32, 8, 40, 1}, {45, 33, 20, 1}, {64, 200, 17, 1}, {3, 130, 9, 1}, {96, 4000, 40, 13}} {
			p := NewPanels(make([]float32, PanelsLen(c.rows, c.d)), fill(r, make([]float32, c.rows*c.d)), c.rows, c.d)
			for n := 0; n < c.most; n += c.step {
				x, want, got := fill(r, make([]float32, n*c.d)), make([]float32, n*c.rows), make([]float32, n*c.rows)
				p.AddProducts(got, x, n)
				for s := range n {
					p.AddProducts(want[s*c.rows:(s+1)*c.rows], x[s*c.d:(s+1)*c.d], 1)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d x %d: the products of %d vectors are not those of each", c.rows, c.d, n)
				}
			}
		}
	})
}

func BenchmarkAddProducts(b *testing.B) {
	for _, c := range []struct{ rows, d int }{{2000, 1000}, {800, 400}} {
		for _, n := range []int{1, 5, 40} {
			b.Run(fmt.Sprintf("%dx%d, %d vectors", c.rows, c.d, n), func(b *testing.B) {
				r := newRand(1)
				p := NewPanels(make([]float32, PanelsLen(c.rows, c.d)), fill(r, make([]float32, c.rows*c.d)), c.rows, c.d)
				x, y := fill(r, make([]float32, n*c.d)), make([]float32, n*c.rows)
				for b.Loop() {
					p.AddProducts(y, x, n)
				}
				b.ReportMetric(float64(b.N)*float64(n*c.rows*c.d)/float64(b.Elapsed().Nanoseconds()), "products/ns")
			})
		}
	}
}

func BenchmarkLSTMCell(b *testing.B) {
	const d = 500
	r := newRand(1)
	c, h, gates := make([]float32, d), make([]float32, d), fill(r, make([]float32, 4*d))
	for b.Loop() {
		LSTMCell(c, h, gates)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/d, "ns/element")
}
