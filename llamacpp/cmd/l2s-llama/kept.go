package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // of CRC-32C

// keptStates is the file in which the making of a preview keeps the states of each text, so that it
// goes on after them when it was interrupted or killed: half of its time is theirs. The file has keptMagic, a
// fingerprint of all that the states depend on, and records: the number of float32s, these, and
// their CRC-32C, in little endian. Another run's file, and a record that is not whole, are
// replaced.
type keptStates struct {
	file *os.File // nil: nothing is kept
	left [][]float32
	buf  []byte
}

const (
	keptMagic = "\x89L2S states\r\n\x1a\n\x01"
	keptMost  = 1 << 28 // floats of a record
)

// keptFile names the file for a preview.
func keptFile(preview string) string { return preview + ".states" }

// openKept opens the file, or makes it; an empty path means that nothing is kept. Rows of dim
// floats make a record. Nothing replaces a file of another kind.
func openKept(path string, of [sha256.Size]byte, dim int) (*keptStates, error) {
	k := &keptStates{}
	if path == "" {
		return k, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return k, fmt.Errorf("%s: found a folder, a pipe or a device, expected a regular file, or none", path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return k, err
	}
	head := append([]byte(keptMagic), of[:]...)
	found := make([]byte, len(head))
	n, err := io.ReadFull(file, found)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		file.Close()
		return k, err
	}
	if magic := min(n, len(keptMagic)); string(found[:magic]) != keptMagic[:magic] {
		file.Close()
		return k, fmt.Errorf("%s: found another kind of file, expected the states of an interrupted run: move it away", path)
	}
	end := int64(len(head))
	if bytes.Equal(found[:n], head) {
		end = k.read(file, end, dim)
	} else if _, err := file.WriteAt(head, 0); err != nil {
		file.Close()
		return k, err
	}
	if err = file.Truncate(end); err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return k, err
	}
	k.file = file
	return k, nil
}

// read reads the whole records, and returns where they end.
func (k *keptStates) read(file *os.File, at int64, dim int) int64 {
	info, err := file.Stat()
	if err != nil {
		return at
	}
	for {
		var size [4]byte
		if _, err := file.ReadAt(size[:], at); err != nil {
			return at
		}
		n := int64(binary.LittleEndian.Uint32(size[:]))
		if n > keptMost || n%int64(dim) != 0 || at+8+4*n > info.Size() {
			return at
		}
		data := make([]byte, 4*n+4)
		if _, err := file.ReadAt(data, at+4); err != nil || crc32.Checksum(data[:4*n], castagnoli) != binary.LittleEndian.Uint32(data[4*n:]) {
			return at
		}
		states := make([]float32, n)
		for i := range states {
			states[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		k.left = append(k.left, states)
		at += 8 + 4*n
	}
}

// next returns the states of the next record of the earlier run, and whether there is one.
func (k *keptStates) next() ([]float32, bool) {
	if len(k.left) == 0 {
		return nil, false
	}
	states := k.left[0]
	k.left = k.left[1:]
	return states, true
}

// add keeps the states of one more record. After an error of the disk nothing more is kept: the run needs no file.
func (k *keptStates) add(states []float32) {
	if k.file == nil || len(states) > keptMost {
		return
	}
	k.buf = binary.LittleEndian.AppendUint32(k.buf[:0], uint32(len(states)))
	for _, x := range states {
		k.buf = binary.LittleEndian.AppendUint32(k.buf, math.Float32bits(x))
	}
	k.buf = binary.LittleEndian.AppendUint32(k.buf, crc32.Checksum(k.buf[4:], castagnoli))
	if _, err := k.file.Write(k.buf); err != nil {
		k.close()
	}
}

func (k *keptStates) close() {
	if k.file != nil {
		k.file.Close()
		k.file = nil
	}
}
