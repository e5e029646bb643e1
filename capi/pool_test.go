package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
)

func normals(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func contextsOf(x []float32, dim int) *matrix {
	return &matrix{data: unsafe.Pointer(unsafe.SliceData(x)), rows: len(x) / dim, dim: dim}
}

// A query of each kind takes no memory of Go once its scratch has grown.
func TestNoAllocation(t *testing.T) {
	const labels, dim, k = 3000, 16, 5
	l, err := newLayer(contextsOf(normals(labels*dim), dim), nil, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPool(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := normals(4 * dim)
	one, all := contextsOf(h[:dim], dim), contextsOf(h, dim)
	ids, logits, answers := make([]int64, 4*k), make([]float64, 4*k), make([]answer, 4)
	edited := &request{banned: labelsOfIDs(1, 2, 3), allowed: labels8(labels), biasIDs: []int64{7}, biases: []float32{1}}
	edited.plain.LogSum = true
	half := make([]uint16, 4*dim)
	bf := *all
	bf.data, bf.kind = unsafe.Pointer(&half[0]), bfloat16s
	handles := newHandles()
	handle, err := handles.add(p)
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func() error{
		"topK":            func() error { return p.topK(h[:dim], ids[:k], logits[:k]) },
		"one":             func() error { return p.search(one, k, &request{}, ids[:k], logits[:k], answers[:1]) },
		"batch":           func() error { return p.search(all, k, &request{}, ids, logits, answers) },
		"batch, bfloat16": func() error { return p.search(&bf, k, &request{}, ids, logits, answers) },
		"edits":           func() error { return p.search(one, k, edited, ids[:k], logits[:k], nil) },
		"logits":          func() error { return p.logits(one, []int64{1, 5}, logits[:2]) },
		"handle":          func() error { _, err := get[pool](handles, handle, "a pool"); return err },
	} {
		if err := ask(); err != nil {
			t.Fatal(name, err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if guarded(ask) != nil {
				t.Error("found an error")
			}
		}); n >= 1 {
			t.Errorf("%s: found %v allocations, expected none", name, n)
		}
	}
}

func labelsOfIDs(ids ...int64) labels { return labels{ids: ids} }

func labels8(n int) labels {
	bits := make([]byte, (n+7)/8)
	for i := range bits {
		bits[i] = 0xf5
	}
	return labels{bits: bits}
}

// A handle is known until it is closed, and no other number is.
func TestHandles(t *testing.T) {
	table, other := newHandles(), newHandles()
	for other.tag == table.tag {
		other = newHandles()
	}
	var open []uint64
	values := map[uint64]*index{}
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		if len(open) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(open))
			h := open[i]
			x, err := remove[index](table, h, "an index")
			if err != nil || x != values[h] {
				t.Fatalf("found %p, %v, expected %p", x, err, values[h])
			}
			if _, err := remove[index](table, h, "an index"); err == nil {
				t.Fatal("found no error of a handle that was closed")
			}
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
			delete(values, h)
			continue
		}
		x := &index{}
		h, err := table.add(x)
		if err != nil || values[h] != nil || h == 0 {
			t.Fatalf("found %#x, %v, expected a new handle", h, err)
		}
		values[h] = x
		open = append(open, h)
		if _, err := get[pool](table, h, "a pool"); err == nil {
			t.Fatal("found no error of a handle of another kind")
		}
		if _, err := get[index](other, h, "an index"); err == nil {
			t.Fatal("found no error of a handle of another library")
		}
	}
	for _, h := range open {
		if x, err := get[index](table, h, "an index"); err != nil || x != values[h] {
			t.Fatalf("found %p, %v, expected %p", x, err, values[h])
		}
	}
}

// close returns when no reader is left, and no reader enters after it.
func TestNobodyReadsAClosedLayer(t *testing.T) {
	for range 200 {
		w := normals(64)
		l, err := newLayer(contextsOf(w, 8), nil, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		reading := make([]bool, 4)
		for i := range reading {
			readers.Go(func() {
				for l.enter() == nil {
					reading[i] = true
					reading[i] = false
					l.leave()
				}
			})
		}
		readers.Go(func() { l.setThreads(1) }) // whether or not somebody reads
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		for i := range reading {
			if reading[i] { // a race, too, for the race detector
				t.Fatal("found a reader of a closed layer")
			}
		}
		readers.Wait()
		if l.setThreads(1) == nil {
			t.Fatal("found no error of a closed layer")
		}
	}
}

// A fault and a panic are errors, and the pool answers afterwards.
func TestPanicsAreErrors(t *testing.T) {
	l, err := newLayer(contextsOf(normals(64), 8), nil, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPool(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, ids, logits := normals(8), make([]int64, 2), make([]float64, 2)
	err = guarded(func() error { return p.topK(h, ids, logits[:1]) }) // an index out of range
	if status, _ := statusOf(err); status != statusInternal {
		t.Errorf("found %v, expected an internal error", err)
	}
	if err := p.topK(h, ids, logits); err != nil {
		t.Error(err)
	}
	if err := l.close(); err != nil { // no reader is left behind
		t.Error(err)
	}
}

// The numbers that several files have: of the interface, of the version, and of statuses and types.
func TestFilesAgree(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(name, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(name))
		if m == nil {
			t.Fatalf("%s: found no %s", name, pattern)
		}
		return m[1]
	}
	if c, python := find("l2s.h", `#define L2S_ABI (\d+)`), find("python/l2s/_library.py", `(?m)^ABI = (\d+)$`); c != python {
		t.Errorf("l2s.h has the interface %s, python/l2s/_library.py %s", c, python)
	}
	library := cmdline.VersionOf().Version
	project, own := find("python/pyproject.toml", `(?m)^version = "(.*)"$`), find("python/l2s/__init__.py", `(?m)^__version__ = "(.*)"$`)
	if project != own || !strings.HasPrefix(library, "v"+project) {
		t.Errorf("found the versions %s, %s and %s, expected the same", library, project, own)
	}
	for status, name := range []string{"OK", "ERR_ARGUMENT", "ERR_HANDLE", "ERR_CONTEXT", "ERR_REQUEST", "ERR_LAYER", "ERR_NO_TAIL", "ERR_TARGET", "ERR_IO", "ERR_FORMAT", "ERR_CANCELLED", "ERR_FORKED", "ERR_INTERNAL"} {
		if found := find("l2s.h", `L2S_`+name+` = (\d+)`); found != strconv.Itoa(status) {
			t.Errorf("l2s.h: L2S_%s: found %s, expected %d", name, found, status)
		}
	}
	if statusInternal != 12 {
		t.Errorf("found the last status %d, expected 12", statusInternal)
	}
	for i, q := range quantisations {
		name := strings.ToUpper(q.String())
		if found := find("l2s.h", `L2S_`+name+` = (\d+)`); found != strconv.Itoa(quantised+i) {
			t.Errorf("l2s.h: L2S_%s: found %s, expected %d", name, found, quantised+i)
		}
		want := fmt.Sprintf(`"%s": (%d, %d, %d)`, q, quantised+i, blocks[i][0], blocks[i][1])
		if !strings.Contains(read("python/l2s/_arrays.py"), want) {
			t.Errorf("python/l2s/_arrays.py: found no %s", want)
		}
		// A matrix of one block a row has as many rows as blocks.
		if m := l2s.Quantised(make([]byte, 3*blocks[i][1]), q, blocks[i][0]); m.Rows() != 3 || m.Dim() != blocks[i][0] {
			t.Errorf("%s: found %d x %d, expected 3 x %d", q, m.Rows(), m.Dim(), blocks[i][0])
		}
	}
}

// A pool answers as long as each of its layers is closed after a swap to another one.
func TestSwapsHaveNoGap(t *testing.T) {
	const labels, dim = 50, 4
	w, h := normals(labels*dim), normals(dim)
	made := func() *layer {
		l, err := newLayer(contextsOf(w, dim), nil, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := made()
	p, err := newPool(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var searchers sync.WaitGroup
	var done atomic.Bool
	for range 4 {
		searchers.Go(func() {
			ids, logits := make([]int64, 2), make([]float64, 2)
			for !done.Load() {
				if err := p.topK(h, ids, logits); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 400 {
		old := l
		l = made()
		if err := p.swap(l, nil); err != nil {
			t.Fatal(err)
		}
		if err := old.close(); err != nil {
			t.Fatal(err)
		}
	}
	done.Store(true)
	searchers.Wait()
}
