package bitset_test

import (
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
)

func Example() {
	const labels = 10000 // the vocabulary

	c, err := bitset.FromIDs(labels, []uint32{2, 64, 9999}) // ascending ids
	if err != nil {
		fmt.Println(err)
		return
	}
	always := bitset.New(labels)
	always.Add(0) // <unk>
	always.Add(2) // <eos>

	c.Union(always)
	fmt.Println(c.Count(), "of", c.Len(), "labels; 64 among them:", c.Has(64))
	for id := range c.All() {
		fmt.Print(id, " ")
	}
	// Output:
	// 4 of 10000 labels; 64 among them: true
	// 0 2 64 9999
}

// The labels that both of two rules allow, computed again at each step of a decoder in the same
// memory: they are for l2s.Request.Allowed.
func ExampleSet_Intersect() {
	const labels = 8
	grammar, err := bitset.FromIDs(labels, []uint32{1, 2, 3, 5}) // of this step
	if err != nil {
		fmt.Println(err)
		return
	}
	always := bitset.New(labels) // of the whole text
	always.Fill()
	always.Remove(3)

	allowed := bitset.New(labels)
	for range 2 { // steps
		allowed.Clear()
		allowed.Union(grammar)
		allowed.Intersect(always)
		fmt.Println(slices.Collect(allowed.All()))
		always.Remove(5)
	}
	// Output:
	// [1 2 5]
	// [1 2]
}
