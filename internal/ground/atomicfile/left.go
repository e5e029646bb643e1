package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A process that is killed leaves its temporary file. The next process that writes the same
// destination removes it, under a lock, so that no file of a living process is removed: the process
// holds the lock from right after the creation to the renaming, and the system releases it with the
// process, on any machine.

// longestBase is the length of the part of a destination's name in the name of its temporary file:
// systems allow names of 255 bytes.
const longestBase = 200

// temporaryPrefix is how the names of the temporary files of a destination begin. A
// number follows.
func temporaryPrefix(dest string) string {
	base := filepath.Base(dest)
	return "." + base[:min(len(base), longestBase)] + ".tmp-"
}

// IsTemporary reports whether a file is named like a temporary file of the destination path, in any
// folder: one that [Create] removes if no process is writing it.
func IsTemporary(name, path string) bool {
	return hasNumber(filepath.Base(name), temporaryPrefix(Destination(path)))
}

func hasNumber(name, prefix string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// createTemp creates a hidden file next to dest, and takes its lock, if there are locks. Unlike
// [os.CreateTemp] it leaves the permissions to the system, as for any new file.
func createTemp(dest string) (tmp *os.File, err error) {
	for range 1000 {
		name := filepath.Join(filepath.Dir(dest), fmt.Sprint(temporaryPrefix(dest), rand.Uint32()))
		tmp, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			taken, noLocks := lock(tmp)
			if noLocks != nil || taken && isAt(tmp, name) {
				return tmp, nil
			}
			tmp.Close() // another process has taken it for one that was left, and removes it
			err = fs.ErrExist
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, err
}

// isAt reports whether an open file is the one that has this name.
func isAt(f *os.File, name string) bool {
	here, err := os.Lstat(name)
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(here, open)
}

// removeLeft removes the temporary files of dest which no living process is writing. A folder
// that may be written to and not read keeps them.
func removeLeft(dest string) {
	entries, _ := os.ReadDir(filepath.Dir(dest))
	for _, e := range entries {
		if !locks || !e.Type().IsRegular() || !hasNumber(e.Name(), temporaryPrefix(dest)) {
			continue
		}
		name := filepath.Join(filepath.Dir(dest), e.Name())
		f, err := os.OpenFile(name, os.O_RDONLY|asItIs, 0)
		if err != nil {
			continue
		}
		if taken, err := lock(f); err == nil && taken && isAt(f, name) {
			os.Remove(name)
		}
		f.Close()
	}
}

// ErrHeld is the cause of an error of [Hold] for a file that another run holds.
var ErrHeld = errors.New("found another run that works on it, expected none")

// Hold keeps other processes that call Hold with the same path from it, until release is called or
// the process ends in any way. It is for output of several steps, which two runs at once would mix.
// If another process holds the path the error is [ErrHeld]. If the system has no locks nothing is
// held, and there is no error.
//
// The lock is on an empty hidden file next to the destination, whose name ends with .lock. A
// process that is killed leaves it, without the lock: the next Hold takes it, and release removes
// it. A file of this name that is not empty is not removed.
func Hold(path string) (release func(), err error) {
	dest := Destination(path)
	base := filepath.Base(dest)
	if len(base) > longestBase { // which others may begin with, too
		sum := fnv.New64a()
		sum.Write([]byte(base))
		base = fmt.Sprintf("%s-%016x", base[:longestBase], sum.Sum64())
	}
	name := filepath.Join(filepath.Dir(dest), "."+base+".lock")
	if !locks {
		return func() {}, nil
	}
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|asItIs, 0o666)
		if err != nil {
			return nil, named(path, err)
		}
		release := func() {
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == 0 && isAt(f, name) {
				os.Remove(name)
			}
			f.Close()
		}
		switch taken, err := lock(f); {
		case err != nil: // this file system has no locks
			release()
			return func() {}, nil
		case !taken:
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, ErrHeld)
		case isAt(f, name):
			return release, nil
		}
		f.Close() // the previous run has removed it meanwhile
	}
}
