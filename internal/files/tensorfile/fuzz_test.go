package tensorfile

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// A file of any bytes is refused with an error, or is read to the same values as by a plain reading
// of its bytes. Neither takes much more memory than the file.

// arrayFile returns a .npy file with this header.
func arrayFile(major byte, header string, data []byte) []byte {
	b := append([]byte(npyMagic), major, 0)
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

var arraySeeds = [][]byte{
	append(NPYHeader("f4", 2, 3), make([]byte, 24)...),
	append(NPYHeader("f4"), 0, 0, 0x80, 0x3f),
	append(NPYHeader("f4", 0, 5), []byte{}...),
	append(NPYHeader("f4", 3), make([]byte, 11)...),
	append(NPYHeader("f4", 1), 0, 0, 0xc0, 0x7f),
	append(NPYHeader("f4", math.MaxInt, math.MaxInt), make([]byte, 64)...),
	NPYHeader("f4", math.MaxInt, 0),
	arrayFile(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 1, 2), }\n", make([]byte, 32)),
	arrayFile(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7e}),
	arrayFile(2, "{'shape': (3, 2), 'fortran_order': True, 'descr': '<f2'}  \n", []byte("\x00\x3c\x01\x00\xff\x7b\x00\x80\x00\x00\x66\x2e")),
	arrayFile(3, `{"descr":"|u1","fortran_order":False,"shape":(4L,)}`, []byte{1, 2, 3, 255}),
	arrayFile(1, "{'descr': '<u8', 'fortran_order': True, 'shape': (2, 2), }\n", bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4)),
	arrayFile(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 4)),
	arrayFile(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 8)),
	arrayFile(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 4)),
	arrayFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (05,), }\n", make([]byte, 20)),
	arrayFile(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", nil),
	arrayFile(2, "", nil),
	arrayFile(4, "{}", nil),
	[]byte(npyMagic + "\x02\x00\xff\xff\xff\xff{"),
	[]byte(npyMagic),
}

// openIn opens a tensor of a file in memory.
func openIn(file []byte, path, name string) (*Tensor, error) {
	f := &File{path: path, mem: &memory{data: file}}
	if err := f.parse(nil); err != nil {
		return nil, err
	}
	return f.Tensor(name)
}

func FuzzNPY(f *testing.F) {
	for _, b := range arraySeeds {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var x *Tensor
		var err error
		bounded(t, len(file), 1, func() {
			if x, err = openIn(file, "x.npy", ""); err == nil {
				x.Float32s()
			}
		})
		if err != nil {
			refused(t, err)
			return
		}
		consistent(t, x, file)
	})
}

func FuzzNPZ(f *testing.F) {
	archive := func(method uint16, file []byte) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		m, err := w.CreateHeader(&zip.FileHeader{Name: "a.npy", Method: method})
		if err != nil {
			f.Fatal(err)
		}
		m.Write(file)
		if m, err = w.Create("other.txt"); err != nil {
			f.Fatal(err)
		}
		io.WriteString(m, "text")
		w.Close()
		return b.Bytes()
	}
	for _, b := range arraySeeds {
		f.Add(archive(zip.Store, b))
		f.Add(archive(zip.Deflate, b))
	}
	zeros := append(NPYHeader("f4", 1<<10, 1<<8), make([]byte, 1<<20)...)
	bomb := archive(zip.Deflate, zeros)
	f.Add(bomb)
	// The size in the directory and in the array's header are both too large.
	f.Add(archive(zip.Deflate, NPYHeader("f4", 1<<30)))
	f.Add(bomb[:len(bomb)/2])
	// A checksum of 0 that is wrong: archive/zip alone takes it for none.
	var unchecked, packed bytes.Buffer
	flat, _ := flate.NewWriter(&packed, flate.BestSpeed)
	flat.Write(arraySeeds[0])
	flat.Close()
	w := zip.NewWriter(&unchecked)
	m, err := w.CreateRaw(&zip.FileHeader{
		Name: "a.npy", Method: zip.Deflate,
		CompressedSize64: uint64(packed.Len()), UncompressedSize64: uint64(len(arraySeeds[0])),
	})
	if err != nil {
		f.Fatal(err)
	}
	m.Write(packed.Bytes())
	w.Close()
	f.Add(unchecked.Bytes())
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, file []byte) {
		var x *Tensor
		var err error
		bounded(t, len(file), maxDeflate, func() { // the members of the archive may be read
			if x, err = openIn(file, "x.npz", "a"); err == nil {
				x.Float32s()
			}
		})
		if err != nil {
			refused(t, err)
			return
		}
		// The bytes of the member, unpacked, are the file that was read here. archive/zip also
		// checks the bytes after them.
		r, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.File, func(m *zip.File) bool { return m.Name == "a.npy" })
		if i < 0 {
			i = slices.IndexFunc(r.File, func(m *zip.File) bool { return m.Name == "a" })
		}
		m, err := r.File[i].OpenRaw()
		if err != nil {
			t.Fatal(err)
		}
		if r.File[i].Method == zip.Deflate {
			m = flate.NewReader(m)
		}
		member, err := io.ReadAll(m)
		if err != nil {
			t.Fatal(err)
		}
		if sum := crc32.ChecksumIEEE(member); sum != r.File[i].CRC32 {
			t.Errorf("checksum %08x, and %08x in the directory", sum, r.File[i].CRC32)
		}
		consistent(t, x, member)
	})
}

func FuzzSafetensors(f *testing.F) {
	file := func(header string, data string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+data...)
	}
	for _, header := range []string{
		`{}`,
		`{"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}  `,
		`{"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`,
		`{"a":{"data_offsets":[0,8],"shape":[],"dtype":"I64"},"none":{"dtype":"F32","shape":[0,9],"data_offsets":[8,8]}}`,
		`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`,
		`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`,
		`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}}`,
		`{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"F64","shape":[9223372036854775807,2],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"F64","shape":[1e0],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"F64","shape":[1],"data_offsets":[8,0]}}`,
		`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8],"more":1}}`,
		`{"a":{"dtype":"F64","shape":[[1]],"data_offsets":[0,8]}}`,
		`{"__metadata__":{"a":1}}`,
		`{"a":`,
		`[1]`,
		``,
	} {
		f.Add(file(header, "\x00\x00\x80\x3f\x00\x00\x00\x40"))
		f.Add(file(header, ""))
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, file []byte) {
		var s *File
		var err error
		bounded(t, len(file), 1, func() { s, err = ReadSafetensors(file, "x") })
		if err != nil {
			refused(t, err)
			return
		}
		// The tensors, one after the other, end the file.
		length := binary.LittleEndian.Uint64(file)
		rest := len(file) - 8 - int(length)
		seen := map[string]bool{}
		for _, name := range s.Names() {
			if seen[name] {
				t.Fatalf("two tensors %q", name)
			}
			seen[name] = true
			x, err := s.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			rest -= len(x.data)
			if len(x.data) > 0 {
				at := bytes.Index(file[8+length:], x.data)
				if at < 0 {
					t.Fatalf("%q: found bytes that are not in the file", name)
				}
			}
			consistent(t, x, x.data)
		}
		if rest != 0 {
			t.Errorf("%d bytes belong to no tensor", rest)
		}
	})
}

func FuzzGGUF(f *testing.F) {
	kv := gguftest.KV
	for _, file := range []gguftest.File{
		{},
		{Version: 2, Metadata: []gguftest.Value{kv("general.architecture", "x"), kv("x.logit_scale", float32(2)), kv("t", []string{"a", "bc"})}},
		{Metadata: []gguftest.Value{kv("general.alignment", uint32(64))}, Alignment: 64, Tensors: []gguftest.Tensor{
			{Name: "output.weight", Type: gguftest.F32, Dims: []uint64{2, 2}, Data: gguftest.Floats(1, 2, 3, 4)},
			{Name: "b", Type: gguftest.F16, Dims: []uint64{2}, Data: []byte{0, 0x3c, 0, 0x40}},
		}},
		{Tensors: []gguftest.Tensor{
			{Name: "q", Type: gguftest.Q80, Dims: []uint64{32, 2}, Data: make([]byte, 68)},
			{Name: "none", Type: 99, Dims: []uint64{4}, Data: make([]byte, 7)},
			{Name: "i", Type: 27, Dims: []uint64{1, 1, 1, 2}, Data: make([]byte, 16)},
			{Name: "scalar", Data: gguftest.Floats(1)},
		}},
		{Tensors: []gguftest.Tensor{{Name: "w", Dims: []uint64{math.MaxUint64, 2}}}},
		{Tensors: []gguftest.Tensor{{Name: "w", Dims: []uint64{4}, Offset: 1 << 62}}},
		{Metadata: []gguftest.Value{kv("a", uint64(7)), kv("b", true), kv("c", gguftest.Raw("\x09\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))}},
		{Metadata: []gguftest.Value{kv("c", gguftest.Raw("\x09\x00\x00\x00\x08\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"))}},
	} {
		f.Add(file.Bytes())
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var g *File
		var err error
		bounded(t, len(file), 1, func() {
			g = &File{path: "x", mem: &memory{data: file}}
			err = g.parseGGUF(func([]byte) bool { return true })
		})
		if err != nil {
			refused(t, err)
			return
		}
		// Each tensor is a part of the file, none overlaps another, and the rest is the header and
		// padding.
		type extent struct{ from, to int }
		var extents []extent
		for _, name := range g.Names() {
			x, err := g.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(x.data) > 0 {
				from := int(uintptr(unsafe.Pointer(unsafe.SliceData(x.data))) - uintptr(unsafe.Pointer(unsafe.SliceData(file))))
				if from < 24 || from+len(x.data) > len(file) {
					t.Fatalf("%q: %d bytes from %d on of %d", name, len(x.data), from, len(file))
				}
				extents = append(extents, extent{from, from + len(x.data)})
			}
			if x.DType.Block() > 1 {
				n := x.DType.Size()
				for _, s := range x.Shape {
					n *= s
				}
				if n != len(x.data)*x.DType.Block() {
					t.Fatalf("%q: %d bytes for %v of %s", name, len(x.data), x.Shape, x.DType)
				}
			} else if x.DType != 0 {
				consistent(t, x, x.data)
			}
		}
		slices.SortFunc(extents, func(a, b extent) int { return a.from - b.from })
		for i := range extents {
			if i > 0 && extents[i].from < extents[i-1].to {
				t.Fatalf("tensors overlap: %v", extents)
			}
		}
		for key, v := range g.metadata {
			switch {
			case v.array:
				n := uint64(0)
				if _, err := g.Strings(key, func(int, []byte) { n++ }); v.kind == ggufString && (err != nil || n != v.count) {
					t.Fatalf("%q: %d strings of %d, %v", key, n, v.count, err)
				}
			case v.kind == ggufString:
				if _, err := g.Text(key); err != nil {
					t.Fatal(err)
				}
			case v.kind != ggufBool:
				if _, err := g.Number(key); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// An index is read as encoding/json reads it, or refused.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"total_size":1},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`,
		`{"weight_map":{}}`, `{"weight_map":{"a":"../x"}}`, `{"weight_map":{"a":"x","a":"y"}}`, `{"weight_map":[]}`,
		`{"weight_map":{"\u0061":"\u0078"}}`, `{"weight_map":{"a":null}}`, `{}`, `[`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var files map[string]string
		var err error
		bounded(t, len(data), 1, func() { files, err = parseIndex(data) })
		if err != nil {
			refused(t, fail("x", "index", "%w", err))
			return
		}
		var want struct {
			Map map[string]string `json:"weight_map"`
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(fields["weight_map"], &want.Map); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(files, want.Map) {
			t.Fatalf("found %q, want %q", files, want.Map)
		}
		for _, name := range files {
			if filepath.Join("folder", name) != "folder"+string(filepath.Separator)+name || strings.ContainsAny(name, `/\`) {
				t.Errorf("%q leads out of its folder", name)
			}
		}
	})
}

// bounded runs f and checks the memory it takes against the size of a file, whose content is up to
// times larger than the file.
func bounded(t *testing.T, size, times int, f func()) {
	t.Helper()
	const (
		perByte = 64       // of entries, names and errors
		content = 8        // of each byte of content: conversion, growth
		fixed   = 16 << 20 // decompression, and allocations by package testing
	)
	before := allocated()
	f()
	if got := allocated() - before; got > uint64(size)*uint64(perByte+content*times)+fixed {
		t.Errorf("%d bytes were allocated for a file of %d", got, size)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// refused checks the error for a file.
func refused(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if !strings.HasPrefix(text, "l2s: x") || !strings.Contains(text, "found ") || !strings.Contains(text, ", expected ") {
		t.Errorf("error %q, want one that names the value found and the value expected", text)
	}
	if len(text) > 4000 {
		t.Errorf("an error of %d bytes", len(text))
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("error %q has a control character", text)
	}
}

// consistent checks a tensor against a plain reading of its data, which are
// the last bytes of file.
func consistent(t *testing.T, x *Tensor, file []byte) {
	t.Helper()
	count := 1
	for _, n := range x.Shape {
		count *= n
	}
	size := x.DType.Size()
	if count < 0 || count*size > len(file) || x.Rows()*x.Cols() != count {
		t.Fatalf("shape %v of %s, %d rows of %d, in %d bytes", x.Shape, x.DType, x.Rows(), x.Cols(), len(file))
	}
	data := file[len(file)-count*size:]

	if x.DType.integer() {
		got, err := x.Int64s()
		if err == nil && len(got) != count {
			t.Fatalf("found %d integers, want %d", len(got), count)
		}
		for i := range got {
			if want := plain(x, data, i).(int64); got[i] != want {
				t.Fatalf("element %d: found %d, want %d", i, got[i], want)
			}
		}
		if _, err := x.Float32s(); err == nil {
			t.Error("integers were read as floats")
		}
		return
	}
	if _, err := x.Int64s(); err == nil {
		t.Errorf("%s was read as integers", x.DType)
	}
	got, err := x.Float32s()
	if !x.DType.float() {
		if err == nil {
			t.Errorf("%s was read as floats", x.DType)
		}
		return
	}
	bad := -1
	want := make([]float32, count)
	for i := range want {
		want[i] = float32(plain(x, data, i).(float64))
		if math.IsNaN(float64(want[i])) || math.IsInf(float64(want[i]), 0) {
			bad = i
			break
		}
	}
	switch {
	case bad >= 0 && err == nil:
		t.Fatalf("element %d is %v and was not refused", bad, want[bad])
	case bad < 0 && err != nil:
		t.Fatal(err)
	case bad >= 0:
		if want := x.notFinite(bad); err.Error() != want.Error() {
			t.Fatalf("error %q, want %q", err, want)
		}
		return
	}
	if !slices.EqualFunc(got, want, sameFloat) {
		t.Fatalf("found %v, want %v", got, want)
	}
	if x.Cols() == 0 || x.Cols() > 1<<16 {
		return
	}
	block := make([]float32, 3*x.Cols()+1)
	for first := 0; first < x.Rows(); {
		n, err := x.ReadRows(block, first)
		if err != nil || n < 1 {
			t.Fatalf("ReadRows from %d: %d rows, %v", first, n, err)
		}
		if !slices.EqualFunc(block[:n*x.Cols()], want[first*x.Cols():(first+n)*x.Cols()], sameFloat) {
			t.Fatalf("ReadRows from %d: found %v", first, block[:n*x.Cols()])
		}
		first += n
	}
}

func sameFloat(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// plain reads element i in C order, one byte at a time: a float64 of the float
// types, an int64 of the integers.
func plain(x *Tensor, data []byte, i int) any {
	at := i
	if x.fortran {
		at = 0
		rest := i
		for k := len(x.Shape) - 1; k >= 0; k-- {
			below := 1
			for _, n := range x.Shape[:k] {
				below *= n
			}
			at += rest % x.Shape[k] * below
			rest /= x.Shape[k]
		}
	}
	size := x.DType.Size()
	var bits uint64
	for k := range size {
		bits |= uint64(data[at*size+k]) << (8 * k)
	}
	switch x.DType {
	case Float16:
		return smallFloat(bits, 5, 10)
	case BFloat16:
		return smallFloat(bits, 8, 7)
	case Float32:
		return smallFloat(bits, 8, 23)
	case Float64:
		return math.Float64frombits(bits)
	case Int8:
		return int64(int8(bits))
	case Int16:
		return int64(int16(bits))
	case Int32:
		return int64(int32(bits))
	case Int64, Uint8, Uint16, Uint32, Uint64:
		return int64(bits)
	}
	panic(fmt.Sprint("no value of ", x.DType))
}

// smallFloat is the definition of a binary floating-point number with the given numbers of bits of
// exponent and fraction (IEEE 754-2019, 3.4). All of them are exact in float64.
func smallFloat(bits uint64, exponent, fraction int) float64 {
	e := int(bits >> fraction & (1<<exponent - 1))
	m := float64(bits & (1<<fraction - 1))
	bias := 1<<(exponent-1) - 1
	v := 0.0
	switch {
	case e == 1<<exponent-1 && m != 0:
		return math.NaN()
	case e == 1<<exponent-1:
		v = math.Inf(1)
	case e == 0:
		v = math.Ldexp(m, 1-bias-fraction)
	default:
		v = math.Ldexp(m+float64(uint64(1)<<fraction), e-bias-fraction)
	}
	if bits>>(exponent+fraction) != 0 {
		v = -v
	}
	return v
}

// A fault in mapped memory is an error, any other panic is not hidden.
func TestGuardLetsOtherPanicsPass(t *testing.T) {
	cause := errors.New("cause")
	defer func() {
		if r := recover(); r != cause {
			t.Errorf("found the panic %v, want %v", r, cause)
		}
	}()
	guard("x", func() error { panic(cause) })
}
