package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The weights and contexts are small integers, so that every logit is exact in float64 in any order
// of summation, and many logits are equal.
func TestLabelsAreTheTopKOfNaiveLogits(t *testing.T) {
	const n, dim, labels = 150, 7, 40
	random := rand.New(rand.NewPCG(1, 2))
	integers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.IntN(7) - 3)
		}
		return x
	}
	weights, bias, contexts := integers(labels*dim), integers(labels), integers(n*dim)
	layer, err := exact.NewLayer(kernels.Float32Rows(weights, dim), bias)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{1, 5, labels} {
		for _, threads := range []int{0, 1, 3} {
			got, err := labelsOver(t.Context(), layer, contexts, k, RunOptions{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != n*k {
				t.Fatalf("k=%d: found %d labels, want %d", k, len(got), n*k)
			}
			for i := range n {
				logits := make([]float64, labels)
				for s := range logits {
					logits[s] = kernels.RefDot(weights[s*dim:(s+1)*dim], contexts[i*dim:(i+1)*dim]) + float64(bias[s])
				}
				want := ascending(labels)
				slices.SortFunc(want, func(a, b uint32) int {
					return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b))
				})
				if !slices.Equal(got[i*k:(i+1)*k], want[:k]) {
					t.Fatalf("k=%d threads=%d context %d: found %v, want %v", k, threads, i, got[i*k:(i+1)*k], want[:k])
				}
			}
		}
	}
}

func TestLabelsRefuse(t *testing.T) {
	s := newSynthetic(t, 1, 300, 6, 30, 3, 0.3)
	notANumber := slices.Clone(s.contexts)
	notANumber[200*6+4] = float32(math.NaN())
	infinite := slices.Clone(s.contexts)
	infinite[299*6] = float32(math.Inf(-1))
	cases := []struct {
		name     string
		contexts []float32
		k        int
		want     []string
	}{
		{"no contexts", nil, 5, []string{"contexts", "none", "6"}},
		{"part of a row", s.contexts[:20], 5, []string{"contexts", "20", "6"}},
		{"k of zero", s.contexts, 0, []string{"k", "0", "30"}},
		{"k above the labels", s.contexts, 31, []string{"k", "31", "30"}},
		{"NaN", notANumber, 5, []string{"context 200", "NaN", "4"}},
		{"Inf", infinite, 5, []string{"context 299", "Inf"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			labels, err := labelsOver(t.Context(), s.layer, c.contexts, c.k, RunOptions{})
			if err == nil || labels != nil {
				t.Fatalf("found %d labels, error %v; want an error", len(labels), err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
	if _, err := labelsOver(t.Context(), s.layer, s.contexts, 5, RunOptions{Threads: -1}); err == nil {
		t.Error("negative number of threads: no error")
	}
}

func TestLabelsReportProgressToTheEnd(t *testing.T) {
	s := newSynthetic(t, 1, 1000, 6, 30, 3, 0.3)
	var last Progress
	var inside atomic.Int32
	_, err := labelsOver(t.Context(), s.layer, s.contexts, 5, RunOptions{Threads: 3, Progress: func(p Progress) {
		if inside.Add(1) != 1 {
			t.Error("two calls at once")
		}
		defer inside.Add(-1)
		if p.Stage != stage.Labels || p.Total != 1000 || p.Done < last.Done {
			t.Errorf("found %+v after %+v", p, last)
		}
		last = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last.Done != 1000 {
		t.Errorf("last report %+v, want all 1000 done", last)
	}
}

func TestLabelsStopWhenCancelled(t *testing.T) {
	s := newSynthetic(t, 1, 5000, 6, 30, 3, 0.3)
	ctx, cancel := context.WithCancel(t.Context())
	done := 0
	_, err := labelsOver(ctx, s.layer, s.contexts, 5, RunOptions{Threads: 2, Progress: func(p Progress) {
		done = p.Done
		if p.Done > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("found error %v, want context.Canceled", err)
	}
	if done == 5000 {
		t.Error("all contexts were labelled after the cancellation")
	}
}

func TestRunTakesLabelsThatAreGiven(t *testing.T) {
	s := newSynthetic(t, 3, 600, 6, 30, 4, 0.3)
	o := testOptions()
	want, _, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := labelsOver(t.Context(), s.layer, s.contexts, o.K, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.Labels = labels
	o.Progress = func(p Progress) {
		if p.Stage == stage.Labels {
			t.Error("labels were computed, expected those given to be used")
		}
	}
	got, _, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encoded(t, got), encoded(t, want)) {
		t.Error("found another screen than with its own labels, expected the same")
	}
	o.Progress = nil

	notANumber := slices.Clone(s.contexts)
	notANumber[200*6+4] = float32(math.NaN())
	outOfRange := slices.Clone(labels)
	outOfRange[42] = 30
	twice := slices.Clone(labels)
	twice[44] = twice[41]
	for _, c := range []struct {
		name     string
		labels   []uint32
		contexts []float32
		want     []string
	}{
		{"too few", labels[:len(labels)-1], s.contexts, []string{"labels", "2999", "600"}},
		{"none", []uint32{}, s.contexts, []string{"labels", "0", "600"}},
		{"out of range", outOfRange, s.contexts, []string{"labels", "30", "context 8"}},
		{"a label twice", twice, s.contexts, []string{"labels", fmt.Sprintf("found %d twice", twice[41]), "context 8"}},
		{"NaN in the contexts", labels, notANumber, []string{"context 200", "NaN"}},
	} {
		o.Labels = c.labels
		m, _, err := runOver(t.Context(), s.layer, c.contexts, o)
		if err == nil || m != nil {
			t.Errorf("%s: found no error", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not name %q", c.name, err, w)
			}
		}
	}
}
