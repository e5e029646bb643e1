package train

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/crc32c"
)

// Bytes that are no checkpoint of the run are refused, those with the right
// checksum too; what is accepted has the arrays of the run.
func FuzzCheckpoint(f *testing.F) {
	c := &checkpoint{path: filepath.Join(f.TempDir(), "m.partial"), identity: identity{Dim: 3, Labels: 5, Contexts: 7}}
	c.Options.Clusters = 2
	for _, iteration := range []int{beforeKMeans, 0, 3} {
		s := &state{Iteration: iteration}
		s.identity = c.identity
		arrays, lengths := s.arrays()
		for i, a := range arrays {
			*a = make([]float64, lengths[i])
		}
		if err := c.save(s); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(c.path)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := c.decode(data); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-8])
		f.Add(data[:checkpointHead])
	}
	f.Add([]byte(checkpointMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		sealed := bytes.Clone(data)
		if len(sealed) >= checkpointHead {
			binary.LittleEndian.PutUint32(sealed[12:], crc32c.Sum(sealed[16:]))
		}
		for _, data := range [][]byte{data, sealed} {
			s, err := c.decode(data)
			if err != nil {
				if s != nil || !strings.HasPrefix(err.Error(), c.path) {
					t.Fatalf("state %v with error %v", s, err)
				}
				continue
			}
			arrays, lengths := s.arrays()
			for i, a := range arrays {
				if len(*a) != lengths[i] || len(*a) > len(data)/8 {
					t.Fatalf("array %d has %d elements, want %d from %d bytes", i, len(*a), lengths[i], len(data))
				}
			}
		}
	})
}
