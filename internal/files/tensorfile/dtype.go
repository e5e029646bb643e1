package tensorfile

// DType is the type of a tensor's elements as the file stores them: its place in dtypes.
type DType uint8

// The element types. Float16 is IEEE 754 binary16, BFloat16 the upper half of a Float32. Float32s
// and ReadRows read the four float types, Int64s the integers. The quantised types of GGUF files
// have the layout of kernels.QuantisedRows; nothing here converts them.
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
	Q4_0
	Q5_0
	Q8_0
	Q4_K
	Q5_K
	Q6_K
	Q4_1
	Q5_1
)

// dtypes are the types with their names in the three formats, for GGUF the numbers of enum
// ggml_type in ggml.h, -1 for none. For types without a constant only the size is known: a file may
// hold such tensors in addition to the wanted ones.
var dtypes = []struct {
	name, safetensors, npy string
	ggml                   int
	size, block            int
}{
	{"unknown", "", "", -1, 0, 1},
	{"float16", "F16", "f2", 1, 2, 1},
	{"bfloat16", "BF16", "", 30, 2, 1},
	{"float32", "F32", "f4", 0, 4, 1},
	{"float64", "F64", "f8", 28, 8, 1},
	{"int8", "I8", "i1", 24, 1, 1},
	{"int16", "I16", "i2", 25, 2, 1},
	{"int32", "I32", "i4", 26, 4, 1},
	{"int64", "I64", "i8", 27, 8, 1},
	{"uint8", "U8", "u1", -1, 1, 1},
	{"uint16", "U16", "u2", -1, 2, 1},
	{"uint32", "U32", "u4", -1, 4, 1},
	{"uint64", "U64", "u8", -1, 8, 1},
	{"q4_0", "", "", 2, 18, 32},
	{"q5_0", "", "", 6, 22, 32},
	{"q8_0", "", "", 8, 34, 32},
	{"q4_k", "", "", 12, 144, 256},
	{"q5_k", "", "", 13, 176, 256},
	{"q6_k", "", "", 14, 210, 256},
	{"q4_1", "", "", 3, 20, 32},
	{"q5_1", "", "", 7, 24, 32},

	{"bool", "BOOL", "", -1, 1, 1},
	{"complex64", "C64", "", -1, 8, 1},
	{"float8_e4m3", "F8_E4M3", "", -1, 1, 1},
	{"float8_e5m2", "F8_E5M2", "", -1, 1, 1},
	{"float8_e8m0", "F8_E8M0", "", -1, 1, 1},
	{"float8_e4m3fnuz", "F8_E4M3FNUZ", "", -1, 1, 1},
	{"float8_e5m2fnuz", "F8_E5M2FNUZ", "", -1, 1, 1},
	{"float6_e2m3", "F6_E2M3", "", -1, 3, 4},
	{"float6_e3m2", "F6_E3M2", "", -1, 3, 4},
	{"float4_e2m1", "F4", "", -1, 1, 2},
	{"q8_1", "", "", 9, 36, 32},
	{"q2_k", "", "", 10, 84, 256},
	{"q3_k", "", "", 11, 110, 256},
	{"q8_k", "", "", 15, 292, 256},
	{"iq1_s", "", "", 19, 50, 256},
	{"iq1_m", "", "", 29, 56, 256},
	{"iq2_xxs", "", "", 16, 66, 256},
	{"iq2_xs", "", "", 17, 74, 256},
	{"iq2_s", "", "", 22, 82, 256},
	{"iq3_xxs", "", "", 18, 98, 256},
	{"iq3_s", "", "", 21, 110, 256},
	{"iq4_nl", "", "", 20, 18, 32},
	{"iq4_xs", "", "", 23, 136, 256},
	{"tq1_0", "", "", 34, 54, 256},
	{"tq2_0", "", "", 35, 66, 256},
	{"mxfp4", "", "", 39, 17, 32},
	{"nvfp4", "", "", 40, 36, 64},
	{"q1_0", "", "", 41, 18, 128},
	{"q2_0", "", "", 42, 18, 64},
}

// String returns the type's name as numpy, PyTorch or, in lower case, ggml
// write it: "float32", "q8_0".
func (d DType) String() string { return dtypes[d].name }

// Size returns the bytes of one element, or of a block of them, see Block.
func (d DType) Size() int { return dtypes[d].size }

// Block returns the number of neighbouring elements that are stored together, 1 except for the
// quantised types of GGUF, whose blocks are parts of a row, and the types of 4 and 6 bits of
// safetensors.
func (d DType) Block() int { return dtypes[d].block }

// packed reports whether elements follow each other in bits, across the ends of rows.
func (d DType) packed() bool { return dtypes[d].block > 1 && dtypes[d].safetensors != "" }

func (d DType) float() bool   { return Float16 <= d && d <= Float64 }
func (d DType) integer() bool { return Int8 <= d && d <= Uint64 }
