package screen_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Errors are left out for brevity. A model from training comes from
// screen.Load("model.l2s") instead.
func Example() {
	weights := []float32{2, 0, 1, 0, 0, 2, 0, 1} // 4 labels in 2 dimensions
	layer, _ := softmax.NewLayer(kernels.Float32Rows(weights, 2), []float32{0, 0.5, 0, 0.5})
	model, _ := screen.NewModel(screen.Config{
		Dim: 2, Labels: 4,
		Clusters: []float32{1, 0, 0, 1},                                       // contexts that point right, and up
		Lists:    []screen.List{{IDs: []uint32{0, 1}}, {IDs: []uint32{2, 3}}}, // the labels worth a look in each
	})
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
	model, err := screen.NewModel(screen.Config{
		Dim: 2, Labels: 6, Clusters: []float32{1, 0}, Lists: []screen.List{{IDs: []uint32{0, 1, 2, 4, 5}}},
	})
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "l2s")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "m.l2s")
	if err := model.Save(path); err != nil {
		panic(err)
	}
	arrays := filepath.Join("..", "head", "testdata", "contexts") // 6 labels in 2 dimensions
	s, err := open(filepath.Join(arrays, "W.npy"), filepath.Join(arrays, "b.npy"), path)
	if err != nil {
		panic(err)
	}
	top, err := topFive(s, []float32{4, -1})
	fmt.Println(top, err)
	// Output: [{0 4} {2 3} {4 1} {1 -0.5} {5 -3}] <nil>
}
