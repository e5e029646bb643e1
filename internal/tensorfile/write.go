package tensorfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
)

// WriteNPY writes data, in C order, as a float32 array of this shape, without sizes a scalar. The
// file equals the output of numpy.save (numpy 1.23 or later), byte for byte. It appears under its
// name when it is complete: an error leaves the old file.
func WriteNPY(path string, data []float32, shape ...int) error {
	if err := checkData(path, data, shape); err != nil {
		return err
	}
	return write(path, func(w io.Writer) error {
		if _, err := w.Write(NPYHeader("f4", shape...)); err != nil {
			return err
		}
		return writeFloats(w, data)
	})
}

func write(path string, f func(io.Writer) error) error {
	if err := atomicfile.WriteFile(path, f); err != nil {
		return fmt.Errorf("tensorfile: %w", err)
	}
	return nil
}

func checkData(source string, data []float32, shape []int) error {
	if len(shape) > 0 && slices.Min(shape) < 0 {
		return fail(source, "shape", "found %v, expected sizes of 0 or more", shape)
	}
	want, err := layout{DType: Float32, Shape: shape}.bytes()
	if err != nil {
		return fail(source, "shape", "%w", err)
	}
	if len(data) != want/4 {
		return fail(source, "data", "found %d elements, expected %d (shape %v)", len(data), want/4, shape)
	}
	return nil
}

// NPYHeader returns the header of a .npy array of that type, such as "f4" or "f2", in
// C order, byte for byte as numpy.save writes it. Its length does not depend on shape[0]: numpy
// leaves room for 21 digits of it, so that an array can grow.
func NPYHeader(descr string, shape ...int) []byte {
	const align, growth = 64, 21
	tuple := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	dict := "{'descr': '<" + descr + "', 'fortran_order': False, 'shape': (" + tuple + "), }"
	if len(shape) > 0 {
		dict += strings.Repeat(" ", growth-len(strconv.Itoa(shape[0])))
	}
	const before = len(npyMagic) + 4
	dict += strings.Repeat(" ", align-(before+len(dict)+1)%align) + "\n"
	head := append([]byte(npyMagic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(dict)))
	return append(head, dict...)
}

// ToFloat16 rounds to float16, ties to even. It reports false if x is too large, or NaN.
func ToFloat16(x float32) (bits uint16, ok bool) {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	switch b &= 1<<31 - 1; {
	case b >= 0x477ff000: // 65520, which would round to infinity
		return 0, false
	case b >= 0x38800000: // a normal number: 2^-14 or more
		b += 0xfff + b>>13&1
		return sign | uint16((b-112<<23)>>13), true
	}
	return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*0x1p24)), true // a multiple of 2^-24
}

// writeFloats writes data as little-endian bytes.
func writeFloats(w io.Writer, data []float32) error {
	if hostBigEndian {
		return binary.Write(w, binary.LittleEndian, data)
	}
	_, err := w.Write(floatBytes(data))
	return err
}

// Array is a float32 tensor to be written: Data holds its elements in C order.
type Array struct {
	Name  string
	Shape []int
	Data  []float32
}

// WriteSafetensors writes arrays, each of another name, as tensors of type
// F32. The file equals the output of the format's own Python package, byte for byte, which
// sorts by name, and appears under its name when it is complete.
func WriteSafetensors(path string, arrays ...Array) error {
	arrays = slices.Clone(arrays)
	slices.SortFunc(arrays, func(a, b Array) int { return strings.Compare(a.Name, b.Name) })
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	entries := map[string]entry{} // which json writes in the order of the names
	at := 0
	for _, a := range arrays {
		source := path + ":" + Label(a.Name)
		_, twice := entries[a.Name]
		switch {
		case a.Name == metadataKey || !utf8.ValidString(a.Name):
			return fail(source, "name", "found %s, expected another name in UTF-8", Label(a.Name))
		case twice:
			return fail(source, "name", "found it twice, expected once")
		}
		if err := checkData(source, a.Data, a.Shape); err != nil {
			return err
		}
		end := at + 4*len(a.Data)
		if end < at { // of arrays that share their data
			return fail(source, "data", "found more bytes than an int counts, expected fewer")
		}
		entries[a.Name] = entry{dtypes[Float32].safetensors, append([]int{}, a.Shape...), [2]int{at, end}}
		at = end
	}
	var header bytes.Buffer
	enc := json.NewEncoder(&header)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(entries); err != nil {
		return fail(path, "header", "%w", err)
	}
	header.Truncate(header.Len() - 1) // the newline after it
	header.WriteString(strings.Repeat(" ", -header.Len()&7))
	if header.Len() > maxSafetensorsHeader {
		return fail(path, "header length", "found %d, expected at most %d", header.Len(), maxSafetensorsHeader)
	}
	return write(path, func(w io.Writer) error {
		if err := binary.Write(w, binary.LittleEndian, uint64(header.Len())); err != nil {
			return err
		}
		if _, err := header.WriteTo(w); err != nil {
			return err
		}
		for _, a := range arrays {
			if err := writeFloats(w, a.Data); err != nil {
				return err
			}
		}
		return nil
	})
}
