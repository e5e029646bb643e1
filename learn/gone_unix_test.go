//go:build unix

package learn

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// A mapped head whose file is cut off fails only the training that reads it.
func TestAHeadThatIsGone(t *testing.T) {
	const labels, dim = 4000, 64
	data := synthetic.Structured(labels, dim, 20, 1100, 1)
	header := fmt.Sprintf("%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", labels, dim))
	file := append([]byte("\x93NUMPY\x01\x00\x76\x00"), header...)
	row := make([]float32, dim)
	for i := range labels {
		data.Exact.Weights().Widen(row, i)
		file, _ = binary.Append(file, binary.LittleEndian, row)
	}
	path := filepath.Join(t.TempDir(), "W.npy")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	layer, err := l2s.Open(path, l2s.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Least = 1000
	l := newTest(t, layer, o)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	for i := range data.Len() {
		l.add(data.Context(i), nil, false) // the training looks for the labels
	}
	for e := range events {
		if e.Kind == failed {
			return
		}
	}
}
