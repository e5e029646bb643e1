package bitset

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// edges are the universes where a word begins or ends.
var edges = []int{0, 1, 2, 63, 64, 65, 127, 128, 129}

func drawLabels(t *rapid.T) int {
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.IntRange(0, 300)).Draw(t, "labels")
}

func drawIDs(t *rapid.T, labels int, name string) []uint32 {
	if labels == 0 {
		return nil
	}
	ids := rapid.SliceOfDistinct(rapid.Uint32Range(0, uint32(labels-1)), rapid.ID[uint32]).Draw(t, name)
	slices.Sort(ids)
	return ids
}

// same reports whether two sets have the same universe and the same labels.
func same(s, o *Set) bool {
	return s.Len() == o.Len() && slices.Equal(slices.Collect(s.All()), slices.Collect(o.All()))
}

// check describes how s differs from the model, the plainest form of a set.
func check(s *Set, labels int, model map[uint32]bool) error {
	if s.Len() != labels {
		return fmt.Errorf("Len() = %d, want %d", s.Len(), labels)
	}
	if s.Count() != len(model) {
		return fmt.Errorf("Count() = %d, want %d", s.Count(), len(model))
	}
	for id := range labels {
		if s.Has(uint32(id)) != model[uint32(id)] {
			return fmt.Errorf("Has(%d) = %v", id, s.Has(uint32(id)))
		}
	}
	want := slices.Sorted(maps.Keys(model))
	if got := slices.Collect(s.All()); !slices.Equal(got, want) {
		return fmt.Errorf("All() = %v, want %v", got, want)
	}
	for _, first := range edges {
		for _, end := range edges {
			if first > end || end > labels {
				continue
			}
			var out []uint32
			for id := first; id < end; id++ {
				if !model[uint32(id)] {
					out = append(out, uint32(id))
				}
			}
			if got := slices.Collect(s.Missing(first, end)); !slices.Equal(got, out) {
				return fmt.Errorf("Missing(%d, %d) = %v, want %v", first, end, got, out)
			}
		}
	}
	ones := 0
	for _, w := range s.words {
		ones += bits.OnesCount64(w)
	}
	if len(s.words) != (labels+63)/64 || ones != len(model) {
		return fmt.Errorf("%d words with %d bits for %d labels of %d: a bit beyond the universe is set",
			len(s.words), ones, len(model), labels)
	}
	return nil
}

// againstMap changes a set and a map in the same way and demands that they
// stay the same set.
func againstMap(t *rapid.T) {
	labels := drawLabels(t)
	s, model := New(labels), map[uint32]bool{}
	withSet := func(f func(o *Set, in map[uint32]bool)) func(*rapid.T) {
		return func(t *rapid.T) {
			ids := drawIDs(t, labels, "other")
			o, err := FromIDs(labels, ids)
			if err != nil {
				t.Fatal(err)
			}
			in := map[uint32]bool{}
			for _, id := range ids {
				in[id] = true
			}
			before := o.Clone()
			f(o, in)
			if !same(o, before) {
				t.Fatal("the other operand changed")
			}
		}
	}
	actions := map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			if err := check(s, labels, model); err != nil {
				t.Fatal(err)
			}
		},
		"union": withSet(func(o *Set, in map[uint32]bool) {
			s.Union(o)
			maps.Copy(model, in)
		}),
		"intersect": withSet(func(o *Set, in map[uint32]bool) {
			s.Intersect(o)
			maps.DeleteFunc(model, func(id uint32, _ bool) bool { return !in[id] })
		}),
		"difference": withSet(func(o *Set, in map[uint32]bool) {
			s.Difference(o)
			maps.DeleteFunc(model, func(id uint32, _ bool) bool { return in[id] })
		}),
		"clear": func(*rapid.T) { s.Clear(); clear(model) },
		"fill": func(*rapid.T) {
			s.Fill()
			for id := range labels {
				model[uint32(id)] = true
			}
		},
		"clone": func(t *rapid.T) {
			c := s.Clone()
			if !same(c, s) {
				t.Fatal("a clone differs from its original")
			}
			s.Clear()
			s = c
		},
	}
	if labels > 0 {
		id := rapid.Uint32Range(0, uint32(labels-1))
		actions["add"] = func(t *rapid.T) { i := id.Draw(t, "id"); s.Add(i); model[i] = true }
		actions["remove"] = func(t *rapid.T) { i := id.Draw(t, "id"); s.Remove(i); delete(model, i) }
	}
	t.Repeat(actions)
}

func TestAgainstMap(t *testing.T) { rapid.Check(t, againstMap) }
func FuzzAgainstMap(f *testing.F) { f.Fuzz(rapid.MakeFuzz(againstMap)) }

func TestFullUniverse(t *testing.T) {
	for _, labels := range edges {
		model := map[uint32]bool{}
		s := New(labels)
		for id := range labels {
			s.Add(uint32(id))
			model[uint32(id)] = true
		}
		if err := check(s, labels, model); err != nil {
			t.Errorf("%d labels: %v", labels, err)
		}
	}
	if err := check(&Set{}, 0, nil); err != nil {
		t.Errorf("zero value: %v", err)
	}
}

func TestAllStopsWhenAsked(t *testing.T) {
	s, err := FromIDs(200, []uint32{1, 70, 71, 199})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for id := range s.All() {
		if got = append(got, id); id == 70 {
			break
		}
	}
	if !slices.Equal(got, []uint32{1, 70}) {
		t.Errorf("visited %v before the break at 70", got)
	}
	for id := range s.All() {
		s.Remove(id)
	}
	if s.Count() != 0 {
		t.Errorf("%d labels left after each was removed while visited", s.Count())
	}
}

func TestFromIDsErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels int
		ids    []uint32
		want   string
	}{
		{"id of the universe's size", 64, []uint32{0, 64}, "ids[1]: found 64, expected less than 64"},
		{"id far outside", 65, []uint32{math.MaxUint32}, "ids[0]: found 4294967295"},
		{"any id of an empty universe", 0, []uint32{0}, "ids[0]: found 0, expected less than 0"},
		{"twice", 64, []uint32{3, 3}, "ids[1]: found 3 after 3"},
		{"descending", 64, []uint32{1, 5, 4}, "ids[2]: found 4 after 5"},
		{"negative universe", -1, nil, "labels: found -1"},
	} {
		s, err := FromIDs(c.labels, c.ids)
		if err == nil || s != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error with %q", c.name, s, err, c.want)
		}
	}
}

func TestPanicsBeforeAnyChange(t *testing.T) {
	for _, labels := range edges {
		s, other := New(labels), New(labels+1)
		if labels > 0 {
			s.Add(0)
		}
		other.Add(uint32(labels))
		before := s.Clone()
		for name, f := range map[string]func(){
			"Add":        func() { s.Add(uint32(labels)) },
			"Remove":     func() { s.Remove(uint32(labels)) },
			"Has":        func() { s.Has(math.MaxUint32) },
			"Union":      func() { s.Union(other) },
			"Intersect":  func() { s.Intersect(other) },
			"Difference": func() { s.Difference(other) },
			"New":        func() { New(-1 - labels) },
			"SetBits":    func() { s.SetBits(make([]byte, (labels+7)/8+1)) },
		} {
			if msg := panicOf(f); !strings.HasPrefix(msg, "bitset: ") {
				t.Errorf("%d labels: %s: panic %q, want one that starts with \"bitset: \"", labels, name, msg)
			}
			if !same(s, before) {
				t.Errorf("%d labels: %s changed the set before it panicked", labels, name)
			}
		}
	}
}

func panicOf(f func()) (msg string) {
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

func TestNoAllocation(t *testing.T) {
	a, b := New(10000), New(10000)
	for id := uint32(0); id < 10000; id += 7 {
		b.Add(id)
	}
	ids, sum := make([]uint32, 0, 10000), uint32(0)
	if n := testing.AllocsPerRun(10, func() {
		a.Clear()
		a.Union(b)
		a.Intersect(b)
		for id := range a.All() {
			sum += id
		}
		ids = slices.AppendSeq(ids[:0], a.All())
	}); n != 0 {
		t.Errorf("%v allocations in a reused set, want none", n)
	}
}

// SetBits has the labels of the bits, whatever the set had before and whatever is behind the last
// label.
func TestSetBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := drawLabels(t)
		data := rapid.SliceOfN(rapid.Byte(), (labels+7)/8, (labels+7)/8).Draw(t, "bits")
		before := drawIDs(t, labels, "before")
		s, err := FromIDs(labels, before)
		if err != nil {
			t.Fatal(err)
		}
		s.SetBits(data)
		model := map[uint32]bool{}
		for id := range labels {
			if data[id/8]>>(id%8)&1 != 0 {
				model[uint32(id)] = true
			}
		}
		if err := check(s, labels, model); err != nil {
			t.Fatal(err)
		}
	})
}
