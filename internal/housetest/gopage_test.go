package housetest

import (
	"compress/gzip"
	"context"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

// docs/go.md has these functions, word for word.

func exact(w, b, h []float32, d int) ([]l2s.Prediction, error) {
	layer, err := l2s.New(l2s.Float32(w, d), b) // w: row-major, d numbers per label
	if err != nil {
		return nil, err
	}
	s, err := l2s.NewSearcher(layer, nil, l2s.Options{}) // one per goroutine: keep it for the next context
	if err != nil {
		return nil, err
	}
	top := make([]l2s.Prediction, 5)
	n, err := s.TopK(top, h)
	return top[:n], err // best first
}

func previewed(ctx context.Context, layer *l2s.Layer, states []float32, file string) (*l2s.Pool, error) {
	index, err := preview.Make(ctx, layer, states, preview.Options{}) // 4,000 contexts, row-major
	if err != nil {
		return nil, err
	}
	if err := index.Save(file); err != nil { // later: index, err := l2s.Load(file)
		return nil, err
	}
	return l2s.NewPool(layer, index, l2s.Options{}) // for all goroutines
}

func screened(ctx context.Context, layer *l2s.Layer, contexts []float32) (*l2s.Index, error) {
	opt, tail := train.DefaultOptions(), train.DefaultTailOptions()
	opt.Tail = &tail // for log-probabilities over all labels; without it the screen has none
	index, record, err := train.Run(ctx, layer, l2s.Float32(contexts, layer.Dim()), opt)
	if err != nil {
		return nil, err
	}
	for _, warning := range record.Warnings {
		log.Print(warning)
	}
	return index, nil
}

func ask(asker l2s.Asker, h []float32, banned *bitset.Set) ([]l2s.Prediction, []float64, error) {
	top := make([]l2s.Prediction, 5)
	a, err := asker.Search(top, h, l2s.Request{Banned: banned, LogSum: true})
	if err != nil {
		return nil, nil, err
	}
	logProbs := make([]float64, a.Count) // among the labels that are not banned
	for i, p := range top[:a.Count] {
		logProbs[i] = p.Logit - a.LogSum
	}
	return top[:a.Count], logProbs, nil
}

func choose(s *l2s.Searcher, h []float32, ids []uint32) (best uint32, logProb float64, err error) {
	top := make([]l2s.Prediction, 1)
	if _, err = s.Search(top, h, l2s.Request{Among: l2s.Only(ids)}); err != nil {
		return 0, 0, err
	}
	logProb, err = s.LogProb(h, top[0].ID, 1) // over all labels
	return top[0].ID, logProb, err
}

func watched(pool *l2s.Pool, layer *l2s.Layer, newer *l2s.Index) (*l2s.Audit, error) {
	audit, err := pool.Audit(l2s.AuditOptions{Alarm: func(a l2s.Alarm) { log.Print(a.Of, ": ", a.Text) }})
	if err != nil {
		return nil, err
	}
	drained, err := pool.Swap(layer, newer) // while goroutines ask
	if err == nil {
		<-drained // no query uses the old index any more
	}
	return audit, err
}

func profiled(topK func([]l2s.Prediction, []float32) (int, error), contexts []float32, d int, length time.Duration, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	top := make([]l2s.Prediction, 5)
	for start, at := time.Now(), 0; time.Since(start) < length; at = (at + d) % len(contexts) {
		if _, err := topK(top, contexts[at:at+d]); err != nil {
			return err
		}
	}
	return nil
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

func TestTheCodeOfTheGoPageRuns(t *testing.T) {
	source, err := os.ReadFile("gopage_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/go.md")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	for _, b := range blocks {
		if !strings.Contains(string(source), "\n"+b[1]+"\n") && !strings.HasPrefix(b[1], "import (") {
			t.Errorf("docs/go.md: found code that this file has not:\n%s", b[1])
		}
	}
	if len(blocks) != 8 {
		t.Errorf("docs/go.md: found %d blocks of code, expected the imports and 7 functions", len(blocks))
	}
	_, imports, _ := strings.Cut(page, "import (\n")
	imports, _, _ = strings.Cut(imports, ")\n")
	for _, name := range []string{"bitset", "preview", "train"} {
		if !strings.Contains(imports, "\t\"github.com/learning-to-screen/l2s/"+name+"\"") {
			t.Errorf("docs/go.md: found no import of %s", name)
		}
	}

	const labels, d, n, queries = 2000, 24, 6000, 60
	data := synthetic.Structured(labels, d, 30, n+queries, 1)
	layer, bias, w := data.Layer, data.Exact.Bias(), make([]float32, labels*d)
	for i := range labels {
		data.Exact.Weights().Widen(w[i*d:][:d], i)
	}
	pool, err := previewed(t.Context(), layer, data.Contexts[:n*d], filepath.Join(t.TempDir(), "m.l2p"))
	if err != nil {
		t.Fatal(err)
	}
	ofREADME, err := fast(t.Context(), w, bias, data.Contexts[:n*d], d)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := screened(t.Context(), layer, data.Contexts[:n*d])
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
	if err := profiled(s.TopK, data.Contexts[:40*d], d, 50*time.Millisecond, profile); err != nil {
		t.Fatal(err)
	}
	if text := unzipped(t, profile); !strings.Contains(text, "nanoseconds") {
		t.Errorf("found a file of %d bytes, expected a profile", len(text))
	}
	all := func(uint32) bool { return true }
	byPreview, byScreen, top := 0, 0, make([]l2s.Prediction, 5)
	for q := range queries {
		// The oracle: all logits by a plain loop.
		h := data.Contexts[(n+q)*d:][:d]
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
		same := make([]l2s.Prediction, len(top))
		if _, err := ofREADME.TopK(same, h); err != nil || !slices.Equal(same, top) {
			t.Errorf("README: found %v and the error %v, expected %v", same, err, top)
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
