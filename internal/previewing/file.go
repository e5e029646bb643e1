package previewing

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

// The file is described in preview/FORMAT.md. Everything in it has one place and one form, so that
// equal models have equal bytes.

const (
	magic   = "\x89L2P\r\n\x1a\n"
	version = 6
	// Places in the header. The checksum is of the bytes after it.
	atVersion     = 8
	atChecksum    = 12
	atSize        = 16
	atFingerprint = 24
	atNumbers     = 56
	headerSize    = 132

	mostProbes   = 1 << 12
	mostRungs    = 64
	mostDistance = 1e6 // of a rung; of one that is measured it is below 20
)

// number is a number of the header.
type number struct {
	name                  string
	at                    *int
	least, most, multiple int
}

// numbers returns the whole numbers of the header after the fingerprint, in their order, with their
// bounds, some of which depend on numbers before.
func (p *Parts) numbers(rungs *int) []number {
	return []number{
		{"labels", &p.Labels, 1, min(math.MaxUint32, math.MaxInt), 1}, {"dim", &p.Dim, 1, kernels.MaxInt8Dim - 1, 1},
		{"biased", &p.Biased, 0, 1, 1}, {"coordinates", &p.Coordinates, 8, kernels.MaxInt8Dim, 8},
		{"fine", &p.Fine, 8, p.Coordinates, 8}, {"probes", &p.Probes, 0, mostProbes, 1},
		{"centred", &p.Centred, 4, p.Coordinates, 4}, {"blocks", &p.Blocks, 1, p.Labels/8 + 1, 1},
		{"k", &p.K, 1, p.Labels, 1}, {"held-out contexts", &p.HeldOut, 0, math.MaxInt32, 1},
		{"rungs", rungs, 1, mostRungs, 1}, {"normal rung", &p.Normal, 0, *rungs - 1, 1},
		{"outliers", &p.Outliers, 0, p.Labels - 1, 1},
	}
}

// factors returns the numbers at the end of the header.
func (p *Parts) factors() []*float64 { return []*float64{&p.Far, &p.Short, &p.Tail} }

// list is a part after the header: numbers of one size, or records of them.
type list struct {
	name   string
	at     any   // a pointer to a slice
	counts []int // their product is its length
}

// lists returns the parts after the header, in their order; codes are the packed codes of all
// labels.
func (p *Parts) lists(rungs int, codes *[]byte) []list {
	return []list{
		{"rungs", &p.Rungs, []int{rungs}},
		{"turn", &p.Turn, []int{p.Coordinates + p.Probes, p.Width()}},
		{"mean", &p.Mean, []int{p.Width()}},
		{"steps", &p.Steps, []int{p.Coordinates}},
		{"noise", &p.Noise, []int{p.Coordinates}},
		{"axes", &p.Axes, []int{p.Centred}},
		{"centres", &p.Centres, []int{p.Blocks, p.Centred}},
		{"radii", &p.Radii, []int{p.Blocks}},
		{"gauges", &p.Gauges, []int{p.Blocks}},
		{"beyond", &p.Beyond, []int{p.Blocks}},
		{"sizes", &p.Sizes, []int{p.Blocks}},
		{"ids", &p.IDs, []int{p.Labels}},
		{"codes", codes, []int{p.Labels - p.Outliers, p.RowBytes()}},
	}
}

// Save is preview.Model.Save.
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

// WriteTo is preview.Model.WriteTo.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	if m.parts == nil {
		return 0, errors.New("model: found none, expected one of Load, Read or Make")
	}
	n, err := w.Write(m.parts.encode(m.packed()))
	return int64(n), err
}

// encode returns the file of a model with some codes.
func (p *Parts) encode(codes []byte) []byte {
	rungs := len(p.Rungs)
	lists, size := p.lists(rungs, &codes), headerSize
	for _, x := range lists {
		size += binary.Size(x.at)
	}
	data := append(make([]byte, 0, size), magic...)
	data = binary.LittleEndian.AppendUint32(data, version)
	data = append(data, make([]byte, atFingerprint-atChecksum)...)
	data = append(data, p.Fingerprint[:]...)
	for _, x := range p.numbers(&rungs) {
		data = binary.LittleEndian.AppendUint32(data, uint32(*x.at))
	}
	for _, x := range p.factors() {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(*x))
	}
	for _, x := range lists {
		numbers := reflect.ValueOf(x.at).Elem().Interface()
		data, _ = binary.Append(data, binary.LittleEndian, numbers) // which have sizes: no error
	}
	binary.LittleEndian.PutUint64(data[atSize:], uint64(len(data)))
	binary.LittleEndian.PutUint32(data[atChecksum:], crc32c.Sum(data[atSize:]))
	return data
}

// Load is preview.Load.
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

// Read is preview.Read.
func Read(r io.Reader) (*Model, error) {
	m, err := load(r)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	return m, nil
}

// load reads and checks the header before anything else, so that a large file of another kind is
// refused at once.
func load(f io.Reader) (*Model, error) {
	var file bytes.Buffer
	if _, err := file.ReadFrom(io.LimitReader(f, headerSize)); err != nil {
		return nil, err
	}
	data := file.Bytes()
	if len(data) == 0 {
		return nil, fmt.Errorf("header: found an empty file, expected at least %d bytes", headerSize)
	}
	if n := min(len(data), len(magic)); string(data[:n]) != magic[:n] {
		return nil, fmt.Errorf("magic: found % x, expected % x: not a preview file", data[:n], magic)
	}
	if len(data) < headerSize {
		return nil, fmt.Errorf("header: found %d bytes, expected at least %d", len(data), headerSize)
	}
	if v := binary.LittleEndian.Uint32(data[atVersion:]); v != version {
		return nil, fmt.Errorf("version: found %d, expected %d: make the preview again", v, version)
	}
	size := binary.LittleEndian.Uint64(data[atSize:])
	if size < headerSize || size > math.MaxInt-1 {
		return nil, fmt.Errorf("file size: found %d in the header, expected %d to %d", size, headerSize, math.MaxInt-1)
	}
	// One byte more than the header states shows that there is more.
	if _, err := file.ReadFrom(io.LimitReader(f, int64(size)-headerSize+1)); err != nil {
		return nil, err
	}
	data = file.Bytes()
	if uint64(len(data)) != size {
		return nil, fmt.Errorf("file size: found %d bytes, expected the %d that the header states", len(data), size)
	}
	if found, expected := crc32c.Sum(data[atSize:]), binary.LittleEndian.Uint32(data[atChecksum:]); found != expected {
		return nil, fmt.Errorf("checksum: found %08x, expected %08x: the file is damaged", found, expected)
	}
	return decode(data)
}

// decode returns the model of a file of the right size and checksum.
func decode(data []byte) (*Model, error) {
	p, rungs := &Parts{Fingerprint: [32]byte(data[atFingerprint:])}, 0
	data = data[atNumbers:]
	for _, x := range p.numbers(&rungs) {
		*x.at = int(binary.LittleEndian.Uint32(data))
		data = data[4:]
	}
	for _, x := range p.numbers(&rungs) {
		if found := *x.at; found < x.least || found > x.most || found%x.multiple != 0 {
			return nil, fmt.Errorf("%s: found %d, expected %d to %d, a multiple of %d", x.name, found, x.least, x.most, x.multiple)
		}
	}
	if n := p.Coordinates - p.Fine; n%16 != 0 {
		return nil, fmt.Errorf("coordinates: found %d after the fine ones, expected a multiple of 16", n)
	}
	for _, x := range p.factors() {
		*x = math.Float64frombits(binary.LittleEndian.Uint64(data))
		data = data[8:]
	}
	var codes []byte
	for _, x := range p.lists(rungs, &codes) {
		var err error
		if data, err = x.read(data); err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("file size: found %d bytes after the codes, expected none", len(data))
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return New(p, codes), nil
}

// read takes a part from the head of data, and returns the rest. It checks the length before memory
// is taken.
func (x *list) read(data []byte) (rest []byte, err error) {
	at := reflect.ValueOf(x.at).Elem()
	size := binary.Size(reflect.Zero(at.Type().Elem()).Interface())
	n, most := 1, len(data)/size
	for _, c := range x.counts {
		if c > 0 && n > most/c {
			return nil, fmt.Errorf("found %d bytes left of the file, expected %d for each of %d", len(data), size, x.counts)
		}
		n *= c
	}
	at.Set(reflect.MakeSlice(at.Type(), n, n))
	_, err = binary.Decode(data[:n*size], binary.LittleEndian, at.Interface())
	return data[n*size:], err
}

// Check returns an error unless the parts are as FORMAT.md describes, besides their lengths.
func (p *Parts) Check() error {
	for i, x := range p.factors() {
		if name := [...]string{"far", "short", "tail"}[i]; math.IsNaN(*x) || math.IsInf(*x, 0) {
			return fmt.Errorf("%s: found %v, expected a finite number", name, *x)
		} else if name != "tail" && math.Signbit(*x) {
			return fmt.Errorf("%s: found %v, expected a number that is not negative", name, *x)
		}
	}
	for _, x := range []struct {
		name  string
		list  []float32
		least float32
	}{
		{"turn", p.Turn, -math.MaxFloat32}, {"mean", p.Mean, -math.MaxFloat32}, {"steps", p.Steps, 0}, {"noise", p.Noise, 0},
		{"axes", p.Axes, 0}, {"radii", p.Radii, 0}, {"gauges", p.Gauges, 0}, {"beyond", p.Beyond, 0},
	} {
		for i, v := range x.list {
			if !(v >= x.least && v <= math.MaxFloat32) {
				return fmt.Errorf("%s: found %v at %d, expected finite numbers of at least %v", x.name, v, i, x.least)
			}
		}
	}
	for i, c := range p.Centres {
		if c < -64 || c > 63 {
			return fmt.Errorf("centres: found %d at %d, expected -64 to 63", c, i)
		}
	}
	if err := p.checkBlocks(); err != nil {
		return err
	}
	for i, r := range p.Rungs {
		for _, x := range []struct {
			name              string
			found, least, top float64
		}{
			{"deviations", r.Deviations, 0, mostDistance}, {"reach", r.Reach, 0, mostDistance}, {"looked", r.Looked, 0, 2},
			{"kept", r.Kept, 0, math.MaxFloat64}, {"exact", r.Exact, 0, 1}, {"log-sum off", r.LogSumOff, 0, math.MaxFloat64},
		} {
			if !(x.found >= x.least && x.found <= x.top) || math.Signbit(x.found) {
				return fmt.Errorf("rungs: rung %d: %s: found %v, expected %v to %v", i, x.name, x.found, x.least, x.top)
			}
		}
		if i > 0 && r.Kept < p.Rungs[i-1].Kept {
			return fmt.Errorf("rungs: rung %d: found %v labels after %v, expected numbers that do not descend", i, r.Kept, p.Rungs[i-1].Kept)
		}
		for _, e := range []precision.Estimate{r.Precision1, r.PrecisionK} {
			if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
				return fmt.Errorf("rungs: rung %d: found precision %v within %v and %v, expected numbers from 0 to 1 in order", i, e.Value, e.Low, e.High)
			}
		}
	}
	return nil
}

// checkBlocks checks the sizes of the blocks, and their labels.
func (p *Parts) checkBlocks() error {
	left := p.Labels - p.Outliers
	for b, size := range p.Sizes {
		if size < 1 || uint64(size) > uint64(left) {
			return fmt.Errorf("sizes: block %d: found %d labels, expected 1 to the %d that are left", b, size, left)
		}
		left -= int(size)
	}
	if left > 0 {
		return fmt.Errorf("sizes: found %d labels in no block, expected none", left)
	}
	seen, ids := bitset.New(p.Labels), p.IDs
	for b := range p.Blocks + 1 {
		name, size := "outliers", len(ids)
		if b < p.Blocks {
			name, size = fmt.Sprintf("block %d", b), int(p.Sizes[b])
		}
		for i, id := range ids[:size] {
			if uint64(id) >= uint64(p.Labels) || seen.Has(id) {
				return fmt.Errorf("ids: %s: found %d, expected each label below %d once", name, id, p.Labels)
			}
			if i > 0 && id < ids[i-1] {
				return fmt.Errorf("ids: %s: found %d after %d, expected ascending ids", name, id, ids[i-1])
			}
			seen.Add(id)
		}
		ids = ids[size:]
	}
	return nil
}
