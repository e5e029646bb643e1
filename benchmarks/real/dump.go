package main

import (
	"bufio"
	"encoding/binary"
	"os"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
)

// writeRows writes the rows of a layer, for programs that do not read the file of the model.
func writeRows(path string, l *l2s.Layer) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	w := (*engine.Layer)(l).Exact().Weights()
	row, bytes := make([]float32, l.Dim()), make([]byte, 4*l.Dim())
	for i := range l.Labels() {
		w.Widen(row, i)
		_, _ = binary.Encode(bytes, binary.LittleEndian, row) // which has room: no error
		if _, err := out.Write(bytes); err != nil {
			f.Close()
			return err
		}
	}
	if err := out.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
