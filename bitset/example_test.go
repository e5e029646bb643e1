package bitset_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s/bitset"
)

func Example() {
	const labels = 10000 // the vocabulary

	c, err := bitset.FromIDs(labels, []uint32{2, 64, 9999}) // sorted ids, as a file holds them
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
