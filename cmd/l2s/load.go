package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

const srcHelp = "`SRC`: file.npy, file.npz:name or file.safetensors:tensor"

// inputs are the flags that name a layer and contexts for it.
type inputs struct {
	weights, bias, contexts string
	open                    []*tensorfile.Tensor
}

func (in *inputs) register(e *env) {
	e.flags.StringVar(&in.weights, "weights", "", "softmax weights W, labels x dim: "+srcHelp)
	e.flags.StringVar(&in.bias, "bias", "", "softmax bias b, one number a label: "+srcHelp)
	e.flags.StringVar(&in.contexts, "contexts", "", "context vectors H, n x dim: "+srcHelp)
}

// close releases the files: the layer and the contexts may alias them.
func (in *inputs) close() {
	for _, t := range in.open {
		t.Close()
	}
}

func (in *inputs) tensor(src string) (*tensorfile.Tensor, error) {
	t, err := tensorfile.Open(src)
	if err == nil {
		in.open = append(in.open, t)
	}
	return t, err
}

// load reads the layer and the contexts.
func (in *inputs) load(e *env) (layer *softmax.Layer, contexts []float32, err error) {
	if err := e.need("weights", "bias", "contexts"); err != nil {
		return nil, nil, err
	}
	wt, err := in.tensor(in.weights)
	if err != nil {
		return nil, nil, err
	}
	labels, dim, err := wt.Matrix()
	if err != nil {
		return nil, nil, err
	}
	bt, err := in.tensor(in.bias)
	if err != nil {
		return nil, nil, err
	}
	n, err := bt.Vector()
	if err != nil {
		return nil, nil, err
	}
	if n != labels {
		return nil, nil, fmt.Errorf("%s: length: found %d, expected %d, the rows of %s", bt.Name(), n, labels, wt.Name())
	}
	ht, err := in.tensor(in.contexts)
	if err != nil {
		return nil, nil, err
	}
	rows, cols, err := ht.Matrix()
	if err != nil {
		return nil, nil, err
	}
	if cols != dim {
		return nil, nil, fmt.Errorf("%s: columns: found %d, expected %d, those of %s", ht.Name(), cols, dim, wt.Name())
	}
	if rows == 0 {
		return nil, nil, fmt.Errorf("%s: rows: found none, expected at least one context", ht.Name())
	}
	w, err := wt.Float32s()
	if err != nil {
		return nil, nil, err
	}
	b, err := bt.Float32s()
	if err != nil {
		return nil, nil, err
	}
	if layer, err = softmax.NewLayer(w, b, dim); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", wt.Name(), err)
	}
	contexts, err = ht.Float32s()
	return layer, contexts, err
}

// loadModel reads a screen file and checks that it belongs to the layer.
func loadModel(path string, layer *softmax.Layer) (*screen.Model, error) {
	m, err := screen.Load(path)
	if err != nil {
		return nil, err
	}
	if layer != nil {
		if _, err := screen.NewSearcher(m, layer); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return m, nil
}

// checkK returns an error unless 1 <= k <= labels.
func checkK(k, labels int) error {
	if k < 1 || k > labels {
		return fmt.Errorf("--k: found %d, expected 1 to %d, the number of labels", k, labels)
	}
	return nil
}

// intList parses numbers separated by commas.
func intList(flag, s string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, usagef("--%s: found %q, expected whole numbers separated by commas", flag, s)
		}
		list = append(list, n)
	}
	return list, nil
}

// writeJSON prints v as one indented JSON object.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printer returns where progress is shown, nil for nowhere.
func (e *env) printer(quiet bool) *progress.Printer {
	if quiet {
		return nil
	}
	return progress.New(e.stderr)
}
