package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/fault"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// sourceNote says, in the help of the verbs that take them, where SRC and MODEL are
// explained.
const sourceNote = "l2s help sources explains SRC, MODEL and --contexts."

// sourceHelp explains SRC, MODEL and --contexts.
const sourceHelp = `Where the verbs find a layer and its contexts.

SRC is an array in a file: file.npy, file.npz:name or file.safetensors:tensor,
of float16, float32 or float64 (safetensors: F16, BF16, F32, F64). --bias none
means a layer without a bias. A bias may have one row or one column, and a
context may stand alone, as a vector.

MODEL is the folder of a language model as Hugging Face lays it out,
FOLDER:tensor, a GGUF file, or a SRC. --head MODEL stands instead of --weights
and --bias: the bias is looked for beside the weights, rows that no token has
are left out, and standard error says what was taken. The weights stay in the
file, 2 bytes for each of float16 and bfloat16, or quantised: do not change the
file meanwhile. --weights copies them.

--contexts may be given several times, with * and ? in the names of files, as
in 'states/*.safetensors:hidden_states': all are read, one after the other, by
name. They must be the states that the layer is applied to, after the model's
last normalisation. --contexts - reads standard input: a .npy file, or text
with a context a line, its numbers separated by spaces, tabs or commas.
Contexts may be larger than memory. One file of float32 in C order is read in
place. Of others, l2s labels and l2s topk read a block at a time, and the other
verbs convert them to float32: beyond a GiB in a temporary file, in the folder
that TMPDIR names.

Example:
  l2s eval m.l2s --head models/llama --contexts 'states/*.npy'
`

// inputFlags are the flags that name a softmax layer and contexts for it.
type inputFlags struct {
	f                        *flags
	head, weights, bias, ids *string
	contexts                 *[]string
}

func (f *flags) layerAndContexts() *inputFlags {
	f.required = append(f.required, "weights", "bias", "contexts")
	f.inputs = &inputFlags{
		f:        f,
		weights:  f.text("weights", "softmax weights W, labels x dim, a `SRC` (required without --head)"),
		bias:     f.text("bias", "softmax bias b, one number a label, a `SRC` (required without --head)"),
		head:     f.text("head", "head of a language model, a `MODEL`, instead of --weights and --bias"),
		ids:      f.text("ids", "make a draft head of the labels in a list, a `SRC` of integers"),
		contexts: f.severalSources("contexts", "context vectors H, one a row: a `SRC`, text, or - (required)"),
	}
	return f.inputs
}

// files are the sources, of which some may be empty.
func (in *inputFlags) files() []string {
	return append([]string{*in.head, *in.weights, *in.bias, *in.ids}, *in.contexts...)
}

// severalSources is a flag that names contexts, and may be given several times.
func (f *flags) severalSources(name, usage string) *[]string {
	var all []string
	return custom(f, name, nil, "", usage, func(s string) ([]string, error) {
		all = append(all, s)
		return all, nil
	})
}

// expandContexts puts the names of files instead of the patterns in --contexts.
func (in *inputFlags) expandContexts() error {
	all, err := expand(*in.contexts)
	if err != nil {
		return err
	}
	if len(all) > 1 && slices.Contains(all, stdinSource) {
		return in.f.wrongUse("--contexts - excludes other contexts: give standard input alone, or files")
	}
	*in.contexts = all
	return nil
}

// expand returns the names of files instead of the patterns among sources.
func expand(sources []string) (all []string, err error) {
	for _, src := range sources {
		more, err := layerfile.Expand(src)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// layer is a softmax layer and the name of its weights.
type layer struct {
	*softmax.Layer
	name string
	head *head.Head // where it was read from; nil for a layer that was made
}

// ids returns the labels of the full vocabulary that the layer's own stand for, nil
// if they are the same.
func (l *layer) ids() []uint32 {
	if l.head == nil {
		return nil
	}
	return l.head.IDs()
}

// vocabulary is the number of labels that answers are among.
func (l *layer) vocabulary() int {
	if l.head == nil {
		return l.Labels()
	}
	return l.head.Vocabulary()
}

// scale returns what the model multiplies a logit by, and its soft cap, 0 for none.
func (l *layer) scale() (scale, softCap float64) {
	if l.head == nil {
		return 1, 0
	}
	return l.head.LogitScale(), l.head.SoftCap()
}

// temperature returns the temperature at which w.h + b have the model's probabilities:
// the model's softmax is of w.h + b times the scale. A soft cap is another matter.
func (l *layer) temperature() float64 {
	scale, _ := l.scale()
	return 1 / scale
}

// openLayer opens the layer. A model is used where it lies, and the verb says what was
// taken.
func (in *inputFlags) openLayer() (*layer, error) {
	source, opt := *in.weights, head.Options{Bias: *in.bias, Copy: true}
	if *in.head != "" {
		source, opt.Copy = *in.head, false
	}
	if *in.ids != "" {
		var err error
		if opt.IDs, err = head.ReadIDs(*in.ids); err != nil {
			return nil, err
		}
	}
	l, h, err := layerfile.Open(source, opt)
	if err != nil {
		return nil, err
	}
	if *in.head != "" && !*in.f.quiet {
		in.f.say(source, "%v", h)
	}
	return &layer{l, source, h}, nil
}

// How standard input is given as a source of contexts, and named in errors.
const (
	stdinSource = "-"
	stdinName   = "standard input"
)

// openContexts opens contexts, before the layer is known that they are for.
func openContexts(ctx context.Context, sources []string) (*layerfile.Contexts, error) {
	if sources[0] == stdinSource {
		return layerfile.OpenStream(newInput(ctx, os.Stdin), stdinName), nil
	}
	return layerfile.OpenContexts(sources)
}

// own returns an error unless what is in the file at path belongs to a layer of the shape
// and the fingerprint of l.
func (l *layer) own(path, what string, dim, labels int, made [32]byte) error {
	switch {
	case dim != l.Dim():
		return fmt.Errorf("%s: dim: found %d, expected %d, the dim of %s: %s another layer", path, dim, l.Dim(), l.name, what)
	case labels != l.Labels():
		return fmt.Errorf("%s: labels: found %d, expected %d, the rows of %s: %s another layer", path, labels, l.Labels(), l.name, what)
	}
	if own := l.Fingerprint(); made != own {
		return fmt.Errorf("%s: fingerprint: found %x..., expected %x..., the fingerprint of %s and its bias: %s another layer",
			path, made[:8], own[:8], l.name, what)
	}
	return nil
}

// noteK says that a screen was trained for another number of labels than an answer is
// to have.
func noteK(f *flags, path string, m *screen.Model, k int) {
	var r train.Record
	if err := json.Unmarshal(m.Record(), &r); err != nil || r.Contexts == 0 || r.Options.K == k {
		return
	}
	trained, what := r.Options.K, "one trained for %d finds more of them"
	if k < trained {
		what = "one trained for %d needs fewer candidates"
	}
	f.note(path, "the screen was trained for the %d best labels and is asked for %d: "+what, trained, k, k)
}

// noteTraining says if these very contexts are those that a screen was trained on, and reports
// whether they are.
func noteTraining(ctx context.Context, f *flags, path string, in *inputs, threads int) (bool, error) {
	var r train.Record
	if json.Unmarshal(in.screen.Record(), &r) != nil {
		return false, nil // of another maker
	}
	trained, err := r.TrainedOn(ctx, in.rows, in.layer.Dim(), threads)
	if trained {
		f.note(path, "the screen was trained on these contexts: on others its figures are lower")
	}
	return trained, err
}

// needsTail returns an error unless a screen has a tail, which a flag asks for.
func needsTail(path string, m *screen.Model, flag string) error {
	if m.Tail() != nil {
		return nil
	}
	return fmt.Errorf("%s: found a screen without a tail, expected one for %s: l2s train makes it unless the options say {\"tail\": null}", path, flag)
}

// inputs are what a verb works on: a layer, a screen of it, and contexts for it in
// files that are open.
type inputs struct {
	layer    *layer
	screen   *screen.Model // nil where the verb takes none
	contexts *layerfile.Contexts
	rows     []float32 // all contexts, if the verb takes allRows
	faults   bool      // what debug.SetPanicOnFault was
}

// How a verb takes its contexts.
type contextsAs int

const (
	allRows  contextsAs = iota
	inBlocks            // as many as there are, by Read
	oneByOne            // by Next, of text as soon as it is there
)

// open opens the layer, the screen at path, unless that is empty, and the contexts; answers are
// to have k labels. What is cheap to open
// comes before the layer. Who opens them defers the call of close.
func (flags *inputFlags) open(ctx context.Context, path string, k int, as contextsAs) (_ *inputs, err error) {
	in, whole := &inputs{faults: debug.SetPanicOnFault(true)}, false
	defer func() {
		if !whole {
			in.closed(recover(), &err)
		}
	}()
	if path != "" {
		if in.screen, err = loading(ctx, screen.Load, path); err != nil {
			return nil, err
		}
	}
	if in.contexts, err = openContexts(ctx, *flags.contexts); err != nil {
		return nil, err
	}
	if in.layer, err = flags.openLayer(); err != nil {
		return nil, err
	}
	l := in.layer
	if k > l.Labels() {
		return nil, fmt.Errorf("%s: labels: found %d, expected at least k = %d", l.name, l.Labels(), k)
	}
	if m := in.screen; m != nil {
		made := m.Fingerprint()
		if made == [32]byte{} { // it goes with any layer of its shape
			made = l.Fingerprint()
		}
		if err := l.own(path, "the screen is for", m.Dim(), m.Labels(), made); err != nil {
			return nil, err
		}
	}
	err = in.contexts.Fit(ctx, l.Layer, l.name)
	switch {
	case err != nil:
	case as == allRows:
		in.rows, err = in.contexts.All(ctx)
	case as == inBlocks:
		err = in.contexts.Whole(ctx)
	}
	if err != nil {
		return nil, err
	}
	whole = true
	return in, nil
}

// close is deferred by a verb with its error: it closes the files. If a mapped one
// was cut off meanwhile, it makes that the error, whether it is one already, since
// another goroutine met it, or a panic of the verb's own.
func (in *inputs) close(err *error) { in.closed(recover(), err) }

func (in *inputs) closed(recovered any, err *error) {
	debug.SetPanicOnFault(in.faults)
	if recovered != nil && !fault.Is(recovered) {
		panic(recovered)
	}
	if recovered != nil {
		*err = parallel.ErrGone
	}
	if in.layer != nil && errors.Is(*err, parallel.ErrGone) {
		if gone := in.layer.head.Check(); gone != nil {
			*err = gone
		} else {
			*err = fmt.Errorf("%s: %w", in.contexts.Name(), parallel.ErrGone)
		}
	}
	if in.contexts != nil {
		in.contexts.Close()
	}
	if in.layer != nil {
		in.layer.head.Close()
	}
}
