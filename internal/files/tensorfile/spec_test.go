package tensorfile_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// The bytes below are made without the package under test, in the layout of numpy and safetensors.

var le binary.AppendByteOrder = binary.LittleEndian

// npy returns a file of numpy.lib.format: the header is padded with spaces
// and a newline so that the data start at a multiple of 64.
func npy(major byte, dict string, data []byte) []byte {
	before := 10
	if major > 1 {
		before = 12
	}
	pad := 64 - (before+len(dict)+1)%64
	header := dict + strings.Repeat(" ", pad) + "\n"
	b := []byte{0x93, 'N', 'U', 'M', 'P', 'Y', major, 0}
	if major > 1 {
		b = le.AppendUint32(b, uint32(len(header)))
	} else {
		b = le.AppendUint16(b, uint16(len(header)))
	}
	return append(append(b, header...), data...)
}

// dict is the header of numpy.save.
func dict(descr, order, shape string) string {
	return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }"
}

func f32s(order binary.AppendByteOrder, x ...float32) (b []byte) {
	for _, v := range x {
		b = order.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func f64s(order binary.AppendByteOrder, x ...float64) (b []byte) {
	for _, v := range x {
		b = order.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func u16s(order binary.AppendByteOrder, x ...uint16) (b []byte) {
	for _, v := range x {
		b = order.AppendUint16(b, v)
	}
	return b
}

// ints returns x as integers of size bytes, in two's complement.
func ints(order binary.AppendByteOrder, size int, x ...int64) (b []byte) {
	for _, v := range x {
		switch size {
		case 1:
			b = append(b, byte(v))
		case 2:
			b = order.AppendUint16(b, uint16(v))
		case 4:
			b = order.AppendUint32(b, uint32(v))
		case 8:
			b = order.AppendUint64(b, uint64(v))
		}
	}
	return b
}

// safetensors returns a file: the length of the header, the header padded
// with spaces to a multiple of 8, the data.
func safetensors(header string, data []byte) []byte {
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	return append(append(le.AppendUint64(nil, uint64(len(header))), header...), data...)
}

// zipMember is a member of an archive, with its faults.
type zipMember struct {
	name       string
	data       []byte
	deflated   bool
	crc        uint32 // added to the right one
	size       int64  // added to the right one in the directory
	packedSize int64  // the same
	method     uint16 // in the place of the right one, if not 0
	flags      uint16
	at         uint32 // in the place of the offset of the local header, if not 0
}

// npz returns a zip archive as Python's zipfile writes it for numpy.savez:
// local headers with the sizes in the zip64 extra field, and a directory with
// plain ones.
func npz(members ...zipMember) []byte {
	var b, dir []byte
	for _, m := range members {
		packed, method := m.data, uint16(0)
		if m.deflated {
			var buf bytes.Buffer
			w, _ := flate.NewWriter(&buf, flate.DefaultCompression)
			w.Write(m.data)
			w.Close()
			packed, method = buf.Bytes(), 8
		}
		if m.method != 0 {
			method = m.method
		}
		at := uint32(len(b))
		if m.at != 0 {
			at = m.at
		}
		crc := crc32.ChecksumIEEE(m.data) + m.crc
		size, packedSize := int64(len(m.data))+m.size, int64(len(packed))+m.packedSize
		common := func(b []byte) []byte { // from the needed version to the CRC
			b = le.AppendUint16(b, 45)
			b = le.AppendUint16(b, m.flags)
			b = le.AppendUint16(b, method)
			b = le.AppendUint32(b, 0x00210000) // 1980-01-01
			return le.AppendUint32(b, crc)
		}
		b = common(append(b, "PK\x03\x04"...))
		b = le.AppendUint32(b, math.MaxUint32)
		b = le.AppendUint32(b, math.MaxUint32)
		b = le.AppendUint16(b, uint16(len(m.name)))
		b = le.AppendUint16(b, 20)
		b = append(b, m.name...)
		b = le.AppendUint16(b, 1)
		b = le.AppendUint16(b, 16)
		b = le.AppendUint64(b, uint64(size))
		b = le.AppendUint64(b, uint64(packedSize))
		b = append(b, packed...)

		dir = append(dir, "PK\x01\x02"...)
		dir = le.AppendUint16(dir, 0x0300|45)
		dir = common(dir)
		dir = le.AppendUint32(dir, uint32(packedSize))
		dir = le.AppendUint32(dir, uint32(size))
		dir = le.AppendUint16(dir, uint16(len(m.name)))
		dir = append(dir, make([]byte, 8)...)
		dir = le.AppendUint32(dir, 0o600<<16)
		dir = le.AppendUint32(dir, at)
		dir = append(dir, m.name...)
	}
	at := len(b)
	b = append(append(b, dir...), "PK\x05\x06\x00\x00\x00\x00"...)
	b = le.AppendUint16(b, uint16(len(members)))
	b = le.AppendUint16(b, uint16(len(members)))
	b = le.AppendUint32(b, uint32(len(dir)))
	b = le.AppendUint32(b, uint32(at))
	return le.AppendUint16(b, 0)
}

// file puts bytes into a file of a new folder.
func file(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, src string) *tensorfile.Tensor {
	t.Helper()
	x, err := tensorfile.OpenTensor(src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func floats(t testing.TB, x *tensorfile.Tensor) []float32 {
	t.Helper()
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sameBits compares floats by their bits: -0 is not 0.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// A value that all float types can hold, with its bits in the short types.
var samples = []struct {
	value      float32
	half, bf16 uint16
}{
	{0, 0x0000, 0x0000},
	{1, 0x3c00, 0x3f80},
	{-2, 0xc000, 0xc000},
	{0.5, 0x3800, 0x3f00},
	{1.5, 0x3e00, 0x3fc0},
	{-0.0078125, 0xa000, 0xbc00},
	{1024, 0x6400, 0x4480},
	{float32(math.Copysign(0, -1)), 0x8000, 0x8000},
	{3, 0x4200, 0x4040},
	{-240, 0xdb80, 0xc370},
	{0.15625, 0x3100, 0x3e20},
	{7, 0x4700, 0x40e0},
}

// floatBytes returns the samples at these places as bytes of a numpy type.
func floatBytes(typ string, order binary.AppendByteOrder, at ...int) (b []byte) {
	for _, i := range at {
		s := samples[i]
		switch typ {
		case "f2":
			b = order.AppendUint16(b, s.half)
		case "bf16":
			b = order.AppendUint16(b, s.bf16)
		case "f4":
			b = order.AppendUint32(b, math.Float32bits(s.value))
		case "f8":
			b = order.AppendUint64(b, math.Float64bits(float64(s.value)))
		}
	}
	return b
}

func values(at ...int) (x []float32) {
	for _, i := range at {
		x = append(x, samples[i].value)
	}
	return x
}

// The shapes of the tests: for each shape the elements in the order of a C file, and of a Fortran
// file as numpy.asfortranarray writes it.
var shapes = []struct {
	text       string
	shape      []int
	c, fortran []int
}{
	{"()", []int{}, []int{3}, []int{3}},
	{"(1,)", []int{1}, []int{5}, []int{5}},
	{"(4,)", []int{4}, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
	{"(0,)", []int{0}, nil, nil},
	{"(0, 3)", []int{0, 3}, nil, nil},
	{"(3, 0)", []int{3, 0}, nil, nil},
	{"(2, 0, 3)", []int{2, 0, 3}, nil, nil},
	{"(1, 4)", []int{1, 4}, []int{4, 5, 6, 7}, []int{4, 5, 6, 7}},
	{"(4, 1)", []int{4, 1}, []int{4, 5, 6, 7}, []int{4, 5, 6, 7}},
	{"(2, 3)", []int{2, 3}, []int{0, 1, 2, 3, 4, 5}, []int{0, 3, 1, 4, 2, 5}},
	{"(3, 4)", []int{3, 4}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, []int{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}},
	{"(2, 3, 2)", []int{2, 3, 2}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, []int{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}},
	{"(1, 2, 3)", []int{1, 2, 3}, []int{0, 1, 2, 3, 4, 5}, []int{0, 3, 1, 4, 2, 5}},
	{"(1, 1, 1, 1, 1, 1, 1, 2)", []int{1, 1, 1, 1, 1, 1, 1, 2}, []int{8, 9}, []int{8, 9}},
}

func TestNPYFloats(t *testing.T) {
	names := map[string]string{"f2": "float16", "f4": "float32", "f8": "float64"}
	for typ, name := range names {
		for _, s := range shapes {
			for fortran, places := range map[string][]int{"False": s.c, "True": s.fortran} {
				for version := byte(1); version <= 3; version++ {
					t.Run(fmt.Sprintf("%s %s fortran %s v%d", typ, s.text, fortran, version), func(t *testing.T) {
						b := npy(version, dict("<"+typ, fortran, s.text), floatBytes(typ, le, places...))
						x := open(t, file(t, "x.npy", b))
						if got := x.DType.String(); got != name {
							t.Errorf("dtype %s, want %s", got, name)
						}
						if !slices.Equal(x.Shape, s.shape) {
							t.Errorf("shape %v, want %v", x.Shape, s.shape)
						}
						if got, want := floats(t, x), values(s.c...); !sameBits(got, want) {
							t.Errorf("found %v, want %v", got, want)
						}
						checkRows(t, x)
					})
				}
			}
		}
	}
}

// checkRows compares ReadRows with Float32s for every first row and room.
func checkRows(t *testing.T, x *tensorfile.Tensor) {
	t.Helper()
	all, rows, cols := floats(t, x), x.Rows(), x.Cols()
	if rows*cols != len(all) {
		t.Fatalf("%d rows of %d, but %d elements", rows, cols, len(all))
	}
	if cols == 0 {
		if _, err := x.ReadRows(make([]float32, 4), 0); err == nil {
			t.Error("ReadRows of rows without columns succeeded")
		}
		return
	}
	for first := 0; first <= rows; first++ {
		for room := cols; room <= (rows-first+1)*cols+1; room++ {
			dst := make([]float32, room)
			for i := range dst {
				dst[i] = -77
			}
			n, err := x.ReadRows(dst, first)
			if want := min(room/cols, rows-first); err != nil || n != want {
				t.Fatalf("ReadRows(%d, %d) = %d, %v, want %d", room, first, n, err, want)
			}
			if !sameBits(dst[:n*cols], all[first*cols:(first+n)*cols]) {
				t.Fatalf("ReadRows(%d, %d): found %v, want %v", room, first, dst[:n*cols], all[first*cols:(first+n)*cols])
			}
			for _, v := range dst[n*cols:] {
				if v != -77 {
					t.Fatalf("ReadRows(%d, %d) wrote after its rows", room, first)
				}
			}
		}
	}
}

// Blocks and columns of a matrix that exceed any buffer.
func TestLargeFortranMatrix(t *testing.T) {
	for _, s := range [][2]int{{1000, 37}, {3, 40000}, {40000, 3}, {130, 129}} {
		rows, cols := s[0], s[1]
		value := func(r, c int) float32 { return float32(r) - float32(c)/1024 }
		var b []byte
		for c := range cols {
			for r := range rows {
				b = le.AppendUint32(b, math.Float32bits(value(r, c)))
			}
		}
		x := open(t, file(t, "x.npy", npy(1, dict("<f4", "True", fmt.Sprintf("(%d, %d)", rows, cols)), b)))
		all := floats(t, x)
		for i, v := range all {
			if want := value(i/cols, i%cols); v != want {
				t.Fatalf("%v: row %d, column %d: found %v, want %v", s, i/cols, i%cols, v, want)
			}
		}
		dst := make([]float32, 7*cols)
		for first := 0; first < rows; first += 997 {
			n, err := x.ReadRows(dst, first)
			if err != nil || !sameBits(dst[:n*cols], all[first*cols:(first+n)*cols]) {
				t.Fatalf("%v: rows from %d on: %v, or other values", s, first, err)
			}
		}
	}
}

func TestNPYIntegers(t *testing.T) {
	for _, typ := range []struct {
		descr  string
		name   string
		size   int
		values []int64
	}{
		{"i1", "int8", 1, []int64{0, 1, -1, 127, -128, 5}},
		{"i2", "int16", 2, []int64{0, 1, -1, 32767, -32768, 513}},
		{"i4", "int32", 4, []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1 << 20}},
		{"i8", "int64", 8, []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 40}},
		{"u1", "uint8", 1, []int64{0, 1, 2, 127, 128, 255}},
		{"u2", "uint16", 2, []int64{0, 1, 2, 32767, 32768, 65535}},
		{"u4", "uint32", 4, []int64{0, 1, 2, math.MaxInt32, 1 << 31, math.MaxUint32}},
		{"u8", "uint64", 8, []int64{0, 1, 2, math.MaxInt32, 1 << 40, math.MaxInt64}},
	} {
		for fortran, at := range map[string][]int{"False": {0, 1, 2, 3, 4, 5}, "True": {0, 3, 1, 4, 2, 5}} {
			t.Run("<"+typ.descr+" fortran "+fortran, func(t *testing.T) {
				var stored []int64
				for _, i := range at {
					stored = append(stored, typ.values[i])
				}
				x := open(t, file(t, "x.npy", npy(1, dict("<"+typ.descr, fortran, "(2, 3)"), ints(le, typ.size, stored...))))
				if got := x.DType.String(); got != typ.name || x.DType.Size() != typ.size {
					t.Errorf("dtype %s of %d bytes, want %s of %d", got, x.DType.Size(), typ.name, typ.size)
				}
				got, err := x.Int64s()
				if err != nil || !slices.Equal(got, typ.values) {
					t.Errorf("found %v, %v, want %v", got, err, typ.values)
				}
			})
		}
	}
	// numpy writes no byte order for single bytes.
	x := open(t, file(t, "x.npy", npy(1, dict("|u1", "False", "(2,)"), []byte{7, 255})))
	if got, err := x.Int64s(); err != nil || !slices.Equal(got, []int64{7, 255}) {
		t.Errorf("|u1: found %v, %v", got, err)
	}
}

// Headers that numpy also reads: other spaces, quotes and orders of keys, the long integers of
// Python 2.
func TestNPYHeaderForms(t *testing.T) {
	little := f32s(le, 1, 2)
	for _, c := range []struct {
		name, dict string
		data       []byte
	}{
		{"no trailing comma", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", little},
		{"no spaces", "{'descr':'<f4','fortran_order':False,'shape':(2,),}", little},
		{"wide spaces", " {\t'descr' : '<f4' ,\n'fortran_order' : False , 'shape' : ( 2 , ) , } ", little},
		{"double quotes", `{"descr": "<f4", "fortran_order": False, "shape": (2,)}`, little},
		{"other order", "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", little},
		{"long", "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }", little},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := floats(t, open(t, file(t, "x.npy", npy(1, c.dict, c.data)))); !sameBits(got, []float32{1, 2}) {
				t.Errorf("found %v", got)
			}
		})
	}
}

func TestSafetensorsTypes(t *testing.T) {
	var data []byte
	var entries []string
	add := func(name, typ, shape string, b []byte) {
		entries = append(entries, fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, typ, shape, len(data), len(data)+len(b)))
		data = append(data, b...)
	}
	add("w64", "F64", "[2,3]", floatBytes("f8", le, 0, 1, 2, 3, 4, 5))
	add("i64", "I64", "[2]", ints(le, 8, -5, 1<<40))
	add("w", "F32", "[3,4]", floatBytes("f4", le, shapes[10].c...))
	add("scalar", "F32", "[]", f32s(le, 9))
	add("i32", "I32", "[3]", ints(le, 4, 7, -8, 9))
	add("none", "F32", "[0,7]", nil)
	add("h", "F16", "[2,3,2]", floatBytes("f2", le, shapes[11].c...))
	add("b", "BF16", "[12]", floatBytes("bf16", le, shapes[11].c...))
	add("flags", "BOOL", "[3]", []byte{1, 0, 1})
	add("", "U8", "[1]", []byte{200}) // the data are no multiple of 4 now
	add("odd.w", "F32", "[2]", f32s(le, -1.25, 3e38))
	add("café:1", "F16", "[1]", u16s(le, 0x3c00))
	b := safetensors(`{"__metadata__":{"format":"pt"},`+strings.Join(entries, ",")+"}", data)
	path := file(t, "m.safetensors", b)

	check := func(t *testing.T, f *tensorfile.File) {
		want := []string{"w64", "i64", "w", "scalar", "i32", "none", "h", "b", "flags", "", "odd.w", "café:1"}
		if got := f.Names(); !slices.Equal(got, want) {
			t.Errorf("names %q, want %q", got, want)
		}
		for name, want := range map[string][]float32{
			"w64": values(0, 1, 2, 3, 4, 5), "w": values(shapes[10].c...), "scalar": {9}, "none": nil,
			"h": values(shapes[11].c...), "b": values(shapes[11].c...), "odd.w": {-1.25, 3e38}, "café:1": {1},
		} {
			x, err := f.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := floats(t, x); !sameBits(got, want) {
				t.Errorf("%s: found %v, want %v", name, got, want)
			}
			checkRows(t, x)
			if err := x.Close(); err != nil { // leaves the file open
				t.Error(err)
			}
		}
		for name, want := range map[string][]int64{"i64": {-5, 1 << 40}, "i32": {7, -8, 9}, "": {200}} {
			x, err := f.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := x.Int64s(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: found %v, %v, want %v", name, got, err, want)
			}
		}
	}
	t.Run("file", func(t *testing.T) {
		f, err := tensorfile.OpenSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		check(t, f)
	})
	t.Run("memory", func(t *testing.T) {
		f, err := tensorfile.ReadSafetensors(b, "m")
		if err != nil {
			t.Fatal(err)
		}
		check(t, f)
	})
	t.Run("shifted memory", func(t *testing.T) { // no tensor is aligned
		for shift := 1; shift < 8; shift++ {
			f, err := tensorfile.ReadSafetensors(append(make([]byte, shift, len(b)+shift), b...)[shift:], "m")
			if err != nil {
				t.Fatal(err)
			}
			check(t, f)
		}
	})
	t.Run("by name", func(t *testing.T) {
		for name, want := range map[string][]float32{"scalar": {9}, "café:1": {1}, "odd.w": {-1.25, 3e38}} {
			if got := floats(t, open(t, path+":"+name)); !sameBits(got, want) {
				t.Errorf("%s: found %v, want %v", name, got, want)
			}
		}
	})
}

// The offsets decide where data are, the header's order does not.
func TestSafetensorsInAnyOrder(t *testing.T) {
	f, err := tensorfile.ReadSafetensors(safetensors(
		`{"b":{"data_offsets":[4,8],"shape":[1],"dtype":"F32"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, f32s(le, 1, 2)), "m")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float32{"a": 1, "b": 2} {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := floats(t, x); got[0] != want {
			t.Errorf("%s: found %v, want %v", name, got[0], want)
		}
	}
	if got := f.Names(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("names %q, want the header's order", got)
	}
}

func TestNPZ(t *testing.T) {
	w := npy(1, dict("<f4", "False", "(2, 3)"), f32s(le, 1, 2, 3, 4, 5, 6))
	h := npy(1, dict("<f2", "True", "(2, 3)"), u16s(le, 0x3c00, 0x4400, 0x4000, 0x4500, 0x4200, 0x4600))
	ids := npy(1, dict("<i8", "False", "(3,)"), ints(le, 8, 3, 1, 2))
	zeros := npy(1, dict("<f4", "False", "(300000,)"), make([]byte, 1200000))
	for _, deflated := range []bool{false, true} {
		t.Run(map[bool]string{false: "savez", true: "savez_compressed"}[deflated], func(t *testing.T) {
			path := file(t, "x.npz", npz(
				zipMember{name: "w.npy", data: w, deflated: deflated},
				zipMember{name: "h.npy", data: h, deflated: deflated},
				zipMember{name: "arr_0.npy", data: ids, deflated: deflated},
				zipMember{name: "zeros.npy", data: zeros, deflated: deflated},
			))
			for _, name := range []string{"w", "h"} {
				x := open(t, path+":"+name)
				if got := floats(t, x); !sameBits(got, []float32{1, 2, 3, 4, 5, 6}) {
					t.Errorf("%s: found %v", name, got)
				}
				checkRows(t, x)
			}
			if got, err := open(t, path+":arr_0").Int64s(); err != nil || !slices.Equal(got, []int64{3, 1, 2}) {
				t.Errorf("arr_0: found %v, %v", got, err)
			}
			if got := floats(t, open(t, path+":zeros")); len(got) != 300000 || slices.Max(got) != 0 || slices.Min(got) != 0 {
				t.Errorf("zeros: found %d elements, or others than 0", len(got))
			}
		})
	}
}

func TestFormatByFirstBytes(t *testing.T) {
	x := npy(1, dict("<f4", "False", "(1,)"), f32s(le, 5))
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"a": x,
		"b": npz(zipMember{name: "x.npy", data: x}),
		"c": safetensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, f32s(le, 5)),
		// The length of this header, 0x4b50, begins with the bytes PK.
		"d": safetensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`+strings.Repeat(" ", 0x4b50-54), f32s(le, 5)),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "a" {
			path += ":x"
		}
		if got := floats(t, open(t, path)); !sameBits(got, []float32{5}) {
			t.Errorf("%s: found %v", name, got)
		}
	}
}

// A name of a file may have colons, and so may one of a tensor.
func TestColons(t *testing.T) {
	dir := t.TempDir()
	one := npy(1, dict("<f4", "False", "(1,)"), f32s(le, 1))
	two := safetensors(`{"a:b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, f32s(le, 2))
	for name, b := range map[string][]byte{"x:y.npy": one, "m:1.safetensors": two} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Skipf("no colons in names here: %v", err)
		}
	}
	for src, want := range map[string]float32{"x:y.npy": 1, "m:1.safetensors:a:b": 2} {
		if got := floats(t, open(t, filepath.Join(dir, src))); got[0] != want {
			t.Errorf("%s: found %v, want %v", src, got[0], want)
		}
	}
}

// Float64 is rounded to the nearest float32, ties to even.
func TestFloat64Rounding(t *testing.T) {
	in := []float64{1 + 0x1p-24, 1 + 0x1.8p-23, 0x1p-149, 0x1p-150, 0x1.8p-150, math.MaxFloat32, math.MaxFloat32 + 0x1p102, 1e-300, -1e-300, 0.1}
	want := []float32{1, 1 + 0x1p-22, 0x1p-149, 0, 0x1p-149, math.MaxFloat32, math.MaxFloat32, 0, float32(math.Copysign(0, -1)), 0.1}
	x := open(t, file(t, "x.npy", npy(1, dict("<f8", "False", fmt.Sprintf("(%d,)", len(in))), f64s(le, in...))))
	if got := floats(t, x); !sameBits(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// The floats read from a file belong to the caller and outlive the file.
func TestFloatsOutliveTheirFile(t *testing.T) {
	const n = 1<<16 + 3 // beyond whole pages
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i)
	}
	data := f32s(le, want...)
	shape := fmt.Sprintf("(%d, 1)", n)
	array := npy(1, dict("<f4", "False", shape), data)
	header := fmt.Sprintf(`{"x":{"dtype":"F32","shape":[%d,1],"data_offsets":[0,%d]}}`, n, 4*n)
	for _, c := range []struct{ name, src string }{
		{"npy", file(t, "x.npy", array)},
		{"safetensors", file(t, "x.safetensors", safetensors(header, data)) + ":x"},
		{"npz at a multiple of 4", file(t, "x.npz", npz(zipMember{name: "xx.npy", data: array})) + ":xx"},
		{"npz not at a multiple of 4", file(t, "x.npz", npz(zipMember{name: "xyz.npy", data: array})) + ":xyz"},
		{"Fortran order", file(t, "x.npy", npy(1, dict("<f4", "True", shape), data))},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, c.src)
			a, b := floats(t, x), floats(t, x)
			if &a[0] == &b[0] {
				t.Error("two reads share their memory")
			}
			path, _, _ := strings.Cut(c.src, ":")
			if err := os.Truncate(path, 1); err != nil {
				t.Fatal(err)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			if !sameBits(a, want) || !sameBits(b, want) {
				t.Error("found other numbers after the file was cut and closed")
			}
		})
	}
}

// Close waits for the reads that are under way; those after it are refused.
func TestCloseWhileReading(t *testing.T) {
	const n = 1 << 18
	for range 20 {
		x := open(t, file(t, "x.npy", npy(1, dict("<f4", "False", fmt.Sprintf("(%d, 1)", n)), make([]byte, 4*n))))
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				dst := make([]float32, n)
				for range 10 {
					var err error
					if g%2 == 0 {
						_, err = x.ReadRows(dst, 0)
					} else {
						_, err = x.Float32s()
					}
					if err != nil {
						if !strings.Contains(err.Error(), "found a closed file, expected an open one") {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// For a file in memory the result may be a part of the file.
func TestInMemory(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("files are little-endian, this machine is not: nothing is used in place")
	}
	b := safetensors(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, f32s(le, 1, 2))
	f, err := tensorfile.ReadSafetensors(b, "m")
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.Tensor("x")
	if err != nil {
		t.Fatal(err)
	}
	v := floats(t, x)
	copy(b[len(b)-4:], f32s(le, 7))
	if v[1] != 7 {
		t.Errorf("found %v after a change of the bytes, want 7", v[1])
	}
}

func TestExpectShape(t *testing.T) {
	x := open(t, file(t, "x.npy", npy(1, dict("<f4", "False", "(2, 3)"), f32s(le, 1, 2, 3, 4, 5, 6))))
	for _, want := range [][]int{{2, 3}, {-1, 3}, {2, -1}, {-1, -1}} {
		if err := x.ExpectShape(want...); err != nil {
			t.Errorf("%v: %v", want, err)
		}
	}
	for _, want := range [][]int{{3, 2}, {2}, {2, 3, 1}, {-1, 4}, {}, {6}} {
		if err := x.ExpectShape(want...); err == nil {
			t.Errorf("%v was accepted for %v", want, x.Shape)
		}
	}
}

func TestRowsAndCols(t *testing.T) {
	want := map[string][2]int{"()": {1, 1}, "(4,)": {4, 1}, "(2, 3)": {2, 3}, "(2, 3, 2)": {2, 6}, "(0, 3)": {0, 3}, "(3, 0)": {3, 0}}
	for _, s := range shapes {
		w, ok := want[s.text]
		if !ok {
			continue
		}
		x := open(t, file(t, "x.npy", npy(1, dict("<f4", "False", s.text), floatBytes("f4", le, s.c...))))
		if got := [2]int{x.Rows(), x.Cols()}; got != w {
			t.Errorf("%s: %v rows and columns, want %v", s.text, got, w)
		}
	}
}

// Metadata with any strings are skipped, without an allocation for each.
func TestMetadata(t *testing.T) {
	const tensor = `"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`
	for _, metadata := range []string{
		`{}`, ` { } `, `{"a":"b"}`, "{ \"a\" :\t\"b\" ,\r\n\"c\": \"\" }", `{"a\\":"\"","\"":"\\\"","\\\\":"{","b":"}"}`,
		`{"x":"the name of the tensor","__metadata__":"and of the metadata"}`,
	} {
		header := "{" + `"__metadata__":` + metadata + "," + tensor + "}"
		if got := floats(t, open(t, file(t, "x.safetensors", safetensors(header, f32s(le, 5)))+":x")); !sameBits(got, []float32{5}) {
			t.Errorf("%s: found %v, expected [5]", metadata, got)
		}
	}

	const keys = 100_000
	many := []byte(`{"__metadata__":{`)
	for i := range keys {
		many = fmt.Appendf(many, `"key %d":"value",`, i)
	}
	many = append(append(many[:len(many)-1], "},"...), tensor+"}"...)
	data := safetensors(string(many), f32s(le, 5))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := tensorfile.ReadSafetensors(data, "x.safetensors")
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if names := f.Names(); !slices.Equal(names, []string{"x"}) {
		t.Errorf("found the tensors %v, expected x", names)
	}
	if n := after.Mallocs - before.Mallocs; n > keys/10 {
		t.Errorf("found %d allocations for %d keys, expected fewer than one for ten", n, keys)
	}
}

// The work for a header grows with the number of its tensors: the cost per tensor, in allocations
// and in bytes, does not depend on their number.
func TestManyTensors(t *testing.T) {
	cost := func(tensors int) (mallocs, size float64) {
		header := []byte("{")
		for i := range tensors {
			header = fmt.Appendf(header, `"layers.%d.weight":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]},`, i, 4*i, 4*i+4)
		}
		data := safetensors(string(append(header[:len(header)-1], '}')), make([]byte, 4*tensors))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := tensorfile.ReadSafetensors(data, "x.safetensors")
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(f.Names()); n != tensors {
			t.Errorf("found %d tensors, expected %d", n, tensors)
		}
		return float64(after.Mallocs-before.Mallocs) / float64(tensors), float64(after.TotalAlloc-before.TotalAlloc) / float64(tensors)
	}
	few, fewBytes := cost(10_000)
	many, manyBytes := cost(100_000)
	if many > 10 || many > 1.5*few || manyBytes > 2*fewBytes {
		t.Errorf("found %.1f allocations and %.0f bytes a tensor for 100,000, %.1f and %.0f for 10,000: expected at most 10, and no more for many", many, manyBytes, few, fewBytes)
	}
	t.Logf("%.1f allocations and %.0f bytes a tensor for 100,000, %.1f and %.0f for 10,000", many, manyBytes, few, fewBytes)
}
