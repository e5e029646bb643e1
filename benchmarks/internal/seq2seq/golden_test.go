package seq2seq

import (
	"context"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

var long = flag.Bool("long", false, "translate all of the test text, not its first sentences alone")

var goldenDir = filepath.Join("..", "..", "..", "..", "shared", "data", "nmt-multi30k")

// golden returns the model that the reference figures are of, and its folder.
func golden(t testing.TB) (*Model, string) {
	t.Helper()
	if _, err := os.Stat(goldenDir); err != nil {
		t.Skip("../shared/data/nmt-multi30k is not there (CONTRIBUTING.md, Data, describes it): ", err)
	}
	m, err := loadGolden()
	if err != nil {
		t.Fatal(err)
	}
	return m, goldenDir
}

var loadGolden = sync.OnceValues(func() (*Model, error) { return Load(goldenDir, "de", "en") })

func readLines(t testing.TB, v *vocab.Vocab, path string) (lines [][]uint32) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for line, err := range text.Lines(v, file, path) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// goldenPairs returns the first n pairs of the test text.
func goldenPairs(t testing.TB, m *Model, dir string, n int) (pairs []Pair) {
	t.Helper()
	source := readLines(t, m.Source(), filepath.Join(dir, "test.de"))
	target := readLines(t, m.Target(), filepath.Join(dir, "test.en"))
	for i := range n {
		pairs = append(pairs, Pair{source[i], target[i]})
	}
	return pairs
}

// contextTolerance is for contexts of the real model. Its sums are of 500 to 1000 products, in
// float32, and their rounding errors pass through up to 40 time steps of four layers. A wrong gate,
// a lost bias or the halves of B in the wrong order move contexts by more than 1e-2.
const contextTolerance = 1e-5

// TestGoldenContexts: the contexts of the first 40 test pairs under teacher
// forcing, against PyTorch.
func TestGoldenContexts(t *testing.T) {
	m, dir := golden(t)
	tensor, err := tensorfile.OpenTensor(filepath.Join(dir, "golden_contexts.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer tensor.Close()
	if err := tensor.ExpectShape(-1, m.Dim()); err != nil {
		t.Fatal(err)
	}
	want, err := tensor.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	pairs := goldenPairs(t, m, dir, 40)
	simdtest.EachLevel(t, func(t *testing.T) {
		pairs, want := pairs, want
		if kernels.Level() == "generic" { // which takes many times as long
			pairs = pairs[:8]
		}
		var got []float32
		for _, d := range force(t, m, pairs, 0) {
			got = append(got, d.Contexts...)
		}
		if len(pairs) < 40 {
			want = want[:min(len(got), len(want))]
		}
		if len(got) != len(want) {
			t.Fatalf("%d numbers, want %d", len(got), len(want))
		}
		worst := 0.0
		for i := range got {
			worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
		}
		if !(worst <= contextTolerance) {
			t.Errorf("largest error of a context %.3g, want at most %g", worst, contextTolerance)
		}
		t.Logf("%d contexts, largest error %.2g", len(want)/m.Dim(), worst)
	})
}

// TestGoldenGreedy: the exact layer's greedy translations, against PyTorch's.
// One in 200 may differ: if two words are nearly tied, rounding chooses.
func TestGoldenGreedy(t *testing.T) {
	const most = 60
	m, dir := golden(t)
	sentences := readLines(t, m.Source(), filepath.Join(dir, "test.de"))
	text, err := os.ReadFile(filepath.Join(dir, "golden_greedy.en"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(want) != 1000 || len(sentences) != len(want) {
		t.Fatalf("%d sentences and %d translations, want 1000", len(sentences), len(want))
	}
	if n := 200; !*long {
		if kernels.Level() == "generic" { // which takes many times as long
			n = 40
		}
		sentences, want = sentences[:n], want[:n]
	}
	start := time.Now()
	i, differ := 0, 0
	err = m.Greedy(context.Background(), sentences, most, 0, func(d Decoded) error {
		var words []string
		for _, id := range d.Words {
			words = append(words, m.Target().Word(id))
		}
		if got := strings.Join(words, " "); got != want[i] {
			differ++
			t.Logf("sentence %d: %q, want %q", i+1, got, want[i])
		}
		i++
		return nil
	})
	if err != nil || i != len(want) {
		t.Fatalf("%d of %d translations; %v", i, len(want), err)
	}
	if most := max(1, len(want)/200); differ > most {
		t.Errorf("%d of %d translations differ, want at most %d", differ, len(want), most)
	}
	t.Logf("%d of %d translations differ; %v", differ, len(want), time.Since(start).Round(time.Millisecond))
}
