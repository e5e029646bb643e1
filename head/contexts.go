package head

import "github.com/learning-to-screen/l2s/internal/tensorfile"

// Contexts are context vectors in a file.
type Contexts struct {
	rows   []float32
	tensor *tensorfile.Tensor
}

// OpenContexts opens context vectors of dim elements: FILE.npy, FILE.npz:name or
// FILE.safetensors:name, of float16, bfloat16, float32 or float64. They are a matrix with one
// context a row; a vector is one context.
//
// Rows of float32 in C order stay in the file, so that contexts may be larger than memory: the
// package's documentation says what a mapped file promises. Others are copied as float32. All are
// read once here, and an error names the first NaN or infinity.
func OpenContexts(source string, dim int) (*Contexts, error) {
	t, err := tensorfile.OpenTensor(source)
	if err != nil {
		return nil, err
	}
	c := &Contexts{tensor: t}
	if err = t.ExpectContexts(dim); err == nil {
		c.rows, err = t.Mapped()
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return c, nil
}

// Rows returns all contexts, row by row: context i is Rows()[i*dim : (i+1)*dim]. They must
// not be changed, and are valid until Close.
func (c *Contexts) Rows() []float32 { return c.rows }

// Close releases the file.
func (c *Contexts) Close() error { return c.tensor.Close() }
