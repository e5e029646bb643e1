package l2s_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/preview"
)

// The best two of four labels. A searcher is for one goroutine: keep it for the next context.
func ExampleNew() {
	weights := []float32{1, 0 /**/, 0, 1 /**/, 1, 1 /**/, -1, 0} // a row of two numbers per label
	layer, err := l2s.New(l2s.Float32(weights, 2), []float32{0, 0.5, -1, 0})
	if err != nil {
		log.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{}) // nil: the exact search
	if err != nil {
		log.Fatal(err)
	}
	top := make([]l2s.Prediction, 2)
	n, err := searcher.TopK(top, []float32{2, 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(top[:n]) // equal logits are in the order of their ids
	// Output: [{0 2} {2 2}]
}

// numpyFile writes a matrix of float32 as NumPy's np.save does.
func numpyFile(path string, rows, columns int, x []float32) error {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	file := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", header)
	for _, v := range x {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(v))
	}
	return os.WriteFile(path, file, 0o666)
}

// A layer in a file, which may be a GGUF file or a folder of Hugging Face too. The rows stay in the
// file.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "l2s")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "W.npy")
	if err := numpyFile(file, 3, 2, []float32{1, 0, 0, 1, 1, 1}); err != nil {
		log.Fatal(err)
	}

	layer, err := l2s.Open(file, l2s.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer layer.Close()
	fmt.Println(layer.Labels(), "labels, contexts of", layer.Dim(), "numbers,", layer.Info().Type)
	// Output: 3 labels, contexts of 2 numbers, float32
}

// made returns a layer of 3,000 labels, 2,000 contexts for it, and a preview made of them.
func made() (*l2s.Layer, []float32, *l2s.Index) {
	const labels, dim, contexts = 3000, 32, 2000
	random := rand.New(rand.NewPCG(1, 2))
	weights, states := make([]float32, labels*dim), make([]float32, contexts*dim)
	for i := range weights {
		weights[i] = float32(random.NormFloat64())
	}
	for i := range states { // near the row of a label
		states[i] = 2*weights[i] + float32(random.NormFloat64())
	}
	layer, err := l2s.New(l2s.Float32(weights, dim), nil)
	if err != nil {
		log.Fatal(err)
	}
	index, err := preview.Make(context.Background(), layer, l2s.Float32(states, layer.Dim()), preview.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return layer, states, index
}

// An index is made once, saved, and loaded by the programs that search.
func ExampleLoad() {
	layer, states, made := made()
	dir, err := os.MkdirTemp("", "l2s")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "m.l2p")
	if err := made.Save(file); err != nil {
		log.Fatal(err)
	}

	index, err := l2s.Load(file)
	if err != nil {
		log.Fatal(err)
	}
	steps, normal := index.Steps() // measured on contexts that the index was not made from
	fmt.Println("a", index.Kind()+", P@1 above .99:", steps[normal].Precision1.Value > 0.99)
	searcher, err := l2s.NewSearcher(layer, index, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	top := make([]l2s.Prediction, 1)
	if _, err := searcher.TopK(top, states[7*layer.Dim():][:layer.Dim()]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("label", top[0].ID)
	// Output:
	// a preview, P@1 above .99: true
	// label 7
}

// A searcher gives probabilities, too, and counts its work.
func ExampleSearcher() {
	layer, err := l2s.New(l2s.Float32([]float32{1, 0, 0, 1, 1, 1, -1, 0}, 2), nil)
	if err != nil {
		log.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	h := []float32{2, 1}
	top := make([]l2s.Prediction, 1)
	if _, err := searcher.TopK(top, h); err != nil {
		log.Fatal(err)
	}
	logProb, err := searcher.LogProb(h, top[0].ID, 1) // at temperature 1
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("label %d, probability %.2f, %d query\n", top[0].ID, math.Exp(logProb), searcher.Stats().Queries)
	// Output: label 2, probability 0.66, 1 query
}

// Edits take part in the search: no label is banned after the fact.
func ExampleRequest() {
	layer, err := l2s.New(l2s.Float32([]float32{1, 0, 0, 1, 1, 1, -1, 0}, 2), nil)
	if err != nil {
		log.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	banned, err := bitset.FromIDs(layer.Labels(), []uint32{2})
	if err != nil {
		log.Fatal(err)
	}
	top := make([]l2s.Prediction, 2)
	ask := func(r l2s.Request) {
		a, err := searcher.Search(top, []float32{2, 1}, r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v, log-sum %.3f\n", top[:a.Count], a.LogSum)
	}
	ask(l2s.Request{})
	ask(l2s.Request{Banned: banned, LogSum: true})
	ask(l2s.Request{Biases: []l2s.Bias{{ID: 1, Add: 3}}})
	ask(l2s.Request{Among: l2s.Only([]uint32{1, 3})})
	ask(l2s.Request{Within: 0.5})
	// Output:
	// [{2 3} {0 2}], log-sum -Inf
	// [{0 2} {1 1}], log-sum 2.327
	// [{1 4} {2 3}], log-sum -Inf
	// [{1 1} {3 -2}], log-sum -Inf
	// [{2 3}], log-sum -Inf
}

// A pool answers any number of goroutines, and takes another index while they ask.
func ExamplePool_Swap() {
	layer, states, index := made()
	pool, err := l2s.NewPool(layer, nil, l2s.Options{}) // the exact search, until there is an index
	if err != nil {
		log.Fatal(err)
	}
	h := states[:layer.Dim()]
	top := make([]l2s.Prediction, 1)
	best := func() {
		a, err := pool.Search(top, h, l2s.Request{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("label", top[0].ID, "among all labels:", a.Exact)
	}
	best()
	drained, err := pool.Swap(layer, index)
	if err != nil {
		log.Fatal(err)
	}
	<-drained // no query uses the old layer and index any more
	best()
	// Output:
	// label 0 among all labels: true
	// label 0 among all labels: false
}

// Do lends a searcher, for methods that a pool does not have.
func ExamplePool_Do() {
	layer, err := l2s.New(l2s.Float32([]float32{1, 0, 0, 1, 1, 1, -1, 0}, 2), nil)
	if err != nil {
		log.Fatal(err)
	}
	pool, err := l2s.NewPool(layer, nil, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	logits := make([]float64, 2)
	err = pool.Do(func(s *l2s.Searcher) error {
		return s.Logits(logits, []float32{2, 1}, l2s.Only([]uint32{3, 1}))
	})
	fmt.Println(logits, err)
	// Output: [-2 1] <nil>
}

// An audit answers some queries exactly too, in the background, and calls Alarm if more labels are
// missed than the steps of the index promise.
func ExamplePool_Audit() {
	layer, states, index := made()
	pool, err := l2s.NewPool(layer, index, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	audit, err := pool.Audit(l2s.AuditOptions{Alarm: func(a l2s.Alarm) { fmt.Println(a.Of, a.Text) }})
	if err != nil {
		log.Fatal(err)
	}
	top, dim := make([]l2s.Prediction, 5), layer.Dim()
	for i := range 1000 {
		if _, err := pool.TopK(top, states[i*dim:][:dim]); err != nil {
			log.Fatal(err)
		}
	}
	audit.Stop() // or report from time to time, and let it run as long as the pool
	report := audit.Report()
	fmt.Println("queries sampled:", report.Sampled > 0, "alarms:", len(report.Alarms), "error:", report.Err)
	// Output: queries sampled: true alarms: 0 error: <nil>
}
