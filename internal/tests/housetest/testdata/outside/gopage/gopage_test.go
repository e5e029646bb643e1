package gopage

import (
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
)

// world returns a layer and n contexts: labels and contexts lean towards one of 30 directions.
func world(labels, dim, n int) (weights, bias, contexts []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(n int, deviation float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(deviation * r.NormFloat64())
		}
		return x
	}
	directions := normal(30*dim, 1/math.Sqrt(float64(dim)))
	lean := func(x []float32, by float64) {
		direction := directions[r.IntN(30)*dim:]
		for i := range x {
			x[i] += float32(by) * direction[i]
		}
	}
	half := 0.5 / math.Sqrt(float64(dim))
	weights, bias, contexts = normal(labels*dim, half), make([]float32, labels), normal(n*dim, 10*half)
	for i := range bias {
		lean(weights[i*dim:][:dim], 0.3+0.7*r.Float64())
		bias[i] = float32(-0.1 * math.Log(float64(1+i)))
	}
	for i := range n {
		lean(contexts[i*dim:][:dim], 10)
	}
	return weights, bias, contexts
}

// bestOf returns the label with the largest of the logits that keep lets pass.
func bestOf(logits []float64, keep func(id uint32) bool) (best uint32) {
	highest := math.Inf(-1)
	for i, x := range logits {
		if keep(uint32(i)) && x > highest {
			best, highest = uint32(i), x
		}
	}
	return best
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFunctionsOfThePage(t *testing.T) {
	const labels, d, n, queries = 2000, 24, 6000, 60
	w, bias, contexts := world(labels, d, n+queries)
	layer, err := l2s.New(l2s.Float32(w, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := previewed(t.Context(), layer, contexts[:n*d], filepath.Join(t.TempDir(), "m.l2p"))
	if err != nil {
		t.Fatal(err)
	}
	screen, err := screened(t.Context(), layer, contexts[:n*d])
	if err != nil {
		t.Fatal(err)
	}
	byTail, err := l2s.NewSearcher(layer, screen, l2s.Options{OverTail: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(t.TempDir(), "cpu.out")
	if err := profiled(s.TopK, contexts[:40*d], d, 50*time.Millisecond, profile); err != nil {
		t.Fatal(err)
	}
	if text := unzipped(t, profile); !strings.Contains(text, "nanoseconds") {
		t.Errorf("found a file of %d bytes, expected a profile", len(text))
	}
	all := func(uint32) bool { return true }
	byPreview, byScreen, top := 0, 0, make([]l2s.Prediction, 5)
	for q := range queries {
		// The oracle: all logits by a plain loop.
		h := contexts[(n+q)*d:][:d]
		logits, sum, rest := make([]float64, labels), 0.0, 0.0
		for i := range logits {
			logits[i] = float64(bias[i])
			for j, x := range h {
				logits[i] += float64(w[i*d+j]) * float64(x)
			}
			sum += math.Exp(logits[i])
		}
		best := bestOf(logits, all)

		if got, err := exact(w, bias, h, d); err != nil || len(got) != 5 || got[0].ID != best {
			t.Fatalf("exact: found %v and the error %v, expected the best label %d", got, err, best)
		}
		if _, err := pool.TopK(top, h); err != nil {
			t.Fatal(err)
		} else if top[0].ID == best {
			byPreview++
		}
		banned, err := bitset.FromIDs(labels, []uint32{best})
		if err != nil {
			t.Fatal(err)
		}
		rest = sum - math.Exp(logits[best])
		second := bestOf(logits, func(id uint32) bool { return id != best })
		got, logProbs, err := ask(byTail, h, banned)
		if err != nil || len(got) != 5 {
			t.Fatalf("ask: found %v and the error %v, expected 5 labels", got, err)
		}
		if got[0].ID == second {
			byScreen++
		}
		for i, x := range got {
			if want := logits[x.ID] - math.Log(rest); x.ID == best || math.Abs(logProbs[i]-want) > 0.5 {
				t.Errorf("ask: found the label %d with the log-probability %v, expected %v and no label %d", x.ID, logProbs[i], want, best)
			}
		}

		ids := []uint32{}
		for id := uint32(q); id < labels; id += 97 {
			ids = append(ids, id)
		}
		want := bestOf(logits, func(id uint32) bool { return id%97 == uint32(q)%97 && id >= uint32(q) })
		id, logProb, err := choose(s, h, ids)
		if err != nil || id != want || math.Abs(logProb-(logits[want]-math.Log(sum))) > 1e-6 {
			t.Errorf("choose: found %d, %v and the error %v, expected %d, %v", id, logProb, err, want, logits[want]-math.Log(sum))
		}
	}
	if byPreview < 57 || byScreen < 54 {
		t.Errorf("found %d best labels by the preview and %d second ones by the screen, expected 57 and 54 of 60", byPreview, byScreen)
	}
	audit, err := watched(pool, layer, screen)
	if err != nil {
		t.Fatal(err)
	}
	defer audit.Stop()
	if err := pool.Do(func(s *l2s.Searcher) error {
		if s.Index() != screen {
			t.Error("watched: found another index, expected the newer one")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
