package screen_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/screen"
)

func TestModelHoldsItsConfiguration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawShape(t).instance(t)
		m, c := in.model, in.config
		if m.Dim() != c.Dim || m.Labels() != c.Labels || m.Clusters() != in.clusters() || !slices.Equal(m.Shells(), c.Shells) || m.Fingerprint() != c.Fingerprint {
			t.Fatalf("dim %d, labels %d, clusters %d, fingerprint %x", m.Dim(), m.Labels(), m.Clusters(), m.Fingerprint())
		}
		if !slices.Equal(m.ClusterWeights(), c.Clusters) {
			t.Fatal("cluster weights differ")
		}
		if m.Groups() != len(c.GroupSizes) || !slices.Equal(m.GroupWeights(), c.Groups) {
			t.Fatalf("%d groups of %v, want %d of %v", m.Groups(), m.GroupWeights(), len(c.GroupSizes), c.Groups)
		}
		if m.ProbeMargin() != c.ProbeMargin || m.ExactMargin() != c.ExactMargin {
			t.Fatalf("margins %v and %v, want %v and %v", m.ProbeMargin(), m.ExactMargin(), c.ProbeMargin, c.ExactMargin)
		}
		if !slices.Equal(m.GroupSizes(), c.GroupSizes) {
			t.Fatalf("groups of %v clusters, want %v", m.GroupSizes(), c.GroupSizes)
		}
		if !slices.Equal(m.GroupClusters(), c.GroupClusters) {
			t.Fatalf("groups have the clusters %v, want %v", m.GroupClusters(), c.GroupClusters)
		}
		always := slices.Clone(c.Always)
		slices.Sort(always)
		if !slices.Equal(m.Always(), slices.Compact(always)) {
			t.Fatalf("always %v, want %v sorted", m.Always(), c.Always)
		}
		total, largest := 0, 0
		for s := range c.Sets {
			want := in.candidates(s)
			if !slices.Equal(m.Candidates(s), want) {
				t.Fatalf("set %d: %v, want %v", s, m.Candidates(s), want)
			}
			total, largest = total+len(want), max(largest, len(want))
		}
		if len(m.Pairs()) != len(c.Pairs) {
			t.Fatalf("%d pairs, want %d", len(m.Pairs()), len(c.Pairs))
		}
		for i, p := range m.Pairs() {
			want := c.Pairs[i]
			want.Set = in.always(want.Set)
			set, ok := m.PairCandidates(p.Second, p.First)
			if p.First != want.First || p.Second != want.Second || !slices.Equal(p.Set, want.Set) || !ok || !slices.Equal(set, want.Set) {
				t.Fatalf("pair %d: %v, by its clusters %v, want %v", i, p, set, want)
			}
			largest = max(largest, len(want.Set))
		}
		if m.LargestSet() != largest || m.MeanSetSize() != float64(total)/float64(len(c.Sets)) {
			t.Fatalf("largest set %d, mean %v, want %d and %d ids in all", m.LargestSet(), m.MeanSetSize(), largest, total)
		}
	})
}

func TestModelKeepsNothingOfItsConfiguration(t *testing.T) {
	c := screen.Config{
		Dim: 1, Labels: 9, Clusters: []float32{1, 2}, Sets: [][]uint32{{1, 2}, {3}}, Always: []uint32{5, 4},
		Groups: []float32{1, 2}, GroupSizes: []int{1, 2}, GroupClusters: []uint32{1, 0, 1},
		Pairs:  []screen.Pair{{First: 0, Second: 1, Set: []uint32{6}}},
		Record: json.RawMessage(`{"a": 1}`),
	}
	m, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Always[0] != 5 {
		t.Error("the always ids of the caller were sorted in place")
	}
	before := encode(t, m)
	c.Clusters[0], c.Sets[0][0], c.Always[0], c.Record[1], c.Groups[0], c.GroupSizes[0], c.GroupClusters[0], c.Pairs[0].Set[0] = 7, 7, 7, 7, 7, 7, 7, 7
	if !slices.Equal(encode(t, m), before) {
		t.Error("a change of the configuration changed the model")
	}
	// The capacity of a set ends with it.
	_ = append(m.Candidates(0), 8)
	if !slices.Equal(encode(t, m), before) {
		t.Error("appending to a set changed the model")
	}
}

func TestRecordIsAnObject(t *testing.T) {
	model := func(record string) (*screen.Model, error) {
		c := screen.Config{Dim: 1, Labels: 1, Clusters: []float32{1}, Sets: [][]uint32{{}}}
		if record != "nil" {
			c.Record = json.RawMessage(record)
		}
		return screen.NewModel(c)
	}
	for record, want := range map[string]string{
		"nil": "{}", "{}": "{}", ` {"b" : [1, null]} `: ` {"b" : [1, null]} `, `{"ü":"é"}`: `{"ü":"é"}`,
	} {
		if m, err := model(record); err != nil || string(m.Record()) != want {
			t.Errorf("record %q: %v, want it byte for byte", record, err)
		}
	}
	for record, want := range map[string]string{
		"":                 "screen: record: found unexpected end of JSON input, expected a JSON object",
		"{":                "screen: record: found unexpected end of JSON input, expected a JSON object",
		"{}{}":             "screen: record: found invalid character '{' after top-level value, expected a JSON object",
		" [1]":             "screen: record: found JSON that starts with '[', expected a JSON object",
		"1":                "screen: record: found JSON that starts with '1', expected a JSON object",
		"null":             "screen: record: found JSON that starts with 'n', expected a JSON object",
		"{\"a\":\"\xff\"}": "screen: record: found bytes that are not UTF-8, expected a JSON object",
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
	tooManyLabels = fmt.Sprint(uint64(math.MaxUint32+1) & math.MaxUint)
)

func TestNewModelRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name string
		edit func(*screen.Config)
		want string
	}{
		{"dim 0", func(c *screen.Config) { c.Dim = 0 }, "screen: dim: found 0, expected at least 1"},
		{"dim negative", func(c *screen.Config) { c.Dim = -2 }, "screen: dim: found -2, expected at least 1"},
		{"no labels", func(c *screen.Config) { c.Labels = 0 }, "screen: labels: found 0, expected 1 to " + mostLabels},
		{"negative labels", func(c *screen.Config) { c.Labels = -1 }, "screen: labels: found -1, expected 1 to " + mostLabels},
		{"no clusters", func(c *screen.Config) { c.Clusters = nil }, "screen: clusters: found 0 elements, expected a positive multiple of dim 2"},
		{"ragged clusters", func(c *screen.Config) { c.Clusters = c.Clusters[:3] }, "screen: clusters: found 3 elements, expected a positive multiple of dim 2"},
		{"NaN in a cluster", func(c *screen.Config) { c.Clusters[3] = nan }, "screen: clusters: found NaN at row 1, column 1, expected finite numbers"},
		{"Inf in a cluster", func(c *screen.Config) { c.Clusters[2] = -inf }, "screen: clusters: found -Inf at row 1, column 0, expected finite numbers"},
		{"NaN as a margin", func(c *screen.Config) { c.ProbeMargin = math.NaN() }, "screen: probe margin: found NaN, expected a finite number that is not negative"},
		{"a negative margin", func(c *screen.Config) { c.ExactMargin = -0.5 }, "screen: exact margin: found -0.5, expected a finite number that is not negative"},
		{"negative zero", func(c *screen.Config) { c.ExactMargin = math.Copysign(0, -1) }, "screen: exact margin: found -0, expected a finite number that is not negative"},
		{"an infinite margin", func(c *screen.Config) { c.ExactMargin = math.Inf(1) }, "screen: exact margin: found +Inf, expected a finite number that is not negative"},
		{"sizes without groups", func(c *screen.Config) { c.GroupSizes = []int{1, 1} }, "screen: groups: found 0 elements, expected a positive multiple of dim 2"},
		{"ragged groups", func(c *screen.Config) { c.Groups = []float32{1, 2, 3} }, "screen: groups: found 3 elements, expected a positive multiple of dim 2"},
		{"NaN in a group", func(c *screen.Config) { c.Groups, c.GroupSizes = []float32{1, 2, nan, 4}, []int{1, 1} }, "screen: groups: found NaN at row 1, column 0, expected finite numbers"},
		{"groups without sizes", func(c *screen.Config) { c.Groups = []float32{1, 2} }, "screen: group sizes: found 0, expected one for each of 1 groups"},
		{"an empty group", func(c *screen.Config) { c.Groups, c.GroupSizes = []float32{1, 2, 3, 4}, []int{2, 0} }, "screen: group sizes: group 1: found 0 clusters, expected 1 to the 0 that are left of 2"},
		{"a negative group", func(c *screen.Config) { c.Groups, c.GroupSizes = []float32{1, 2, 3, 4}, []int{-1, 3} }, "screen: group sizes: group 0: found -1 clusters, expected 1 to the 2 that are left of 2"},
		{"groups too large", func(c *screen.Config) { c.Groups, c.GroupSizes = []float32{1, 2, 3, 4}, []int{1, 2} }, "screen: group sizes: group 1: found 2 clusters, expected 1 to the 1 that are left of 2"},
		{"lists without groups", func(c *screen.Config) { c.GroupClusters = []uint32{0} }, "screen: group clusters: found 1 without groups, expected none"},
		{"lists too short", func(c *screen.Config) {
			c.Groups, c.GroupSizes, c.GroupClusters = []float32{1, 2, 3, 4}, []int{1, 2}, []uint32{0, 1}
		}, "screen: group sizes: group 1: found 2 clusters, expected 1 to the 1 that are left of 2 in the lists"},
		{"a cluster of a list beyond", func(c *screen.Config) {
			c.Groups, c.GroupSizes, c.GroupClusters = []float32{1, 2, 3, 4}, []int{1, 2}, []uint32{0, 1, 2}
		}, "screen: group clusters: group 1: found cluster 2 at position 1, expected below 2"},
		{"groups too small", func(c *screen.Config) { c.Groups, c.GroupSizes = []float32{1, 2}, []int{1} }, "screen: group sizes: found 1 clusters in all, expected 2"},
		{"a set too few", func(c *screen.Config) { c.Sets = c.Sets[:1] }, "screen: sets: found 1, expected one for each of 2 clusters"},
		{"a set too many", func(c *screen.Config) { c.Sets = append(c.Sets, nil) }, "screen: sets: found 3, expected one for each of 2 clusters"},
		{"no sets", func(c *screen.Config) { c.Sets = nil }, "screen: sets: found 0, expected one for each of 2 clusters"},
		{"shells and sets for one", func(c *screen.Config) { c.Shells = []float64{0.5} }, "screen: sets: found 2, expected one for each of 2 clusters in each of 2 shells"},
		{"a cosine of 1", func(c *screen.Config) { c.Shells = []float64{1} }, "screen: shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
		{"a cosine of -1", func(c *screen.Config) { c.Shells = []float64{0, -1} }, "screen: shells: found cosine -1 at position 1, expected descending numbers above -1 and below 1"},
		{"a cosine of NaN", func(c *screen.Config) { c.Shells = []float64{math.NaN()} }, "screen: shells: found cosine NaN at position 0, expected descending numbers above -1 and below 1"},
		{"a cosine twice", func(c *screen.Config) { c.Shells = []float64{0.5, 0.5} }, "screen: shells: found cosine 0.5 at position 1, expected descending numbers above -1 and below 1"},
		{"too many shells", func(c *screen.Config) { c.Shells = make([]float64, 17) }, "screen: shells: found 17 cosines, expected at most 16"},
		{"a pair across shells", func(c *screen.Config) {
			c.Shells, c.Sets = []float64{0.5}, make([][]uint32, 4)
			c.Pairs = []screen.Pair{{First: 1, Second: 2}}
		}, "screen: pairs: found cells 1 and 2 at position 0, expected two of one shell of 2 clusters"},
		{"a pair with a cell beyond", func(c *screen.Config) {
			c.Shells, c.Sets = []float64{0.5}, make([][]uint32, 4)
			c.Pairs = []screen.Pair{{First: 3, Second: 4}}
		}, "screen: pairs: found clusters 3 and 4 at position 0, expected two ascending below 4"},
		{"descending ids", func(c *screen.Config) { c.Sets[1] = []uint32{4, 3} }, "screen: sets: set 1: found id 3 after 4 at position 1, expected ascending, distinct ids"},
		{"an id twice", func(c *screen.Config) { c.Sets[0] = []uint32{1, 5, 5} }, "screen: sets: set 0: found id 5 after 5 at position 2, expected ascending, distinct ids"},
		{"an id of L", func(c *screen.Config) { c.Sets[0] = []uint32{1, 10} }, "screen: sets: set 0: found id 10 at position 1, expected ids below 10 labels"},
		{"an always id of L", func(c *screen.Config) { c.Always = []uint32{10, 2} }, "screen: always: found id 10 at position 1, expected ids below 10 labels"},
		{"a record that is no object", func(c *screen.Config) { c.Record = json.RawMessage(`"x"`) }, `screen: record: found JSON that starts with '"', expected a JSON object`},
		{"a pair of one cluster", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: 1, Second: 1}} }, "screen: pairs: found clusters 1 and 1 at position 0, expected two ascending below 2"},
		{"a pair that descends", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: 1, Second: 0}} }, "screen: pairs: found clusters 1 and 0 at position 0, expected two ascending below 2"},
		{"a pair with a cluster beyond", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: 0, Second: 2}} }, "screen: pairs: found clusters 0 and 2 at position 0, expected two ascending below 2"},
		{"a pair with a negative cluster", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: -1, Second: 1}} }, "screen: pairs: found clusters -1 and 1 at position 0, expected two ascending below 2"},
		{"a pair twice", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: 0, Second: 1}, {First: 0, Second: 1}} }, "screen: pairs: found clusters 0 and 1 after 0 and 1 at position 1, expected ascending, distinct pairs"},
		{"an id of L for a pair", func(c *screen.Config) { c.Pairs = []screen.Pair{{First: 0, Second: 1, Set: []uint32{10}}} }, "screen: pairs: set 0: found id 10 at position 0, expected ids below 10 labels"},
		{"too many labels", func(c *screen.Config) { tooMany := uint64(1) << 32; c.Labels = int(tooMany) }, "screen: labels: found " + tooManyLabels + ", expected 1 to " + mostLabels},
	} {
		config := screen.Config{Dim: 2, Labels: 10, Clusters: []float32{1, 2, 3, 4}, Sets: [][]uint32{{1, 5}, {}}}
		c.edit(&config)
		if m, err := screen.NewModel(config); err == nil || err.Error() != c.want || m != nil {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}
