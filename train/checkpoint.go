package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// labelsSuffix makes the name of the file of labels from the name of the
// checkpoint. The labels are by far the larger part and do not change, so they
// are written once, to a file of their own.
const labelsSuffix = "-labels"

// CheckpointFiles returns the names of the files that a run with the option
// Checkpoint set to path may keep: the state of the run, the labels of
// the contexts, and the sums that the tail is fitted to.
func CheckpointFiles(path string) []string {
	return []string{path, path + labelsSuffix, path + tailSuffix}
}

// RemoveCheckpoint removes the files of a checkpoint; if there are none that is
// no error. It is for the time when the screen has been saved. Files of another
// kind with these names, and labels without a state beside them, which no run
// leaves, are an error, and nothing is removed then.
func RemoveCheckpoint(path string) error {
	if _, err := checkpointThere(path); err != nil {
		return err
	}
	var errs []error
	for _, file := range []string{path + tailSuffix, path + labelsSuffix, path} { // the state, by which the labels are known, is the last
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// CheckCheckpoint returns an error if a file of another kind, or labels without a state
// beside them, have the names of the files of a checkpoint at path, so that no run could
// use it. If there is no checkpoint that is no error.
func CheckCheckpoint(path string) error {
	_, err := checkpointThere(path)
	return err
}

// checkpointThere reports whether there is a checkpoint, damaged or not. It is an
// error if the files with its names do not come from a run.
func checkpointThere(path string) (bool, error) {
	there, err := isKind(path, checkpointMagic, "the state of an interrupted run")
	if err != nil {
		return false, err
	}
	if _, err := isKind(path+tailSuffix, tailMagic, "the sums of the tail of an interrupted run"); err != nil {
		return false, err
	}
	labels, err := isKind(path+labelsSuffix, labelfile.Magic, "the labels of an interrupted run")
	if err == nil && labels && !there {
		err = fmt.Errorf("%s: found labels without the state of a run in %s, expected both or none: move the labels away", path+labelsSuffix, path)
	}
	return there, err
}

// isKind reports whether there is a file at path, which must begin with magic.
func isKind(path, magic, what string) (bool, error) {
	info, err := os.Stat(path) // before it is opened, since that would wait for the other end of a pipe
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	start := make([]byte, len(magic))
	if info.Mode().IsRegular() {
		file, err := os.Open(path)
		if err != nil {
			return false, err
		}
		defer file.Close()
		if _, err := io.ReadFull(file, start); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return false, err
		}
	}
	if string(start) != magic {
		return false, fmt.Errorf("%s: found another kind of file, expected %s: move it away", path, what)
	}
	return true, nil
}

// ErrCheckpoint is what errors.Is finds in the error of a run that cannot
// continue from the checkpoint that is there: it is of another run, or
// damaged. [RemoveCheckpoint] removes it.
var ErrCheckpoint = errors.New("checkpoint")

// badCheckpoint makes an error of [Run] about what is wrong with a checkpoint.
func badCheckpoint(err error) error { return fmt.Errorf("%w: %w", ErrCheckpoint, err) }

// identity is what a run depends on. Runs of equal identity give equal
// screens, so that one may continue the other.
type identity struct {
	Options     Options          `json:"options"`
	Dim         int              `json:"dim"`
	Labels      int              `json:"labels"`
	Contexts    int              `json:"contexts"`
	Fingerprint [32]byte         `json:"fingerprint"`
	Digest      labelfile.Digest `json:"digest"` // of the contexts
}

// checkpoint keeps the state of a run in files. A nil one keeps nothing.
type checkpoint struct {
	path string
	identity
	left *state // by a run that was interrupted, nil if there is none
}

// state is what an interrupted run left, or nil.
func (c *checkpoint) state() *state {
	if c == nil {
		return nil
	}
	return c.left
}

// beforeKMeans is the Iteration of a state without any array: the labels are all
// that there is of the run.
const beforeKMeans = -1

// state is the part of a checkpoint that changes. The zero Iteration is the
// state after k-means, whose unit vectors are then in v; after that v holds
// the parameters of the optimiser.
type state struct {
	identity
	Record    Record  `json:"record"`
	Iteration int     `json:"iteration"` // alternations finished
	BestHits  int     `json:"best_hits"`
	Epochs    uint64  `json:"epochs"`
	Next      int     `json:"next"`
	Drawn     uint64  `json:"drawn"`
	Step      int     `json:"step"`
	B1        float64 `json:"b1"`
	B2        float64 `json:"b2"`

	v, first, second, best []float64
}

// arrays returns the arrays in the order of the file with their lengths.
func (s *state) arrays() (arrays []*[]float64, lengths []int) {
	if s.Iteration == beforeKMeans {
		return nil, nil
	}
	size := s.Options.levels().rows() * s.Dim
	arrays, lengths = []*[]float64{&s.v}, []int{size}
	if s.Iteration > 0 {
		second := size
		if s.Options.Optimizer != Adam {
			second = 0
		}
		arrays, lengths = append(arrays, &s.first, &s.second, &s.best), append(lengths, size, second, size)
	}
	return arrays, lengths
}

// openCheckpoint returns the checkpoint of the run, nil if the options want none,
// with the state that a run before left in it. It is an error if what is
// there belongs to another run. Labels do not depend on the other options.
func openCheckpoint(d *data, layer *softmax.Layer, opt *Options) (*checkpoint, error) {
	if opt.Checkpoint == "" {
		return nil, nil
	}
	c := &checkpoint{path: opt.Checkpoint, identity: identity{opt.recorded(), d.dim, d.universe, d.n, layer.Fingerprint(), d.digest}}
	there, err := checkpointThere(c.path)
	if err != nil || !there {
		return c, err
	}
	file, err := os.ReadFile(c.path)
	if err == nil {
		c.left, err = c.decode(file)
	}
	if err != nil {
		return nil, badCheckpoint(err)
	}
	if c.left.Iteration == beforeKMeans {
		c.left = nil
	}
	return c, nil
}

// The file is the magic, its version, the CRC-32C of all that follows, the
// length of the JSON, as 32-bit little-endian words, the JSON, and the arrays
// as float64.
const (
	checkpointMagic   = "l2sstate"
	checkpointVersion = 1
	checkpointHead    = 20
)

func (c *checkpoint) save(s *state) error {
	if c == nil {
		return nil
	}
	s.identity = c.identity
	head, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", c.path, err)
	}
	le := binary.LittleEndian
	data := append([]byte(checkpointMagic), make([]byte, checkpointHead-len(checkpointMagic))...)
	le.PutUint32(data[8:], checkpointVersion)
	le.PutUint32(data[16:], uint32(len(head)))
	data = append(data, head...)
	arrays, _ := s.arrays()
	for _, array := range arrays {
		for _, x := range *array {
			data = le.AppendUint64(data, math.Float64bits(x))
		}
	}
	le.PutUint32(data[12:], crc32c.Sum(data[16:]))
	file, err := atomicfile.Create(c.path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Abort()
	if _, err := file.Write(data); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := file.Commit(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func (c *checkpoint) decode(data []byte) (*state, error) {
	le := binary.LittleEndian
	switch {
	case len(data) < checkpointHead || string(data[:len(checkpointMagic)]) != checkpointMagic:
		return nil, fmt.Errorf("%s: found another kind of file, expected the state of an interrupted run", c.path)
	case le.Uint32(data[8:]) != checkpointVersion:
		return nil, fmt.Errorf("%s: version: found %d, expected %d", c.path, le.Uint32(data[8:]), checkpointVersion)
	}
	if found, want := crc32c.Sum(data[16:]), le.Uint32(data[12:]); found != want {
		return nil, fmt.Errorf("%s: checksum: found %08x, expected %08x: the file is damaged", c.path, found, want)
	}
	rest := data[checkpointHead:]
	size := uint64(le.Uint32(data[16:]))
	if size > uint64(len(rest)) {
		return nil, fmt.Errorf("%s: file size: found %d, expected more", c.path, len(data))
	}
	s := &state{}
	if err := json.Unmarshal(rest[:size], s); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	if err := c.check(s); err != nil {
		return nil, fmt.Errorf("%s: %w: it was left by another run", c.path, err)
	}
	rest = rest[size:]
	arrays, lengths := s.arrays()
	total := 0
	for _, n := range lengths {
		total += 8 * n
	}
	if len(rest) != total {
		return nil, fmt.Errorf("%s: arrays: found %d bytes, expected %d", c.path, len(rest), total)
	}
	for i, array := range arrays {
		*array = make([]float64, lengths[i])
		for j := range *array {
			(*array)[j] = math.Float64frombits(le.Uint64(rest))
			rest = rest[8:]
		}
	}
	return s, nil
}

// check returns an error that names what in the identity of the state found
// differs from the identity of this run.
func (c *checkpoint) check(found *state) error {
	for _, field := range []struct {
		name        string
		found, want int
	}{{"dim", found.Dim, c.Dim}, {"labels", found.Labels, c.Labels}, {"contexts", found.Contexts, c.Contexts}, {"k", found.Options.K, c.Options.K}} {
		if field.found != field.want {
			return fmt.Errorf("%s: found %d, expected %d", field.name, field.found, field.want)
		}
	}
	if found.Fingerprint != c.Fingerprint {
		return fmt.Errorf("fingerprint of the layer: found %x..., expected %x...", found.Fingerprint[:8], c.Fingerprint[:8])
	}
	if found.Digest != c.Digest {
		return fmt.Errorf("digest of the contexts: found %x..., expected %x...", found.Digest[:8], c.Digest[:8])
	}
	if found.Iteration == beforeKMeans {
		return nil
	}
	return compareOptions(found.Options, c.Options)
}

// compareOptions returns an error that names the first option that differs.
func compareOptions(found, want Options) error {
	expected := want.list()
	for i, x := range found.list() {
		a, errA := json.Marshal(x.value)
		b, errB := json.Marshal(expected[i].value)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			return fmt.Errorf("%s: found %s, expected %s", x.name, a, b)
		}
	}
	return nil
}

// labels returns the labels that a run before kept, or nil.
func (c *checkpoint) labels(ctx context.Context) ([]uint32, error) {
	if c == nil {
		return nil, nil
	}
	path := c.path + labelsSuffix
	f, err := labelfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, badCheckpoint(err)
	}
	defer f.Close()
	if want := c.labelsHeader(); f.Header != want {
		return nil, badCheckpoint(fmt.Errorf("%s: found labels of another layer, of other contexts or with another k, expected the labels of this run", path))
	}
	labels, err := f.ReadAll(ctx)
	if err != nil {
		return nil, badCheckpoint(err)
	}
	return labels, nil
}

func (c *checkpoint) labelsHeader() labelfile.Header {
	return labelfile.Header{
		K: c.Options.K, Count: c.Contexts, Total: c.Contexts, Labels: c.Labels, Dim: c.Dim,
		Fingerprint: c.Fingerprint, Contexts: c.Digest,
	}
}

// saveLabels keeps the labels. The state that is kept before them says that they
// belong to a run.
func (c *checkpoint) saveLabels(labels []uint32) error {
	if c == nil {
		return nil
	}
	if c.left == nil {
		if err := c.forget(); err != nil {
			return err
		}
	}
	w, err := labelfile.Create(c.path+labelsSuffix, c.labelsHeader())
	if err == nil {
		defer w.Abort()
		if err = w.Write(labels, c.Digest); err == nil {
			err = w.Commit()
		}
	}
	if err != nil {
		if c.left == nil {
			os.Remove(c.path) // there is nothing that it is the state of
		}
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// recordOf is the record of what is done.
func (c *checkpoint) recordOf(done ...interface{ record(*Record) }) Record {
	r := newRecord(&c.Options, c.Contexts, c.Digest)
	for _, stage := range done {
		stage.record(r)
	}
	return *r
}

// forget keeps nothing of the run but its labels.
func (c *checkpoint) forget() error { return c.save(&state{Iteration: beforeKMeans}) }

// saveKMeans keeps the clusters of k-means.
func (c *checkpoint) saveKMeans(start *clustered) error {
	if c == nil {
		return nil
	}
	return c.save(&state{Record: c.recordOf(start), v: widen(start.weights)})
}

// saveAlternation keeps the state after an alternation.
func (c *checkpoint) saveAlternation(iteration int, l *learner, start *clustered, so *learned) error {
	if c == nil {
		return nil
	}
	return c.save(&state{
		Record: c.recordOf(start, so), Iteration: iteration, BestHits: so.bestHits,
		Epochs: l.epochs, Next: l.next, Drawn: l.drawn, Step: l.step, B1: l.optimizer.b1, B2: l.optimizer.b2,
		v: l.optimizer.v, first: l.optimizer.first, second: l.optimizer.second, best: widen(so.weights),
	})
}

// restore brings a new learner, and what it has learned so far, to the state
// after an alternation.
func (s *state) restore(l *learner, so *learned) {
	copy(l.optimizer.v, s.v)
	copy(l.optimizer.first, s.first)
	copy(l.optimizer.second, s.second)
	l.optimizer.b1, l.optimizer.b2 = s.B1, s.B2
	narrow(l.v, s.v)
	for l.epochs < s.Epochs { // each shuffle starts from the order that the one before left
		l.shuffle()
	}
	l.next, l.drawn, l.step = s.Next, s.Drawn, s.Step
	narrow(so.weights, s.best)
	r := &s.Record
	so.scale, so.groupScale, so.alternations, so.best, so.bestHits = r.Scale, r.GroupScale, r.Alternations, r.Best, s.BestHits
}

// widen and narrow are exact on the values of float32 parameters.
func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func narrow(dst []float32, x []float64) {
	for i, v := range x {
		dst[i] = float32(v)
	}
}
