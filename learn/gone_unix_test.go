//go:build unix

package learn

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/softmax"
)

// A mapped head whose file is cut off fails only the training that reads it.
func TestAHeadThatIsGone(t *testing.T) {
	const labels, dim = 4000, 64
	data := synthetic.Structured(labels, dim, 20, 1100, 1)
	header := fmt.Sprintf("%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", labels, dim))
	file := append([]byte("\x93NUMPY\x01\x00\x76\x00"), header...)
	row := make([]float32, dim)
	for i := range labels {
		data.Layer.Weights().Widen(row, i)
		file, _ = binary.Append(file, binary.LittleEndian, row)
	}
	path := filepath.Join(t.TempDir(), "W.npy")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := head.Open(path, head.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	layer, err := softmax.NewLayer(h.Rows(), nil)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Least = 1000
	l := newTest(t, layer, o)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	for i := range data.Len() {
		l.Add(data.Context(i), nil, softmax.FromSet) // the training looks for the labels
	}
	for e := range events {
		if e.Kind == failed {
			return
		}
	}
}
