// Package gguftest writes GGUF files for tests, the broken ones among them: it
// checks nothing.
package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"
)

// File is what a file holds. The zero version is 3, the zero alignment 32 without
// a value that says so.
type File struct {
	Version   uint32
	Alignment int
	Metadata  []Value
	Tensors   []Tensor
}

// Value is a value of metadata: a string, []string, bool, uint32, int32, uint64, float64 or
// float32, or Raw, the bytes of a type and a value.
type Value struct {
	Key  string
	Data any
}

// KV returns a value of metadata.
func KV(key string, data any) Value { return Value{key, data} }

// Raw is the bytes of a value with the number of its type before it.
type Raw []byte

// Tensor is a tensor with its dimensions in ggml's order, the fastest first. An
// Offset of 0 stands for the place behind the tensor before.
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

func text(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }

// Bytes returns the file.
func (f File) Bytes() []byte {
	version, alignment := f.Version, f.Alignment
	if version == 0 {
		version = 3
	}
	if alignment == 0 {
		alignment = 32
	}
	b := le.AppendUint32([]byte("GGUF"), version)
	b = le.AppendUint64(b, uint64(len(f.Tensors)))
	b = le.AppendUint64(b, uint64(len(f.Metadata)))
	for _, v := range f.Metadata {
		b = text(b, v.Key)
		switch x := v.Data.(type) {
		case uint32:
			b = le.AppendUint32(le.AppendUint32(b, 4), x)
		case int32:
			b = le.AppendUint32(le.AppendUint32(b, 5), uint32(x))
		case float32:
			b = le.AppendUint32(le.AppendUint32(b, 6), math.Float32bits(x))
		case bool:
			b = le.AppendUint32(b, 7)
			if x {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		case string:
			b = text(le.AppendUint32(b, 8), x)
		case []string:
			b = le.AppendUint32(le.AppendUint32(b, 9), 8)
			b = le.AppendUint64(b, uint64(len(x)))
			for _, s := range x {
				b = text(b, s)
			}
		case uint64:
			b = le.AppendUint64(le.AppendUint32(b, 10), x)
		case float64:
			b = le.AppendUint64(le.AppendUint32(b, 12), math.Float64bits(x))
		case Raw:
			b = append(b, x...)
		default:
			panic(fmt.Sprintf("a value of type %T", x))
		}
	}
	pad := func(b []byte) []byte {
		for len(b)%alignment != 0 {
			b = append(b, 0)
		}
		return b
	}
	var data []byte
	for _, t := range f.Tensors {
		offset := t.Offset
		if offset == 0 {
			offset = uint64(len(data))
		}
		b = text(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		for _, n := range t.Dims {
			b = le.AppendUint64(b, n)
		}
		b = le.AppendUint64(le.AppendUint32(b, t.Type), offset)
		data = pad(append(data, t.Data...))
	}
	if len(f.Tensors) == 0 {
		return b
	}
	return append(pad(b), data...)
}

// Floats returns the bytes of float32 numbers.
func Floats(x ...float32) (b []byte) {
	for _, v := range x {
		b = le.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
