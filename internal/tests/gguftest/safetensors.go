package gguftest

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
)

// Array is a float32 tensor, whose elements are in C order.
type Array struct {
	Name  string
	Shape []int
	Data  []float32
}

// Safetensors returns a file of arrays, in their order.
func Safetensors(arrays ...Array) []byte {
	var header bytes.Buffer
	var data []byte
	text := func(x any) { // of a type that JSON has
		b, _ := json.Marshal(x)
		header.Write(b)
	}
	for i, a := range arrays {
		header.WriteByte("{,"[min(i, 1)])
		at := len(data)
		data = append(data, Floats(a.Data...)...)
		text(a.Name)
		header.WriteByte(':')
		text(struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{"F32", append([]int{}, a.Shape...), [2]int{at, len(data)}})
	}
	header.WriteByte('}')
	header.WriteString(strings.Repeat(" ", -header.Len()&7))
	return slices.Concat(le.AppendUint64(nil, uint64(header.Len())), header.Bytes(), data)
}

// WriteSafetensors writes such a file.
func WriteSafetensors(path string, arrays ...Array) error {
	return os.WriteFile(path, Safetensors(arrays...), 0o666)
}
