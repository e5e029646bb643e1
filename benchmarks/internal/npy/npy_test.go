package npy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
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
