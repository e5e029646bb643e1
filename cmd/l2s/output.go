package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/heads"
)

// output is a file that a verb writes.
type output struct {
	flag string // the flag whose value names it, or gives its name the beginning
	path string // empty for none
	what string // its content, if the name of the flag does not tell it
}

func (o output) String() string {
	if o.what != "" {
		return fmt.Sprintf("%s, %s,", o.path, o.what)
	}
	return fmt.Sprintf("%s %s", o.flag, o.path)
}

// checkOutputs returns an error if one of the outputs would replace an input in the arguments or in
// more, or another output. Inputs are names of files, or sources as Open of package head takes
// them; an empty one does not count.
func checkOutputs(ctx context.Context, f *flags, outputs []output, more ...string) error {
	inputs := slices.Concat(f.files, more)
	if in := f.inputs; in != nil {
		inputs = slices.Concat([]string{*in.head, *in.weights, *in.bias, *in.ids}, *in.contexts, inputs)
	}
	places := make([][]place, len(inputs)) // each may be some thousands of files
	for i, in := range inputs {
		if in != "" && in != "none" {
			for _, file := range heads.Files(in) {
				if err := ctx.Err(); err != nil {
					return err
				}
				places[i] = append(places[i], placeOf(file))
			}
		}
	}
	for i, o := range outputs {
		if o.path == "" {
			continue
		}
		to := placeOf(o.path)
		for j, in := range inputs {
			for _, at := range places[j] {
				switch {
				case at.same(to):
					return f.wrongUse("%v would replace the input %s: give another %s", o, in, o.flag)
				case filepath.Dir(at.path) == filepath.Dir(to.path) && atomicfile.IsTemporary(at.path, o.path):
					return f.wrongUse("the input %s has the name of a temporary file of %s, which is removed: give it another name", in, o.path)
				}
			}
		}
		for _, other := range outputs[:i] {
			if other.path != "" && placeOf(other.path).same(to) {
				return f.wrongUse("%v and %v are the same file: give another %s", other, o, o.flag)
			}
		}
	}
	return nil
}

// checkWritable returns an error if an output cannot be written, so that the error comes before
// long work. It keeps no file of the attempt, so that none is left if the program is killed.
func checkWritable(outputs []output) error {
	for _, o := range outputs {
		attempt, err := atomicfile.Create(o.path)
		if err != nil {
			return err
		}
		attempt.Abort()
	}
	return nil
}

// place is where a path leads: to a file, or to where one will be.
type place struct {
	path string      // the destination
	info os.FileInfo // nil if there is none yet
}

func placeOf(path string) place {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	return place{atomicfile.Destination(filepath.Clean(path)), info}
}

func (p place) same(q place) bool {
	if p.info != nil && q.info != nil {
		return os.SameFile(p.info, q.info)
	}
	return p.path == q.path
}
