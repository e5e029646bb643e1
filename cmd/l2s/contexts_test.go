package main

import (
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// A wrong context does not cost the answers to earlier contexts, and the error gives their number.
func TestTopKSaysWhatIsThereBeforeAnError(t *testing.T) {
	dir := files(t)
	h, _, dim := rows(t, filepath.Join(dir, "T.npy"))
	all := strings.SplitAfter(succeed(t, dir, goodTopK...), "\n")
	bad := slices.Clone(h)
	bad[300*dim+1] = float32(math.NaN()) // in the second block of rows
	data := tensorfile.NPYHeader("f4", len(bad)/dim, dim)
	for _, x := range bad {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	writeFile(t, filepath.Join(dir, "bad.npy"), data)
	const want = "l2s topk: bad.npy: values: found NaN at row 300, column 1, expected finite numbers; standard output has the answers to the first 256 of 1,200 contexts\n"
	r := invoke(t, dir, joined(goodTopK, "--contexts", "bad.npy")...)
	if r.code != 1 || r.stderr != want || r.stdout != strings.Join(all[:256], "") {
		t.Errorf("found exit status %d, the answers\n%s\nand\n%sexpected 1, 256 answers, and\n%s", r.code, r.stdout, r.stderr, want)
	}
}

// Contexts after --limit are not read.
func TestTopKReadsNoFurtherThanItsLimit(t *testing.T) {
	dir := files(t)
	want := succeed(t, dir, joined(goodTopK, "--limit", "200")...)
	data := readFile(t, filepath.Join(dir, "T.npy"))
	for i := range 4 {
		data[len(data)-4*1000*tinyDim+i] = 0xff // a NaN in context 201
	}
	writeFile(t, filepath.Join(dir, "bad.npy"), data)
	if got := succeed(t, dir, joined(goodTopK, "--limit", "200", "--contexts", "bad.npy")...); got != want {
		t.Errorf("found\n%s\nexpected\n%s", got, want)
	}
}

// Contexts are read from files of tensors: text that looks like JSON is refused, and the error
// tells how to convert it.
func TestContextsOfJSON(t *testing.T) {
	dir := files(t)
	for name, text := range map[string]string{"lists.json": "[[1, 2],\n[3, 4]]\n", "lines.jsonl": " [1, 2]\n[3, 4]\n", "answer": `{"embedding": [[1, 2]]}`} {
		writeFile(t, filepath.Join(dir, name), []byte(text))
		for _, verb := range [][]string{goodTopK, goodEval, goodTrain} {
			r := invoke(t, dir, joined(verb, "--contexts", name)...)
			want := "l2s " + verb[0] + ": l2s: " + name + ": format: found text that looks like JSON, expected a .npy, .npz, safetensors or GGUF file: in Python numpy.save("
			if r.code != 1 || !strings.HasPrefix(strings.Replace(r.stderr, ": "+name, ": l2s: "+name, 1), want) {
				t.Errorf("%s: found exit status %d and %q, expected 1 and %q", name, r.code, r.stderr, want)
			}
		}
	}
}

// Standard input may have the contexts, as a .npy file, for every verb: the answers are the same.
func TestContextsOnStandardInput(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	for _, args := range [][]string{joined("topk", "m.l2s", layerArgs()), joined("eval", "m.l2s", layerArgs())} {
		cmd := command(t, dir, append(args, "--contexts", "-")...)
		file, err := os.Open(filepath.Join(dir, "T.npy"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd.Stdin = struct{ io.Reader }{file} // through a pipe
		want := succeed(t, dir, append(args, "--contexts", "T.npy")...)
		if r := finish(t, cmd); r.code != 0 || r.stdout != want {
			t.Errorf("%s: found status %d, %q and\n%s\nexpected\n%s", args[0], r.code, r.stderr, r.stdout, want)
		}
	}
	if r := invoke(t, dir, joined("topk", "m.l2s", layerArgs(), "--contexts", "-")...); r.code != 1 || !strings.Contains(r.stderr, "standard-input.npy") {
		t.Errorf("no input: found status %d and %q, expected an error that names it", r.code, r.stderr)
	}
}

// Without a screen l2s topk searches exactly, and has no budgets.
func TestTopKWithoutAScreenIsExact(t *testing.T) {
	dir := files(t)
	for _, more := range [][]string{nil, {"--logprobs", "--limit", "9"}, {"--ban", "1,2"}} {
		want := succeed(t, dir, joined(goodTopK, more, "--budget", "exact")...)
		if got := succeed(t, dir, joined("topk", testArgs(), more)...); got != want {
			t.Errorf("%v: found\n%s\nexpected\n%s", more, got, want)
		}
	}
	if r := invoke(t, dir, joined("topk", testArgs(), "--budget", "9")...); r.code != 2 || !strings.Contains(r.stderr, "--budget 9: expected a screen or a preview") {
		t.Errorf("found status %d and %q, expected 2 and the reason", r.code, r.stderr)
	}
}

// A screen under the usual name of a preview is noted: programs load the two with other packages.
func TestTheNameOfTheOtherKindIsNoted(t *testing.T) {
	dir := files(t)
	for name, noted := range map[string]bool{"x.l2p": true, "x.l2s": false, "x": false} {
		r := invoke(t, dir, joined("train", trainArgs(), "--out", name)...)
		if r.code != 0 || strings.Contains(r.stderr, "this file is a screen, whose usual name ends in .l2s") != noted {
			t.Errorf("%s: found status %d and %q, expected a note: %v", name, r.code, r.stderr, noted)
		}
	}
}
