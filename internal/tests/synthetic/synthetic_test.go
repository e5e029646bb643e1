package synthetic

import (
	"context"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
)

func TestScreenOfStructuredDataFindsTheTop(t *testing.T) {
	d := Structured(2000, 64, 20, 500, 1)
	m, err := d.Screen(200)
	if err != nil {
		t.Fatal(err)
	}
	e, err := screen.Evaluate(context.Background(), d.Layer, m, d.Contexts, screen.EvaluateOptions{K: []int{5}})
	if err != nil {
		t.Fatal(err)
	}
	if p := e.AtK[0].Precision; p < 0.99 {
		t.Errorf("P@5 %.4f, want at least 0.99", p)
	}
}

func TestDataIsThatOfItsSeed(t *testing.T) {
	a, b, c := Structured(50, 8, 5, 3, 1), Structured(50, 8, 5, 3, 1), Structured(50, 8, 5, 3, 2)
	if a.Layer.Fingerprint() != b.Layer.Fingerprint() {
		t.Error("equal seeds give different layers")
	}
	if a.Layer.Fingerprint() == c.Layer.Fingerprint() {
		t.Error("different seeds give equal layers")
	}
}
