package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/crc32c"
)

func identity() Identity {
	return Identity{Options: json.RawMessage(`{"seed":1,"clusters":8}`), K: 2, Dim: 3, Labels: 5, Contexts: 7}
}

func open(t testing.TB, path string, id Identity) *Store {
	t.Helper()
	s, err := Open(path, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What was put is there for the same run, and for no other.
func TestEntriesAreThereForTheSameRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.partial")
	s := open(t, path, identity())
	for _, entry := range []struct {
		name   string
		meta   int
		arrays [][]float64
	}{{"a", 1, [][]float64{{1, 2}, {}}}, {"b", 2, [][]float64{{3}}}, {"a", 3, [][]float64{{4}, {5, 6, 7}}}} {
		if err := s.Put(entry.name, entry.meta, entry.arrays...); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, path, identity())
	var meta int
	if a, ok := s.Get("a", &meta, 2); !ok || meta != 3 || !slices.Equal(a[0], []float64{4}) || !slices.Equal(a[1], []float64{5, 6, 7}) {
		t.Errorf("found %v, %v, %v, expected what was put last", a, meta, ok)
	}
	if _, ok := s.Get("c", &meta, 1); ok {
		t.Error("found an entry that was not put")
	}
	if _, ok := s.Get("b", &meta, 2); ok {
		t.Error("found an entry with other arrays")
	}
	for _, c := range []struct {
		change func(id *Identity)
		want   string
	}{
		{func(id *Identity) { id.Options = json.RawMessage(`{"seed":2,"clusters":8}`) }, "seed: found 1, expected 2"},
		{func(id *Identity) { id.Options = json.RawMessage(`{"seed":1}`) }, "clusters: found 8, expected none"},
		{func(id *Identity) { id.K = 3 }, "k: found 2, expected 3"},
		{func(id *Identity) { id.Dim = 4 }, "dim: found 3, expected 4"},
		{func(id *Identity) { id.Fingerprint[0] = 1 }, "fingerprint of the layer"},
		{func(id *Identity) { id.Digest[0] = 1 }, "digest of the contexts"},
		{func(id *Identity) { id.Validation[0] = 1 }, "digest of the validation contexts"},
	} {
		id := identity()
		c.change(&id)
		if _, err := Open(path, id); !errors.Is(err, Err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "another run") {
			t.Errorf("found error %v, expected %q", err, c.want)
		}
	}
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	id := identity()
	id.Options = json.RawMessage(`{}`)
	if _, ok := open(t, path, id).Get("b", &meta, 1); ok { // options play no part without entries
		t.Error("found an entry that was forgotten")
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("found %v, %v, expected nothing", left, err)
	}
}

// Bytes that are no state of the run are refused, those with the right
// checksum too; what is accepted has arrays that the file has.
func FuzzState(f *testing.F) {
	path := filepath.Join(f.TempDir(), "m.partial")
	s := open(f, path, identity())
	for _, name := range []string{"", "a", "b"} {
		if name != "" {
			if err := s.Put(name, struct{}{}, []float64{1, 2, 3}, nil, []float64{4}); err != nil {
				f.Fatal(err)
			}
		} else if err := s.Forget(); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)-8])
		f.Add(data[:headSize])
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		sealed := bytes.Clone(data)
		if len(sealed) >= headSize {
			binary.LittleEndian.PutUint32(sealed[12:], crc32c.Sum(sealed[16:]))
		}
		for _, data := range [][]byte{data, sealed} {
			s := &Store{path: path, id: identity()}
			if err := s.decode(data); err != nil {
				if !strings.HasPrefix(err.Error(), path) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			total := 0
			for _, e := range s.Entries {
				for i, a := range e.arrays {
					if len(a) != e.Lengths[i] {
						t.Fatalf("entry %s: array %d has %d elements, expected %d", e.Name, i, len(a), e.Lengths[i])
					}
					total += 8 * len(a)
				}
			}
			if total > len(data) {
				t.Fatalf("found %d bytes of arrays in %d", total, len(data))
			}
		}
	})
}
