package sample_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/sample"
)

// repeated returns a layer in which every row occurs several times, so that many logits are equal,
// and a nucleus mostly ends among equal ones.
func repeated(t *testing.T, seed uint64, rows, times, dim int) *l2s.Layer {
	t.Helper()
	r := newRand(seed)
	var w, b []float32
	for range rows {
		row, bias := normals(r, dim, 0.7), normals(r, 1, 0.7)
		for range times {
			w, b = append(w, row...), append(b, bias...)
		}
	}
	l, err := l2s.New(l2s.Float32(w, dim), b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// enclosed is the number of draws of many labels.
func enclosed() int { return draws() / 5 }

// choose returns the configurations of these names.
func choose(labels int, names ...string) (chosen []configuration) {
	for _, c := range configurations(labels) {
		if slices.Contains(names, c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Draws by the intervals of the int8 codes have the distribution of the definition. Few of
// them need the logits of all labels, unless intervals cannot tell labels apart: then all
// logits decide, and the distribution is the same.
func TestDrawsByIntervalsHaveTheDistribution(t *testing.T) {
	const labels, dim = 1500, 8
	apart, equal := newLayer(t, 21, labels, dim), repeated(t, 22, labels/15, 15, dim)
	h := normals(newRand(23), dim, 0.6)
	for _, layer := range []struct {
		name  string
		layer *l2s.Layer
		apart bool
	}{{"distinct rows", apart, true}, {"equal rows", equal, false}} {
		for _, order := range orders[:2] { // the temperature after top-p, and before it
			names := []string{"nothing", "top-p", "top-p at a temperature"}
			if layer.apart {
				names = append(names, "temperature", "biases", "banned", "allowed", "repetition")
			}
			for _, c := range choose(labels, names...) {
				t.Run(fmt.Sprint(layer.name, "/", order.name, "/", c.name), func(t *testing.T) {
					o := sample.DefaultOptions()
					o.Order, o.Seed = order.steps, 3
					c.change(&o)
					s, err := sample.New(layer.layer, nil, o)
					if err != nil {
						t.Fatal(err)
					}
					p := definition(layer.layer, h, o, c.edits)
					if x := chiSquare(t, countOf(t, enclosed(), s, h, c.edits, labels), p); x > 5 {
						t.Errorf("chi-square %.1f standard deviations above its mean", x)
					}
					kept := 0
					for _, p := range p {
						if p > 0 {
							kept++
						}
					}
					st, wide := s.Stats(), o.TopP < 1 && 4*kept > labels // if wide, a pass over all logits is faster
					if few := st.Passes*5 < st.Draws; layer.apart && !wide && !few {
						t.Errorf("stats %+v, want few draws that computed all logits", st)
					}
				})
			}
		}
	}
	// A nucleus that ends among equal labels is not for intervals to decide.
	o := sample.DefaultOptions()
	o.TopP = 0.5
	s, err := sample.New(equal, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	countOf(t, enclosed(), s, h, sample.Edits{}, labels)
	if s.Stats().Passes == 0 {
		t.Error("found no draw that computed all logits, expected some with equal ones")
	}
}

// Over a screen the draws that the candidates leave to the layer have its distribution too.
func TestDrawsByIntervalsOverAScreenHaveTheDistribution(t *testing.T) {
	const labels, dim = 1500, 8
	l := newLayer(t, 1, labels, dim)
	m := screened(t, l, 0.5, 0.7, 1)
	for i := range 2 {
		h := normals(newRand(uint64(40+i)), dim, 0.5)
		for _, c := range choose(labels, "nothing", "temperature", "banned", "repetition") {
			t.Run(fmt.Sprint(i, "/", c.name), func(t *testing.T) {
				o := sample.DefaultOptions()
				o.Seed, o.Confidence = uint64(i), 0.99
				c.change(&o)
				s, err := sample.New(l, m, o)
				if err != nil {
					t.Fatal(err)
				}
				if x := chiSquare(t, countOf(t, enclosed(), s, h, c.edits, labels), definition(l, h, o, c.edits)); x > 5 {
					t.Errorf("chi-square %.1f standard deviations above its mean", x)
				}
				if st := s.Stats(); st.Layer == 0 || st.Passes*5 > st.Layer {
					t.Errorf("stats %+v, want draws by the layer, few of which computed all logits", st)
				}
			})
		}
	}
}

// The log-probability is within 1 of the definition, as Token promises, and nearly always within
// 0.15; it is equal to the definition where the option asks for that: then every draw without
// truncation computes all logits.
func TestLogProbabilitiesOfDrawsByIntervals(t *testing.T) {
	all, far := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		labels, dim := rapid.IntRange(1024, 1400).Draw(t, "labels"), rapid.IntRange(4, 20).Draw(t, "dim")
		l := newLayer(t, rapid.Uint64().Draw(t, "layer"), labels, dim)
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, 0.5)
		o, e := drawOptions(t, 60) // the edits are of the first labels
		if e.Banned != nil {
			e.Banned = setOf(labels, slices.Collect(e.Banned.All())...)
		}
		if e.Allowed != nil {
			e.Allowed = setOf(labels, append(slices.Collect(e.Allowed.All()), 100, 200, 300)...)
		}
		p := definition(l, h, o, e)
		for _, o.ExactLogProb = range []bool{false, true} {
			s, err := sample.New(l, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				token, err := s.Draw(h, e)
				if err != nil {
					t.Fatal(err)
				}
				within := 1.0
				if o.ExactLogProb {
					within = 1e-9
				}
				want := math.Log(p[token.ID])
				if token.Variation != 0 || !(math.Abs(token.LogProb-want) <= within) {
					t.Fatalf("%+v: found %+v, want a log-probability of %v within %v", o, token, want, within)
				}
				if all++; math.Abs(token.LogProb-want) > 0.15 {
					far++
				}
			}
			st, looks := s.Stats(), o.TopK == 0 && o.MinP == 0 && o.TopP == 1 && o.Temperature > 0
			if o.ExactLogProb && looks && st.Passes != st.Draws {
				t.Fatalf("stats %+v, want all logits for every draw", st)
			}
		}
	})
	// Of some thousand layers and contexts there is one whose draws are farther away: the end of a
	// nucleus of few labels is between two of them.
	if far > 10+all/50 {
		t.Errorf("found %d of %d log-probabilities off by more than 0.15, expected one in a thousand", far, all)
	}
}

// Temperatures at which one label has all the weight, or all labels the same, and logits outside
// the range of float32.
func TestDrawsByIntervalsAtTheLimits(t *testing.T) {
	const labels, dim = 1200, 8
	l := newLayer(t, 25, labels, dim)
	h := normals(newRand(26), dim, 0.7)
	best, err := exactly(t, l).Search(make([]l2s.Prediction, 1), h, l2s.Request{})
	if err != nil || best.Count != 1 {
		t.Fatal(best, err)
	}
	for _, temperature := range []float64{exact.MinTemperature, 0.01, 0.05, 900} {
		for _, topP := range []float64{1, 0.5} {
			o := sample.DefaultOptions()
			o.Order, o.Temperature, o.TopP = sample.VLLM(), temperature, topP
			s, err := sample.New(l, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			if x := chiSquare(t, countOf(t, enclosed(), s, h, sample.Edits{}, labels), definition(l, h, o, sample.Edits{})); x > 5 {
				t.Errorf("temperature %v, top-p %v: chi-square %.1f standard deviations above its mean", temperature, topP, x)
			}
		}
	}
	o := sample.DefaultOptions()
	o.Repetition = 0x1p-100
	s, err := sample.New(l, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Draw(h, sample.Edits{History: []uint32{0, 1, 2, 3, 4, 5}})
	if err != nil || token.ID > 5 || s.Stats().Passes != 1 {
		t.Errorf("found %+v, error %v, stats %+v, want one of the labels whose logits are beyond float32, by all logits", token, err, s.Stats())
	}
}

// Logits that are large compared with the temperature, as biases make them which force some labels,
// leave the log-probability right: float32, in which intervals are, is too coarse for them.
func TestLogProbabilitiesOfLargeLogits(t *testing.T) {
	const labels, dim = 2000, 64
	r := newRand(31)
	l, err := l2s.New(l2s.Float32(normals(r, labels*dim, 0.2), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := normals(r, dim, 1)
	for _, bias := range []float64{1e2, 1e4, 1e6, 1e7, 1e8, 1e9} {
		for _, temperature := range []float64{0.1, 1} {
			for _, topP := range []float64{1, 0.999} {
				t.Run(fmt.Sprint(bias, "/", temperature, "/", topP), func(t *testing.T) {
					var e sample.Edits
					for id := range uint32(5) {
						e.Biases = append(e.Biases, l2s.Bias{ID: 100 * id, Add: float32(bias)})
					}
					o := sample.DefaultOptions()
					o.Temperature, o.TopP = temperature, topP
					p := definition(l, h, o, e)
					s, err := sample.New(l, nil, o)
					if err != nil {
						t.Fatal(err)
					}
					for range 200 {
						token, err := s.Draw(h, e)
						if err != nil {
							t.Fatal(err)
						}
						if want := math.Log(p[token.ID]); !(math.Abs(token.LogProb-want) < 0.01) {
							t.Fatalf("label %d: found a log-probability of %v, expected %v", token.ID, token.LogProb, want)
						}
					}
				})
			}
		}
	}
}

// Log-probabilities are near the definition where a nucleus is hard to estimate: where it is as
// good as all labels and the temperature is another one, where the labels that have the weight at a
// colder temperature are many, and where it has one label or two.
func TestLogProbabilitiesOfUnusualNuclei(t *testing.T) {
	const labels, dim = 1100, 6
	for _, c := range []struct {
		name              string
		order             []sample.Step
		temperature, topP float64
		layer             *l2s.Layer
		scale, within     float64 // of contexts, and of log-probabilities
	}{
		{"all but roundings, before a warm temperature", sample.LlamaCPP(), 100, justBelowOne[0], newLayer(t, 52, labels, dim), 0.7, 0.15},
		{"nearly all, before a warm temperature", sample.LlamaCPP(), 8, 0.9999, newLayer(t, 52, labels, dim), 0.7, 0.15},
		{"equal labels, before a cold temperature", sample.LlamaCPP(), 0.01, 0.999, repeated(t, 53, 3, labels/3, dim), 0.7, 1},
		{"one or two labels, after a warm temperature", sample.VLLM(), 100, 0.001, newLayer(t, 52, labels, dim), 0.3, 0.15},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sample.DefaultOptions()
			o.Order, o.Temperature, o.TopP = c.order, c.temperature, c.topP
			s, err := sample.New(c.layer, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				h := normals(newRand(uint64(i)), dim, c.scale)
				token, err := s.Draw(h, sample.Edits{})
				if err != nil {
					t.Fatal(err)
				}
				if !follows(c.layer, h, o, sample.Edits{}, token, c.within) {
					t.Errorf("context %d: found %+v, expected a log-probability of %v", i, token, math.Log(definition(c.layer, h, o, sample.Edits{})[token.ID]))
				}
			}
		})
	}
}
