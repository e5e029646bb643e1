package fuzz

import (
	"bytes"
	"context"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train"
)

// Who gives a zero value in place of a layer or a model gets an error.
func TestZeroValuesAreRefused(t *testing.T) {
	h := []float32{1, 2}
	layer, err := l2s.New(l2s.Float32([]float32{1, 2, 3, 4}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	none, model := new(l2s.Layer), new(l2s.Index)
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"l2s.NewSearcher":      func() error { _, err := l2s.NewSearcher(layer, model, l2s.Options{}); return err },
		"l2s.NewPool":          func() error { _, err := l2s.NewPool(none, model, l2s.Options{}); return err },
		"screen.Evaluate":      func() error { _, err := screen.Evaluate(ctx, layer, model, h, screen.EvaluateOptions{}); return err },
		"an index's WriteTo":   func() error { _, err := model.WriteTo(new(bytes.Buffer)); return err },
		"preview.Make":         func() error { _, err := preview.Make(ctx, none, l2s.Float32(h, 2), preview.Options{}); return err },
		"sample.New":           func() error { _, err := sample.New(none, nil, sample.DefaultOptions()); return err },
		"sample.New of nil":    func() error { _, err := sample.New(nil, nil, sample.DefaultOptions()); return err },
		"sample.New, no index": func() error { _, err := sample.New(layer, model, sample.DefaultOptions()); return err },
		"learn.New":            func() error { _, err := learn.New(none, learn.Options{}); return err },
		"train.Run": func() error {
			_, _, err := train.Run(ctx, none, l2s.Float32(h, 2), train.DefaultOptions())
			return err
		},
		"train.Run of no contexts": func() error {
			_, _, err := train.Run(ctx, layer, l2s.Matrix{}, train.DefaultOptions())
			return err
		},
		"train.Labels": func() error { _, err := train.Labels(ctx, nil, h, 1, train.RunOptions{}); return err },
		"beam.New":     func() error { _, err := beam.New(nil, nil, beam.Options{Width: 1, MaxLen: 1}); return err },
		"train.FitTail": func() error {
			_, _, err := train.FitTail(ctx, layer, model, h, train.DefaultTailOptions(), train.RunOptions{})
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: found no error for a zero value, expected one", name)
		}
	}
	if err := new(l2s.Layer).Close(); err != nil {
		t.Errorf("a zero layer: Close: %v", err)
	}
}
