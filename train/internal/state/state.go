// Package state keeps what a run has done in files, so that it can go on after an
// interrupt.
package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/labelfile"
)

// labelsSuffix makes the name of the file of labels from the name of the
// state. The labels are by far the larger part and do not change, so they
// are written once, to a file of their own.
const labelsSuffix = "-labels"

// Files returns the names of the files that a run may keep: its state, and the labels
// of the contexts.
func Files(path string) []string { return []string{path, path + labelsSuffix} }

// Remove removes the files of a state; if there are none that is no error. Files of another
// kind with these names, and labels without a state beside them, which no run leaves, are an
// error, and nothing is removed then.
func Remove(path string) error {
	if _, err := There(path); err != nil {
		return err
	}
	var errs []error
	for _, file := range []string{path + labelsSuffix, path} { // the state, by which the labels are known, is the last
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// There reports whether there is a state, damaged or not. It is an error if the files with
// its names do not come from a run.
func There(path string) (bool, error) {
	there, err := isKind(path, magic, "the state of an interrupted run")
	if err != nil {
		return false, err
	}
	labels, err := isKind(path+labelsSuffix, labelfile.Magic, "the labels of an interrupted run")
	if err == nil && labels && !there {
		err = fmt.Errorf("%s: found labels without the state of a run in %s, expected both or none: move the labels away", path+labelsSuffix, path)
	}
	return there, err
}

// isKind reports whether there is a file at path, which must begin with magic.
func isKind(path, magic, what string) (bool, error) {
	info, err := os.Stat(path) // before it is opened, since that would wait for the other end of a pipe
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	start := make([]byte, len(magic))
	if info.Mode().IsRegular() {
		file, err := os.Open(path)
		if err != nil {
			return false, err
		}
		defer file.Close()
		if _, err := io.ReadFull(file, start); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return false, err
		}
	}
	if string(start) != magic {
		return false, fmt.Errorf("%s: found another kind of file, expected %s: move it away", path, what)
	}
	return true, nil
}

// Err is what errors.Is finds in the error of a run that cannot go on from the state that is
// there: it is of another run, or damaged.
var Err = errors.New("checkpoint")

// bad makes an error about what is wrong with a state.
func bad(err error) error { return fmt.Errorf("%w: %w", Err, err) }

// Identity is what a run depends on. Runs of equal identity give equal
// screens, so that one may continue the other.
type Identity struct {
	Options     json.RawMessage  `json:"options"` // an object
	K           int              `json:"k"`
	Dim         int              `json:"dim"`
	Labels      int              `json:"labels"`
	Contexts    int              `json:"contexts"`
	Fingerprint [32]byte         `json:"fingerprint"` // of the layer
	Digest      labelfile.Digest `json:"digest"`      // of the contexts
	// Validation is the digest of other contexts to measure on; zero for none.
	Validation labelfile.Digest `json:"validation"`
}

// Store keeps what a run has done: entries by name. A nil one keeps nothing.
type Store struct {
	path string
	id   Identity
	head
}

// head is the JSON of a file.
type head struct {
	Identity Identity `json:"identity"`
	Entries  []entry  `json:"entries"`
}

type entry struct {
	Name    string          `json:"name"`
	Meta    json.RawMessage `json:"meta"`
	Lengths []int           `json:"lengths"`
	arrays  [][]float64
}

// Open returns the store of a run, nil if path is empty, with what a run before left in
// it. It is an error if what is there belongs to another run. Labels do not depend on the
// options, but for k.
func Open(path string, id Identity) (*Store, error) {
	if path == "" {
		return nil, nil
	}
	s := &Store{path: path, id: id}
	there, err := There(path)
	if err != nil || !there {
		return s, err
	}
	file, err := os.ReadFile(path)
	if err == nil {
		err = s.decode(file)
	}
	if err != nil {
		return nil, bad(err)
	}
	return s, nil
}

// The file is the magic, its version, the CRC-32C of all that follows, the
// length of the JSON, as 32-bit little-endian words, the JSON, and the arrays
// as float64.
const (
	magic    = "l2sstate"
	version  = 2
	headSize = 20
)

// Put keeps an entry instead of one of the same name.
func (s *Store) Put(name string, meta any, arrays ...[]float64) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", s.path, err)
	}
	e := entry{Name: name, Meta: text, arrays: arrays}
	for _, a := range arrays {
		e.Lengths = append(e.Lengths, len(a))
	}
	s.Entries = append(slices.DeleteFunc(s.Entries, func(e entry) bool { return e.Name == name }), e)
	return s.save()
}

// Get returns an entry, of so many arrays, and reports false if there is none.
func (s *Store) Get(name string, meta any, arrays int) ([][]float64, bool) {
	if s == nil {
		return nil, false
	}
	i := slices.IndexFunc(s.Entries, func(e entry) bool { return e.Name == name })
	if i < 0 || len(s.Entries[i].arrays) != arrays || json.Unmarshal(s.Entries[i].Meta, meta) != nil {
		return nil, false
	}
	return s.Entries[i].arrays, true
}

// Forget keeps nothing of the run but its labels.
func (s *Store) Forget() error {
	if s == nil {
		return nil
	}
	s.Entries = nil
	return s.save()
}

func (s *Store) save() error {
	s.Identity = s.id
	text, err := json.Marshal(s.head)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", s.path, err)
	}
	le := binary.LittleEndian
	data := append([]byte(magic), make([]byte, headSize-len(magic))...)
	le.PutUint32(data[8:], version)
	le.PutUint32(data[16:], uint32(len(text)))
	data = append(data, text...)
	for _, e := range s.Entries {
		for _, a := range e.arrays {
			for _, x := range a {
				data = le.AppendUint64(data, math.Float64bits(x))
			}
		}
	}
	le.PutUint32(data[12:], crc32c.Sum(data[16:]))
	file, err := atomicfile.Create(s.path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Abort()
	if _, err := file.Write(data); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := file.Commit(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// decode takes over what a file has.
func (s *Store) decode(data []byte) error {
	le := binary.LittleEndian
	switch {
	case len(data) < headSize || string(data[:len(magic)]) != magic:
		return fmt.Errorf("%s: found another kind of file, expected the state of an interrupted run", s.path)
	case le.Uint32(data[8:]) != version:
		return fmt.Errorf("%s: version: found %d, expected %d", s.path, le.Uint32(data[8:]), version)
	}
	if found, want := crc32c.Sum(data[16:]), le.Uint32(data[12:]); found != want {
		return fmt.Errorf("%s: checksum: found %08x, expected %08x: the file is damaged", s.path, found, want)
	}
	rest, size := data[headSize:], uint64(le.Uint32(data[16:]))
	if size > uint64(len(rest)) {
		return fmt.Errorf("%s: file size: found %d, expected more", s.path, len(data))
	}
	var h head
	if err := json.Unmarshal(rest[:size], &h); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	if err := s.check(&h); err != nil {
		return fmt.Errorf("%s: %w: it was left by another run", s.path, err)
	}
	rest = rest[size:]
	for i := range h.Entries {
		for _, n := range h.Entries[i].Lengths {
			if n < 0 || n > len(rest)/8 {
				return fmt.Errorf("%s: arrays: found %d bytes, expected %d numbers", s.path, len(rest), n)
			}
			a := make([]float64, n)
			for j := range a {
				a[j] = math.Float64frombits(le.Uint64(rest[8*j:]))
			}
			h.Entries[i].arrays, rest = append(h.Entries[i].arrays, a), rest[8*n:]
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%s: arrays: found %d bytes more than expected", s.path, len(rest))
	}
	s.head = h
	return nil
}

// check returns an error that names what in the identity found differs from the
// identity of this run.
func (s *Store) check(h *head) error {
	found, want := &h.Identity, &s.id
	for _, field := range []struct {
		name        string
		found, want int
	}{{"dim", found.Dim, want.Dim}, {"labels", found.Labels, want.Labels}, {"contexts", found.Contexts, want.Contexts}, {"k", found.K, want.K}} {
		if field.found != field.want {
			return fmt.Errorf("%s: found %d, expected %d", field.name, field.found, field.want)
		}
	}
	if found.Fingerprint != want.Fingerprint {
		return fmt.Errorf("fingerprint of the layer: found %x..., expected %x...", found.Fingerprint[:8], want.Fingerprint[:8])
	}
	if found.Digest != want.Digest {
		return fmt.Errorf("digest of the contexts: found %x..., expected %x...", found.Digest[:8], want.Digest[:8])
	}
	if len(h.Entries) == 0 {
		return nil // the labels are all that there is of the run
	}
	if found.Validation != want.Validation {
		return fmt.Errorf("digest of the validation contexts: found %x..., expected %x...", found.Validation[:8], want.Validation[:8])
	}
	return compareOptions(found.Options, want.Options)
}

// compareOptions returns an error that names the first option that differs, in the
// order of the alphabet.
func compareOptions(found, want json.RawMessage) error {
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(found, &a); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	all := maps.Clone(b)
	maps.Copy(all, a)
	orNone := func(x json.RawMessage) string {
		if x == nil {
			return "none"
		}
		return string(x)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if x, y := a[name], b[name]; !bytes.Equal(x, y) {
			return fmt.Errorf("%s: found %s, expected %s", name, orNone(x), orNone(y))
		}
	}
	return nil
}
