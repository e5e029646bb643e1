package measure_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// fake is a setting that answers with given labels.
type fake struct{ answers []uint32 }

func (fake) Params() string               { return "" }
func (f fake) Searcher() methods.Searcher { return f }
func (f fake) TopK(dst []exact.Prediction, h []float32) int {
	n := min(len(dst), len(f.answers))
	for i := range n {
		dst[i] = exact.Prediction{ID: f.answers[i]}
	}
	return n
}

func TestPrecisionIsTheShareOfTheExactLabels(t *testing.T) {
	contexts := make([][]float32, 200)
	var labels []uint32
	for i := range contexts {
		contexts[i] = []float32{float32(i)}
		labels = append(labels, 1, 2, 3, 4, 5)
	}
	for _, c := range []struct {
		answer []uint32
		p1, p5 float64
	}{
		{[]uint32{1, 2, 3, 4, 5}, 1, 1},
		{[]uint32{5, 4, 3, 2, 1}, 0, 1},
		{[]uint32{1, 9, 8, 7, 6}, 1, 0.2},
		{[]uint32{2, 1}, 0, 0.4}, // a short answer misses the rest
		{nil, 0, 0},
	} {
		f := fake{c.answer}
		p1, p5, err := measure.Precision(context.Background(), f, contexts, labels, 5)
		if err != nil || p1 != c.p1 || p5 != c.p5 {
			t.Errorf("%v: P@1 %v, P@5 %v, error %v, want %v, %v", c.answer, p1, p5, err, c.p1, c.p5)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := measure.Precision(ctx, fake{}, contexts, labels, 5); err == nil {
		t.Error("no error after an interrupt")
	}
}

// recorders returns the turns of n settings that log their number and the item
// of each query.
func recorders(n int) (turns []*measure.Turn, log *[]string) {
	log = new([]string)
	for i := range n {
		turns = append(turns, &measure.Turn{Query: func(at int) int {
			*log = append(*log, fmt.Sprintf("%d:%d", i, at))
			return 1
		}})
	}
	return turns, log
}

func TestSettingsTakeTurnsOnTheSameItems(t *testing.T) {
	turns, log := recorders(12)
	const rounds = 3
	if n := measure.InTurns(context.Background(), turns[0], turns[1:], 50, rounds, time.Nanosecond, 1, func(int) {}); n != rounds {
		t.Fatalf("%d rounds, want %d", n, rounds)
	}
	// 11 settings are in two groups, each after a turn of the dense scan.
	if len(turns[0].Micros) != 2*rounds || turns[0].Ratios != nil {
		t.Errorf("the dense scan had %d turns and %d ratios", len(turns[0].Micros), len(turns[0].Ratios))
	}
	for i, u := range turns[1:] {
		if len(u.Micros) != rounds || len(u.Ratios) != rounds {
			t.Errorf("setting %d: %d turns, %d ratios", i+1, len(u.Micros), len(u.Ratios))
		}
	}
	// With a block of one query a turn is a query before the clock starts and
	// one after.
	played := (*log)[3*len(turns):]
	if len(played) != 2*rounds*(11+2) {
		t.Fatalf("%d queries: %v", len(played), played)
	}
	first := ""
	for i := 0; i < len(played); i += 2 {
		who, item, _ := strings.Cut(played[i], ":")
		if who == "0" {
			first = item
		}
		if item != first {
			t.Errorf("setting %s began at item %s, the dense scan at %s", who, item, first)
		}
		if again, _, _ := strings.Cut(played[i+1], ":"); again != who {
			t.Errorf("turn %d: queries of settings %s and %s", i/2, who, again)
		}
	}
}

// A call before a query is no part of its time.
func TestWhatIsBeforeAQueryIsNotTimed(t *testing.T) {
	var before, asked []int
	slow := &measure.Turn{
		Before: func(i int) { before = append(before, i); time.Sleep(3 * time.Millisecond) },
		Query:  func(i int) int { asked = append(asked, i); return 1 },
	}
	plain := &measure.Turn{Query: func(int) int { time.Sleep(3 * time.Millisecond); return 1 }}
	measure.InTurns(context.Background(), plain, []*measure.Turn{slow}, 7, 2, time.Nanosecond, 1, func(int) {})
	if !slices.Equal(before, asked) {
		t.Errorf("found the calls %v before the queries %v", before, asked)
	}
	// A query alone takes hardly any time: it takes as long as with the call before it only if the
	// machine pauses within it.
	if slow.Median() <= 1 {
		t.Errorf("found %v times the speed of 3 ms, expected more: %v us", slow.Median(), slow.Micros)
	}
}

// A time is the time of a context, for items with any number of contexts.
func TestTimesAreOfContexts(t *testing.T) {
	turn := func(contexts int) *measure.Turn {
		return &measure.Turn{Query: func(int) int {
			time.Sleep(time.Millisecond)
			return contexts
		}}
	}
	one, many := turn(1), turn(1000)
	measure.InTurns(context.Background(), one, []*measure.Turn{many}, 3, 1, 5*time.Millisecond, 1, func(int) {})
	// Items take a millisecond and a little; the mean of 1,000 contexts can only be that long if
	// the machine pauses for a second.
	if many.Micros[0] >= one.Micros[0] || many.Ratios[0] <= 1 {
		t.Errorf("a context of 1,000 took %v us, a single one %v us, ratio %v", many.Micros[0], one.Micros[0], many.Ratios[0])
	}
}
