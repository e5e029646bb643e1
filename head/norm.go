package head

// Norm is the last normalisation of a model, whose results are the contexts that the head is applied
// to: Gain*u + Bias for a u whose elements have a mean square of 1, but for the model's epsilon,
// whether it is RMSNorm or LayerNorm. Some models add 1 to Gain (Gemma's RMSNorm in a folder,
// Nemotron's LayerNorm1P).
type Norm struct {
	Gain []float32 // Dim elements, as the file has them; nil if the normalisation is not known
	Bias []float32 // Dim elements, nil for none
}

// Norm returns the last normalisation of the model, if one is beside its head. It tells whether
// contexts were taken behind it. It must not be changed.
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
