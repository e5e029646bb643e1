package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// batchRows is the number of rows that a block of the batch kernels takes: a
// 128-bit lane holds one float32 of each, for one context.
const batchRows = 4

// batch generates the intervals of rows for one context per 128-bit lane of a vector: each record
// is loaded once for all of them.
func batch(l emit.Level, gather bool) {
	contexts := l.Bytes / 16
	contract := fmt.Sprintf("Context c's intervals are at lower[c*ld] and upper[c*ld]. contexts is at most %d; b is filled up for that number. n is at least 4, stride a multiple of 64, or 16 more. b is a %s.", contexts, layout.BatchBound)
	if gather {
		l.Function("Int8GatherBoundsBatch", "func(lower, upper *float32, ld, contexts int, data *byte, stride int, ids *uint32, n int, b *byte)",
			"computes the intervals of the rows ids. "+contract)
	} else {
		l.Function("Int8BoundsBatch", "func(lower, upper *float32, ld, contexts int, data *byte, stride int, n int, b *byte)",
			"computes the intervals of n rows. "+contract)
	}
	i := GP64()
	XORQ(i, i)
	row := GP64()
	if !gather {
		Load(Param("data"), row)
	}
	acc := l.Vecs(contexts * batchRows)
	code := newProduct(l, contexts)

	Label("block")
	if gather {
		prefetch(0, batchRows, nextBlock(batchRows, i))
	}
	p := addresses(gather, 0, batchRows, i, row)
	emit.Zero(acc...)
	stride := Load(Param("stride"), GP64())
	b := Load(Param("b"), GP64())
	h := make([]reg.GPVirtual, contexts)
	for c := range h {
		h[c] = GP64()
		MOVQ(Mem{Base: b, Disp: layout.BatchBound.At("codes") + 8*c}, h[c])
		ADDQ(stride, h[c])
	}
	off := GP64()
	MOVQ(stride, off)
	NEGQ(off)
	Label("products")
	for at := 0; at < chunk; at += l.Bytes {
		for c := range h {
			code.setVector(c, emit.Ptr(h[c], off, at))
		}
		for k := range p {
			sums := make([]reg.VecVirtual, contexts)
			for c := range sums {
				sums[c] = acc[c*batchRows+k]
			}
			code.add(emit.Ptr(p[k], off, at), sums...)
		}
	}
	ADDQ(I32(chunk), off)
	CMPQ(off, I32(-metaBytes))
	JLT(LabelRef("products"))

	d := transposeSum(l, acc)
	meta := l.Vecs(4)
	for k := range p {
		// The floats of one row in every lane; transposed, the floats of the
		// four rows in every lane.
		m := Mem{Base: p[k], Disp: -metaBytes}
		if l.Bytes == 64 {
			VBROADCASTF32X4(m, meta[k])
		} else {
			VBROADCASTF128(m, meta[k])
		}
	}
	transpose(l, meta)
	VPSUBD(Mem{Base: b, Disp: layout.BatchBound.At("excess")}, d, d)
	lo, up := interval(d, meta, func(field string) Op {
		m := Mem{Base: b, Disp: layout.BatchBound.At(field)}
		if field == "slack" { // is one number
			c := l.Vec()
			VBROADCASTSS(m, c)
			return c
		}
		return m
	})

	ld := Load(Param("ld"), GP64())
	given := Load(Param("contexts"), GP64())
	for _, out := range []struct {
		name string
		v    reg.VecVirtual
	}{{"lower", lo}, {"upper", up}} {
		dst := Load(Param(out.name), GP64())
		LEAQ(Mem{Base: dst, Index: i, Scale: 4}, dst)
		for c := range contexts {
			if c > 0 {
				CMPQ(given, I32(c))
				JLE(LabelRef(out.name + "_stored"))
			}
			m := Mem{Base: dst}
			switch {
			case c == 0:
				VMOVUPS(out.v.AsX(), m)
			case l.Bytes == 64:
				VEXTRACTF32X4(U8(c), out.v, m)
			default:
				VEXTRACTF128(U8(c), out.v, m)
			}
			if c < contexts-1 {
				LEAQ(Mem{Base: dst, Index: ld, Scale: 4}, dst)
			}
		}
		Label(out.name + "_stored")
	}
	advance(batchRows, i, row, gather)
	emit.End()
}
