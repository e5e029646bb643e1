package sample_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

// final is a scale and a soft cap of logits.
type final struct {
	name       string
	scale, cap float64
}

var finals = []final{
	{"plain", 1, 0},
	{"a scale of a power of two", 0.125, 0},
	{"a scale", 1.7, 0},
	{"a cap", 1, 3},
	{"a scale and a cap", 4, 2.5}, // at which many of the best logits are nearly equal
}

func (f final) of(t interface{ Fatal(...any) }, l *l2s.Layer) *l2s.Layer {
	of, err := l.Scaled(f.scale, f.cap)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// anyOrder draws an order of all processors: the edits in each order, then the others in each.
func anyOrder(t *rapid.T) []sample.Step {
	edits := rapid.Permutation([]sample.Step{sample.Mask, sample.Bias, sample.Penalties}).Draw(t, "edits first")
	later := rapid.Permutation([]sample.Step{sample.Temperature, sample.TopK, sample.TopP, sample.MinP, sample.Typical}).Draw(t, "then the others")
	return slices.Concat(edits, later)
}

// twins returns a layer with a scale that is a power of two, and a layer whose rows and biases have
// it.
func twins(t interface{ Fatal(...any) }, seed uint64, labels, dim int, scale float64) (scaled, twin *l2s.Layer) {
	r := newRand(seed)
	w, b := normals(r, labels*dim, 1), normals(r, labels, 1)
	plain, err := l2s.New(l2s.Float32(w, dim), b)
	if err != nil {
		t.Fatal(err)
	}
	times := func(x []float32) (y []float32) {
		for _, v := range x {
			y = append(y, float32(scale)*v)
		}
		return y
	}
	if twin, err = l2s.New(l2s.Float32(times(w), dim), times(b)); err != nil {
		t.Fatal(err)
	}
	return final{"", scale, 0}.of(t, plain), twin
}

// A layer with a scale draws what a layer draws whose rows have the scale: the same labels with the
// same probabilities, bit for bit, with any edits, in every order of the processors.
func TestAScaledLayerDrawsWhatItsTwinDraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.OneOf(rapid.IntRange(2, 300), rapid.IntRange(1024, 1300)).Draw(t, "labels")
		dim := rapid.IntRange(1, 12).Draw(t, "dim")
		l, twin := twins(t, rapid.Uint64().Draw(t, "layer"), labels, dim, math.Ldexp(1, rapid.IntRange(-4, 4).Draw(t, "scale")))
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, 1)
		o, e := drawOptions(t, labels)
		o.Order, o.ExactLogProb = anyOrder(t), rapid.Bool().Draw(t, "exact")
		s, err := sample.New(l, nil, o)
		want, err2 := sample.New(twin, nil, o)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		for range 4 {
			got, err := s.Draw(h, e)
			token, err2 := want.Draw(h, e)
			if got != token || (err == nil) != (err2 == nil) {
				t.Fatalf("%+v: found %+v, %v, expected %+v, %v", o, got, err, token, err2)
			}
			p, ok := s.Distribution(nil)
			if q, ok2 := want.Distribution(nil); err == nil && (ok != ok2 || !slices.Equal(p, q)) {
				t.Fatalf("%+v: found the distribution %v, %v, expected %v, %v", o, p, ok, q, ok2)
			}
		}
	})
}

// The distribution of a draw from a layer with a scale and a cap is the definition over all of its
// final logits, with any edits, in every order of the processors.
func TestDrawsAreOfFinalLogits(t *testing.T) {
	known := 0
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.OneOf(rapid.IntRange(2, 300), rapid.IntRange(1024, 1300)).Draw(t, "labels")
		dim := rapid.IntRange(1, 12).Draw(t, "dim")
		l := rapid.SampledFrom(finals[1:]).Draw(t, "final").of(t, newLayer(t, rapid.Uint64().Draw(t, "layer"), labels, dim))
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, 1)
		o, e := drawOptions(t, labels)
		o.Order = anyOrder(t)
		s, err := sample.New(l, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		token, err := s.Draw(h, e)
		if err != nil { // no label is left
			return
		}
		if !follows(l, h, o, e, token, errorOf(l, o)) {
			t.Fatalf("%+v: found %+v, expected a log-probability of %v", o, token, math.Log(definition(l, h, o, e)[token.ID]))
		}
		found, ok := s.Distribution(nil)
		if !ok {
			return
		}
		known++
		if o.Temperature == 0 { // of equal ones the first
			want := definition(l, h, o, e)
			for id, p := range want {
				if p > want[found[0].ID] || p == want[found[0].ID] && id < int(found[0].ID) {
					t.Fatalf("%+v: found label %d, expected %d", o, found[0].ID, id)
				}
			}
			return
		}
		for _, p := range found {
			if !follows(l, h, o, e, sample.Token{ID: p.ID, LogProb: p.Logit}, 1e-9) {
				t.Fatalf("%+v: found label %d with a log-probability of %v, expected %v", o, p.ID, p.Logit, math.Log(definition(l, h, o, e)[p.ID]))
			}
		}
	})
	if known == 0 {
		t.Error("found no distribution, expected some")
	}
}

// At temperature 0, with a top-k of 1 and with the least top-p a draw is the best final logit after
// the edits: a bias that is less than the cap leaves room for may decide, which it would not inside
// of the cap, and a penalty that is larger than that.
func TestTheBestUnderACap(t *testing.T) {
	rows := []float32{100, 90, 50, -50}
	plain, err := l2s.New(l2s.Float32(rows, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := final{"", 1, 30}.of(t, plain) // final logits 29.92, 29.85, 27.94 and -27.94
	for _, c := range []struct {
		name  string
		edits sample.Edits
		want  uint32
	}{
		{"no edit", sample.Edits{}, 0},
		{"a bias above the distance of final logits", sample.Edits{Biases: []l2s.Bias{{ID: 1, Add: 0.1}}}, 1},
		{"a bias above a larger one", sample.Edits{Biases: []l2s.Bias{{ID: 2, Add: 2.1}}}, 2},
		{"a bias below it", sample.Edits{Biases: []l2s.Bias{{ID: 2, Add: 1.9}}}, 0},
		{"a bias above the cap", sample.Edits{Biases: []l2s.Bias{{ID: 3, Add: 58}}}, 3},
		{"two above the cap", sample.Edits{Biases: []l2s.Bias{{ID: 2, Add: 50}, {ID: 3, Add: 58}}}, 2},
		{"a penalty", sample.Edits{History: []uint32{0}}, 1},
		{"two penalties", sample.Edits{History: []uint32{0, 1}}, 2},
	} {
		for name, o := range map[string]func(o *sample.Options){
			"temperature 0": func(o *sample.Options) { o.Temperature = 0 },
			"top-k 1":       func(o *sample.Options) { o.TopK = 1 },
			"top-p 0":       func(o *sample.Options) { o.TopP = 5e-324 },
			"min-p 1":       func(o *sample.Options) { o.MinP = 1 },
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				opt := sample.DefaultOptions()
				opt.Presence = 2.5
				o(&opt)
				s, err := sample.New(l, nil, opt)
				if err != nil {
					t.Fatal(err)
				}
				if token, err := s.Draw([]float32{1}, c.edits); err != nil || token.ID != c.want {
					t.Errorf("found %+v, %v, expected label %d", token, err, c.want)
				}
			})
		}
	}
}

// Over a preview, and over a screen, a draw from a layer with a scale and a cap is mostly the layer's
// own: the screen has no tail for a cap, and leaves such draws to the layer.
func TestScaledDrawsOverAPreviewAndAScreen(t *testing.T) {
	d := synthetic.Structured(3000, 32, 20, 700, 5)
	edits := sample.Edits{Biases: []l2s.Bias{{ID: 9, Add: 1.5}, {ID: 10, Add: -100}}, History: []uint32{1, 2, 3, 3, 1500}}
	ofRows, err := preview.Make(context.Background(), d.Layer, l2s.Float32(d.Contexts[:600*32], d.Layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range finals {
		t.Run(f.name, func(t *testing.T) {
			f.scale /= 4 // most of the synthetic logits are far from each other
			l := f.of(t, d.Layer)
			made, err := preview.Make(context.Background(), l, l2s.Float32(d.Contexts[:600*32], l.Dim()), preview.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m := screened(t, l, 0.66, 0.6/l.Info().Scale, 1/l.Info().Scale, 2/l.Info().Scale)
			for name, set := range map[string]func(o *sample.Options){
				"greedy":        func(o *sample.Options) { o.Temperature = 0 },
				"top-k":         func(o *sample.Options) { o.TopK, o.TopP = 40, 0.95 },
				"min-p":         func(o *sample.Options) { o.MinP = 0.05 },
				"no truncation": func(*sample.Options) {},
			} {
				o := sample.DefaultOptions()
				o.Seed, o.Presence, o.Repetition = 3, 0.5, 1.3
				set(&o)
				exact, err := sample.New(l, nil, o)
				if err != nil {
					t.Fatal(err)
				}
				byMade, err := sample.New(l, made, o)
				if err != nil {
					t.Fatal(err)
				}
				byRows, err := sample.New(l, ofRows, o)
				if err != nil {
					t.Fatal(err)
				}
				byScreen, err := sample.New(l, m, o)
				if err != nil {
					t.Fatal(err)
				}
				const n = 60
				same := make([]int, 3)
				for i := range n {
					h := d.Context(600 + i)
					want, err := exact.Draw(h, edits)
					if err != nil {
						t.Fatal(err)
					}
					for j, s := range []*sample.Sampler{byMade, byRows, byScreen} {
						got, err := s.Draw(h, edits)
						if err != nil {
							t.Fatal(err)
						}
						if got.ID == want.ID && math.Abs(got.LogProb-want.LogProb) < 1e-9 {
							same[j]++
						}
					}
				}
				if same[0] < n*9/10 || same[1] < n*9/10 {
					t.Errorf("%s: of %d draws over previews found %d and %d equal, expected nearly all", name, n, same[0], same[1])
				}
				if f.cap != 0 && (same[2] != n || byScreen.Stats().Layer != n) {
					t.Errorf("%s: of %d draws over a screen found %d equal, %d by the layer, expected all", name, n, same[2], byScreen.Stats().Layer)
				}
			}
		})
	}
}
