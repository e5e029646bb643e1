package train

import "github.com/learning-to-screen/l2s/train/internal/state"

// CheckpointFiles returns the names of the files that a run with the option
// Checkpoint set to path may keep: the state of the run, and the labels of
// the contexts.
func CheckpointFiles(path string) []string { return state.Files(path) }

// RemoveCheckpoint removes the files of a checkpoint; if there are none that is
// no error. It is for the time when the screen has been saved. Files of another
// kind with these names, and labels without a state beside them, which no run
// leaves, are an error, and nothing is removed then.
func RemoveCheckpoint(path string) error { return state.Remove(path) }

// ErrCheckpoint is what errors.Is finds in the error of a run that cannot
// continue from the checkpoint that is there: it is of another run, or
// damaged. [RemoveCheckpoint] removes it.
var ErrCheckpoint = state.Err
