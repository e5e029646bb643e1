package llamacpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/train"
)

const (
	shared = "../../shared"
	gguf   = shared + "/data/llm-65k-gguf/llm-65k.q8_0.gguf"
)

var (
	missing string // why there are no tests of the library
	loaded  error
)

func TestMain(m *testing.M) {
	loaded = load()
	if os.Getenv("L2S_LOAD_ALONE") != "" {
		fmt.Println(loaded)
		os.Exit(1)
	}
	if missing != "" {
		fmt.Fprintln(os.Stderr, "llamacpp: most tests are skipped:", missing)
	}
	os.Exit(m.Run())
}

// load takes the libraries of YZMA_LIB, or has them fetched once.
func load() error {
	if _, err := os.Stat(gguf); err != nil {
		missing = "found no model " + gguf + " (CONTRIBUTING.md, Data, describes it)"
		return nil
	}
	folder, err := testlib.Get(shared+"/llama/get", "..")
	if err != nil {
		missing = err.Error()
		return nil
	}
	return llamacpp.Load(folder)
}

// open opens the test model.
func open(t testing.TB, o llamacpp.Options) *llamacpp.Model {
	t.Helper()
	if missing != "" {
		t.Skip(missing)
	}
	if loaded != nil {
		t.Fatal(loaded)
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	m, err := llamacpp.Open(gguf, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func openHead(t testing.TB, m *llamacpp.Model) *llamacpp.Head {
	t.Helper()
	x, err := m.Head(llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

const text = "The configuration file has three sections. The first names the servers, the second their ports, and the third says which of them may be restarted."

func feed(t testing.TB, m *llamacpp.Model, sequence int, ids ...uint32) []float32 {
	t.Helper()
	h, err := m.Feed(context.Background(), sequence, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), h...)
}

// apart is the distance of two states, as a share of the length of the first.
func apart(a, b []float32) float64 {
	d, n := 0.0, 0.0
	for i := range a {
		d += float64(a[i]-b[i]) * float64(a[i]-b[i])
		n += float64(a[i]) * float64(a[i])
	}
	return math.Sqrt(d / n)
}

// llama.cpp rounds the cache to float16 and activations to 8 bits: the order of sums decides
// roundings. States of the same tokens in other batches differ by less than this.
const batching = 0.02

func TestTheHeadIsTheModels(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 256})
	x := openHead(t, m)
	if err := m.Check(x); err != nil {
		t.Error(err)
	}
	if m.Len(0) != 0 {
		t.Errorf("found %d tokens after a check, expected none", m.Len(0))
	}
}

func TestAnotherHeadIsRefused(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 256})
	x, err := llamacpp.OpenHead(gguf+":blk.0.attn_q.weight", llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var unlike *llamacpp.UnlikeError
	if err := m.Check(x); !errors.As(err, &unlike) {
		t.Errorf("found %v, expected an error with both logits", err)
	}
}

func TestAnUnknownArchitectureIsChecked(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	llamacpp.Forget("llama", func() {
		m := open(t, llamacpp.Options{Context: 64})
		if _, err := m.Feed(context.Background(), 0, 1); err == nil || !strings.Contains(err.Error(), "does not know") {
			t.Errorf("before a check: found %v, expected no state", err)
		}
		openHead(t, m)
		feed(t, m, 0, 1)
	})
}

// A scale or a cap that llama.cpp ignores, because the architecture has none, is no scale of this
// model: the head is refused, since its probabilities are others than llama.cpp's.
func TestAKeyThatLlamaCPPIgnoresIsRefused(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	for key, value := range map[string]float32{"llama.logit_scale": 0.5, "llama.final_logit_softcapping": 8} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := testlib.With(gguf, path, key, value); err != nil {
			t.Fatal(err)
		}
		m, err := llamacpp.Open(path, llamacpp.Options{Context: 64, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Head(llamacpp.HeadOptions{})
		if unlike := new(llamacpp.UnlikeError); !errors.As(err, &unlike) {
			t.Errorf("%s: found %v, expected an UnlikeError", key, err)
		}
		m.Close()
	}
}

func TestWhatTheCallbackAsksFor(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 64})
	for name, want := range map[string][2]bool{
		"result_norm": {true, false}, "result_output": {false, true}, "result_norm-1": {false, false}, "result_output_no_bias": {false, false}, "ffn_out-3": {false, false}, "": {false, false},
	} {
		if wanted, head := m.AskedAbout(name); wanted != want[0] || head != want[1] {
			t.Errorf("%q: found wanted %v, head computed %v, expected %v, %v", name, wanted, head, want[0], want[1])
		}
	}
}

func TestAModelWithoutAVocabularyIsRefused(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 64})
	b, err := os.ReadFile(m.Path())
	if err != nil {
		t.Fatal(err)
	}
	// One string is shorter and the other longer by the same number of bytes: the tensors keep
	// their places.
	b = bytes.Replace(b, []byte("\x07\x00\x00\x00\x00\x00\x00\x00llm-65k"), []byte("\x04\x00\x00\x00\x00\x00\x00\x00llm-"), 1)
	kind := "tokenizer.ggml.model\x08\x00\x00\x00"
	b = bytes.Replace(b, []byte(kind+"\x05\x00\x00\x00\x00\x00\x00\x00llama"), []byte(kind+"\x08\x00\x00\x00\x00\x00\x00\x00no_vocab"), 1)
	if _, err := llamacpp.Open(file(t, string(b)), llamacpp.Options{}); err == nil || !strings.Contains(err.Error(), "found no vocabulary") {
		t.Errorf("found %v, expected an error", err)
	}
}

func TestForeignLibraries(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	open(t, llamacpp.Options{Context: 64})
	for name, c := range map[string]struct{ file, want string }{
		"missing": {"", "found no such library"},
		"foreign": {"no library", "found libraries that yzma"},
	} {
		dir := t.TempDir()
		if c.file != "" {
			for _, lib := range []string{"libllama.so", "libggml.so", "libggml-base.so"} {
				if err := os.WriteFile(filepath.Join(dir, lib), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		command := exec.Command(os.Args[0], "-test.run", "^TestMain$")
		command.Env = append(os.Environ(), "YZMA_LIB="+dir, "L2S_LOAD_ALONE=1")
		if text, err := command.CombinedOutput(); err == nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: found %v, %s, expected an error with %q", name, err, text, c.want)
		} else {
			t.Logf("%s", text)
		}
	}
}

func TestStatesDoNotDependOnTheBatches(t *testing.T) {
	whole := open(t, llamacpp.Options{Context: 256, States: 256})
	parts := open(t, llamacpp.Options{Context: 256, Batch: 7, States: 3})
	ids := whole.Tokens(strings.Repeat(text+" ", 6), true)
	ids = ids[:min(len(ids), 200)]
	var tokens []llamacpp.Token
	for _, id := range ids {
		tokens = append(tokens, llamacpp.Token{ID: id, State: true})
	}
	d := whole.Dim()
	a, err := whole.Decode(context.Background(), tokens...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parts.Decode(context.Background(), tokens[:len(a)/d]...)
	if err != nil {
		t.Fatal(err)
	}
	one := open(t, llamacpp.Options{Context: 256})
	largest := 0.0
	for i := range len(a) / d {
		c := feed(t, one, 0, ids[i])
		largest = max(largest, apart(c, a[i*d:][:d]), apart(c, b[i*d:][:d]))
		if x, y := apart(c, a[i*d:][:d]), apart(c, b[i*d:][:d]); x > batching || y > batching {
			t.Errorf("token %d: found states %g and %g from the state of one token after the other, expected less than %g", i, x, y, batching)
		}
	}
	t.Logf("at most %.2g of the length of a state", largest)
}

func TestSequencesAreApart(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 128, Sequences: 3})
	ids := m.Tokens(text, true)
	alone := feed(t, m, 0, ids...)
	m.Clear(0)
	feed(t, m, 1, ids[:9]...)
	if err := m.Copy(2, 1); err != nil {
		t.Fatal(err)
	}
	feed(t, m, 1, ids[20:25]...)
	if found := feed(t, m, 2, ids[9:]...); apart(alone, found) > batching {
		t.Errorf("a copy that went on: found a state %g from that without one", apart(alone, found))
	}
	if err := m.Cut(1, 9); err != nil {
		t.Fatal(err)
	}
	if found := feed(t, m, 1, ids[9:]...); apart(alone, found) > batching {
		t.Errorf("a sequence that went back: found a state %g from that without", apart(alone, found))
	}
	if m.Len(0) != 0 || m.Len(1) != len(ids) || m.Len(2) != len(ids) {
		t.Errorf("found lengths %d, %d, %d, expected 0, %d, %d", m.Len(0), m.Len(1), m.Len(2), len(ids), len(ids))
	}
	// All in one batch, mixed.
	var tokens []llamacpp.Token
	for s := range 3 {
		m.Clear(s)
	}
	for i, id := range ids {
		for s := range 3 {
			tokens = append(tokens, llamacpp.Token{Sequence: s, ID: id, State: i == len(ids)-1})
		}
	}
	states, err := m.Decode(context.Background(), tokens...)
	if err != nil {
		t.Fatal(err)
	}
	for s := range 3 {
		if found := states[s*m.Dim():][:m.Dim()]; apart(alone, found) > batching {
			t.Errorf("sequence %d of a batch: found a state %g from the state of one alone", s, apart(alone, found))
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 8, Sequences: 2})
	ids := m.Tokens(text, true)
	var long *llamacpp.TooLongError
	if _, err := m.Feed(context.Background(), 0, ids...); !errors.As(err, &long) || long.Context != 8 {
		t.Errorf("a long prompt: found %v", err)
	}
	if m.Len(0) != 0 {
		t.Errorf("found %d tokens, expected none of a prompt that is refused", m.Len(0))
	}
	feed(t, m, 0, ids[:8]...)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		err  func() error
		want string
	}{
		"no tokens":      {func() error { _, err := m.Feed(context.Background(), 0); return err }, "found no tokens"},
		"one more":       {func() error { _, err := m.Feed(context.Background(), 0, 1); return err }, "context of 8"},
		"no token":       {func() error { _, err := m.Feed(context.Background(), 0, 1<<20); return err }, "found token 1048576"},
		"no sequence":    {func() error { _, err := m.Feed(context.Background(), 2, 1); return err }, "found sequence 2"},
		"ended":          {func() error { _, err := m.Feed(ctx, 1, 1); return err }, "canceled"},
		"too far back":   {func() error { return m.Cut(0, 9) }, "found 9 tokens to leave"},
		"long context":   {func() error { _, err := llamacpp.Open(gguf, llamacpp.Options{Context: 1 << 20}); return err }, "found a context of"},
		"many sequences": {func() error { _, err := llamacpp.Open(gguf, llamacpp.Options{Sequences: 1 << 20}); return err }, "found 1048576 sequences"},
		"no file":        {func() error { _, err := llamacpp.Open("no-such.gguf", llamacpp.Options{}); return err }, "no such file"},
		"no model":       {func() error { _, err := llamacpp.Open("doc.go", llamacpp.Options{}); return err }, `expected "GGUF"`},
		"empty file":     {func() error { _, err := llamacpp.Open(file(t, ""), llamacpp.Options{}); return err }, "nothing to read"},
		"cut file":       {func() error { _, err := llamacpp.Open(file(t, start(t, 100_000)), llamacpp.Options{}); return err }, "does not load it"},
		"magic alone":    {func() error { _, err := llamacpp.Open(file(t, "GGUF"), llamacpp.Options{}); return err }, "does not load it"},
		"no vocabulary": {func() error {
			_, err := llamacpp.Open(shared+"/data/gguf/head-q8_0.gguf", llamacpp.Options{})
			return err
		}, "llama.cpp"},
		"an empty index": {func() error {
			_, err := llamacpp.OpenHead(gguf, llamacpp.HeadOptions{Index: new(l2s.Index)})
			return err
		}, "found an empty one"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %v, expected an error with %q", err, c.want)
			} else {
				t.Log(err)
			}
		})
	}
}

func start(t *testing.T, n int) string {
	b, err := os.ReadFile(gguf)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func file(t *testing.T, content string) string {
	name := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAnswersOfAHead(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 128})
	x := openHead(t, m)
	h := feed(t, m, 0, m.Tokens(text, true)...)
	best := make([]llamacpp.Choice, 20)
	n, logZ, err := x.Best(best, h, l2s.Request{})
	if err != nil || n != len(best) {
		t.Fatal(n, err)
	}
	ids := make([]uint32, n)
	for i, c := range best {
		ids[n-1-i] = c.ID
		if math.Abs(c.LogProb-(c.Logit-logZ)) > 1e-12 {
			t.Errorf("token %d: found a log-probability of %g, expected %g", c.ID, c.LogProb, c.Logit-logZ)
		}
	}
	logits := make([]float64, n)
	if err := x.Logits(logits, h, ids...); err != nil {
		t.Fatal(err)
	}
	for i, c := range best {
		if logits[n-1-i] != c.Logit {
			t.Errorf("token %d by name: found the logit %v, expected %v", c.ID, logits[n-1-i], c.Logit)
		}
	}
	// Allowed tokens.
	one := make([]l2s.Prediction, 1)
	if _, err := x.Search(one, h, l2s.Request{Among: l2s.Only(ids[:7])}); err != nil || one[0].ID != ids[6] {
		t.Errorf("among 7: found token %d, %v, expected %d", one[0].ID, err, ids[6])
	}
	if _, err := x.Search(one, h, l2s.Request{Banned: set(t, x, ids[n-1])}); err != nil || one[0].ID != ids[n-2] {
		t.Errorf("the best banned: found token %d, %v, expected %d", one[0].ID, err, ids[n-2])
	}
	o := sample.DefaultOptions()
	o.TopK = 200
	y, err := x.Sampler(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if d, err := y.Draw(h, sample.Edits{Allowed: set(t, x, ids[3:9]...)}); err != nil || !slices.Contains(ids[3:9], d.ID) {
			t.Errorf("found token %d, %v, expected one of %v", d.ID, err, ids[3:9])
		}
	}
	if err := x.Logits(logits[:1], h, 1<<20); err == nil {
		t.Error("the logit of no token: found no error")
	}
	if err := x.Logits(logits, h, 1); err == nil {
		t.Error("room for other logits: found no error")
	}
}

func set(t *testing.T, x *llamacpp.Head, ids ...uint32) *bitset.Set {
	s, err := bitset.FromIDs(x.Labels(), slices.Sorted(slices.Values(ids)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A draft is verified in one batch: the states of its tokens, and the best token after each.
func TestADraftInOneBatch(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 128})
	x := openHead(t, m)
	prompt := m.Tokens(text, true)
	one := make([]l2s.Prediction, 1)
	h := feed(t, m, 0, prompt...)
	var greedy []uint32
	for range 6 {
		if _, err := x.Search(one, h, l2s.Request{}); err != nil {
			t.Fatal(err)
		}
		greedy = append(greedy, one[0].ID)
		h = feed(t, m, 0, one[0].ID)
	}
	if err := m.Cut(0, len(prompt)); err != nil {
		t.Fatal(err)
	}
	var draft []llamacpp.Token
	for _, id := range greedy[:5] {
		draft = append(draft, llamacpp.Token{ID: id, State: true})
	}
	states, err := m.Decode(context.Background(), draft...)
	if err != nil {
		t.Fatal(err)
	}
	best, answers := make([]l2s.Prediction, 5), make([]l2s.Answer, 5)
	if err := x.SearchBatch(best, answers, states, l2s.Request{}); err != nil {
		t.Fatal(err)
	}
	for i, p := range best {
		if p.ID != greedy[i+1] {
			t.Errorf("after token %d of the draft: found %d, expected %d", i, p.ID, greedy[i+1])
		}
	}
}

func TestTextOfTokens(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 8})
	var found strings.Builder
	for _, id := range m.Tokens(text, true) {
		found.WriteString(m.Piece(id))
	}
	if s := strings.TrimSpace(found.String()); s != text {
		t.Errorf("found %q, expected %q", s, text)
	}
	if s := m.Piece(1 << 30); s != "" {
		t.Errorf("no token: found the text %q", s)
	}
}

// A text that the model continues has one token of its beginning, whether the file or the text has
// it, and none of its end but the text's own.
func TestTheBeginningAndTheEndOfAText(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	const begin, end = 1, 2 // <s> and </s>
	words := open(t, llamacpp.Options{Context: 8}).Tokens("Once upon", false)
	join := func(ids ...[]uint32) []uint32 { return slices.Concat(ids...) }
	for _, adds := range []struct{ begin, end bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		file, err := testlib.Bools(t.TempDir(), gguf, map[string]bool{"tokenizer.ggml.add_bos_token": adds.begin, "tokenizer.ggml.add_eos_token": adds.end})
		if err != nil {
			t.Fatal(err)
		}
		m, err := llamacpp.Open(file, llamacpp.Options{Context: 8, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := m.Begins(); ok != adds.begin || ok && id != begin {
			t.Errorf("the file adds %+v: found the beginning %d, %v", adds, id, ok)
		}
		for _, c := range []struct {
			text          string
			plain, begins []uint32 // of a file without add_bos_token, and with it
		}{
			{"Once upon", words, join([]uint32{begin}, words)},
			{"<s>Once upon", join([]uint32{begin}, words), join([]uint32{begin}, words)},
			{"<s><s>Once upon", join([]uint32{begin, begin}, words), join([]uint32{begin, begin}, words)},
			{"<s>", []uint32{begin}, []uint32{begin}},
			{"", nil, []uint32{begin}},
			{"Once upon</s>", join(words, []uint32{end}), join([]uint32{begin}, words, []uint32{end})},
			{"<s></s>", []uint32{begin, end}, []uint32{begin, end}},
		} {
			want := c.plain
			if adds.begin {
				want = c.begins
			}
			if found := m.Tokens(c.text, true); !slices.Equal(found, want) {
				t.Errorf("%q, the file adds %+v: found %v, expected %v", c.text, adds, found, want)
			}
		}
		m.Close()
	}
}

// Bytes that are no text do not reach the tokenizers of llama.cpp, some of which end the program:
// they count as the replacement character.
func TestTextThatIsNoText(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 8})
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "\xff", "a\xc3", "\xed\xa0\x80b", "\xf4\x90\x80\x80", "\xc0\xaf", "\x00\xfe\x00"}
	for range 50 {
		b := make([]byte, r.IntN(3000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		texts = append(texts, string(b))
	}
	for _, text := range texts {
		want := strings.ToValidUTF8(text, "\uFFFD")
		for _, special := range []bool{false, true} {
			if found, expected := m.Tokens(text, special), m.Tokens(want, special); !slices.Equal(found, expected) {
				t.Errorf("%.20q: found %d tokens, expected the %d of the text with replacement characters", text, len(found), len(expected))
			}
		}
		if s := llamacpp.Valid(text); !utf8.ValidString(s) || s != want {
			t.Errorf("%.20q: found %.20q for llama.cpp, expected %.20q", text, s, want)
		}
	}
}

// Numbers that llama.cpp does not check, and that would end the program, are refused.
func TestNumbersThatReachTheLibraryHaveBounds(t *testing.T) {
	open(t, llamacpp.Options{Context: 8}) // if there is a library
	for want, o := range map[string]llamacpp.Options{
		"found 1000000 threads, expected 1 to 512, or 0": {Threads: 1000000},
		"found -1 threads":                                             {Threads: -1},
		fmt.Sprintf("found %d threads", math.MaxInt):                   {Threads: math.MaxInt},
		fmt.Sprintf("found a context of %d tokens", math.MaxInt):       {Context: math.MaxInt},
		"found a context of -1 tokens":                                 {Context: -1},
		"found a batch of -1 tokens with 0 states, expected 0 or more": {Batch: -1},
		"found a batch of 0 tokens with -5 states, expected 0 or more": {States: -5},
		fmt.Sprintf("found %d sequences", math.MaxInt):                 {Sequences: math.MaxInt},
		"found -1 sequences":                                           {Sequences: -1},
	} {
		if m, err := llamacpp.Open(gguf, o); err == nil || !strings.Contains(err.Error(), want) {
			if err == nil {
				m.Close()
			}
			t.Errorf("%+v: found %v, expected an error with %q", o, err, want)
		}
	}
	// More than all sequences have is not needed.
	m := open(t, llamacpp.Options{Context: 8, Sequences: 2, Batch: math.MaxInt, States: math.MaxInt})
	for _, n := range []int{math.MinInt, -1, 0, 1, 1 << 20, math.MaxInt} {
		if err := m.SetThreads(n); err != nil { // llama.cpp would take n at its word with the next tokens
			t.Fatal(err)
		}
		if want := min(max(n, 1), llamacpp.MaxThreads); llamacpp.Threads(n) != want {
			t.Errorf("%d threads: found %d, expected %d", n, llamacpp.Threads(n), want)
		}
	}
	if err := m.SetThreads(1); err != nil {
		t.Fatal(err)
	}
	if h := feed(t, m, 0, 1, 2, 3); len(h) != m.Dim() {
		t.Errorf("found %d numbers, expected a state", len(h))
	}
}

// The README shows the example unchanged.
func TestTheExampleOfTheREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, append([]byte("```go\n"), example...)) {
		t.Error("README.md: found another example than example/main.go")
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, hook, found := strings.Cut(string(source), "\n\thook, err := llamacpp.NewHook")
	hook, _, _ = strings.Cut(hook, "\n}\n")
	hook = "hook, err := llamacpp.NewHook" + strings.ReplaceAll(hook, "\n\t", "\n")
	if !found || !strings.Contains(string(readme), "```go\n"+hook+"\n```\n") {
		t.Errorf("README.md: found other code for users of yzma than ExampleNewHook has, expected\n%s", hook)
	}
}

// A head that learns answers exactly, and then over the screen that it has learned.
func TestAHeadThatLearns(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 512})
	exact := openHead(t, m)
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Geometry, o.Tail, o.Target = 10, 0, 0, nil, 0.01
	x, err := m.Head(llamacpp.HeadOptions{Learn: &learn.Options{Bytes: 64 << 20, CPU: 1, Least: 200, Train: &o}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := m.Head(llamacpp.HeadOptions{Index: new(l2s.Index), Learn: &learn.Options{}}); err == nil {
		t.Error("found a head with a screen that learns another")
	}
	h, err := m.Feed(context.Background(), 0, m.Tokens("The configuration file", true)...)
	if err != nil {
		t.Fatal(err)
	}
	h = slices.Clone(h)
	best, want := make([]l2s.Prediction, 2), make([]l2s.Prediction, 2)
	a, err := x.Search(best, h, l2s.Request{})
	if _, failed := exact.Search(want, h, l2s.Request{}); err != nil || failed != nil || !a.Exact || !slices.Equal(best, want) {
		t.Fatalf("found %v from %v (%v, %v), expected %v from the layer", best, a.Exact, err, failed, want)
	}
	r, usual := rand.New(rand.NewPCG(1, 2)), slices.Clone(h)
	for !x.Learner().Screened() {
		for i := range h { // all are different, and of one kind
			h[i] = usual[i] * float32(1+.02*r.NormFloat64())
		}
		answers := make([]l2s.Answer, 2)
		if err := x.SearchBatch(best, answers, slices.Concat(h, h), l2s.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	h = usual
	if a, err := x.Search(best, h, l2s.Request{}); err != nil || a.Exact {
		t.Errorf("found %v, %v, expected an answer of the screen", a.Exact, err)
	}
	c, d := make([]llamacpp.Choice, 2), make([]llamacpp.Choice, 2)
	_, z, err := x.Best(c, h, l2s.Request{})
	if _, y, failed := exact.Best(d, h, l2s.Request{}); err != nil || failed != nil || z != y || !slices.Equal(c, d) {
		t.Errorf("log-probabilities: found %v, %v, expected the exact ones, %v, %v", c, z, d, y)
	}
}

// The error of a missing folder names the ways to llama.cpp's libraries, and the page of the
// installation has all of them.
func TestThePageOfTheInstallationHasEveryWay(t *testing.T) {
	text := llamacpp.ErrNoFolder.Error()
	page, err := os.ReadFile(filepath.Join("..", "docs", "gguf.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"YZMA_LIB", "--lib", "yzma install --lib", "github.com/hybridgroup/yzma@v1.31.0", "https://github.com/ggml-org/llama.cpp/releases", "libllama.so, libggml*.so", "cmake", "-DBUILD_SHARED_LIBS=ON"} {
		if !strings.Contains(text, way) || !strings.Contains(string(page), way) {
			t.Errorf("%s: found it in the error %v, in docs/gguf.md %v, expected both", way, strings.Contains(text, way), strings.Contains(string(page), way))
		}
	}
}
