package exact_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// plainFingerprint is the definition of a fingerprint, step by step.
func plainFingerprint(w, bias []float32, dim int) [32]byte {
	le := func(x []float32) (b []byte) {
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	all := binary.LittleEndian.AppendUint64(nil, uint64(len(bias)))
	all = binary.LittleEndian.AppendUint64(all, uint64(dim))
	for at := 0; at < len(w); at += 256 * dim {
		sum := sha256.Sum256(le(w[at:min(at+256*dim, len(w))]))
		all = append(all, sum[:]...)
	}
	sum := sha256.Sum256(le(bias))
	return sha256.Sum256(append(all, sum[:]...))
}

// A fingerprint is its definition, for every number of blocks, threads and both widths.
func TestFingerprintIsItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, labels := range []int{1, 255, 256, 257, 512, 1000} {
		for _, dim := range []int{1, 7, 48} {
			wide, narrow, bias := make([]float32, labels*dim), make([]uint16, labels*dim), make([]float32, labels)
			for i := range wide {
				narrow[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
				wide[i] = math.Float32frombits(uint32(narrow[i]) << 16)
			}
			for i := range bias {
				bias[i] = r.Float32()
			}
			want := plainFingerprint(wide, bias, dim)
			for _, rows := range []kernels.Rows{kernels.Float32Rows(wide, dim), kernels.BFloat16Rows(narrow, dim)} {
				for _, threads := range []int{1, 2, 5} {
					t.Run(fmt.Sprintf("%d x %d %v, %d threads", labels, dim, rows.Element(), threads), func(t *testing.T) {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
						l, err := exact.NewLayer(rows, bias)
						if err != nil {
							t.Fatal(err)
						}
						if got := l.Fingerprint(); got != want {
							t.Errorf("found %x, expected %x", got, want)
						}
					})
				}
			}
		}
	}
}
