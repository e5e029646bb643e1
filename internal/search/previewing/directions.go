package previewing

import (
	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// Directions compute the products of vectors with some directions by integers: vectors of 15 bits,
// directions of 14. So they are the same on every CPU.
type Directions struct {
	width  int
	panels []byte // see [encode.Directions]
	steps  []float32
	square []float64
}

// NewDirections returns the directions of some rows.
func NewDirections(rows []float32, width int) *Directions {
	d := &Directions{width: width}
	d.panels, d.steps, d.square = encode.Directions(rows, width)
	return d
}

// Turner has the memory of a goroutine that computes products with directions.
type Turner struct {
	*Directions
	high, low []int8
	products  []float32
}

// Turner returns one.
func (d *Directions) Turner() Turner {
	n := (d.width + 3) &^ 3
	return Turner{d, make([]int8, n), make([]int8, n), make([]float32, 2*kernels.PanelsOf(len(d.steps))*kernels.PanelRows)}
}

// Turn writes the products of v with the directions. It returns the expected square of the error of
// an element of v by its rounding, whose steps the largest element decides.
func (t *Turner) Turn(dst []float64, v []float32) (lost float64) {
	step := kernels.Planes7(t.high, t.low, v)
	kernels.Scores7(t.products, t.panels, t.high, t.low, step)
	half := len(t.products) / 2
	for i := range dst {
		both := float64(t.products[i])*128 + float64(t.products[half+i])
		dst[i] = float64(both * float64(t.steps[i]))
	}
	return float64(float64(step)*float64(step)) / 12
}
