package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// sourceNote explains SRC in the help of the verbs that take it.
const sourceNote = `SRC is file.npy, file.npz:name or file.safetensors:tensor, of float16, float32
or float64 (safetensors: F16, BF16, F32). --bias none means a layer without one.
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
	tensor *tensorfile.Tensor
}

func (c *contexts) close() { c.tensor.Close() }

// row returns context i.
func (c *contexts) row(i int) []float32 { return c.rows[i*c.dim : (i+1)*c.dim] }

// openContexts reads the contexts src, which are for the layer l.
func openContexts(src string, l *layer) (*contexts, error) {
	c, err := openContextBlocks(src, l)
	if err != nil {
		return nil, err
	}
	if c.rows, err = c.tensor.Float32s(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// openMappedContexts opens the contexts src, as many as the disk holds, for
// package train, which answers a fault of mapped memory with an error.
func openMappedContexts(src string, l *layer) (*contexts, error) {
	c, err := openContextBlocks(src, l)
	if err != nil {
		return nil, err
	}
	if c.rows, err = c.tensor.Mapped(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// openContextBlocks opens the contexts src to be read in blocks.
func openContextBlocks(src string, l *layer) (_ *contexts, err error) {
	t, err := tensorfile.OpenMatrix(src)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if err := t.ExpectShape(-1, l.Dim()); err != nil {
		return nil, fmt.Errorf("%w, the columns of %s", err, l.name)
	}
	return &contexts{src, nil, t.Rows(), t.Cols(), t}, nil
}

// loadScreenFor reads a screen that is for the layer l.
func loadScreenFor(path string, l *layer) (*screen.Model, error) {
	m, err := screen.Load(path)
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
func openInputs(lf layerFlags, paths []string, src string, k int, open func(string, *layer) (*contexts, error)) (*inputs, error) {
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
		m, err := loadScreenFor(path, l)
		if err != nil {
			return nil, err
		}
		in.screens = append(in.screens, m)
	}
	if in.contexts, err = open(src, l); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *inputs) close() { in.contexts.close() }

func first(b [32]byte, n int) []byte { return b[:n] }

// checkOutput returns an error where the output would replace an input.
// Inputs may name a tensor of a file.
func checkOutput(f *flags, out string, inputs ...string) error {
	return checkReplaces(f, "--out", out, inputs...)
}

// checkReplaces is checkOutput for an output that another flag names.
func checkReplaces(f *flags, flag, out string, inputs ...string) error {
	o, err := os.Stat(out)
	if err != nil {
		return nil // it is new, or the attempt to write it will tell
	}
	for _, in := range inputs {
		path := in
		i, err := os.Stat(path)
		if at := strings.LastIndexByte(in, ':'); err != nil && at > 0 {
			path = in[:at]
			i, err = os.Stat(path)
		}
		if err == nil && os.SameFile(o, i) {
			return f.wrongUse("%s %s would replace the input %s: give another name", flag, out, in)
		}
	}
	return nil
}
