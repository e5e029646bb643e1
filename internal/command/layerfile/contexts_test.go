package layerfile

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
)

// layerOf returns a layer of zeros.
func layerOf(t testing.TB, labels, dim int) *l2s.Layer {
	t.Helper()
	l, err := l2s.New(l2s.Float32(make([]float32, labels*dim), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openFor opens contexts for a layer.
func openFor(t *testing.T, sources []string, l *l2s.Layer, weights string) (*Contexts, error) {
	t.Helper()
	c, err := OpenContexts(sources)
	if err != nil {
		return nil, err
	}
	return c, c.Fit(l, weights)
}

// counting returns n numbers from first on, which float16 and bfloat16 hold exactly.
func counting(first, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(first + i)
	}
	return x
}

func writeNPY(t *testing.T, path string, data []float32, shape ...int) {
	t.Helper()
	if err := tensorfile.WriteNPY(path, data, shape...); err != nil {
		t.Fatal(err)
	}
}

// writeBFloat16 writes a safetensors file of one tensor x in bfloat16.
func writeBFloat16(t *testing.T, path string, data []float32, shape string) {
	t.Helper()
	header := `{"x":{"dtype":"BF16","shape":` + shape + `,"data_offsets":[0,` + strconv.Itoa(2*len(data)) + `]}}`
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	for _, v := range data {
		file = binary.LittleEndian.AppendUint16(file, uint16(math.Float32bits(v)>>16))
	}
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
}

// writeFloat16 writes numbers as a .npy file of float16.
func writeFloat16(t *testing.T, path string, data []float32, shape ...int) {
	t.Helper()
	file := tensorfile.NPYHeader("f2", shape...)
	for _, v := range data {
		bits, _ := float16.Narrow(v)
		file = binary.LittleEndian.AppendUint16(file, bits)
	}
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
}

// Contexts in several files, of several types, are read as one matrix: in blocks that
// begin and end anywhere, at once in memory, and by way of a temporary file.
func TestContextsInSeveralFiles(t *testing.T) {
	const dim = 12
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writeNPY(t, in("a.npy"), counting(1, 5*dim), 5, dim)
	writeNPY(t, in("b.npy"), counting(1+5*dim, dim), dim)
	writeBFloat16(t, in("c.safetensors"), counting(1+6*dim, 3*dim), "[3,1,12]")
	writeFloat16(t, in("d.npy"), counting(1+9*dim, 2*dim), 2, dim)
	want := counting(1, 11*dim)
	sources := []string{in("a.npy"), in("b.npy"), in("c.safetensors:x"), in("d.npy")}
	l := layerOf(t, 30, dim)
	for _, limit := range []int{math.MaxInt, 0} {
		c, err := openFor(t, sources, l, "W")
		if err != nil {
			t.Fatal(err)
		}
		for first := range 11 {
			for end := first + 1; end <= 11; end++ {
				got := make([]float32, (end-first)*dim)
				if err := c.Read(got, first); err != nil || !slices.Equal(got, want[first*dim:end*dim]) {
					t.Fatalf("contexts %d to %d: found %v (%v)", first, end-1, got, err)
				}
			}
		}
		t.Setenv("TMPDIR", t.TempDir())
		got, err := c.allWithin(t.Context(), limit)
		if c.Len() != 11 || err != nil || !slices.Equal(got, want) {
			t.Errorf("limit %d: found %d contexts, %v (%v)", limit, c.Len(), got, err)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
			t.Errorf("limit %d: %v are left", limit, left)
		}
		c.Close()
		if err := c.Read(make([]float32, dim), 0); err == nil {
			t.Error("closed contexts were read")
		}
	}

	one, err := openFor(t, sources[:1], l, "W")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if got, err := one.allWithin(t.Context(), 0); err != nil || !slices.Equal(got, want[:5*dim]) {
		t.Errorf("a file of float32: found %v (%v)", got, err)
	}
}

// watched is a context that calls look whenever it is asked whether it has ended.
type watched struct {
	context.Context
	look func()
}

func (w watched) Err() error {
	w.look()
	return w.Context.Err()
}

// A temporary file has no name while it is written, so that nothing is left of a program
// that is killed meanwhile.
func TestConversionHasNoName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files have names here")
	}
	path := filepath.Join(t.TempDir(), "a.npy")
	writeFloat16(t, path, counting(1, 24), 2, 12)
	c, err := openFor(t, []string{path}, layerOf(t, 3, 12), "W")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("TMPDIR", t.TempDir())
	looked := false
	rows, err := c.allWithin(watched{t.Context(), func() {
		looked = true
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
			t.Errorf("found %v while contexts are converted, expected no name", left)
		}
	}}, 0)
	if err != nil || !looked || !slices.Equal(rows, counting(1, 24)) {
		t.Errorf("found %v (%v), looked: %v", rows, err, looked)
	}
}

// A bad number is found on every path of the contexts, and no file remains.
func TestContextsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	data := counting(1, 24)
	data[17] = float32(math.NaN())
	good, bad := filepath.Join(dir, "good.npy"), filepath.Join(dir, "bad.npy")
	writeNPY(t, good, counting(1, 24), 2, 12)
	writeNPY(t, bad, data, 2, 12)
	for _, limit := range []int{math.MaxInt, 0} {
		c, err := openFor(t, []string{good, bad}, layerOf(t, 3, 12), "W")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.allWithin(t.Context(), limit); err == nil || !strings.Contains(err.Error(), "bad.npy: values: found NaN at row 1, column 5") {
			t.Errorf("limit %d: found the error %v", limit, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.allWithin(ctx, limit); !errors.Is(err, context.Canceled) {
			t.Errorf("limit %d: found the error %v after an interrupt", limit, err)
		}
		c.Close()
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestOpenContexts(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, shape ...int) string {
		path := filepath.Join(dir, name)
		n := 1
		for _, s := range shape {
			n *= s
		}
		writeNPY(t, path, make([]float32, n), shape...)
		return path
	}
	const weights = "w.npy"
	l := layerOf(t, 30, 12)
	for name, rows := range map[string]int{write("matrix.npy", 7, 12): 7, write("row.npy", 1, 12): 1, write("vector.npy", 12): 1, write("states.npy", 4, 1, 12): 4, write("batch.npy", 1, 4, 12): 4} {
		c, err := openFor(t, []string{name}, l, weights)
		if err != nil {
			t.Fatal(err)
		}
		x, err := c.All(t.Context())
		if c.Len() != rows || len(x) != 12*rows || err != nil {
			t.Errorf("%s: found %d contexts, %d numbers (%v), expected %d x 12", name, c.Len(), len(x), err, rows)
		}
		c.Close()
	}
	for _, c := range []struct {
		name, file, want string
	}{
		{"other columns", write("a.npy", 7, 13), "a.npy: shape: found [7 13], expected [any 12], the columns of " + weights},
		{"a transpose", write("b.npy", 12, 7), "b.npy: shape: found [12 7], expected [any 12], the columns of " + weights + ": save its transpose"},
		{"the columns are W's rows", write("c.npy", 7, 30), "c.npy: shape: found [7 30], expected [any 12], the columns of " + weights + ", or weights of 30 columns: " + weights + " has 30 rows, save its transpose if the columns are the labels"},
		{"a vector of another length", write("d.npy", 13), "d.npy: shape: found [13], expected [any 12], the columns of " + weights},
		{"states of two layers", write("e.npy", 2, 2, 12), "e.npy: shape: found [2 2 12], expected [any 12]: of texts without padding reshape(-1, 12) makes one matrix; of layers take the last"},
		{"no rows", write("f.npy", 0, 12), "f.npy: shape: found [0 12], expected at least one row"},
	} {
		if _, err := openFor(t, []string{c.file}, l, weights); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: found the error %v, expected %q", c.name, err, c.want)
		}
	}
}

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"b.safetensors", "a.safetensors", "c.npy", "d[1].npy"} {
		if err := os.WriteFile(in(name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"*.safetensors:x:0": {in("a.safetensors:x:0"), in("b.safetensors:x:0")},
		"?.npy":             {in("c.npy")},
		"d[1].npy":          {in("d[1].npy")}, // the name of a file
		"e.npy":             {in("e.npy")},
	} {
		if got, err := Expand([]string{in(pattern)}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %v (%v), expected %v", pattern, got, err, want)
		}
	}
	for pattern, want := range map[string]string{"*.gguf": "found no such file, expected at least one", "[.npy": "expected *, ? and pairs of brackets"} {
		if _, err := Expand([]string{in(pattern)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found the error %v, expected %q", pattern, err, want)
		}
	}
}
