package heads

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// draftName is the name of the tensor that lists the labels of a draft head.
const draftName = "d2t"

// ReadIDs reads the labels of a draft head, for [Options.IDs], from a tensor of integers: FILE.npy,
// FILE.npz:name, FILE.safetensors:name or FILE.gguf:name. It is a list of labels; but a tensor d2t
// of a safetensors file holds label minus position, as EAGLE-3 writes it
// (https://github.com/SafeAILab/EAGLE). In a GGUF file d2t has labels (llama.cpp,
// src/models/eagle3.cpp).
func ReadIDs(source string) ([]uint32, error) {
	f, name, _, err := tensorfile.OpenSource(source, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	return readIDs(t, source, name == draftName && f.Format == ".safetensors")
}

// readIDs reads labels, or their offsets.
func readIDs(t *tensorfile.Tensor, source string, offsets bool) ([]uint32, error) {
	if err := t.ExpectShape(-1); err != nil {
		return nil, err
	}
	list, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fail(source, "labels", "found none, expected at least one")
	}
	ids := make([]uint32, len(list))
	for i, x := range list {
		if offsets && x <= math.MaxUint32 && x >= -math.MaxUint32 {
			x += int64(i)
		}
		if x < 0 || x >= math.MaxUint32 {
			return nil, fail(source, "labels", "found label %d at position %d, expected 0 to %d", x, i, uint32(math.MaxUint32)-1)
		}
		ids[i] = uint32(x)
	}
	return ids, nil
}

// ownIDs returns the labels of the rows of a head, if its file makes it a draft, otherwise nil.
func (m *model) ownIDs(rows int) ([]uint32, error) {
	if !m.file.Has(draftName) {
		return nil, nil
	}
	t, err := m.file.Tensor(draftName)
	if err != nil || t.Rows() != rows { // of another tensor's rows
		return nil, err
	}
	source := sourceName(m.path, draftName)
	ids, err := readIDs(t, source, m.offsets)
	if err != nil {
		return nil, err
	}
	return ids, distinct(source, ids, math.MaxUint32)
}

// checkChosen refuses ids that do not choose among rows of which the first n belong to labels.
func (m *model) checkChosen(ids []uint32, rows, n int) error {
	if len(ids) == 0 {
		return m.fail("labels", "found an empty list, expected at least one label")
	}
	if own, err := m.ownIDs(rows); err != nil || own != nil {
		if err == nil {
			err = m.fail("labels", "found a list for a head that is a draft by its own %s, expected one of the two", draftName)
		}
		return err
	}
	return distinct(m.name(), ids, uint32(n))
}

// distinct refuses ids that occur twice, or are not below n.
func distinct(source string, ids []uint32, n uint32) error {
	at := make(map[uint32]int, len(ids))
	for i, id := range ids {
		if id >= n {
			return fail(source, "labels", "found label %d at position %d, expected one below %d", id, i, n)
		}
		if first, twice := at[id]; twice {
			return fail(source, "labels", "found label %d at positions %d and %d, expected it once", id, first, i)
		}
		at[id] = i
	}
	return nil
}
