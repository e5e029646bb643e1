package screen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
)

// The file is described in FORMAT.md. Everything in it has one place and one
// form, so that equal models have equal bytes and a reader has nothing to
// decide: it computes what must stand in a field and compares.

const (
	magic      = "\x89L2S\r\n\x1a\n"
	version    = 2
	headerSize = 128
	entrySize  = 32
	alignment  = 64

	// maxSections bounds the section table of a file that this version reads.
	maxSections = 64
)

// Places in the header.
const (
	atVersion     = 8
	atSections    = 12
	atFileSize    = 16
	atLabels      = 24
	atDim         = 32
	atClusters    = 40
	atFingerprint = 48
	atTableCRC    = 80
	atReserved    = 84
	atHeaderCRC   = 124
)

// Places in an entry of the section table.
const (
	atKind       = 0
	atFlags      = 4
	atOffset     = 8
	atLength     = 16
	atSectionCRC = 24
	atEntryZero  = 28
)

// flagOptional marks a section that a reader may pass over.
const flagOptional = 1

func align(n uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }

type section struct {
	kind, flags uint32
	data        []byte
}

// Save writes the model to a file. The file appears under its name when it is
// complete: an error, or the end of the process in between, leaves what was
// there before. Equal models give equal files.
func (m *Model) Save(path string) error {
	if err := m.save(path); err != nil {
		return fmt.Errorf("screen: %w", err)
	}
	return nil
}

func (m *Model) save(path string) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(m.encode()); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.encode())
	return int64(n), err
}

func (m *Model) encode() []byte {
	var sections []section
	for kind, k := range kinds {
		if k.write == nil {
			continue
		}
		if data := k.write(m); data != nil {
			sections = append(sections, section{kind: uint32(kind), flags: k.flags, data: data})
		}
	}
	sections = append(sections, m.extra...)

	at := align(headerSize + entrySize*uint64(len(sections)))
	size := at
	for _, s := range sections {
		size += align(uint64(len(s.data)))
	}
	file := make([]byte, size)
	le := binary.LittleEndian
	table := file[headerSize : headerSize+entrySize*len(sections)]
	for i, s := range sections {
		entry := table[i*entrySize:]
		le.PutUint32(entry[atKind:], s.kind)
		le.PutUint32(entry[atFlags:], s.flags)
		le.PutUint64(entry[atOffset:], at)
		le.PutUint64(entry[atLength:], uint64(len(s.data)))
		le.PutUint32(entry[atSectionCRC:], crc32c.Sum(s.data))
		copy(file[at:], s.data)
		at += align(uint64(len(s.data)))
	}
	copy(file, magic)
	le.PutUint32(file[atVersion:], version)
	le.PutUint32(file[atSections:], uint32(len(sections)))
	le.PutUint64(file[atFileSize:], size)
	le.PutUint64(file[atLabels:], uint64(m.labels))
	le.PutUint64(file[atDim:], uint64(m.Dim()))
	le.PutUint64(file[atClusters:], uint64(m.Clusters()))
	copy(file[atFingerprint:], m.fingerprint[:])
	le.PutUint32(file[atTableCRC:], crc32c.Sum(table))
	le.PutUint32(file[atHeaderCRC:], crc32c.Sum(file[:atHeaderCRC]))
	return file
}

// Load reads a model from a file. The file is read whole and not kept open. Time and
// memory are in proportion to its size: all of it is checked, and the vectors of the
// clusters are quantised.
// An error names the file, the field, what was found and what was expected.
func Load(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	defer f.Close()
	m, err := load(f)
	if err != nil {
		return nil, fmt.Errorf("screen: %s: %w", path, err)
	}
	return m, nil
}

// load reads the header before anything else, so that a large file of
// another kind is refused at once.
func load(f *os.File) (*Model, error) {
	var file bytes.Buffer
	if _, err := file.ReadFrom(io.LimitReader(f, headerSize)); err != nil {
		return nil, err
	}
	h, err := parseHeader(file.Bytes())
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		if err := h.checkSize(uint64(info.Size())); err != nil {
			return nil, err
		}
	}
	// One byte more than the header states shows that there is more.
	if _, err := file.ReadFrom(io.LimitReader(f, int64(h.size)-headerSize+1)); err != nil {
		return nil, err
	}
	return decode(file.Bytes())
}

// Read returns the model whose file has the bytes data. It copies what it
// needs of them, and allocates no more than a small multiple of len(data)
// whatever they are. An error names the field, what was found and what was
// expected.
func Read(data []byte) (*Model, error) {
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m, nil
}

type header struct {
	sections              int
	size                  uint64
	labels, dim, clusters uint64
	fingerprint           [32]byte
	tableCRC              uint32
}

// parseHeader reads and checks what the header says for itself. data is the
// file or its beginning.
func parseHeader(data []byte) (header, error) {
	var h header
	if len(data) == 0 {
		return h, fmt.Errorf("header: found an empty file, expected at least %d bytes", headerSize)
	}
	if n := min(len(data), len(magic)); string(data[:n]) != magic[:n] {
		return h, fmt.Errorf("magic: found % x, expected % x: not a screen file", data[:n], magic)
	}
	if len(data) < headerSize {
		return h, fmt.Errorf("header: found %d bytes, expected at least %d", len(data), headerSize)
	}
	le := binary.LittleEndian
	if v := le.Uint32(data[atVersion:]); v != version {
		return h, fmt.Errorf("version: found %d, expected %d", v, version)
	}
	if found, sum := le.Uint32(data[atHeaderCRC:]), crc32c.Sum(data[:atHeaderCRC]); found != sum {
		return h, fmt.Errorf("header: checksum: found %08x, expected %08x", found, sum)
	}
	for i, b := range data[atReserved:atHeaderCRC] {
		if b != 0 {
			return h, fmt.Errorf("header: found %#02x at offset %d, expected zero", b, atReserved+i)
		}
	}
	sections := le.Uint32(data[atSections:])
	if sections < lastKind || sections > maxSections {
		return h, fmt.Errorf("section count: found %d, expected %d to %d", sections, lastKind, maxSections)
	}
	h = header{
		sections: int(sections),
		size:     le.Uint64(data[atFileSize:]),
		labels:   le.Uint64(data[atLabels:]),
		dim:      le.Uint64(data[atDim:]),
		clusters: le.Uint64(data[atClusters:]),
		tableCRC: le.Uint32(data[atTableCRC:]),
	}
	copy(h.fingerprint[:], data[atFingerprint:])
	if least := align(uint64(headerSize + entrySize*h.sections)); h.size < least || h.size > math.MaxInt || h.size%alignment != 0 {
		return h, fmt.Errorf("file size: found %d in the header, expected a multiple of %d of at least %d", h.size, alignment, least)
	}
	for _, f := range []struct {
		name  string
		value uint64
	}{{"labels", h.labels}, {"dim", h.dim}, {"clusters", h.clusters}} {
		if f.value < 1 || f.value > maxCount {
			return h, fmt.Errorf("%s: found %d, expected 1 to %d", f.name, f.value, uint64(maxCount))
		}
	}
	return h, nil
}

func (h *header) checkSize(found uint64) error {
	if found != h.size {
		return fmt.Errorf("file size: found %d bytes, expected the %d that the header states", found, h.size)
	}
	return nil
}

func decode(data []byte) (*Model, error) {
	h, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	if err := h.checkSize(uint64(len(data))); err != nil {
		return nil, err
	}
	sections, err := h.split(data)
	if err != nil {
		return nil, err
	}
	p := parts{header: h, model: &Model{labels: int(h.labels), fingerprint: h.fingerprint}}
	for _, s := range sections {
		if s.kind >= uint32(len(kinds)) {
			p.model.extra = append(p.model.extra, section{s.kind, s.flags, bytes.Clone(s.data)})
			continue
		}
		k := kinds[s.kind]
		if err := k.read(&p, s.data); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return p.finish()
}

// split returns the sections of the file: the ones that every file has, each once and
// in order; the one of the tail; then optional ones that this version does not know.
func (h *header) split(data []byte) ([]section, error) {
	tableEnd := headerSize + entrySize*h.sections
	table := data[headerSize:tableEnd]
	if sum := crc32c.Sum(table); h.tableCRC != sum {
		return nil, fmt.Errorf("section table: checksum: found %08x, expected %08x", h.tableCRC, sum)
	}
	at := align(uint64(tableEnd))
	if err := checkPadding(data, uint64(tableEnd), at); err != nil {
		return nil, fmt.Errorf("section table: %w", err)
	}
	le := binary.LittleEndian
	sections := make([]section, h.sections)
	for i := range sections {
		entry := table[i*entrySize : (i+1)*entrySize]
		s := &sections[i]
		s.kind, s.flags = le.Uint32(entry[atKind:]), le.Uint32(entry[atFlags:])
		name, known := fmt.Sprintf("section of kind %d", s.kind), int(s.kind) < len(kinds)
		switch {
		case i < lastKind && s.kind != uint32(i+1):
			return nil, fmt.Errorf("section table: entry %d: kind: found %d, expected %d (%s)", i, s.kind, i+1, kinds[i+1].name)
		case i >= lastKind && s.kind <= sections[i-1].kind:
			return nil, fmt.Errorf("section table: entry %d: kind: found %d after %d, expected ascending, distinct kinds", i, s.kind, sections[i-1].kind)
		case known && s.flags == kinds[s.kind].flags:
			name = kinds[s.kind].name
		case known && kinds[s.kind].flags == 0:
			return nil, fmt.Errorf("%s: flags: found %#x, expected 0", kinds[s.kind].name, s.flags)
		case known:
			return nil, fmt.Errorf("%s: flags: found %#x, expected %d (optional)", kinds[s.kind].name, s.flags, flagOptional)
		case s.flags != flagOptional:
			return nil, fmt.Errorf("%s: flags: found %#x, expected %d (optional): the file needs a newer version of this package", name, s.flags, flagOptional)
		}
		if z := le.Uint32(entry[atEntryZero:]); z != 0 {
			return nil, fmt.Errorf("%s: entry: found %#x in its last field, expected zero", name, z)
		}
		if offset := le.Uint64(entry[atOffset:]); offset != at {
			return nil, fmt.Errorf("%s: offset: found %d, expected %d, the end of what comes before", name, offset, at)
		}
		// at and the size are multiples of the alignment, so that the padding
		// is within the file where the section is.
		length := le.Uint64(entry[atLength:])
		if length > h.size-at {
			return nil, fmt.Errorf("%s: length: found %d, expected at most the %d bytes left of the file", name, length, h.size-at)
		}
		s.data = data[at : at+length]
		if found, sum := le.Uint32(entry[atSectionCRC:]), crc32c.Sum(s.data); found != sum {
			return nil, fmt.Errorf("%s: checksum: found %08x, expected %08x", name, found, sum)
		}
		end := at + length
		at = align(end)
		if err := checkPadding(data, end, at); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if at != h.size {
		return nil, fmt.Errorf("file size: found %d bytes, expected %d, the end of the last section", h.size, at)
	}
	return sections, nil
}

func checkPadding(data []byte, from, to uint64) error {
	for i, b := range data[from:to] {
		if b != 0 {
			return fmt.Errorf("padding: found %#02x at offset %d, expected zero", b, from+uint64(i))
		}
	}
	return nil
}
