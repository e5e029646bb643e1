package lstm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// stream is a token stream that ends in err, if there is one.
func stream(tokens []uint32, err error) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		for _, token := range tokens {
			if !yield(token, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func randomTokens(seed uint64, n, vocab int) []uint32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(rng.IntN(vocab))
	}
	return tokens
}

// TestAgainstReference: any shape, tied or not, on every level, step by step
// and as a stream.
//
// The tolerance: a gate of these models is a sum of up to 66 products below 1
// and so within about 1e-5 of the exact one at worst; sigmoid and tanh do not
// enlarge that; five to twenty steps through a forget gate can.
func TestAgainstReference(t *testing.T) {
	const tolerance = 3e-5
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			var (
				seed   = rapid.Uint64().Draw(t, "seed")
				vocab  = rapid.IntRange(1, 40).Draw(t, "vocab")
				dim    = rapid.IntRange(1, 33).Draw(t, "dim")
				layers = rapid.IntRange(1, 3).Draw(t, "layers")
				tied   = rapid.Bool().Draw(t, "tied")
				n      = rapid.SampledFrom([]int{1, 2, 5, 20}).Draw(t, "tokens")
				embed  = dim
			)
			if !tied {
				embed = rapid.IntRange(1, 33).Draw(t, "embed")
			}
			s := newSpec(seed, vocab, embed, dim, layers, tied)
			m, err := read("language model", s.file())
			if err != nil {
				t.Fatal(err)
			}
			if m.Vocab() != vocab || m.Dim() != dim || m.Layers() != layers {
				t.Fatalf("vocab %d, dim %d, layers %d", m.Vocab(), m.Dim(), m.Layers())
			}
			w, b := m.Decoder()
			wantW, ok := s.tensors["decoder.weight"]
			if !ok {
				wantW = s.tensors["encoder.weight"]
			}
			if !slices.Equal(w, wantW.data) || !slices.Equal(b, s.tensors["decoder.bias"].data) {
				t.Fatal("Decoder is not the softmax layer of the file")
			}

			tokens := randomTokens(seed, n, vocab)
			want := s.reference(tokens)
			st := m.NewState()
			for pass := range 2 {
				for i, token := range tokens {
					if err := maxError(st.Step(token), want[i]); err > tolerance {
						t.Fatalf("pass %d: context %d differs by %g", pass, i, err)
					}
				}
				st = m.NewState()
			}
			i := 0
			err = m.Contexts(context.Background(), stream(tokens, nil), func(h []float32) error {
				if err := maxError(h, want[i]); err > tolerance {
					return fmt.Errorf("stream: context %d differs by %g", i, err)
				}
				i++
				return nil
			})
			if err != nil || i != n {
				t.Fatalf("%d of %d contexts; %v", i, n, err)
			}
		})
	})
}

// TestContextsIsStep: chunks give the same bits as a state step by step,
// wherever the stream ends within a chunk.
func TestContextsIsStep(t *testing.T) {
	s := newSpec(1, 50, 24, 40, 3, false)
	m := s.read(t)
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, n := range []int{0, 1, chunkLen - 1, chunkLen, chunkLen + 1, 5*chunkLen - 1, 5 * chunkLen, 12*chunkLen + 7} {
			tokens := randomTokens(uint64(n), n, 50)
			st, i := m.NewState(), 0
			err := m.Contexts(context.Background(), stream(tokens, nil), func(h []float32) error {
				if !slices.Equal(h, st.Step(tokens[i])) {
					return fmt.Errorf("context %d of %d differs", i, n)
				}
				i++
				return nil
			})
			if err != nil || i != n {
				t.Errorf("%d of %d contexts; %v", i, n, err)
			}
		}
	})
}

func TestContextsEndsEarly(t *testing.T) {
	m := newSpec(1, 50, 8, 8, 2, false).read(t)
	tokens := randomTokens(1, 20*chunkLen, 50)
	broken := errors.New("broken")
	for _, at := range []int{0, 1, chunkLen, 7*chunkLen + 3} {
		if err := m.Contexts(context.Background(), stream(tokens[:at], broken), func([]float32) error { return nil }); err != broken {
			t.Errorf("error of the token stream after %d tokens: got %v", at, err)
		}
		calls := 0
		err := m.Contexts(context.Background(), stream(tokens, nil), func([]float32) error {
			if calls++; calls > at {
				return broken
			}
			return nil
		})
		if err != broken || calls != at+1 {
			t.Errorf("error of call %d: got %v after %d calls", at+1, err, calls)
		}
		ctx, cancel := context.WithCancel(context.Background())
		calls = 0
		err = m.Contexts(ctx, stream(tokens, nil), func([]float32) error {
			if calls++; calls == at+1 {
				cancel()
			}
			return nil
		})
		cancel()
		if !errors.Is(err, context.Canceled) || calls > at+1+chunkLen {
			t.Errorf("cancelled in call %d: got %v after %d calls", at+1, err, calls)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := m.Contexts(ctx, stream(tokens, nil), func([]float32) error { return errors.New("called") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the start: got %v", err)
	}
}

func TestTokenOutOfRange(t *testing.T) {
	s := newSpec(1, 5, 4, 4, 2, false)
	m := s.read(t)
	st := m.NewState()
	before := slices.Clone(st.Step(3))
	for _, token := range []uint32{5, math.MaxUint32} {
		if msg := panicOf(func() { st.Step(token) }); msg != errToken {
			t.Errorf("Step(%d): panic %q, want %q", token, msg, errToken)
		}
		if msg := panicOf(func() {
			_ = m.Contexts(context.Background(), stream([]uint32{0, token}, nil), func([]float32) error { return nil })
		}); msg != errToken {
			t.Errorf("Contexts with token %d: panic %q, want %q", token, msg, errToken)
		}
	}
	if !slices.Equal(st.s.h[1], before) {
		t.Error("a refused token changed the state")
	}
}

func panicOf(f func()) (msg string) {
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// TestProducts: W x + b, of one vector and of several.
func TestProducts(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, c := range []struct{ n, m, d int }{{1, 1, 1}, {3, 31, 200}, {2, 100, 200}, {5, 7, 5000}, {1, 40, 1000}} {
			rng := rand.New(rand.NewPCG(1, 2))
			draw := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = rng.Float32() - 0.5
				}
				return x
			}
			rows, x, bias := draw(c.m*c.d), draw(c.n*c.d), draw(c.m)
			dst := draw(c.n * c.m)
			Products(dst, rows, bias, x, c.d, c.n)
			for s := range c.n {
				for i := range c.m {
					want, size := float64(bias[i]), 0.0
					for j := range c.d {
						p := float64(rows[i*c.d+j]) * float64(x[s*c.d+j])
						want += p
						size += math.Abs(p)
					}
					if err := math.Abs(float64(dst[s*c.m+i]) - want); err > 1e-6*(1+size) {
						t.Fatalf("n %d, m %d, d %d: product %d of vector %d is %v, want %v", c.n, c.m, c.d, i, s, dst[s*c.m+i], want)
					}
				}
			}
		}
	})
}

func TestNoAllocation(t *testing.T) {
	m := newSpec(1, 300, 24, 40, 2, false).read(t)
	st := m.NewState()
	if n := simdtest.AllocsPerRun(50, func() { st.Step(7) }); n != 0 {
		t.Errorf("%v allocations in Step, want none", n)
	}
}
