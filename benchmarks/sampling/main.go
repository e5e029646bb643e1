// Command sampling measures draws of labels over a screen against the layer's own
// distribution: how far they are from it, how many the exact layer answers, and what
// they cost.
//
//	go run ./sampling -weights W -bias B -screen m.l2s -contexts test.npy
//	go run ./sampling -head MODEL -screen m.l2s -contexts test.npy
//
// The total variation is that between the distribution of the screened sampler and
// the layer's, after the same processors in the order of vLLM: the mean over the
// contexts. The sampler's is told by the probabilities of the tokens in many
// draws; what they leave open counts as wrong. Draws that are exact by their grade
// count as 0. Times are means of single draws, the two samplers in turns.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// settings are what is measured.
var settings = []struct {
	name string
	set  func(o *sample.Options)
}{
	{"T = 1", func(o *sample.Options) {}},
	{"T = 0.7", func(o *sample.Options) { o.Temperature = 0.7 }},
	{"T = 1, top-p 0.9", func(o *sample.Options) { o.TopP = 0.9 }},
	{"T = 0.8, top-p 0.9", func(o *sample.Options) { o.Temperature, o.TopP = 0.8, 0.9 }},
	{"T = 0.7, top-p 0.9", func(o *sample.Options) { o.Temperature, o.TopP = 0.7, 0.9 }},
	{"T = 1, top-k 40", func(o *sample.Options) { o.TopK = 40 }},
	{"T = 1, min-p 0.05", func(o *sample.Options) { o.MinP = 0.05 }},
}

func main() {
	log.SetFlags(0)
	model := flag.String("head", "", "head of a model, as l2s --head takes it")
	weights := flag.String("weights", "", "weights of the layer, instead of -head")
	bias := flag.String("bias", "", "bias of the layer, with -weights")
	file := flag.String("screen", "", "screen file with a tail")
	contexts := flag.String("contexts", "", ".npy file of contexts")
	n := flag.Int("n", 1000, "number of contexts, evenly spread")
	draws := flag.Int("draws", 300, "draws of a context that tell the sampler's distribution")
	turns := flag.Int("turns", 1, "timed draws of a context")
	outside := flag.Float64("max-outside", sample.DefaultOptions().MaxOutside, "MaxOutside of the sampler")
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
	t, err := tensorfile.OpenMatrix(*contexts)
	if err != nil {
		log.Fatal(err)
	}
	all, err := t.Float32s()
	if err != nil {
		log.Fatal(err)
	}
	rows := len(all) / layer.Dim()
	*n = min(*n, rows)
	var hs [][]float32
	for i := range *n {
		at := i * rows / *n
		hs = append(hs, all[at*layer.Dim():(at+1)*layer.Dim()])
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d contexts, %d labels, level %s\t\t\t\t\t\t\t\n", *n, layer.Labels(), kernels.Level())
	fmt.Fprintln(w, "\ttotal variation\tlayer asked\twithin the bound\tscreen\tall logits\tlayer\tall logits")
	for _, s := range settings {
		if *only != "" && *only != s.name {
			continue
		}
		o := sample.DefaultOptions()
		o.Order, o.Seed, o.MaxOutside = sample.VLLM(), 1, *outside
		s.set(&o)
		r, err := measure(m, layer, hs, o, *draws, *turns)
		if err != nil {
			log.Fatal(err)
		}
		variation := "-" // the probability of a token is an estimate then
		if !math.IsNaN(r.variation) {
			variation = fmt.Sprintf("%.4f", r.variation)
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f%%\t%.1f%%\t%.1f us\t%.1f%%\t%.1f us\t%.1f%%\n", s.name, variation, 100*r.layer, 100*r.bounded, r.screened.Seconds()*1e6, 100*r.passes, r.exact.Seconds()*1e6, 100*r.full)
	}
	w.Flush()
}

// result is what is measured of a setting.
type result struct {
	variation       float64
	layer, bounded  float64       // shares of the draws
	passes, full    float64       // the shares that computed all logits, over the screen and over the layer
	screened, exact time.Duration // of a draw
}

func measure(m *screen.Model, l *softmax.Layer, hs [][]float32, o sample.Options, draws, turns int) (*result, error) {
	s, err := sample.NewScreened(m, l, o)
	if err != nil {
		return nil, err
	}
	full, err := sample.New(l, o)
	if err != nil {
		return nil, err
	}
	var r result
	for i := range max(turns, 1) * len(hs) { // one query after the other, as a decoder asks
		h := hs[i%len(hs)]
		start := time.Now()
		if _, err := s.Draw(h, sample.Edits{}); err != nil {
			return nil, err
		}
		half := time.Now()
		if _, err := full.Draw(h, sample.Edits{}); err != nil {
			return nil, err
		}
		r.screened, r.exact = r.screened+half.Sub(start), r.exact+time.Since(half)
	}
	stats, timed := s.Stats(), max(turns, 1)*len(hs)
	r.layer, r.bounded = float64(stats.Layer)/float64(stats.Draws), float64(stats.Bounded)/float64(stats.Draws)
	r.passes, r.full = float64(stats.Passes)/float64(stats.Draws), float64(full.Stats().Passes)/float64(stats.Draws)
	r.screened, r.exact = r.screened/time.Duration(timed), r.exact/time.Duration(timed)
	if o.TopK == 0 && o.TopP == 1 && o.MinP == 0 {
		r.variation = math.NaN()
		return &r, nil
	}
	for _, h := range hs {
		v, err := variation(s, l, h, o, draws)
		if err != nil {
			return nil, err
		}
		r.variation += v / float64(len(hs))
	}
	return &r, nil
}

// variation is the total variation between the sampler's distribution and the layer's
// in the context h.
func variation(s *sample.Sampler, l *softmax.Layer, h []float32, o sample.Options, draws int) (float64, error) {
	seen := map[uint32]float64{}
	for range draws {
		token, err := s.Draw(h, sample.Edits{})
		if err != nil {
			return 0, err
		}
		if token.Grade == sample.Exact {
			return 0, nil
		}
		seen[token.ID] = math.Exp(token.LogProb)
	}
	p := probabilities(l, h, o)
	ids := make([]uint32, 0, len(seen))
	for id := range seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	v, mine, theirs := 0.0, 1.0, 1.0
	for _, id := range ids {
		v += math.Abs(seen[id] - p[id])
		mine, theirs = mine-seen[id], theirs-p[id]
	}
	return (v + max(mine, 0) + max(theirs, 0)) / 2, nil
}

// probabilities returns the probabilities of the layer after the temperature, min-p, top-k and top-p, by
// their definition.
func probabilities(l *softmax.Layer, h []float32, o sample.Options) []float64 {
	x := make([]float64, l.Labels())
	l.Weights().RefScan(x, l.Bias(), h)
	for i := range x {
		x[i] /= o.Temperature
	}
	p := make([]float64, len(x))
	kernels.Softmax(p, x)
	order := make([]uint32, len(p))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		switch {
		case x[a] > x[b] || x[a] == x[b] && a < b:
			return -1
		}
		return 1
	})
	n := len(order)
	if o.MinP > 0 {
		n = 0
		for n < len(order) && p[order[n]] >= o.MinP*p[order[0]] {
			n++
		}
	}
	if o.TopK > 0 {
		n = min(n, o.TopK)
	}
	total := 0.0
	for _, id := range order[:n] {
		total += p[id]
	}
	if o.TopP < 1 {
		sum := 0.0
		for i, id := range order[:n] {
			if sum += p[id]; sum >= o.TopP*total {
				n, total = i+1, sum
				break
			}
		}
	}
	for _, id := range order[n:] {
		p[id] = 0
	}
	for _, id := range order[:n] {
		p[id] /= total
	}
	return p
}
