package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestChrFByHand(t *testing.T) {
	for _, c := range []struct {
		text, reference string
		want            float64
	}{
		{"um gato", "um gato", 100},
		{"um  gato ", "umgato", 100}, // without spaces
		{"abc", "xyz", 0},
		{"", "xyz", 0},
		// 1-grams: 2 of 2 and 2 of 4; 2-grams: 1 of 1 and 1 of 3; no others are in both.
		{"ab", "abcd", 100 * 5 * 1 * (5. / 12) / (4*1 + 5./12)},
	} {
		if got := chrF([]string{c.text}, []string{c.reference}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q, %q: found %v, expected %v", c.text, c.reference, got, c.want)
		}
	}
}

// A text is all of itself, and the score is within 0 and 100.
func TestChrFIsAScore(t *testing.T) {
	texts := rapid.SliceOfN(rapid.StringMatching(`[a-c ]{1,9}`), 3, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "texts"), texts.Draw(t, "references")
		if got := chrF(a, b); !(got >= 0 && got <= 100) {
			t.Fatalf("found %v", got)
		}
		if strings.TrimSpace(strings.Join(a, "")) != "" {
			if got := chrF(a, a); math.Abs(got-100) > 1e-9 {
				t.Fatalf("found %v for the text itself, expected 100", got)
			}
		}
	})
}

func TestSentencesOfAText(t *testing.T) {
	b := loadFirefox(t)
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("Too short.  This one\nis long enough! And this is one, too? "+strings.Repeat("long ", 60)+". The last has no end"), 0o666); err != nil {
		t.Fatal(err)
	}
	x, err := read(path, b.pieces, 20, 220)
	if want := []string{"This one is long enough!", "And this is one, too?"}; err != nil || !slices.Equal(x.sentences, want) {
		t.Errorf("found %q, %v, expected %q", x.sentences, err, want)
	}
}

// loadFirefox returns a run with the model that Firefox ships, without texts.
func loadFirefox(t *testing.T) *bench {
	t.Helper()
	if os.Getenv("REAL") == "" {
		t.Skip("REAL names no folder with firefox-en-pt")
	}
	const text = "../../../shared/real/test.txt"
	if _, err := os.Stat(text); err != nil {
		t.Skip(err)
	}
	b, err := load(options{model: filepath.Join(os.Getenv("REAL"), "firefox-en-pt"), train: text, test: text, sentences: 12, wide: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A sentence has the same translation alone and among others, and the exact search has the text of
// the dense float32 scan.
func TestTranslationsDoNotDependOnOthers(t *testing.T) {
	b := loadFirefox(t)
	for _, width := range []int{1, 5} {
		x := b.test[1]
		want, err := all(t.Context(), b.model, x, b.exactly(), width, 0, b.pieces.End(), true, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.pieces[:2] {
			alone, err := all(t.Context(), b.model, &text{pieces: x.pieces[i : i+1]}, b.exactly(), width, 1, b.pieces.End(), true, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(alone[0].pieces, want[i].pieces) || !slices.EqualFunc(alone[0].steps, want[i].steps, slices.Equal[[]float32]) {
				t.Errorf("beam %d, sentence %d: found %q alone, expected %q", width, i, b.pieces.Decode(alone[0].pieces), b.pieces.Decode(want[i].pieces))
			}
		}
		scanned, err := all(t.Context(), b.model, x, dense(b.model), width, 0, b.pieces.End(), false, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if same, score := b.compare(scanned, want); same < .9 || score < 99 {
			t.Errorf("beam %d: found %v of the sentences equal by a dense scan, with chrF %v, expected nearly all", width, same, score)
		}
	}
}
