package main

import (
	"fmt"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
)

// plain is llama.cpp with its own head, over the same model.
type plain struct {
	ctx    llama.Context
	batch  llama.Batch
	memory llama.Memory
	labels int
	length int
	seq    [1]llama.SeqId
	pool   *threadpool.Pool
}

func newPlain(m *llamacpp.Model, size, batch, threads int) (*plain, error) {
	p := llama.ContextDefaultParams()
	p.NCtx, p.NBatch, p.NUbatch, p.NOutputsMax, p.NSeqMax = uint32(size), uint32(batch), uint32(batch), uint32(min(batch, 32)), 1
	p.NThreads, p.NThreadsBatch = int32(threads), int32(threads)
	p.OpOffload, p.Offload_kqv, p.KVUnified, p.NoPerf = 0, 0, 1, 1
	ctx, err := llama.InitFromModel(m.Llama(), p)
	if err != nil {
		return nil, fmt.Errorf("llama.cpp made no context: %w", err)
	}
	memory, err := llama.GetMemory(ctx)
	if err != nil {
		llama.Free(ctx)
		return nil, err
	}
	x := &plain{ctx: ctx, batch: llama.BatchInit(int32(batch), 0, 1), memory: memory, labels: m.Labels()}
	if x.pool, err = threadpool.New(); err == nil {
		err = x.pool.Set(ctx, threads) // which llama.cpp's own programs have too
	}
	if err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (p *plain) close() {
	llama.BatchFree(p.batch)
	llama.Free(p.ctx)
	if p.pool != nil {
		p.pool.Close()
	}
}

func (p *plain) setThreads(n int) error {
	llama.SetNThreads(p.ctx, int32(n), int32(n))
	return p.pool.Set(p.ctx, n)
}

func (p *plain) cut(n int) {
	llama.MemorySeqRm(p.memory, 0, llama.Pos(n), -1)
	p.length = n
}

// feed adds tokens; the last outputs of them have logits.
func (p *plain) feed(outputs int, ids ...uint32) error {
	p.batch.Clear()
	for i, id := range ids {
		if err := p.batch.Add(llama.Token(id), llama.Pos(p.length+i), p.seq[:], i >= len(ids)-outputs); err != nil {
			return err
		}
	}
	if status, err := llama.Decode(p.ctx, p.batch); err != nil || status != 0 {
		return fmt.Errorf("llama.cpp did not decode the batch: status %d, %v", status, err)
	}
	p.length += len(ids)
	return nil
}

// logits returns the logits after token i of the last feed, -1 for the last.
func (p *plain) logits(i int) ([]float32, error) {
	return llama.GetLogitsIth(p.ctx, int32(i), p.labels)
}
