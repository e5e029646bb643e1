package calibrate_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// A screen of two clusters, each with the labels that point its way, misses most
// where a context lies between the two. Calibration finds how close is too close.
func ExampleRun() {
	const labels, dim, n = 200, 2, 20000
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
	sets := make([][]uint32, 2)
	for s := range uint32(labels) {
		if weights[s*dim] > 0 {
			sets[0] = append(sets[0], s)
		} else {
			sets[1] = append(sets[1], s)
		}
	}
	model, err := screen.NewModel(screen.Config{
		Dim: dim, Labels: labels, Clusters: []float32{1, 0, -1, 0}, Sets: sets,
	})
	if err != nil {
		log.Fatal(err)
	}

	opt := calibrate.DefaultOptions() // P@5 of 0.99 with confidence 0.95
	calibrated, found, err := calibrate.Run(context.Background(), model, layer, contexts, opt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("plain screen above 0.99:", found.Plain.Precision > 0.99)
	fmt.Println("calibrated above 0.99:", found.Calibrated.Precision > 0.99)
	fmt.Println("two clusters below a margin:", calibrated.ProbeMargin() > 0)
	// Output:
	// plain screen above 0.99: false
	// calibrated above 0.99: true
	// two clusters below a margin: true
}
