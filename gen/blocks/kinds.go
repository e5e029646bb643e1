package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layouts of the types are in internal/codes/kernels/quantised.go. On AVX-512 two groups go side by
// side, the second in the upper half.

// begin loads the values that stay in registers.
func (f *fn) begin() {
	if !f.wide() {
		if f.contexts == 1 && f.weights == 256 {
			f.held = map[string]reg.VecVirtual{}
			for _, m := range f.constants() {
				v := YMM()
				VMOVDQU(m, v)
				f.held[m.Symbol.Name] = v
			}
		}
		return
	}
	mask := func(bits uint32) reg.Register {
		r, k := GP32(), K()
		MOVL(U32(bits), r)
		KMOVW(r, k)
		return k
	}
	f.odd = ZMM()
	VMOVDQU64(oddBytes(), f.odd)
	if bits, ok := map[string]byte{"Q40": 0xf0, "Q50": 0x78, "Q6K": 0xc0}[f.suffix]; ok {
		f.mask = ZMM()
		VMOVDQU64(each(bits), f.mask)
	}
	if f.weights == 32 && !f.mins {
		f.spread = f.l.Vecs(2)
		for half, v := range f.spread {
			VMOVDQU64(lanes(2*half, 8), v)
		}
	}
	f.upper, f.lower = mask(0xff00), mask(0x00ff)
}

// constants returns the constants that the loop over large blocks reads most.
func (f *fn) constants() []Mem {
	switch f.suffix {
	case "Q6K":
		return []Mem{oddBytes(), each(0x3c), each(0xc0)}
	case "Q5K":
		return []Mem{oddBytes(), each(0x0f), each(0x10)}
	}
	return []Mem{oddBytes(), each(0x0f)}
}

// hold returns the register of a constant if it has one, and its memory otherwise.
func (f *fn) hold(m Mem) Op {
	if v, ok := f.held[m.Symbol.Name]; ok {
		return v
	}
	return m
}

// data are the constants that are defined, by their names.
var data = map[string]Mem{}

// constant returns the memory of 64 bytes, given by their place.
func constant(name string, at func(i int) byte) Mem {
	m, ok := data[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i := 0; i < 64; i += 8 {
			var x uint64
			for k := range 8 {
				x |= uint64(at(i+k)) << (8 * k)
			}
			DATA(i, U64(x))
		}
		data[name] = m
	}
	return m
}

// each returns a constant with the same byte everywhere.
func each(x byte) Mem { return constant(fmt.Sprintf("bytes%d", x), func(int) byte { return x }) }

// halves returns a constant with one word in the lower part and another in the upper part of each
// group of bytes.
func halves(bytes int, low, high byte) Mem {
	return constant(fmt.Sprintf("halves%d_%d_%d", bytes, low, high), func(i int) byte {
		x := low
		if i%bytes >= bytes/2 {
			x = high
		}
		if i%2 == 1 {
			return 0
		}
		return x
	})
}

// oddBytes returns a constant with all bits of each odd byte.
func oddBytes() Mem { return constant("odd", func(i int) byte { return byte(i%2) * 0xff }) }

// dwordHalves is halves for 32 bits.
func dwordHalves(bytes int, low, high byte) Mem {
	return constant(fmt.Sprintf("dwords%d_%d_%d", bytes, low, high), func(i int) byte {
		if i%4 != 0 {
			return 0
		}
		if i%bytes >= bytes/2 {
			return high
		}
		return low
	})
}

// lanes returns a constant with the numbers of lanes, each of them each times, from first on.
func lanes(first, each int) Mem {
	return constant(fmt.Sprintf("lanes%d_%d", first, each), func(i int) byte {
		if i%4 != 0 {
			return 0
		}
		return byte(first + i/4/each)
	})
}

// factor returns the factor of the weights of group g, and on AVX-512 of g+1, in the lanes of their
// products: the scale, or the minimum, whose float16 is at place at of a small block.
func (f *fn) factor(p reg.GPVirtual, g int, last bool, at int) reg.VecVirtual {
	v := f.l.Vec()
	if f.weights == 32 {
		first, second := Mem{Base: p, Disp: at + g*f.bytes}, Mem{Base: p, Disp: at + (g+1)*f.bytes}
		if !f.wide() {
			x := XMM()
			VPBROADCASTW(first, x)
			VCVTPH2PS(x, v)
			return v
		}
		y := YMM()
		if last {
			VPBROADCASTW_Z(first, f.lower, y)
		} else {
			VPBROADCASTW(first, y)
			VPBROADCASTW(second, f.upper, y)
		}
		VCVTPH2PS(y, v)
		return v
	}
	first, more := f.d8, f.d8more
	if at > 0 {
		first, more = f.m8, f.m8more
	}
	if f.mins && (f.wide() || f.contexts > 1) {
		VMOVUPS(lanes(g, 8), v)
		VPERMPS(first, v, v)
		return v
	}
	if f.wide() {
		VPERMILPS(U8(0x55*(g/2)), first, v)
		return v
	}
	if g >= 4 {
		first = more
	}
	VPERMILPS(U8(0x55*(g%4)), first, v)
	return v
}

// factors makes the factors of a large block at p.
func (f *fn) factors(p reg.GPVirtual) {
	half := func(at int) reg.VecVirtual {
		x, v := XMM(), f.l.Vec()
		VPBROADCASTW(Mem{Base: p, Disp: at}, x)
		if f.wide() {
			y := YMM()
			VPBROADCASTW(x, y)
			VCVTPH2PS(y, v)
			return v
		}
		VCVTPH2PS(x, v)
		return v
	}
	if !f.mins { // Q6_K: 16 int8
		d, x := half(208), XMM()
		VMOVDQU(Mem{Base: p, Disp: 192}, x)
		VPSHUFB(f.order(), x, x)
		eight := func() reg.VecVirtual {
			v := f.l.Vec()
			VPMOVSXBD(x, v)
			VCVTDQ2PS(v, v)
			VMULPS(d, v, v)
			return v
		}
		f.d8 = eight()
		if !f.wide() {
			VPSRLDQ(U8(8), x, x)
			f.d8more = eight()
		}
		return
	}
	// Twelve bytes hold eight pairs of six bits: kernels.scales4K.
	load := func(at int) reg.GPVirtual {
		r := GP64()
		MOVL(Mem{Base: p, Disp: at}, r.As32())
		return r
	}
	and := func(x uint32, r reg.GPVirtual) { ANDL(U32(x), r.As32()) }
	upper := func(of, rest reg.GPVirtual) reg.GPVirtual { // (of >> 6 & 3) << 4 | rest
		t := GP64()
		MOVL(of.As32(), t.As32())
		SHRL(U8(2), t.As32())
		and(0x30303030, t)
		ORL(rest.As32(), t.As32())
		SHLQ(U8(32), t)
		return t
	}
	s, t, both := load(4), load(8), load(12)
	low, high := GP64(), GP64()
	MOVL(both.As32(), low.As32())
	and(0x0f0f0f0f, low)
	MOVL(both.As32(), high.As32())
	SHRL(U8(4), high.As32())
	and(0x0f0f0f0f, high)
	s8, t8 := upper(s, low), upper(t, high)
	and(0x3f3f3f3f, s)
	and(0x3f3f3f3f, t)
	ORQ(s, s8)
	ORQ(t, t8)
	factors := func(eight reg.GPVirtual, at int) reg.VecVirtual {
		x, y := XMM(), f.l.Vec()
		VMOVQ(eight, x)
		VPMOVZXBD(x, y.AsY())
		VCVTDQ2PS(y.AsY(), y.AsY())
		h := half(at)
		VMULPS(h.AsY(), y.AsY(), y.AsY())
		return y
	}
	f.d8, f.m8 = factors(s8, 0), factors(t8, 2)
	if f.contexts == 1 && !f.wide() { // four factors in both halves
		f.d8more, f.m8more = YMM(), YMM()
		VPERM2F128(U8(0x11), f.d8, f.d8, f.d8more)
		VPERM2F128(U8(0x11), f.m8, f.m8, f.m8more)
		VPERM2F128(U8(0), f.d8, f.d8, f.d8)
		VPERM2F128(U8(0), f.m8, f.m8, f.m8)
	}
	if f.bytes == 176 && f.wide() {
		f.qh = f.l.Vec()
		VBROADCASTI64X4(Mem{Base: p, Disp: 16}, f.qh)
	}
}

// order returns a constant that orders the 16 scales of Q6_K so that one shuffle within 128 bits,
// by the same number everywhere, makes the factors of a group, or of two on AVX-512.
func (f *fn) order() Mem {
	if f.wide() {
		return constant("fourths", func(i int) byte { return byte(i%4*4 + i/4%4) })
	}
	return constant("seconds", func(i int) byte { return byte(i%16/8*8 + i%4*2 + i/4%2) })
}

// signed turns the masked bits of X + 128 into the masked bits of X.
func (f *fn) signed(x reg.VecVirtual, mask byte) {
	if f.wide() {
		VPTERNLOGD(U8(0x6a), each(0x80), f.mask, x) // x & mask ^ 0x80
		return
	}
	VPAND(each(mask), x, x)
	VPXOR(each(0x80), x, x)
}

func (f *fn) codes80(p reg.GPVirtual, g int, last bool) reg.VecVirtual {
	x := f.l.Vec()
	at := Mem{Base: p, Disp: 2 + g*f.bytes}
	if !f.wide() {
		VMOVDQU(at, x)
	} else {
		VMOVDQU64(at, x.AsY())
		if !last {
			VINSERTI64X4(U8(1), at.Offset(f.bytes), x, x)
		}
	}
	return x
}

// nibbles16 loads the 16 bytes at a place of a small block, whose lower halves are the first 16
// codes, and moves the halves to the bits of the mask. Without a minimum it makes them signed.
func (f *fn) nibbles16(p reg.GPVirtual, g, at int, last bool, lowLeft, highRight int, mask byte) reg.VecVirtual {
	x := f.l.Vec()
	m := Mem{Base: p, Disp: at + g*f.bytes}
	if f.wide() {
		VBROADCASTI32X4(m, x)
		if !last {
			VBROADCASTI32X4(m.Offset(f.bytes), f.upper, x)
		}
		VPROLVD(dwordHalves(32, byte(lowLeft), byte((32-highRight)%32)), x, x)
		f.masked(x, mask)
		return x
	}
	low, high := XMM(), XMM()
	VMOVDQU(m, low)
	if highRight > 0 {
		VPSRLW(U8(highRight), low, high)
	} else {
		VMOVDQU(low, high)
	}
	if lowLeft > 0 {
		VPSLLW(U8(lowLeft), low, low)
	}
	VINSERTI128(U8(1), high, low.AsY(), x)
	f.masked(x, mask)
	return x
}

// masked takes the bits of a mask, and without a minimum makes them signed.
func (f *fn) masked(x reg.VecVirtual, mask byte) {
	switch {
	case !f.mins:
		f.signed(x, mask)
	case f.wide():
		VPANDD(each(mask), x, x)
	default:
		VPAND(each(mask), x, x)
	}
}

// fifths adds a bit to those codes whose fifth bit is set, in 32 bits at a place of a small block.
// If it is the sign, an addition inverts it.
func (f *fn) fifths(x reg.VecVirtual, p reg.GPVirtual, g, at int, last bool, bit byte) reg.VecVirtual {
	m := Mem{Base: p, Disp: at + g*f.bytes}
	if f.wide() {
		k := K()
		KMOVD(m, k)
		if !last {
			k2 := K()
			KMOVD(m.Offset(f.bytes), k2)
			KUNPCKDQ(k, k2, k)
		}
		VPADDB(each(bit), x, k, x)
		return x
	}
	y := YMM()
	VPBROADCASTD(m, y)
	// VPSHUFB stays within 128 bits: both halves have all four bytes.
	VPSHUFB(constant("eighths", func(i int) byte { return byte(i % 32 / 8) }), y, y)
	bits := constant("bits", func(i int) byte { return 1 << (i % 8) })
	VPAND(bits, y, y)
	VPCMPEQB(bits, y, y)
	VPAND(each(bit), y, y)
	VPXOR(y, x, x)
	return x
}

func (f *fn) codes40(p reg.GPVirtual, g int, last bool) reg.VecVirtual {
	return f.nibbles16(p, g, 2, last, 4, 0, 0xf0)
}

func (f *fn) codes50(p reg.GPVirtual, g int, last bool) reg.VecVirtual {
	return f.fifths(f.nibbles16(p, g, 6, last, 3, 1, 0x78), p, g, 2, last, 0x80)
}

func (f *fn) codes41(p reg.GPVirtual, g int, last bool) reg.VecVirtual {
	return f.nibbles16(p, g, 4, last, 0, 4, 0x0f)
}

func (f *fn) codes51(p reg.GPVirtual, g int, last bool) reg.VecVirtual {
	return f.fifths(f.nibbles16(p, g, 8, last, 0, 4, 0x0f), p, g, 4, last, 0x10)
}

// nibbles32 loads 32 bytes whose lower halves are the codes of an even group, and the upper ones of
// the next.
func (f *fn) nibbles32(p reg.GPVirtual, g, at int) reg.VecVirtual {
	x := f.l.Vec()
	m := Mem{Base: p, Disp: at + g/2*32}
	if f.wide() {
		VBROADCASTI64X4(m, x)
		VPSRLVW(halves(64, 0, 4), x, x)
		VPANDD(each(0x0f), x, x)
		return x
	}
	VMOVDQU(m, x)
	if g%2 == 1 {
		VPSRLW(U8(4), x, x)
	}
	VPAND(f.hold(each(0x0f)), x, x)
	return x
}

func (f *fn) codes4K(p reg.GPVirtual, g int, _ bool) reg.VecVirtual { return f.nibbles32(p, g, 16) }

func (f *fn) codes5K(p reg.GPVirtual, g int, _ bool) reg.VecVirtual {
	x := f.nibbles32(p, g, 48)
	if f.wide() {
		k := K()
		VPTESTMB(constant(fmt.Sprintf("bit%d", g), func(i int) byte { return 1 << (g + i/32) }), f.qh, k)
		VPADDB(each(0x10), x, k, x)
		return x
	}
	// The fifth bit, moved to its place. The bits that come from another byte are masked.
	y := f.qh
	if f.contexts > 1 || g == 0 {
		y = YMM()
		VMOVDQU(Mem{Base: p, Disp: 16}, y)
		f.qh = y
	}
	z := YMM()
	switch {
	case g < 4:
		VPSLLW(U8(4-g), y, z)
	case g > 4:
		VPSRLW(U8(g-4), y, z)
	}
	if g == 4 {
		VPAND(f.hold(each(0x10)), y, z)
	} else {
		VPAND(f.hold(each(0x10)), z, z)
	}
	VPOR(z, x, x)
	return x
}

// codes6K makes the codes of a group, or of two, in the upper six bits of each byte. The upper two
// of a code come from bytes that four groups share; inverting the first makes a code signed.
func (f *fn) codes6K(p reg.GPVirtual, g int, _ bool) reg.VecVirtual {
	x, low := f.l.Vec(), Mem{Base: p, Disp: g/4*64 + g%2*32}
	high := f.qh
	if g%4 == 0 || f.contexts > 1 && !f.wide() {
		high = f.l.Vec()
		upper := Mem{Base: p, Disp: 128 + g/4*32}
		if f.wide() {
			VBROADCASTI64X4(upper, high)
			VPXORD(each(0xaa), high, high)
		} else {
			VMOVDQU(upper, high)
			VPXOR(each(0xaa), high, high)
		}
		f.qh = high
	}
	shifted := f.l.Vec()
	if f.wide() {
		VMOVDQU64(low, x)
		VPSLLVW(halves(64, byte(6-g%4*2), byte(4-g%4*2)), high, shifted)
	} else {
		VMOVDQU(low, x)
		if left := 6 - g%4*2; left > 0 {
			VPSLLW(U8(left), high, shifted)
		} else {
			shifted = high
		}
	}
	if g%4 < 2 {
		VPSLLW(U8(2), x, x)
	} else {
		VPSRLW(U8(2), x, x)
	}
	if f.wide() {
		VPANDD(f.mask, shifted, shifted)
		VPTERNLOGD(U8(0xf8), each(0x3c), x, shifted) // shifted | x & 0x3c
		return shifted
	}
	upper := YMM()
	VPAND(f.hold(each(0xc0)), shifted, upper)
	VPAND(f.hold(each(0x3c)), x, x)
	VPOR(upper, x, x)
	return x
}
