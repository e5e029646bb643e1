package tensorfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
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
		return fmt.Errorf("l2s: %w", err)
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

// writeFloats writes data as little-endian bytes.
func writeFloats(w io.Writer, data []float32) error {
	if hostBigEndian {
		return binary.Write(w, binary.LittleEndian, data)
	}
	_, err := w.Write(floatBytes(data))
	return err
}
