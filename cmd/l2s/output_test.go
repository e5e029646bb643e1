package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// allInOne writes a file with the shared layer and the contexts H.npy and T.npy,
// under names with a colon, as TensorFlow gives them.
func allInOne(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		var arrays []gguftest.Array
		for as, file := range map[string]string{"kernel:0": "W.npy", "bias:0": "b.npy", "train:0": "H.npy", "test:0": "T.npy"} {
			a := tensor(t, filepath.Join(dir, file))
			a.Name = as
			arrays = append(arrays, a)
		}
		if err := gguftest.WriteSafetensors(filepath.Join(dir, name), arrays...); err != nil {
			t.Fatal(err)
		}
	}
}

// then makes several changes of the files.
func then(changes ...func(t *testing.T, dir string)) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		for _, change := range changes {
			change(t, dir)
		}
	}
}

// moved gives a file another name.
func moved(from, to string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
}

// linked makes a symbolic link, whose target need not be there.
func linked(target, name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// No verb writes over its inputs, whatever names input and output have.
func TestOutputsThatAreInputs(t *testing.T) {
	// from are the flags for the layer and the contexts in one file.
	from := func(file, contexts string) []string {
		return []string{"--weights", file + ":kernel:0", "--bias", file + ":bias:0", "--contexts", file + ":" + contexts + ":0"}
	}
	const one = "one.safetensors"
	replaces := func(output, input string) []string {
		return []string{output + " would replace the input " + input + ": give another --"}
	}
	var cases []badCase
	for _, verb := range []struct {
		name string
		args []string
	}{{"train", goodTrain}, {"labels", goodLabels}} {
		cases = append(cases, badCase{name: verb.name + ": over the file of tensors with a colon in their names", files: allInOne(one),
			args: joined(verb.args, from(one, "train"), "--out", one), code: 2, want: replaces("--out "+one, one+":kernel:0")})
	}
	cases = append(cases,
		badCase{name: "train: the state over the file of tensors with a colon in their names", files: allInOne("out.l2s.partial"),
			args: joined(goodTrain, from("out.l2s.partial", "train")), code: 2, want: replaces("out.l2s.partial, where the state of the run is kept,", "out.l2s.partial:kernel:0")},
		badCase{name: "train: an output where the state is kept", files: linked("out.l2s", "out.l2s.partial"),
			args: goodTrain, code: 2, want: []string{"--out out.l2s and out.l2s.partial, where the state of the run is kept, are the same file"}},
		badCase{name: "train: over the weights by a symbolic link", files: linked("W.npy", "link"),
			args: joined(goodTrain, "--out", "link"), code: 2, want: replaces("--out link", "W.npy")},
		badCase{name: "train: over weights that are given by a symbolic link", files: linked("layer.safetensors", "link"),
			args: joined(goodTrain, "--weights", "link:weight", "--out", "layer.safetensors"), code: 2, want: replaces("--out layer.safetensors", "link:weight")},
		badCase{name: "train: over the weights by a link to their folder", files: linked(".", "here"),
			args: joined(goodTrain, "--out", "here/W.npy"), code: 2, want: replaces("--out here/W.npy", "W.npy")},
		badCase{name: "train: a file that would be read instead of the tensor", files: allInOne(one),
			args: joined(goodTrain, from(one, "train"), "--out", one+":train"), code: 2, want: replaces("--out "+one+":train", one+":train:0")},
		badCase{name: "train: over the file of weights whose whole name has a colon", files: moved("W.npy", "W:0"),
			args: joined(goodTrain, "--weights", "W:0", "--out", "W:0"), code: 2, want: replaces("--out W:0", "W:0")},
		badCase{name: "merge: over a part by a symbolic link", files: then(func(t *testing.T, dir string) { labelParts(t, dir, 2) }, linked("part-1", "link")),
			args: []string{"merge", "--out", "link", "part-0", "part-1"}, code: 2, want: replaces("--out link", "part-1")},
		badCase{name: "train: weights with the name of a temporary file", files: moved("W.npy", ".out.l2s.tmp-123"),
			args: joined(goodTrain, "--weights", ".out.l2s.tmp-123"), code: 2, want: []string{"the input .out.l2s.tmp-123 has the name of a temporary file of out.l2s, which is removed: give it another name"}},
		badCase{name: "train: contexts with the name of a temporary file of the state", files: then(moved("H.npy", ".out.l2s.partial.tmp-123"), linked(".out.l2s.partial.tmp-123", "link.npy")),
			args: joined(goodTrain, "--contexts", "link.npy"), code: 2, want: []string{"the input link.npy has the name of a temporary file of out.l2s.partial, which is removed"}},
		badCase{name: "train: a name too long for the state of the run", args: joined(goodTrain, "--out", strings.Repeat("n", 250)), code: 1,
			want: []string{strings.Repeat("n", 250) + ".partial: cannot be written: file name too long"}},
	)
	runCases(t, cases)
}

// Names of files are looked up until an interrupt: there may be thousands of them.
func TestInterruptedCheckOfOutputs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := newFlags("labels", io.Discard, io.Discard)
	if err := checkOutputs(ctx, f, []cmdline.Output{{Flag: "--out", Path: "x"}}, "y"); !errors.Is(err, context.Canceled) {
		t.Errorf("found the error %v, expected the error of the interrupt", err)
	}
}
