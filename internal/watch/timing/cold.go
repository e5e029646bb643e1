package timing

// Buffer is memory that is read in place of a program's work between two queries, so that the next
// one finds the caches as between two steps of a decoder: full of other data. It belongs to one
// goroutine.
type Buffer struct {
	words []uint64
	sum   uint64 // so that the compiler keeps the reads
}

// lineWords is the number of words of a cache line.
const lineWords = 8

// NewBuffer returns a buffer of that many MiB, at least 1. It is on the pages on
// which Go puts a large slice, as the weights of a decoder do.
func NewBuffer(mib int) *Buffer {
	b := &Buffer{words: make([]uint64, mib<<20/8)}
	for i := 0; i < len(b.words); i += lineWords {
		b.words[i] = uint64(i) // a page that was never written to is a page of zeros that all share
	}
	return b
}

// Read reads a word of each cache line of the buffer, and then all of the context h: a decoder has
// just written it, so only the context is in the caches when a query begins.
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
