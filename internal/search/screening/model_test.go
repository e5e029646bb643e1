package screening_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

func TestModelHoldsItsConfiguration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawShape(draws(t)).Instance(t)
		m, c := in.Model, in.Config
		if m.Dim() != c.Dim || m.Labels() != c.Labels || m.Clusters() != in.Clusters() || m.Cells() != len(c.Lists) || m.Config().Fingerprint != c.Fingerprint {
			t.Fatalf("dim %d, labels %d, clusters %d, cells %d, fingerprint %x", m.Dim(), m.Labels(), m.Clusters(), m.Cells(), m.Config().Fingerprint)
		}
		if !slices.Equal(m.Config().Clusters, c.Clusters) || !slices.Equal(m.Config().Shells, c.Shells) {
			t.Fatalf("cluster weights or shells %v differ", m.Config().Shells)
		}
		if m.Tail() != c.Tail {
			t.Fatal("found another tail")
		}
		longest := 1
		for cell, want := range c.Lists {
			got := m.List(cell)
			if longest = max(longest, len(want.IDs)); want.Shares == nil {
				want.Shares = slices.Repeat([]uint16{math.MaxUint16}, len(want.IDs))
			}
			if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Shares, want.Shares) {
				t.Fatalf("list %d: %v, want %v", cell, got, want)
			}
		}
		if m.Config().Always != c.Always {
			t.Fatalf("always %v, want %d of %v", m.Config().Always, c.Always, c.Lists[0].IDs)
		}
		ladder := c.Ladder
		if ladder == nil { // one budget, of whole lists
			ladder = []screening.Rung{{Budget: float64(longest)}}
		}
		if c.Budget == 0 {
			c.Budget = ladder[len(ladder)-1].Budget
		}
		if !slices.Equal(m.Ladder(), ladder) || m.Budget() != c.Budget {
			t.Fatalf("ladder %v, budget %v, want %v and %v", m.Ladder(), m.Budget(), ladder, c.Budget)
		}
	})
}

func TestModelChangesNothingOfItsConfiguration(t *testing.T) {
	c := screening.Config{
		Dim: 1, Labels: 9, Clusters: []float32{1, 2}, Shells: []float64{0.5}, Always: 1,
		Lists: []screening.List{
			{IDs: []uint32{5, 1, 2}, Shares: []uint16{65535, 4, 4}}, {IDs: []uint32{5}}, {IDs: []uint32{5}}, {IDs: []uint32{5, 6}},
		},
		Ladder: []screening.Rung{{Budget: 2}}, Record: json.RawMessage(`{"a": 1}`),
	}
	m, err := screening.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	before := encode(t, m)
	if c.Lists[1].Shares != nil {
		t.Error("found shares filled in in the list of the caller")
	}
	// The capacity of a list ends with it.
	_, _ = append(m.List(0).IDs, 8), append(m.List(0).Shares, 8)
	if candidates, err := m.Candidates(0, 2); err != nil {
		t.Error(err)
	} else {
		_ = append(candidates, 8)
	}
	if !slices.Equal(encode(t, m), before) {
		t.Error("appending to a list changed the model")
	}
}

func TestRecordIsAnObject(t *testing.T) {
	model := func(record string) (*screening.Model, error) {
		c := screening.Config{Dim: 1, Labels: 1, Clusters: []float32{1}, Lists: make([]screening.List, 1)}
		if record != "nil" {
			c.Record = json.RawMessage(record)
		}
		return screening.NewModel(c)
	}
	for record, want := range map[string]string{
		"nil": "{}", "{}": "{}", ` {"b" : [1, null]} `: ` {"b" : [1, null]} `, `{"ü":"é"}`: `{"ü":"é"}`,
	} {
		if m, err := model(record); err != nil || string(m.Record()) != want {
			t.Errorf("record %q: %v, want it byte for byte", record, err)
		}
	}
	for record, want := range map[string]string{
		"":                 "screen: record: found unexpected end of JSON input, expected JSON",
		"{":                "screen: record: found unexpected end of JSON input at byte 0, expected JSON",
		"{}{}":             "screen: record: found invalid character '{' after top-level value at byte 2, expected JSON",
		" [1]":             "screen: record: found \"[1]\", expected an object",
		"1":                "screen: record: found \"1\", expected an object",
		"null":             "screen: record: found \"null\", expected an object",
		"{\"a\":\"\xff\"}": "screen: record: found bytes that are not UTF-8, expected JSON",
	} {
		if _, err := model(record); err == nil || err.Error() != want {
			t.Errorf("record %q: error %v, want %s", record, err, want)
		}
	}
}

// If int has 32 bits there can be no more labels than it counts, and 2^32
// is 0.
var (
	mostLabels    = fmt.Sprint(uint64(min(math.MaxInt, math.MaxUint32)))
	mostBytes     = fmt.Sprint(math.MaxInt - 1)
	tooManyLabels = fmt.Sprint(uint64(math.MaxUint32+1) & math.MaxUint)
)

func TestNewModelRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name string
		edit func(*screening.Config)
		want string
	}{
		{"dim 0", func(c *screening.Config) { c.Dim = 0 }, "screen: dim: found 0, expected at least 1"},
		{"dim negative", func(c *screening.Config) { c.Dim = -2 }, "screen: dim: found -2, expected at least 1"},
		{"no labels", func(c *screening.Config) { c.Labels = 0 }, "screen: labels: found 0, expected 1 to " + mostLabels},
		{"negative labels", func(c *screening.Config) { c.Labels = -1 }, "screen: labels: found -1, expected 1 to " + mostLabels},
		{"no clusters", func(c *screening.Config) { c.Clusters = nil }, "screen: clusters: found 0 elements, expected a positive multiple of dim 2"},
		{"ragged clusters", func(c *screening.Config) { c.Clusters = c.Clusters[:3] }, "screen: clusters: found 3 elements, expected a positive multiple of dim 2"},
		{"NaN in a cluster", func(c *screening.Config) { c.Clusters[3] = nan }, "screen: clusters: found NaN at row 1, column 1, expected finite numbers"},
		{"Inf in a cluster", func(c *screening.Config) { c.Clusters[2] = -inf }, "screen: clusters: found -Inf at row 1, column 0, expected finite numbers"},
		{"cosines that ascend", func(c *screening.Config) { c.Shells = []float64{0.1, 0.2} }, "screen: shells: found cosine 0.2 at position 1, expected descending numbers above -1 and below 1"},
		{"a cosine of 1", func(c *screening.Config) { c.Shells = []float64{1} }, "screen: shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
		{"a list too few", func(c *screening.Config) { c.Lists = c.Lists[:1] }, "screen: lists: found 1, expected one for each of 2 cells"},
		{"a list too many", func(c *screening.Config) { c.Lists = append(c.Lists, screening.List{}) }, "screen: lists: found 3, expected one for each of 2 cells"},
		{"no lists", func(c *screening.Config) { c.Lists = nil }, "screen: lists: found 0, expected one for each of 2 cells"},
		{"shells and lists for one", func(c *screening.Config) { c.Shells = []float64{0.5} }, "screen: lists: found 2, expected one for each of 4 cells"},
		{"a share too few", func(c *screening.Config) { c.Lists[0].Shares = []uint16{1} }, "screen: lists: list 0: found 1 shares, expected one for each of 2 ids"},
		{"shares that ascend", func(c *screening.Config) { c.Lists[0].Shares = []uint16{1, 2} }, "screen: lists: list 0: found share 2 after 1 at position 1, expected shares that do not ascend"},
		{"descending ids of one share", func(c *screening.Config) { c.Lists[1].IDs = []uint32{4, 3} }, "screen: lists: list 1: found id 3 after 4 at position 1, expected ascending, distinct ids of one share"},
		{"an id twice in one share", func(c *screening.Config) { c.Lists[1].IDs = []uint32{1, 5, 5} }, "screen: lists: list 1: found id 5 after 5 at position 2, expected ascending, distinct ids of one share"},
		{"an id twice", func(c *screening.Config) {
			c.Lists[1] = screening.List{IDs: []uint32{5, 1, 5}, Shares: []uint16{3, 2, 1}}
		}, "screen: lists: list 1: found id 5 twice, expected distinct ids"},
		{"an id twice of many labels", func(c *screening.Config) {
			c.Labels = 1 << 30
			c.Lists[1] = screening.List{IDs: []uint32{5, 1, 5}, Shares: []uint16{3, 2, 1}}
		}, "screen: lists: list 1: found id 5 twice, expected distinct ids"},
		{"an id of L", func(c *screening.Config) { c.Lists[0].IDs[1] = 10 }, "screen: lists: list 0: found id 10 at position 1, expected ids below 10 labels"},
		{"less than no ids by decree", func(c *screening.Config) { c.Always = -1 }, "screen: lists: found -1 ids in every list by decree, expected 0 to the 2 of list 0"},
		{"more ids by decree than a list", func(c *screening.Config) { c.Always = 3 }, "screen: lists: found 3 ids in every list by decree, expected 0 to the 2 of list 0"},
		{"an id by decree that a list lacks", func(c *screening.Config) { c.Always = 1 }, "screen: lists: list 1: found other ids at its head than at the head of list 0, expected the same 1"},
		{"an id by decree with a share", func(c *screening.Config) {
			c.Always, c.Lists[0].Shares, c.Lists[1].IDs = 1, []uint16{65534, 1}, []uint32{1}
		}, "screen: lists: list 0: found share 65534 at position 0, expected 65535 of an id that is there by decree"},
		{"an empty ladder", func(c *screening.Config) { c.Ladder = []screening.Rung{} }, "screen: ladder: found 0 budgets, expected 1 to 64"},
		{"a long ladder", func(c *screening.Config) { c.Ladder = make([]screening.Rung, 65) }, "screen: ladder: found 65 budgets, expected 1 to 64"},
		{"a budget of 0", func(c *screening.Config) { c.Ladder[0].Budget = 0 }, "screen: ladder: rung 0: found budget 0, expected finite numbers above 0, ascending"},
		{"a budget of NaN", func(c *screening.Config) { c.Ladder[1].Budget = math.NaN() }, "screen: ladder: rung 1: found budget NaN, expected finite numbers above 0, ascending"},
		{"an infinite budget", func(c *screening.Config) { c.Ladder[1].Budget = math.Inf(1) }, "screen: ladder: rung 1: found budget +Inf, expected finite numbers above 0, ascending"},
		{"a budget twice", func(c *screening.Config) { c.Ladder[1].Budget = 1 }, "screen: ladder: rung 1: found budget 1, expected finite numbers above 0, ascending"},
		{"a share of a budget that ascends", func(c *screening.Config) { c.Ladder[1].Share = 10 }, "screen: ladder: rung 1: found share 10 after 9, expected shares that do not ascend"},
		{"a mean of NaN", func(c *screening.Config) { c.Ladder[0].MeanCandidates = math.NaN() }, "screen: ladder: rung 0: found NaN, 0 and 0 candidates, expected a mean, a 99th percentile and a largest number"},
		{"a percentile above the largest", func(c *screening.Config) { c.Ladder[0].P99Candidates = 1 }, "screen: ladder: rung 0: found 0, 1 and 0 candidates, expected a mean, a 99th percentile and a largest number"},
		{"more candidates than labels", func(c *screening.Config) { c.Ladder[0].MaxCandidates = 11 }, "screen: ladder: rung 0: found 0, 0 and 11 candidates, expected a mean, a 99th percentile and a largest number"},
		{"a precision above 1", func(c *screening.Config) { c.Ladder[0].Precision1 = screening.Estimate{Value: 1, Low: 1, High: 1.1} }, "screen: ladder: rung 0: found precision 1 within 1 and 1.1, expected numbers from 0 to 1 in order"},
		{"a precision outside its interval", func(c *screening.Config) {
			c.Ladder[0].PrecisionK = screening.Estimate{Value: 0.5, Low: 0.6, High: 0.7}
		}, "screen: ladder: rung 0: found precision 0.5 within 0.6 and 0.7, expected numbers from 0 to 1 in order"},
		{"a precision of NaN", func(c *screening.Config) { c.Ladder[1].Precision1.Low = math.NaN() }, "screen: ladder: rung 1: found precision 0 within NaN and 0, expected numbers from 0 to 1 in order"},
		{"figures of more labels than there are", func(c *screening.Config) { c.K = 11 }, "screen: ladder: found k 11 and 0 held-out contexts, expected 0 to the 10 labels, and 0 or more"},
		{"figures of less than no contexts", func(c *screening.Config) { c.HeldOut = -1 }, "screen: ladder: found k 0 and -1 held-out contexts, expected 0 to the 10 labels, and 0 or more"},
		{"a budget that is not of the ladder", func(c *screening.Config) { c.Budget = 1.5 }, "screen: budget: found 1.5, expected one of the ladder"},
		{"a record that is no object", func(c *screening.Config) { c.Record = json.RawMessage(`"x"`) }, `screen: record: found "\"x\"", expected an object`},
		{"a tail of another shape", func(c *screening.Config) {
			c.Tail, _ = tail.New(tail.Config{Clusters: 1, Temperatures: []float64{1}, Intercepts: []float32{1}, Slopes: []float32{1}, Directions: []float32{1}, Squares: []float32{0, 0}, Ranges: screentest.Everything(1, 1), Cosines: screentest.AnyCosine(1)})
		}, "screen: tail: found one for 1 clusters of dim 1, expected 2 of 2"},
		{"too many labels", func(c *screening.Config) { tooMany := uint64(1) << 32; c.Labels = int(tooMany) }, "screen: labels: found " + tooManyLabels + ", expected 1 to " + mostLabels},
	} {
		config := screening.Config{
			Dim: 2, Labels: 10, Clusters: []float32{1, 2, 3, 4}, Lists: []screening.List{{IDs: []uint32{1, 5}}, {}},
			Ladder: []screening.Rung{{Budget: 1, Share: 9}, {Budget: 2, Share: 9}},
		}
		c.edit(&config)
		if m, err := screening.NewModel(config); err == nil || err.Error() != c.want || m != nil {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

// remade is a model of the parts of another one, of which edit replaces some.
func remade(m *screening.Model, edit func(c *screening.Config)) (*screening.Model, error) {
	c := m.Config()
	edit(&c)
	return screening.NewModel(c)
}

func TestAModelOfAnotherTail(t *testing.T) {
	in, other := screentest.Tailed(t), screentest.Shape{Labels: 300, Dim: 12, Clusters: 7, Contexts: 1, Tail: []float64{1}, Seed: 3}.Instance(t)
	without, err := remade(in.Model, func(c *screening.Config) { c.Tail, c.Record = nil, []byte(`{"a":1}`) })
	if err != nil {
		t.Fatal(err)
	}
	if without.Tail() != nil || string(without.Record()) != `{"a":1}` || in.Model.Tail() == nil || string(in.Model.Record()) != "{}" {
		t.Errorf("found the tails %v and %v and the records %s and %s", without.Tail(), in.Model.Tail(), without.Record(), in.Model.Record())
	}
	again, err := remade(without, func(c *screening.Config) { c.Tail, c.Record = in.Config.Tail, []byte("{}") })
	if err != nil || !slices.Equal(encode(t, again), encode(t, in.Model)) {
		t.Errorf("found another model with the tail again, %v", err)
	}
	if _, err := remade(in.Model, func(c *screening.Config) { c.Tail = other.Config.Tail }); err == nil || err.Error() != "screen: tail: found one for 7 clusters of dim 12, expected 9 of 24" {
		t.Errorf("a tail of another shape: found %v", err)
	}
	if _, err := remade(in.Model, func(c *screening.Config) { c.Tail, c.Record = nil, []byte("[]") }); err == nil || !strings.Contains(err.Error(), "record: ") {
		t.Errorf("a record that is no object: found %v", err)
	}
}
