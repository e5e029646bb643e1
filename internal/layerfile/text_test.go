package layerfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// readText reads all contexts of a text.
func readText(t testing.TB, r io.Reader, dim int) ([]float32, error) {
	t.Helper()
	c := OpenStream(r, "x")
	if err := c.Fit(t.Context(), layerOf(t, 3, dim), "W"); err != nil {
		return nil, err
	}
	return c.All(t.Context())
}

// All forms of text give the numbers that were written, however the text arrives.
func TestTextGivesTheNumbersThatWereWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.IntRange(1, 5).Draw(rt, "dim")
		rows := rapid.IntRange(1, 6).Draw(rt, "rows")
		want := rapid.SliceOfN(rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32), rows*dim, rows*dim).Draw(rt, "numbers")
		format := rapid.SampledFrom([]byte{'g', 'e', 'f'}).Draw(rt, "format")
		join := func(separator string) (lines []string) {
			for row := range slices.Chunk(want, dim) {
				numbers := make([]string, dim)
				for i, x := range row {
					numbers[i] = strconv.FormatFloat(float64(x), format, -1, 32)
				}
				lines = append(lines, strings.Join(numbers, separator))
			}
			return lines
		}
		arrays := "[" + strings.Join(join(" , "), "]\n[") + "]\n"
		indented, err := json.MarshalIndent(slices.Collect(slices.Chunk(want, dim)), "", "\t")
		if err != nil {
			rt.Fatal(err)
		}
		for name, text := range map[string]string{
			"spaces":              strings.Join(join("  "), "\n"),
			"tabs":                strings.Join(join("\t"), "\r\n") + "\r\n",
			"commas":              strings.Join(join(","), "\n") + "\n",
			"arrays":              arrays,
			"arrays side by side": strings.ReplaceAll(arrays, "\n", ""),
			"an array of arrays":  "[" + strings.Join(strings.Split(strings.TrimSpace(arrays), "\n"), ",\n") + "]",
			"two of them":         strings.Repeat("[ "+strings.Join(strings.Split(strings.TrimSpace(arrays), "\n"), " , ")+" ]\n", 2),
			"indented":            string(indented),
		} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				expected := want
				if name == "two of them" {
					expected = slices.Concat(want, want)
				}
				if got, err := readText(t, r, dim); err != nil || !slices.Equal(got, expected) {
					rt.Fatalf("%s: found %v (%v) in %q, expected %v", name, got, err, text, expected)
				}
			}
		}
	})
}

func TestTextThatIsNoContexts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "x: found it empty, expected contexts"},
		{"an empty line", "1 2\n\n", "x: line 2: found 0 numbers, expected 2, the columns of W"},
		{"a number too many", "1 2 3\n", "x: line 1: found 3 numbers, expected 2, the columns of W"},
		{"a hexadecimal number", "0x1p3 1\n", `x: line 1: found "0x1p3" for number 1, expected a finite number, in decimal`},
		{"a number with an underscore", "1 2\n1 1_0\n", `x: line 2: found "1_0" for number 2, expected a finite number, in decimal`},
		{"an underscore in hexadecimal", "0x_1p0 1\n", `x: line 1: found "0x_1p0" for number 1, expected a finite number, in decimal`},
		{"an infinity", "1 inf\n", `x: line 1: found "inf" for number 2, expected a finite number, in decimal`},
		{"a sign alone", "1 -\n", `x: line 1: found "-" for number 2, expected a finite number, in decimal`},
		{"an array that is too short", "[1,2]\n[1]", "x: context 2: found 1 numbers, expected 2, the columns of W"},
		{"an array that is too long", "[1,2,3]", "x: context 1: found 3 numbers, expected 2, the columns of W"},
		{"an empty array", "[]", "x: context 1: found 0 numbers, expected 2, the columns of W"},
		{"an empty array in an array", "[[]]", "x: context 1: found 0 numbers, expected 2, the columns of W"},
		{"a number beyond float32", "[[1,1e39]]", `x: context 1: found "1e39" for number 2, expected a finite number, in decimal`},
		{"null", "[[1,null]]", `x: context 1: found "null" for number 2, expected a finite number, in decimal`},
		{"a number that JSON does not know", "[[1,.5]]", `x: context 1: found ".5" for number 2, expected a finite number, in decimal`},
		{"no comma between numbers", "[1 2]", "x: context 1: found 1 numbers, expected 2, the columns of W"},
		{"two commas between numbers", "[1,,2]", "x: context 1: found 3 numbers, expected 2, the columns of W"},
		{"a comma behind the last number", "[1,]", `x: context 1: found "" for number 2, expected a finite number, in decimal`},
		{"a number that begins with a zero", "[01,2]", `x: context 1: found "01" for number 1, expected a finite number, in decimal`},
		{"no comma between arrays", "[[1,2] [3,4]]", `x: context 2: found "[", expected a comma or the end of the array`},
		{"a comma at the end", "[[1,2],]", `x: context 2: found "]", expected an array of numbers`},
		{"two commas", "[[1,2],,[3,4]]", `x: context 2: found ",", expected an array of numbers`},
		{"a comma between lines", "[1,2],\n[3,4]", `x: context 2: found ",", expected an array of numbers`},
		{"a number among arrays", "[[1,2],3]", `x: context 2: found "3", expected an array of numbers`},
		{"a third level", "[[[1,2]]]", `x: context 1: found "[1" for number 1, expected a finite number, in decimal`},
		{"an object", "[1,2]\n{}", `x: context 2: found "{", expected an array of numbers`},
		{"the end within a number", "[[1,2],[3", "x: context 2: found the end of the text, expected the end of its array"},
		{"the end behind an array", "[[1,2]", "x: context 2: found the end of the text, expected the end of its array"},
		{"a long line", strings.Repeat("1", 500), "x: line 1: found more than 300 bytes, expected 2 numbers, the columns of W"},
		{"a long array", "[1" + strings.Repeat(" ", 500), "x: context 1: found more than 300 bytes, expected 2 numbers, the columns of W"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := readText(t, strings.NewReader(c.text), 2); err == nil || err.Error() != c.want {
				t.Errorf("found %v and the error %v, expected %q", got, err, c.want)
			}
		})
	}
	failing := iotest.ErrReader(&os.PathError{Op: "read", Path: "y", Err: io.ErrNoProgress})
	if _, err := readText(t, failing, 2); err == nil || err.Error() != "x: "+io.ErrNoProgress.Error() {
		t.Errorf("found the error %v of a reader that fails", err)
	}
}

// A context is there as soon as its last byte is, and the stream is read on only for the next one.
func TestTextDoesNotWaitBehindAContext(t *testing.T) {
	for _, c := range []struct{ name, text, end string }{
		{"lines", "1 2\n3 4\n", "\n"}, {"arrays", "[1,2]\n[3,4]\n", "]"}, {"an array of arrays", "[[1,2],\n[3,4]]\n", "]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := io.Pipe()
			defer w.Close()
			parts := strings.SplitAfter(c.text, c.end)
			go io.WriteString(w, parts[0])
			var reads atomic.Int32
			text := OpenStream(counted{r, &reads}, "x")
			if err := text.Fit(t.Context(), layerOf(t, 3, 2), "W"); err != nil {
				t.Fatal(err)
			}
			h := make([]float32, 2)
			for i, part := range parts[:2] {
				before := reads.Load()
				if i > 0 {
					go io.WriteString(w, part)
				}
				if err := text.Next(t.Context(), h); err != nil || h[0] != float32(2*i+1) || h[1] != float32(2*i+2) {
					t.Fatalf("found %v (%v) for context %d", h, err, i)
				}
				if read := reads.Load() > before; read != (i > 0) {
					t.Errorf("context %d: found that the stream was read: %v, expected that if it was not there", i, read)
				}
			}
			go io.WriteString(w, strings.Join(parts[2:], "")+c.text)
			w2 := make(chan error)
			go func() { w2 <- text.Next(t.Context(), h) }()
			if err := <-w2; err != nil || h[0] != 1 {
				t.Errorf("found %v (%v) behind them, expected the first one again", h, err)
			}
		})
	}
}

// counted is a reader whose reads are counted.
type counted struct {
	io.Reader
	reads *atomic.Int32
}

func (c counted) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Reader.Read(p)
}

// Files of text are contexts as those of tensors are, in any order.
func TestContextsInFilesOfText(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"a.txt": "1 2\n3 4\n", "c.jsonl": "[7,8]\n", "e.csv": "11,12"} {
		if err := os.WriteFile(in(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	writeNPY(t, in("b.npy"), counting(5, 2), 1, 2)
	sources := []string{in("a.txt"), in("b.npy"), in("c.jsonl"), in("e.csv")}
	c, err := openFor(t, sources, layerOf(t, 3, 2), "W")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := append(counting(1, 8), 11, 12)
	for _, limit := range []int{0, math.MaxInt} {
		c.all = nil
		if got, err := c.allWithin(t.Context(), limit); err != nil || !slices.Equal(got, want) {
			t.Errorf("limit %d: found %v (%v), expected %v", limit, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"words.txt": `format: found the first bytes "a b\n", expected a .npy, .npz, safetensors or GGUF file`,
		"bad.txt":   "bad.txt: line 2: found 1 numbers, expected 2, the columns of W",
		"empty.txt": "size: found an empty file",
	} {
		if err := os.WriteFile(in(name), []byte(map[string]string{"words.txt": "a b\n", "bad.txt": "1 2\n3"}[name]), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := openFor(t, []string{in("a.txt"), in(name)}, layerOf(t, 3, 2), "W"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found the error %v, expected %q", name, err, want)
		}
	}
}

// A text of any bytes gives finite numbers, or an error that says what was found.
func FuzzText(f *testing.F) {
	for _, text := range []string{"1 2\n3,4", "[1,2]\n[3,4]", "[[1,2],\n[3,4]]", "[[],[", "[ [1e5 , -0.5E-3] ]", "0x1p3 1_0", "\x93NUMPY"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := readText(t, bytes.NewReader(data), 2)
		if err != nil {
			if !strings.Contains(err.Error(), "found ") || len(err.Error()) > 1000 {
				t.Errorf("found the error %v", err)
			}
			return
		}
		for _, x := range rows {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("found %v in %q", x, data)
			}
		}
		if len(rows) == 0 || len(rows)%2 != 0 || len(rows) > len(data) {
			t.Errorf("found %d numbers in %d bytes", len(rows), len(data))
		}
		var arrays [][]float32
		if len(data) > 1 && data[0] == '[' && json.Unmarshal(data, &arrays) == nil {
			if got, want := fmt.Sprint(rows), fmt.Sprint(slices.Concat(arrays...)); got != want {
				t.Errorf("found %s, expected %s, as encoding/json has it", got, want)
			}
		}
	})
}
