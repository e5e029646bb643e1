package labelfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"pgregory.net/rapid"
)

// corpus is some contexts with labels.
type corpus struct {
	Header
	rows   []float32
	labels []uint32
}

func newCorpus(seed uint64, n, dim, k, labels int) *corpus {
	random := rand.New(rand.NewPCG(seed, 1))
	c := &corpus{Header: Header{K: k, Count: n, Total: n, Labels: labels, Dim: dim}}
	for i := range c.Fingerprint {
		c.Fingerprint[i] = byte(random.Uint32())
	}
	for range n * dim {
		c.rows = append(c.rows, float32(random.NormFloat64()))
	}
	for range n {
		for _, id := range random.Perm(labels)[:k] {
			c.labels = append(c.labels, uint32(id))
		}
	}
	return c
}

// write writes the labels of the contexts first to end-1, in pieces.
func (c *corpus) write(t rapid.TB, path string, first, end, piece int) {
	t.Helper()
	h := c.Header
	h.First, h.Count = first, end-first
	w, err := Create(path, h)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for at := first; at < end; at += piece {
		stop := min(at+piece, end)
		d, err := DigestOf(context.Background(), kernels.Float32Rows(c.rows[at*c.Dim:stop*c.Dim], c.Dim), at, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(c.labels[at*c.K:stop*c.K], d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func read(t rapid.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	for _, n := range []int{1, 7, rowsAtOnce + 3} {
		c := newCorpus(1, n, 3, 2, 50)
		c.write(t, path, 0, n, 100)
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c.Contexts, _ = DigestOf(t.Context(), kernels.Float32Rows(c.rows, c.Dim), 0, 2)
		if f.Header != c.Header || !f.Whole() {
			t.Errorf("found %+v, expected %+v", f.Header, c.Header)
		}
		labels, err := f.ReadAll(t.Context())
		if err != nil || !slices.Equal(labels, c.labels) {
			t.Errorf("found %d labels (%v), expected the %d written", len(labels), err, len(c.labels))
		}
	}
}

// Any parts, in any order, written in any pieces, merge to the same file.
func TestPartsMergeToTheFileOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "contexts")
		c := newCorpus(rapid.Uint64().Draw(t, "seed"), n, 3, rapid.IntRange(1, 4).Draw(t, "k"), 20)
		c.write(t, at("whole"), 0, n, n)
		var parts []string
		for first := 0; first < n; {
			end := rapid.IntRange(first+1, n).Draw(t, "end")
			parts = append(parts, at(fmt.Sprintf("part-%d", len(parts))))
			c.write(t, parts[len(parts)-1], first, end, rapid.IntRange(1, 9).Draw(t, "piece"))
			first = end
		}
		parts = rapid.Permutation(parts).Draw(t, "order")
		h, err := Merge(context.Background(), at("merged"), parts, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !h.Whole() || h.Total != n {
			t.Errorf("found %+v, expected all %d contexts", h, n)
		}
		if !bytes.Equal(read(t, at("merged")), read(t, at("whole"))) {
			t.Error("found other bytes than one process writes, expected the same")
		}
	})
}

func TestMergeRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	a := newCorpus(1, 30, 3, 2, 20)
	part := func(name string, first, end int, change func(c *corpus)) string {
		c := *a
		if change != nil {
			change(&c)
		}
		c.write(t, at(name), first, end, 10)
		return at(name)
	}
	start, middle, end := part("start", 0, 10, nil), part("middle", 10, 20, nil), part("end", 20, 30, nil)
	wide := newCorpus(2, 30, 3, 3, 20)
	wide.Fingerprint = a.Fingerprint
	wide.write(t, at("wide"), 10, 20, 10)
	for _, c := range []struct {
		name  string
		parts []string
		want  []string
	}{
		{"no parts", nil, []string{"found none"}},
		{"a gap", []string{start, end}, []string{"contexts 10 to 19", "end", "missing"}},
		{"no beginning", []string{end, middle}, []string{"contexts 0 to 9", "middle", "missing"}},
		{"no end", []string{start, middle}, []string{"contexts 20 to 29", "middle", "missing"}},
		{"a part twice", []string{start, middle, middle, end}, []string{"middle", "contexts 10 to 19", "expected 20 or later"}},
		{"an overlap", []string{start, part("more", 9, 20, nil), end}, []string{"more", "9 to 19", "start", "up to 9"}},
		{"another layer", []string{start, part("layer", 10, 20, func(c *corpus) { c.Fingerprint[3]++ }), end}, []string{"layer: fingerprint: found", "start", "another layer"}},
		{"another k", []string{start, at("wide"), end}, []string{"wide: k: found 3, expected 2", "start"}},
		{"another corpus", []string{start, part("long", 10, 20, func(c *corpus) { c.Total = 31 }), end}, []string{"long: contexts of the corpus: found 31, expected 30", "start"}},
		{"more labels", []string{start, part("labels", 10, 20, func(c *corpus) { c.Labels = 21 }), end}, []string{"labels: labels: found 21, expected 20"}},
		{"another dimension", []string{start, part("dim", 10, 20, func(c *corpus) { c.Dim = 1 }), end}, []string{"dim: dim: found 1, expected 3"}},
		{"a missing file", []string{start, at("nothing"), end}, []string{"nothing", "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := at("out")
			if err := os.WriteFile(out, []byte("precious"), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := Merge(t.Context(), out, c.parts, nil)
			if err == nil {
				t.Fatal("found no error, expected one")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("found %q, expected %q in it", err, want)
				}
			}
			if string(read(t, out)) != "precious" {
				t.Error("found the output changed, expected it as it was")
			}
		})
	}
}

// A part that another file has replaced since its header was looked at is refused.
func TestMergeRefusesAPartThatChanges(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	a, b := newCorpus(1, 20, 3, 2, 20), newCorpus(2, 20, 3, 2, 20)
	b.Fingerprint = a.Fingerprint
	a.write(t, at("start"), 0, 10, 10)
	a.write(t, at("end"), 10, 20, 10)
	if err := os.WriteFile(at("out"), []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Merge(t.Context(), at("out"), []string{at("start"), at("end")}, func(done int) {
		if done == 10 {
			b.write(t, at("end"), 10, 20, 10)
		}
	})
	if want := at("end") + ": found other labels than before, expected it to stay as it is while it is merged"; err == nil || err.Error() != want {
		t.Errorf("found error %v, expected %s", err, want)
	}
	if string(read(t, at("out"))) != "precious" {
		t.Error("found the output changed, expected it as it was")
	}
}

// Open uses one file, even if other files take its name meanwhile.
func TestOpenWhileTheFileIsReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be replaced on Windows")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	c := newCorpus(1, 20, 3, 2, 20)
	c.write(t, at("long"), 0, 20, 20)
	c.write(t, at("short"), 0, 5, 5)
	c.write(t, at("labels"), 0, 5, 5)
	stop, stopped := make(chan bool), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			err := os.Link(at([]string{"long", "short"}[i%2]), at("new"))
			if err == nil {
				err = os.Rename(at("new"), at("labels"))
			}
			if err != nil {
				<-stop
				stopped <- err
				return
			}
		}
	}()
	for range 5000 {
		f, err := Open(at("labels"))
		if err != nil {
			t.Errorf("found %v, expected one of the two files", err)
			break
		}
		f.Close()
	}
	stop <- true
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

func TestMergeStopsWhenCancelled(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	newCorpus(1, 3*rowsAtOnce, 1, 1, 5).write(t, in, 0, 3*rowsAtOnce, rowsAtOnce)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Merge(ctx, out, []string{in}, func(int) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, expected context.Canceled", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("found %d files, expected the part alone", len(entries))
	}
}

// A file with any bit changed, or of another length, is refused.
func TestDamageIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	c := newCorpus(1, 9, 2, 3, 20)
	c.write(t, path, 0, 9, 9)
	good := read(t, path)
	refused := func(data []byte) bool {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err == nil {
			defer f.Close()
			_, err = f.ReadAll(t.Context())
		}
		return err != nil && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "expected")
	}
	if refused(good) {
		t.Fatal("found the file refused as it was written")
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if !refused(bad) {
			t.Errorf("byte %d: found a changed bit accepted", i)
		}
	}
	for n := range good {
		if !refused(good[:n]) {
			t.Errorf("found the first %d of %d bytes accepted", n, len(good))
		}
	}
	if !refused(append(slices.Clone(good), 0)) {
		t.Error("found a byte too many accepted")
	}
}

func TestWriterRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	good := newCorpus(1, 4, 2, 2, 20).Header
	for name, change := range map[string]func(h *Header){
		"k": func(h *Header) { h.K = 21 }, "labels": func(h *Header) { h.Labels = 0 }, "dim": func(h *Header) { h.Dim = 0 },
		"contexts": func(h *Header) { h.First = 1 },
	} {
		h := good
		change(&h)
		if _, err := Create(path, h); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s out of range: found error %v", name, err)
		}
	}
	for name, write := range map[string]func(w *Writer) error{
		"an id that no label has": func(w *Writer) error { return w.Write([]uint32{1, 20}, Digest{}) },
		"an id twice":             func(w *Writer) error { return w.Write([]uint32{1, 2, 3, 3}, Digest{}) },
		"half a row":              func(w *Writer) error { return w.Write([]uint32{1}, Digest{}) },
		"too many rows":           func(w *Writer) error { return w.Write(make([]uint32, 10), Digest{}) },
		"too few rows": func(w *Writer) error {
			if err := w.Write([]uint32{0, 1, 0, 1, 0, 1}, Digest{}); err != nil {
				return nil
			}
			return w.Commit()
		},
	} {
		w, err := Create(path, good)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(w); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: found error %v, expected one that names the file", name, err)
		}
		w.Abort()
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("found a file, expected none")
	}
}

// A row has a repeated label if a set of its labels is smaller than the row.
func TestRepeatedLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom([]int{1, 2, 5, 32, 33, 100}).Draw(t, "k")
		rows := rapid.IntRange(0, 4).Draw(t, "rows")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var labels []uint32
		for range rows {
			for _, id := range random.Perm(k + random.IntN(50))[:k] {
				labels = append(labels, uint32(id))
			}
		}
		if n := len(labels); n > 0 && rapid.Bool().Draw(t, "repeat") {
			labels[random.IntN(n)] = labels[random.IntN(n)] // of the same row or of another
		}
		want := -1
		for row := range rows {
			set := map[uint32]bool{}
			for _, id := range labels[row*k : (row+1)*k] {
				set[id] = true
			}
			if len(set) < k && want < 0 {
				want = row
			}
		}
		err := CheckIDs(labels, k, 200, 10)
		if (err != nil) != (want >= 0) {
			t.Fatalf("found %v, expected a repeated label in row %d", err, want)
		}
		if err != nil {
			var row, n int
			var id uint32
			if _, scan := fmt.Sscanf(err.Error(), "ids: found %d twice in context %d,", &id, &row); scan != nil || row != 10+want {
				t.Fatalf("found %v, expected a repeated label in context %d", err, 10+want)
			}
			row -= 10
			for _, s := range labels[row*k : (row+1)*k] {
				if s == id {
					n++
				}
			}
			if n < 2 {
				t.Errorf("found that %d is repeated in row %d, where it is %d times", id, row, n)
			}
		}
	})
}

func TestDigest(t *testing.T) {
	c := newCorpus(1, 2000, 3, 1, 5)
	digest := func(rows []float32, first, threads int) Digest {
		d, err := DigestOf(t.Context(), kernels.Float32Rows(rows, c.Dim), first, threads)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := digest(c.rows, 0, 1)
	if digest(c.rows, 0, 7) != want {
		t.Error("found another digest on seven threads, expected the same")
	}
	sum := digest(c.rows[3*800:], 800, 2)
	sum.Add(digest(c.rows[:3*800], 0, 1))
	if sum != want {
		t.Error("found another sum of the digests of two parts, expected the digest of the whole")
	}
	if digest(c.rows, 1, 1) == want {
		t.Error("found the same digest for the same contexts in other places")
	}
	changed := slices.Clone(c.rows)
	changed[4321] = math.Nextafter32(changed[4321], 9)
	if digest(changed, 0, 1) == want {
		t.Error("found the same digest for another context")
	}
	swapped := slices.Concat(c.rows[3:6], c.rows[:3], c.rows[6:])
	if digest(swapped, 0, 1) == want {
		t.Error("found the same digest for two contexts that changed their places")
	}
	changed[4321] = float32(math.NaN())
	if _, err := DigestOf(t.Context(), kernels.Float32Rows(changed, c.Dim), 100, 2); err == nil || !strings.Contains(err.Error(), "context 1540: found NaN at element 1") {
		t.Errorf("found error %v, expected one that names context 1540", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := DigestOf(ctx, kernels.Float32Rows(c.rows, c.Dim), 0, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, expected context.Canceled", err)
	}
}

// Reading any file gives labels in range or an error.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "labels")
	newCorpus(1, 9, 2, 3, 20).write(f, path, 0, 9, 9)
	good := read(f, path)
	f.Add(good)
	f.Add(good[:headerSize])
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "labels")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		labels, err := file.ReadAll(t.Context())
		if err == nil && (len(labels) != file.Count*file.K || slices.Max(labels) >= uint32(file.Labels)) {
			t.Errorf("found labels %v, expected %d below %d", labels, file.Count*file.K, file.Labels)
		}
	})
}
