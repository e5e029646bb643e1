package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
)

// The table has a row per layer. The exact layers, and a screen whose set has all labels, give the
// same translation for any sentences that are decoded together and any number of threads.
func TestWholeTranslationsOfAllLayersAreThoseOfTheDenseScan(t *testing.T) {
	d := open(t, 9)
	l := d.model.Layer()
	all := make([]uint32, l.Labels())
	for i := range all {
		all[i] = uint32(i)
	}
	m, err := synthetic.Screen(screening.Config{Dim: l.Dim(), Labels: l.Labels(), Clusters: make([]float32, l.Dim()), Lists: []screening.List{{IDs: all}}, Fingerprint: l.Fingerprint()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "all.l2s")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    wholeOptions
		rows int
	}{
		{"one by one", wholeOptions{width: 3, group: 1, threads: 1, rounds: 1, alpha: 1, longest: 12, screen: path}, 4},
		{"together, on threads, without a screen", wholeOptions{width: 2, group: 4, threads: 3, rounds: 2, alpha: 1, longest: 12}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			p := progress.New(io.Discard)
			defer p.Close()
			if err := whole(context.Background(), d, c.o, &out, p); err != nil {
				t.Fatal(err)
			}
			_, table, _ := strings.Cut(out.String(), "|---:|\n")
			rows := strings.Split(strings.TrimSpace(table), "\n")
			if len(rows) != c.rows {
				t.Fatalf("found %d rows, expected %d:\n%s", len(rows), c.rows, out.String())
			}
			for _, row := range rows {
				if !strings.HasSuffix(row, " | 0 |") {
					t.Errorf("found %q, expected the translations of the dense scan", row)
				}
			}
		})
	}
	if err := whole(context.Background(), d, wholeOptions{width: 1, group: 1, rounds: 1, alpha: 1, longest: 5, screen: path + ".none"}, io.Discard, progress.New(io.Discard)); err == nil {
		t.Error("a screen that is not there: found no error")
	}
}
