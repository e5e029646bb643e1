package screening_test

import (
	"testing"
	"unsafe"
)

// lineWords is the number of words of a cache line.
const lineWords = 8

// table is memory, pieces of which are read: the time of a query that only fetches its bytes. It is
// for one goroutine.
type table struct {
	words []uint64
	sum   uint64 // so that the compiler keeps the reads
}

// newTable returns a table in memory, at least a cache line, which it writes to.
func newTable(memory []byte) *table {
	clear(memory)
	return &table{words: unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), len(memory)/(8*lineWords)*lineWords)}
}

// read reads a word of each cache line of about n bytes that follow each other, at most the whole
// table. Each i has its place; the places are spread over the table. The two halves are read
// alternately: one stream alone has fewer lines under way.
func (t *table) read(i, n int) {
	lines := len(t.words) / lineWords
	n = min((n+8*lineWords-1)/(8*lineWords), lines)
	first := int(uint64(i) * 0x9e3779b97f4a7c15 % uint64(lines-n+1)) // by the golden ratio
	sum := t.sum
	half := n / 2
	low, high := t.words[first*lineWords:(first+half)*lineWords], t.words[(first+half)*lineWords:(first+n)*lineWords]
	for w := 0; w < len(low) && w < len(high); w += lineWords {
		sum += low[w] + high[w]
	}
	if n%2 != 0 {
		sum += high[len(high)-lineWords]
	}
	t.sum = sum
}

// The words of a table are 1 in the first line, 2 in the second and so on, so that a sum identifies
// the lines that were read.
func TestTableReadsAPieceOfItsLines(t *testing.T) {
	const lines = 100
	pieces := newTable(make([]byte, 64*lines+63))
	for i := range lines {
		pieces.words[i*lineWords] = uint64(i + 1)
	}
	starts := map[uint64]bool{}
	for i := range 50 {
		for bytes, want := range map[int]uint64{1: 1, 64: 1, 65: 2, 640: 10, 64 * lines: lines, 65 * lines: lines} {
			pieces.sum = 0
			pieces.read(i, bytes)
			// The sum of first+1 ... first+n
			first := (pieces.sum - want*(want+1)/2) / want
			if pieces.sum != want*first+want*(want+1)/2 || first+want > lines {
				t.Fatalf("place %d, %d bytes: found the sum %d, expected it of %d lines within %d", i, bytes, pieces.sum, want, lines)
			}
			if want == 10 {
				starts[first] = true
			}
		}
	}
	if len(starts) < 25 {
		t.Errorf("found %d starts of 50 pieces, expected most to differ", len(starts))
	}
	if n := testing.AllocsPerRun(3, func() { pieces.read(1, 640) }); n != 0 {
		t.Errorf("found %v allocations, expected 0", n)
	}
}
