// Package cmdline has what the commands share: the check of the files that they write, and the
// numbers of their flags.
package cmdline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// Output is a file that a command writes.
type Output struct {
	Flag string // the flag whose value names it, or gives its name the beginning
	Path string // empty for none
	What string // its content, if the name of the flag does not tell it
}

func (o Output) String() string {
	if o.What != "" {
		return fmt.Sprintf("%s, %s,", o.Path, o.What)
	}
	return fmt.Sprintf("%s %s", o.Flag, o.Path)
}

// CheckOutputs returns the wrong use, if one of the outputs would replace an input or another
// output, and otherwise "". Inputs are names of files, or sources as l2s.Open takes
// them; an empty one does not count. An error is that of ctx.
func CheckOutputs(ctx context.Context, outputs []Output, inputs []string) (wrong string, err error) {
	places := make([][]place, len(inputs)) // each may be some thousands of files
	for i, in := range inputs {
		if in != "" && in != "none" {
			for _, file := range heads.Files(in) {
				if err := ctx.Err(); err != nil {
					return "", err
				}
				places[i] = append(places[i], placeOf(file))
			}
		}
	}
	for i, o := range outputs {
		if o.Path == "" {
			continue
		}
		to := placeOf(o.Path)
		for j, in := range inputs {
			for _, at := range places[j] {
				switch {
				case at.same(to):
					return fmt.Sprintf("%v would replace the input %s: give another %s", o, in, o.Flag), nil
				case filepath.Dir(at.path) == filepath.Dir(to.path) && atomicfile.IsTemporary(at.path, o.Path):
					return fmt.Sprintf("the input %s has the name of a temporary file of %s, which is removed: give it another name", in, o.Path), nil
				}
			}
		}
		for _, other := range outputs[:i] {
			if other.Path != "" && placeOf(other.Path).same(to) {
				return fmt.Sprintf("%v and %v are the same file: give another %s", other, o, o.Flag), nil
			}
		}
	}
	return "", nil
}

// CheckWritable returns an error if an output cannot be written, so that the error comes before
// long work. It keeps no file of the attempt, so that none is left if the program is killed.
func CheckWritable(outputs []Output) error {
	for _, o := range outputs {
		attempt, err := atomicfile.Create(o.Path)
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
