package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// blockElements are the types that BlockRows takes.
var blockTypes = []Element{Q8_0, Q4_0, Q5_0, Q4_1, Q5_1, Q4_K, Q5_K, Q6_K}

// blockCase is rows of blocks, contexts, and their reference logits.
type blockCase struct {
	m    *BlockRows
	rows Rows
	bias []float32
	hs   [][]float32
	vs   []*Int8Vector
}

// newBlockCase draws rows of any bytes, and contexts that have outliers.
func newBlockCase(r *rand.Rand, e Element, n, blocks, contexts int) *blockCase {
	elements, _ := BlockOf(e)
	d := elements * blocks
	c := &blockCase{rows: QuantisedRows(randomBlocks(r, e, n*blocks), e, d), bias: fill(r, make([]float32, n))}
	var err error
	if c.m, err = Blocks(c.rows, c.bias); err != nil {
		panic(err)
	}
	for range contexts {
		h := fill(r, make([]float32, d))
		for range r.IntN(4) {
			h[r.IntN(d)] *= float32(math.Exp(8 * r.Float64()))
		}
		if r.IntN(8) == 0 {
			clear(h)
		}
		scale := float32(math.Exp2(float64(r.IntN(45) - 30)))
		for i := range h {
			h[i] *= scale
		}
		v := NewInt8Vector(d)
		if v.Set(h) != Certified {
			panic("not certified")
		}
		c.hs, c.vs = append(c.hs, h), append(c.vs, v)
	}
	return c
}

func (c *blockCase) bounds(ids []uint32) (lower, upper []float32) {
	var x BlockContexts
	x.Set(c.m, c.vs...)
	n := c.rows.Len()
	if ids != nil {
		n = len(ids)
	}
	room := n
	if len(c.vs) > 1 {
		room *= BatchContexts
	}
	lower, upper = make([]float32, room), make([]float32, room)
	if ids == nil {
		c.m.Bounds(lower, upper, &x)
	} else {
		c.m.GatherBounds(lower, upper, ids, &x)
	}
	return lower[:n*len(c.vs)], upper[:n*len(c.vs)]
}

// Intervals of blocks hold the reference logits, are narrow, and have the same bits on each level,
// for one context and for several, for rows that follow each other and for rows of a list.
func TestBlockBoundsHoldTheLogits(t *testing.T) {
	for _, e := range blockTypes {
		t.Run(e.String(), func(t *testing.T) {
			r := newRand(uint64(e) + 1)
			for round := range 60 {
				n, contexts := 1+r.IntN(70), 1+round%BatchContexts
				c := newBlockCase(r, e, n, 1+r.IntN(7), contexts)
				ids := randomIDs(r, 1+r.IntN(2*n), n)
				restore := simd.Set(simd.Generic)
				lower, upper := c.bounds(nil)
				listedLower, listedUpper := c.bounds(ids)
				restore()
				for k, h := range c.hs {
					want := make([]float64, n)
					c.rows.RefScan(want, c.bias, h)
					length := math.Sqrt(RefDot(h, h))
					for i, x := range want {
						lo, up := lower[k*n+i], upper[k*n+i]
						if !(float64(lo) <= x && x <= float64(up)) {
							t.Fatalf("round %d, row %d, context %d: [%v, %v] does not hold %v", round, i, k, lo, up, x)
						}
						widest := 0.003*float64(c.m.meta[i].Norm)*length + 4e-6
						if float64(up)-float64(lo) > widest {
							t.Fatalf("round %d, row %d: interval of %v, expected at most %v", round, i, up-lo, widest)
						}
					}
					for j, id := range ids {
						if at := k*len(ids) + j; listedLower[at] != lower[k*n+int(id)] || listedUpper[at] != upper[k*n+int(id)] {
							t.Fatalf("round %d: row %d has another interval in a list", round, id)
						}
					}
				}
				simdtest.EachLevel(t, func(t *testing.T) {
					if l, u := c.bounds(nil); !slices.Equal(l, lower) || !slices.Equal(u, upper) {
						for i := range l {
							if l[i] != lower[i] || u[i] != upper[i] {
								t.Fatalf("round %d (%d x %d, %d contexts): interval %d is [%v, %v], in plain Go [%v, %v]", round, n, c.rows.Dim(), contexts, i, l[i], u[i], lower[i], upper[i])
							}
						}
					}
					if l, u := c.bounds(ids); !slices.Equal(l, listedLower) || !slices.Equal(u, listedUpper) {
						t.Fatalf("round %d: intervals of a list differ from those in plain Go", round)
					}
				})
			}
		})
	}
}

// The largest products do not overflow, and the largest and smallest contexts are held: rows of
// blocks whose bytes are all the same, and contexts whose elements are all the same except for
// signs, which agree with the signs of the weights or do not. The oracle is the sum without
// rounding.
func TestBlockBoundsAtTheLimits(t *testing.T) {
	for _, e := range blockTypes {
		elements, size := BlockOf(e)
		d := 3 * elements
		patterns := []byte{0x00, 0x7f, 0x80, 0x81, 0xff, 0x0f, 0xf0, 0x88}
		data := make([]byte, 0, len(patterns)*3*size)
		for _, p := range patterns {
			for range 3 {
				block := bytes.Repeat([]byte{p}, size)
				for _, o := range scaleOffsets[e] {
					binary.LittleEndian.PutUint16(block[o:], 0x3c01) // 1 + 2^-10
				}
				data = append(data, block...)
			}
		}
		n := len(patterns)
		c := &blockCase{rows: QuantisedRows(data, e, d), bias: make([]float32, n)}
		var err error
		if c.m, err = Blocks(c.rows, c.bias); err != nil {
			t.Fatal(err)
		}
		weights := make([]float32, n*d)
		for i := range n {
			c.rows.Widen(weights[i*d:][:d], i)
		}
		for _, largest := range []float32{0, 1, 3e5, MinCertified, MaxCertified} {
			c.hs, c.vs = nil, nil
			for k := range BatchContexts {
				h := make([]float32, d)
				for j := range h {
					h[j] = largest
					// The signs of a row's weights, all positive, every second, and all but one.
					if k == 0 && weights[2*d+j] < 0 || k == 2 && j%2 == 1 || k == 3 && j > 0 {
						h[j] = -largest
					}
				}
				v := NewInt8Vector(d)
				if v.Set(h) != Certified {
					t.Fatalf("%v: context of %v is not certified", e, largest)
				}
				c.hs, c.vs = append(c.hs, h), append(c.vs, v)
			}
			for contexts := 1; contexts <= BatchContexts; contexts++ {
				part := *c
				part.vs = c.vs[:contexts]
				restore := simd.Set(simd.Generic)
				lower, upper := part.bounds(nil)
				restore()
				for k, h := range c.hs[:contexts] {
					for i := range n {
						want := new(big.Float).SetPrec(2000)
						for j, x := range h {
							p := new(big.Float).SetPrec(2000).SetFloat64(float64(weights[i*d+j]))
							want.Add(want, p.Mul(p, big.NewFloat(float64(x))))
						}
						lo, up := float64(lower[k*n+i]), float64(upper[k*n+i])
						if want.Cmp(big.NewFloat(lo)) < 0 || want.Cmp(big.NewFloat(up)) > 0 {
							t.Fatalf("%v, bytes %#x, context %d of %v: [%v, %v] does not hold %v", e, patterns[i], k, largest, lo, up, want)
						}
						if widest := 0.003*float64(c.m.meta[i].Norm)*float64(largest)*math.Sqrt(float64(d)) + 4e-6; up-lo > widest {
							t.Fatalf("%v, bytes %#x, context %d of %v: interval of %v, expected at most %v", e, patterns[i], k, largest, up-lo, widest)
						}
					}
				}
				simdtest.EachLevel(t, func(t *testing.T) {
					if l, u := part.bounds(nil); !slices.Equal(l, lower) || !slices.Equal(u, upper) {
						t.Fatalf("%v, contexts of %v: other intervals than in plain Go", e, largest)
					}
				})
			}
		}
	}
}

// A plane can hold each H at each place.
func TestPlanesHoldTheirCodes(t *testing.T) {
	plane := make([]byte, Q8_0.pairBytes())
	var want [2 * groupSize]int32
	for h := int32(-maxBlockCode); h <= maxBlockCode; h++ {
		j := int(h+maxBlockCode) * 7 % len(want)
		setPlane(plane, j, h)
		want[j] = h
		for j, h := range want {
			if got := planeAt(plane, j); got != h {
				t.Fatalf("place %d: found %d, expected %d", j, got, h)
			}
		}
	}
}

// Blocks that are made of float rows have an error, which the intervals include, also for weights
// with outliers, and for weights that are all zero, very small or large.
func TestEncodedBlocksHoldTheLogits(t *testing.T) {
	r := newRand(12)
	for round := range 200 {
		n, d := 1+r.IntN(40), 1+r.IntN(200)
		rows := fill(r, make([]float32, n*d))
		for i := range n {
			row := rows[i*d : (i+1)*d]
			for range r.IntN(3) {
				row[r.IntN(d)] *= float32(math.Exp(5 * r.Float64()))
			}
			scale := float32(math.Exp2(float64(r.IntN(48) - 40)))
			if r.IntN(10) == 0 {
				scale = 0
			}
			for j := range row {
				row[j] *= scale
			}
		}
		c := &blockCase{rows: Float32Rows(rows, d), bias: fill(r, make([]float32, n))}
		var err error
		if c.m, err = NewBlockCopies(make([]byte, n*BlockBytes(d)), c.rows, c.bias); err != nil {
			t.Fatal(err)
		}
		for range 1 + round%BatchContexts {
			v, h := NewInt8Vector(d), fill(r, make([]float32, d))
			v.Set(h)
			c.hs, c.vs = append(c.hs, h), append(c.vs, v)
		}
		restore := simd.Set(simd.Generic)
		lower, upper := c.bounds(nil)
		restore()
		for k, h := range c.hs {
			want := make([]float64, n)
			c.rows.RefScan(want, c.bias, h)
			length := math.Sqrt(RefDot(h, h))
			for i, x := range want {
				lo, up := float64(lower[k*n+i]), float64(upper[k*n+i])
				if !(lo <= x && x <= up) {
					t.Fatalf("round %d, row %d, context %d: [%v, %v] does not hold %v", round, i, k, lo, up, x)
				}
				row := rows[i*d : (i+1)*d]
				if widest := 0.05*math.Sqrt(RefDot(row, row))*length + 4e-6; up-lo > widest && RefDot(row, row) > 1e-4 { // of smaller weights no float16 is a good scale
					t.Fatalf("round %d, row %d: interval of %v, expected at most %v", round, i, up-lo, widest)
				}
			}
		}
		simdtest.EachLevel(t, func(t *testing.T) {
			if l, u := c.bounds(nil); !slices.Equal(l, lower) || !slices.Equal(u, upper) {
				t.Fatalf("round %d: other intervals than in plain Go", round)
			}
		})
	}
}

// Parts have the intervals of their rows.
func TestPartsOfBlocks(t *testing.T) {
	r := newRand(6)
	c := newBlockCase(r, Q8_0, 40, 3, 1)
	lower, upper := c.bounds(nil)
	part := c.m.Part(7, 31)
	one := *c
	one.m, one.rows = &part, part.rows
	if l, u := one.bounds(nil); !slices.Equal(l, lower[7:31]) || !slices.Equal(u, upper[7:31]) {
		t.Error("a part has other intervals")
	}
	if part.rows.n != 24 {
		t.Errorf("found %d rows, expected 24", part.rows.n)
	}
}

// A row that float32 cannot certify is refused, whatever its block.
func TestBlockRowsRefuse(t *testing.T) {
	r := newRand(9)
	for e, offsets := range scaleOffsets {
		elements, size := BlockOf(e)
		for at := range 4 {
			for _, o := range offsets {
				data := randomBlocks(r, e, 4)
				data[at*size+o+1] = 0x7c // infinite, or NaN
				if m, err := Blocks(QuantisedRows(data, e, 2*elements), nil); err == nil {
					t.Errorf("%v: block %d: found %d rows, expected an error", e, at, m.rows.n)
				}
			}
		}
	}
	rows := QuantisedRows(randomBlocks(r, Q8_0, 2), Q8_0, 32)
	for _, b := range []float32{float32(math.NaN()), float32(math.Inf(1)), 0x1p41} {
		if _, err := Blocks(rows, []float32{0, b}); err == nil {
			t.Errorf("bias %v: expected an error", b)
		}
	}
}

// fma32 is a fused multiply-add of float32: the exact a b + c, rounded once.
func TestFma32RoundsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 100 {
			a := float32(r.NormFloat64())
			b := float32(r.IntN(1<<24) - 1<<23)
			c := float32(math.Ldexp(r.NormFloat64(), r.IntN(60)-20))
			if r.IntN(3) == 0 { // near a tie
				c = -math.Nextafter32(a*b, float32(math.Inf(r.IntN(2)*2-1)))
			}
			want, _ := exactFMA(a, b, c).Float32()
			if got := fma32(a, b, c); got != want {
				t.Fatalf("fma32(%v, %v, %v) = %v, expected %v", a, b, c, got, want)
			}
		}
	})
}

func BenchmarkBlockBounds(b *testing.B) {
	r := newRand(1)
	for _, e := range blockTypes {
		for _, contexts := range []int{1, 4} {
			const n, d = 16384, 768
			elements, _ := BlockOf(e)
			c := newBlockCase(r, e, n, d/elements, contexts)
			var x BlockContexts
			x.Set(c.m, c.vs...)
			lower, upper := make([]float32, n*contexts), make([]float32, n*contexts)
			b.Run(fmt.Sprintf("%v/%d", e, contexts), func(b *testing.B) {
				b.SetBytes(int64(n * c.rows.rowBytes()))
				for b.Loop() {
					c.m.Bounds(lower, upper, &x)
				}
			})
		}
	}
}

// exactFMA is a b + c without rounding.
func exactFMA(a, b, c float32) *big.Float {
	x := new(big.Float).SetPrec(2000)
	x.Mul(big.NewFloat(float64(a)).SetPrec(2000), big.NewFloat(float64(b)))
	return x.Add(x, big.NewFloat(float64(c)))
}
