package main

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// Contexts and a layer without a finite regression make a screen without a tail, and the run
// reports it.
func TestTrainOnContextsWithoutAFiniteTail(t *testing.T) {
	for name, scale := range map[string]float32{"huge": 1e38, "tiny": 1e-38} {
		t.Run(name, func(t *testing.T) {
			dir := files(t)
			r := rand.New(rand.NewPCG(1, 2))
			x := make([]float32, 600*tinyDim)
			for i := range x {
				x[i] = scale * float32(r.Float64()-0.5)
			}
			if err := tensorfile.WriteNPY(filepath.Join(dir, "bad.npy"), x, 600, tinyDim); err != nil {
				t.Fatal(err)
			}
			got := invoke(t, dir, joined(goodTrain, "--contexts", "bad.npy")...)
			const want = "warning: tail: found contexts and a layer whose numbers are too large or too small for a regression: "
			if got.code != 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("found exit status %d and\n%s%sexpected 0 and %s", got.code, got.stdout, got.stderr, want)
			}
			expectIn(t, succeed(t, dir, "inspect", "out.l2s"), strings.TrimSpace(want))
		})
	}
}
