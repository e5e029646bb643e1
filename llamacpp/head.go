package llamacpp

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
	"github.com/learning-to-screen/l2s/sample"
)

// HeadOptions are the options of a head. The zero value is the exact search.
type HeadOptions struct {
	// Index is a preview or a screen of this head, of l2s.Load, preview.Make or train.Run. The error of
	// [OpenHead] is l2s.ErrLayer, by errors.Is, if it is of another one.
	Index *l2s.Index
	// Options are the options of searchers with the index. Budget is for samplers over a preview too.
	Options l2s.Options
	// Threads is the number of threads of an exact search: if it is 0, one in [OpenHead], and the
	// number of the model in [Model.Head]. See [Head.SetThreads].
	Threads int
	// Learn, unless nil, has the head begin exactly, make a preview after some thousand states, and
	// learn a screen from the states that Search, SearchBatch and Best are asked about. Log-sums,
	// draws and log-probabilities stay exact.
	Learn *learn.Options
}

// Head answers about hidden states. Its methods may be called by many goroutines at once.
type Head struct {
	layer   *l2s.Layer
	index   *l2s.Index
	pool    *l2s.Pool // with the index
	exact   *l2s.Pool // without it
	learner *learn.Learner
	lender  *threadpool.Pool // of the model, nil for a head without one
	budget  float64          // for samplers over the preview without a budget
	shares  bool             // the layer is another head's: see With
	free    sync.Pool        // of *[]l2s.Prediction
}

// OpenHead opens the head of a model: of the GGUF file that llama.cpp runs, most often, or any
// source of l2s.Open. The rows stay in the file, which llama.cpp has mapped too.
func OpenHead(source string, o HeadOptions) (*Head, error) {
	if o.Learn != nil && (o.Index != nil || o.Options != (l2s.Options{})) {
		return nil, fmt.Errorf("llamacpp: found an index, or the options %+v, for a head that learns, expected none: Learn.Keep names the file", o.Options)
	}
	// The model applies the scale of states of a head in a folder to what is handed out here.
	l, err := l2s.Open(source, l2s.OpenOptions{Normed: true})
	if err != nil {
		return nil, err
	}
	l.SetThreads(o.Threads)
	x := &Head{layer: l, index: o.Index, budget: o.Options.Budget}
	x.free.New = func() any { return new([]l2s.Prediction) }
	if err := x.open(o); err != nil {
		x.Close()
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return x, nil
}

// open makes the pools.
func (x *Head) open(o HeadOptions) (err error) {
	if x.exact, err = l2s.NewPool(x.layer, nil, l2s.Options{}); err != nil {
		return err
	}
	if x.pool = x.exact; o.Index != nil {
		x.pool, err = l2s.NewPool(x.layer, o.Index, o.Options)
	}
	if o.Learn != nil {
		x.learner, err = learn.New(x.layer, *o.Learn)
	}
	return err
}

// Head opens the head of the model's own file. It is checked, which empties all sequences, if the
// architecture is not known, or if the file has a scale or a soft cap: llama.cpp ignores these keys in
// files of most architectures.
func (m *Model) Head(o HeadOptions) (*Head, error) { return m.HeadOf(m.path, o) }

// HeadOf is Head for another source of the same head, such as the folder that the file was
// converted from. It is always checked.
func (m *Model) HeadOf(source string, o HeadOptions) (*Head, error) {
	dropResident(m.path) // the rows of the head, which the layer reads from here on
	x, err := OpenHead(source, o)
	if err != nil {
		return nil, err
	}
	if x.Dim() != m.Dim() || x.Labels() > m.labels {
		err = fmt.Errorf("llamacpp: %s: found a head of %d labels, d = %d, expected the model's, %d labels and d = %d", source, x.Labels(), x.Dim(), m.labels, m.Dim())
	} else if l := (*l2sengine.Layer)(x.layer).Exact(); source != m.path || !m.hook.trusted || l.Scale() != 1 || l.SoftCap() != 0 {
		err = m.Check(x)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	x.lender = m.hook.pool
	x.SetThreads(cmp.Or(o.Threads, m.threads))
	return x, nil
}

// With returns a head over the layer of x that answers by an index, with the options of searchers, and
// on the threads of x. The error is l2s.ErrLayer, by errors.Is, if the index is of another layer. x must
// not be a head that learns. Close x after the last answer of the other.
func (x *Head) With(index *l2s.Index, o l2s.Options) (*Head, error) {
	if x.learner != nil {
		return nil, errors.New("llamacpp: found a head that learns, expected another one: it has an index of its own")
	}
	y := &Head{layer: x.layer, index: index, exact: x.exact, lender: x.lender, budget: o.Budget, shares: true}
	y.free.New = x.free.New
	var err error
	if y.pool, err = l2s.NewPool(x.layer, index, o); err != nil {
		return nil, err
	}
	return y, nil
}

// Close releases the file, after the answers that are under way.
func (x *Head) Close() error {
	if x.shares {
		return nil
	}
	if x.learner != nil {
		x.learner.Close()
	}
	return x.layer.Close()
}

// Dim returns d, the dimension of a hidden state.
func (x *Head) Dim() int { return x.layer.Dim() }

// Labels returns the number of tokens that can be answered.
func (x *Head) Labels() int { return x.layer.Labels() }

// mostLent is the most threads that exact.Layer.LendThreads takes.
const mostLent = 256

// SetThreads changes the number of threads of exact searches, at most 256. A head of [Model.Head]
// searches on the threads of its model, at most the number of the model, and on one while the model
// decodes in another goroutine. A head of [OpenHead] has its own threads, which are parked between
// searches. SetThreads must not be called during a search.
func (x *Head) SetThreads(n int) {
	n = min(n, mostLent)
	if x.lender == nil {
		x.layer.SetThreads(n)
		return
	}
	(*l2sengine.Layer)(x.layer).Exact().LendThreads(n, func(work func(worker int)) { x.lender.Run(n, work) })
}

// Layer returns the layer, which has the model's scale and soft cap, for searchers of the caller's
// own, until Close.
func (x *Head) Layer() *l2s.Layer { return x.layer }

// Learner returns the learner, nil without [HeadOptions].Learn.
func (x *Head) Learner() *learn.Learner { return x.learner }

// Index returns the index of the options, nil without one.
func (x *Head) Index() *l2s.Index { return x.index }

// Previews reports whether the index is a preview.
func (x *Head) Previews() bool { return x.index != nil && x.index.Kind() == "preview" }

// Estimates reports whether a preview estimates log-sums. It does not for a model with a soft cap,
// nor for one with a scale if the preview was made without it.
func (x *Head) Estimates() bool {
	return x.Previews() && (*l2sengine.Index)(x.index).Preview().Estimates((*l2sengine.Layer)(x.layer).Exact())
}

// Search is l2s.Pool.Search, or Search of the learner. Logits, and the biases, distances,
// temperatures and sums of a request are the model's: after the scale and the soft cap of some
// models. A request with Among is answered exactly, among these tokens alone.
func (x *Head) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	if x.learner == nil || req.Among.IsList() {
		return x.pool.Search(dst, h, req)
	}
	req.Exact = req.Exact || req.LogSum // a screen that is learned has no tail
	return x.learner.Search(dst, h, req)
}

// SearchBatch is Search for n states at once, such as the states of a draft; exact answers and
// draws for them take one pass over the rows: see l2s.Searcher.SearchBatch.
func (x *Head) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, states []float32, req l2s.Request) error {
	if x.learner == nil || req.Among.IsList() {
		return x.pool.SearchBatch(dst, answers, states, req)
	}
	req.Exact = req.Exact || req.LogSum
	return x.learner.SearchBatch(dst, answers, states, req)
}

// Logits writes the model's logits of some tokens, exactly, from their rows alone: dst has one
// element per id, and the ids are distinct.
func (x *Head) Logits(dst []float64, h []float32, ids ...uint32) error {
	if len(dst) != len(ids) {
		return fmt.Errorf("llamacpp: found room for %d logits, expected %d", len(dst), len(ids))
	}
	for i, id := range ids {
		if int64(id) >= int64(x.layer.Labels()) {
			return fmt.Errorf("llamacpp: ids[%d]: found token %d, expected one below the %d of the head", i, id, x.layer.Labels())
		}
	}
	return x.exact.Do(func(s *l2s.Searcher) error { return s.Logits(dst, h, l2s.Only(ids)) })
}

// Choice is a token with the model's logit of it, and its log-probability among all tokens that
// may be answered.
type Choice struct {
	ID             uint32
	Logit, LogProb float64
}

// Best writes the best len(dst) tokens to dst, with their log-probabilities at req.Temperature, and
// returns their number and log Z, the log of the sum of e^(logit/T) over all tokens that may be
// answered. Logits are exact. The sum is Answer.LogSum; over a screen it includes an estimate for
// the tokens that are not looked at if the options have l2s.Options.OverTail. A preview estimates their
// part. ExactSum asks for the sum itself, and Exact for the answer of a
// head without a preview: both are passes over all rows. For a model with a soft cap the sum is not
// estimated by a preview or a screen, but takes such a pass too.
func (x *Head) Best(dst []Choice, h []float32, req l2s.Request) (n int, logZ float64, err error) {
	best := x.free.Get().(*[]l2s.Prediction)
	defer x.free.Put(best)
	*best = mem.Grow(*best, len(dst))
	req.LogSum = true
	a, err := x.Search(*best, h, req)
	if err != nil {
		return 0, 0, err
	}
	t := cmp.Or(req.Temperature, 1)
	for i, p := range (*best)[:a.Count] {
		dst[i] = Choice{p.ID, p.Logit, p.Logit/t - a.LogSum}
	}
	return a.Count, a.LogSum, nil
}

// LogProb returns the log-probability of a token among all: its exact logit less the sum that a
// preview estimates, as in [Head.Best], or by the screen if there is one with a tail; else exactly,
// by a pass over all rows.
func (x *Head) LogProb(h []float32, id uint32) (float64, error) {
	if x.estimated() {
		return x.pool.LogProb(h, id, 1)
	}
	return x.exact.LogProb(h, id, 1)
}

// estimated reports whether the index has probabilities over all labels.
func (x *Head) estimated() bool { return x.index != nil && x.index.HasTail() }

// Sampler draws tokens. It is for one goroutine and one sequence.
type Sampler struct{ draws *sample.Sampler }

// Sampler returns a sampler with the options of package sample, over the preview, or over the
// screen if there is one with a tail, else exact. Over a preview, chains that do not begin with a
// top-k or a min-p are exact: see sample.New. Over a screen of a model with a soft cap all
// draws are. Edits and truncations are of the model's logits, after its scale and its soft cap.
func (x *Head) Sampler(o sample.Options) (*Sampler, error) {
	var index *l2s.Index
	if x.estimated() {
		index = x.index
	}
	if x.Previews() {
		o.Budget = cmp.Or(o.Budget, x.budget)
	}
	draws, err := sample.New(x.layer, index, o)
	if err != nil {
		return nil, err
	}
	return &Sampler{draws}, nil
}

// Draw is sample.Sampler.Draw.
func (y *Sampler) Draw(h []float32, e sample.Edits) (sample.Token, error) { return y.draws.Draw(h, e) }

// Stats is sample.Sampler.Stats.
func (y *Sampler) Stats() sample.Stats { return y.draws.Stats() }
