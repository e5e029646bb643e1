package heads

import "github.com/learning-to-screen/l2s/internal/files/tensorfile"

// OpenContexts is l2s.OpenContexts.
func OpenContexts(source string, dim int) (rows []float32, release func() error, err error) {
	t, err := tensorfile.OpenTensor(source)
	if err != nil {
		return nil, nil, err
	}
	if err = t.ExpectContexts(dim); err == nil {
		rows, err = t.Mapped()
	}
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	return rows, t.Close, nil
}

// norm is the last normalisation of a model.
type norm struct {
	gain []float32 // nil if it is not known
	bias []float32 // nil for none
}

// Norm returns the last normalisation of the model, if the head's folder or file has it. Its
// results are the contexts that the head is applied to: gain*u + bias for a u whose elements have a
// mean square of 1, except for the model's epsilon, for RMSNorm and LayerNorm. Some models add 1 to
// gain (Gemma's RMSNorm in a folder, Nemotron's LayerNorm1P). Gain and bias have Dim elements, as
// the file has them; gain is nil if the normalisation is not known, and bias nil for none. They
// tell whether contexts were taken after it, and must not be changed.
func (h *Head) Norm() (gain, bias []float32) { return h.norm.gain, h.norm.bias }

// norm reads the normalisation of contexts of dim elements. A head does not need it: a
// normalisation that cannot be read counts as none.
func (m *model) norm(dim int) (n norm) {
	read := func(name string) (x []float32) {
		if name != "" && m.file.Has(name) {
			if t, err := m.file.Tensor(name); err == nil && t.ExpectShape(dim) == nil {
				x, _ = t.Float32s()
			}
		}
		return x
	}
	for _, name := range m.norms {
		if n.gain = read(name); n.gain != nil {
			n.bias = read(biasOf(name))
			break
		}
	}
	return n
}
