package llamacpp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

const (
	madeLabels = 4000
	madeDim    = 40
)

// madeHead writes a head whose rows lean towards topics, and returns its file, its rows and
// contexts that lean so too.
func madeHead(t *testing.T, seed uint64) (path string, rows, contexts []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	const topics = 20
	of := make([]float32, topics*madeDim)
	for i := range of {
		of[i] = float32(r.NormFloat64())
	}
	leaning := func(n int, noise float64) []float32 {
		x := make([]float32, n*madeDim)
		for i := range n {
			topic := r.IntN(topics)
			for j := range madeDim {
				x[i*madeDim+j] = (of[topic*madeDim+j] + float32(noise*r.NormFloat64())) / float32(1+j/5)
			}
		}
		return x
	}
	rows, contexts = leaning(madeLabels, 0.7), leaning(1000, 0.5)
	var b bytes.Buffer
	b.Write(tensorfile.NPYHeader("f4", madeLabels, madeDim))
	if err := binary.Write(&b, binary.LittleEndian, rows); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "w.npy")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, rows, contexts
}

// otherIndex is the preview of another head.
func otherIndex(t *testing.T) *l2s.Index {
	t.Helper()
	path, _, contexts := madeHead(t, 2)
	x, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	made, err := preview.Make(context.Background(), x.Layer(), l2s.Float32(contexts[:800*madeDim], x.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Plain loops over the rows check the answers of a preview: logits are exact, few of the best are
// missed, and the sum over all tokens has the error of the rungs, or is exact if a request wants
// that.
func TestAHeadOverAPreview(t *testing.T) {
	path, rows, contexts := madeHead(t, 1)
	whole, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	made, err := preview.Make(context.Background(), whole.Layer(), l2s.Float32(contexts[:800*madeDim], whole.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	with, err := whole.With(made, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{Index: made, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // a head over the layer of another one
		var want, found [5]l2s.Prediction
		h := contexts[(800+i)*madeDim:][:madeDim]
		a, err := x.Search(want[:], h, l2s.Request{})
		b, other := with.Search(found[:], h, l2s.Request{})
		if err != nil || other != nil || a != b || want != found || !with.Previews() || whole.Previews() {
			t.Fatalf("context %d: found %v %v %v, expected %v %v %v", i, b, found, other, a, want, err)
		}
	}
	if _, err := whole.With(otherIndex(t), l2s.Options{}); !errors.Is(err, l2s.ErrLayer) {
		t.Errorf("the preview of another layer: found %v, expected ErrLayer", err)
	}
	if err := with.Close(); err != nil {
		t.Error(err)
	}
	defer x.Close()
	if x.Index() != made || whole.Index() != nil {
		t.Error("found another preview than the one that was given")
	}
	const n, k = 200, 5
	parts := (*l2sengine.Index)(made).Preview().Parts()
	rungs, normal := parts.Rungs, parts.Normal
	found, set, apart := 0, 0, 0
	for i := range n {
		h := contexts[(800+i)*madeDim:][:madeDim]
		logits, sum := make([]float64, madeLabels), 0.0
		for s := range logits {
			for j, v := range h {
				logits[s] += float64(rows[s*madeDim+j]) * float64(v)
			}
			sum += math.Exp(logits[s])
		}
		order := make([]uint32, madeLabels)
		for s := range order {
			order[s] = uint32(s)
		}
		slices.SortFunc(order, func(a, b uint32) int {
			return ranking.Compare(ranking.Prediction{ID: a, Logit: logits[a]}, ranking.Prediction{ID: b, Logit: logits[b]})
		})
		best := make([]l2s.Prediction, k)
		a, err := x.Search(best, h, l2s.Request{})
		if err != nil || a.Count != k {
			t.Fatal(a, err)
		}
		if !a.Exact {
			set++
		}
		for _, p := range best {
			if math.Abs(p.Logit-logits[p.ID]) > 1e-9 {
				t.Errorf("context %d, token %d: found the logit %v, expected %v", i, p.ID, p.Logit, logits[p.ID])
			}
			if slices.Contains(order[:k], p.ID) {
				found++
			}
		}
		batch, answers := make([]l2s.Prediction, 2*k), make([]l2s.Answer, 2)
		if err := x.SearchBatch(batch, answers, slices.Concat(h, h), l2s.Request{}); err != nil || !slices.Equal(batch, slices.Concat(best, best)) {
			t.Fatalf("context %d in a batch: found %v, %v, expected %v twice", i, batch, err, best)
		}
		choices := make([]llamacpp.Choice, k)
		_, z, err := x.Best(choices, h, l2s.Request{})
		if err != nil || choices[0].LogProb != choices[0].Logit-z {
			t.Fatal(choices, z, err)
		}
		if math.Abs(z-math.Log(sum)) > rungs[normal].LogSumOff+1e-5 { // 1e-5: exponentials in float32
			apart++
		}
		p, err := x.LogProb(h, best[0].ID)
		if err != nil || math.Abs(p-(best[0].Logit-z)) > 2*rungs[normal].LogSumOff+1e-4 {
			t.Errorf("context %d: found the log-probability %v, %v, expected about %v", i, p, err, best[0].Logit-z)
		}
		if _, z, err = x.Best(choices, h, l2s.Request{ExactSum: true}); err != nil || math.Abs(z-math.Log(sum)) > 1e-9 {
			t.Errorf("context %d: found the sum %v in full, %v, expected %v", i, z, err, math.Log(sum))
		}
		_, of, failed := whole.Best(choices, h, l2s.Request{})
		if _, z, err = x.Best(choices, h, l2s.Request{Exact: true}); err != nil || failed != nil || z != of {
			t.Errorf("context %d: found the sum %v of an exact request, %v, %v, expected %v as without a preview", i, z, err, failed, of)
		}
		// Among some the answer is exact.
		among := []uint32{3, 99, 1234, order[madeLabels-1]}
		want := slices.MaxFunc(among, func(a, b uint32) int {
			return -ranking.Compare(ranking.Prediction{ID: a, Logit: logits[a]}, ranking.Prediction{ID: b, Logit: logits[b]})
		})
		if _, err := x.Search(best[:1], h, l2s.Request{Among: l2s.Only(among)}); err != nil || best[0].ID != want {
			t.Errorf("context %d: found token %d among some, %v, expected %d", i, best[0].ID, err, want)
		}
		// The tokens within a distance of the best.
		near := make([]l2s.Prediction, 50)
		a, err = x.Search(near, h, l2s.Request{Within: 1})
		for _, p := range near[:a.Count] {
			if p.Logit < near[0].Logit-1 {
				t.Errorf("context %d: found the logit %v, expected none below %v", i, p.Logit, near[0].Logit-1)
			}
		}
		if err != nil || a.Count < len(near) && a.Count < made.Labels() && logits[order[0]] == near[0].Logit && a.Count > 0 && logits[order[a.Count]] > near[0].Logit-1 && a.Exact {
			t.Errorf("context %d: found %d within 1 of the best, %v, expected more", i, a.Count, err)
		}
	}
	if found < n*k*98/100 || set < n/2 {
		t.Errorf("found %d of %d best tokens, %d of %d by the preview, expected nearly all, most of them by it", found, n*k, set, n)
	}
	if apart > n/5 { // 95 of 100 on the held-out contexts
		t.Errorf("found %d of %d sums further off than %v", apart, n, rungs[normal].LogSumOff)
	}
}

func TestDrawsOfAHeadOverAPreview(t *testing.T) {
	path, _, contexts := madeHead(t, 2)
	whole, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	made, err := preview.Make(context.Background(), whole.Layer(), l2s.Float32(contexts[:800*madeDim], whole.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{Index: made})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var all sync.WaitGroup
	for worker := range 4 { // a head is for all goroutines
		all.Go(func() {
			o := sample.DefaultOptions()
			o.TopK, o.TopP, o.Temperature, o.Seed = 40, 0.95, 0.8, uint64(worker+1)
			a, err := x.Sampler(o)
			b, failed := whole.Sampler(o)
			if err != nil || failed != nil {
				t.Error(err, failed)
				return
			}
			same := 0
			best, want := make([]l2s.Prediction, 1), make([]l2s.Prediction, 1)
			for i := range 100 {
				h := contexts[(800+i)*madeDim:][:madeDim]
				got, err := a.Draw(h, sample.Edits{})
				token, failed := b.Draw(h, sample.Edits{})
				if err != nil || failed != nil {
					t.Error(err, failed)
				}
				if got.ID == token.ID {
					same++
				}
				if _, err := x.Search(best, h, l2s.Request{}); err != nil {
					t.Error(err)
				}
				if _, err := whole.Search(want, h, l2s.Request{}); err != nil {
					t.Error(err)
				}
				if best[0].ID == want[0].ID {
					same++
				}
			}
			if same < 190 {
				t.Errorf("found %d of 200 tokens as without the preview, expected nearly all", same)
			}
		})
	}
	all.Wait()
}

func TestAPreviewOfAnotherHeadIsRefused(t *testing.T) {
	path, _, contexts := madeHead(t, 3)
	other, _, _ := madeHead(t, 4)
	x, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	made, err := preview.Make(context.Background(), x.Layer(), l2s.Float32(contexts[:200*madeDim], x.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := llamacpp.OpenHead(other, llamacpp.HeadOptions{Index: made}); !errors.Is(err, l2s.ErrLayer) {
		t.Errorf("found %v, expected l2s.ErrLayer", err)
	}
}
