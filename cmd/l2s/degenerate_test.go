package main

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// A regression that has no finite solution is an error that names the contexts.
func TestTrainOnContextsWithoutAFiniteTail(t *testing.T) {
	for name, scale := range map[string]float32{"huge": 1e38, "tiny": 1e-38} {
		t.Run(name, func(t *testing.T) {
			dir := files(t)
			r := rand.New(rand.NewPCG(1, 2))
			x := make([]float32, 600*tinyDim)
			for i := range x {
				x[i] = scale * float32(r.Float64()-0.5)
			}
			writeFile(t, filepath.Join(dir, "bad.txt"), []byte(asText(x, tinyDim, " ", "\n")))
			got := l2s(t, dir, joined(goodTrain, "--tail", "regression", "--contexts", "bad.txt")...)
			const want = "l2s train: bad.txt: tail: found contexts and a layer whose numbers are too large or too small for a regression: "
			if lines := strings.Split(strings.TrimSpace(got.stderr), "\n"); got.code != 1 || !strings.HasPrefix(lines[len(lines)-1], want) {
				t.Errorf("found exit status %d and\n%sexpected 1 and %s", got.code, got.stderr, want)
			}
		})
	}
}
