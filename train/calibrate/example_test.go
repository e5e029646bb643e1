package calibrate_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// Calibration takes the smallest budget of a screen that reaches a precision with confidence,
// on contexts that the screen was not trained on.
func ExampleRun() {
	const labels, dim, n = 200, 4, 20000
	random := rand.New(rand.NewPCG(1, 2))
	weights, contexts := make([]float32, labels*dim), make([]float32, n*dim)
	for i := range weights {
		weights[i] = float32(random.NormFloat64())
	}
	for i := range contexts {
		contexts[i] = float32(random.NormFloat64())
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, dim), nil)
	if err != nil {
		log.Fatal(err)
	}
	seen, others := contexts[:n/2*dim], contexts[n/2*dim:]
	model, _, err := train.Run(context.Background(), layer, seen, train.DefaultOptions())
	if err != nil {
		log.Fatal(err)
	}
	opt := calibrate.DefaultOptions() // confidence 0.95
	opt.Target = 0.99                 // P@5
	calibrated, found, err := calibrate.Run(context.Background(), model, layer, others, opt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("above 0.99:", found.Calibrated.Precision > 0.99)
	fmt.Println("a smaller budget:", calibrated.Budget() < model.Budget())
	// Output:
	// above 0.99: true
	// a smaller budget: true
}
