package tensorfile

import "math"

// DType is the type of a tensor's elements as the file stores them.
type DType uint8

// The element types. Float16 is IEEE 754 binary16, BFloat16 the upper half of
// a Float32. Float32s and ReadRows read the four float types, Int64s the
// integers.
const (
	Float16 DType = iota + 1
	BFloat16
	Float32
	Float64
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64

	// The types below are known by their size only: a safetensors file may
	// hold such tensors beside those that are wanted.
	boolean
	complex64T
	float8E4M3
	float8E5M2
	float8E8M0
)

// dtypes gives each type its name here, in safetensors and in npy (without
// the byte order; "" where npy has none or it is not read), and its size.
var dtypes = [...]struct {
	name, safetensors, npy string
	size                   int
}{
	Float16:    {"float16", "F16", "f2", 2},
	BFloat16:   {"bfloat16", "BF16", "", 2},
	Float32:    {"float32", "F32", "f4", 4},
	Float64:    {"float64", "F64", "f8", 8},
	Int8:       {"int8", "I8", "i1", 1},
	Int16:      {"int16", "I16", "i2", 2},
	Int32:      {"int32", "I32", "i4", 4},
	Int64:      {"int64", "I64", "i8", 8},
	Uint8:      {"uint8", "U8", "u1", 1},
	Uint16:     {"uint16", "U16", "u2", 2},
	Uint32:     {"uint32", "U32", "u4", 4},
	Uint64:     {"uint64", "U64", "u8", 8},
	boolean:    {"bool", "BOOL", "", 1},
	complex64T: {"complex64", "C64", "", 8},
	float8E4M3: {"float8_e4m3", "F8_E4M3", "", 1},
	float8E5M2: {"float8_e5m2", "F8_E5M2", "", 1},
	float8E8M0: {"float8_e8m0", "F8_E8M0", "", 1},
}

// String returns the type's name as numpy and PyTorch write it: "float32".
func (d DType) String() string {
	if int(d) < len(dtypes) && dtypes[d].name != "" {
		return dtypes[d].name
	}
	return "unknown"
}

// Size returns the bytes of one element.
func (d DType) Size() int {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

func (d DType) float() bool   { return Float16 <= d && d <= Float64 }
func (d DType) integer() bool { return Int8 <= d && d <= Uint64 }

// halfBits returns the bits of the float32 equal to the binary16 number h. A
// NaN keeps its sign and payload.
func halfBits(h uint16) uint32 {
	sign := uint32(h) >> 15 << 31
	magnitude := uint32(h & 0x7fff)
	switch {
	case magnitude >= 0x7c00: // Inf and NaN
		return sign | 0x7f800000 | magnitude<<13
	case magnitude >= 0x0400: // the exponent's bias is 15 here, 127 there
		return sign | (magnitude<<13 + (127-15)<<23)
	}
	// Zero and the subnormal numbers are multiples of 2^-24, all of them
	// normal in float32.
	return sign | math.Float32bits(float32(magnitude)*0x1p-24)
}
