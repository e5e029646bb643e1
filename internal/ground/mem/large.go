package mem

import (
	"runtime"
	"sync"
	"unsafe"
)

// align is the alignment of all tables: a cache line.
const align = 64

const (
	// minMapped is the size from which a table gets a mapping of its own.
	minMapped = 1 << 20
	// minShared is the size from which a table is put with others: a smaller one is of few
	// pages anyway.
	minShared = 4 << 10
)

// Alloc returns n zero bytes that start at a multiple of 64, and a function
// that releases them, or leaves them to the garbage collector. After the release
// the bytes must not be touched.
func Alloc(n int) (table []byte, release func()) {
	switch {
	case n >= minMapped:
		if table, release, ok := mapLarge(n); ok {
			return table, release
		}
	case n >= minShared:
		if table, release, ok := allocShared(n); ok {
			return table, release
		}
	}
	buf := make([]byte, n+align)
	start := int(-uintptr(unsafe.Pointer(&buf[0])) % align)
	return buf[start : start+n : start+n], func() {}
}

// Own returns x, which has a table that is released when x is unreachable; or, if there is an error,
// releases the table and returns nil.
func Own[T any](x *T, err error, release func()) *T {
	if err != nil {
		release()
		return nil
	}
	runtime.AddCleanup(x, func(release func()) { release() }, release)
	return x
}

// chunk is a large page that small tables share. It is unmapped when the last of
// them is released and no more will follow.
type chunk struct {
	free   []byte // memory that no table has had
	tables int    // that are in use
	unmap  func()
}

var (
	chunkMu sync.Mutex
	current *chunk // the chunk of the next small table; nil for none
)

// allocShared returns n bytes of a chunk, n below minMapped.
func allocShared(n int) (table []byte, release func(), ok bool) {
	chunkMu.Lock()
	defer chunkMu.Unlock()
	size := (n + align - 1) &^ (align - 1)
	if current == nil || len(current.free) < size {
		free, unmap, ok := mapLarge(hugePage)
		if !ok {
			return nil, nil, false
		}
		if current != nil && current.tables == 0 {
			current.unmap()
		}
		current = &chunk{free: free, unmap: unmap}
	}
	c := current
	table, c.free = c.free[:n:n], c.free[size:]
	c.tables++
	return table, func() {
		chunkMu.Lock()
		defer chunkMu.Unlock()
		if c.tables--; c.tables == 0 {
			if c == current {
				current = nil
			}
			c.unmap()
		}
	}, true
}

// maxAdvised bounds the memory that Advise moves, some 0.3 ms a MiB.
const maxAdvised = 64 << 20

// minReloaded is the size from which a part of a file is worth it to read it again.
const minReloaded = 8 << 20

// Reload has a part of a mapped file, which is searched again and again, be in large pages of the
// system's cache. What is in small ones, as of a file that was downloaded or copied, leaves the
// cache and is read again, unless another program has it mapped too: some .2 s for 178 MB, and a
// pass over them takes 6.5 ms then, not 9. Where the file system has no large pages it reads some
// pages in vain. Other memory, and parts below 8 MiB, stay as they are.
func Reload(x []byte) {
	if len(x) >= minReloaded {
		reload(x)
	}
}

// Advise asks the system to move allocated memory to large pages at once. It does not report
// whether this was done: memory of a file is not moved. Tables above 64 MiB are not moved.
func Advise(x []byte) {
	if len(x) <= maxAdvised {
		collapse(x)
	}
}
