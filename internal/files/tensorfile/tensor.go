package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// maxRank is the largest number of dimensions that is read.
const maxRank = 8

// Tensor is an array in an open file. Its methods may be called from many goroutines at
// once: Close waits for those that are reading, and after it they return an error.
type Tensor struct {
	layout
	source string // file, or file:tensor, as errors name it
	data   []byte
	mem    *memory
	owner  bool // Close releases mem
}

// layout is the header's description of the bytes of an array.
type layout struct {
	DType   DType // of the elements in the file, which are little-endian
	Shape   []int // the size of each dimension, at most 8 of them, none of a scalar; not to be changed
	fortran bool  // the first index varies fastest
}

// newTensor makes a tensor of data if they have the size that the layout asks for.
func newTensor(source string, l layout, data []byte, mem *memory) (*Tensor, error) {
	want, err := l.bytes()
	if err != nil {
		return nil, fail(source, "shape", "%w", err)
	}
	if len(data) != want {
		return nil, fail(source, "data", "found %d bytes, expected %d (shape %v of %s)", len(data), want, l.Shape, l.DType)
	}
	l.fortran = l.fortran && len(l.Shape) > 1
	return &Tensor{layout: l, source: source, data: data, mem: mem}, nil
}

// bytes returns the size of the data. It refuses shapes whose size, leaving out dimensions of 0, is
// too large for an int, so that no product of dimensions overflows later.
func (l layout) bytes() (int, error) {
	if len(l.Shape) > maxRank {
		return 0, fmt.Errorf("found %d dimensions, expected at most %d", len(l.Shape), maxRank)
	}
	size, block, last := l.DType.Size(), l.DType.Block(), len(l.Shape)-1
	if l.DType.packed() {
		n, err := (layout{DType: Uint8, Shape: l.Shape}).bytes()
		switch {
		case err != nil:
			return 0, err
		case n%block != 0:
			return 0, fmt.Errorf("found %v of %s, expected a multiple of %d elements, which fill whole bytes", l.Shape, l.DType, block)
		}
		return n / block * size, nil // a scalar is 1 element, no multiple
	}
	if last < 0 && block > 1 || last >= 0 && l.Shape[last]%block != 0 {
		return 0, fmt.Errorf("found %v of %s, expected rows of a multiple of %d elements", l.Shape, l.DType, block)
	}
	for i, n := range l.Shape {
		if i == last {
			n /= block
		}
		if n > 0 && size > math.MaxInt/n {
			return 0, fmt.Errorf("found %v of %s, expected a size within %d bytes", l.Shape, l.DType, math.MaxInt)
		}
		size *= max(n, 1)
	}
	if slices.Contains(l.Shape, 0) {
		return 0, nil
	}
	return size, nil
}

// Rows returns the size of the first dimension; 1 for a scalar.
func (t *Tensor) Rows() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[0]
}

// Cols returns the elements of a row: the product of all dimensions but the first, 1 without any.
func (t *Tensor) Cols() int {
	n := 1
	for _, s := range t.Shape[min(1, len(t.Shape)):] {
		n *= s
	}
	return n
}

// count returns the number of elements of a type that is not quantised.
func (t *Tensor) count() int { return len(t.data) / t.DType.Size() }

// ExpectShape returns an error if the tensor has another shape than this one.
// The size -1 means any.
func (t *Tensor) ExpectShape(want ...int) error {
	if slices.EqualFunc(t.Shape, want, func(n, want int) bool { return want == -1 || want == n }) {
		return nil
	}
	sizes := strings.ReplaceAll(fmt.Sprint(want), "-1", "any")
	return fail(t.source, "shape", "found %v, expected %s", t.Shape, sizes)
}

// ExpectMatrix returns an error unless the tensor has two dimensions, at least a row and a column.
func (t *Tensor) ExpectMatrix() error {
	if err := t.ExpectShape(-1, -1); err != nil {
		return err
	}
	if t.Rows() < 1 || t.Cols() < 1 {
		return fail(t.source, "shape", "found %v, expected at least one row and one column", t.Shape)
	}
	return nil
}

// ExpectContexts returns an error unless the tensor is a matrix of context vectors of dim elements,
// at least one. A vector becomes the matrix of one row. A dimension of 1 may be between rows and
// columns, as vLLM writes it, or before them, as in a batch of one text.
func (t *Tensor) ExpectContexts(dim int) error {
	switch {
	case t.ExpectShape(dim) == nil:
		t.Shape = []int{1, dim}
	case t.ExpectShape(1, -1, dim) == nil:
		t.Shape = t.Shape[1:]
	}
	if err := t.ExpectShape(-1, dim); err != nil && t.ExpectShape(-1, 1, dim) != nil {
		if n := len(t.Shape); n > 2 && t.Shape[n-1] == dim {
			err = fmt.Errorf("%w: of texts without padding reshape(-1, %d) makes one matrix; of layers take the last", err, dim)
		}
		return err
	}
	if t.Rows() < 1 {
		return fail(t.source, "shape", "found %v, expected at least one row", t.Shape)
	}
	return nil
}

// Close releases the file of a tensor from OpenTensor. For a tensor of a File it does nothing.
func (t *Tensor) Close() error {
	if !t.owner {
		return nil
	}
	return t.mem.close()
}

// reading runs f, which reads the data, under a guard. It refuses a closed file, and a type for
// which ok is false.
func (t *Tensor) reading(ok bool, want string, f func() error) error {
	return t.mem.read(t.source, func() error {
		if !ok {
			return fail(t.source, "dtype", "found %s, expected %s", t.DType, want)
		}
		return f()
	})
}

func (t *Tensor) readingFloats(f func() error) error {
	return t.reading(t.DType.float(), "float16, bfloat16, float32 or float64", f)
}

// Float32s returns all elements in C order (the last index varies fastest) as float32,
// float64 rounded to nearest. It returns an error for other than the float types, and for
// an element that is NaN, infinite or, of type float64, too large for float32; the error
// names the first one.
//
// The slice is the caller's own if the file was opened by name: later changes of the file
// do not touch it. Of bytes in memory it may be a part that must not be written to.
func (t *Tensor) Float32s() ([]float32, error) {
	return t.floats(!t.InFile())
}

// Mapped is Float32s without a copy, if the file allows it, as [Tensor.InPlace] tells. The slice is
// then the mapped file, which may be larger than memory. It must not be written to, is valid until
// Close, and must be read under [fault.Guard].
func (t *Tensor) Mapped() ([]float32, error) { return t.floats(true) }

// floats returns all elements, in place if they can be and may be.
func (t *Tensor) floats(inPlace bool) (x []float32, err error) {
	err = t.readingFloats(func() error {
		if inPlace && t.InPlace() {
			x = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.data))), t.count())
			return t.checkFinite(x, 0)
		}
		x = make([]float32, t.count())
		if t.fortran {
			return t.read(x, 0)
		}
		size := t.DType.Size()
		return t.copied(func(at, end int) error { return t.readFlat(x[at/size:end/size], at/size) })
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// InPlace reports whether Mapped returns the data without a copy: float32 in C order and in
// the byte order of the machine, aligned in the file, as numpy and PyTorch write it.
func (t *Tensor) InPlace() bool {
	_, ok := t.View()
	return ok && t.DType == Float32
}

// plain reports whether the data are in C order and in the byte order of the machine. Blocks of
// quantised elements are little-endian on every machine.
func (t *Tensor) plain() bool {
	order := !hostBigEndian || t.DType.Size() == 1 || t.DType.Block() > 1
	return order && !t.fortran
}

// View returns the data without a copy, and whether they are elements in C order and in the byte
// order of the machine, aligned to their size, or blocks of quantised elements, with any values.
// The rules of [Tensor.Mapped] for validity and for reading hold for them, too.
func (t *Tensor) View() (data []byte, ok bool) {
	if !t.plain() || t.DType.Block() == 1 && uintptr(unsafe.Pointer(unsafe.SliceData(t.data)))%uintptr(t.DType.Size()) != 0 {
		return nil, false
	}
	return t.data, true
}

// InFile reports whether View is memory that changes with the file.
func (t *Tensor) InFile() bool { return t.mem.unmap != nil }

// Copy returns the result of View as the caller's own memory, aligned to 8 bytes, for any alignment
// in the file. ok is false, and nothing copied, for another order of elements or bytes.
func (t *Tensor) Copy() (data []byte, ok bool, err error) {
	if !t.plain() {
		return nil, false, nil
	}
	data = Aligned(len(t.data))
	err = t.reading(true, "", func() error {
		return t.copied(func(at, end int) error {
			copy(data[at:end], t.data[at:end])
			return nil
		})
	})
	return data, err == nil, err
}

// copied calls f for each part of the data, from byte at to end, which it copies, and hands the
// pages of the part back to the system, so that a file does not take its memory twice.
func (t *Tensor) copied(f func(at, end int) error) error {
	const block = 1 << 22 // within which the garbage collector waits
	for at := 0; at < len(t.data); at += block {
		end := min(at+block, len(t.data))
		if err := f(at, end); err != nil {
			return err
		}
		if t.InFile() {
			mem.Forget(t.data[at:end])
		}
	}
	return nil
}

// Aligned returns n bytes at a multiple of 8.
func Aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// ReadRows converts the rows from first on, until dst is full, and returns their number n: row
// first+i is dst[i*t.Cols():(i+1)*t.Cols()]. At the end of the tensor, first = t.Rows(), it returns
// 0 and no error. It returns an error for the types and elements that Float32s refuses, for another
// first, for a tensor without columns, and for a dst shorter than a row.
func (t *Tensor) ReadRows(dst []float32, first int) (n int, err error) {
	err = t.readingFloats(func() error {
		rows, cols := t.Rows(), t.Cols()
		switch {
		case cols == 0:
			return fail(t.source, "shape", "found %v, expected at least one column", t.Shape)
		case first < 0 || first > rows:
			return fail(t.source, "rows", "found first row %d, expected 0 to %d", first, rows)
		case len(dst) < cols:
			return fail(t.source, "rows", "found room for %d elements, expected a row of at least %d", len(dst), cols)
		}
		n = min(len(dst)/cols, rows-first)
		return t.read(dst[:n*cols], first)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// read converts whole rows from first on and checks them.
func (t *Tensor) read(dst []float32, first int) error {
	cols, size := t.Cols(), t.DType.Size()
	if !t.fortran {
		return t.readFlat(dst, first*cols)
	}
	var column []float32 // of some rows, whose elements are neighbours in the file
	for ; len(dst) > 0; first += len(column) {
		column = mem.Grow(column, min(max(16, inCache/cols), len(dst)/cols))
		part := dst[:len(column)*cols]
		for c := range cols {
			t.convert(column, t.data[(t.position(c)+first)*size:])
			for i, x := range column {
				part[i*cols+c] = x
			}
		}
		if err := t.checkFinite(part, first*cols); err != nil {
			return err
		}
		dst = dst[len(part):]
	}
	return nil
}

// inCache is a number of elements that stay in cache between conversion and check.
const inCache = 1 << 14

// readFlat converts elements of an array in C order from start on, and checks them.
func (t *Tensor) readFlat(dst []float32, start int) error {
	for part := range slices.Chunk(dst, inCache) {
		t.convert(part, t.data[start*t.DType.Size():])
		if err := t.checkFinite(part, start); err != nil {
			return err
		}
		start += len(part)
	}
	return nil
}

// position returns which element of the file element i in C order is.
func (t *Tensor) position(i int) (at int) {
	if !t.fortran {
		return i
	}
	for _, n := range slices.Backward(t.Shape) {
		at = at*n + i%n
		i /= n
	}
	return at
}

// unravel returns the index of element i in C order.
func (t *Tensor) unravel(i int) []int {
	index := make([]int, len(t.Shape))
	for k, n := range slices.Backward(t.Shape) {
		index[k] = i % n
		i /= n
	}
	return index
}

// element returns the bytes of element i in C order.
func (t *Tensor) element(i int) []byte {
	size := t.DType.Size()
	return t.data[t.position(i)*size:][:size]
}

// convert makes float32 of len(dst) elements at the start of src.
func (t *Tensor) convert(dst []float32, src []byte) {
	size := t.DType.Size()
	src = src[:len(dst)*size]
	le := binary.LittleEndian
	switch t.DType {
	case Float16:
		for i := range dst {
			dst[i] = float16.Widen(le.Uint16(src[2*i:]))
		}
	case BFloat16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16)
		}
	case Float32:
		if !hostBigEndian {
			copy(floatBytes(dst), src)
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case Float64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	}
}

// hostBigEndian is the byte order of this machine.
var hostBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// floatBytes returns the memory of x.
func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// checkFinite returns an error that names the first NaN or Inf of x, the elements from start on.
func (t *Tensor) checkFinite(x []float32, start int) error {
	const exponent = 0x7f800000 // whose bits are all 1 in NaN and Inf, and in no other number
	for i, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return t.notFinite(start + i)
		}
	}
	return nil
}

// notFinite is the error for element i in C order.
func (t *Tensor) notFinite(i int) error {
	index := t.unravel(i)
	where := fmt.Sprintf("at index %v", index)
	switch len(index) {
	case 0:
		where = "as the only element"
	case 1:
		where = fmt.Sprintf("at index %d", i)
	case 2:
		where = fmt.Sprintf("at row %d, column %d", index[0], index[1])
	}
	if t.DType == Float64 {
		if x := math.Float64frombits(uint64(t.integer(t.element(i)))); x-x == 0 {
			return fail(t.source, "values", "found %g %s, expected numbers within float32", x, where)
		}
	}
	var x [1]float32
	t.convert(x[:], t.element(i))
	return fail(t.source, "values", "found %v %s, expected finite numbers", x[0], where)
}

// Int64s returns all elements of an integer tensor in C order. It returns an
// error for the other types, and for a uint64 that is too large.
func (t *Tensor) Int64s() (out []int64, err error) {
	err = t.reading(t.DType.integer(), "an integer type", func() error {
		out = make([]int64, t.count())
		for i := range out {
			out[i] = t.integer(t.element(i))
			if t.DType == Uint64 && out[i] < 0 {
				return fail(t.source, "values", "found %d at index %v, expected integers within int64", uint64(out[i]), t.unravel(i))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// integer returns the value of one element.
func (t *Tensor) integer(b []byte) int64 {
	var u uint64
	for k := range b {
		u |= uint64(b[k]) << (8 * k)
	}
	if unused := 64 - 8*len(b); t.DType <= Int64 {
		return int64(u<<unused) >> unused // extends the sign
	}
	return int64(u)
}
