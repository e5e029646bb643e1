package fuzz

import (
	"bytes"
	"context"
	"testing"

	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// Who gives a zero value in place of a layer or a model gets an error.
func TestZeroValuesAreRefused(t *testing.T) {
	h := []float32{1, 2}
	layer, err := softmax.NewLayer(kernels.Float32Rows([]float32{1, 2, 3, 4}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	none, model, look := new(softmax.Layer), new(screen.Model), new(preview.Model)
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"screen.NewSearcher":  func() error { _, err := screen.NewSearcher(model, layer, screen.Options{}); return err },
		"screen.NewPool":      func() error { _, err := screen.NewPool(model, none, screen.Options{}); return err },
		"screen.Evaluate":     func() error { _, err := screen.Evaluate(ctx, model, layer, h, screen.EvaluateOptions{}); return err },
		"a screen's WriteTo":  func() error { _, err := model.WriteTo(new(bytes.Buffer)); return err },
		"preview.NewSearcher": func() error { _, err := preview.NewSearcher(look, layer); return err },
		"preview.Make":        func() error { _, err := preview.Make(ctx, none, h, preview.Options{}); return err },
		"a preview's WriteTo": func() error { _, err := look.WriteTo(new(bytes.Buffer)); return err },
		"sample.New":          func() error { _, err := sample.New(none, sample.DefaultOptions()); return err },
		"sample.New of nil":   func() error { _, err := sample.New(nil, sample.DefaultOptions()); return err },
		"sample.NewScreened":  func() error { _, err := sample.NewScreened(model, layer, sample.DefaultOptions()); return err },
		"sample.NewPreviewed": func() error { _, err := sample.NewPreviewed(look, layer, sample.DefaultOptions()); return err },
		"learn.New":           func() error { _, err := learn.New(none, learn.Options{}); return err },
		"train.Run":           func() error { _, _, err := train.Run(ctx, none, h, train.DefaultOptions()); return err },
		"train.Run of rows": func() error {
			_, _, err := train.Run(ctx, none, kernels.Float32Rows(h, 2), train.DefaultOptions())
			return err
		},
		"train.Labels": func() error { _, err := train.Labels(ctx, nil, h, 1, train.RunOptions{}); return err },
		"beam.New":     func() error { _, err := beam.New(nil, nil, beam.Options{Width: 1, MaxLen: 1}); return err },
		"train.FitTail": func() error {
			_, _, err := train.FitTail(ctx, model, layer, h, train.DefaultTailOptions(), train.RunOptions{})
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: found no error for a zero value, expected one", name)
		}
	}
	if err := new(head.Head).Close(); err != nil {
		t.Errorf("a zero head: Close: %v", err)
	}
}
