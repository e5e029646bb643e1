package layers

import (
	"fmt"
	"io"
	"os"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// HashFile adds the content of a file, and its length, to a hash.
func HashFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, f)
	fmt.Fprintf(w, "%d\n", n)
	return err
}

// ReadRows reads a matrix of dim columns. The rows may be the file's memory,
// until release is called.
func ReadRows(src string, dim int) (rows []float32, release func(), err error) {
	t, err := tensorfile.OpenTensor(src)
	if err != nil {
		return nil, nil, err
	}
	if err = t.ExpectContexts(dim); err == nil {
		rows, err = t.Float32s()
	}
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	return rows, func() { t.Close() }, nil
}
