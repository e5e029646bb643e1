// Command sampling measures draws of labels over a screen against the layer's own distribution:
// their distance from it, the number that the exact layer answers, and their cost.
//
//	go run ./sampling -weights W -bias B -screen m.l2s -contexts test.npy
//	go run ./sampling -head MODEL -screen m.l2s -contexts test.npy
//
// The total variation is the one between the distribution of the candidates and the layer's, after
// the same edits and truncations, both computed: the mean over the contexts that the candidates
// answer alone. Other columns have the share of contexts in which it is 0, the mean of the bounds
// that the draws state, and the share of contexts in which it is above the bound. A draw of any
// other kind has the layer's distribution, and counts as 0. Times are times of single draws, in the
// order of the contexts: median and 99th percentile of the least time of each context in a few
// passes, which other work on the machine hardly touches, and the mean of all. "exact" are draws
// over the layer.
//
// Edits are penalties over the best labels of the 200 contexts before, 20 banned labels
// and 20 biases of -2 to 2, of labels that are the best of some context.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// settings are the settings that are measured.
var settings = []struct {
	name   string
	edited bool
	set    func(o *sample.Options)
}{
	{"llama.cpp's chain, edits", true, func(o *sample.Options) { llamaCPP(o); o.Repetition = 1.1 }},
	{"llama.cpp's chain", false, llamaCPP},
	{"T .8, top-k 40", false, func(o *sample.Options) { o.TopK, o.Temperature = 40, 0.8 }},
	{"T .8, top-k 40, exact", false, func(o *sample.Options) { o.TopK, o.Temperature, o.MaxVariation = 40, 0.8, 0 }},
	{"T 1, min-p .05", false, func(o *sample.Options) { o.MinP = 0.05 }},
	{"T .8, top-k 50, typical .9", false, func(o *sample.Options) {
		o.Order, o.TopK, o.Typical, o.Temperature = sample.HuggingFace(), 50, 0.9, 0.8
	}},
	{"T .8, then top-p .95", false, func(o *sample.Options) { o.Order, o.TopP, o.Temperature = sample.VLLM(), 0.95, 0.8 }},
	{"top-p .95, then T .8", false, func(o *sample.Options) { o.TopP, o.Temperature = 0.95, 0.8 }},
	{"T .8, then top-p .95, edits", true, func(o *sample.Options) {
		o.Order, o.TopP, o.Temperature, o.Repetition = sample.VLLM(), 0.95, 0.8, 1.1
	}},
	{"T .8, then top-p .95, by .05", false, func(o *sample.Options) {
		o.Order, o.TopP, o.Temperature, o.MaxVariation = sample.VLLM(), 0.95, 0.8, 0.05
	}},
	{"T .8", false, func(o *sample.Options) { o.Temperature = 0.8 }},
	{"T 1", false, func(o *sample.Options) {}},
}

// llamaCPP are the defaults of llama.cpp.
func llamaCPP(o *sample.Options) {
	o.TopK, o.TopP, o.MinP, o.Temperature = 40, 0.95, 0.05, 0.8
}

func main() {
	log.SetFlags(0)
	model := flag.String("head", "", "head of a model, as l2s --head takes it")
	weights := flag.String("weights", "", "weights of the layer, instead of -head")
	bias := flag.String("bias", "", "bias of the layer, with -weights")
	file := flag.String("screen", "", "screen file with a tail")
	contexts := flag.String("contexts", "", ".npy file of contexts")
	n := flag.Int("n", 1000, "number of contexts, evenly spread")
	budget := flag.Float64("budget", 0, "budget of the sampler, 0 for the screen's own")
	exact := flag.Bool("exact", false, "time draws over the layer too")
	passes := flag.Int("passes", 3, "passes over the contexts: the time of a draw is its least")
	distance := flag.Bool("distance", true, "compute total variations")
	only := flag.String("only", "", "measure the setting of that name alone")
	flag.Parse()
	source, opt := *model, head.Options{}
	if source == "" {
		source, opt.Bias = *weights, *bias
	}
	h, err := head.Open(source, opt)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if h.LogitScale() != 1 || h.SoftCap() != 0 {
		log.Fatal("found a head with a logit scale or a soft cap, expected one without")
	}
	layer, err := softmax.NewLayer(h.Rows(), h.Bias())
	if err != nil {
		log.Fatal(err)
	}
	m, err := screen.Load(*file)
	if err != nil {
		log.Fatal(err)
	}
	all, _, err := layers.ReadRows(*contexts, layer.Dim())
	if err != nil {
		log.Fatal(err)
	}
	rows := len(all) / layer.Dim()
	*n = min(*n, rows)
	contextsOf := func(i int) []float32 { return all[i*layer.Dim() : (i+1)*layer.Dim()] }
	look, err := screen.NewSearcher(m, layer, screen.Options{})
	if err != nil {
		log.Fatal(err)
	}
	best, top := make([]uint32, rows), make([]softmax.Prediction, 1)
	for i := range best {
		if _, err := look.TopK(top, contextsOf(i)); err != nil {
			log.Fatal(err)
		}
		best[i] = top[0].ID
	}
	edited := editsOf(best, layer.Labels())
	var hs [][]float32
	var es []sample.Edits
	for i := range *n {
		at := i * rows / *n
		e := edited
		e.History = best[max(at-200, 0):at]
		hs, es = append(hs, contextsOf(at)), append(es, e)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d contexts, %d labels, level %s\t\t\t\t\t\t\t\t\t\n", *n, layer.Labels(), kernels.Level())
	fmt.Fprintln(w, "\tvariation\tnone\tstated\tabove it\tmedian\tp99\tmean\tmore\tlayer\texact, mean")
	for _, set := range settings {
		if *only != "" && *only != set.name {
			continue
		}
		o := sample.DefaultOptions()
		o.Seed, o.Budget = 1, *budget
		set.set(&o)
		mine := make([]sample.Edits, len(hs))
		if set.edited {
			mine = es
		}
		r, err := measure(m, layer, hs, mine, o, *exact, *distance, *passes)
		if err != nil {
			log.Fatal(err)
		}
		us := func(d time.Duration) string { return fmt.Sprintf("%.1f us", d.Seconds()*1e6) }
		fmt.Fprintf(w, "%s\t%.5f\t%.1f%%\t%.4f\t%.2f%%\t%s\t%s\t%s\t%.1f%%\t%.1f%%\t%s\n", set.name, r.variation, 100*r.none, r.stated, 100*r.above,
			us(r.median), us(r.p99), us(r.mean), 100*r.more, 100*r.layer, us(r.exact))
	}
	w.Flush()
}

// editsOf bans and biases 20 labels each, out of the best labels of a context.
func editsOf(best []uint32, labels int) (e sample.Edits) {
	distinct := slices.Clone(best)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(distinct), func(i, j int) { distinct[i], distinct[j] = distinct[j], distinct[i] })
	e.Banned = bitset.New(labels)
	for i, id := range distinct[:min(40, len(distinct))] {
		if i%2 == 0 {
			e.Banned.Add(id)
		} else {
			e.Biases = append(e.Biases, softmax.Bias{ID: id, Add: float32(4*r.Float64() - 2)})
		}
	}
	slices.SortFunc(e.Biases, func(a, b softmax.Bias) int { return cmp.Compare(a.ID, b.ID) })
	return e
}

// result has the measurements of a setting.
type result struct {
	variation, none, stated, above float64
	median, p99, mean, exact       time.Duration // of a draw
	more, layer                    float64       // shares of the draws
}

func measure(m *screen.Model, l *softmax.Layer, hs [][]float32, es []sample.Edits, o sample.Options, exact, distance bool, passes int) (*result, error) {
	s, err := sample.NewScreened(m, l, o)
	if err != nil {
		return nil, err
	}
	full, err := sample.New(l, o)
	if err != nil {
		return nil, err
	}
	for i := range min(100, len(hs)) { // memory grows
		if _, err := s.Draw(hs[i], es[i]); err != nil {
			return nil, err
		}
	}
	var r result
	before := s.Stats()
	times := make([]time.Duration, len(hs))
	var sum time.Duration
	for pass := range max(passes, 1) {
		for i, h := range hs { // one query after the other, as a decoder asks
			start := time.Now()
			if _, err := s.Draw(h, es[i]); err != nil {
				return nil, err
			}
			t := time.Since(start)
			if sum += t; pass == 0 || t < times[i] {
				times[i] = t
			}
		}
	}
	n := float64(max(passes, 1) * len(hs))
	r.mean = time.Duration(float64(sum) / n)
	slices.Sort(times)
	r.median, r.p99 = times[len(times)/2], times[len(times)*99/100]
	stats := s.Stats()
	r.more, r.layer = float64(stats.More-before.More)/n, float64(stats.Layer-before.Layer)/n
	r.stated = (stats.Variation - before.Variation) / n
	if exact {
		for i, h := range hs[:min(len(hs), 300)] {
			start := time.Now()
			if _, err := full.Draw(h, es[i]); err != nil {
				return nil, err
			}
			r.exact += time.Since(start) / time.Duration(min(len(hs), 300))
		}
	}
	if !distance {
		return &r, nil
	}
	n = float64(len(hs))
	var drawn []softmax.Prediction
	d := definition{layer: l, x: make([]float64, l.Labels())}
	for i, h := range hs {
		before := s.Stats().Layer
		token, err := s.Draw(h, es[i])
		if err != nil {
			return nil, err
		}
		v := 0.0
		var ok bool
		if drawn, ok = s.Distribution(drawn[:0]); ok && s.Stats().Layer == before {
			v = variation(drawn, d.probabilities(h, es[i], &o))
		}
		r.variation += v / n
		if v < 1e-9 {
			r.none += 1 / n
		}
		if v > token.Variation+1e-9 {
			r.above += 1 / n
		}
	}
	return &r, nil
}

// variation is the total variation between two distributions, the first by logarithms.
func variation(drawn []softmax.Prediction, p map[uint32]float64) float64 {
	v, common := 0.0, 0.0
	for _, x := range drawn {
		v += math.Abs(math.Exp(x.Logit) - p[x.ID])
		common += p[x.ID]
	}
	return (v + max(1-common, 0)) / 2
}

// definition computes a layer's distribution after the edits and the truncations, by all of its
// logits.
type definition struct {
	layer *softmax.Layer
	x     []float64
	order []uint32
}

// least is the depth below the largest logit, in units of the temperature, down to which labels
// count.
const least = 30

func (d *definition) probabilities(h []float32, e sample.Edits, o *sample.Options) map[uint32]float64 {
	x := d.x
	d.layer.Weights().RefScan(x, d.layer.Bias(), h)
	times := map[uint32]int{}
	for _, id := range e.History {
		times[id]++
	}
	for _, step := range o.Order {
		switch step {
		case sample.Mask:
			if e.Banned != nil {
				for id := range e.Banned.All() {
					x[id] = math.Inf(-1)
				}
			}
		case sample.Bias:
			for _, b := range e.Biases {
				x[b.ID] += float64(b.Add)
			}
		case sample.Penalties:
			for id, n := range times {
				if x[id] > 0 {
					x[id] /= o.Repetition
				} else {
					x[id] *= o.Repetition
				}
				x[id] -= float64(n)*o.Frequency + o.Presence
			}
		}
	}
	largest := slices.Max(x)
	d.order = d.order[:0]
	for id, v := range x {
		if v > largest-least {
			d.order = append(d.order, uint32(id))
		}
	}
	slices.SortFunc(d.order, func(a, b uint32) int {
		if x[a] > x[b] || x[a] == x[b] && a < b {
			return -1
		}
		return 1
	})
	order, temperature := d.order, 1.0
	share := func() ([]float64, float64) {
		p, sum := make([]float64, len(order)), 0.0
		for i, id := range order {
			p[i] = math.Exp((x[id] - largest) / temperature)
			sum += p[i]
		}
		return p, sum
	}
	for _, step := range o.Order {
		p, sum := share()
		switch step {
		case sample.Temperature:
			temperature = o.Temperature
		case sample.TopK:
			if o.TopK > 0 {
				order = order[:min(o.TopK, len(order))]
			}
		case sample.TopP:
			have := 0.0
			for i := range p {
				if have += p[i]; o.TopP < 1 && have >= o.TopP*sum {
					order = order[:i+1]
					break
				}
			}
		case sample.MinP:
			for i := range p {
				if p[i] < o.MinP*p[0] {
					order = order[:i]
					break
				}
			}
		case sample.Typical:
			if o.Typical < 1 {
				order = typical(order, p, sum, o.Typical)
			}
		}
	}
	left := map[uint32]float64{}
	p, sum := share()
	for i, id := range order {
		left[id] = p[i] / sum
	}
	return left
}

// typical keeps the labels that have a share of the sum of the weights p, labels nearest to the
// entropy first.
func typical(order []uint32, p []float64, sum, share float64) []uint32 {
	entropy := 0.0
	for _, w := range p {
		if w > 0 {
			entropy -= w / sum * math.Log(w/sum)
		}
	}
	at := make([]int, len(p))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int {
		return cmp.Compare(math.Abs(-math.Log(p[i]/sum)-entropy), math.Abs(-math.Log(p[j]/sum)-entropy))
	})
	n, have := 0, 0.0
	for n < len(at) && have < share*sum {
		have += p[at[n]]
		n++
	}
	slices.Sort(at[:n])
	kept := make([]uint32, n)
	for i, j := range at[:n] {
		kept[i] = order[j]
	}
	return kept
}
