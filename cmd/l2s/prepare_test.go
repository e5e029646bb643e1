package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withCodes is the shared files with a model's folder and its codes.
func withCodes(t *testing.T, dir string) {
	t.Helper()
	modelFolder(t, dir, "model")
	succeed(t, dir, "prepare", "model", "--out", "head.codes", "--quiet")
}

// With prepared codes a head gives the answers that it gives without; so it does when
// the files of the model were copied, and when all weights are compared.
func TestPreparedCodes(t *testing.T) {
	dir := files(t)
	modelFolder(t, dir, "model")
	r := object(t, dir, "prepare", "model", "--out", "head.codes", "--json", "--quiet")
	expectFields(t, r, "file", "bytes", "fingerprint", "seconds")
	info, err := os.Stat(filepath.Join(dir, "head.codes"))
	if err != nil || number(t, r, "bytes") != float64(info.Size()) || number(t, r, "labels") != 300 || number(t, r, "dim") != 12 {
		t.Errorf("found %v, %v", r, err)
	}
	for _, verb := range [][]string{
		joined("topk", "m.l2s", "--contexts", "T.npy", "--exact", "--head", "model"),
		joined("topk", "m.l2s", "--contexts", "T.npy", "--head", "model"),
		joined("eval", "m.l2s", "--contexts", "T.npy", "--json", "--head", "model"),
	} {
		want := succeed(t, dir, verb...)
		if got := succeed(t, dir, joined(verb, "--codes", "head.codes")...); got != want {
			t.Errorf("%v: found another result with codes", verb)
		}
		if got := succeed(t, dir, joined(verb, "--codes", "head.codes", "--verify")...); got != want {
			t.Errorf("%v: found another result with codes that are verified", verb)
		}
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "model", "one.safetensors"), later, later); err != nil {
		t.Fatal(err)
	}
	succeed(t, dir, "eval", "m.l2s", "--contexts", "T.npy", "--head", "model", "--codes", "head.codes")

	before := readFile(t, filepath.Join(dir, "head.codes"))
	succeed(t, dir, "prepare", "layer.safetensors:weight", "--bias", "b.npy", "--out", "other.codes")
	if other := readFile(t, filepath.Join(dir, "other.codes")); bytes.Equal(before, other) || !bytes.Equal(before[192:], other[192:]) {
		t.Error("found other codes of the same weights in another file, or the same origin")
	}
}

// A draft has codes of its own.
func TestPreparedCodesOfADraft(t *testing.T) {
	dir := files(t)
	modelFolder(t, dir, "model")
	writeFile(t, filepath.Join(dir, "ids.npy"), append(npyHead("<i4", false, 3), 5, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0))
	draft := []string{"--head", "model", "--bias", "none", "--ids", "ids.npy", "--contexts", "H.npy", "--quiet"}
	succeed(t, dir, "prepare", "model", "--bias", "none", "--ids", "ids.npy", "--out", "draft.codes")
	train := joined("train", draft, "--clusters", "2", "--budget", "2", "--k", "1", "--iterations", "1", "--out")
	succeed(t, dir, joined(train, "want.l2s")...)
	succeed(t, dir, joined(train, "got.l2s", "--codes", "draft.codes")...)
	if !bytes.Equal(readFile(t, filepath.Join(dir, "want.l2s")), readFile(t, filepath.Join(dir, "got.l2s"))) {
		t.Error("found another screen with codes")
	}
	writeFile(t, filepath.Join(dir, "ids.npy"), append(npyHead("<i4", false, 3), 5, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0))
	if r := l2s(t, dir, joined(train, "got.l2s", "--codes", "draft.codes")...); r.code != 1 || !strings.Contains(r.stderr, "draft.codes: fingerprint: found ") {
		t.Errorf("another list of labels: found exit status %d, %s", r.code, r.stderr)
	}
}

func TestBadCodes(t *testing.T) {
	eval := joined("eval", "m.l2s", "--contexts", "T.npy", "--head", "model", "--codes", "head.codes", "--quiet")
	after := func(change func(t *testing.T, in func(name string) string)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			withCodes(t, dir)
			change(t, func(name string) string { return filepath.Join(dir, name) })
		}
	}
	flip := func(name string, at int) func(t *testing.T, dir string) {
		return after(func(t *testing.T, in func(name string) string) {
			data := readFile(t, in(name))
			data[at] ^= 1
			writeFile(t, in(name), data)
		})
	}
	runCases(t, []badCase{
		{name: "prepare: no model", args: []string{"prepare", "--out", "head.codes"}, code: 2, want: []string{"expected one model, as in: l2s prepare MODEL --out"}},
		{name: "prepare: two models", args: []string{"prepare", "W.npy", "b.npy", "--out", "head.codes"}, code: 2, want: []string{"expected one model, as in"}},
		{name: "prepare: no --out", args: []string{"prepare", "W.npy"}, code: 2, want: []string{"missing --out"}},
		{name: "prepare: a missing model", args: []string{"prepare", "no-model", "--out", "head.codes"}, code: 1, want: []string{"no-model", "no such file"}},
		{name: "prepare: over the model", args: []string{"prepare", "W.npy", "--out", "W.npy"}, code: 2, want: []string{"--out W.npy would replace the input W.npy"}},
		{name: "prepare: into a missing folder", args: []string{"prepare", "W.npy", "--out", "no/head.codes", "--quiet"}, code: 1, want: []string{"no/head.codes: cannot be written"}},
		{name: "--verify without --codes", args: joined(goodEval, "--verify"), code: 2, want: []string{"--verify is for --codes"}},
		{name: "codes: missing", files: func(t *testing.T, dir string) { modelFolder(t, dir, "model") }, args: eval, code: 1, want: []string{"head.codes: no such file"}},
		{name: "codes: a screen", files: withCodes, args: joined(without(eval, "--codes"), "--codes", "m.l2s"), code: 1, want: []string{"m.l2s: magic: found 89 4c 32 53", "not a file of codes"}},
		{name: "codes: a bit flipped in the header", files: flip("head.codes", 60), args: eval, code: 1, want: []string{"head.codes: header: checksum"}},
		{name: "codes: a bit flipped in a code", files: flip("head.codes", 3000), args: eval, code: 1, want: []string{"head.codes: block 0: checksum"}},
		{name: "codes: of another bias", files: withCodes, args: joined(eval, "--bias", "none"), code: 1, want: []string{"head.codes: 8-bit codes: kernels: record", "l2s prepare makes them again"}},
		{name: "codes: of weights that were changed", files: after(func(t *testing.T, in func(string) string) {
			path := in("model/one.safetensors")
			data := readFile(t, path)
			at := len(data) - 4*12*20 - 4*12*7 // in row 293
			data[at] ^= 1
			writeFile(t, path, data)
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(path, later, later); err != nil {
				t.Fatal(err)
			}
		}), args: eval, code: 1, want: []string{"head.codes: fingerprint: found ", "the codes were made for another layer; l2s prepare makes them again"}},
	})
}
