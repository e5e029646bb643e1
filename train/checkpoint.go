package train

import (
	"github.com/learning-to-screen/l2s/train/internal/learn"
	"github.com/learning-to-screen/l2s/train/internal/state"
)

// CheckpointFiles returns the names of the files that a run with the option
// Checkpoint set to path may keep: the state of the run, and the labels of
// the contexts.
func CheckpointFiles(path string) []string { return state.Files(path) }

// RemoveCheckpoint removes the files of a checkpoint; if there are none that is
// no error. It is for the time when the screen has been saved. Files of another
// kind with these names, and labels without a state beside them, which no run
// leaves, are an error, and nothing is removed then.
func RemoveCheckpoint(path string) error { return state.Remove(path) }

// CheckCheckpoint returns an error if a file of another kind, or labels without a state
// beside them, have the names of the files of a checkpoint at path, so that no run could
// use it. If there is no checkpoint that is no error.
func CheckCheckpoint(path string) error {
	_, err := state.There(path)
	return err
}

// ErrCheckpoint is what errors.Is finds in the error of a run that cannot
// continue from the checkpoint that is there: it is of another run, or
// damaged. [RemoveCheckpoint] removes it.
var ErrCheckpoint = state.Err

// The entries of a checkpoint.
const (
	entryKMeans = "k-means"
	entryLearn  = "learning"
	entryTail   = "tail"
)

// learnKeeper keeps states of learning vectors of so many elements.
type learnKeeper struct {
	store *state.Store
	size  int
}

func (k learnKeeper) Load() *learn.State {
	s := &learn.State{}
	arrays, ok := k.store.Get(entryLearn, s, 4)
	if !ok {
		return nil
	}
	for i, to := range []*[]float64{&s.V, &s.First, &s.Second, &s.BestV} {
		if *to = arrays[i]; len(*to) != k.size {
			return nil
		}
	}
	return s
}

func (k learnKeeper) Save(s *learn.State) error {
	return k.store.Put(entryLearn, s, s.V, s.First, s.Second, s.BestV)
}

// tailKeeper keeps sums of a tail.
type tailKeeper struct{ store *state.Store }

func (k tailKeeper) Load() []float64 {
	if arrays, ok := k.store.Get(entryTail, &struct{}{}, 1); ok {
		return arrays[0]
	}
	return nil
}

func (k tailKeeper) Save(sums []float64) error { return k.store.Put(entryTail, struct{}{}, sums) }
