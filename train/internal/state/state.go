// Package state keeps the work of a run in files, so that the run can continue after an interrupt.
package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // of CRC-32C

// labelsOf names the file of labels of a state. The labels are by far the larger part and do not
// change, so they are written once, to a file of their own.
func labelsOf(path string) string { return stage.Files(path)[1] }

// Remove removes the files of a state; it is no error if there are none. Files of another kind with
// these names, and labels without a state, are an error, since no run leaves them; then nothing is
// removed.
func Remove(path string) error {
	if _, err := There(path); err != nil {
		return err
	}
	var errs []error
	for _, file := range []string{labelsOf(path), path} { // the state, by which the labels are known, is the last
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
	labels, err := isKind(labelsOf(path), labelfile.Magic, "the labels of an interrupted run")
	if err == nil && labels && !there {
		err = fmt.Errorf("%s: found labels without the state of a run in %s, expected both or none: move the labels away", labelsOf(path), path)
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

// Err is the cause, for errors.Is, of the error of a run that cannot continue from its state,
// because the state is damaged or belongs to another run.
var Err = errors.New("checkpoint")

// bad makes an error about a fault of a state.
func bad(err error) error { return fmt.Errorf("%w: %w", Err, err) }

// Store keeps the results of a run: vectors with facts about them, by name. A nil Store keeps
// nothing.
type Store struct {
	path string
	content
}

// content is the JSON of a file.
type content struct {
	// Contexts is the header of the labels of the run: it names the layer, the contexts and k.
	// Labels belong to these alone.
	Contexts labelfile.Header `json:"contexts"`
	// Options are the other inputs of the run, an object. Entries belong to these, too.
	Options json.RawMessage  `json:"options"`
	Entries map[string]entry `json:"entries"`
}

type entry struct {
	About   json.RawMessage `json:"about"`
	Vectors []float32       `json:"vectors"`
}

// Open returns the store of a run, nil if path is empty, with the state that an earlier run left. A
// state of other contexts, another layer or another k is an error. From a run with other options
// Open takes the labels alone, and others is true.
func Open(path string, contexts labelfile.Header, options json.RawMessage) (s *Store, others bool, err error) {
	if path == "" {
		return nil, false, nil
	}
	s = &Store{path, content{contexts, options, map[string]entry{}}}
	there, err := There(path)
	if err != nil || !there {
		return s, false, err
	}
	file, err := os.ReadFile(path)
	if err == nil {
		others, err = s.decode(file)
	}
	if err != nil {
		return nil, false, bad(err)
	}
	return s, others, nil
}

// The file is the magic, its version, the CRC-32C of the JSON, as 32-bit little-endian words, and
// the JSON.
const (
	magic    = "l2sstate"
	version  = 4
	headSize = 16
)

// Put keeps vectors, which no longer change, in place of earlier ones of the same name.
func (s *Store) Put(name string, about any, v []float32) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", s.path, err)
	}
	s.Entries[name] = entry{text, v}
	return s.save()
}

// Get returns n vector elements of that name, which must not be changed, or nil if there are none.
func (s *Store) Get(name string, about any, n int) []float32 {
	if s == nil {
		return nil
	}
	e, ok := s.Entries[name]
	if !ok || len(e.Vectors) != n || json.Unmarshal(e.About, about) != nil {
		return nil
	}
	return e.Vectors
}

func (s *Store) save() error {
	text, err := json.Marshal(s.content)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", s.path, err)
	}
	head := binary.LittleEndian.AppendUint32([]byte(magic), version)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	err = atomicfile.WriteFile(s.path, func(w io.Writer) error {
		_, err := w.Write(append(head, text...))
		return err
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// decode takes over the content of a file. It reports whether the file has other options.
func (s *Store) decode(data []byte) (others bool, err error) {
	fail := func(format string, args ...any) (bool, error) {
		return false, fmt.Errorf(s.path+": "+format, args...)
	}
	le := binary.LittleEndian
	switch {
	case len(data) < headSize || string(data[:len(magic)]) != magic:
		return fail("found another kind of file, expected the state of an interrupted run")
	case le.Uint32(data[8:]) != version:
		return fail("version: found %d, expected %d", le.Uint32(data[8:]), version)
	}
	if found, want := crc32.Checksum(data[headSize:], castagnoli), le.Uint32(data[12:]); found != want {
		return fail("checksum: found %08x, expected %08x: the file is damaged", found, want)
	}
	var c content
	if err := json.Unmarshal(data[headSize:], &c); err != nil {
		return fail("%w", err)
	}
	if c.Contexts != s.Contexts {
		return fail("it was left by another run: found other contexts, another layer or another k")
	}
	if !bytes.Equal(c.Options, s.Options) {
		return true, nil
	}
	for name, e := range c.Entries {
		s.Entries[name] = e
	}
	return false, nil
}

// Labels returns the labels that a run before kept, or nil.
func (s *Store) Labels(ctx context.Context) ([]uint32, error) {
	if s == nil {
		return nil, nil
	}
	path := labelsOf(s.path)
	f, err := labelfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, bad(err)
	}
	defer f.Close()
	if f.Header != s.Contexts {
		return nil, bad(fmt.Errorf("%s: found labels of another layer, of other contexts or with another k, expected the labels of this run", path))
	}
	labels, err := f.ReadAll(ctx)
	if err != nil {
		return nil, bad(err)
	}
	return labels, nil
}

// PutLabels keeps the labels. The state, which is kept before them, tells that they belong to a
// run.
func (s *Store) PutLabels(labels []uint32) error {
	if s == nil {
		return nil
	}
	if err := s.save(); err != nil {
		return err
	}
	w, err := labelfile.Create(labelsOf(s.path), s.Contexts)
	if err == nil {
		defer w.Abort()
		if err = w.Write(labels, s.Contexts.Contexts); err == nil {
			err = w.Commit()
		}
	}
	if err != nil {
		if len(s.Entries) == 0 {
			os.Remove(s.path) // there is nothing that it is the state of
		}
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
