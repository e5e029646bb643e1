package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// badCase is a call of the command that must fail.
type badCase struct {
	name string
	// files changes the shared files before the call.
	files func(t *testing.T, dir string)
	args  []string
	env   string
	code  int
	want  []string // parts of the single line on standard error
	warns bool     // there is a warning before it
}

// check runs a case: the exit status, one line on standard error that has all that the case wants,
// nothing on standard output, and every file in the folder as it was.
func (c badCase) check(t *testing.T) {
	dir := files(t)
	if c.files != nil {
		c.files(t, dir)
	}
	before := contentOf(t, dir)
	cmd := command(t, dir, c.args...)
	if c.env != "" {
		cmd.Env = append(cmd.Env, c.env)
	}
	r := finish(t, cmd)
	r.stderr = progressLine.ReplaceAllString(r.stderr, "")
	if c.warns {
		warning, rest, _ := strings.Cut(r.stderr, "\n")
		if r.stderr = rest; !strings.Contains(warning, ": warning: ") {
			t.Errorf("found %q, expected a warning", warning)
		}
	}
	if r.code != c.code {
		t.Errorf("found exit status %d, expected %d; standard error:\n%s", r.code, c.code, r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("found %q on standard output, expected nothing", r.stdout)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "l2s") || len(r.stderr) > 500 {
		t.Errorf("found on standard error, expected one line that begins with l2s:\n%s", r.stderr)
	}
	for _, want := range c.want {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("found on standard error, expected %q in it:\n%s", want, r.stderr)
		}
	}
	if after := contentOf(t, dir); !maps.Equal(before, after) {
		t.Errorf("found the files %v afterwards, expected those from before, unchanged: %v",
			slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// progressLine is the line that l2s train prints while it reads labels.
var progressLine = regexp.MustCompile(`(?m)^digest: .*\n`)

// contentOf returns all files in a folder with their contents.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	content := map[string]string{}
	for _, name := range listFolder(t, dir) {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err != nil {
			t.Fatal(err)
		} else if info.Mode().IsRegular() {
			content[name] = string(readFile(t, path))
		} else {
			content[name] = info.Mode().String()
		}
	}
	return content
}

// Changes of the files.

// inFile replaces a file.
func inFile(name string, data []byte) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, name), data) }
}

// truncated cuts the last bytes of a file.
func truncated(name string, bytes int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		data := readFile(t, path)
		writeFile(t, path, data[:len(data)-bytes])
	}
}

// poisoned replaces an element of a .npy file by a value.
func poisoned(name string, element int, value float64) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		data := readFile(t, path)
		at := 10 + int(binary.LittleEndian.Uint16(data[8:])) + 4*element
		binary.LittleEndian.PutUint32(data[at:], math.Float32bits(float32(value)))
		writeFile(t, path, data)
	}
}

// matrixIn replaces a .npy file by a matrix of ones of a shape.
func matrixIn(name string, shape ...int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		ones := make([]float32, n)
		for i := range ones {
			ones[i] = 1
		}
		if err := tensorfile.WriteNPY(filepath.Join(dir, name), ones, shape...); err != nil {
			t.Fatal(err)
		}
	}
}

// replaced replaces a piece of a text file.
func replaced(name, old, new string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		data := readFile(t, path)
		if !bytes.Contains(data, []byte(old)) {
			t.Fatalf("%s: found no %q", name, old)
		}
		writeFile(t, path, bytes.ReplaceAll(data, []byte(old), []byte(new)))
	}
}

// integers is an array of whole numbers.
func integers(shape ...int) []byte {
	n := 8
	for _, s := range shape {
		n *= s
	}
	return append(tensorfile.NPYHeader("i8", shape...), make([]byte, n)...)
}

// writeInt32s writes a list of int32 as a .npy file.
func writeInt32s(path string, list []int32) error {
	data := tensorfile.NPYHeader("i4", len(list))
	for _, x := range list {
		data = binary.LittleEndian.AppendUint32(data, uint32(x))
	}
	return os.WriteFile(path, data, 0o666)
}

// The calls of the verbs; out is the file that they would write.
var (
	goodTrain = joined("train", trainArgs(), "--out", "out.l2s")
	goodEval  = joined("eval", "m.l2s", testArgs())
	goodBench = joined("bench", "m.l2s", testArgs())
	goodTopK  = joined("topk", "m.l2s", testArgs())
)

// Each verb refuses bad files of W, b and H by their names. Package tensorfile tests the faults.
func TestBadTensors(t *testing.T) {
	var cases []badCase
	for _, in := range []struct {
		file, flag string
		verbs      [][]string
	}{
		{"W.npy", "--weights", [][]string{goodTrain, goodEval}},
		{"b.npy", "--bias", [][]string{goodTrain, goodTopK}},
		{"H.npy", "--contexts", [][]string{goodTrain}},
		{"T.npy", "--contexts", [][]string{goodEval, goodBench, goodTopK}},
	} {
		for _, verb := range in.verbs {
			add := func(name string, files func(*testing.T, string), args []string, want ...string) {
				cases = append(cases, badCase{name: verb[0] + ": " + in.file + ": " + name, files: files,
					args: joined(verb, args), code: 1, want: append(want, "l2s "+verb[0]+": ")})
			}
			add("missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, in.file)) }, nil, in.file, "no such file")
			add("truncated", truncated(in.file, 4), nil, in.file, "data: found", "expected")
			add("whole numbers", inFile(in.file, integers(map[bool][]int{true: {tinyLabels}, false: {tinyLabels, tinyDim}}[in.file == "b.npy"]...)), nil, in.file, "dtype: found int64, expected float16")
			add("rank 3", matrixIn(in.file, 3, 4, 5), nil, in.file, "shape: found [3 4 5], expected")
			add("NaN", poisoned(in.file, 13, math.NaN()), nil, in.file, "NaN")
			add("-Inf at the end", poisoned(in.file, tinyLabels-1, math.Inf(-1)), nil, in.file, "-Inf")
			add("no such tensor", nil, []string{in.flag, "layer.safetensors:decoder"}, "layer.safetensors", "found decoder, expected one of")
		}
	}
	cases = append(cases,
		badCase{name: "more rows in b than in W", files: matrixIn("b.npy", tinyLabels+1), args: goodTrain, code: 1,
			want: []string{"b.npy: shape: found", "301", "expected", "300", "W.npy"}},
		badCase{name: "W as H", args: joined(goodEval, "--contexts", "b.npy"), code: 1, want: []string{"b.npy: shape: found [300], expected"}},
		badCase{name: "transposed H", files: matrixIn("H.npy", tinyDim, 900), args: goodTrain, code: 1, want: []string{"H.npy: shape: found [12 900], expected [any 12], the columns of W.npy: save its transpose"}},
		badCase{name: "transposed W", files: matrixIn("W.npy", tinyDim, tinyLabels), args: goodTrain, code: 1, want: []string{"W.npy: shape: found [12 300], expected [300 12], one number for each number of b.npy: save its transpose"}},
	)
	runCases(t, cases)
}

// runCases checks the cases, each on files of its own.
func runCases(t *testing.T, cases []badCase) {
	simdtest.Long(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

// Inputs that open quickly are opened before the layer, which may take long: a wrong screen or
// wrong contexts are an error at once.
func TestCheapMistakesComeFirst(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	noLayer := []string{"--weights", "nothing.npy", "--bias", "none"}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"topk: no screen", joined("topk", "nope.l2s", noLayer, "--contexts", "T.npy"), "nope.l2s: cannot open"},
		{"eval: another file for a screen", joined("eval", "W.npy", noLayer, "--contexts", "T.npy"), "W.npy: "},
		{"labels: no contexts", joined("labels", noLayer, "--contexts", "nope.npy", "--out", "out"), "nope.npy: no such file"},
		{"train: text for contexts", joined("train", noLayer, "--contexts", "text.txt", "--out", "out"), "text.txt: "},
		{"topk: screen and contexts are good", joined("topk", "m.l2s", noLayer, "--contexts", "T.npy"), "nothing.npy: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := invoke(t, dir, c.args...); r.code != 1 || !strings.HasPrefix(r.stderr, "l2s "+c.args[0]+": "+c.want) {
				t.Errorf("found exit status %d and %q, expected 1 and %q", r.code, r.stderr, c.want)
			}
		})
	}
}

// The faults inside of a file are tests of package screening.
func TestBadScreens(t *testing.T) {
	var cases []badCase
	for _, verb := range [][]string{goodEval, goodBench, goodTopK, {"inspect", "m.l2s"}} {
		add := func(name string, files func(*testing.T, string), want ...string) {
			cases = append(cases, badCase{name: verb[0] + ": " + name, files: files, args: verb, code: 1,
				want: append(want, "l2s "+verb[0]+": ", "m.l2s")})
		}
		add("missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "m.l2s")) }, "no such file")
		add("foreign", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "m.l2s"), readFile(t, filepath.Join(dir, "W.npy")))
		}, map[bool]string{
			false: "expected a preview, 89 4c 32 50 0d 0a 1a 0a, or a screen, 89 4c 32 53 0d 0a 1a 0a\n",
			true:  "or a screen, 89 4c 32 53 0d 0a 1a 0a; l2s inspect takes a screen, a preview, or a model: a folder, a GGUF file, or a tensor\n",
		}[verb[0] == "inspect"])
		add("truncated", truncated("m.l2s", 100), "file size: found", "expected")
		if verb[0] == "inspect" {
			continue
		}
		add("of another layer", poisoned("W.npy", 5, 0.125), "fingerprint: found", "expected", "W.npy", "another layer")
		add("of another bias", poisoned("b.npy", 5, 0.125), "fingerprint: found", "expected", "another layer")
		add("of another dimension", func(t *testing.T, dir string) {
			matrixIn("W.npy", tinyLabels, 5)(t, dir)
			matrixIn("T.npy", tinyTest, 5)(t, dir)
		}, "dim: found 12, expected 5", "W.npy")
		add("of more labels", func(t *testing.T, dir string) {
			matrixIn("W.npy", 200, tinyDim)(t, dir)
			matrixIn("b.npy", 200)(t, dir)
		}, "labels: found 300, expected 200", "W.npy")
	}
	runCases(t, cases)
}

func TestBadNumbers(t *testing.T) {
	runCases(t, []badCase{
		{name: "train: a budget below k", args: joined(goodTrain, "--budget", "4.5"), code: 2, want: []string{"--budget 4.5 cannot hold the 5 labels of an answer"}},
		{name: "train: a budget below the ids of --always", args: joined(goodTrain, "--budget", "5", "--always", "1,2,3,4,5,6"), code: 2, want: []string{"--budget 5", "6", "--always"}},
		{name: "train: a budget below the ids of --always, before a layer is opened", args: joined(goodTrain, "--budget", "5", "--always", "1,2,3,4,5,6,6,@none.txt", "--weights", "none.npy"), code: 2, want: []string{"--budget 5 cannot hold the 6 ids of --always"}},
		{name: "train: a budget that is no number", args: joined(goodTrain, "--budget", "NaN"), code: 2, want: []string{"--budget", "finite"}},
		{name: "train: threads below zero", args: joined(goodTrain, "--threads", "-1"), code: 2, want: []string{"--threads", "at least 0"}},
		{name: "train: an id of --always that no label has", args: joined(goodTrain, "--always", "1,300"), code: 1, want: []string{"W.npy", "300", "--always"}},
		{name: "train: an id of --always below zero", args: joined(goodTrain, "--always", "-1"), code: 2, want: []string{"--always"}},
		{name: "train: --always of a file that is not there", args: joined(goodTrain, "--always", "1,@none.txt"), code: 1, want: []string{"none.txt"}},
		{name: "train: --always of a name with a comma", args: joined(goodTrain, "--always", "@a,b.txt"), code: 2, want: []string{"--always"}},
		{name: "train: --always of an empty name", args: joined(goodTrain, "--always", "@"), code: 2, want: []string{"--always"}},
		{name: "train: --always of an empty file", files: inFile("ids.txt", []byte(" \n")), args: joined(goodTrain, "--always", "@ids.txt"), code: 1, want: []string{"ids.txt", "found none"}},
		{name: "train: --always of words in a file", files: inFile("ids.txt", []byte("1\n<unk>\n")), args: joined(goodTrain, "--always", "@ids.txt"), code: 1, want: []string{"ids.txt", "<unk> at position 1", "whole number"}},
		{name: "train: --always of an id in a file that no label has", files: inFile("ids.txt", []byte("1,300")), args: joined(goodTrain, "--always", "@ids.txt"), code: 1, want: []string{"W.npy", "300", "--always @ids.txt"}},
		{name: "train: --always of fractions in a file", files: matrixIn("ids.npy", 3), args: joined(goodTrain, "--always", "@ids.npy"), code: 1, want: []string{"ids.npy", "float32"}},
		{name: "train: --always specials without --head", args: joined(goodTrain, "--always", "specials"), code: 2, want: []string{"--always specials is for --head"}},
		{name: "train: always more ids than candidates, in a file", files: inFile("ids.txt", []byte("1 2 3 4 5 6 7")), args: joined(goodTrain, "--always", "@ids.txt", "--budget", "6"), code: 2, want: []string{"--budget 6 cannot hold the 7 ids of --always"}},
		{name: "topk: names of columns for objects", args: joined(goodTopK, "--header", "--json"), code: 2, want: []string{"--header", "objects of --json name their fields"}},
		{name: "train: --always of a file without an end", files: func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "ids.txt"), nil)
			if err := os.Truncate(filepath.Join(dir, "ids.txt"), maxIDsText+1); err != nil {
				t.Fatal(err)
			}
		}, args: joined(goodTrain, "--always", "@ids.txt"), code: 1, want: []string{"ids.txt", "more than 64 MiB"}},
		{name: "train: words in --always", args: joined(goodTrain, "--always", "<unk>"), code: 2, want: []string{"--always", "whole numbers"}},
		{name: "train: a target of 1", args: joined(goodTrain, "--target", "1"), code: 2, want: []string{`"1"`, "--target", "above 0 and below 1"}},
		{name: "train: a target and a budget", args: joined(goodTrain, "--target", "0.9", "--budget", "30"), code: 2, want: []string{"--target and --budget exclude each other"}},
		{name: "eval: an exact budget", args: joined(goodEval, "--budget", "exact"), code: 2, want: []string{`"exact"`, "--budget", "measures against the exact layer"}},
		{name: "bench: an exact budget", args: joined(goodBench, "--budget", "exact"), code: 2, want: []string{`"exact"`, "--budget", "measures the exact layer, too"}},
		{name: "topk: a budget of 0", args: joined(goodTopK, "--budget", "0"), code: 2, want: []string{`"0"`, "--budget", "above 0, or exact"}},
		{name: "topk: an infinite budget", args: joined(goodTopK, "--budget", "Inf"), code: 2, want: []string{"--budget", "above 0, or exact"}},
		{name: "topk: a budget that is no number", args: joined(goodTopK, "--budget", "NaN"), code: 2, want: []string{"--budget", "above 0, or exact"}},
		{name: "eval: k of 0", args: joined(goodEval, "--k", "1,0"), code: 2, want: []string{`"1,0"`, "--k", "at least 1"}},
		{name: "eval: k above the labels", args: joined(goodEval, "--k", "1,301"), code: 1, want: []string{"W.npy", "300", "301"}},
		{name: "eval: a list with a hole", args: joined(goodEval, "--k", "1,,5"), code: 2, want: []string{`"1,,5"`, "--k"}},
		{name: "eval: an empty list", args: joined(goodEval, "--k", ""), code: 2, want: []string{"--k"}},
		{name: "bench: k of 0", args: joined(goodBench, "--k", "0"), code: 2, want: []string{`"0"`, "--k", "at least 1"}},
		{name: "bench: k above the labels", args: joined(goodBench, "--k", "301"), code: 1, want: []string{"W.npy", "300", "301"}},
		{name: "bench: no MiB between queries", args: joined(goodBench, "--cold", "8,0"), code: 2, want: []string{`"8,0"`, "--cold", "1 to 1024"}},
		{name: "bench: too many MiB between queries", args: joined(goodBench, "--cold", "8,1025"), code: 2, want: []string{`"8,1025"`, "--cold", "1 to 1024"}},
		{name: "bench: MiB that are no number", args: joined(goodBench, "--cold", "8,"), code: 2, want: []string{`"8,"`, "--cold", "1 to 1024"}},
		{name: "bench: too few contexts", args: joined(goodBench, "--contexts", "H.npy"), code: 1, want: []string{"H.npy", "900 different contexts", "1000"}},
		{name: "bench: the same context all the time", files: matrixIn("T.npy", 5000, tinyDim), args: goodBench, code: 1, want: []string{"T.npy", "1 different", "1000"}},
		{name: "topk: k of 0", args: joined(goodTopK, "--k", "0"), code: 2, want: []string{`"0"`, "--k", "at least 1"}},
		{name: "topk: k above the labels", args: joined(goodTopK, "--k", "301"), code: 1, want: []string{"W.npy", "300", "301"}},
		{name: "topk: a limit below zero", args: joined(goodTopK, "--limit", "-1"), code: 2, want: []string{"--limit", "at least 0"}},
		{name: "topk: a limit that is too large", args: joined(goodTopK, "--limit", "99999999999999999999"), code: 2, want: []string{"--limit", "a smaller whole number"}},
	})
}

// Options for experts come from a file, each in its range.
func TestBadOptions(t *testing.T) {
	var cases []badCase
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", "clusters: 6", "options.json: options: invalid character"},
		{"null", "null", "options.json: options: found null, expected a JSON object"},
		{"a list", "[]", "options.json: options: all: found a JSON array, expected an object"},
		{"two objects", "{} {}", "options.json: options: found more text after the JSON object"},
		{"a name twice", `{"seed": 1, "clusters": 6, "seed": 2}`, `options.json: options: found "seed" twice`},
		{"a name twice, further in", `{"learning": {"rate": 1, "rate": 2}}`, `options.json: options: found "rate" twice`},
		{"a name in capitals", `{"Seed": 1}`, `options.json: options: found the name "Seed", expected small letters`},
		{"a number out of its range", `{"held_out": -2}`, "options.json: options: held out: found -2"},
		{"all that is known of a screen", `{"dim": 3, "record": {"options": {"seed": 1}}}`, "options.json: options: found the output of l2s inspect --json, expected its object record.options"},
		{"a record", `{"contexts": 3, "options": {"seed": 1}}`, "options.json: options: found a record, expected the object in it under options"},
		{"an unknown one", `{"spread": 1}`, `options.json: options: json: unknown field "spread"`},
		{"clusters in words", `{"clusters": "many"}`, "options.json: options: clusters: found a JSON string, expected a whole number in range"},
		{"half a cluster", `{"clusters": 1.5}`, "options.json: options: clusters: found a JSON number 1.5, expected a whole number in range"},
		{"more clusters than contexts", `{"clusters": 901}`, "clusters: found 901, expected 1 to the number of contexts, 900"},
		{"clusters below zero", `{"clusters": -3}`, "clusters: found -3"},
		{"iterations below zero", `{"iterations": -1}`, "iterations: found -1, expected at least 0"},
		{"too many iterations", `{"iterations": 1000001}`, "iterations: found 1000001, expected at least 0, and at most a million"},
		{"an epoch that does not end", `{"learning": {"epoch_fraction": 1e300}}`, "learning: epoch fraction: found 1e+300, expected a number above 0, at most 1000"},
		{"k of 0", `{"k": 0}`, "k: found 0, expected 1 to 300"},
		{"a budget below k", `{"budget": 4.5}`, "budget: found 4.5, expected at least k = 5 candidates, or 0"},
		{"an id of always that no label has", `{"always": [1, 300]}`, "always[1]: found id 300, expected below 300"},
		{"more contexts held out than a half", `{"held_out": 451}`, "held out: found 451, expected at most 450"},
		{"shells in another order", `{"shells": [0.1, 0.4]}`, "shells[1]: found 0.4, expected descending shares"},
		{"shells without geometry", `{"shells": [0.4], "geometry": 0}`, "shells: found 1 with geometry 0"},
		{"no iterations of k-means", `{"kmeans_iterations": 0}`, "k-means iterations: found 0"},
		{"a negative lambda", `{"learning": {"lambda": -1}}`, "learning: lambda: found -1"},
		{"an unknown estimator", `{"learning": {"estimator": "best"}}`, "estimator"},
		{"a tail at no temperature", `{"tail": {"temperatures": []}}`, "temperatures"},
		{"a target of 1", `{"target": 1}`, "target: found 1"},
	} {
		cases = append(cases, badCase{name: "train: options: " + c.name, files: inFile("options.json", []byte(c.text)), args: goodTrain, code: 1, want: []string{c.want}})
	}
	cases = append(cases,
		badCase{name: "train: options that are missing", args: joined(goodTrain, "--options", "none.json"), code: 1, want: []string{"none.json", "no such file"}},
		badCase{name: "train: over the options", args: joined(goodTrain, "--out", "options.json"), code: 2, want: []string{"--out options.json would replace the input options.json"}})
	runCases(t, cases)
}

func TestBadOutputs(t *testing.T) {
	folder := func(name string, mode os.FileMode) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	var cases []badCase
	for _, verb := range [][]string{goodTrain} {
		name := verb[0]
		cases = append(cases,
			badCase{name: name + ": a missing folder", args: joined(verb, "--out", "no/such/out"), code: 1, want: []string{"no/such/out: cannot be written", "no such file or directory"}},
			badCase{name: name + ": a folder for the output", files: folder("folder", 0o777), args: joined(verb, "--out", "folder"), code: 1, want: []string{"folder: cannot be written: found a folder"}},
			badCase{name: name + ": a file as folder", args: joined(verb, "--out", "W.npy/out"), code: 1, want: []string{"W.npy/out: cannot be written"}},
			badCase{name: name + ": no name", args: joined(verb, "--out", ""), code: 2, want: []string{"--out"}},
		)
		if os.Getuid() != 0 { // root may write everywhere
			cases = append(cases, badCase{name: name + ": a folder that is read only", files: folder("locked", 0o555), args: joined(verb, "--out", "locked/out"), code: 1,
				want: []string{"locked/out: cannot be written", "permission denied"}})
		}
	}
	cases = append(cases,
		badCase{name: "train: over the contexts", args: joined(goodTrain, "--out", "H.npy"), code: 2, want: []string{"--out H.npy would replace the input H.npy"}},
		badCase{name: "train: another file where the state is kept", files: inFile("out.l2s.partial", []byte("precious")), args: goodTrain, code: 1, want: []string{"out.l2s.partial: found another kind of file, expected the state of an interrupted run: move it away"}},
		badCase{name: "train: labels of l2s labels where the state keeps its own", files: func(t *testing.T, dir string) {
			succeed(t, dir, joined(goodLabels, "--out", "out.l2s.partial-labels")...)
		}, args: goodTrain, code: 1, want: []string{"out.l2s.partial-labels: found labels without the state of a run in out.l2s.partial"}},
		badCase{name: "train: an input where the state is kept", files: func(t *testing.T, dir string) {
			succeed(t, dir, joined(goodLabels, "--out", "out.l2s.partial-labels")...)
		}, args: joined(goodTrain, "--labels", "out.l2s.partial-labels"), code: 2, want: []string{"out.l2s.partial-labels, where the state of the run is kept, would replace the input", "another --out"}},
		badCase{name: "train: over the file of the weights", args: joined(goodTrain, "--weights", "layer.safetensors:weight", "--out", "./layer.safetensors"), code: 2, want: []string{"--out ./layer.safetensors would replace the input"}},
	)
	// A failure must not cost the file that was there before.
	cases = append(cases,
		badCase{name: "train: an old file stays when training fails", files: func(t *testing.T, dir string) {
			inFile("out.l2s", []byte("precious"))(t, dir)
			poisoned("H.npy", 17, math.NaN())(t, dir)
		}, args: goodTrain, code: 1, want: []string{"H.npy", "NaN"}},
	)
	runCases(t, cases)
}

// A file of any size is refused before it is read.
func TestHugeVocabularies(t *testing.T) {
	dir := files(t)
	for name, c := range map[string]struct{ start, want string }{
		"words.txt":  {"word\n", "words.txt: file size: found more than 268435456 bytes, expected a vocabulary"},
		"words.json": {`{"a": 1`, "words.json: size: found 5368709120 bytes, expected a tokenizer, of at most 268435456"},
	} {
		path := filepath.Join(dir, name)
		writeFile(t, path, []byte(c.start))
		if err := os.Truncate(path, 5<<30); err != nil { // only the beginning takes room
			t.Skip(err)
		}
		if r := invoke(t, dir, joined(goodTopK, "--vocab", name)...); r.code != 1 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: found %d and %q, expected %q", name, r.code, r.stderr, c.want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadVocabularies(t *testing.T) {
	runCases(t, []badCase{
		{name: "topk: missing vocabulary", args: joined(goodTopK, "--vocab", "no.txt"), code: 1, want: []string{"no.txt", "no such file"}},
		{name: "topk: empty vocabulary", files: inFile("words.txt", nil), args: joined(goodTopK, "--vocab", "words.txt"), code: 1, want: []string{"words.txt: found an empty file"}},
		{name: "topk: vocabulary of another length", args: joined(goodTopK, "--vocab", "vocab.txt"), code: 1, want: []string{"vocab.txt: found 40 words, expected 300"}},
		{name: "topk: vocabulary with a word twice", files: replaced("words.txt", "w7\n", "w8\n"), args: joined(goodTopK, "--vocab", "words.txt"), code: 1, want: []string{"words.txt: line", `"w8"`, "unique"}},
		{name: "topk: an array for vocabulary", args: joined(goodTopK, "--vocab", "W.npy"), code: 1, want: []string{"W.npy: line 1"}},
	})
}

func TestWrongUse(t *testing.T) {
	simdtest.Long(t)
	cases := []badCase{
		{name: "no verb", want: []string{"expected one of labels, merge, train, eval, bench, topk, inspect, version"}},
		{name: "unknown verb", args: []string{"trian"}, want: []string{`unknown verb "trian"`, "train"}},
		{name: "help on an unknown verb", args: []string{"help", "trian"}, want: []string{`unknown verb "trian"`}},
		{name: "a flag before the verb", args: []string{"--json", "eval"}, want: []string{`"--json"`, "expected one of"}},
		{name: "unknown flag", args: joined(goodTrain, "--budgets", "5"), want: []string{"unknown flag --budgets", "--budget", "l2s train -h"}},
		{name: "flag without value", args: []string{"train", "--budget"}, want: []string{"--budget needs a value"}},
		{name: "flag that takes no value", args: joined(goodTrain, "--json=perhaps"), want: []string{"--json", `"perhaps"`}},
		{name: "train: an argument too many", args: joined(goodTrain, "m.l2s"), want: []string{`unexpected argument "m.l2s"`}},
		{name: "version: an argument too many", args: []string{"version", "1"}, want: []string{`unexpected argument "1"`}},
		{name: "eval: two screens", args: joined(goodEval, "n.l2s"), want: []string{`unexpected argument "n.l2s"`}},
		{name: "inspect: no screen", args: []string{"inspect"}, want: []string{"screen file", "l2s inspect m.l2s"}},
	}
	for _, verb := range [][]string{goodTrain, goodEval, goodBench, goodTopK} {
		required := []string{"--weights", "--bias", "--contexts"}
		if verb[0] == "train" {
			required = append(required, "--out")
		}
		for _, flag := range required {
			cases = append(cases, badCase{name: verb[0] + ": no " + flag, args: without(verb, flag), want: []string{"missing " + flag, "l2s " + verb[0] + " -h"}})
		}
		if slices.Contains(verb, "m.l2s") && verb[0] != "topk" { // which searches exactly then
			cases = append(cases, badCase{name: verb[0] + ": no screen", args: slices.DeleteFunc(slices.Clone(verb), func(s string) bool { return s == "m.l2s" }), want: []string{"screen file", "l2s " + verb[0]}})
		}
	}
	for _, c := range []struct {
		args  []string
		empty string
	}{{goodTopK, "--ids"}, {goodTopK, "--vocab"}, {goodTopK, "--head"}, {goodEval, "--targets"}, {goodTrain, "--labels"}, {goodTrain, "--options"}, {goodBench, "--ids"}, {[]string{"inspect", "m.l2s"}, "--ids"}, {goodTrain, "--always"}, {goodTopK, "--ban"}, {goodTopK, "--allow"}, {goodTopK, "--budget"}, {goodEval, "--contexts"}} {
		cases = append(cases, badCase{name: c.args[0] + ": an empty " + c.empty, args: joined(c.args, c.empty, ""), want: []string{c.empty}})
	}
	cases = append(cases, badCase{name: "inspect: an empty name", args: []string{"inspect", ""}, want: []string{"as in: l2s inspect m.l2s [flags], or l2s inspect M.gguf.l2p [flags], or l2s inspect MODEL [flags]; l2s inspect -h"}})
	for i := range cases {
		cases[i].code = 2
	}
	runCases(t, cases)
}

// An unknown level must end neither in a run on another level nor in a dump.
func TestUnknownLevelFailsLoudly(t *testing.T) {
	for _, verb := range [][]string{goodTopK, {"version"}} {
		cmd := command(t, files(t), verb...)
		cmd.Env = append(cmd.Env, "L2S_SIMD=bogus")
		r := finish(t, cmd)
		want := `l2s: L2S_SIMD="bogus": unknown level; available: generic`
		if r.code != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: found exit status %d, standard output %q and standard error\n%s", verb[0], r.code, r.stdout, r.stderr)
		}
	}
}
