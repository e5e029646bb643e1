package main

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// sourceNote explains SRC in the help of the verbs that take it.
const sourceNote = `SRC is file.npy, file.npz:name or file.safetensors:tensor, of float16, float32
or float64 (safetensors: F16, BF16, F32). --bias none means a layer without one.
A bias may have one row or one column, and a context may stand alone, as a vector.
--contexts - reads standard input: a .npy file, or text with a context a line, its
numbers separated by spaces, tabs or commas.
All is held in memory, at 4 bytes a number, but for contexts in l2s labels, train
and calibrate: float32 in C order stays on the disk there, and may be larger than
memory.`

// layerFlags are the flags that name a softmax layer.
type layerFlags struct{ weights, bias *string }

func (f *flags) layer() layerFlags {
	return layerFlags{
		weights: f.needs("weights", "softmax weights W, labels x dim, a `SRC`"),
		bias:    f.needs("bias", "softmax bias b, one number a label, a `SRC`"),
	}
}

func (f *flags) contexts() *string {
	return f.needs("contexts", "context vectors H, one a row, a `SRC`")
}

// layer is a softmax layer and the name of its weights.
type layer struct {
	*softmax.Layer
	name string
}

// contexts are context vectors in a file that is open.
type contexts struct {
	name   string
	rows   []float32 // n x dim; nil where they are read in blocks
	n, dim int
	tensor *tensorfile.Tensor // nil for text, whose rows are read
}

func (c *contexts) close() {
	if c.tensor != nil {
		c.tensor.Close()
	}
}

// read copies the rows from first on, as many as dst holds.
func (c *contexts) read(dst []float32, first int) error {
	if c.rows != nil {
		copy(dst, c.rows[first*c.dim:])
		return nil
	}
	_, err := c.tensor.ReadRows(dst, first)
	return err
}

// openContexts reads the contexts src, which are for the layer l.
func openContexts(ctx context.Context, src string, l *layer) (*contexts, error) {
	c, err := openContextBlocks(ctx, src, l)
	if err != nil || c.rows != nil {
		return c, err
	}
	if c.rows, err = c.tensor.Float32s(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// openMappedContexts opens the contexts src, as many as the disk holds, for
// package train, which answers a fault of mapped memory with an error.
func openMappedContexts(ctx context.Context, src string, l *layer) (*contexts, error) {
	c, err := openContextBlocks(ctx, src, l)
	if err != nil || c.rows != nil {
		return c, err
	}
	if c.rows, err = c.tensor.Mapped(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// openContextBlocks opens the contexts src to be read in blocks. Text on standard
// input is read at once.
func openContextBlocks(ctx context.Context, src string, l *layer) (*contexts, error) {
	if src == stdinSource {
		return readStdin(ctx, l)
	}
	t, err := layerfile.OpenContexts(src, l.Layer, l.name)
	if err != nil {
		return nil, err
	}
	return &contexts{src, nil, t.Rows(), t.Cols(), t}, nil
}

// loadScreenFor reads a screen that is for the layer l.
func loadScreenFor(ctx context.Context, path string, l *layer) (*screen.Model, error) {
	m, err := loading(ctx, screen.Load, path)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Dim() != l.Dim():
		return nil, fmt.Errorf("%s: dim: found %d, expected %d, that of %s", path, m.Dim(), l.Dim(), l.name)
	case m.Labels() != l.Labels():
		return nil, fmt.Errorf("%s: labels: found %d, expected %d, the rows of %s", path, m.Labels(), l.Labels(), l.name)
	}
	if made := m.Fingerprint(); made != [32]byte{} && made != l.Fingerprint() {
		return nil, fmt.Errorf("%s: fingerprint: found %x..., expected %x..., that of %s and its bias: the screen was made for another layer",
			path, made[:8], first(l.Fingerprint(), 8), l.name)
	}
	return m, nil
}

// inputs are what a verb works on: a layer, screens of it, and contexts for it in
// a file that is open.
type inputs struct {
	layer    *layer
	screens  []*screen.Model
	contexts *contexts
}

// openInputs opens the layer, the screens in paths and the contexts src, which
// open opens; answers are to have k labels.
func openInputs(ctx context.Context, lf layerFlags, paths []string, src string, k int, open func(context.Context, string, *layer) (*contexts, error)) (*inputs, error) {
	opened, err := layerfile.Open(*lf.weights, *lf.bias)
	if err != nil {
		return nil, err
	}
	l := &layer{opened, *lf.weights}
	if k > l.Labels() {
		return nil, fmt.Errorf("%s: labels: found %d, expected at least k = %d", l.name, l.Labels(), k)
	}
	in := &inputs{layer: l}
	for _, path := range paths {
		m, err := loadScreenFor(ctx, path, l)
		if err != nil {
			return nil, err
		}
		in.screens = append(in.screens, m)
	}
	if in.contexts, err = open(ctx, src, l); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *inputs) close() { in.contexts.close() }

func first(b [32]byte, n int) []byte { return b[:n] }
