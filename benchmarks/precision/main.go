// Command precision shows the effect of the precision of a screen on the tokens that are drawn: a
// line for each budget of its ladder.
//
//	go run ./precision -head MODEL -screen m.l2s test.npy other.npy ...
//	go run ./precision -weights W -bias B -screen m.l2s test.npy
//
// P@1 and P@5 are the precisions on the contexts in the file. "greedy" is the share of contexts in
// which the best label differs from the layer's. The other columns are shares of draws that differ:
// both distributions, the screen's and the layer's, are computed after the same chain, and one
// random number chooses the label of both, by their cumulative sums in the order of logits. The
// candidates alone answer here, also if a draw's own bound would ask the layer; draws by the
// defaults of package sample differ less.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"text/tabwriter"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// most is the number of labels that a chain needs at most: min-p of .05 keeps 20.
const most = 40

// chains are the draws that are compared: each keeps some of the best labels, whose order it does
// not change.
var chains = []struct {
	name                    string
	temperature, topP, minP float64
}{
	{"llama.cpp", 0.8, 0.95, 0.05},
	{"T 1, top-k 40", 1, 1, 0},
	{"T 1, min-p .05", 1, 1, 0.05},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("precision: ")
	model := flag.String("head", "", "head of a model, as l2s --head takes it")
	weights := flag.String("weights", "", "weights of the layer, instead of -head")
	bias := flag.String("bias", "", "bias of the layer, with -weights")
	file := flag.String("screen", "", "screen file with a tail")
	n := flag.Int("n", 1000, "number of contexts that labels are drawn in, evenly spread")
	flag.Parse()
	source, opt := *model, head.Options{}
	if source == "" {
		source, opt.Bias = *weights, *bias
	}
	if err := run(source, opt, *file, flag.Args(), *n); err != nil {
		log.Fatal(err)
	}
}

// run prints a table for each file of contexts.
func run(source string, opt head.Options, file string, contexts []string, n int) error {
	h, err := head.Open(source, opt)
	if err != nil {
		return err
	}
	defer h.Close()
	if h.LogitScale() != 1 || h.SoftCap() != 0 {
		return fmt.Errorf("%s: found a logit scale or a soft cap, expected a head without", source)
	}
	layer, err := softmax.NewLayer(h.Rows(), h.Bias())
	if err != nil {
		return err
	}
	m, err := screen.Load(file)
	if err != nil {
		return err
	}
	for _, path := range contexts {
		all, release, err := layers.ReadRows(path, layer.Dim())
		if err != nil {
			return err
		}
		defer release()
		e, err := screen.Evaluate(context.Background(), m, layer, all, screen.EvaluateOptions{K: []int{1, min(5, layer.Labels())}})
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		hs := spread(all, layer.Dim(), n)
		exact, err := best(softmax.NewSearcher(layer), hs)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d contexts, %d of them drawn in\n", path, e.Contexts, len(hs))
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(w, "budget\tcandidates\tP@1\tP@5\tgreedy\t")
		for _, c := range chains {
			fmt.Fprintf(w, "%s\t", c.name)
		}
		fmt.Fprintln(w)
		for _, x := range e.Ladder {
			fmt.Fprintf(w, "%.0f\t%.0f\t%.4f\t%.4f\t%.2f%%\t", x.Budget, x.MeanCandidates, x.Precision1.Value, x.PrecisionK.Value, 100*(1-x.Precision1.Value))
			s, err := screen.NewSearcher(m, layer, screen.Options{Budget: x.Budget})
			if err != nil {
				return err
			}
			screened, err := best(s, hs)
			if err != nil {
				return err
			}
			for i := range chains {
				fmt.Fprintf(w, "%.2f%%\t", 100*differ(i, exact, screened))
			}
			fmt.Fprintln(w)
		}
		w.Flush()
	}
	return nil
}

// spread returns at most n rows, evenly spread.
func spread(all []float32, dim, n int) [][]float32 {
	rows := len(all) / dim
	n = min(n, rows)
	hs := make([][]float32, n)
	for i := range hs {
		at := i * rows / n * dim
		hs[i] = all[at : at+dim]
	}
	return hs
}

// best returns the best labels of each context, with their logits.
func best(s searcher, hs [][]float32) ([][]softmax.Prediction, error) {
	list := make([][]softmax.Prediction, len(hs))
	for i, h := range hs {
		list[i] = make([]softmax.Prediction, most)
		n, err := s.TopK(list[i], h)
		if err != nil {
			return nil, err
		}
		list[i] = list[i][:n]
	}
	return list, nil
}

// searcher is a search over a layer or a screen.
type searcher interface {
	TopK(dst []softmax.Prediction, h []float32) (int, error)
}

// draws is the number of random numbers for each context.
const draws = 64

// differ returns the share of draws whose labels differ at equal random numbers.
func differ(chain int, a, b [][]softmax.Prediction) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	count := 0
	for i := range a {
		p, q := weights(chain, a[i]), weights(chain, b[i])
		for range draws {
			u := r.Float64()
			if a[i][at(p, u)].ID != b[i][at(q, u)].ID {
				count++
			}
		}
	}
	return float64(count) / float64(len(a)*draws)
}

// weights returns the probabilities of the labels that a chain keeps: top-k, top-p at T = 1, min-p,
// then the temperature, in the order of llama.cpp.
func weights(chain int, best []softmax.Prediction) []float64 {
	c := chains[chain]
	p, sum := make([]float64, len(best)), 0.0
	for i, x := range best {
		p[i] = math.Exp(x.Logit - best[0].Logit)
		sum += p[i]
	}
	kept, mass := 0, 0.0
	for kept < len(p) && (kept == 0 || mass < c.topP*sum && p[kept] >= c.minP) {
		mass += p[kept]
		kept++
	}
	p, sum = p[:kept], 0
	for i := range p {
		p[i] = math.Pow(p[i], 1/c.temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// at returns the place of the label at the cumulative probability u.
func at(p []float64, u float64) int {
	for i, x := range p {
		if u -= x; u < 0 {
			return i
		}
	}
	return len(p) - 1
}
