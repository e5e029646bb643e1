package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
)

// ErrHeld is the cause of an error of [Hold] for a file that another run holds.
var ErrHeld = errors.New("found another run that works on it, expected none")

// Hold keeps other processes that call Hold with the same path from it, until release
// is called or the process ends, however it ends. It is for what a run writes in
// several steps, which two runs at once would mix. If another process holds the path
// the error is [ErrHeld]. If the system has no locks nothing is held, and there is no
// error.
//
// The lock is on an empty hidden file beside the destination, whose name ends with
// .lock. A process that is killed leaves it, without the lock: the next Hold takes it,
// and release removes it. A file of this name that is not empty is not removed.
func Hold(path string) (release func(), err error) {
	dest := Destination(path)
	base := filepath.Base(dest)
	if len(base) > longestBase { // which others may begin with, too
		sum := fnv.New64a()
		sum.Write([]byte(base))
		base = fmt.Sprintf("%s-%016x", base[:longestBase], sum.Sum64())
	}
	name := filepath.Join(filepath.Dir(dest), "."+base+".lock")
	for {
		f, err := openLock(name)
		if err != nil {
			return nil, named(path, err)
		}
		removable := func() bool {
			info, err := f.Stat()
			return err == nil && info.Mode().IsRegular() && info.Size() == 0
		}
		switch taken, err := lock(f); {
		case err != nil: // there are no locks here
			if removable() {
				os.Remove(name)
			}
			f.Close()
			return func() {}, nil
		case !taken:
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, ErrHeld)
		case isAt(f, name):
			return func() {
				if removable() && isAt(f, name) {
					os.Remove(name)
				}
				f.Close()
			}, nil
		}
		f.Close() // the run before has removed it meanwhile
	}
}
