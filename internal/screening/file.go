package screening

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/tail"
)

// The file is described in FORMAT.md. Everything in it has one place and one
// form, so that equal models have equal bytes.

const (
	magic = "\x89L2S\r\n\x1a\n"
	// previewMagic begins the files of package preview, which are easily mistaken for screens.
	previewMagic = "\x89L2P\r\n\x1a\n"
	version      = 6
	// atChecksum and atSize are places in the header; the checksum is of the bytes after it.
	atChecksum = 12
	atSize     = 16
)

// header is the beginning of a file.
type header struct {
	Magic                                                        [8]byte
	Version, Checksum                                            uint32
	Size                                                         uint64
	Fingerprint                                                  [32]byte
	Labels, Dim, Clusters, Always, K, HeldOut, Record            uint32
	IDs                                                          uint64
	Shells, Budgets, TailShare, Temperatures, Levels, Directions uint16
}

var headerSize = binary.Size(header{})

// rung is a budget of the ladder.
type rung struct {
	Budget, MeanCandidates       float64
	Precision1, PrecisionK       Estimate
	P99Candidates, MaxCandidates uint32
	Share                        uint16
}

// file is a model as its file has it.
type file struct {
	header
	c      Config    // without the fields below, and without lists, ladder and tail
	budget []float64 // of requests without one
	sizes  []uint32  // of the lists
	ids    []uint32
	shares []uint16
	ladder []rung
	tail   tail.Config
}

// part is a part of a file: numbers of one size, or records of them.
type part struct {
	name   string
	list   any      // a pointer to a slice
	counts []uint64 // their product is its length; one that may be 0 is the first
}

// parts returns the parts after the header, in their order. A new part is a line here and in
// FORMAT.md.
func (f *file) parts() []part {
	d, r, m, q := uint64(f.Dim), uint64(f.Clusters), uint64(f.Temperatures), uint64(f.Levels)
	cells := r * (1 + uint64(f.Shells))
	ranges := uint64(0) // numbers
	if m > 0 {
		ranges = 2*m + 4
	}
	return []part{
		{"budget", &f.budget, []uint64{1}},
		{"clusters", &f.c.Clusters, []uint64{r, d}},
		{"shells", &f.c.Shells, []uint64{uint64(f.Shells)}},
		{"sizes", &f.sizes, []uint64{cells}},
		{"ids", &f.ids, []uint64{f.IDs}},
		{"shares", &f.shares, []uint64{f.IDs}},
		{"ladder", &f.ladder, []uint64{uint64(f.Budgets)}},
		{"temperatures", &f.tail.Temperatures, []uint64{m}},
		{"levels", &f.tail.Levels, []uint64{q}},
		{"intercepts", &f.tail.Intercepts, []uint64{m, r}},
		{"slopes", &f.tail.Slopes, []uint64{m, r, d}},
		{"squares", &f.tail.Squares, []uint64{m, r, 2}},
		{"widths", &f.tail.Widths, []uint64{q, m, r}},
		{"directions", &f.tail.Directions, []uint64{uint64(f.Directions), d}},
		{"ranges", &f.tail.Ranges, []uint64{ranges, r}},
		{"record", &f.c.Record, []uint64{uint64(f.Record)}},
	}
}

// Save is screen.Model.Save.
func (m *Model) Save(path string) error {
	err := atomicfile.WriteFile(path, func(w io.Writer) error {
		_, err := m.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("screen: %w", err)
	}
	return nil
}

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	if m.router == nil {
		return 0, errNoModel
	}
	n, err := w.Write(m.encode())
	return int64(n), err
}

func (m *Model) encode() (data []byte) {
	c := m.c
	f := file{c: c, budget: []float64{c.Budget}}
	for _, l := range c.Lists {
		f.sizes, f.ids, f.shares = append(f.sizes, uint32(len(l.IDs))), append(f.ids, l.IDs...), append(f.shares, l.Shares...)
	}
	for _, x := range c.Ladder {
		f.ladder = append(f.ladder, rung{x.Budget, x.MeanCandidates, x.Precision1, x.PrecisionK, uint32(x.P99Candidates), uint32(x.MaxCandidates), x.Share})
	}
	if c.Tail != nil {
		f.tail = c.Tail.Config()
	}
	f.header = header{
		Magic: [8]byte([]byte(magic)), Version: version, Fingerprint: c.Fingerprint,
		Labels: uint32(c.Labels), Dim: uint32(c.Dim), Clusters: uint32(m.Clusters()), Always: uint32(c.Always),
		K: uint32(c.K), HeldOut: uint32(c.HeldOut), Record: uint32(len(c.Record)), IDs: uint64(len(f.ids)),
		Shells: uint16(len(c.Shells)), Budgets: uint16(len(c.Ladder)), TailShare: f.tail.Share, Temperatures: uint16(len(f.tail.Temperatures)),
		Levels: uint16(len(f.tail.Levels)), Directions: uint16(len(f.tail.Directions) / c.Dim),
	}
	lists, size := []any{f.header}, headerSize
	for _, p := range f.parts() {
		list := reflect.ValueOf(p.list).Elem().Interface()
		lists, size = append(lists, list), size+binary.Size(list)
	}
	data = make([]byte, 0, size)
	for _, list := range lists {
		data, _ = binary.Append(data, binary.LittleEndian, list) // whose numbers have sizes: no error
	}
	binary.LittleEndian.PutUint64(data[atSize:], uint64(len(data)))
	binary.LittleEndian.PutUint32(data[atChecksum:], crc32c.Sum(data[atSize:]))
	return data
}

// Load is screen.Load.
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
	var data bytes.Buffer
	if _, err := data.ReadFrom(io.LimitReader(f, int64(headerSize))); err != nil {
		return nil, err
	}
	h, err := parseHeader(data.Bytes())
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
	if _, err := data.ReadFrom(io.LimitReader(f, int64(h.Size)-int64(headerSize)+1)); err != nil {
		return nil, err
	}
	return decode(data.Bytes())
}

// Read is screen.Read of bytes, of which it keeps none.
func Read(data []byte) (*Model, error) {
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m, nil
}

// parseHeader reads the header of a file, of which data is the beginning.
func parseHeader(data []byte) (h header, err error) {
	if len(data) == 0 {
		return h, fmt.Errorf("header: found an empty file, expected at least %d bytes", headerSize)
	}
	if bytes.HasPrefix(data, []byte(previewMagic)) {
		return h, errors.New("magic: found a preview, expected a screen: l2s topk, eval, bench and inspect take previews, and l2s-llama --fast one beside the model: MODEL.gguf.l2p")
	}
	if n := min(len(data), len(magic)); string(data[:n]) != magic[:n] {
		return h, fmt.Errorf("magic: found % x, expected % x: not a screen file", data[:n], magic)
	}
	if _, err := binary.Decode(data, binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("header: found %d bytes, expected at least %d", len(data), headerSize)
	}
	if h.Version != version {
		return h, fmt.Errorf("version: found %d, expected %d: l2s train makes a new file", h.Version, version)
	}
	if h.Size < uint64(headerSize) || h.Size > math.MaxInt-1 {
		return h, fmt.Errorf("file size: found %d in the header, expected %d to %d", h.Size, headerSize, math.MaxInt-1)
	}
	return h, nil
}

func (h *header) checkSize(found uint64) error {
	if found != h.Size {
		return fmt.Errorf("file size: found %d bytes, expected the %d that the header states", found, h.Size)
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
	if found := crc32c.Sum(data[atSize:]); found != h.Checksum {
		return nil, fmt.Errorf("checksum: found %08x, expected %08x", found, h.Checksum)
	}
	for _, x := range []struct {
		name         string
		count, least uint32
	}{{"labels", h.Labels, 1}, {"dim", h.Dim, 1}, {"clusters", h.Clusters, 1}, {"always", h.Always, 0}, {"k", h.K, 0}, {"held-out contexts", h.HeldOut, 0}} {
		if x.count < x.least || uint64(x.count) > maxCount {
			return nil, fmt.Errorf("%s: found %d, expected %d to %d", x.name, x.count, x.least, uint64(maxCount))
		}
	}
	f := file{header: h}
	data = data[headerSize:]
	for _, p := range f.parts() {
		if data, err = p.read(data); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("file size: found %d bytes after the record, expected none", len(data))
	}
	return f.model()
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
	_, err = binary.Decode(data, binary.LittleEndian, list.Interface())
	return data[int(n)*size:], err
}

func (f *file) model() (m *Model, err error) {
	c := f.c
	c.Dim, c.Labels, c.Always, c.K, c.HeldOut = int(f.Dim), int(f.Labels), int(f.Always), int(f.K), int(f.HeldOut)
	c.Fingerprint = f.Fingerprint
	c.Budget = f.budget[0]
	if c.Budget == 0 {
		return nil, fmt.Errorf("budget: found 0, expected one of the ladder")
	}
	c.Lists = make([]List, len(f.sizes))
	at := 0
	for t, size := range f.sizes {
		if uint64(size) > uint64(len(f.ids)-at) {
			return nil, fmt.Errorf("sizes: list %d: found %d ids, expected at most the %d that are left", t, size, len(f.ids)-at)
		}
		end := at + int(size)
		c.Lists[t] = List{f.ids[at:end:end], f.shares[at:end:end]}
		at = end
	}
	if at != len(f.ids) {
		return nil, fmt.Errorf("sizes: found %d ids in all lists, expected %d", at, len(f.ids))
	}
	c.Ladder = make([]Rung, len(f.ladder))
	for i, x := range f.ladder {
		if uint64(max(x.P99Candidates, x.MaxCandidates)) > maxCount {
			return nil, fmt.Errorf("ladder: rung %d: found %v, %d and %d candidates, expected a mean, a 99th percentile and a largest number",
				i, x.MeanCandidates, x.P99Candidates, x.MaxCandidates)
		}
		c.Ladder[i] = Rung{x.Budget, x.Share, x.MeanCandidates, int(x.P99Candidates), int(x.MaxCandidates), x.Precision1, x.PrecisionK}
	}
	if f.Temperatures > 0 {
		f.tail.Share, f.tail.Clusters = f.TailShare, int(f.Clusters)
		if c.Tail, err = tail.New(f.tail); err != nil {
			return nil, err
		}
	} else if f.TailShare != 0 || f.Levels != 0 || f.Directions != 0 {
		return nil, fmt.Errorf("tail: found share %d, %d levels and %d directions, expected none without temperatures", f.TailShare, f.Levels, f.Directions)
	}
	return newModel(c)
}
