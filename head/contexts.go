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
// package's documentation has the promises about mapped files. Others are copied as float32. All are
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

// Norm is the last normalisation of a model, whose results are the contexts that the head is applied
// to: Gain*u + Bias for a u whose elements have a mean square of 1, but for the model's epsilon,
// whether it is RMSNorm or LayerNorm. Some models add 1 to Gain (Gemma's RMSNorm in a folder,
// Nemotron's LayerNorm1P).
type Norm struct {
	Gain []float32 // Dim elements, as the file has them; nil if the normalisation is not known
	Bias []float32 // Dim elements, nil for none
}

// Norm returns the last normalisation of the model, if the head's folder or file has it. It tells whether
// contexts were taken after it. It must not be changed.
func (h *Head) Norm() Norm { return h.norm }

// norm reads the normalisation of contexts of so many elements. A head does not need it: what cannot
// be read is as good as none.
func (m *model) norm(dim int) (n Norm) {
	read := func(name string) (x []float32) {
		if name != "" && m.file.Has(name) {
			if t, err := m.file.Tensor(name); err == nil && t.ExpectShape(dim) == nil {
				x, _ = t.Float32s()
			}
		}
		return x
	}
	for _, name := range m.norms {
		if n.Gain = read(name); n.Gain != nil {
			n.Bias = read(biasOf(name))
			break
		}
	}
	return n
}
