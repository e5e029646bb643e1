package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A process that is killed leaves its temporary file. Whoever writes the same
// destination next removes it. That the process is no more is known by a lock: it is
// held on a temporary file from right behind its creation to its renaming, and the
// system gives it up with the process, on whatever machine that was. A file is
// removed under the lock alone, so that no file of a living process ever is.

// longestBase is how much of a destination's name goes into the name of its temporary
// file: systems allow names of 255 bytes.
const longestBase = 200

// temporaryPrefix is how the names of the temporary files of a destination begin. A
// number follows.
func temporaryPrefix(dest string) string {
	base := filepath.Base(dest)
	return "." + base[:min(len(base), longestBase)] + ".tmp-"
}

// IsTemporary reports whether a file is named like a temporary file of the
// destination path, in whatever folder: one that [Create] removes if no process is
// writing it.
func IsTemporary(name, path string) bool {
	return hasNumber(filepath.Base(name), temporaryPrefix(Destination(path)))
}

func hasNumber(name, prefix string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// createTemp creates a hidden file beside dest, and holds its lock, which is nil
// if there are no locks. Unlike [os.CreateTemp] it leaves the permissions to the
// system, as for any new file.
func createTemp(dest string) (tmp, held *os.File, err error) {
	for range 1000 {
		name := filepath.Join(filepath.Dir(dest), fmt.Sprint(temporaryPrefix(dest), rand.Uint32()))
		tmp, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		// A second descriptor holds the lock until the file is renamed, which is
		// after this one is closed.
		held, err = os.OpenFile(name, os.O_RDWR, 0)
		if err == nil {
			taken, lockErr := lock(held)
			if lockErr != nil { // there are no locks here
				held.Close()
				return tmp, nil, nil
			}
			if taken && isAt(held, name) {
				return tmp, held, nil
			}
			// Another process has taken it for one that was left, and removes it.
			held.Close()
			err = fs.ErrExist
		}
		tmp.Close()
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			os.Remove(name)
			return nil, nil, err
		}
	}
	return nil, nil, err
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

// removeLeft removes the temporary files of dest which no living process is writing.
func removeLeft(dest string) {
	dir, prefix := filepath.Dir(dest), temporaryPrefix(dest)
	folder, err := os.Open(dir)
	if err != nil {
		return // a folder that may be written to and not read
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(256)
		for _, name := range names {
			if hasNumber(name, prefix) {
				removeIfLeft(filepath.Join(dir, name))
			}
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func removeIfLeft(name string) {
	f, err := openLeft(name)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	if taken, err := lock(f); err == nil && taken && isAt(f, name) {
		os.Remove(name)
	}
}
