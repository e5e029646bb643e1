package npy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

func read(t interface{ Fatal(...any) }, path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Rows written in any portions make the file that WriteNPY of package tensorfile makes at once.
func TestRowsInPortions(t *testing.T) {
	dir := t.TempDir()
	path, whole := filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy")
	rapid.Check(t, func(r *rapid.T) {
		cols := rapid.IntRange(1, 7).Draw(r, "cols")
		w, err := Create(path, cols)
		if err != nil {
			r.Fatal(err)
		}
		defer w.Abort()
		data, rows := []float32{}, 0
		for _, n := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(0, 40000)), 0, 4).Draw(r, "portions") {
			part := make([]float32, n*cols)
			for i := range part {
				part[i] = float32(len(data) + i)
			}
			if err := w.WriteRows(part); err != nil {
				r.Fatal(err)
			}
			data = append(data, part...)
			if rows += n; w.Rows() != rows {
				r.Fatalf("found %d rows, expected %d", w.Rows(), rows)
			}
		}
		if err := w.Commit(); err != nil {
			r.Fatal(err)
		}
		w.Abort()
		if err := tensorfile.WriteNPY(whole, data, rows, cols); err != nil {
			r.Fatal(err)
		}
		if !bytes.Equal(read(r, path), read(r, whole)) {
			r.Errorf("%d x %d: found other bytes than at once", rows, cols)
		}
	})
}

// The old file is there until Commit, in every case.
func TestTheOldFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	if err := tensorfile.WriteNPY(path, []float32{7, -1}, 2); err != nil {
		t.Fatal(err)
	}
	old := read(t, path)
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != path+": "+want {
			t.Errorf("found %v, expected %s", err, want)
		}
		if !bytes.Equal(read(t, path), old) {
			t.Errorf("%s: found another file, expected the old one", want)
		}
	}
	w, err := Create(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteRows(make([]float32, 300000)); err != nil {
		t.Fatal(err)
	}
	refused(w.WriteRows(make([]float32, 4)), "rows: found 4 elements, expected rows of 3")
	w.Abort()
	refused(w.WriteRows(make([]float32, 3)), "rows: found some after Commit or Abort, expected none")
	if err := w.Commit(); err == nil {
		t.Error("found no error of Commit after Abort, expected one")
	}
	for _, cols := range []int{0, -3} {
		if _, err := Create(path, cols); err == nil || !strings.Contains(err.Error(), "columns: found ") {
			t.Errorf("%d columns: found %v, expected an error", cols, err)
		}
	}
	if !bytes.Equal(read(t, path), old) {
		t.Error("found another file after all, expected the old one")
	}
}

// Rows are written once, and again if a file that they depend on, or the key, is another one.
func TestRowsAreKept(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	content, key, calls := "one", "key", 0
	ask := func() []float32 {
		t.Helper()
		if err := os.WriteFile(source, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		rows, release, err := Kept(filepath.Join(dir, "new"), "x", key, []string{source}, 2, func(w *Writer) error {
			calls++
			return w.WriteRows([]float32{float32(calls), 7})
		})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		return slices.Clone(rows)
	}
	for i, c := range []struct {
		content, key string
		want         float32
	}{{"one", "key", 1}, {"one", "key", 1}, {"two", "key", 2}, {"two", "other", 3}, {"one", "key", 1}} {
		content, key = c.content, c.key
		if got := ask(); !slices.Equal(got, []float32{c.want, 7}) {
			t.Errorf("call %d: found %v, expected the rows of call %v of write", i, got, c.want)
		}
	}
	broken := errors.New("broken")
	if _, _, err := Kept(dir, "y", "", nil, 2, func(*Writer) error { return broken }); err != broken {
		t.Errorf("found %v, expected the error of write", err)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "y*")); found != nil {
		t.Errorf("found %v after an error, expected no file", found)
	}
}
