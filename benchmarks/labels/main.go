// Command labels measures the contexts labelled per second on one thread, and the rate of the
// matrix product of which the labels are the top-k: the rate of OpenBLAS's sgemm (built with -tags
// openblas) over blocks of contexts, without any selection, or of gonum's if that is not built in.
//
// Both run in one process and take turns. The rates come from the median round; the ratio is the
// ratio of the times within a round, with its quartiles. L2S_SIMD chooses the level of the labels,
// OPENBLAS_CORETYPE (Haswell for AVX2) the level of the product.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/train"
)

const k = 5

// sgemm sets dst, contexts x labels, to the logits without bias: OpenBLAS's,
// nil if it is not built in.
var sgemm func(dst, contexts, rows []float32, dim int)

func gonumSgemm(dst, contexts, rows []float32, dim int) {
	matrix := func(x []float32, cols int) blas32.General {
		return blas32.General{Rows: len(x) / cols, Cols: cols, Stride: cols, Data: x}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, matrix(contexts, dim), matrix(rows, dim), 0, matrix(dst, len(rows)/dim))
}

// blocks are the numbers of contexts that one product takes. The fastest is used.
var blocks = []int{64, 256, 1024}

type row struct {
	Shape   string  `json:"shape"`
	Product string  `json:"product"`
	Block   int     `json:"block"`  // contexts of one product
	SGEMM   float64 `json:"sgemm"`  // contexts per second
	Labels  float64 `json:"labels"` // contexts per second
	Ratio   float64 `json:"ratio"`  // labels to sgemm
	Q1      float64 `json:"ratio_q1"`
	Q3      float64 `json:"ratio_q3"`
}

func main() {
	rounds := flag.Int("rounds", 11, "`number` of rounds")
	contexts := flag.Int("contexts", 2048, "`number` of contexts of a round, a multiple of 1024")
	ptb := flag.String("ptb", "../../shared/data/ptb-small", "`folder` of a language model whose layer is the first shape; if it is absent a structured layer takes its place")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	runtime.GOMAXPROCS(1) // gonum uses GOMAXPROCS goroutines

	product := "OpenBLAS"
	if sgemm == nil {
		sgemm, product = gonumSgemm, "gonum"
		fmt.Fprintln(os.Stderr, "OpenBLAS is left out: build with -tags openblas (Debian: libopenblas-dev and pkg-config)")
	}
	var rows []row
	for _, s := range []struct {
		name                 string
		labels, dim, cluster int
	}{{"10,000 x 200", 10000, 200, 100}, {"25,000 x 500", 25000, 500, 100}} {
		data, name := (*synthetic.Data)(nil), s.name+", structured"
		if _, err := os.Stat(filepath.Join(*ptb, "model.safetensors")); err == nil && rows == nil {
			if data, err = layers.LanguageModel(*ptb, "ptb.test.txt", *contexts); err != nil {
				fmt.Fprintln(os.Stderr, "labels:", err)
				os.Exit(1)
			}
			name = s.name + ", PTB-Small"
		} else {
			data = synthetic.Structured(s.labels, s.dim, s.cluster, *contexts, 1)
		}
		r, err := both(data, *rounds)
		if err != nil {
			fmt.Fprintln(os.Stderr, "labels:", err)
			os.Exit(1)
		}
		r.Shape, r.Product = name, product
		rows = append(rows, r)
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"level": kernels.Level(), "k": k, "rounds": *rounds, "contexts": *contexts, "rows": rows}); err != nil {
			os.Exit(1)
		}
		return
	}
	fmt.Printf("level %s, exact top-%d, one thread, %d rounds of %d contexts\n\n", kernels.Level(), k, *rounds, *contexts)
	fmt.Println("| layer | labels, contexts/s | sgemm without top-k, contexts/s | ratio | quartiles |\n|---|---:|---:|---:|---:|")
	for _, r := range rows {
		fmt.Printf("| %s | %.0f | %.0f (%s, blocks of %d) | %.2f | %.2f - %.2f |\n", r.Shape, r.Labels, r.SGEMM, r.Product, r.Block, r.Ratio, r.Q1, r.Q3)
	}
}

// both measures the two in turns, each over all contexts of data.
func both(data *synthetic.Data, rounds int) (row, error) {
	l := data.Layer
	dim, n := l.Dim(), data.Len()
	logits, w := make([]float32, slices.Max(blocks)*l.Labels()), dense.Weights(l)
	multiply := func(block int) {
		for at := 0; at < n; at += block {
			h := data.Contexts[at*dim : min(at+block, n)*dim]
			sgemm(logits[:len(h)/dim*l.Labels()], h, w, dim)
		}
	}
	seconds := func(f func()) float64 {
		start := time.Now()
		f()
		return time.Since(start).Seconds()
	}
	r := row{Block: blocks[0]}
	multiply(r.Block) // warm-up
	best := seconds(func() { multiply(r.Block) })
	for _, block := range blocks[1:] {
		if t := seconds(func() { multiply(block) }); t < best {
			best, r.Block = t, block
		}
	}
	var products, labels, ratios []float64
	for range rounds {
		var err error
		products = append(products, seconds(func() { multiply(r.Block) }))
		labels = append(labels, seconds(func() {
			_, err = train.Labels(context.Background(), l, data.Contexts, k, train.RunOptions{Threads: 1})
		}))
		if err != nil {
			return r, err
		}
		ratios = append(ratios, products[len(products)-1]/labels[len(labels)-1])
	}
	r.SGEMM, r.Labels = float64(n)/measure.Quantile(products, 0.5), float64(n)/measure.Quantile(labels, 0.5)
	r.Ratio, r.Q1, r.Q3 = measure.Quantile(ratios, 0.5), measure.Quantile(ratios, 0.25), measure.Quantile(ratios, 0.75)
	return r, nil
}
