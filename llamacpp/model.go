package llamacpp

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
)

// Options are the options for running a model. The zero value is ready.
type Options struct {
	// Context is the largest number of tokens of a sequence, at most the number that the model was
	// trained with. 0: that number, at most 4,096.
	Context int
	// Sequences is the number of sequences, 1 if it is 0.
	Sequences int
	// Forks is the number of additional sequences, after these, for copies of them ([Model.Copy])
	// with different continuations: together they have room for Batch tokens in addition to the
	// tokens that they share.
	Forks int
	// Kept is the number of further sequences, after these, which have no room of their own: the
	// caller empties some in time. So finished texts stay for others that begin like them. Models
	// whose every sequence takes memory, recurrent and hybrid ones, have none: see [Model.Kept].
	Kept int
	// Batch is the number of tokens that llama.cpp computes at once, 512 if it is 0, and at most
	// the number of tokens of all sequences.
	Batch int
	// States is the largest number of hidden states of a batch, 32 or Sequences if it is 0, and at
	// most Batch.
	States int
	// Threads is the number of threads, at most MaxThreads; 0 means the number that Go uses. While
	// a model has two or more runtime.GOMAXPROCS is 2 more than before, so that Go's scheduler does
	// not disturb them.
	Threads int
}

// MaxThreads bounds the threads of llama.cpp, which ends the program if there are more.
const MaxThreads = 512

// mostTokens bounds the tokens of all sequences together: llama.cpp counts them in 32 bits.
const mostTokens = math.MaxInt32

// Model runs a GGUF model up to its hidden states. It is for one goroutine. Other goroutines may
// meanwhile call the methods that only need the file: Tokens, Piece, Name, Begins, Ends, Template,
// ChatTemplate, Path, Dim, Labels and Context.
type Model struct {
	path    string
	model   llama.Model
	vocab   llama.Vocab
	hook    *Hook
	batch   llama.Batch
	context int
	labels  int
	threads int
	lengths []int // of the sequences
	added   []int // lengths with tokens that are being added
	feed    []Token
	states  []float32
	ordered bool // tokens of several sequences may be mixed in a batch: not in recurrent and hybrid models
	window  int  // of sliding-window attention, in tokens, 1 without it
	seq     [1]llama.SeqId
	options Options
	of      *Model   // of Apart: the model that owns weights and threads
	apart   []*Model // by Apart
}

// Open opens a GGUF file. [Load] comes before. An error names the file, the value found and the
// value expected.
func Open(path string, o Options) (*Model, error) {
	if err := checkFile(path); err != nil {
		return nil, err
	}
	fail := func(format string, a ...any) error {
		return fmt.Errorf("llamacpp: %s: "+format, append([]any{path}, a...)...)
	}
	if err := base.load(); err != nil {
		return nil, err
	}
	takeLog()
	params := llama.ModelDefaultParams()
	params.NGpuLayers = 0
	model, err := llama.ModelLoadFromFile(path, params)
	if err != nil {
		return nil, fail("llama.cpp does not load it: %s", reason(err))
	}
	m := &Model{path: path, model: model, vocab: llama.ModelGetVocab(model)}
	if m.labels = int(llama.VocabNTokens(m.vocab)); m.labels == 0 || llama.GetVocabType(m.vocab) == llama.VocabTypeNone {
		m.Close()
		return nil, fail("found no vocabulary, expected a tokenizer")
	}
	if o.Threads == 0 {
		o.Threads = min(threadpool.Processors(), MaxThreads)
	}
	if o.Threads < 1 || o.Threads > MaxThreads {
		m.Close()
		return nil, fail("found %d threads, expected 1 to %d, or 0", o.Threads, MaxThreads)
	}
	if o.Sequences == 0 {
		o.Sequences = 1
	}
	if llama.ModelIsRecurrent(model) || llama.ModelIsHybrid(model) {
		o.Kept = 0
	}
	if most := int(llama.MaxParallelSequences()); o.Sequences < 1 || o.Sequences > most || o.Forks < 0 || o.Forks > most-o.Sequences || o.Kept < 0 {
		m.Close()
		return nil, fail("found %d sequences, %d forks and %d kept ones, expected 1 or more, 0 or more, and at most %d together", o.Sequences, o.Forks, o.Kept, most)
	}
	o.Kept = min(o.Kept, int(llama.MaxParallelSequences())-o.Sequences-o.Forks)
	trained := int(llama.ModelNCtxTrain(model))
	if o.Context == 0 {
		o.Context = min(max(trained, 1), 4096)
	}
	if o.Context < 1 || trained > 0 && o.Context > trained {
		m.Close()
		return nil, fail("found a context of %d tokens, expected 1 to %d, the number that the model was trained with", o.Context, trained)
	}
	if o.Context > mostTokens/o.Sequences {
		m.Close()
		return nil, fail("found %d sequences of %d tokens, expected at most %d tokens together", o.Sequences, o.Context, mostTokens)
	}
	if o.Batch < 0 || o.States < 0 {
		m.Close()
		return nil, fail("found a batch of %d tokens with %d states, expected 0 or more", o.Batch, o.States)
	}
	if o.Batch == 0 {
		o.Batch = 512
	}
	o.Batch = min(max(o.Batch, o.Sequences), o.Context*o.Sequences)
	if err := m.begin(o, nil); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// begin makes the context, by complete options, and its threads, unless they are another model's.
func (m *Model) begin(o Options, pool *threadpool.Pool) (err error) {
	room := o.Context * o.Sequences
	if o.Forks > 0 {
		room += o.Batch
	}
	if o.States == 0 {
		o.States = 32
	}
	o.States = min(max(o.States, o.Sequences), o.Batch)
	p := llama.ContextDefaultParams()
	p.NCtx, p.NSeqMax = uint32(room), uint32(o.Sequences+o.Forks+o.Kept)
	p.NBatch, p.NUbatch, p.NOutputsMax = uint32(o.Batch), uint32(o.Batch), uint32(o.States)
	p.NOutputsMaxPerSeq = uint32(o.States)
	p.NThreads, p.NThreadsBatch = int32(o.Threads), int32(o.Threads)
	p.NoPerf = 1
	p.SwaFull = 1 // so that a sequence can be cut where its windows are full
	if m.hook, err = NewHook(m.model, p); err != nil {
		return err
	}
	m.options, m.context, m.threads, m.lengths = o, o.Context, o.Threads, make([]int, o.Sequences+o.Forks+o.Kept)
	m.batch = llama.BatchInit(int32(o.Batch), 0, 1)
	m.ordered = !llama.ModelIsRecurrent(m.model) && !llama.ModelIsHybrid(m.model)
	m.window = max(1, int(llama.ModelNSWA(m.model)))
	if m.hook.pool = pool; pool != nil {
		pool.Join(m.hook.ctx)
		return nil
	}
	if m.hook.pool, err = threadpool.New(); err != nil {
		return err
	}
	return m.hook.pool.Set(m.hook.ctx, o.Threads)
}

// Apart returns a model with the weights and the threads of m, and with a context of its own, of
// one sequence and the forks of m. So its states depend on its own tokens alone: llama.cpp rounds
// in other ways when the batch or the cache has tokens of other sequences too. Close it before m.
func (m *Model) Apart() (*Model, error) {
	o := m.options
	o.Sequences, o.Kept, o.Threads = 1, 0, m.threads // batches are cut where those of m are
	a := &Model{path: m.path, model: m.model, vocab: m.vocab, labels: m.labels, of: m}
	if err := a.begin(o, m.hook.pool); err != nil {
		a.Close()
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	a.hook.trusted = m.hook.trusted
	m.apart = append(m.apart, a)
	return a, nil
}

// checkFile looks at the first bytes.
func checkFile(path string) error {
	// Before it is opened, which would wait for the other end of a pipe.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("llamacpp: %s: found a folder, a pipe or a device, expected a regular file, which llama.cpp maps", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	defer f.Close()
	var magic [4]byte
	n, err := io.ReadFull(f, magic[:])
	if err != nil && n == 0 {
		return fmt.Errorf("llamacpp: %s: found nothing to read, expected a GGUF file: %w", path, err)
	}
	if string(magic[:n]) != "GGUF" {
		return fmt.Errorf("llamacpp: %s: found the first bytes %q, expected \"GGUF\", as in a model of llama.cpp", path, magic[:n])
	}
	return nil
}

// Close releases the model.
func (m *Model) Close() {
	if m.hook != nil {
		pool := m.hook.pool
		if pool != nil && m.of != nil {
			pool.Leave(m.hook.ctx)
		}
		m.hook.Close()
		if pool != nil && m.of == nil {
			pool.Close()
		}
		llama.BatchFree(m.batch)
		m.hook = nil
	}
	if m.of != nil {
		m.of.apart = slices.DeleteFunc(m.of.apart, func(a *Model) bool { return a == m })
	} else if m.model != 0 {
		llama.ModelFree(m.model)
	}
	m.model = 0
}

// Path returns the name of the file.
func (m *Model) Path() string { return m.path }

// Llama returns the model as yzma knows it, for contexts of the caller's own.
func (m *Model) Llama() llama.Model { return m.model }

// Architecture returns the general.architecture of the file.
func (m *Model) Architecture() string { return m.hook.arch }

// Dim returns d, the dimension of a hidden state.
func (m *Model) Dim() int { return m.hook.dim }

// Labels returns the number of tokens of the vocabulary.
func (m *Model) Labels() int { return m.labels }

// Context returns the largest number of tokens of a sequence.
func (m *Model) Context() int { return m.context }

// SetThreads changes the number of threads of the model, and so the most that its heads have: to 1
// if n is below it, and to MaxThreads if n is above.
func (m *Model) SetThreads(n int) error {
	m.threads = int(threads(n))
	for _, of := range append(m.apart[:len(m.apart):len(m.apart)], m) {
		llama.SetNThreads(of.hook.ctx, threads(n), threads(n))
	}
	return m.hook.pool.Set(m.hook.ctx, m.threads)
}

// Lend calls work with the numbers from 0 on, below n, at the same time on the threads of the
// model, and returns when all calls have returned: so several sequences draw between two decodes.
// The threads belong to llama.cpp, and wait for work some milliseconds after a decode. Only number
// 0 is called, by the caller, while another goroutine decodes or searches on these threads.
func (m *Model) Lend(n int, work func(worker int)) { m.hook.pool.Run(n, work) }

// threads is the number for llama.cpp.
func threads(n int) int32 { return int32(min(max(n, 1), MaxThreads)) }

// MaxText bounds the bytes of a text for [Model.Tokens]: 256 MiB.
const MaxText = 1 << 28

// valid returns the part of a text that llama.cpp may get: its tokenizer ends the program at bytes
// that are not UTF-8, and counts bytes in 32 bits.
func valid(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxText)], "\uFFFD")
}

// Tokens returns the tokens of a text in UTF-8, of which MaxText bytes count. Each run of bytes
// that are not UTF-8 counts as U+FFFD, the replacement character. If special is true Tokens reads
// names of special tokens in the text, such as <|im_end|>, as these tokens, and adds the token that
// the model wants at the beginning of a text ([Model.Begins]), unless the text begins with its name.
// It adds no token at the end, also for a file with add_eos_token, since the model continues the
// text.
func (m *Model) Tokens(text string, special bool) []uint32 {
	tokens := llama.Tokenize(m.vocab, valid(text), special, special)
	if special {
		// llama.cpp adds both whatever the text has.
		if begin, begins := m.Begins(); begins && len(tokens) > 1 && tokens[0] == llama.Token(begin) && tokens[1] == tokens[0] {
			tokens = tokens[1:]
		}
		if n := len(tokens); n > 0 && llama.VocabGetAddEOS(m.vocab) && tokens[n-1] == llama.VocabEOS(m.vocab) {
			tokens = tokens[:n-1]
		}
	}
	ids := make([]uint32, len(tokens))
	for i, t := range tokens {
		ids[i] = uint32(t)
	}
	return ids
}

// Piece returns the text of a token, perhaps a part of a character, "" for an id that is no token.
func (m *Model) Piece(id uint32) string {
	var room [64]byte
	piece := room[:]
	n := llama.TokenToPiece(m.vocab, llama.Token(id), piece, 0, false)
	if n < 0 {
		piece = make([]byte, -n)
		n = llama.TokenToPiece(m.vocab, llama.Token(id), piece, 0, false)
	}
	return string(piece[:max(n, 0)])
}

// Name returns the text of a token in the file, such as <|im_end|>, whose Piece is "".
func (m *Model) Name(id uint32) string {
	if int64(id) >= int64(m.labels) {
		return ""
	}
	return llama.VocabGetText(m.vocab, llama.Token(id))
}

// Begins returns the token that the model wants at the beginning of a text, if it wants one.
func (m *Model) Begins() (id uint32, ok bool) {
	if !llama.VocabGetAddBOS(m.vocab) {
		return 0, false
	}
	return uint32(llama.VocabBOS(m.vocab)), true
}

// Ends reports whether a token ends a text.
func (m *Model) Ends(id uint32) bool { return llama.VocabIsEOG(m.vocab, llama.Token(id)) }

// Len returns the number of tokens of a sequence.
func (m *Model) Len(sequence int) int { return m.lengths[sequence] }

// Kept returns the number of the first sequence of [Options].Kept, and how many there are: fewer than
// in the options if llama.cpp has no more.
func (m *Model) Kept() (first, n int) {
	return m.options.Sequences + m.options.Forks, m.options.Kept
}

// Bytes returns the memory of a sequence, as if it shared none.
func (m *Model) Bytes(sequence int) int64 {
	if m.lengths[sequence] == 0 {
		return 0
	}
	return int64(llama.StateSeqGetSize(m.hook.ctx, llama.SeqId(sequence)))
}

// Clear empties a sequence.
func (m *Model) Clear(sequence int) { m.Cut(sequence, 0) }

// Cuts reports whether [Model.Cut] can leave the first n tokens of a sequence. All are left always.
// Models of full attention can be cut everywhere; recurrent and hybrid ones only to nothing; those
// with sliding windows where the memory still has all tokens that the next one sees: llama.cpp
// takes the place of others for new tokens, of any sequence.
func (m *Model) Cuts(sequence, n int) bool {
	switch {
	case n < 0 || n > m.lengths[sequence]:
		return false
	case n == 0 || n == m.lengths[sequence]:
		return true
	case !m.ordered:
		return false
	}
	memory, err := llama.GetMemory(m.hook.ctx)
	if err != nil {
		return false
	}
	first, err := llama.MemorySeqPosMin(memory, llama.SeqId(sequence)) // all after it are there
	return err == nil && first >= 0 && int(first) <= max(0, n-m.window)
}

// Cut leaves the first n tokens of a sequence. It returns an error, and leaves all, if it cannot: see
// [Model.Cuts].
func (m *Model) Cut(sequence, n int) error {
	if n < 0 || n > m.lengths[sequence] {
		return fmt.Errorf("llamacpp: sequence %d: found %d tokens to leave, expected 0 to %d", sequence, n, m.lengths[sequence])
	}
	if n == m.lengths[sequence] {
		return nil
	}
	memory, err := llama.GetMemory(m.hook.ctx)
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	if !m.Cuts(sequence, n) {
		return fmt.Errorf("llamacpp: sequence %d: architecture %q does not go back to %d of %d tokens", sequence, m.hook.arch, n, m.lengths[sequence])
	}
	if ok, err := llama.MemorySeqRm(memory, llama.SeqId(sequence), llama.Pos(n), -1); err != nil || !ok {
		return fmt.Errorf("llamacpp: sequence %d: architecture %q does not go back to %d of %d tokens", sequence, m.hook.arch, n, m.lengths[sequence])
	}
	m.lengths[sequence] = n
	return nil
}

// Copy makes a sequence the same as another: both share the memory of their common tokens.
func (m *Model) Copy(to, from int) error {
	if to == from {
		return nil
	}
	m.Clear(to)
	memory, err := llama.GetMemory(m.hook.ctx)
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	if m.lengths[from] > 0 {
		if err := llama.MemorySeqCp(memory, llama.SeqId(from), llama.SeqId(to), -1, -1); err != nil {
			return fmt.Errorf("llamacpp: %w", err)
		}
	}
	m.lengths[to] = m.lengths[from]
	return nil
}

// Token is a token that is added to a sequence.
type Token struct {
	Sequence int
	ID       uint32
	State    bool // the hidden state after it is wanted
}

// Decode adds tokens to sequences, in batches, and returns the hidden states after the tokens that
// want one, n x d, in their order. They are valid until the next call. Between batches it checks
// whether ctx has ended.
//
// It returns an error, and adds none, if an id is no token or a sequence becomes too long. After
// any other error, or the end of ctx, [Model.Len] tells how many tokens were added.
func (m *Model) Decode(ctx context.Context, tokens ...Token) ([]float32, error) {
	if err := m.check(tokens); err != nil {
		return nil, err
	}
	m.states = m.states[:0]
	for rest := tokens; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := m.fill(rest)
		states, err := m.hook.Decode(m.batch)
		if err != nil {
			m.forget(rest[:n])
			return nil, err
		}
		for _, t := range rest[:n] {
			m.lengths[t.Sequence]++
		}
		if n == len(tokens) {
			return states, nil // one batch: no copy
		}
		m.states = append(m.states, states...)
		rest = rest[n:]
	}
	return m.states, nil
}

func (m *Model) check(tokens []Token) error {
	for i, t := range tokens {
		if t.Sequence < 0 || t.Sequence >= len(m.lengths) {
			return fmt.Errorf("llamacpp: tokens[%d]: found sequence %d, expected one of %d", i, t.Sequence, len(m.lengths))
		}
		if uint64(t.ID) >= uint64(m.labels) {
			return fmt.Errorf("llamacpp: tokens[%d]: found token %d, expected one below the %d of the vocabulary", i, t.ID, m.labels)
		}
	}
	m.added = append(m.added[:0], m.lengths...)
	for _, t := range tokens {
		if m.added[t.Sequence]++; m.added[t.Sequence] > m.context {
			return &TooLongError{t.Sequence, m.context}
		}
	}
	return nil
}

// TooLongError is the error of a sequence that has no room for more tokens.
type TooLongError struct{ Sequence, Context int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("llamacpp: sequence %d: found more tokens than the context of %d has room for", e.Sequence, e.Context)
}

// fill makes the batch of the first tokens, and returns their number.
func (m *Model) fill(tokens []Token) int {
	m.batch.Clear()
	copy(m.added, m.lengths)
	states, mixed := 0, false
	for i, t := range tokens {
		again := m.added[t.Sequence] > m.lengths[t.Sequence]
		other := t.Sequence != tokens[0].Sequence
		if i == m.hook.batch || t.State && states == m.hook.outputs {
			return i
		}
		// A recurrent model changes the order of the tokens of a batch, unless they belong to one
		// sequence, or one to each sequence, in ascending order of these.
		if !m.ordered && (mixed && again || i > 0 && t.Sequence < tokens[i-1].Sequence || other && i > 0 && !mixed && m.added[tokens[0].Sequence] > m.lengths[tokens[0].Sequence]+1) {
			return i
		}
		mixed = mixed || other
		m.seq[0] = llama.SeqId(t.Sequence)
		if err := m.batch.Add(llama.Token(t.ID), llama.Pos(m.added[t.Sequence]), m.seq[:], t.State); err != nil {
			return i
		}
		m.added[t.Sequence]++
		if t.State {
			states++
		}
	}
	return len(tokens)
}

// forget removes from the memory the tokens that a failed batch may have added.
func (m *Model) forget(tokens []Token) {
	memory, err := llama.GetMemory(m.hook.ctx)
	if err != nil {
		return
	}
	for _, t := range tokens {
		llama.MemorySeqRm(memory, llama.SeqId(t.Sequence), llama.Pos(m.lengths[t.Sequence]), -1)
	}
}

// Feed adds tokens to a sequence, a prompt or the next one, and returns the hidden state after the
// last. It is valid until the next call.
func (m *Model) Feed(ctx context.Context, sequence int, ids ...uint32) ([]float32, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("llamacpp: sequence %d: found no tokens to add, expected one at least", sequence)
	}
	m.feed = m.feed[:0]
	for i, id := range ids {
		m.feed = append(m.feed, Token{sequence, id, i == len(ids)-1})
	}
	return m.Decode(ctx, m.feed...)
}

// Check compares a head with llama.cpp's, see [Hook.Check]. It empties all sequences.
func (m *Model) Check(x *Head) error {
	clear(m.lengths)
	return m.hook.Check(x)
}
