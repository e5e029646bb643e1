package softmax

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/mapfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
)

// The file is described in FORMAT.md.
const (
	codesMagic      = "\x89L2C\r\n\x1a\n"
	codesVersion    = 1
	codesHeaderSize = 128
	codesAlignment  = 64
	// codesBlock is the number of bytes that a checksum is of.
	codesBlock = 1 << 20
)

// Places in the header.
const (
	atVersion     = 8
	atTables      = 12
	atFileSize    = 16
	atLabels      = 24
	atDim         = 32
	atOriginSize  = 40
	atOriginTime  = 48
	atFingerprint = 56
	atSumsCRC     = 88
	atReserved    = 92
	atHeaderCRC   = 124
)

// ErrStale is the error of codes that are of another layer than the one that they
// are opened for: codes to be made again.
var ErrStale = errors.New("softmax: codes of another layer")

// Origin is what is known at a glance of the files that W was read from. The zero
// value says that nothing is known.
type Origin struct {
	Size     int64     // the sum of their sizes in bytes
	Modified time.Time // when the last of them was changed
}

// OriginOf returns the origin of files.
func OriginOf(paths ...string) (Origin, error) {
	var o Origin
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return Origin{}, err
		}
		o.Size += info.Size()
		if t := info.ModTime(); t.After(o.Modified) {
			o.Modified = t
		}
	}
	return o, nil
}

func (o Origin) time() int64 {
	if o == (Origin{}) {
		return 0
	}
	return o.Modified.UnixNano()
}

func (o Origin) String() string {
	return fmt.Sprintf("%d bytes of %s", o.Size, o.Modified.UTC().Format(time.RFC3339Nano))
}

// codesShape is what the numbers of labels, dimensions and tables say of a file:
// where each part ends.
type codesShape struct {
	labels, dim, tables uint64
}

func alignCodes(n uint64) uint64 { return (n + codesAlignment - 1) &^ (codesAlignment - 1) }

// lengths returns the length of each table. Labels and dimension are below 2^32 and
// 2^17: no product overflows.
func (c codesShape) lengths() []uint64 {
	all := [...]uint64{c.labels * uint64(kernels.Int8Stride(int(c.dim))), c.labels * uint64(kernels.Int4Stride(int(c.dim)))}
	return all[:c.tables]
}

// data returns the length of all tables, with their padding.
func (c codesShape) data() (n uint64) {
	for _, length := range c.lengths() {
		n += alignCodes(length)
	}
	return n
}

// blocks returns the number of blocks with a checksum.
func (c codesShape) blocks() uint64 { return (c.data() + codesBlock - 1) / codesBlock }

// start returns where the first table starts.
func (c codesShape) start() uint64 { return alignCodes(codesHeaderSize + 4*c.blocks()) }

func (c codesShape) size() uint64 { return c.start() + c.data() }

// SaveCodes writes the codes of the layer to a file, for [NewLayerWithCodes]. origin
// identifies the files that W is from, or is zero. The file appears under its name
// when it is complete. Equal layers and origins give equal files.
//
// It returns an error if the layer has no codes, since its dimension or a weight
// is too large for them.
func (l *Layer) SaveCodes(path string, origin Origin) error {
	if err := l.saveCodes(path, origin); err != nil {
		return fmt.Errorf("softmax: %w", err)
	}
	return nil
}

func (l *Layer) saveCodes(path string, origin Origin) error {
	if l.codes == nil {
		return errors.New("codes: found none, as a dimension above 65536 or a weight above 2^40 leaves, expected a layer that has them")
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	if err := l.writeCodes(f, origin); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

func (l *Layer) writeCodes(f *atomicfile.File, origin Origin) error {
	tables := [][]byte{l.codes.Records()}
	if l.coarse != nil {
		tables = append(tables, l.coarse.Records())
	}
	shape := codesShape{uint64(l.Labels()), uint64(l.Dim()), uint64(len(tables))}
	head := make([]byte, shape.start())
	// The checksums come first in the file and are known last.
	at, sums, block := shape.start(), head[codesHeaderSize:], uint64(0)
	var crc uint32
	write := func(b []byte) error {
		for len(b) > 0 {
			part := b[:min(uint64(len(b)), codesBlock-block)]
			if _, err := f.WriteAt(part, int64(at)); err != nil {
				return err
			}
			crc = crc32c.Update(crc, part)
			b, at, block = b[len(part):], at+uint64(len(part)), block+uint64(len(part))
			if block == codesBlock || at == shape.size() {
				binary.LittleEndian.PutUint32(sums, crc)
				sums, crc, block = sums[4:], 0, 0
			}
		}
		return nil
	}
	for _, table := range tables {
		if err := write(table); err != nil {
			return err
		}
		if err := write(make([]byte, alignCodes(uint64(len(table)))-uint64(len(table)))); err != nil {
			return err
		}
	}
	runtime.KeepAlive(l)
	le, fingerprint := binary.LittleEndian, l.Fingerprint()
	copy(head, codesMagic)
	le.PutUint32(head[atVersion:], codesVersion)
	le.PutUint32(head[atTables:], uint32(shape.tables))
	le.PutUint64(head[atFileSize:], shape.size())
	le.PutUint64(head[atLabels:], shape.labels)
	le.PutUint64(head[atDim:], shape.dim)
	le.PutUint64(head[atOriginSize:], uint64(origin.Size))
	le.PutUint64(head[atOriginTime:], uint64(origin.time()))
	copy(head[atFingerprint:], fingerprint[:])
	le.PutUint32(head[atSumsCRC:], crc32c.Sum(head[codesHeaderSize:codesHeaderSize+4*shape.blocks()]))
	le.PutUint32(head[atHeaderCRC:], crc32c.Sum(head[:atHeaderCRC]))
	_, err := f.WriteAt(head, 0)
	return err
}

// NewLayerWithCodes is [NewLayer] with the codes of a file that
// [Layer.SaveCodes] wrote, which is mapped into memory, if the system can, as
// long as the layer is reachable. W is not read, but for some rows.
//
// Every byte of the file is checked: damage is an error that names the file, the
// field, what was found and what was expected. Codes of another layer are
// [ErrStale]:
//
//   - of other labels, another dimension or another bias, always;
//   - of other weights, if the origin is zero or not the one in the file: then all of
//     W is hashed and compared with the fingerprint in the file;
//   - of other weights, if the origin is the one in the file and one of 64 rows of W
//     or more, spread over it, has changed. Weights whose file keeps its size and its
//     time, though one of its other rows has changed, are not found out.
//
// The layer takes over the fingerprint of the file, which says too that all weights
// are finite.
func NewLayerWithCodes(weights kernels.Rows, bias []float32, path string, origin Origin) (*Layer, error) {
	l, err := newLayer(weights, bias)
	if err != nil {
		return nil, err
	}
	if err := parallel.Guard(func() error { return l.openCodes(path, origin) }); err != nil {
		return nil, fmt.Errorf("softmax: %s: %w", path, err)
	}
	return l, nil
}

func (l *Layer) openCodes(path string, origin Origin) error {
	data, unmap, err := mapfile.Open(path)
	if err != nil {
		return err
	}
	mapping := &mapping{data: data, unmap: unmap}
	mapping.users.Store(1)
	defer mapping.release()
	var h codesHeader
	if err := h.parse(data); err != nil {
		return err
	}
	if h.labels != uint64(l.Labels()) || h.dim != uint64(l.Dim()) {
		return stale(fmt.Sprintf("shape: found codes of %d x %d weights, expected %d x %d", h.labels, h.dim, l.Labels(), l.Dim()))
	}
	if err := h.checkSums(data); err != nil {
		return err
	}
	tables, err := h.split(data)
	if err != nil {
		return err
	}
	codes, err := kernels.Int8RowsOf(tables[0], l.Dim(), l.bias)
	if err != nil {
		return recordsError("8-bit codes", err)
	}
	l.codes = own(codes, nil, mapping.use())
	if len(tables) > 1 {
		coarse, err := kernels.Int4RowsOf(tables[1], l.Dim(), l.bias)
		if err != nil {
			return recordsError("4-bit codes", err)
		}
		l.coarse = own(coarse, nil, mapping.use())
	}
	if origin == (Origin{}) || uint64(origin.Size) != h.originSize || uint64(origin.time()) != h.originTime {
		if found := l.hash(); found != h.fingerprint {
			return stale(fmt.Sprintf("fingerprint: found %x, expected %x, the fingerprint of the weights and the bias", h.fingerprint, found))
		}
	}
	l.fingerprint = func() [32]byte { return h.fingerprint }
	return l.sample()
}

// recordsError is the error of records whose checksums are right, though they are
// not of the bias.
func recordsError(table string, err error) error {
	if errors.Is(err, parallel.ErrGone) {
		return err
	}
	return invalid(ErrStale, fmt.Sprintf("%s: %v", table, err))
}

func stale(text string) error {
	return invalid(ErrStale, text+": the codes were made for another layer")
}

// mapping is the bytes of a file that some tables are in.
type mapping struct {
	data  []byte
	unmap func([]byte) error
	users atomic.Int32
}

// use returns the release of one more user.
func (m *mapping) use() func() {
	m.users.Add(1)
	return m.release
}

func (m *mapping) release() {
	if m.users.Add(-1) == 0 && m.unmap != nil {
		_ = m.unmap(m.data)
	}
}

// codesHeader is a header that was read.
type codesHeader struct {
	codesShape
	originSize, originTime uint64
	fingerprint            [32]byte
}

// parse checks the header, the size of the file and the list of checksums.
func (h *codesHeader) parse(data []byte) error {
	le := binary.LittleEndian
	if n := min(len(data), len(codesMagic)); n == 0 || string(data[:n]) != codesMagic[:n] {
		return fmt.Errorf("magic: found % x, expected % x: not a file of codes", data[:n], codesMagic)
	}
	if len(data) < codesHeaderSize {
		return fmt.Errorf("file size: found %d bytes, expected at least the %d of the header", len(data), codesHeaderSize)
	}
	if v := le.Uint32(data[atVersion:]); v != codesVersion {
		return fmt.Errorf("version: found %d, expected %d", v, codesVersion)
	}
	if found, sum := le.Uint32(data[atHeaderCRC:]), crc32c.Sum(data[:atHeaderCRC]); found != sum {
		return fmt.Errorf("header: checksum: found %08x, expected %08x", found, sum)
	}
	h.labels, h.dim, h.tables = le.Uint64(data[atLabels:]), le.Uint64(data[atDim:]), uint64(le.Uint32(data[atTables:]))
	h.originSize, h.originTime = le.Uint64(data[atOriginSize:]), le.Uint64(data[atOriginTime:])
	h.fingerprint = [32]byte(data[atFingerprint:])
	for _, f := range []struct {
		name        string
		value, most uint64
	}{{"labels", h.labels, math.MaxUint32}, {"dim", h.dim, kernels.MaxInt8Dim}, {"tables", h.tables, 2}} {
		if f.value < 1 || f.value > f.most {
			return fmt.Errorf("%s: found %d, expected 1 to %d", f.name, f.value, f.most)
		}
	}
	if err := zeros("header", data, atReserved, atHeaderCRC); err != nil {
		return err
	}
	if stated, size := le.Uint64(data[atFileSize:]), h.size(); stated != size {
		return fmt.Errorf("file size: found %d in the header, expected %d for %d tables of %d x %d codes", stated, size, h.tables, h.labels, h.dim)
	}
	if uint64(len(data)) != h.size() {
		return fmt.Errorf("file size: found %d bytes, expected the %d that the header states", len(data), h.size())
	}
	end := codesHeaderSize + 4*h.blocks()
	if found, sum := le.Uint32(data[atSumsCRC:]), crc32c.Sum(data[codesHeaderSize:end]); found != sum {
		return fmt.Errorf("checksums: checksum: found %08x, expected %08x", found, sum)
	}
	return zeros("checksums", data, end, h.start())
}

// zeros checks padding.
func zeros(name string, data []byte, from, to uint64) error {
	for i, b := range data[from:to] {
		if b != 0 {
			return fmt.Errorf("%s: padding: found %#02x at offset %d, expected zero", name, b, from+uint64(i))
		}
	}
	return nil
}

// checkSums checks the checksum of every block, on all cores.
func (h *codesHeader) checkSums(data []byte) error {
	sums, tables := data[codesHeaderSize:], data[h.start():]
	return parallel.Each(context.Background(), 0, int(h.blocks()), 4, nil, func(_, lo, hi int) error {
		mapfile.WillNeed(tables[lo*codesBlock : min(hi*codesBlock, len(tables))])
		for i := lo; i < hi; i++ {
			block := tables[i*codesBlock : min((i+1)*codesBlock, len(tables))]
			if found, sum := binary.LittleEndian.Uint32(sums[4*i:]), crc32c.Sum(block); found != sum {
				return fmt.Errorf("block %d: checksum: found %08x, expected %08x", i, found, sum)
			}
		}
		return nil
	})
}

// split returns the tables.
func (h *codesHeader) split(data []byte) (tables [][]byte, err error) {
	at := h.start()
	for i, length := range h.lengths() {
		end := at + length
		tables = append(tables, data[at:end:end])
		at = alignCodes(end)
		if err := zeros(fmt.Sprintf("table %d", i), data, end, at); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// sampled is the number of rows that sample looks at.
const sampled = 64

// sample makes the records of some rows, the first and the last among them, and
// compares them with the records of the codes: they are equal bit for bit on every CPU.
func (l *Layer) sample() error {
	n, d := l.Labels(), l.Dim()
	table, _ := bigmem.Alloc(kernels.Int8Stride(d))
	table4, _ := bigmem.Alloc(kernels.Int4Stride(d))
	step := max(1, (n-1)/(sampled-1))
	for i := 0; i < n; i += step {
		if i+step >= n {
			i = n - 1
		}
		rows, bias := l.rows.Part(i, i+1), l.bias[i:i+1]
		codes, coarse, err := kernels.NewInt8And4Rows(table, table4, rows, bias)
		if errors.Is(err, parallel.ErrGone) {
			return err
		}
		if err != nil || !equalRecord(l.codes.Records(), codes.Records(), i) || l.coarse != nil && !equalRecord(l.coarse.Records(), coarse.Records(), i) {
			return stale(fmt.Sprintf("codes of row %d: found others than the weights give, expected the same", i))
		}
	}
	runtime.KeepAlive(l)
	return nil
}

// equalRecord reports whether record i of all is the one given.
func equalRecord(all, record []byte, i int) bool {
	return bytes.Equal(all[i*len(record):(i+1)*len(record)], record)
}
