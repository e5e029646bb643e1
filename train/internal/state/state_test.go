package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/labelfile"
)

func contexts() labelfile.Header {
	return labelfile.Header{K: 2, Count: 7, Total: 7, Labels: 5, Dim: 3}
}

var options = json.RawMessage(`{"seed":1,"clusters":8}`)

func open(t testing.TB, path string, of labelfile.Header, options json.RawMessage) (*Store, bool) {
	t.Helper()
	s, others, err := Open(path, of, options)
	if err != nil {
		t.Fatal(err)
	}
	return s, others
}

// The same run finds the entries again, and no other run does.
func TestEntriesAreThereForTheSameRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.partial")
	s, _ := open(t, path, contexts(), options)
	for _, entry := range []struct {
		name  string
		about int
		v     []float32
	}{{"a", 1, []float32{1, 2}}, {"b", 2, []float32{3}}, {"a", 3, []float32{4, 5, 6}}} {
		if err := s.Put(entry.name, entry.about, entry.v); err != nil {
			t.Fatal(err)
		}
	}
	s, others := open(t, path, contexts(), options)
	about := 0
	if v := s.Get("a", &about, 3); others || about != 3 || !slices.Equal(v, []float32{4, 5, 6}) {
		t.Errorf("found %v, %v, of other options %v, expected the last entry", v, about, others)
	}
	if s.Get("c", &about, 3) != nil {
		t.Error("found an entry that was not put")
	}
	if s.Get("b", &about, 3) != nil {
		t.Error("found an entry of another length")
	}
	for _, change := range []func(h *labelfile.Header){
		func(h *labelfile.Header) { h.K = 3 },
		func(h *labelfile.Header) { h.Dim = 4 },
		func(h *labelfile.Header) { h.Count, h.Total = 8, 8 },
		func(h *labelfile.Header) { h.Fingerprint[0] = 1 },
		func(h *labelfile.Header) { h.Contexts[0] = 1 },
	} {
		of := contexts()
		change(&of)
		if _, _, err := Open(path, of, options); !errors.Is(err, Err) || !strings.Contains(err.Error(), "another run") {
			t.Errorf("%+v: found error %v, expected one about another run", of, err)
		}
	}
	s, others = open(t, path, contexts(), json.RawMessage(`{"seed":2,"clusters":8}`))
	if !others || s.Get("a", &about, 3) != nil {
		t.Error("found an entry of other options")
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("found %v, %v, expected nothing", left, err)
	}
}

// Bytes that are no state of the run are refused, also with the right checksum; an accepted state
// has vectors of the requested length.
func FuzzState(f *testing.F) {
	path := filepath.Join(f.TempDir(), "m.partial")
	s, _ := open(f, path, contexts(), options)
	for _, name := range []string{"a", "b"} {
		if err := s.Put(name, struct{}{}, []float32{1, 2, 3}); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-8])
		f.Add(data[:headSize])
		f.Add(append(bytes.Clone(data[:headSize]), bytes.Replace(data[headSize:], []byte("[1,2,3]"), []byte("[1,2]"), 1)...))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		sealed := bytes.Clone(data)
		if len(sealed) >= headSize {
			binary.LittleEndian.PutUint32(sealed[12:], crc32.Checksum(sealed[headSize:], castagnoli))
		}
		for _, data := range [][]byte{data, sealed} {
			s := &Store{path, content{contexts(), options, map[string]entry{}}}
			others, err := s.decode(data)
			if err != nil {
				if !strings.HasPrefix(err.Error(), path) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			about := struct{}{}
			for name := range s.Entries {
				if v := s.Get(name, &about, 3); others || v != nil && len(v) != 3 {
					t.Fatalf("entry %s: found %v, of other options %v", name, v, others)
				}
			}
		}
	})
}
