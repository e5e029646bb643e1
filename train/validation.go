package train

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"unsafe"

	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// unseen is the view of the validation contexts, with labels, without those that are equal to
// one of training.
func (t *trainer) unseen(ctx context.Context) (_ *corpus.Corpus, err error) {
	c := t.validation
	c.K, c.Seed, c.Report = t.K, t.Seed, t.Report
	ids := t.unmet(c)
	if t.record.LeftOut = c.N - len(ids); t.record.LeftOut > 0 {
		t.Report.Message(fmt.Sprintf("validation: %d of %d contexts are among those of training and left out", t.record.LeftOut, c.N))
	}
	c.Best, err = topLabels(ctx, c, t.layer)
	return c.Part(ids), err
}

// unmet are the contexts of c that are equal to none of training.
func (t *trainer) unmet(c *corpus.Corpus) []uint32 {
	bytesOf := func(row []float32) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row))
	}
	seed := maphash.MakeSeed() // of what is compared in the end, it plays no part
	rows := map[uint64][]uint32{}
	own, others := t.Buffer(), c.Buffer()
	for i := range uint32(c.N) {
		h := maphash.Bytes(seed, bytesOf(c.Row(i, others)))
		rows[h] = append(rows[h], i)
	}
	met := make([]bool, c.N)
	for j := range uint32(t.N) {
		row := bytesOf(t.Row(j, own))
		for _, i := range rows[maphash.Bytes(seed, row)] {
			met[i] = met[i] || bytes.Equal(bytesOf(c.Row(i, others)), row)
		}
	}
	var ids []uint32
	for i, met := range met {
		if !met {
			ids = append(ids, uint32(i))
		}
	}
	return ids
}
