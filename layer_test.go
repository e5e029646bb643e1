package l2s_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s"
)

// writeNPY writes a matrix of float32.
func writeNPY(t *testing.T, path string, x []float32, dim int) {
	t.Helper()
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", len(x)/dim, dim)
	header += strings.Repeat(" ", 117-len(header)) + "\n"
	data := slices.Concat([]byte("\x93NUMPY\x01\x00"), []byte{byte(len(header)), 0}, []byte(header), unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func openLayer(t *testing.T, source, bias string) *l2s.Layer {
	t.Helper()
	l, err := l2s.Open(source, l2s.OpenOptions{Bias: bias})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A layer of a file is the layer of its numbers; after Close its searches are errors.
func TestALayerOfAFile(t *testing.T) {
	f := fixtureOnce()
	dir := t.TempDir()
	path, bias := filepath.Join(dir, "W.npy"), filepath.Join(dir, "b.npy")
	writeNPY(t, path, f.weights, testDim)
	writeNPY(t, bias, f.bias, 1)
	l := openLayer(t, path, bias)
	if l.Fingerprint() != f.layer.Fingerprint() || l.Labels() != testLabels || l.Dim() != testDim {
		t.Errorf("found %v, expected the layer of the file", l)
	}
	if i := l.Info(); i.File != path || i.Bias != bias || i.Type != "float32" || i.Scale != 1 || i.StateScale != 1 || i.Cap != 0 {
		t.Errorf("found %+v", i)
	}
	if got, want := l.String(), fmt.Sprintf("%d x %d float32, mapped; bias %s", testLabels, testDim, bias); got != want && strings.Replace(want, "mapped", "copied", 1) != got {
		t.Errorf("found %q, expected %q", got, want)
	}
	if got, want := f.layer.String(), fmt.Sprintf("%d x %d float32, of the program", testLabels, testDim); got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
	for _, w := range f.ways {
		s, plain := newSearcher(t, l, w.index, l2s.Options{}), newSearcher(t, f.layer, w.index, l2s.Options{})
		got, want := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
		if err := errors.Join(second(s.TopK(got, f.context(3))), second(plain.TopK(want, f.context(3)))); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %v (%v), expected %v", w.name, got, err, want)
		}
	}
	pool, err := l2s.NewPool(l, f.ways[1].index, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSearcher(t, l, nil, l2s.Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	top, answers := make([]l2s.Prediction, 2), make([]l2s.Answer, 1)
	for name, err := range map[string]error{
		"TopK":        second(s.TopK(top, f.context(0))),
		"SearchBatch": s.SearchBatch(top, answers, f.context(0), l2s.Request{}),
		"Logits":      s.Logits([]float64{0}, f.context(0), l2s.Only([]uint32{1})),
		"LogProb":     second(s.LogProb(f.context(0), 1, 1)),
		"LogSum":      second(s.LogSum(f.context(0), 1, 0)),
		"Pool":        second(pool.TopK(top, f.context(0))),
		"NewSearcher": second(l2s.NewSearcher(l, nil, l2s.Options{})),
	} {
		if err == nil || !strings.Contains(err.Error(), "found a closed head") {
			t.Errorf("%s: found the error %v, expected one of a closed head", name, err)
		}
	}
	closed := openLayer(t, path, bias)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := panicOf(func() { closed.Fingerprint() }); err == nil || !strings.Contains(err.Error(), "found a closed head") {
		t.Errorf("Fingerprint: found %v, expected an error of a closed head", err)
	}
	if err := f.layer.Close(); err != nil {
		t.Errorf("a layer without a file: found the error %v", err)
	}
}

// panicOf returns the error that f panics with, nil if it does not.
func panicOf(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// The kind of a file is that of its first bytes, and files survive a way out and back.
func TestIndexesInFiles(t *testing.T) {
	f := fixtureOnce()
	for _, w := range f.ways[1:] {
		path := filepath.Join(t.TempDir(), "any name")
		if err := w.index.Save(path); err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := w.index.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, file.Bytes()) {
			t.Errorf("%s: found other bytes from WriteTo than in the file (%v)", w.name, err)
		}
		loaded, err := l2s.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		read, err := l2s.Read(&file)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []*l2s.Index{loaded, read} {
			steps, normal := x.Steps()
			same, at := w.index.Steps()
			k, held := x.Measured()
			k2, held2 := w.index.Measured()
			if x.Kind() != w.name || x.Labels() != testLabels || x.Dim() != testDim || x.Fingerprint() != f.layer.Fingerprint() || !slices.Equal(steps, same) || normal != at || k != k2 || held != held2 || held == 0 || string(x.Record()) != "{}" || x.HasTail() != (w.name == "preview") {
				t.Errorf("%s: found a %s, %v, expected the index that was saved", w.name, x.Kind(), steps)
			}
			for i := range steps {
				if i > 0 && steps[i].Budget < steps[i-1].Budget {
					t.Errorf("%s: found the budget %v after %v", w.name, steps[i].Budget, steps[i-1].Budget)
				}
			}
		}
		if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l2s.Load(path); err == nil || !strings.HasPrefix(err.Error(), w.name+": "+path+": ") {
			t.Errorf("half a file: found the error %v, expected one that names the kind and the file", err)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	for _, data := range []string{"", "PK", "\x93NUMPY\x01\x00 and more"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l2s.Load(path); err == nil || !strings.HasPrefix(err.Error(), "l2s: "+path+": magic: found") {
			t.Errorf("%q: found the error %v, expected one that names the file", data, err)
		}
	}
	if _, err := l2s.Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: found the error %v", err)
	}
	if err := new(l2s.Index).Save(path); err == nil {
		t.Error("an empty index: found no error")
	}
}

func TestTokensOfAListOfWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	for text, want := range map[string][]string{"a\nNew York\n": {"a", "New York"}, "a\r\n\r\nb": {"a", "", "b"}, "": nil, "\xff\n": nil} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := l2s.Tokens(path)
		if (err == nil) != (want != nil) || len(got) != len(want) {
			t.Errorf("%q: found %v (%v), expected %q", text, got, err, want)
		}
		for i, word := range want {
			if got[uint32(i)] != word {
				t.Errorf("%q: found %q at %d, expected %q", text, got[uint32(i)], i, word)
			}
		}
	}
	if _, err := l2s.Tokens(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: found the error %v", err)
	}
}

func TestContextsOfAFile(t *testing.T) {
	f := fixtureOnce()
	path := filepath.Join(t.TempDir(), "h.npy")
	writeNPY(t, path, f.contexts, testDim)
	c, err := l2s.OpenContexts(path, testDim)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Rows(), f.contexts) {
		t.Error("found other contexts than in the file")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l2s.OpenContexts(path, testDim+1); err == nil {
		t.Error("another dimension: found no error")
	}
}

// A matrix that is none is an error where it is used, in every type.
func TestWrongMatrices(t *testing.T) {
	for name, m := range map[string]l2s.Matrix{
		"a dimension of 0":     l2s.Float32([]float32{1}, 0),
		"half a row":           l2s.Float32([]float32{1, 2, 3}, 2),
		"half a row of 16":     l2s.Float16([]uint16{1, 2, 3}, 2),
		"half a row of bf16":   l2s.BFloat16([]uint16{1, 2, 3}, 2),
		"half a block":         l2s.Quantised(make([]byte, 34), l2s.Q8_0, 16),
		"a part of a block":    l2s.Quantised(make([]byte, 33), l2s.Q8_0, 32),
		"an unknown type":      l2s.Quantised(make([]byte, 34), 99, 32),
		"the zero value":       {},
		"no data":              l2s.Float32(nil, 4),
		"an infinity":          l2s.Float32([]float32{float32(math.Inf(1))}, 1),
		"an infinity of 16":    l2s.Float16([]uint16{0x7c00}, 1),
		"a negative dimension": l2s.Float32([]float32{1}, -1),
	} {
		if l, err := l2s.New(m, nil); err == nil || l != nil {
			t.Errorf("%s: found a layer and the error %v, expected an error", name, err)
		}
	}
	m := l2s.BFloat16([]uint16{0x3f80, 0x3f00, 0xbf80, 0}, 2)
	row := make([]float32, 2)
	if m.Row(row, 1); m.Rows() != 2 || m.Dim() != 2 || row[0] != -1 || row[1] != 0 {
		t.Errorf("found %d rows of %d, and %v", m.Rows(), m.Dim(), row)
	}
	if q := l2s.Quantised(make([]byte, 2*34), l2s.Q8_0, 32); q.Rows() != 2 || l2s.Q8_0.String() != "q8_0" {
		t.Errorf("found %d rows of %v", q.Rows(), l2s.Q8_0)
	}
}
