package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/learning-to-screen/l2s/internal/labelfile"
)

// Labels returns the labels that a run before kept, or nil.
func (s *Store) Labels(ctx context.Context) ([]uint32, error) {
	if s == nil {
		return nil, nil
	}
	path := s.path + labelsSuffix
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

// PutLabels keeps the labels. The state that is kept before them says that they
// belong to a run.
func (s *Store) PutLabels(labels []uint32) error {
	if s == nil {
		return nil
	}
	if err := s.save(); err != nil {
		return err
	}
	w, err := labelfile.Create(s.path+labelsSuffix, s.Contexts)
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
