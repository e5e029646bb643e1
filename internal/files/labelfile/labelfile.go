// Package labelfile reads, writes and merges files of labels: the ids of the k largest logits of
// each context, best first.
//
// A file holds the labels of all contexts of a corpus, or of a run of neighbours among them: a
// part, so that a corpus can be labelled in pieces, on many machines. It names its layer,
// its contexts and its k. Parts that cover a corpus merge into the file that one
// process would have written, byte for byte.
//
// The file is a header of 128 bytes, fileHeader, and the ids, k for each context and
// uint32 each, all little-endian.
package labelfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // of CRC-32C

// Magic is the beginning of a file.
const Magic = "l2slabel"

const (
	version    = 1
	headerSize = 128
	crcSize    = 4 // of the checksum at the end of the header
)

// fileHeader is the header in the file's layout.
type fileHeader struct {
	Magic                            [8]byte
	Version, K                       uint32
	First, Count, Total, Labels, Dim uint64 // as in Header
	Fingerprint                      [32]byte
	Contexts                         Digest
	DataCRC                          uint32 // CRC-32C of the ids
	HeaderCRC                        uint32 // CRC-32C of the 124 bytes before
}

// Header describes the content of a file.
type Header struct {
	K           int      // labels of each context
	First       int      // the number of the first context in the file
	Count       int      // contexts in the file, neighbours
	Total       int      // contexts of the corpus
	Labels, Dim int      // the shape of the layer
	Fingerprint [32]byte // of the layer
	Contexts    Digest   // of the contexts in the file
}

// check returns an error that names the first field out of its range.
func (h *Header) check() error {
	switch {
	case h.Labels < 1 || uint64(h.Labels) > math.MaxUint32:
		return fmt.Errorf("labels: found %d, expected 1 to %d", h.Labels, uint32(math.MaxUint32))
	case h.K < 1 || h.K > h.Labels:
		return fmt.Errorf("k: found %d, expected 1 to the %d labels", h.K, h.Labels)
	case h.Dim < 1:
		return fmt.Errorf("dim: found %d, expected at least 1", h.Dim)
	case h.Count < 1:
		return fmt.Errorf("contexts: found %d, expected at least 1", h.Count)
	case h.First < 0 || h.First > h.Total-h.Count:
		return fmt.Errorf("contexts: found %d from number %d on, expected them within the %d of the corpus", h.Count, h.First, h.Total)
	case h.Count > (math.MaxInt-headerSize)/4/h.K:
		return fmt.Errorf("contexts: found %d with %d labels each, expected fewer", h.Count, h.K)
	}
	return nil
}

// CheckIDs returns an error unless the ids are below the number of labels and different within each
// row. ids has rows of k, for the contexts from number first on.
func CheckIDs(ids []uint32, k, labels, first int) error {
	sorted := make([]uint32, k)
	for row := range len(ids) / k {
		copy(sorted, ids[row*k:])
		slices.Sort(sorted)
		if last := sorted[k-1]; int64(last) >= int64(labels) {
			return fmt.Errorf("ids: found %d in context %d, expected ids below %d labels", last, first+row, labels)
		}
		for i, id := range sorted[1:] {
			if id == sorted[i] {
				return fmt.Errorf("ids: found %d twice in context %d, expected %d different ones", id, first+row, k)
			}
		}
	}
	return nil
}

// Whole reports whether the file has all contexts of the corpus.
func (h *Header) Whole() bool { return h.Count == h.Total }

func (h *Header) encode(dataCRC uint32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, fileHeader{ // a struct of fixed size
		[8]byte([]byte(Magic)), version, uint32(h.K), uint64(h.First), uint64(h.Count), uint64(h.Total), uint64(h.Labels), uint64(h.Dim), h.Fingerprint, h.Contexts, dataCRC, 0,
	})
	b = b[:headerSize-crcSize]
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decode(b []byte) (h Header, dataCRC uint32, err error) {
	if len(b) < len(Magic) || string(b[:len(Magic)]) != Magic {
		return h, 0, fmt.Errorf("magic: found %q, expected %q: not a file of labels", b[:min(len(b), len(Magic))], Magic)
	}
	var f fileHeader
	if _, err := binary.Decode(b, binary.LittleEndian, &f); err != nil {
		return h, 0, fmt.Errorf("file size: found %d, expected at least the %d of the header", len(b), headerSize)
	}
	if f.Version != version {
		return h, 0, fmt.Errorf("version: found %d, expected %d", f.Version, version)
	}
	if found := crc32.Checksum(b[:headerSize-crcSize], castagnoli); found != f.HeaderCRC {
		return h, 0, fmt.Errorf("header checksum: found %08x, expected %08x: the file is damaged", found, f.HeaderCRC)
	}
	for _, field := range []struct {
		name string
		n    uint64
	}{{"first context", f.First}, {"contexts", f.Count}, {"corpus", f.Total}, {"labels", f.Labels}, {"dim", f.Dim}} {
		if field.n > math.MaxInt {
			return h, 0, fmt.Errorf("%s: found %d, expected at most %d", field.name, field.n, math.MaxInt)
		}
	}
	h = Header{int(f.K), int(f.First), int(f.Count), int(f.Total), int(f.Labels), int(f.Dim), f.Fingerprint, f.Contexts}
	return h, f.DataCRC, h.check()
}

// Digest identifies contexts by their numbers and their places: the sum over the rows of SHA-256(i,
// h_i), with i as a 64-bit and the elements of h_i as 32-bit little-endian words, in four lanes of
// 64 bits. Because it is a sum, the digests of any parts add up to it. It finds mistakes, but is no
// protection from malice.
type Digest [sha256.Size]byte

// Add adds the digest of other rows.
func (d *Digest) Add(o Digest) {
	le := binary.LittleEndian
	for at := 0; at < len(d); at += 8 {
		le.PutUint64(d[at:], le.Uint64(d[at:])+le.Uint64(o[at:]))
	}
}

const digestChunk = 512 // rows between two looks at ctx

// DigestOf returns the digest of the values of rows, the first of which is context number first.
// It runs on the given number of goroutines, 0 for all cores; the result does not depend on it.
//
// It returns an error if an element is NaN or infinite, which names the first such context, or if
// ctx ends. If rows are mapped memory of a file that was cut off the error is [parallel.ErrGone].
func DigestOf(ctx context.Context, rows kernels.Rows, first, threads int) (sum Digest, err error) {
	const exponent = 0x7f800000
	digests := make([]Digest, parallel.Threads(threads, rows.Len()))
	err = parallel.Each(ctx, threads, rows.Len(), digestChunk, nil, func(worker, lo, hi int) error {
		h, text := make([]float32, rows.Dim()), make([]byte, 8+4*rows.Dim())
		for i := lo; i < hi; i++ {
			rows.Widen(h, i)
			binary.LittleEndian.PutUint64(text, uint64(first+i))
			for j, x := range h {
				bits := math.Float32bits(x)
				if bits&exponent == exponent {
					return fmt.Errorf("context %d: found %v at element %d, expected finite numbers", first+i, x, j)
				}
				binary.LittleEndian.PutUint32(text[8+4*j:], bits)
			}
			digests[worker].Add(sha256.Sum256(text))
		}
		return nil
	})
	for _, d := range digests {
		sum.Add(d)
	}
	return sum, err
}

// SameContexts reports whether contexts, row-major with dim elements each, are n contexts with a
// digest in hexadecimal, "" for none known: those that a screen was trained on, in their order, by
// its record. Figures on them flatter the screen. It reads all contexts, on the given number of
// goroutines, 0 for all cores.
func SameContexts(ctx context.Context, contexts []float32, dim, n int, digest string, threads int) (bool, error) {
	if dim < 1 || len(contexts)%dim != 0 {
		return false, fmt.Errorf("contexts: found %d values, expected rows of %d", len(contexts), dim)
	}
	if digest == "" || len(contexts)/dim != n {
		return false, nil
	}
	own, err := DigestOf(ctx, kernels.Float32Rows(contexts, dim), 0, threads)
	if err != nil {
		return false, fmt.Errorf("contexts: %w", err)
	}
	return hex.EncodeToString(own[:]) == digest, nil
}

// Writer writes a file from its first context to its last. It must end with
// Commit or Abort. It belongs to one goroutine.
type Writer struct {
	path   string
	file   *atomicfile.File
	header Header
	rows   int
	crc    uint32
	bytes  []byte
}

// Create starts a file. It fails at once if path cannot be written to; nothing is at path before
// Commit. The digest of h is not used: Write adds it up.
func Create(path string, h Header) (*Writer, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	h.Contexts = Digest{}
	if _, err := file.Write(make([]byte, headerSize)); err != nil {
		file.Abort()
		return nil, err
	}
	return &Writer{path: path, file: file, header: h}, nil
}

// Write appends the labels of the next contexts, K each, whose digest is d.
func (w *Writer) Write(labels []uint32, d Digest) error {
	n := len(labels) / w.header.K
	if len(labels)%w.header.K != 0 || n > w.header.Count-w.rows {
		return fmt.Errorf("%s: ids: found %d, expected rows of %d for at most %d contexts", w.path, len(labels), w.header.K, w.header.Count-w.rows)
	}
	if err := CheckIDs(labels, w.header.K, w.header.Labels, w.header.First+w.rows); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	for part := range slices.Chunk(labels, 1<<16) {
		w.bytes, _ = binary.Append(w.bytes[:0], binary.LittleEndian, part)
		w.crc = crc32.Update(w.crc, castagnoli, w.bytes)
		if _, err := w.file.Write(w.bytes); err != nil {
			return err
		}
	}
	w.header.Contexts.Add(d)
	w.rows += n
	return nil
}

// Commit completes the file and puts it at its path. If it fails the path is as it was before.
func (w *Writer) Commit() error {
	defer w.Abort()
	if w.rows != w.header.Count {
		return fmt.Errorf("%s: contexts: found %d, expected %d", w.path, w.rows, w.header.Count)
	}
	if _, err := w.file.WriteAt(w.header.encode(w.crc), 0); err != nil {
		return err
	}
	return w.file.Commit()
}

// Header returns the description of the content, with the digest so far.
func (w *Writer) Header() Header { return w.header }

// Abort gives the file up. After Commit it does nothing, so that it may be deferred.
func (w *Writer) Abort() { w.file.Abort() }

// File is a file of labels that is open.
type File struct {
	Header
	path string
	file *os.File
	crc  uint32
}

// Open opens a file and checks its header and its size. It must be closed.
func Open(path string) (_ *File, err error) {
	// Looked at before it is opened, since that would wait for the other end of a pipe.
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: found a device or a pipe, expected a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	info, err = file.Stat() // of the file that is read, also if another file has its name now
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s: found a folder, expected a file", path)
	case info.Size() == 0:
		return nil, fmt.Errorf("%s: found an empty file, expected labels", path)
	}
	head := make([]byte, headerSize)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	f := &File{path: path, file: file}
	if f.Header, f.crc, err = decode(head[:n]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if want := int64(headerSize) + 4*int64(f.Count)*int64(f.K); info.Size() != want {
		return nil, fmt.Errorf("%s: file size: found %d, expected %d for %d contexts with %d labels each", path, info.Size(), want, f.Count, f.K)
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// rowsAtOnce bounds the memory for a file that is being read.
const rowsAtOnce = 1 << 14

// Each reads the labels in order and calls yield with the labels of some contexts at a time, in a
// slice that is used again. Each finds damage of the file only at the end: the labels are valid
// only if Each returns nil. It returns the error of yield or of ctx if there is one.
func (f *File) Each(ctx context.Context, yield func(labels []uint32) error) error {
	if _, err := f.file.Seek(headerSize, io.SeekStart); err != nil {
		return err
	}
	size := min(f.Count, max(1, rowsAtOnce/f.K)) * f.K
	bytes, ids := make([]byte, 4*size), make([]uint32, size)
	crc := uint32(0)
	for left := f.Count * f.K; left > 0; left -= len(ids) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		ids = ids[:min(left, len(ids))]
		bytes = bytes[:4*len(ids)]
		if _, err := io.ReadFull(f.file, bytes); err != nil {
			return fmt.Errorf("%s: ids: %w", f.path, err)
		}
		crc = crc32.Update(crc, castagnoli, bytes)
		binary.Decode(bytes, binary.LittleEndian, ids)
		if err := CheckIDs(ids, f.K, f.Labels, f.First+f.Count-left/f.K); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if err := yield(ids); err != nil {
			return err
		}
	}
	if crc != f.crc {
		return fmt.Errorf("%s: checksum: found %08x, expected %08x: the file is damaged", f.path, crc, f.crc)
	}
	return nil
}

// ReadAll returns all labels of the file: Count rows of K.
func (f *File) ReadAll(ctx context.Context) ([]uint32, error) {
	labels := make([]uint32, 0, f.Count*f.K)
	err := f.Each(ctx, func(part []uint32) error {
		labels = append(labels, part...)
		return nil
	})
	return labels, err
}
