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

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// readJSON reads all contexts of a text.
func readJSON(t testing.TB, r io.Reader, dim int) ([]float32, error) {
	t.Helper()
	c := OpenStream(r, "x")
	if err := c.Fit(t.Context(), layerOf(t, 3, dim), "W"); err != nil {
		return nil, err
	}
	return c.All(t.Context())
}

// All forms of JSON give the numbers that were written, however the text arrives.
func TestJSONGivesTheNumbersThatWereWritten(t *testing.T) {
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
			"arrays":              arrays,
			"arrays side by side": strings.ReplaceAll(arrays, "\n", ""),
			"an array of arrays":  "[" + strings.Join(strings.Split(strings.TrimSpace(arrays), "\n"), ",\n") + "]",
			"two of them":         strings.Repeat("[ "+strings.Join(strings.Split(strings.TrimSpace(arrays), "\n"), " , ")+" ]\n", 2),
			"indented":            string(indented),
			"much white space":    strings.Repeat("\n", 1e5) + strings.ReplaceAll(arrays, ",", ","+strings.Repeat(" ", 1e5)) + strings.Repeat("\n", 1e5),
		} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				expected := want
				if name == "two of them" {
					expected = slices.Concat(want, want)
				}
				if got, err := readJSON(t, r, dim); err != nil || !slices.Equal(got, expected) {
					rt.Fatalf("%s: found %v (%v) in %q, expected %v", name, got, err, text, expected)
				}
			}
		}
	})
}

func TestJSONThatIsNoContexts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "x: found it empty, expected contexts"},
		{"white space", " \n\n", "x: found it empty, expected contexts"},
		{"numbers alone", "1 2\n", `x: context 1: found "1", expected an array of numbers`},
		{"an array that is too short", "[1,2]\n[1]", "x: context 2: found 1 numbers, expected 2, the columns of W"},
		{"an array that is too long", "[1,2,3]", "x: context 1: found 3 numbers, expected 2, the columns of W"},
		{"an empty array", "[]", "x: context 1: found 0 numbers, expected 2, the columns of W"},
		{"an empty array in an array", "[[]]", "x: context 1: found 0 numbers, expected 2, the columns of W"},
		{"a number beyond float32", "[[1,1e39]]", `x: context 1: found "1e39" for number 2, expected one within float32`},
		{"null", "[[1,null]]", `x: context 1: found "null" for number 2, expected one within float32`},
		{"a string", `[[1,"2"]]`, `x: context 1: found "2" for number 2, expected one within float32`},
		{"not a number", "[[1,NaN]]", "x: context 1: found no JSON: invalid character 'N' looking for beginning of value"},
		{"a hexadecimal number", "[0x1p3,1]", "x: context 1: found no JSON: invalid character 'x' after array element"},
		{"a number with an underscore", "[1,2]\n[1,1_0]\n", "x: context 2: found no JSON: invalid character '_' after array element"},
		{"a number that JSON does not know", "[[1,.5]]", "x: context 1: found no JSON: invalid character '.' looking for beginning of value"},
		{"no comma between numbers", "[1 2]", "x: context 1: found no JSON: invalid character '2' after array element"},
		{"two commas between numbers", "[1,,2]", "x: context 1: found no JSON: invalid character ',' looking for beginning of value"},
		{"a comma behind the last number", "[1,]", "x: context 1: found no JSON: invalid character ']' looking for beginning of value"},
		{"a number that begins with a zero", "[01,2]", "x: context 1: found no JSON: invalid character '1' after array element"},
		{"no comma between arrays", "[[1,2] [3,4]]", "x: context 2: found no JSON: invalid character '[' after array element"},
		{"a comma at the end", "[[1,2],]", "x: context 2: found no JSON: invalid character ']' looking for beginning of value"},
		{"two commas", "[[1,2],,[3,4]]", "x: context 2: found no JSON: invalid character ',' looking for beginning of value"},
		{"a comma between lines", "[1,2],\n[3,4]", "x: context 2: found no JSON: invalid character ',' looking for beginning of value"},
		{"a number among arrays", "[[1,2],3]", `x: context 2: found "3", expected an array of numbers`},
		{"a third level", "[[[1,2]]]", `x: context 1: found "[" for number 1, expected one within float32`},
		{"an object", "[1,2]\n{}", `x: context 2: ` + errObject.Error()},
		{"what llama-server answers", `[{"index":0,"embedding":[[1,2],[3,4]]}]`, `x: context 1: found an object, such as llama-server and others answer with, expected arrays of numbers: of llama-server --embeddings --pooling none, jq '.[].embedding[]' takes them out of the answer of /embedding`},
		{"the end within a number", "[[1,2],[3", "x: context 2: found the end of the text, expected that of its array"},
		{"the end behind an array", "[[1,2]", "x: context 2: found the end of the text, expected that of its array"},
		{"a number without an end", "[" + strings.Repeat("1", 1e6), "x: context 1: found no end of it in 65736 bytes, expected that of its array"},
		{"a string without an end", `["` + strings.Repeat("a", 1e6), "x: context 1: found no end of it in 65736 bytes, expected that of its array"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := readJSON(t, strings.NewReader(c.text), 2); err == nil || err.Error() != c.want {
				t.Errorf("found %v and the error %v, expected %q", got, err, c.want)
			}
		})
	}
	failing := iotest.ErrReader(&os.PathError{Op: "read", Path: "y", Err: io.ErrNoProgress})
	if _, err := readJSON(t, failing, 2); err == nil || err.Error() != "x: "+io.ErrNoProgress.Error() {
		t.Errorf("found the error %v of a reader that fails", err)
	}
}

// A context is there as soon as its last byte is, and the stream is read on only for the next one.
func TestJSONDoesNotWaitBehindAContext(t *testing.T) {
	for _, c := range []struct{ name, text, end string }{
		{"arrays", "[1,2]\n[3,4]\n", "]"}, {"an array of arrays", "[[1,2],\n[3,4]]\n", "]"},
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

// Files of JSON are contexts as those of tensors are, in any order.
func TestContextsInFilesOfJSON(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"a.json": "[[1, 2],\n[3, 4]]\n", "c.jsonl": "[7,8]\n", "E.JSON": "[11,12]"} {
		if err := os.WriteFile(in(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	writeNPY(t, in("b.npy"), counting(5, 2), 1, 2)
	sources := []string{in("a.json"), in("b.npy"), in("c.jsonl"), in("E.JSON")}
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
		"words.json": "words.json: context 1: found no JSON: invalid character 'a' looking for beginning of value",
		"bad.json":   "bad.json: context 2: found 1 numbers, expected 2, the columns of W",
		"empty.json": "empty.json: found it empty, expected contexts",
		"none.json":  "none.json: no such file or directory",
	} {
		if text, ok := map[string]string{"words.json": "a b\n", "bad.json": "[1,2]\n[3]", "empty.json": ""}[name]; ok {
			if err := os.WriteFile(in(name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := openFor(t, []string{in("a.json"), in(name)}, layerOf(t, 3, 2), "W"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found the error %v, expected %q", name, err, want)
		}
	}
}

// What is no JSON, though its name says so, or is, though a name in it does not, is read as what it is.
func TestNamesOfJSON(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writeNPY(t, in("npy.json"), counting(1, 4), 2, 2)
	if err := tensorfile.WriteSafetensors(in("x.safetensors"), tensorfile.Array{Name: "h.json", Shape: []int{2, 2}, Data: counting(1, 4)}); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{in("npy.json"), in("x.safetensors") + ":h.json"} {
		c, err := openFor(t, []string{source}, layerOf(t, 3, 2), "W")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.All(t.Context()); err != nil || !slices.Equal(got, counting(1, 4)) {
			t.Errorf("%s: found %v (%v)", source, got, err)
		}
		c.Close()
	}
	if err := os.Mkdir(in("folder.json"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenContexts([]string{in("folder.json")}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("found the error %v for a folder", err)
	}
}

// Of a stream that begins as a .npy file no more is read than its header says, and a byte.
func TestNPYOfAStreamWithoutAnEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	writeNPY(t, path, counting(1, 4), 2, 2)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, behind := range []int64{0, 1, 1 << 40} {
		c := OpenStream(io.MultiReader(bytes.NewReader(whole), io.LimitReader(zeros{}, behind)), "x")
		err := c.Fit(t.Context(), layerOf(t, 3, 2), "W")
		if want := "x: data: found 17 bytes, expected 16 (shape [2 2] of float32)"; behind == 0 && err != nil || behind > 0 && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%d bytes behind: found the error %v, expected %q", behind, err, want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A text of any bytes gives finite numbers, or an error that says what was found.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"1 2", "[1,2]\n[3,4]", "[[1,2],\n[3,4]]", "[[],[", "[ [1e5 , -0.5E-3] ]", "0x1p3 1_0", "\x93NUMPY"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := readJSON(t, bytes.NewReader(data), 2)
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
