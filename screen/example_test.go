package screen_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// made is a model of lists; screen.Load opens one that l2s train, or package train, has made.
func made(dim, labels int, clusters []float32, lists ...[]uint32) *screen.Model {
	c := screening.Config{Dim: dim, Labels: labels, Clusters: clusters}
	for _, ids := range lists {
		c.Lists = append(c.Lists, screening.List{IDs: ids})
	}
	m, err := synthetic.Screen(c)
	if err != nil {
		panic(err)
	}
	return m
}

// Errors are left out for brevity. A model from training comes from
// screen.Load("model.l2s") instead.
func Example() {
	weights := []float32{2, 0, 1, 0, 0, 2, 0, 1} // 4 labels in 2 dimensions
	layer, _ := softmax.NewLayer(kernels.Float32Rows(weights, 2), []float32{0, 0.5, 0, 0.5})
	model := made(2, 4,
		[]float32{1, 0, 0, 1},          // clusters of contexts that point right, and up
		[]uint32{0, 1}, []uint32{2, 3}) // the labels worth a look in each
	searcher, _ := screen.NewSearcher(model, layer, screen.Options{}) // one for each goroutine
	top := make([]softmax.Prediction, 2)
	n, _ := searcher.TopK(top, []float32{3, 1})
	fmt.Println(top[:n])
	// Output: [{0 6} {1 3.5}]
}

// open and topFive are the example of the README.
func open(weights, bias, path string) (*screen.Searcher, error) { // once
	w, err := head.Open(weights, head.Options{Bias: bias, Copy: true}) // "W.npy", "b.npy"
	if err != nil {
		return nil, err
	}
	layer, err := softmax.NewLayer(w.Rows(), w.Bias())
	if err != nil {
		return nil, err
	}
	model, err := screen.Load(path) // "m.l2s", the output of l2s train
	if err != nil {
		return nil, err
	}
	return screen.NewSearcher(model, layer, screen.Options{}) // for one goroutine; screen.NewPool is for many
}

func topFive(s *screen.Searcher, h []float32) ([]softmax.Prediction, error) {
	top := make([]softmax.Prediction, 5)
	n, err := s.TopK(top, h) // h: the context vector of this step
	return top[:n], err
}

func ExampleSearcher_TopK() {
	model := made(2, 6, []float32{1, 0}, []uint32{0, 1, 2, 4, 5})
	dir, err := os.MkdirTemp("", "l2s")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "m.l2s")
	if err := model.Save(path); err != nil {
		panic(err)
	}
	arrays := filepath.Join("..", "internal", "heads", "testdata", "contexts") // 6 labels in 2 dimensions
	s, err := open(filepath.Join(arrays, "W.npy"), filepath.Join(arrays, "b.npy"), path)
	if err != nil {
		panic(err)
	}
	top, err := topFive(s, []float32{4, -1})
	fmt.Println(top, err)
	// Output: [{0 4} {2 3} {4 1} {1 -0.5} {5 -3}] <nil>
}
