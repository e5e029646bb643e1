package tensorfile_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"pgregory.net/rapid"
)

// anyFinite draws float32 by their bits, so that small, large and subnormal
// numbers are all there.
var anyFinite = rapid.Custom(func(t *rapid.T) float32 {
	return math.Float32frombits(rapid.Uint32().Filter(func(b uint32) bool { return b&0x7f800000 != 0x7f800000 }).Draw(t, "bits"))
})

// check is rapid.Check with fewer runs, unless the flag gives their number: a file that is written
// waits for the disk.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("25"); err != nil {
			t.Fatal(err)
		}
		defer f.Value.Set(f.DefValue)
	}
	rapid.Check(t, property)
}

// anyShape draws up to most dimensions, now and then one of 0.
func anyShape(t *rapid.T, most int) (shape []int, size int) {
	shape, size = rapid.SliceOfN(rapid.IntRange(0, 5), 0, most).Draw(t, "shape"), 1
	for _, n := range shape {
		size *= n
	}
	return shape, size
}

func onlyFile(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestWriteNPYBytes(t *testing.T) {
	// As numpy 1.23 and later write them: room for 21 digits of the first size.
	for shape, c := range map[string]struct {
		shape []int
		size  int
	}{"()": {nil, 1}, "(3,)": {[]int{3}, 3}, "(2, 3)": {[]int{2, 3}, 6}, "(0, 3)": {[]int{0, 3}, 0}, "(10, 2, 1)": {[]int{10, 2, 1}, 20}} {
		data := make([]float32, c.size)
		for i := range data {
			data[i] = float32(i) - 1.5
		}
		text := dict("<f4", "False", shape)
		if len(c.shape) > 0 {
			text += strings.Repeat(" ", 21-len(fmt.Sprint(c.shape[0])))
		}
		path := filepath.Join(t.TempDir(), "x.npy")
		if err := tensorfile.WriteNPY(path, data, c.shape...); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := npy(1, text, f32s(le, data...)); !bytes.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", shape, got, want)
		}
		if at := len(got) - 4*len(data); at%64 != 0 {
			t.Errorf("%s: data at %d, want a multiple of 64", shape, at)
		}
	}
}

func TestWriteNPYRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	check(t, func(r *rapid.T) {
		shape, size := anyShape(r, 5)
		data := rapid.SliceOfN(anyFinite, size, size).Draw(r, "data")
		if err := tensorfile.WriteNPY(path, data, shape...); err != nil {
			r.Fatal(err)
		}
		x, err := tensorfile.OpenTensor(path)
		if err != nil {
			r.Fatal(err)
		}
		defer x.Close()
		got, err := x.Float32s()
		if err != nil || !sameBits(got, data) || !slices.Equal(x.Shape, shape) {
			r.Errorf("found %v %v, %v, want %v %v", x.Shape, got, err, shape, data)
		}
	})
}

func TestWriteNPYRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	one := []float32{1}
	for _, c := range []struct {
		name  string
		data  []float32
		shape []int
		want  string
	}{
		{"fewer elements", one, []int{2}, "FILE: data: found 1 elements, expected 2 (shape [2])"},
		{"more elements", one, []int{0}, "FILE: data: found 1 elements, expected 0 (shape [0])"},
		{"none for a scalar", nil, nil, "FILE: data: found 0 elements, expected 1 (shape [])"},
		{"negative", one, []int{-1, -1}, "FILE: shape: found [-1 -1], expected sizes of 0 or more"},
		{"overflow", one, []int{math.MaxInt / 2, 3}, fmt.Sprintf("FILE: shape: found [%d 3] of float32, expected a size within %d bytes", math.MaxInt/2, math.MaxInt)},
		{"nine dimensions", one, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, "FILE: shape: found 9 dimensions, expected at most 8"},
	} {
		t.Run(c.name, func(t *testing.T) { refuse(t, tensorfile.WriteNPY(path, c.data, c.shape...), path, c.want) })
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	refuse(t, tensorfile.WriteNPY(folder, one, 1), folder, "FILE: cannot be written: found a folder, expected a file name")
	none := filepath.Join(dir, "none", "x")
	if err := tensorfile.WriteNPY(none, one, 1); err == nil || !strings.Contains(err.Error(), none+": cannot be written: ") {
		t.Errorf("missing folder: %v", err)
	}
	onlyFile(t, dir, "folder")
}
