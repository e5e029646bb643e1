package encode

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// The codes of a step of a panel that belong to one row, of 7 and 2 bits.
const (
	stepCodes = kernels.StepBytes / kernels.PanelRows
	step2     = 4 * stepCodes
)

// PutCode7 sets number j, -64 to 63, of row r of panels for vectors of dim numbers.
func PutCode7(panels []byte, dim, r, j int, number int8) {
	panels[r/kernels.PanelRows*kernels.PanelRows*dim+j/stepCodes*kernels.StepBytes+r%kernels.PanelRows*stepCodes+j%stepCodes] = byte(int(number) + kernels.Bias7)
}

// PackCodes2 packs the codes of a row, which are below 4, a multiple of 16, to bytes in the order of
// the steps of a panel.
func PackCodes2(row, codes []byte) {
	for ; len(codes) > 0; row, codes = row[stepCodes:], codes[step2:] {
		for i := range stepCodes {
			row[i] = codes[i] | codes[stepCodes+i]<<2 | codes[2*stepCodes+i]<<4 | codes[3*stepCodes+i]<<6
		}
	}
}

// PackLine2 packs the 256 codes of a line.
func PackLine2(row, codes []byte) {
	for i := range kernels.StepBytes {
		row[i] = codes[i] | codes[kernels.StepBytes+i]<<2 | codes[2*kernels.StepBytes+i]<<4 | codes[3*kernels.StepBytes+i]<<6
	}
}

// PutPacked sets row r of panels to packed codes.
func PutPacked(panels []byte, r int, row []byte) {
	at := panels[r/kernels.PanelRows*kernels.PanelRows*len(row)+r%kernels.PanelRows*stepCodes:]
	for s := range len(row) / stepCodes {
		copy(at[s*kernels.StepBytes:][:stepCodes], row[s*stepCodes:])
	}
}

// Packed takes the packed codes of row r from panels.
func Packed(row, panels []byte, r int) {
	at := panels[r/kernels.PanelRows*kernels.PanelRows*len(row)+r%kernels.PanelRows*stepCodes:]
	for s := range len(row) / stepCodes {
		copy(row[s*stepCodes:][:stepCodes], at[s*kernels.StepBytes:])
	}
}

// Directions makes codes of 14 bits of rows: panels of their upper halves and then of the lower
// ones, of vectors whose width is rounded up to 4. It returns the step of each row's codes and the
// row's squared length too.
func Directions(rows []float32, width int) (panels []byte, steps []float32, squares []float64) {
	const most = 63 * 128
	n := len(rows) / width
	steps, squares = make([]float32, n), make([]float64, n)
	padded, half := (width+3)&^3, kernels.PanelsOf(n)*kernels.PanelRows
	panels = make([]byte, 2*half*padded)
	for r := range n {
		row := rows[r*width : (r+1)*width]
		largest := 0.0
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
			squares[r] += float64(float64(x) * float64(x))
		}
		steps[r] = float32(largest / most)
		for j := range padded {
			q := 0
			if j < width && largest > 0 {
				q = int(math.RoundToEven(float64(row[j]) * (most / largest)))
			}
			high, low := kernels.Halves7(q)
			PutCode7(panels, padded, r, j, high)
			PutCode7(panels, padded, half+r, j, low)
		}
	}
	return panels, steps, squares
}
