package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/npy"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// source is a layer with contexts to learn from and others to measure.
type source struct {
	name        string
	layer       *exact.Layer
	train, test []float32 // n x d
	release     []func() error

	dir, text string    // of a language model: its folder, and the name of its text for testing
	valid     []float32 // contexts of its text for validation, if it has one
}

// tail returns the contexts that tails are fitted on: from a text that is used neither for learning
// nor for measuring, if there is one.
func (s *source) tail() []float32 {
	if s.valid != nil {
		return s.valid
	}
	return s.train
}

func (s *source) close() {
	for _, f := range s.release {
		f()
	}
}

// sourceFlags are the flags that choose the source.
type sourceFlags struct {
	lm, cache              string
	demo                   bool
	weights, bias          string
	contexts, testContexts string
	seed                   uint64
	lmGiven, filesGiven    bool
}

// check returns an error if flags exclude each other.
func (f *sourceFlags) check() error {
	ways := 0
	for _, given := range []bool{f.lmGiven, f.demo, f.filesGiven} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("--lm, --demo and --weights exclude each other: give one of them")
	case f.filesGiven && (f.weights == "" || f.bias == "" || f.contexts == ""):
		return errors.New("--weights, --bias (or --bias none) and --contexts go together: give all of them")
	}
	return nil
}

// open opens the source, with at most train contexts to learn from and test contexts to measure; 0
// is for all of a text.
func (f *sourceFlags) open(ctx context.Context, train, test int, p *progress.Printer) (*source, error) {
	switch {
	case f.filesGiven:
		return openFiles(f.weights, f.bias, f.contexts, f.testContexts, train, test)
	case f.demo:
		return openDemo(ctx, f.seed, train, test, p)
	}
	// Nothing takes the place of a layer that is not there: readers would take its
	// results for the results of the layer.
	if _, err := os.Stat(f.lm); err != nil {
		return nil, fmt.Errorf("--lm: %w: name another folder, or give --demo for the language model of make demo", err)
	}
	return openLM(ctx, f.lm, f.cache, train, test, p)
}

// openDemo returns the model of make demo with contexts of text that it writes itself. Each piece
// of the text is used either for learning or for measuring.
func openDemo(ctx context.Context, seed uint64, train, test int, p *progress.Printer) (*source, error) {
	m, v, err := layers.LoadLM("lm/model")
	if err != nil {
		return nil, err
	}
	layer, err := layers.Decoder(m)
	if err != nil {
		return nil, err
	}
	whole := func(n int) int { return (n + layers.Piece - 1) / layers.Piece * layers.Piece }
	if train == 0 {
		train = 400 * layers.Piece
	}
	train, test = whole(train), whole(test)
	p.Start("text", "tokens", train+test)
	rows, err := layers.Written(ctx, m, v, train+test, seed, p.Set)
	if err != nil {
		return nil, err
	}
	p.End()
	at := train * m.Dim()
	return &source{name: "demo model", layer: layer, train: rows[:at:at], test: rows[at:]}, nil
}

// openLM returns the language model in dir with the contexts of its texts for
// training and for testing, which are kept in the folder cache.
func openLM(ctx context.Context, dir, cache string, train, test int, p *progress.Printer) (*source, error) {
	m, v, err := layers.LoadLM(dir)
	if err != nil {
		return nil, err
	}
	s := &source{name: filepath.Base(dir), dir: dir}
	if s.name == "ptb-small" {
		s.name = "PTB-Small"
	}
	if s.layer, err = layers.Decoder(m); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		pattern string
		n       int
		rows    *[]float32
	}{{"*train.txt", train, &s.train}, {"*valid.txt", train, &s.valid}, {"*test.txt", test, &s.test}} {
		found, err := filepath.Glob(filepath.Join(dir, part.pattern))
		if err == nil && len(found) == 0 && part.rows == &s.valid {
			continue
		}
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%s: found %d texts %s, expected one", dir, len(found), part.pattern)
		}
		if err == nil {
			s.text = filepath.Base(found[0]) // the last is that for testing
			*part.rows, err = s.keptContexts(ctx, m, v, filepath.Join(dir, "model.safetensors"), found[0], cache, part.n, p)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// keptContexts returns the contexts of the first n tokens of a text, which the folder cache keeps.
func (s *source) keptContexts(ctx context.Context, m *lstm.Model, v *vocab.Vocab, model, text, cache string, n int, p *progress.Printer) ([]float32, error) {
	base := filepath.Base(text)
	rows, release, err := npy.Kept(cache, strings.TrimSuffix(base, filepath.Ext(base)), fmt.Sprint(n), []string{model, text}, m.Dim(), func(w *npy.Writer) error {
		p.Start("contexts of "+base, "tokens", n)
		rows, err := layers.Contexts(ctx, m, v, text, n, p.Set)
		if err != nil {
			return err
		}
		p.End()
		return w.WriteRows(rows)
	})
	if err == nil {
		s.release = append(s.release, release)
	}
	return rows, err
}

// openFiles returns a layer and contexts in files. If there are no contexts for testing, the last
// tenth of the others is not used for training.
func openFiles(weights, bias, contexts, testContexts string, train, test int) (_ *source, err error) {
	s := &source{name: filepath.Base(weights)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	opened, err := l2s.Open(weights, l2s.OpenOptions{Bias: bias, Copy: true})
	if err != nil {
		return nil, err
	}
	layer := (*engine.Layer)(opened).Exact()
	s.layer = layer
	read := func(src string) ([]float32, error) {
		rows, release, err := heads.OpenContexts(src, layer.Dim())
		if err == nil {
			s.release = append(s.release, release)
		}
		return rows, err
	}
	if s.train, err = read(contexts); err != nil {
		return nil, err
	}
	d := layer.Dim()
	if testContexts != "" {
		if s.test, err = read(testContexts); err != nil {
			return nil, err
		}
	} else {
		n := len(s.train) / d
		at := (n - n/10) * d
		s.train, s.test = s.train[:at], s.train[at:]
	}
	limit := func(rows []float32, n int) []float32 {
		if n == 0 {
			return rows
		}
		return rows[:min(len(rows), n*d)]
	}
	s.train, s.test = limit(s.train, train), limit(s.test, test)
	return s, nil
}

// checkContexts returns an error if there are too few contexts, or one that is not finite.
func (s *source) checkContexts(least int) error {
	d := s.layer.Dim()
	for _, part := range []struct {
		name string
		rows []float32
	}{{"training", s.train}, {"testing", s.test}} {
		if n := len(part.rows) / d; n < least {
			return fmt.Errorf("%s: found %d contexts for %s, expected at least %d: give more --contexts, whose last tenth is for testing, or --test-contexts", s.name, n, part.name, least)
		}
		for i, v := range part.rows {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("%s: context %d for %s: found %v at element %d, expected finite numbers", s.name, i/d, part.name, v, i%d)
			}
		}
	}
	return nil
}
