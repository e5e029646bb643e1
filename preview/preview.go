package preview

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/preview/internal/making"
)

// LeastLabels is the number of labels from which on a preview pays: of fewer the exact search takes
// little time.
const LeastLabels = 16384

// ErrTarget is the error of Make, by errors.Is, for a layer and states with which the step of
// requests that name no budget misses more than ten times the allowed number of labels, or, of a
// layer of LeastLabels or more, leaves more than half of the contexts to the exact layer: in flat
// distributions any label may be among the best. It is train.ErrTarget too.
var ErrTarget error = precision.ErrTarget

// Options are the options of Make. The zero value has the defaults.
type Options struct {
	// Coordinates is R, at most the dimension, which biases make one larger: 0 for 640, or for 896 above
	// dimension 1,024. A label has up to 592 codes of 2 bits, from 720 coordinates on 848, up to four of one
	// coordinate, besides 80 of the centre of its panel.
	Coordinates int
	// K is the k of the second precision: 0 for 5.
	K int
	// HeldOut are states, row-major, that the steps are measured on, in the order of their text.
	// None: every fourth of 16 runs of the states, of which the model is then not made. Of these 2,048
	// count at most, and of the others 8,192, from all parts of the states.
	HeldOut []float32
	// Precision1 and PrecisionK are the least precision of the step for requests that name no
	// budget: 0 for 0.9995 and 0.998. If no step has it, requests use the step that scores most
	// labels; l2s.Index.Steps returns its precision. If that one misses ten times the number, Make returns
	// [ErrTarget].
	Precision1, PrecisionK float64
	// LeastOwn is the found share of own states (l2s.Step.Own) below which Make returns [ErrTarget]: 0
	// for .9. The step for requests that name no budget has .9999, if any step has: otherwise the
	// one that finds most, and l2s.Index.Steps returns its share.
	LeastOwn float64
	// Threads is the number of threads, 0 for all CPUs. The model does not depend on it.
	Threads int
	// Body, unless it is zeros, is the fingerprint of what computed the states, such as the rest of
	// the network: the model keeps it, and its figures are of such states.
	Body [32]byte
	// Progress, unless nil, gets the stage and its finished share, 0 to 1.
	Progress func(stage string, done float64)
}

// Make makes a preview of a layer from contexts of the text to come: states, n x l.Dim(), such as
// l2s.Float32(x, l.Dim()); others are widened to float32 first. Some 4,000 are enough for one
// language, and another 4,000 for each further one, in the order of their texts: parts that follow each
// other stand for texts of one kind. It takes 40 seconds on two cores for
// 262,144 labels, and the same input gives the same preview on every CPU. A layer of fewer than
// [LeastLabels] labels gets a preview too, with which it is hardly faster.
//
// It returns an error if the states are fewer than 64 besides the held-out ones, or no finite rows
// of the layer's dimension, [ErrTarget] if too many labels are missed, and one that wraps ctx.Err()
// if ctx is done before.
func Make(ctx context.Context, l *l2s.Layer, states l2s.Matrix, opt Options) (x *l2s.Index, err error) {
	err = (*engine.Layer)(l).Work(func() error {
		rows, err := engine.Matrix(states).Rows()
		if err != nil {
			return err
		}
		if rows.Len() > 0 && rows.Dim() != l.Dim() {
			return fmt.Errorf("preview: states: found rows of %d values, expected %d, the dimension of the layer", rows.Dim(), l.Dim())
		}
		m, err := making.Make(ctx, (*engine.Layer)(l).Exact(), wide(rows), making.Options(opt))
		if err == nil {
			x = (*l2s.Index)(engine.OfPreview(m))
		}
		return err
	})
	return x, err
}

// wide returns rows as float32, row-major.
func wide(rows kernels.Rows) []float32 {
	if x, ok := kernels.AsFloat32(rows); ok {
		return x
	}
	x := make([]float32, rows.Len()*rows.Dim())
	for i := range rows.Len() {
		rows.Widen(x[i*rows.Dim():(i+1)*rows.Dim()], i)
	}
	return x
}
