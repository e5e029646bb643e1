package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

const (
	kindsK     = 5
	often      = 5   // states that a label is best in, from which on it is a label of the kind
	leastFound = 0.9 // of these
)

// kind has the figures of a preview on the states of one kind of text.
type kind struct {
	name                  string
	states, first, within int
	times, found          map[uint32]int // that a label is best, and is found
}

// kinds measures a preview on states of many kinds of text, one file per kind: P@1, P@5, and the
// labels that are best in five states or more but are found in fewer than nine of ten. An average
// over texts does not show labels that are never found.
func kinds(l *l2s.Layer, file, folder string) error {
	m, err := l2s.Load(file)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.npy"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: found no .npy, expected a file of states for each kind of text", folder)
	}
	fmt.Printf("| kind | states | P@1 | P@%d | best %d times or more | labels found in fewer than %v of these |\n|---|---:|---:|---:|---:|---|\n", kindsK, often, leastFound)
	sum := kind{name: "all", times: map[uint32]int{}, found: map[uint32]int{}}
	lowest := 1.0
	for _, path := range files {
		k, err := measureKind(l, m, path)
		if err != nil {
			return err
		}
		fmt.Println(k)
		lowest = min(lowest, float64(k.first)/float64(k.states))
		sum.states, sum.first, sum.within = sum.states+k.states, sum.first+k.first, sum.within+k.within
		for id, n := range k.times {
			sum.times[id] += n
			sum.found[id] += k.found[id]
		}
	}
	fmt.Printf("%v\n\nlowest P@1 of a kind: %.4f\n", &sum, lowest)
	return nil
}

func measureKind(l *l2s.Layer, m *l2s.Index, path string) (*kind, error) {
	d := l.Dim()
	states, err := l2s.OpenContexts(path, d)
	if err != nil {
		return nil, err
	}
	defer states.Close()
	rows := states.Rows()
	n := len(rows) / d
	if n == 0 {
		return nil, fmt.Errorf("%s: found no states, expected some", path)
	}
	k := &kind{name: strings.TrimSuffix(filepath.Base(path), ".npy"), states: n, times: map[uint32]int{}, found: map[uint32]int{}}
	best, one, five := make([]l2s.Prediction, n*kindsK), make([]l2s.Prediction, n), make([]l2s.Prediction, n*kindsK)
	err = parallel.Each(context.Background(), runtime.NumCPU(), n, 64, nil, func(_, lo, hi int) error {
		s, err := l2s.NewSearcher(l, m, l2s.Options{})
		if err != nil {
			return err
		}
		e, err := l2s.NewSearcher(l, nil, l2s.Options{})
		if err != nil {
			return err
		}
		answers := make([]l2s.Answer, hi-lo)
		if err := e.SearchBatch(best[lo*kindsK:hi*kindsK], answers, rows[lo*d:hi*d], l2s.Request{}); err != nil {
			return err
		}
		for c := lo; c < hi; c++ {
			if _, err := s.TopK(one[c:c+1], rows[c*d:(c+1)*d]); err != nil {
				return err
			}
			if _, err := s.TopK(five[c*kindsK:(c+1)*kindsK], rows[c*d:(c+1)*d]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for c := range n {
		right := best[c*kindsK : (c+1)*kindsK]
		k.times[right[0].ID]++
		if one[c].ID == right[0].ID {
			k.first++
			k.found[right[0].ID]++
		}
		for _, p := range right {
			if slices.Contains(five[c*kindsK:(c+1)*kindsK], p) {
				k.within++
			}
		}
	}
	return k, nil
}

// String is a row of the table.
func (k *kind) String() string {
	var lost []string
	labels := 0
	for _, id := range slices.Sorted(func(yield func(uint32) bool) {
		for id, n := range k.times {
			if n >= often && !yield(id) {
				return
			}
		}
	}) {
		labels++
		if found, n := k.found[id], k.times[id]; float64(found) < leastFound*float64(n) {
			lost = append(lost, fmt.Sprintf("%d (%d of %d)", id, found, n))
		}
	}
	return fmt.Sprintf("| %s | %d | %.4f | %.4f | %d | %s |", k.name, k.states, float64(k.first)/float64(k.states), float64(k.within)/float64(k.states*kindsK), labels, strings.Join(lost, ", "))
}
