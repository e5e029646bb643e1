// Package gguftest writes GGUF files for tests, also broken ones, and files of safetensors: it checks
// nothing.
package gguftest

import (
	"cmp"
	"encoding/binary"
	"reflect"
)

// File is the content of a file. The zero version is 3, the zero alignment 32 without a value for
// it.
type File struct {
	Version   uint32
	Alignment int
	Metadata  []Value
	Tensors   []Tensor
}

// Value is a value of metadata: a string, []string, bool, uint32, int32, uint64, float64 or
// float32, or Raw.
type Value struct {
	Key  string
	Data any
}

// KV returns a value of metadata.
func KV(key string, data any) Value { return Value{key, data} }

// Raw is the bytes of a value with the number of its type before it.
type Raw []byte

// Tensor is a tensor with its dimensions in ggml's order, the fastest first. An
// Offset of 0 means the place after the previous tensor.
type Tensor struct {
	Name   string
	Type   uint32
	Dims   []uint64
	Data   []byte
	Offset uint64
}

// Types of tensors, enum ggml_type.
const (
	F32 = 0
	F16 = 1
	Q80 = 8
)

var le = binary.LittleEndian

// kinds are the types of numbers, enum gguf_metadata_value_type.
var kinds = map[reflect.Kind]uint32{reflect.Uint32: 4, reflect.Int32: 5, reflect.Float32: 6, reflect.Bool: 7, reflect.Uint64: 10, reflect.Float64: 12}

// number appends a number, or several.
func number(b []byte, x any) []byte {
	b, err := binary.Append(b, le, x)
	if err != nil {
		panic(err)
	}
	return b
}

func text(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }

// Bytes returns the file.
func (f File) Bytes() []byte {
	version, alignment := cmp.Or(f.Version, 3), cmp.Or(f.Alignment, 32)
	b := le.AppendUint32([]byte("GGUF"), version)
	b = le.AppendUint64(b, uint64(len(f.Tensors)))
	b = le.AppendUint64(b, uint64(len(f.Metadata)))
	for _, v := range f.Metadata {
		b = text(b, v.Key)
		switch x := v.Data.(type) {
		case Raw:
			b = append(b, x...)
		case string:
			b = text(le.AppendUint32(b, 8), x)
		case []string:
			b = le.AppendUint32(le.AppendUint32(b, 9), 8)
			b = le.AppendUint64(b, uint64(len(x)))
			for _, s := range x {
				b = text(b, s)
			}
		default:
			b = number(le.AppendUint32(b, kinds[reflect.TypeOf(x).Kind()]), x)
		}
	}
	pad := func(b []byte) []byte { return append(b, make([]byte, (alignment-len(b)%alignment)%alignment)...) }
	var data []byte
	for _, t := range f.Tensors {
		offset := t.Offset
		if offset == 0 {
			offset = uint64(len(data))
		}
		b = text(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		b = number(b, t.Dims)
		b = le.AppendUint64(le.AppendUint32(b, t.Type), offset)
		data = pad(append(data, t.Data...))
	}
	if len(f.Tensors) == 0 {
		return b
	}
	return append(pad(b), data...)
}

// Floats returns the bytes of float32 numbers.
func Floats(x ...float32) []byte { return number(nil, x) }
