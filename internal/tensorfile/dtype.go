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

	// The quantised types of GGUF files that package kernels widens, see
	// kernels.QuantisedRows. Nothing here converts them.
	Q4_0
	Q5_0
	Q8_0
	Q4_K
	Q5_K
	Q6_K

	// The types below are known by their size only: a file may hold such
	// tensors beside those that are wanted.
	boolean
	complex64T
	float8E4M3
	float8E5M2
	float8E8M0
	q4_1
	q5_1
	q8_1
	q2_K
	q3_K
	q8_K
	iq1_S
	iq1_M
	iq2_XXS
	iq2_XS
	iq2_S
	iq3_XXS
	iq3_S
	iq4_NL
	iq4_XS
	tq1_0
	tq2_0
	mxfp4
)

// dtypes gives each type its name here, in safetensors and in npy (without
// the byte order; "" if npy has none or it is not read), the size of an
// element or, of types that store a number of elements together, the size of a
// block and the number.
var dtypes = [...]struct {
	name, safetensors, npy string
	size, block            int
}{
	Float16:    {"float16", "F16", "f2", 2, 1},
	BFloat16:   {"bfloat16", "BF16", "", 2, 1},
	Float32:    {"float32", "F32", "f4", 4, 1},
	Float64:    {"float64", "F64", "f8", 8, 1},
	Int8:       {"int8", "I8", "i1", 1, 1},
	Int16:      {"int16", "I16", "i2", 2, 1},
	Int32:      {"int32", "I32", "i4", 4, 1},
	Int64:      {"int64", "I64", "i8", 8, 1},
	Uint8:      {"uint8", "U8", "u1", 1, 1},
	Uint16:     {"uint16", "U16", "u2", 2, 1},
	Uint32:     {"uint32", "U32", "u4", 4, 1},
	Uint64:     {"uint64", "U64", "u8", 8, 1},
	boolean:    {"bool", "BOOL", "", 1, 1},
	complex64T: {"complex64", "C64", "", 8, 1},
	float8E4M3: {"float8_e4m3", "F8_E4M3", "", 1, 1},
	float8E5M2: {"float8_e5m2", "F8_E5M2", "", 1, 1},
	float8E8M0: {"float8_e8m0", "F8_E8M0", "", 1, 1},
	Q4_0:       {"q4_0", "", "", 18, 32},
	Q5_0:       {"q5_0", "", "", 22, 32},
	Q8_0:       {"q8_0", "", "", 34, 32},
	Q4_K:       {"q4_k", "", "", 144, 256},
	Q5_K:       {"q5_k", "", "", 176, 256},
	Q6_K:       {"q6_k", "", "", 210, 256},
	q4_1:       {"q4_1", "", "", 20, 32},
	q5_1:       {"q5_1", "", "", 24, 32},
	q8_1:       {"q8_1", "", "", 36, 32},
	q2_K:       {"q2_k", "", "", 84, 256},
	q3_K:       {"q3_k", "", "", 110, 256},
	q8_K:       {"q8_k", "", "", 292, 256},
	iq1_S:      {"iq1_s", "", "", 50, 256},
	iq1_M:      {"iq1_m", "", "", 56, 256},
	iq2_XXS:    {"iq2_xxs", "", "", 66, 256},
	iq2_XS:     {"iq2_xs", "", "", 74, 256},
	iq2_S:      {"iq2_s", "", "", 82, 256},
	iq3_XXS:    {"iq3_xxs", "", "", 98, 256},
	iq3_S:      {"iq3_s", "", "", 110, 256},
	iq4_NL:     {"iq4_nl", "", "", 18, 32},
	iq4_XS:     {"iq4_xs", "", "", 136, 256},
	tq1_0:      {"tq1_0", "", "", 54, 256},
	tq2_0:      {"tq2_0", "", "", 66, 256},
	mxfp4:      {"mxfp4", "", "", 17, 32},
}

// String returns the type's name as numpy, PyTorch or, in lower case, ggml
// write it: "float32", "q8_0".
func (d DType) String() string {
	if int(d) < len(dtypes) && dtypes[d].name != "" {
		return dtypes[d].name
	}
	return "unknown"
}

// Size returns the bytes of one element, or of a block of them, see Block.
func (d DType) Size() int {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

// Block returns the number of neighbouring elements of a row that are stored
// together, 1 but for the quantised types.
func (d DType) Block() int {
	if int(d) < len(dtypes) {
		return max(1, dtypes[d].block)
	}
	return 1
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
