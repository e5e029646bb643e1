package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/command/layerfile"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train"
)

// inputFlags are the flags that name a softmax layer and contexts for it: SRC, MODEL and
// --contexts, as help/sources.txt explains them.
type inputFlags struct {
	head, weights, bias, ids *string
	contexts                 *[]string
	rows                     bool // the verb takes all contexts at once
	k                        func() int
}

// layerAndContexts adds the flags of a verb whose answers have k labels, and that takes all
// contexts at once or not.
func (f *flags) layerAndContexts(rows bool, k func() int) {
	f.required = append([]string{"weights", "bias", "contexts"}, f.required...)
	f.inputs = &inputFlags{
		head:     f.text("head"),
		weights:  f.text("weights"),
		bias:     f.text("bias"),
		ids:      f.text("ids"),
		contexts: f.severalSources("contexts"),
		rows:     rows,
		k:        k,
	}
}

// severalSources is a flag that names contexts, and may be given several times.
func (f *flags) severalSources(name string) *[]string {
	var all []string
	f.set.Func(name, "", func(s string) error {
		if s == "" {
			return errors.New("expected a name")
		}
		all = append(all, s)
		return nil
	})
	return &all
}

// checkOutputs returns an error if one of the outputs would replace an input in the arguments or in
// more, or another output.
func checkOutputs(ctx context.Context, f *flags, outputs []cmdline.Output, more ...string) error {
	inputs := slices.Concat(f.files, more)
	if in := f.inputs; in != nil {
		inputs = slices.Concat([]string{*in.head, *in.weights, *in.bias, *in.ids}, *in.contexts, inputs)
	}
	wrong, err := cmdline.CheckOutputs(ctx, outputs, inputs)
	if wrong != "" {
		return f.wrongUse("%s", wrong)
	}
	return err
}

// expandContexts puts the names of files instead of the patterns in --contexts.
func (f *flags) expandContexts() error {
	all, err := layerfile.Expand(*f.inputs.contexts)
	if err != nil {
		return err
	}
	*f.inputs.contexts = all
	return nil
}

// layer is a softmax layer, the name of its weights, and the head that it was read from, which
// is empty for a layer that was made.
type layer struct {
	*l2s.Layer
	name string
	head *heads.Head
}

// exact is the layer itself.
func (l *layer) exact() *exact.Layer { return (*engine.Layer)(l.Layer).Exact() }

// permits reports whether a request lets a label be answered.
func permits(r *l2s.Request, id uint32) bool {
	return (r.Allowed == nil || r.Allowed.Has(id)) && (r.Banned == nil || !r.Banned.Has(id))
}

// rawTemperature returns the temperature at which w.h + b have the model's probabilities, but for a
// soft cap.
func (l *layer) rawTemperature() float64 { return l.exact().RawTemperature(1) }

// openLayer opens the layer. A model is used in place, and the verb names the parts that it uses.
func (f *flags) openLayer() (_ *layer, err error) {
	in := f.inputs
	source, opt := *in.weights, l2s.OpenOptions{Bias: *in.bias, Copy: true}
	if *in.head != "" {
		source, opt.Copy = *in.head, false
	}
	if *in.ids != "" {
		if opt.IDs, err = heads.ReadIDs(*in.ids); err != nil {
			return nil, err
		}
	}
	l, err := l2s.Open(source, opt)
	if err != nil {
		return nil, err
	}
	if *in.head != "" && !*f.quiet {
		f.say(source, "%v", l)
		for _, note := range l.Info().Notes {
			f.note(source, "%s", note)
		}
	}
	return &layer{l, source, (*engine.Layer)(l).Head()}, nil
}

// own returns an error unless the content of the file at path belongs to a layer of the shape and
// the fingerprint of l.
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

// noteK notes that a screen was trained for fewer labels than an answer has.
func (f *flags) noteK(in *inputs, k int) {
	if trained := in.record.Options.K; in.record.Contexts > 0 && trained < k {
		f.note(in.path, "the screen was trained for the %d best labels and is asked for %d: one trained for %d finds more of them", trained, k, k)
	}
}

// noteTraining reports whether a screen was trained on exactly these contexts, with a note to the
// user if so.
func (f *flags) noteTraining(ctx context.Context, in *inputs, threads int) (bool, error) {
	trained, err := labelfile.SameContexts(ctx, in.rows, in.layer.Dim(), in.record.Contexts, in.record.ContextsDigest, threads)
	if trained {
		f.note(in.path, "the screen was trained on these contexts: on others its figures are lower")
	}
	return trained, err
}

// needsTail returns an error unless a screen has a tail, which a flag asks for.
func (in *inputs) needsTail(flag string) error {
	if in.index.HasTail() {
		return nil
	}
	return fmt.Errorf("%s: found a screen without a tail, expected one for %s: l2s train makes it unless the options have {\"tail\": null}", in.path, flag)
}

// inputs are the inputs of a verb: a screen, a layer, and contexts for it in files that are open.
type inputs struct {
	path     string            // of the index
	index    *l2s.Index        // nil where the verb takes none, as the layer and the contexts
	screen   *screening.Model  // that the index is, or nil
	preview  *previewing.Model // that it is, or nil
	record   train.Record      // of the screen, empty if it has another maker
	layer    *layer
	contexts *layerfile.Contexts
	rows     []float32 // all contexts, if the verb takes them so
}

// act opens the inputs that the arguments name, does the work, and closes them. If a mapped file
// was cut off meanwhile, act returns that error, whichever goroutine met it.
func (f *flags) act(ctx context.Context, act action) (result fmt.Stringer, err error) {
	in := &inputs{}
	err = mem.Guard(func() (err error) {
		if err = f.open(ctx, in); err == nil {
			result, err = act(ctx, in)
		}
		return err
	}, func() error { return parallel.ErrGone })
	if in.layer != nil && errors.Is(err, parallel.ErrGone) {
		err = cmp.Or(in.layer.head.Check(), fmt.Errorf("%s: %w", in.contexts.Name(), parallel.ErrGone))
	}
	if in.contexts != nil {
		in.contexts.Close()
	}
	if in.layer != nil {
		in.layer.head.Close()
	}
	return result, err
}

// open opens the screen, the contexts and the layer: inputs that open quickly come before the
// layer.
func (f *flags) open(ctx context.Context, in *inputs) (err error) {
	if f.screen && len(f.files) > 0 {
		in.path = f.files[0]
		if in.index, err = loading(ctx, l2s.Load, in.path); err != nil {
			if f.inputs == nil && !isPreview(in.path) {
				return explained(in.path, err)
			}
			return err
		}
		in.screen, in.preview = (*engine.Index)(in.index).Screen(), (*engine.Index)(in.index).Preview()
		if in.preview != nil && !f.previews {
			return fmt.Errorf("%s: found a preview, expected a screen: l2s topk, eval, bench and inspect take previews, and l2s-llama --fast one beside the model: MODEL.gguf.l2p", in.path)
		}
		if json.Unmarshal(in.index.Record(), &in.record) != nil {
			in.record = train.Record{}
		}
	}
	if f.inputs == nil {
		return nil
	}
	if in.contexts, err = f.openContexts(ctx); err != nil {
		return err
	}
	if in.layer, err = f.openLayer(); err != nil {
		return err
	}
	l := in.layer
	if k := f.inputs.k(); k > l.Labels() {
		return fmt.Errorf("%s: labels: found %d, expected at least k = %d", l.name, l.Labels(), k)
	}
	if x := in.index; x != nil {
		made := x.Fingerprint()
		if in.screen != nil && made == [32]byte{} { // it fits any layer of its shape
			made = l.Fingerprint()
		}
		if in.preview != nil && made == previewing.FingerprintOf(l.exact()) { // the layer's, with its scale and its cap
			made = l.Fingerprint()
		}
		if err := l.own(in.path, "the "+x.Kind()+" is for", x.Dim(), x.Labels(), made); err != nil {
			return err
		}
	}
	if err = in.contexts.Fit(l.Layer, l.name); err == nil && f.inputs.rows {
		in.rows, err = in.contexts.All(ctx)
	}
	return err
}

// standardInput is the name of the contexts on standard input.
const standardInput = "-"

// openContexts opens the contexts. Standard input, a .npy file, goes to a temporary file first: its
// number of contexts is known then, and it may be read twice.
func (f *flags) openContexts(ctx context.Context) (*layerfile.Contexts, error) {
	sources := slices.Clone(*f.inputs.contexts)
	for i, source := range sources {
		if source != standardInput {
			continue
		}
		if slices.Contains(sources[i+1:], standardInput) {
			return nil, f.wrongUse("--contexts %s: found it twice, expected it once", standardInput)
		}
		folder, err := os.MkdirTemp("", "l2s-contexts-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder) // an open file stays without its name
		sources[i] = filepath.Join(folder, "standard-input.npy")
		if err := copyTo(ctx, sources[i], os.Stdin); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	return layerfile.OpenContexts(sources)
}

// copyTo copies a file that may be a pipe to a new file.
func copyTo(ctx context.Context, path string, from *os.File) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	r := reading(ctx, from)
	defer r.Close()
	_, err = io.Copy(file, r)
	return cmp.Or(err, file.Close())
}

// loading returns the results of load, or the error of ctx as soon as ctx ends. It is for files
// that may be pipes, on which load waits until the other end writes. After the end of ctx nobody
// uses the results of load: load must write nothing.
func loading[T any](ctx context.Context, load func(path string) (T, error), path string) (none T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := load(path)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// reading reads a file that may be a pipe: when ctx ends, a read that waits returns the error of
// ctx. The file is read in the background, since a read of a pipe cannot be ended, to its end or
// until the reader is closed, and then closed.
func reading(ctx context.Context, file *os.File) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		_, err := io.Copy(w, file)
		file.Close()
		w.CloseWithError(err)
	}()
	return r
}
