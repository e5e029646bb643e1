package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A handle is a number that is no address: 16 bits of this copy of the library, 24 of how often its
// slot was used, and 24 of the slot. So a handle that was closed, and one of another copy, is known as
// such, and nothing is read by it.
const (
	slotBits = 24
	useBits  = 24
	tagBits  = 16
)

type entry struct {
	handle uint64
	value  any
}

// handles is a table of values by their handles. Look-ups take no lock and no memory.
type handles struct {
	tag   uint64 // of the library, not 0
	slots atomic.Pointer[[]*atomic.Pointer[entry]]
	mu    sync.Mutex // adding and removing
	uses  []uint64
	free  []int
}

func newHandles() *handles {
	t := &handles{tag: 1 + rand.Uint64N(1<<tagBits-1)}
	t.slots.Store(new([]*atomic.Pointer[entry]))
	return t
}

// add returns a handle of the value.
func (t *handles) add(value any) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	if len(t.free) == 0 {
		if len(slots) == 1<<slotBits {
			return 0, invalid("handle: found %d that are open, expected fewer", len(slots))
		}
		// A look-up may read the old slice: it has the same slots.
		more := append(slots[:len(slots):len(slots)], new(atomic.Pointer[entry]))
		t.slots.Store(&more)
		slots = more
		t.uses = append(t.uses, 0)
		t.free = append(t.free, len(slots)-1)
	}
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.uses[slot] = (t.uses[slot] + 1) % (1 << useBits)
	h := t.tag<<(useBits+slotBits) | t.uses[slot]<<slotBits | uint64(slot)
	slots[slot].Store(&entry{h, value})
	return h, nil
}

// find returns the value of a handle, nil for a handle that is not open.
func (t *handles) find(h uint64) any {
	slots := *t.slots.Load()
	slot := h & (1<<slotBits - 1)
	if slot >= uint64(len(slots)) {
		return nil
	}
	if e := slots[slot].Load(); e != nil && e.handle == h {
		return e.value
	}
	return nil
}

// remove closes a handle that has a value of type T, and returns the value.
func remove[T any](t *handles, h uint64, what string) (x *T, err error) {
	if x, err = get[T](t, h, what); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := h & (1<<slotBits - 1)
	place := (*t.slots.Load())[slot]
	if e := place.Load(); e == nil || e.handle != h { // closed by another thread since
		return nil, t.unknown(h, what)
	}
	place.Store(nil)
	t.free = append(t.free, int(slot))
	return x, nil
}

// get returns the value of a handle, which must have the type T.
func get[T any](t *handles, h uint64, what string) (*T, error) {
	if x, ok := t.find(h).(*T); ok {
		return x, nil
	}
	return nil, t.unknown(h, what)
}

// errHandle is the error of a handle that has no use.
type errHandle struct{ text string }

func (e errHandle) Error() string { return e.text }

func (t *handles) unknown(h uint64, what string) error {
	found := "one that was closed"
	switch of := t.find(h).(type) {
	case *layer:
		found = "a layer"
	case *index:
		found = "an index"
	case *pool:
		found = "a pool"
	default:
		_ = of
		switch {
		case h == 0:
			found = "NULL"
		case h>>(useBits+slotBits) != t.tag:
			found = "a number that this library has not made"
		}
	}
	return errHandle{fmt.Sprintf("l2s: handle of %s: found %s, expected one that is open", what, found)}
}
