package preview

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/precision"
)

// The file is described in FORMAT.md. Everything in it has one place and one form, so that equal
// models have equal bytes.

const (
	magic   = "\x89L2P\r\n\x1a\n"
	version = 6
	// atChecksum and atSize are places in the header; the checksum is of the bytes after it.
	atChecksum = 12
	atSize     = 16
	maxProbes  = 1 << 12
	maxRungs   = 64
)

// header is the beginning of a file.
type header struct {
	Magic                                                                       [8]byte
	Version, Checksum                                                           uint32
	Size                                                                        uint64
	Fingerprint                                                                 [32]byte
	Labels, Dim, Biased, Coordinates, Fine, Probes, Centred, Blocks, K, HeldOut uint32
	Rungs, Normal, Outliers                                                     uint32
	Far, Short, Tail                                                            float64
}

var headerSize = binary.Size(header{})

// part is a part of a file: numbers of one size, or records of them.
type part struct {
	name   string
	list   any      // a pointer to a slice
	counts []uint64 // their product is its length
}

// parts returns the parts after the header, in their order; codes are the packed codes of all
// labels.
func (m *Model) parts(h *header, codes *[]byte) []part {
	r, probes, centred, blocks := uint64(h.Coordinates), uint64(h.Probes), uint64(h.Centred), uint64(h.Blocks)
	width := uint64(h.Dim) + uint64(h.Biased)
	return []part{
		{"rungs", &m.rungs, []uint64{uint64(h.Rungs)}},
		{"turn", &m.turn, []uint64{r + probes, width}},
		{"mean", &m.mean, []uint64{width}},
		{"steps", &m.steps, []uint64{r}},
		{"noise", &m.noise, []uint64{r}},
		{"axes", &m.axes, []uint64{centred}},
		{"centres", &m.centres, []uint64{blocks, centred}},
		{"radii", &m.radii, []uint64{blocks}},
		{"gauges", &m.gauges, []uint64{blocks}},
		{"beyond", &m.beyond, []uint64{blocks}},
		{"sizes", &m.sizes, []uint64{blocks}},
		{"ids", &m.ids, []uint64{uint64(h.Labels)}},
		{"codes", codes, []uint64{uint64(h.Labels - h.Outliers), uint64(kernels.RowBytes42(int(r), int(h.Fine)))}},
	}
}

// Save writes the model to a file, which appears under its name when it is complete: an error, or
// the end of the process in between, leaves the earlier file. Equal models give equal files.
func (m *Model) Save(path string) error {
	err := atomicfile.WriteFile(path, func(w io.Writer) error {
		_, err := m.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("preview: %w", err)
	}
	return nil
}

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	if m.labels == 0 {
		return 0, errors.New("model: found none, expected one of Load, Read or Make")
	}
	n, err := w.Write(m.encode())
	return int64(n), err
}

func (m *Model) encode() []byte {
	h := header{
		Magic: [8]byte([]byte(magic)), Version: version, Fingerprint: m.fingerprint,
		Labels: uint32(m.labels), Dim: uint32(m.dim), Biased: uint32(m.width() - m.dim),
		Coordinates: uint32(m.coordinates), Fine: uint32(m.fine), Probes: uint32(m.probes), Centred: uint32(m.centred), Blocks: uint32(m.blocks()),
		K: uint32(m.k), HeldOut: uint32(m.heldOut), Rungs: uint32(len(m.rungs)), Normal: uint32(m.normal), Outliers: uint32(m.outliers), Far: m.far, Short: m.short, Tail: m.tail,
	}
	lists, size := []any{h}, headerSize
	codes := m.rows(m.rowBytes())
	for _, p := range m.parts(&h, &codes) {
		list := reflect.ValueOf(p.list).Elem().Interface()
		lists, size = append(lists, list), size+binary.Size(list)
	}
	data := make([]byte, 0, size)
	for _, list := range lists {
		data, _ = binary.Append(data, binary.LittleEndian, list) // whose numbers have sizes: no error
	}
	binary.LittleEndian.PutUint64(data[atSize:], uint64(len(data)))
	binary.LittleEndian.PutUint32(data[atChecksum:], crc32c.Sum(data[atSize:]))
	return data
}

// Load reads a model from a file, which is read whole and not kept open, and checks all of it. An
// error names the file, the field, the value found and the value expected.
func Load(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	defer f.Close()
	m, err := load(f)
	if err != nil {
		return nil, fmt.Errorf("preview: %s: %w", path, err)
	}
	return m, nil
}

// load reads the header before anything else, so that a large file of another kind is refused at
// once.
func load(f io.Reader) (*Model, error) {
	var data bytes.Buffer
	if _, err := data.ReadFrom(io.LimitReader(f, int64(headerSize))); err != nil {
		return nil, err
	}
	h, err := parseHeader(data.Bytes())
	if err != nil {
		return nil, err
	}
	// One byte more than the header states shows that there is more.
	if _, err := data.ReadFrom(io.LimitReader(f, int64(h.Size)-int64(headerSize)+1)); err != nil {
		return nil, err
	}
	return decode(data.Bytes())
}

// Read returns the model whose file r has the bytes of, all of them. It allocates at most a small
// multiple of their number. Errors are as from [Load], without the file, or of r.
func Read(r io.Reader) (*Model, error) {
	m, err := load(r)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	return m, nil
}

// parseHeader reads the header of a file, of which data is the beginning.
func parseHeader(data []byte) (h header, err error) {
	if len(data) == 0 {
		return h, fmt.Errorf("header: found an empty file, expected at least %d bytes", headerSize)
	}
	if n := min(len(data), len(magic)); string(data[:n]) != magic[:n] {
		return h, fmt.Errorf("magic: found % x, expected % x: not a preview file", data[:n], magic)
	}
	if _, err := binary.Decode(data, binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("header: found %d bytes, expected at least %d", len(data), headerSize)
	}
	if h.Version != version {
		return h, fmt.Errorf("version: found %d, expected %d: make the preview again", h.Version, version)
	}
	if h.Size < uint64(headerSize) || h.Size > math.MaxInt-1 {
		return h, fmt.Errorf("file size: found %d in the header, expected %d to %d", h.Size, headerSize, math.MaxInt-1)
	}
	return h, nil
}

func decode(data []byte) (*Model, error) {
	h, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != h.Size {
		return nil, fmt.Errorf("file size: found %d bytes, expected the %d that the header states", len(data), h.Size)
	}
	if sum := crc32c.Sum(data[atSize:]); sum != h.Checksum {
		return nil, fmt.Errorf("checksum: found %08x, expected %08x: the file is damaged", sum, h.Checksum)
	}
	for _, x := range []struct {
		name               string
		found, least, most uint32
		multiple           uint32
	}{
		{"labels", h.Labels, 1, min(math.MaxUint32, math.MaxInt), 1}, {"dim", h.Dim, 1, kernels.MaxInt8Dim - 1, 1},
		{"biased", h.Biased, 0, 1, 1}, {"coordinates", h.Coordinates, 8, kernels.MaxInt8Dim, 8}, {"fine", h.Fine, 8, h.Coordinates, 8},
		{"probes", h.Probes, 0, maxProbes, 1}, {"centred", h.Centred, 4, h.Coordinates, 4},
		{"blocks", h.Blocks, 1, h.Labels/8 + 1, 1}, {"k", h.K, 1, h.Labels, 1}, {"held-out contexts", h.HeldOut, 0, math.MaxInt32, 1},
		{"rungs", h.Rungs, 1, maxRungs, 1}, {"normal rung", h.Normal, 0, h.Rungs - 1, 1}, {"outliers", h.Outliers, 0, h.Labels - 1, 1},
	} {
		if x.found < x.least || x.found > x.most || x.found%x.multiple != 0 {
			return nil, fmt.Errorf("%s: found %d, expected %d to %d, a multiple of %d", x.name, x.found, x.least, x.most, x.multiple)
		}
	}
	if n := h.Coordinates - h.Fine; n%16 != 0 {
		return nil, fmt.Errorf("coordinates: found %d after the fine ones, expected a multiple of 16", n)
	}
	for name, x := range map[string]float64{"far": h.Far, "short": h.Short} {
		if !(x >= 0) || math.IsInf(x, 1) || math.Signbit(x) {
			return nil, fmt.Errorf("%s: found %v, expected a finite number that is not negative", name, x)
		}
	}
	if math.IsNaN(h.Tail) || math.IsInf(h.Tail, 0) {
		return nil, fmt.Errorf("tail: found %v, expected a finite number", h.Tail)
	}
	m := &Model{
		labels: int(h.Labels), dim: int(h.Dim), fingerprint: h.Fingerprint, biased: h.Biased == 1,
		coordinates: int(h.Coordinates), fine: int(h.Fine), probes: int(h.Probes), centred: int(h.Centred), far: h.Far, short: h.Short, tail: h.Tail,
		k: int(h.K), heldOut: int(h.HeldOut), normal: int(h.Normal), outliers: int(h.Outliers),
	}
	data = data[headerSize:]
	var codes []byte
	for _, p := range m.parts(&h, &codes) {
		if data, err = p.read(data); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("file size: found %d bytes after the codes, expected none", len(data))
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	m.arrange()
	m.put(codes, m.rowBytes())
	return m, nil
}

// read takes a part from the head of data, and returns the rest. It checks the length before memory
// is taken.
func (p *part) read(data []byte) (rest []byte, err error) {
	list := reflect.ValueOf(p.list).Elem()
	size := binary.Size(reflect.Zero(list.Type().Elem()).Interface())
	n, most := uint64(1), uint64(len(data)/size)
	for _, c := range p.counts {
		if c > 0 && n > most/c {
			return nil, fmt.Errorf("found %d bytes left of the file, expected %d for each of %d", len(data), size, p.counts)
		}
		n *= c
	}
	list.Set(reflect.MakeSlice(list.Type(), int(n), int(n)))
	_, err = binary.Decode(data[:int(n)*size], binary.LittleEndian, list.Interface())
	return data[int(n)*size:], err
}

// check returns an error unless the parts are as FORMAT.md describes.
func (m *Model) check() error {
	for _, x := range []struct {
		name  string
		list  []float32
		least float32
	}{
		{"turn", m.turn, -math.MaxFloat32}, {"mean", m.mean, -math.MaxFloat32},
		{"steps", m.steps, 0}, {"noise", m.noise, 0}, {"axes", m.axes, 0}, {"radii", m.radii, 0}, {"gauges", m.gauges, 0}, {"beyond", m.beyond, 0},
	} {
		for i, v := range x.list {
			if !(v >= x.least && v <= math.MaxFloat32) {
				return fmt.Errorf("%s: found %v at %d, expected finite numbers of at least %v", x.name, v, i, x.least)
			}
		}
	}
	for i, c := range m.centres {
		if c < -64 || c > 63 {
			return fmt.Errorf("centres: found %d at %d, expected -64 to 63", c, i)
		}
	}
	inBlocks := uint64(m.labels - m.outliers)
	at := uint64(0)
	for b, size := range m.sizes {
		if size < 1 || uint64(size) > inBlocks-at {
			return fmt.Errorf("sizes: block %d: found %d labels, expected 1 to the %d that are left", b, size, inBlocks-at)
		}
		at += uint64(size)
	}
	if at != inBlocks {
		return fmt.Errorf("sizes: found %d labels in all blocks, expected %d", at, inBlocks)
	}
	seen := bitset.New(m.labels)
	ids := m.ids
	for b := range len(m.sizes) + 1 {
		size, name := uint32(m.outliers), "outliers"
		if b < len(m.sizes) {
			size, name = m.sizes[b], fmt.Sprintf("block %d", b)
		}
		for i, id := range ids[:size] {
			if uint64(id) >= uint64(m.labels) || seen.Has(id) {
				return fmt.Errorf("ids: %s: found %d, expected each label below %d once", name, id, m.labels)
			}
			if i > 0 && id < ids[i-1] {
				return fmt.Errorf("ids: %s: found %d after %d, expected ascending ids", name, id, ids[i-1])
			}
			seen.Add(id)
		}
		ids = ids[size:]
	}
	const mostDistance = 1e6 // of a rung that is measured it is below 20
	for i, r := range m.rungs {
		for _, x := range []struct {
			name              string
			found, least, top float64
		}{
			{"deviations", r.Deviations, 0, mostDistance}, {"reach", r.Reach, 0, mostDistance},
			{"looked", r.Looked, 0, 2}, {"kept", r.Kept, 0, math.MaxFloat64}, {"exact", r.Exact, 0, 1}, {"log-sum off", r.LogSumOff, 0, math.MaxFloat64},
		} {
			if !(x.found >= x.least && x.found <= x.top) || math.Signbit(x.found) {
				return fmt.Errorf("rungs: rung %d: %s: found %v, expected %v to %v", i, x.name, x.found, x.least, x.top)
			}
		}
		if i > 0 && r.Kept < m.rungs[i-1].Kept {
			return fmt.Errorf("rungs: rung %d: found %v labels after %v, expected numbers that do not descend", i, r.Kept, m.rungs[i-1].Kept)
		}
		for _, e := range []precision.Estimate{r.Precision1, r.PrecisionK} {
			if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
				return fmt.Errorf("rungs: rung %d: found precision %v within %v and %v, expected numbers from 0 to 1 in order", i, e.Value, e.Low, e.High)
			}
		}
	}
	return nil
}
