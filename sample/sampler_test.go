package sample_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/train"
)

var drawn = flag.Int("draws", 5000, "draw so often where tests count draws")

func draws() int { return *drawn }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736d70)) }

func normals(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(scale * r.NormFloat64())
	}
	return x
}

func newLayer(t interface{ Fatal(...any) }, seed uint64, labels, dim int) *l2s.Layer {
	r := newRand(seed)
	l, err := l2s.New(l2s.Float32(normals(r, labels*dim, 1), dim), normals(r, labels, 1))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// definition is the distribution that a sampler draws from, by plain loops over all
// labels.
func definition(l *l2s.Layer, h []float32, o sample.Options, e sample.Edits) []float64 {
	return definitionOf(l, h, o, e, 0)
}

// definitionOf is definition, in which typical sampling has another order of labels at the same distance
// but for roundings: the likelier ones first if likelier is above 0, and last if it is below.
func definitionOf(l *l2s.Layer, h []float32, o sample.Options, e sample.Edits, likelier int) []float64 {
	n := l.Labels()
	x := make([]float64, n)
	inside := (*engine.Layer)(l).Exact()
	inside.Weights().RefScan(x, inside.Bias(), h)
	for id := range x {
		if x[id] *= inside.Scale(); inside.SoftCap() != 0 {
			x[id] = kernels.SoftCap(x[id], inside.SoftCap())
		}
	}
	temperature := 1.0
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	probabilities := func() []float64 {
		sum, p := 0.0, make([]float64, n)
		largest := math.Inf(-1)
		for _, id := range order {
			largest = max(largest, x[id])
		}
		for _, id := range order {
			p[id] = math.Exp((x[id] - largest) / temperature)
			sum += p[id]
		}
		for id := range p {
			p[id] /= sum
		}
		return p
	}
	byLogit := func() {
		sort.SliceStable(order, func(i, j int) bool { return x[order[i]] > x[order[j]] })
	}
	for _, step := range o.Order {
		switch step {
		case sample.Mask:
			for id := range x {
				if e.Allowed != nil && !e.Allowed.Has(uint32(id)) || e.Banned != nil && e.Banned.Has(uint32(id)) {
					x[id] = math.Inf(-1)
				}
			}
		case sample.Bias:
			for _, b := range e.Biases {
				x[b.ID] += float64(b.Add)
			}
		case sample.Penalties:
			for id := range x {
				count := 0
				for _, past := range e.History {
					if int(past) == id {
						count++
					}
				}
				if count == 0 {
					continue
				}
				if x[id] > 0 {
					x[id] /= o.Repetition
				} else {
					x[id] *= o.Repetition
				}
				x[id] -= float64(count)*o.Frequency + o.Presence
			}
		case sample.Temperature:
			if temperature = o.Temperature; temperature == 0 {
				temperature = 1
			}
		case sample.TopK:
			if o.TopK > 0 {
				byLogit()
				order = order[:min(o.TopK, len(order))]
			}
		case sample.TopP:
			if o.TopP < 1 {
				byLogit()
				p, sum := probabilities(), 0.0
				for i, id := range order {
					if sum += p[id]; sum >= o.TopP {
						order = order[:i+1]
						break
					}
				}
			}
		case sample.Typical:
			if o.Typical < 1 && !(slices.Contains(o.Order, sample.Temperature) && o.Temperature == 0) {
				byLogit()
				order = typical(order, probabilities(), o.Typical, likelier)
			}
		case sample.MinP:
			if o.MinP > 0 {
				byLogit()
				// Logarithms distinguish more numbers; math.Log is wrong below the normal numbers
				// on some CPUs.
				least, first, kept := math.Log2(o.MinP)*math.Ln2, x[order[0]], order[:0]
				for _, id := range order {
					if (x[id]-first)/temperature >= least {
						kept = append(kept, id)
					}
				}
				order = kept
			}
		}
	}
	if slices.Contains(o.Order, sample.Temperature) && o.Temperature == 0 {
		byLogit()
		order = order[:1]
	}
	p := probabilities()
	for id := range p {
		if math.IsInf(x[id], -1) {
			p[id] = 0
		}
	}
	return p
}

// typical keeps the labels that have the share, in order of the distance of their surprise from the
// entropy; see definitionOf for likelier.
func typical(order []int, p []float64, share float64, likelier int) []int {
	entropy := 0.0
	for _, id := range order {
		if p[id] > 0 {
			entropy -= p[id] * math.Log(p[id])
		}
	}
	far := func(id int) float64 { return math.Abs(-math.Log(p[id]) - entropy) }
	near := slices.Clone(order)
	sort.SliceStable(near, func(i, j int) bool {
		a, b := far(near[i]), far(near[j])
		if likelier == 0 {
			return a < b
		}
		const digits = 1e13 // more than roundings leave
		if a, b = math.Round(a*digits), math.Round(b*digits); a != b {
			return a < b
		}
		return float64(likelier)*p[near[i]] > float64(likelier)*p[near[j]]
	})
	sum := 0.0
	for i, id := range near {
		if sum += p[id]; sum >= share {
			near = near[:i+1]
			break
		}
	}
	kept := slices.DeleteFunc(slices.Clone(order), func(id int) bool { return !slices.Contains(near, id) })
	return kept
}

func setOf(labels int, ids ...uint32) *bitset.Set {
	s := bitset.New(labels)
	for _, id := range ids {
		s.Add(id)
	}
	return s
}

// configuration is a setting of the processors, and edits for 40 labels.
type configuration struct {
	name   string
	change func(o *sample.Options)
	edits  sample.Edits
}

func configurations(labels int) []configuration {
	all := sample.Edits{
		Banned: setOf(labels, 1, 7, 30), Biases: []l2s.Bias{{ID: 2, Add: 1.5}, {ID: 9, Add: -2}, {ID: 30, Add: 9}},
		History: []uint32{4, 2, 4, 11, 4, 39},
	}
	return []configuration{
		{"nothing", func(*sample.Options) {}, sample.Edits{}},
		{"temperature", func(o *sample.Options) { o.Temperature = 0.7 }, sample.Edits{}},
		{"a high temperature", func(o *sample.Options) { o.Temperature = 2.5 }, sample.Edits{}},
		{"biases", func(*sample.Options) {}, sample.Edits{Biases: all.Biases}},
		{"banned", func(*sample.Options) {}, sample.Edits{Banned: all.Banned}},
		{"allowed", func(*sample.Options) {}, sample.Edits{Allowed: setOf(labels, 0, 3, 8, 21, 33)}},
		{"repetition", func(o *sample.Options) { o.Repetition = 1.8 }, sample.Edits{History: all.History}},
		{"presence", func(o *sample.Options) { o.Presence = 1 }, sample.Edits{History: all.History}},
		{"frequency", func(o *sample.Options) { o.Frequency = -0.5 }, sample.Edits{History: all.History}},
		{"top-k", func(o *sample.Options) { o.TopK = 6 }, sample.Edits{}},
		{"top-p", func(o *sample.Options) { o.TopP = 0.8 }, sample.Edits{}},
		{"min-p", func(o *sample.Options) { o.MinP = 0.1 }, sample.Edits{}},
		{"top-p at a temperature", func(o *sample.Options) { o.TopP, o.Temperature = 0.8, 1.6 }, sample.Edits{}},
		{"min-p at a temperature", func(o *sample.Options) { o.MinP, o.Temperature = 0.1, 0.6 }, sample.Edits{}},
		{"typical", func(o *sample.Options) { o.Typical = 0.7 }, sample.Edits{}},
		{"typical at a temperature", func(o *sample.Options) { o.Typical, o.TopK, o.Temperature = 0.6, 20, 1.6 }, sample.Edits{}},
		{"everything", func(o *sample.Options) {
			o.TopK, o.TopP, o.MinP, o.Temperature, o.Repetition, o.Presence, o.Frequency = 12, 0.9, 0.02, 1.3, 1.3, 0.2, 0.1
		}, all},
	}
}

var orders = []struct {
	name  string
	steps []sample.Step
}{{"llama.cpp", sample.LlamaCPP()}, {"vLLM", sample.VLLM()}, {"Hugging Face", sample.HuggingFace()}}

// chiSquare returns the distance of Pearson's statistic above its mean, in standard deviations;
// labels that are expected fewer than 10 times count together.
func chiSquare(t *testing.T, counts []int, p []float64) float64 {
	t.Helper()
	n := 0
	for id, c := range counts {
		n += c
		if c > 0 && p[id] == 0 {
			t.Fatalf("label %d was drawn %d times, its probability is 0", id, c)
		}
	}
	x, bins, restCount, rest := 0.0, 0, 0, 0.0
	for id, c := range counts {
		if want := p[id] * float64(n); want >= 10 {
			x += (float64(c) - want) * (float64(c) - want) / want
			bins++
		} else {
			restCount, rest = restCount+c, rest+want
		}
	}
	if rest >= 1 {
		x += (float64(restCount) - rest) * (float64(restCount) - rest) / rest
		bins++
	}
	if bins < 2 {
		return 0
	}
	df := float64(bins - 1)
	return (x - df) / math.Sqrt(2*df)
}

// follow demands that draws of a sampler have the distribution of the definition.
func follow(t *testing.T, s *sample.Sampler, err error, l *l2s.Layer, h []float32, o sample.Options, e sample.Edits) sample.Stats {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	// 5 standard deviations of a sum of squares: about 1 in 10,000 at worst, and the seed is fixed.
	if x := chiSquare(t, countOf(t, draws(), s, h, e, l.Labels()), definition(l, h, o, e)); x > 5 {
		t.Errorf("chi-square %.1f standard deviations above its mean", x)
	}
	return s.Stats()
}

func countOf(t *testing.T, n int, s *sample.Sampler, h []float32, e sample.Edits, labels int) []int {
	t.Helper()
	counts := make([]int, labels)
	for range n {
		token, err := s.Draw(h, e)
		if err != nil {
			t.Fatal(err)
		}
		counts[token.ID]++
	}
	return counts
}

// Every processor, in every order, gives the distribution of its definition.
func TestDrawsHaveTheDistribution(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 40, 8
	plain := newLayer(t, 1, labels, dim)
	h := normals(newRand(2), dim, 0.7)
	for _, final := range finals {
		l, orders := final.of(t, plain), orders
		if final.scale != 1 || final.cap != 0 { // TestDrawsAreOfFinalLogits has every order
			orders = orders[:1]
		}
		for _, order := range orders {
			for _, c := range configurations(labels) {
				t.Run(final.name+"/"+order.name+"/"+c.name, func(t *testing.T) {
					o := sample.DefaultOptions()
					o.Order, o.Seed = order.steps, 3
					c.change(&o)
					s, err := sample.New(l, nil, o)
					follow(t, s, err, l, h, o, c.edits)
				})
			}
		}
	}
}

// screened returns a screen for the layer, whose lists all lack labels, with a longer list within a
// second budget, and a tail that contexts have fitted.
func screened(t *testing.T, l *l2s.Layer, share float64, temperatures ...float64) *l2s.Index {
	t.Helper()
	r, d := newRand(5), l.Dim()
	const clusters = 2
	c := screening.Config{Dim: d, Labels: l.Labels(), Clusters: normals(r, clusters*d, 1), Lists: make([]screening.List, clusters), Ladder: []screening.Rung{{Budget: 10, Share: 2000}, {Budget: 30, Share: 1000}}, Budget: 10}
	for i := range c.Lists {
		list := &c.Lists[i]
		var last []uint32
		for id := range uint32(l.Labels()) {
			switch x := r.Float64(); {
			case x < share*0.8:
				list.IDs, list.Shares = append(list.IDs, id), append(list.Shares, 2000)
			case x < share:
				last = append(last, id)
			}
		}
		for _, id := range last {
			list.IDs, list.Shares = append(list.IDs, id), append(list.Shares, 1000)
		}
	}
	m, err := synthetic.Screen(c)
	if err != nil {
		t.Fatal(err)
	}
	contexts := 3000
	if l.Labels() > 1000 {
		contexts = 1000
	}
	opt := train.DefaultTailOptions()
	opt.Temperatures, opt.Share, opt.PerCluster = temperatures, 1, 3000
	fitted, _, err := train.FitTail(context.Background(), l, m, normals(r, contexts*d, 0.7), opt, train.RunOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return fitted
}

// everywhere is a screen whose tail takes all contexts for such as it was fitted to.
func everywhere(t *testing.T, of *l2s.Index) *l2s.Index {
	m := (*engine.Index)(of).Screen()
	c := m.Tail().Config()
	c.Ranges = slices.Clone(c.Ranges)
	for i := range c.Ranges {
		c.Ranges[i] = math.Inf(2*(i%2) - 1)
	}
	c.Cosines = slices.Repeat([]float64{math.Inf(-1)}, len(c.Cosines))
	with, err := tail.New(c)
	if err != nil {
		t.Fatal(err)
	}
	config := m.Config()
	config.Tail = with
	if m, err = screening.NewModel(config); err != nil {
		t.Fatal(err)
	}
	return (*l2s.Index)(engine.OfScreen(m))
}

// Over a screen a draw without truncation has the distribution of the layer: the sets
// lack a third of the labels, and the exact layer makes up for it.
func TestDrawsOverAScreenHaveTheDistribution(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 40, 8
	for _, final := range finals {
		if final.cap == 0 && final.scale <= 1 {
			drawsOverAScreen(t, final.name, final.of(t, newLayer(t, 1, labels, dim)))
		}
	}
}

func drawsOverAScreen(t *testing.T, name string, l *l2s.Layer) {
	labels, dim := l.Labels(), l.Dim()
	// A tail is of logits without a scale. It has the temperatures of draws of logits with it.
	m := screened(t, l, 0.66, 0.6/l.Info().Scale, 1/l.Info().Scale, 2/l.Info().Scale)
	for i := range 4 {
		h := normals(newRand(uint64(20+i)), dim, 0.7)
		for _, c := range configurations(labels)[:9] {
			for _, temperature := range []float64{0.7, 1} {
				t.Run(fmt.Sprint(name, "/", i, "/", temperature, "/", c.name), func(t *testing.T) {
					o := sample.DefaultOptions()
					o.Order = orders[i%len(orders)].steps
					o.Seed, o.Temperature, o.Confidence = uint64(i), temperature, 0.99
					c.change(&o)
					s, err := sample.New(l, m, o)
					st := follow(t, s, err, l, h, o, c.edits)
					if st.Draws != uint64(draws()) || st.Layer == 0 && l.Info().Scale == 1 { // small logits leave less to the layer than biases
						t.Errorf("stats %+v, want draws of which the layer answered some", st)
					}
					if asked := c.edits.Allowed != nil || o.Temperature > 2; !asked && st.Layer == st.Draws || st.Variation != 0 {
						t.Errorf("stats %+v, want draws of which the screen answered some, of the layer's distribution", st)
					}
				})
			}
		}
	}
}

// drawOptions draws options and edits for a layer of that many labels.
func drawOptions(t *rapid.T, labels int) (sample.Options, sample.Edits) {
	o := sample.DefaultOptions()
	o.Order = rapid.SampledFrom(orders).Draw(t, "order").steps
	o.Seed = rapid.Uint64().Draw(t, "seed")
	o.Temperature = rapid.SampledFrom([]float64{0, 0.3, 0.7, 1, 1.7}).Draw(t, "temperature")
	o.TopK = rapid.SampledFrom([]int{0, 0, 1, 3, 20, 1000}).Draw(t, "top-k")
	o.TopP = rapid.SampledFrom([]float64{1, 1, 0.2, 0.77, 0.99}).Draw(t, "top-p")
	o.MinP = rapid.SampledFrom([]float64{0, 0, 0.013, 0.3, 1}).Draw(t, "min-p")
	o.Typical = rapid.SampledFrom([]float64{1, 1, 1, 0.6, 0.9}).Draw(t, "typical")
	o.Repetition = rapid.SampledFrom([]float64{1, 0.5, 1.4}).Draw(t, "repetition")
	o.Presence = rapid.SampledFrom([]float64{0, 0.7, -0.6}).Draw(t, "presence")
	o.Frequency = rapid.SampledFrom([]float64{0, 0.3, -0.2}).Draw(t, "frequency")
	ids := func(name string, most int) []uint32 {
		return rapid.SliceOfN(rapid.Uint32Range(0, uint32(labels-1)), 0, most).Draw(t, name)
	}
	var e sample.Edits
	e.History = ids("history", 12)
	if rapid.Bool().Draw(t, "banned") {
		e.Banned = setOf(labels, ids("banned labels", labels)...)
	}
	if rapid.IntRange(0, 3).Draw(t, "allowed") == 0 {
		e.Allowed = setOf(labels, ids("allowed labels", labels)...)
	}
	for id := range setOf(labels, ids("biased", 5)...).All() {
		e.Biases = append(e.Biases, l2s.Bias{ID: id, Add: float32(rapid.IntRange(-3, 3).Draw(t, "bias"))})
	}
	return o, e
}

// The same draws on every level, over a layer and over a screen, and no memory for any.
func TestTheSameTokensOnEveryLevel(t *testing.T) {
	for _, labels := range []int{300, 1500} { // draws from 1500 labels use intervals
		checkLevels(t, labels)
	}
}

func checkLevels(t *testing.T, labels int) {
	const dim = 16
	l := newLayer(t, 9, labels, dim)
	m := screened(t, l, 0.6, 0.7, 1)
	hs := normals(newRand(10), 50*dim, 0.7)
	for i, c := range configurations(labels) {
		o := sample.DefaultOptions()
		o.Order, o.Seed = orders[i%len(orders)].steps, 11
		c.change(&o)
		var want []sample.Token
		simdtest.EachLevel(t, func(t *testing.T) {
			var got []sample.Token
			for _, over := range []func() (*sample.Sampler, error){
				func() (*sample.Sampler, error) { return sample.New(l, nil, o) },
				func() (*sample.Sampler, error) { return sample.New(l, m, o) },
			} {
				s, err := over()
				if err != nil {
					t.Fatal(err)
				}
				for i := range 50 {
					token, err := s.Draw(hs[i*dim:(i+1)*dim], c.edits)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, token)
				}
				i := 0
				if n := simdtest.AllocsPerRun(50, func() { _, _ = s.Draw(hs[i%50*dim:][:dim], c.edits); i++ }); n != 0 {
					t.Errorf("%s: %v allocations a draw, want none", c.name, n)
				}
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: other tokens", c.name)
			}
		})
	}
}

// Draws over a screen with any truncation have the layer's distribution if no variation is allowed.
func TestTruncatedDrawsOverAScreenHaveTheDistribution(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 40, 8
	l := newLayer(t, 1, labels, dim)
	m := screened(t, l, 0.66, 0.6, 1, 2)
	for i := range 3 {
		h := normals(newRand(uint64(20+i)), dim, 0.7)
		for _, c := range configurations(labels)[9:] {
			t.Run(fmt.Sprint(orders[i].name, "/", c.name), func(t *testing.T) {
				o := sample.DefaultOptions()
				o.Order, o.Seed, o.Confidence, o.MaxVariation = orders[i].steps, uint64(i), 0.99, 0
				c.change(&o)
				s, err := sample.New(l, m, o)
				if st := follow(t, s, err, l, h, o, c.edits); st.Draws != uint64(draws()) || st.Variation != 0 {
					t.Errorf("stats %+v, want draws of the layer's distribution", st)
				}
			})
		}
	}
}

// The distribution of draws over a screen is no farther from the layer's distribution than the
// draws report, except for the share of the contexts that the confidence allows; and the draws
// follow the distribution that they report.
func TestVariationIsBounded(t *testing.T) {
	const labels, dim, n = 200, 8, 400
	l := newLayer(t, 13, labels, dim)
	m := screened(t, l, 0.9, 0.7, 1)
	hs := normals(newRand(14), n*dim, 0.7)
	e := sample.Edits{
		Banned: setOf(labels, 1, 7, 30), Biases: []l2s.Bias{{ID: 2, Add: 1.5}, {ID: 9, Add: -2}, {ID: 30, Add: 9}, {ID: 50, Add: 1}},
		History: []uint32{4, 2, 4, 11, 4, 39, 77},
	}
	for _, c := range []struct {
		name   string
		change func(o *sample.Options)
	}{
		{"greedy", func(o *sample.Options) { o.Temperature = 0 }},
		{"top-k", func(o *sample.Options) { o.TopK = 10 }},
		{"top-k at a cold temperature", func(o *sample.Options) { o.TopK, o.Temperature = 10, 0.3 }},
		{"top-k at a warm temperature", func(o *sample.Options) { o.TopK, o.Temperature = 10, 1.5 }},
		{"min-p", func(o *sample.Options) { o.MinP = 0.1 }},
		{"llama.cpp's", func(o *sample.Options) { o.TopK, o.TopP, o.MinP, o.Temperature = 40, 0.95, 0.05, 0.8 }},
		{"vLLM's", func(o *sample.Options) {
			o.Order, o.TopK, o.TopP, o.MinP, o.Temperature = sample.VLLM(), 20, 0.8, 0.02, 0.7
		}},
		{"Hugging Face's", func(o *sample.Options) {
			o.Order, o.TopK, o.TopP, o.Temperature = sample.HuggingFace(), 20, 0.8, 0.8
		}},
		{"top-p, then min-p", func(o *sample.Options) { o.TopP, o.MinP = 0.8, 0.05 }},
		{"top-p", func(o *sample.Options) { o.TopP, o.MaxVariation = 0.5, 1 }},
		{"typical after top-k", func(o *sample.Options) { o.TopK, o.Typical = 10, 0.7 }},
		{"more than the set", func(o *sample.Options) { o.TopK = 190 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sample.DefaultOptions()
			o.Repetition, o.Presence = 1.2, 0.1
			c.change(&o)
			s, err := sample.New(l, m, o)
			if err != nil {
				t.Fatal(err)
			}
			wrong, far, bounded, exact := 0, 0, 0, s.Stats().Layer
			var drawn []l2s.Prediction
			for i := range n {
				h := hs[i*dim : (i+1)*dim]
				token, err := s.Draw(h, e)
				if err != nil {
					t.Fatal(err)
				}
				var ok bool
				before := exact
				if exact = s.Stats().Layer; exact > before { // the context is out of the tail's range
					if token.Variation != 0 {
						t.Errorf("context %d: found a draw of the exact layer that is off by %v", i, token.Variation)
					}
					continue
				}
				if drawn, ok = s.Distribution(drawn[:0]); !ok {
					t.Fatal("found no distribution, expected the candidates' distribution")
				}
				q, known := make([]float64, labels), false
				for _, x := range drawn {
					q[x.ID] = math.Exp(x.Logit)
					known = known || x.ID == token.ID && math.Abs(x.Logit-token.LogProb) < 1e-9
				}
				if !known {
					t.Errorf("context %d: found %+v, expected a token of %v", i, token, drawn)
				}
				switch v := variation(q, definition(l, h, o, e)); {
				case v > token.Variation+1e-9:
					wrong++
				case v > 0.001:
					far++
				}
				if token.Variation < 1 {
					bounded++
				}
			}
			if c.name == "top-k" && exact > n/40 {
				t.Errorf("found %d of %d draws by the exact layer, expected few", exact, n)
			}
			// A twentieth, and three standard deviations.
			if wrong > 33 {
				t.Errorf("%d of %d draws are from farther away than their bound, want a twentieth at most", wrong, n)
			}
			if s.Stats().Layer == 0 && bounded == 0 {
				t.Error("found no bound below 1, expected some")
			}
			if c.name == "top-k" && far == 0 {
				t.Error("found no draw that is not of the layer's distribution, expected some: the sets lack labels")
			}
		})
	}
}

// With an allowed variation the draws differ by at most that variation, whichever list answers.
func TestAnAllowedVariationIsNotExceeded(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 40, 8
	l := newLayer(t, 1, labels, dim)
	m := screened(t, l, 0.8, 0.6, 1, 2)
	for i := range 6 {
		h := normals(newRand(uint64(20+i)), dim, 0.9)
		for _, allowed := range []float64{0.05, 0.2, 0.5} {
			o := sample.DefaultOptions()
			o.Order, o.TopP, o.Confidence, o.MaxVariation = sample.VLLM(), 0.9, 0.99, allowed
			s, err := sample.New(l, m, o)
			if err != nil {
				t.Fatal(err)
			}
			drawn, stated := make([]float64, labels), 0.0
			for range draws() {
				token, err := s.Draw(h, sample.Edits{})
				if err != nil {
					t.Fatal(err)
				}
				drawn[token.ID] += 1 / float64(draws())
				stated = max(stated, token.Variation)
			}
			off := variation(drawn, definition(l, h, o, sample.Edits{}))
			if stated > allowed || off > stated+0.5*math.Sqrt(labels/float64(draws())) {
				t.Errorf("context %d: draws are %.3f away, and state %.3f, expected at most %v", i, off, stated, allowed)
			}
		}
	}
}

// With default options a chain with a top-k or a min-p does not ask the layer, and any other chain
// asks it for draws that the candidates do not decide; an allowed variation avoids that.
func TestWhenTheLayerIsAsked(t *testing.T) {
	const labels, dim, n = 200, 8, 300
	const unlike = 0.01 // the share of contexts that the tail was not fitted to
	l := newLayer(t, 13, labels, dim)
	m := screened(t, l, 0.9, 0.7, 1)
	hs := normals(newRand(15), n*dim, 0.7)
	share := func(change func(o *sample.Options), e sample.Edits) float64 {
		o := sample.DefaultOptions()
		change(&o)
		s, err := sample.New(l, m, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := s.Draw(hs[i*dim:(i+1)*dim], e); err != nil {
				t.Fatal(err)
			}
		}
		return float64(s.Stats().Layer) / n
	}
	many := bitset.New(labels)
	many.Fill()
	for id := range uint32(5) {
		many.Remove(40 * id)
	}
	for _, c := range []struct {
		name        string
		change      func(o *sample.Options)
		edits       sample.Edits
		least, most float64
	}{
		{"top-k", func(o *sample.Options) { o.TopK = 10 }, sample.Edits{}, 0, unlike},
		{"min-p", func(o *sample.Options) { o.MinP = 0.4 }, sample.Edits{}, 0, unlike},
		{"top-p before min-p", func(o *sample.Options) { o.TopP, o.MinP = 0.9, 0.1 }, sample.Edits{}, 0, unlike},
		{"greedy", func(o *sample.Options) { o.Temperature = 0 }, sample.Edits{}, 0, unlike},
		{"top-k of the layer's distribution", func(o *sample.Options) { o.TopK, o.MaxVariation = 10, 0 }, sample.Edits{}, 0.01, 0.8},
		{"top-p", func(o *sample.Options) { o.TopP = 0.9 }, sample.Edits{}, 0.01, 0.7},
		{"all", func(*sample.Options) {}, sample.Edits{}, 0.01, 0.7},
		{"all, any variation", func(o *sample.Options) { o.MaxVariation = 1 }, sample.Edits{}, 0, unlike},
		{"allowed labels", func(o *sample.Options) { o.TopK = 10 }, sample.Edits{Allowed: setOf(labels, 3)}, 1, 1},
		{"few left", func(o *sample.Options) { o.TopK = 10 }, sample.Edits{Banned: many}, 0.5, 1},
	} {
		if x := share(c.change, c.edits); x < c.least || x > c.most {
			t.Errorf("%s: the layer answered %.2f of the draws, expected %v to %v", c.name, x, c.least, c.most)
		}
	}
}

// A nucleus of all labels is the one of the definition, also if roundings leave its sum
// below the share, and at temperatures at which all labels weigh the same or one has
// all the weight.
func TestNucleiAtTheLimits(t *testing.T) {
	const labels, dim = 3000, 8
	l := newLayer(t, 17, labels, dim)
	h := normals(newRand(18), dim, 0.7)
	for _, c := range []struct {
		name           string
		temperature, p float64
		least, most    int // labels drawn
	}{
		{"all but rounding", 1e6, math.Nextafter(1, 0), 1500, labels},
		{"half of equal ones", 1e300, 0.5, 1000, labels/2 + 1},
		{"the best alone", exact.MinTemperature, 0.5, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sample.DefaultOptions()
			o.Order, o.Temperature, o.TopP = sample.VLLM(), c.temperature, c.p
			s, err := sample.New(l, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[uint32]bool{}
			for range labels {
				token, err := s.Draw(h, sample.Edits{})
				if err != nil {
					t.Fatal(err)
				}
				seen[token.ID] = true
			}
			if len(seen) < c.least || len(seen) > c.most {
				t.Errorf("found %d different labels in %d draws, expected %d to %d", len(seen), labels, c.least, c.most)
			}
		})
	}
}

func TestSamplersRefuse(t *testing.T) {
	l := newLayer(t, 1, 10, 3)
	for _, c := range []struct {
		name   string
		change func(o *sample.Options)
		want   string
	}{
		{"temperature", func(o *sample.Options) { o.Temperature = -1 }, "sample: temperature: found -1"},
		{"NaN", func(o *sample.Options) { o.Temperature = math.NaN() }, "sample: temperature: found NaN"},
		{"a temperature too small", func(o *sample.Options) { o.Temperature = 1e-101 }, "sample: temperature: found 1e-101, expected 0, or a finite number of at least 1e-100"},
		{"top-k", func(o *sample.Options) { o.TopK = -1 }, "sample: top-k: found -1"},
		{"top-p", func(o *sample.Options) { o.TopP = 0 }, "sample: top-p: found 0, expected above 0 and at most 1"},
		{"min-p", func(o *sample.Options) { o.MinP = 1.5 }, "sample: min-p: found 1.5"},
		{"repetition", func(o *sample.Options) { o.Repetition = 0 }, "sample: repetition: found 0"},
		{"a repetition too small", func(o *sample.Options) { o.Repetition = 1e-320 }, "sample: repetition: found 1e-320, expected 2^-100 to 2^100"},
		{"a repetition too large", func(o *sample.Options) { o.Repetition = 1e308 }, "sample: repetition: found 1e+308, expected 2^-100 to 2^100"},
		{"frequency", func(o *sample.Options) { o.Frequency = 1e308 }, "sample: frequency: found 1e+308, expected at most 2^100 in magnitude"},
		{"a negative frequency", func(o *sample.Options) { o.Frequency = -1.7e308 }, "sample: frequency: found -1.7e+308"},
		{"presence", func(o *sample.Options) { o.Presence = math.Inf(1) }, "sample: presence: found +Inf"},
		{"max variation", func(o *sample.Options) { o.MaxVariation = -0.5 }, "sample: max variation: found -0.5, expected 0 to 1, or -1 for ByChain"},
		{"typical", func(o *sample.Options) { o.Typical = 1.5 }, "sample: typical: found 1.5, expected above 0 and at most 1"},
		{"budget", func(o *sample.Options) { o.Budget = -1 }, "sample: budget: found -1"},
		{"confidence", func(o *sample.Options) { o.Confidence = 1 }, "sample: confidence: found 1"},
		{"the zero value", func(o *sample.Options) { *o = sample.Options{} }, "sample: top-p: found 0, expected above 0 and at most 1: start from DefaultOptions and change what you need"},
		{"twice", func(o *sample.Options) { o.Order = []sample.Step{sample.TopK, sample.TopK} }, "sample: order: found top-k twice"},
		{"an edit after a truncation", func(o *sample.Options) { o.Order = []sample.Step{sample.TopK, sample.Bias} }, "sample: order: found bias after top-k"},
		{"no step", func(o *sample.Options) { o.Order = []sample.Step{99} }, "sample: order: found Step(99) at 0"},
	} {
		o := sample.DefaultOptions()
		c.change(&o)
		if _, err := sample.New(l, nil, o); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
	o := sample.DefaultOptions()
	o.TopK = -1
	if _, err := sample.New(l, nil, o); err == nil || strings.Contains(err.Error(), "DefaultOptions") {
		t.Errorf("an option that was set: error %v, want one without a word of the defaults", err)
	}
	s, err := sample.New(l, nil, sample.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	h := make([]float32, 3)
	for _, c := range []struct {
		name string
		h    []float32
		e    sample.Edits
		kind error
	}{
		{"context", h[1:], sample.Edits{}, l2s.ErrContext},
		{"biases", h, sample.Edits{Biases: []l2s.Bias{{ID: 11}}}, l2s.ErrRequest},
		{"banned", h, sample.Edits{Banned: bitset.New(9)}, l2s.ErrRequest},
	} {
		if _, err := s.Draw(c.h, c.e); !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.kind)
		}
	}
	// An id that is no label cannot be drawn or penalised: the draws are the same without it.
	for _, penalty := range []float64{1, 1.5} {
		o := sample.DefaultOptions()
		o.Repetition, o.Seed = penalty, 5
		with, err := sample.New(l, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		without, err := sample.New(l, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			history := []uint32{1, 2, 2}
			a, errA := with.Draw(h, sample.Edits{History: []uint32{10, 1, 2, 1 << 31, 2, 128256}})
			b, errB := without.Draw(h, sample.Edits{History: history})
			if errA != nil || errB != nil || a != b {
				t.Fatalf("penalty %v, draw %d: found %v, %v, want %v, %v", penalty, i, a, errA, b, errB)
			}
		}
	}
	m, err := synthetic.Screen(screening.Config{Dim: 3, Labels: 10, Clusters: make([]float32, 3), Lists: make([]screening.List, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sample.New(l, m, sample.DefaultOptions()); err == nil || !strings.Contains(err.Error(), "without a tail") {
		t.Errorf("a screen without a tail: error %v", err)
	}
}
