// Package linear has the little linear algebra in float64 that is done when something is made: no
// query waits for it. No product is fused with a sum, so results have the same bits on every CPU.
package linear

import "math"

// Dot is the product of two vectors, by four sums in a fixed order.
func Dot(x, y []float64) float64 {
	var s [4]float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s[0] += float64(x[i] * y[i])
		s[1] += float64(x[i+1] * y[i+1])
		s[2] += float64(x[i+2] * y[i+2])
		s[3] += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s[0] += float64(x[i] * y[i])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// dependent is the share of its squared length below which what is left of a vector is rounding.
const dependent = 0x1p-40

// Orthonormalise makes vectors x orthonormal in the inner product x_i.M x_j, by Gram-Schmidt, twice
// for the sake of roundings. images are M x, and remain so; nil stands for M = 1. A vector that depends
// on those before becomes zero. lengths are what the vectors had of their own.
func Orthonormalise(lengths []float64, x, images [][]float64) {
	of := images
	if images == nil {
		of = x
	}
	for k, v := range x {
		before := Dot(v, of[k])
		for range 2 {
			for i := range k {
				product := Dot(v, of[i])
				subtract(v, product, x[i])
				if images != nil {
					subtract(images[k], product, images[i])
				}
			}
		}
		square := Dot(v, of[k])
		if !(square > dependent*before) {
			clear(v)
			clear(of[k])
			lengths[k] = 0
			continue
		}
		lengths[k] = math.Sqrt(square)
		divide(v, lengths[k])
		if images != nil {
			divide(images[k], lengths[k])
		}
	}
}

func subtract(v []float64, factor float64, x []float64) {
	for j, y := range x {
		v[j] -= float64(factor * y)
	}
}

func divide(v []float64, by float64) {
	for j := range v {
		v[j] /= by
	}
}
