package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/screen"
)

// emptyFolder makes the folder dir, or checks that it is there and empty: so that
// nothing is replaced.
func emptyFolder(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o777)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s: found a folder that holds %s, expected a new or an empty one", dir, entries[0].Name())
	}
	return false, err
}

// keepDemo leaves in a folder what the demonstration has worked with: the layer, the
// contexts that the screen was trained on and those it was measured on, the
// vocabulary and the screen.
func keepDemo(dir string, l *layer, learnt, heldOut []float32, voc *vocab.Vocab, m *screen.Model) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	dim := l.Dim()
	err := tensorfile.WriteSafetensors(in("layer.safetensors"),
		tensorfile.Array{Name: "weight", Shape: []int{l.Labels(), dim}, Data: dense.Weights(l.Layer)},
		tensorfile.Array{Name: "bias", Shape: []int{l.Labels()}, Data: l.Bias()})
	if err != nil {
		return err
	}
	for name, rows := range map[string][]float32{"train.npy": learnt, "test.npy": heldOut} {
		if err := tensorfile.WriteNPY(in(name), rows, len(rows)/dim, dim); err != nil {
			return err
		}
	}
	if err := keepWords(in("vocab.txt"), voc); err != nil {
		return err
	}
	return m.Save(in("m.l2s"))
}

func keepWords(path string, voc *vocab.Vocab) error {
	file, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer file.Abort()
	w := bufio.NewWriter(file)
	for id := range voc.Len() {
		fmt.Fprintln(w, voc.Word(uint32(id)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Commit()
}

// keptText says which files there are, and what can be done with them. The training
// is the same as in the demonstration.
func keptText(dir string) string {
	layer := fmt.Sprintf("--weights %s:weight --bias %[1]s:bias", filepath.Join(dir, "layer.safetensors"))
	in := func(name string) string { return filepath.Join(dir, name) }
	return fmt.Sprintf(`
%s holds the layer, the contexts, the vocabulary and the screen:

  l2s eval %s %s --contexts %s
  l2s topk %[2]s %[3]s --contexts %[4]s --vocab %[5]s
  l2s train %[3]s --contexts %[6]s --out %[7]s

The last makes the screen once more, byte for byte.
`, dir, in("m.l2s"), layer, in("test.npy"), in("vocab.txt"), in("train.npy"), in("mine.l2s"))
}
