// Package atomicfile writes files that are either whole or not there.
//
// A file is written under a temporary name in the folder of its destination, synced, and renamed.
// Until Commit the destination keeps its old state, however the program ends.
package atomicfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// File is a file being written. It must end with Commit or Abort.
type File struct {
	tmp  *os.File // closed after the end
	held *os.File // the same file again, which keeps the lock until it is renamed; nil if there are no locks
	path string   // as in errors
	dest string   // the path after its symbolic links
	err  error    // the first failed write
}

// Create starts the file that will be at path. It fails at once if the folder does not exist or
// cannot be written to, or if path is anything but a regular file, so that a program fails before
// long work. A symbolic link is kept, and the file that it leads to is replaced, or made. The file
// gets the permissions of the file that it replaces, or else of any new file.
//
// Temporary files of the same destination that a killed process has left are removed, if the system
// has locks, which show whether a process is alive.
func Create(path string) (*File, error) {
	if path == "" {
		return nil, errors.New("found an empty file name, expected a file to write")
	}
	f := &File{path: path, dest: Destination(path)}
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return nil, named(path, err)
	case old.IsDir():
		return nil, fmt.Errorf("%s: cannot be written: found a folder, expected a file name", path)
	case !old.Mode().IsRegular():
		return nil, fmt.Errorf("%s: cannot be written: found a device or a pipe, expected a regular file", path)
	}
	removeLeft(f.dest)
	if f.tmp, err = createTemp(f.dest); err != nil {
		return nil, named(path, err)
	}
	if f.held, err = again(f.tmp); err == nil && old != nil {
		err = f.tmp.Chmod(old.Mode().Perm())
	}
	if err != nil {
		f.Abort()
		return nil, named(path, err)
	}
	return f, nil
}

// WriteFile writes the output of write, through a buffer, to the file at path, as Create and Commit
// do.
func WriteFile(path string, write func(w io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Commit()
}

// Destination returns the absolute path of the file that path leads to, through symbolic links: the
// one that is replaced or made. It need not exist.
func Destination(path string) string {
	abs, err := filepath.Abs(path)
	if err == nil && !strings.HasSuffix(path, string(filepath.Separator)) { // which means a folder
		path = abs
	}
	const most = 40 // links in a row, as on Linux
	for range most {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		link, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return path
}

// named returns err with the destination's name instead of a temporary one.
func named(path string, err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.Is(err, os.ErrClosed):
		err = errors.New("found it committed or aborted before, expected neither")
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	return fmt.Errorf("%s: cannot be written: %w", path, err)
}

// Write writes to the temporary file.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.tmp.Write(p)
	return n, f.keep(err)
}

// WriteAt writes at an offset of the temporary file.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.tmp.WriteAt(p, off)
	return n, f.keep(err)
}

// keep names the error of a write and keeps the first one for Commit.
func (f *File) keep(err error) error {
	if err != nil {
		err = named(f.path, err)
		f.err = cmp.Or(f.err, err)
	}
	return err
}

// Commit makes the file durable and puts it at its destination, replacing the old file. If it
// fails, as after a failed write, the destination keeps its old state and the temporary file is
// removed; but if only the folder cannot be synced, the new file exists, and the error tells so.
func (f *File) Commit() error {
	if f.err != nil {
		f.Abort()
		return f.err
	}
	err := f.tmp.Sync()
	if errors.Is(err, os.ErrClosed) {
		return named(f.path, err)
	}
	err = cmp.Or(err, closeFile(f.tmp)) // some file systems tell of a failed write only now
	if err == nil {
		err = os.Rename(f.tmp.Name(), f.dest)
	}
	if err != nil {
		os.Remove(f.tmp.Name())
	}
	f.held.Close() // which releases the lock, after the renaming
	if err != nil {
		return named(f.path, err)
	}
	if err := syncDir(filepath.Dir(f.dest)); err != nil {
		return fmt.Errorf("%s: written, but it may not outlive a crash of the system: its folder cannot be synced: %w", f.path, err)
	}
	return nil
}

// closeFile is a variable for a test, since few file systems let it fail.
var closeFile = (*os.File).Close

// Abort removes the temporary file. After Commit it does nothing, so that it
// may be deferred.
func (f *File) Abort() {
	if err := f.tmp.Close(); !errors.Is(err, os.ErrClosed) {
		os.Remove(f.tmp.Name())
		f.held.Close()
	}
}

// syncDir makes a rename durable, if the system can sync a folder; if
// it cannot there is nothing to do in its place.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // a folder that may be written to and not read
	}
	defer d.Close()
	err = d.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
