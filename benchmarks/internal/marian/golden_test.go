package marian

import (
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/sentencepiece"
	"github.com/learning-to-screen/l2s/internal/files/heads"
)

var long = flag.Bool("long", false, "compare 1,000 sentences")

// firefox returns the folder of the model that Firefox ships, and the model.
func firefox(t testing.TB) (folder string, m *Model, pieces *sentencepiece.Model) {
	t.Helper()
	if folder = filepath.Join(os.Getenv("REAL"), "firefox-en-pt"); os.Getenv("REAL") == "" {
		t.Skip("REAL names no folder with firefox-en-pt")
	}
	m, err := Load(filepath.Join(folder, "model.enpt.intgemm.alphas.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if pieces, err = sentencepiece.Load(filepath.Join(folder, "vocab.enpt.spm")); err != nil {
		t.Fatal(err)
	}
	return folder, m, pieces
}

// The contexts and the greedy translations are those of ../shared/real/marian.py, which computes in
// float32: where a sentence is first translated differently, the two pieces have almost the same
// logit there. With inputs in int8 that is true of four sentences of five, and a difference may be as
// large as what the rounding of an input does to a logit.
func TestTranslationsAreMarians(t *testing.T) {
	folder, m, pieces := firefox(t)
	const program, text = "../../../../shared/real/marian.py", "../../../../shared/real/test.txt"
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import numpy, sentencepiece").Run(); err != nil {
		t.Skipf("%s has no numpy or no sentencepiece; PYTHON names one that has: %v", python, err)
	}
	data, err := os.ReadFile(text)
	if err != nil {
		t.Skip(err)
	}
	n := 100
	if *long {
		n = 1000
	}
	out := os.Getenv("MARIAN_OUT")
	if out == "" {
		out = filepath.Join(t.TempDir(), "out")
		if log, err := exec.Command(python, program, folder, text, strconv.Itoa(n), out).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, log)
		}
	}
	want, release, err := heads.OpenContexts(out+".H.npy", m.Dim())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	best, err := heads.ReadIDs(out + ".T.npy")
	if err != nil {
		t.Fatal(err)
	}
	// Sentences as the program takes them.
	var sentences [][]uint32
	breaks := regexp.MustCompile(`([.!?])[\s\pZ]+`)
	for _, s := range strings.Split(breaks.ReplaceAllString(strings.ReplaceAll(string(data), "\n", " "), "$1\x00"), "\x00") {
		if s = strings.TrimSpace(s); len([]rune(s)) > 20 && len([]rune(s)) < 220 && len(sentences) < n {
			sentences = append(sentences, append(pieces.Encode(nil, s), pieces.End()))
		}
	}
	layer, err := m.Layer()
	if err != nil {
		t.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range []Precision{Int16, Int8} {
		encoder, decoder := m.NewEncoder(precision), m.NewDecoder(precision)
		at, tokens, equal := 0, 0, 0
		var margins []float64 // where sentences part
		largest := 0.0        // difference of a context before, over its length
		for from := 0; from < len(sentences); from += 32 {
			batch := sentences[from:min(from+32, len(sentences))]
			sources, err := encoder.Encode(batch)
			if err != nil {
				t.Fatal(err)
			}
			decoder.Start(sources)
			going := make([]int, len(batch)) // sentences that did not end by the program's pieces
			parted := make([]bool, len(batch))
			longest := 0
			for i, s := range batch {
				going[i], longest = i, max(longest, len(s))
			}
			parents, before := slices.Clone(going), make([]uint32, len(batch))
			for step := 0; step < int(float64(longest)*2.5) && len(going) > 0; step++ {
				h, err := decoder.Step(parents, before)
				if err != nil {
					t.Fatal(err)
				}
				var next []int
				parents, before = parents[:0], before[:0]
				for i, s := range going {
					h, ref, token := h[i*m.Dim():][:m.Dim()], want[at*m.Dim():][:m.Dim()], best[at]
					at++
					var own [1]l2s.Prediction
					if _, err := searcher.TopK(own[:], h); err != nil {
						t.Fatal(err)
					}
					tokens++
					if !parted[s] {
						difference, length := 0.0, 0.0
						for j := range h {
							difference += float64(h[j]-ref[j]) * float64(h[j]-ref[j])
							length += float64(ref[j]) * float64(ref[j])
						}
						largest = max(largest, math.Sqrt(difference/length))
						if own[0].ID != token {
							var other [1]float64
							if err := searcher.Logits(other[:], h, l2s.Only([]uint32{token})); err != nil {
								t.Fatal(err)
							}
							parted[s], margins = true, append(margins, own[0].Logit-other[0])
						}
					}
					if token != pieces.End() {
						next, parents, before = append(next, s), append(parents, i), append(before, token)
					}
				}
				going = next
			}
			for _, p := range parted {
				if !p {
					equal++
				}
			}
		}
		if at != len(best) {
			t.Fatalf("found %d pieces, expected the %d of the program", at, len(best))
		}
		slices.Sort(margins)
		margins = append([]float64{0}, margins...)
		t.Logf("int16 %v: %d pieces; %d of %d sentences are equal, the others part at margins of %.2g in the middle, %.2g at most; contexts differ by at most %.2g of their length",
			precision, tokens, equal, len(sentences), margins[len(margins)/2], margins[len(margins)-1], largest)
		most, off := .005, .002
		if precision == Int8 {
			most, off = 2, .3
		}
		if margins[len(margins)-1] > most || largest > off {
			t.Errorf("int16 %v: found a sentence that parts at a margin of %v, and contexts that differ by %v, expected at most %v and %v", precision, margins[len(margins)-1], largest, most, off)
		}
	}
}
