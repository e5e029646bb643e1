package sample_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/sample"
)

// justBelowOne has shares that a sum of probabilities may not reach, only because of rounding.
var justBelowOne = []float64{math.Nextafter(1, 0), 1 - 1e-15, 1 - 1e-14, 1 - 1e-13}

// follows reports whether a token is one that the definition may draw, with its
// log-probability within an error. Where roundings decide on the labels that a truncation
// keeps, all that they may decide is right.
func follows(l *l2s.Layer, h []float32, o sample.Options, e sample.Edits, token sample.Token, within float64) bool {
	topP, minP, rounding := o.TopP, o.MinP, 1e-15*float64(l.Labels()+10)
	least, most := math.Inf(1), math.Inf(-1)
	likelier, kept := []int{0}, false
	if o.Typical < 1 {
		likelier = []int{-1, 0, 1}
	}
	for _, p := range []float64{-rounding, 0, rounding} {
		for _, m := range []float64{-rounding, 0, rounding} {
			for _, first := range likelier {
				o.TopP, o.MinP = min(topP*(1+p), 1), min(minP*(1+m), 1)
				x := math.Log(definitionOf(l, h, o, e, first)[token.ID])
				least, kept = min(least, x), kept || !math.IsInf(x, -1)
				if most = max(most, x); math.IsInf(x, -1) { // not kept: the last one, with the fewest labels
					most = 0
				}
			}
		}
	}
	if math.IsInf(least, -1) {
		least = -745 // a number that exp returns may be as small
	}
	return kept && token.LogProb >= least-within && token.LogProb <= most+within
}

// errorOf is the largest error of log-probabilities: draws over the layer may have estimates, which
// are within 1, as Token promises.
func errorOf(l *l2s.Layer, o sample.Options) float64 {
	switch {
	case l.Labels() < 1024 || o.ExactLogProb || o.TopK > 0 && o.TopK < l.Labels() || o.MinP > 0:
		return 1e-9
	}
	return 1
}

// Numbers that options accept, among them the largest and the smallest that are allowed.
var (
	temperatures = []float64{1, 0.7, 0, exact.MinTemperature, 1e-30, 1e-10, 0.01, 100, 1e10, 1e100, math.MaxFloat64}
	shares       = append(justBelowOne, 1, 0.9, 0.5, 1e-3, 1e-15, 1e-300, 5e-324)
	repetitions  = []float64{1, 1.3, 0.5, 1e10, 0x1p100, 1e-10, 0x1p-100}
	subtracted   = []float64{0, 0.3, -1, 5e-324, 1e10, -1e10, 0x1p100, -0x1p100}
	added        = []float32{0, 1, -1, 1e-40, 1e10, -1e10, 0x1p100, -0x1p100}
)

// A sampler has no error unless no label is left, and draws the token of the definition, with a
// log-probability that is a number and not above 0, with any options that it accepts.
func checkExtremes(t *rapid.T) {
	labels := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 300), rapid.IntRange(1024, 1300)).Draw(t, "labels")
	dim := rapid.IntRange(1, 5).Draw(t, "dim")
	r := newRand(rapid.Uint64().Draw(t, "layer"))
	scale := rapid.SampledFrom([]float64{1, 1, 1, 0, 1e-30, 30, 1e15}).Draw(t, "scale")
	rows, bias := normals(r, labels*dim, scale), normals(r, labels, scale)
	if rapid.Bool().Draw(t, "equal rows") {
		for i := range rows[dim:] {
			rows[dim+i] = rows[i]
		}
		for i := range bias {
			bias[i] = bias[i%3%labels]
		}
	}
	l, err := l2s.New(l2s.Float32(rows, dim), bias)
	if err != nil {
		t.Fatal(err)
	}
	l = rapid.SampledFrom(finals).Draw(t, "final").of(t, l)
	h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, 1)
	o, e := drawOptions(t, labels)
	o.TopK = rapid.SampledFrom([]int{0, 0, 1, 2, 20, labels, math.MaxInt}).Draw(t, "any top-k")
	one := func(name string, from []float64) float64 { return rapid.SampledFrom(from).Draw(t, name) }
	o.Temperature, o.TopP = one("any temperature", temperatures), one("any top-p", shares)
	o.MinP = one("any min-p", append([]float64{0, 0, 0}, shares...))
	o.Repetition = one("any repetition", repetitions)
	o.Presence, o.Frequency = one("any presence", subtracted), one("any frequency", subtracted)
	o.ExactLogProb = rapid.Bool().Draw(t, "exact")
	for i := range e.Biases {
		e.Biases[i].Add = rapid.SampledFrom(added).Draw(t, "any bias")
	}
	if rapid.IntRange(0, 3).Draw(t, "all but one") == 0 {
		e.Banned = setOf(labels)
		e.Banned.Fill()
		e.Banned.Remove(uint32(rapid.IntRange(0, labels-1).Draw(t, "left")))
	}
	s, err := sample.New(l, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	none := true
	for _, x := range definition(l, h, o, e) {
		none = none && !(x > 0)
	}
	for range 4 {
		token, err := s.Draw(h, e)
		if (err != nil) != none {
			t.Fatalf("%+v: error %v, expected one: %v", o, err, none)
		}
		if err != nil {
			return
		}
		if !(token.LogProb <= 0) || token.Variation != 0 || !follows(l, h, o, e, token, errorOf(l, o)) {
			t.Fatalf("%+v: found %+v, expected a log-probability of %v", o, token, math.Log(definition(l, h, o, e)[token.ID]))
		}
	}
}

func TestDrawsAtTheExtremes(t *testing.T) { rapid.Check(t, checkExtremes) }

// Any numbers for options are refused, or give draws: a history never makes a logit infinite, even
// if rows and contexts have the largest numbers of float32.
func TestAnyOptionsAreRefusedOrDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels, dim := rapid.IntRange(1, 30).Draw(t, "labels"), rapid.IntRange(1, 4).Draw(t, "dim")
		number := func(name string, usual ...float64) float64 {
			return rapid.OneOf(rapid.SampledFrom(usual), rapid.SampledFrom(usual), rapid.Float64(),
				rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e-320, 1e308, -1.7e308, 0x1p100, 0x1p-100, 1e-100})).Draw(t, name)
		}
		scale := rapid.SampledFrom([]float64{1, 1e-40, 1e18, 3e37}).Draw(t, "scale")
		l, err := l2s.New(l2s.Float32(normals(newRand(rapid.Uint64().Draw(t, "layer")), labels*dim, scale), dim), nil)
		if err != nil {
			t.Fatal(err)
		}
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, scale)
		o, e := drawOptions(t, labels)
		o.Temperature, o.TopP, o.MinP = number("any temperature", 1, 0), number("any top-p", 1, 0.5), number("any min-p", 0, 0.5)
		o.Repetition, o.Presence, o.Frequency = number("any repetition", 1, 2), number("any presence", 0), number("any frequency", 0)
		s, err := sample.New(l, nil, o)
		if err != nil {
			return
		}
		for _, x := range []float64{o.Temperature, o.TopP, o.MinP, o.Repetition, o.Presence, o.Frequency} {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("%+v: found no error, expected one", o)
			}
		}
		none := true
		for id := range uint32(labels) {
			none = none && !exact.Permits(&exact.Request{Allowed: e.Allowed, Banned: e.Banned}, id)
		}
		for range 3 {
			token, err := s.Draw(h, e)
			if (err != nil) != none {
				t.Fatalf("%+v: error %v, expected one: %v", o, err, none)
			}
			if err == nil && (!(token.LogProb <= 0) || math.IsInf(token.LogProb, -1) || int(token.ID) >= labels) {
				t.Fatalf("%+v: found %+v, expected a label with a finite log-probability of at most 0", o, token)
			}
		}
	})
}

// Intervals cannot tell the end of a nucleus of nearly all labels: the log-probability of a draw is
// nevertheless within 1 of the definition, as Token promises.
func TestDrawsOfNearlyAllLabelsOverAScreen(t *testing.T) {
	const dim = 6
	l := newLayer(t, 52, 1100, dim)
	m := screened(t, l, 0.8, 0.5, 1)
	for _, temperature := range []float64{0.7, 1, 100} {
		o := sample.DefaultOptions()
		o.Temperature, o.TopP, o.Confidence = temperature, math.Nextafter(1, 0), 0
		s, err := sample.New(l, m, o)
		if err != nil {
			t.Fatal(err)
		}
		for c := range uint64(8) {
			h := normals(newRand(c), dim, 0.7)
			for range 16 {
				token, err := s.Draw(h, sample.Edits{})
				if err != nil {
					t.Fatal(err)
				}
				if want := math.Log(definition(l, h, o, sample.Edits{})[token.ID]); !(math.Abs(token.LogProb-want) <= 1) {
					t.Fatalf("T %v, context %d: found %+v, expected the log-probability %v", temperature, c, token, want)
				}
			}
		}
	}
}

// Over a screen a draw has a log-probability that is a number and not above 0, and, where it is
// exact, is the one of the definition.
func TestDrawsAtTheExtremesOverAScreen(t *testing.T) {
	const dim = 6
	few, many := newLayer(t, 51, 200, dim), newLayer(t, 52, 1100, dim)
	over := map[*l2s.Layer]*l2s.Index{few: screened(t, few, 0.8, 0.5, 1), many: screened(t, many, 0.8, 0.5, 1)}
	rapid.Check(t, func(t *rapid.T) {
		l := few
		if rapid.IntRange(0, 2).Draw(t, "many labels") == 0 {
			l = many
		}
		m, labels := over[l], l.Labels()
		scale := rapid.SampledFrom([]float64{0.7, 0.7, 3, 100, 1e15, 1e37}).Draw(t, "scale")
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, scale)
		o, e := drawOptions(t, labels)
		one := func(name string, from []float64) float64 { return rapid.SampledFrom(from).Draw(t, name) }
		o.Temperature, o.TopP = one("any temperature", append(temperatures, 0.5, 0.6, 1)), one("any top-p", shares)
		o.MinP = one("any min-p", append([]float64{0, 0, 0}, shares...))
		o.Repetition = one("any repetition", repetitions)
		o.Presence, o.Frequency = one("any presence", subtracted), one("any frequency", subtracted)
		o.Confidence, o.MaxVariation = one("confidence", []float64{0, 0.5, 0.995, 0.9999}), one("max variation", []float64{sample.ByChain, 0, 0.07, 1})
		s, err := sample.New(l, m, o)
		if err != nil {
			t.Fatal(err)
		}
		none := true
		for _, x := range definition(l, h, o, e) {
			none = none && !(x > 0)
		}
		for range 4 {
			token, err := s.Draw(h, e)
			if (err != nil) != none {
				t.Fatalf("%+v: error %v, expected one: %v", o, err, none)
			}
			if err != nil {
				return
			}
			if !(token.LogProb <= 0) || math.IsInf(token.LogProb, -1) || s.Stats().Layer == s.Stats().Draws && !follows(l, h, o, e, token, errorOf(l, o)) {
				t.Fatalf("%+v: found %+v, expected a log-probability of %v", o, token, math.Log(definition(l, h, o, e)[token.ID]))
			}
		}
	})
}

// A tail that is fitted for one temperature has no meaning far below it, and its estimate may
// overflow.
func TestLogProbabilitiesOfLowTemperaturesOverAScreen(t *testing.T) {
	const dim = 6
	l := newLayer(t, 51, 200, dim)
	m := everywhere(t, screened(t, l, 0.8, 0.5, 1))
	for _, temperature := range []float64{1e-100, 1e-30, 1e-3} {
		o := sample.DefaultOptions()
		o.Temperature, o.Confidence, o.MaxVariation = temperature, 0.5, 1
		s, err := sample.New(l, m, o)
		if err != nil {
			t.Fatal(err)
		}
		for c := range uint64(50) {
			for _, scale := range []float64{0.7, 1e10} {
				token, err := s.Draw(normals(newRand(c), dim, scale), sample.Edits{})
				if err != nil || !(token.LogProb <= 0) || math.IsInf(token.LogProb, -1) {
					t.Fatalf("T %v, context %d of scale %v: found %+v, %v, expected a finite log-probability", temperature, c, scale, token, err)
				}
			}
		}
	}
}

// After a top-k or a min-p a draw is among the edited candidates and the other labels that edits
// raise, for any size of the edits.
func TestEditedCandidatesAreTruncatedAsDefined(t *testing.T) {
	const labels, dim, budget = 1100, 6, 30
	l := newLayer(t, 52, labels, dim)
	m := everywhere(t, screened(t, l, 0.8, 0.5, 1))
	look, err := l2s.NewSearcher(l, m, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, rapid.SampledFrom([]float64{0.05, 0.7, 3}).Draw(t, "scale"))
		r := newRand(rapid.Uint64().Draw(t, "edits"))
		o, e := sample.DefaultOptions(), sample.Edits{Banned: setOf(labels)}
		o.MaxVariation, o.Budget, o.Temperature = 1, budget, rapid.SampledFrom([]float64{0, 0.5, 0.8, 1}).Draw(t, "temperature")
		o.TopK = rapid.SampledFrom([]int{0, 1, 5, 20, 40, 300}).Draw(t, "top-k")
		o.MinP = rapid.SampledFrom([]float64{1e-6, 0.05, 0.5}).Draw(t, "min-p")
		o.Repetition = rapid.SampledFrom([]float64{1, 1.1, 3, 100, 0.8}).Draw(t, "repetition")
		o.Presence = rapid.SampledFrom([]float64{0, 0.5, 30, -0.5}).Draw(t, "presence")
		head, ok, err := logsum.HeadOf((*engine.Searcher)(look).Screened(), h, budget, new(tail.Rest))
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		drawn := setOf(labels, head.IDs...)
		for id := range uint32(labels) {
			if r.IntN(20) == 0 {
				e.Biases = append(e.Biases, l2s.Bias{ID: id, Add: float32(4 * r.NormFloat64())})
				if e.Biases[len(e.Biases)-1].Add > 0 {
					drawn.Add(id)
				}
			}
		}
		for range rapid.SampledFrom([]int{0, 20, 2000}).Draw(t, "history") {
			e.History = append(e.History, uint32(r.IntN(labels)))
			if o.Repetition < 1 || o.Presence < 0 {
				drawn.Add(e.History[len(e.History)-1])
			}
		}
		for range rapid.SampledFrom([]int{0, 20, 500}).Draw(t, "banned") {
			e.Banned.Add(uint32(r.IntN(labels)))
		}
		s, err := sample.New(l, m, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Draw(h, e); err != nil {
			t.Fatal(err)
		}
		found, ok := s.Distribution(nil)
		if !ok || s.Stats().Layer > 0 {
			t.Fatalf("%+v: found no distribution, or one of the layer: %+v", o, s.Stats())
		}
		e.Allowed = drawn
		want := definition(l, h, o, e)
		for _, p := range found {
			if !(math.Abs(math.Exp(p.Logit)-want[p.ID]) < 1e-9) {
				t.Fatalf("%+v: found label %d of the probability %v, expected %v", o, p.ID, math.Exp(p.Logit), want[p.ID])
			}
			want[p.ID] = 0
		}
		for id, p := range want {
			if p > 0 {
				t.Fatalf("%+v: found no label %d, expected it with the probability %v", o, id, p)
			}
		}
	})
}
