// Package npy writes .npy files that are larger than memory, and keeps them.
package npy

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

func fail(path, field, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", path, field, fmt.Errorf(format, args...))
}

// Writer writes a float32 matrix row by row, so that it need not be held in
// memory. It must end with Commit or Abort. One goroutine may use it.
type Writer struct {
	file *atomicfile.File
	buf  *bufio.Writer
	path string
	cols int
	rows int
	done bool // after Commit or Abort
}

// Create starts a matrix of cols columns. It fails at once if path
// cannot be written to; nothing is at path before Commit.
func Create(path string, cols int) (*Writer, error) {
	if cols < 1 || cols > math.MaxInt/4 {
		return nil, fail(path, "columns", "found %d, expected 1 to %d", cols, math.MaxInt/4)
	}
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<18), path: path, cols: cols}
	if _, err := w.buf.Write(tensorfile.NPYHeader("f4", 0, cols)); err != nil {
		file.Abort()
		return nil, err
	}
	return w, nil
}

// WriteRows appends rows, one after the other in a slice whose length is a
// multiple of the number of columns.
func (w *Writer) WriteRows(rows []float32) error {
	if w.done {
		return fail(w.path, "rows", "found some after Commit or Abort, expected none")
	}
	if len(rows)%w.cols != 0 {
		return fail(w.path, "rows", "found %d elements, expected rows of %d", len(rows), w.cols)
	}
	n := len(rows) / w.cols
	if w.rows+n > math.MaxInt/4/w.cols {
		return fail(w.path, "rows", "found %d, expected at most %d", w.rows+n, math.MaxInt/4/w.cols)
	}
	if err := binary.Write(w.buf, binary.LittleEndian, rows); err != nil {
		return err
	}
	w.rows += n
	return nil
}

// Rows returns the number of rows written so far.
func (w *Writer) Rows() int { return w.rows }

// Commit completes the file and puts it at its path. If it fails, or a
// call of WriteRows has, the path is as it was before.
func (w *Writer) Commit() error {
	defer w.Abort()
	err := w.buf.Flush()
	if err == nil {
		_, err = w.file.WriteAt(tensorfile.NPYHeader("f4", w.rows, w.cols), 0)
	}
	if err == nil {
		err = w.file.Commit()
	}
	return err
}

// Abort gives the file up. After Commit it does nothing, so that it may be deferred.
func (w *Writer) Abort() {
	w.done = true
	w.file.Abort()
}

// Kept returns the rows that write writes, of cols columns, and a function that ends their use. The
// folder keeps them in a file for the next call: its name has a hash of key and of the contents of
// files, all that the rows depend on.
func Kept(folder, name, key string, files []string, cols int, write func(w *Writer) error) (rows []float32, release func() error, err error) {
	path, err := Path(folder, name, ".npy", key, files)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(path); err == nil {
		return heads.OpenContexts(path, cols)
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, nil, err
	}
	w, err := Create(path, cols)
	if err != nil {
		return nil, nil, err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return nil, nil, err
	}
	if err := w.Commit(); err != nil {
		return nil, nil, err
	}
	return heads.OpenContexts(path, cols)
}

// Path returns the path of a file in a folder whose name has a hash of key and of the contents of files.
func Path(folder, name, end, key string, files []string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, key)
	for _, path := range files {
		if err := hashFile(hash, path); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, fmt.Sprintf("%s-%x%s", name, hash.Sum(nil)[:8], end)), nil
}

// hashFile adds the content of a file, and its length, to a hash.
func hashFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, f)
	fmt.Fprintf(w, "%d\n", n)
	return err
}
