package main

import (
	"bufio"
	"context"
	"os"

	"github.com/learning-to-screen/l2s/internal/layerfile"
)

// How standard input is given as a source of contexts, and named in errors.
const (
	stdinSource = "-"
	stdinName   = "standard input"
)

// textStream are contexts of text, one after the other.
type textStream struct{ *layerfile.Text }

func (s textStream) waits() bool            { return s.Waits() }
func (s textStream) next(h []float32) error { return s.Next(h) }
func (s textStream) of() string             { return "" }

// openStdin opens standard input: the contexts of a .npy file, which are read, or text.
func openStdin(ctx context.Context, l *layer) (*contexts, *layerfile.Text, error) {
	r := bufio.NewReaderSize(newInput(ctx, os.Stdin), 1<<16)
	files, text, err := layerfile.ReadContexts(r, stdinName, l.Layer, l.name)
	if err != nil || text != nil {
		return nil, text, err
	}
	return stdinContexts(files, l), nil, nil
}

// readStdin reads standard input to its end.
func readStdin(ctx context.Context, l *layer) (*contexts, error) {
	c, text, err := openStdin(ctx, l)
	if err != nil || text == nil {
		return c, err
	}
	files, err := text.All(ctx)
	if err != nil {
		return nil, err
	}
	return stdinContexts(files, l), nil
}

func stdinContexts(files *layerfile.Contexts, l *layer) *contexts {
	return &contexts{name: stdinName, n: files.Len(), dim: l.Dim(), files: files}
}
