package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/screen"
)

// tailSuffix makes the name of the file of sums from the name of the checkpoint: what the
// regression of the tail is fitted to, as far as it has been computed.
const tailSuffix = "-tail"

// The file is the magic, its version, the CRC-32C of all that follows, as 32-bit
// little-endian words, and records: the key of a screen, a cluster, the number of sums, and
// the sums as float64.
const (
	tailMagic   = "l2stails"
	tailVersion = 1
	tailHead    = 16
	tailRecord  = sha256.Size + 8 // without the sums
)

// tailState keeps the sums of one screen. A nil one keeps nothing.
type tailState struct {
	path  string
	key   [sha256.Size]byte
	file  []byte // with the sums of the other screens of the run
	found map[int][]float64
}

// tail returns what is kept of the sums of a screen: of exactly this one, with these options,
// over these contexts. Sums of others, and a damaged file, count as nothing: all is then
// computed.
func (c *checkpoint) tail(d *data, m *screen.Model, opt *TailOptions) (*tailState, error) {
	if c == nil {
		return nil, nil
	}
	t := &tailState{path: c.path + tailSuffix, found: map[int][]float64{}}
	hash := sha256.New()
	err := json.NewEncoder(hash).Encode(struct {
		Options  *TailOptions
		Seed     uint64
		Layer    [32]byte
		Contexts labelfile.Digest
	}{opt, d.seed, c.Fingerprint, d.digest})
	if err != nil {
		return nil, err
	}
	if _, err := m.WriteTo(hash); err != nil {
		return nil, err
	}
	hash.Sum(t.key[:0])
	file, err := os.ReadFile(t.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t.read(file)
	return t, nil
}

// read takes over a file, if it is whole.
func (t *tailState) read(file []byte) {
	le := binary.LittleEndian
	t.file = append([]byte(tailMagic), make([]byte, tailHead-len(tailMagic))...)
	le.PutUint32(t.file[8:], tailVersion)
	if len(file) < tailHead || string(file[:8]) != tailMagic || le.Uint32(file[8:]) != tailVersion || le.Uint32(file[12:]) != crc32c.Sum(file[tailHead:]) {
		return
	}
	for rest := file[tailHead:]; len(rest) > 0; {
		if len(rest) < tailRecord {
			return
		}
		n := uint64(le.Uint32(rest[sha256.Size+4:]))
		if uint64(len(rest)-tailRecord) < 8*n {
			return
		}
		if [sha256.Size]byte(rest[:sha256.Size]) == t.key {
			sums := make([]float64, n)
			for i := range sums {
				sums[i] = math.Float64frombits(le.Uint64(rest[tailRecord+8*i:]))
			}
			t.found[int(le.Uint32(rest[sha256.Size:]))] = sums
		}
		rest = rest[tailRecord+8*int(n):]
	}
	t.file = append(t.file[:tailHead], file[tailHead:]...)
}

// sums returns the sums of a cluster, n outside its set and n within it, if they are kept.
func (t *tailState) sums(cluster, n int) (logs, heads []float64, ok bool) {
	if t == nil || len(t.found[cluster]) != 2*n {
		return nil, nil, false
	}
	x := t.found[cluster]
	return x[:n:n], x[n:], true
}

// add adds the sums of a cluster to what save keeps.
func (t *tailState) add(cluster int, logs, heads []float64) {
	if t == nil {
		return
	}
	le := binary.LittleEndian
	t.file = append(t.file, t.key[:]...)
	t.file = le.AppendUint32(t.file, uint32(cluster))
	t.file = le.AppendUint32(t.file, uint32(len(logs)+len(heads)))
	for _, list := range [][]float64{logs, heads} {
		for _, x := range list {
			t.file = le.AppendUint64(t.file, math.Float64bits(x))
		}
	}
}

// save writes the file.
func (t *tailState) save() error {
	if t == nil {
		return nil
	}
	binary.LittleEndian.PutUint32(t.file[12:], crc32c.Sum(t.file[tailHead:]))
	file, err := atomicfile.Create(t.path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer file.Abort()
	if _, err := file.Write(t.file); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := file.Commit(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
