// Package cold puts the caches in the state in which a query finds them that is
// asked between two steps of a decoder: full of something else.
package cold

import "unsafe"

// Buffer is memory that is read in place of what a program does between two
// queries. It is for one goroutine.
type Buffer struct {
	words []uint64
	sum   uint64 // lest the reads be left out
}

// lineWords is the number of words of a cache line.
const lineWords = 8

// NewBuffer returns a buffer of that many MiB, at least 1. It lies on the pages on
// which Go puts a large slice, as the weights of a decoder do.
func NewBuffer(mib int) *Buffer {
	b := &Buffer{words: make([]uint64, mib<<20/8)}
	for i := 0; i < len(b.words); i += lineWords {
		b.words[i] = uint64(i) // a page that was never written to is a page of zeros that all share
	}
	return b
}

// Read reads a word of each cache line of the buffer, and then all of the context h: a decoder
// has just written it, so it is the one thing that a query finds in the caches.
func (b *Buffer) Read(h []float32) {
	sum := b.sum
	for i := 0; i < len(b.words); i += lineWords {
		sum += b.words[i]
	}
	for _, x := range h {
		sum += uint64(int64(x))
	}
	b.sum = sum
}

// Table is memory of which pieces are read: what a query takes that only fetches its bytes. It
// is for one goroutine.
type Table struct {
	words []uint64
	sum   uint64 // lest the reads be left out
}

// NewTable returns a table in memory, at least a cache line, which it writes to.
func NewTable(memory []byte) *Table {
	clear(memory)
	return &Table{words: unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), len(memory)/(8*lineWords)*lineWords)}
}

// Read reads a word of each cache line of about n bytes that follow each other, all of
// the table at most. Each i has its place; the places are spread over the table. The two
// halves are read side by side: one stream has fewer lines on their way.
func (t *Table) Read(i, n int) {
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
