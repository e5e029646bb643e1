package llamacpp

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/previewing"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// HeadOptions are the options of a head. The zero value is the exact search.
type HeadOptions struct {
	// Screen is a file of l2s train for this head. Without it and Preview all answers are exact.
	Screen string
	// Preview is a preview of this head, of preview.Load or preview.Make, in place of a screen. An
	// error of [OpenHead] is softmax.ErrLayer, by errors.Is, if it is of another one.
	Preview *preview.Model
	// Budget is the budget over a preview for requests and samplers that name none: it names a rung
	// by its Kept. 0: the preview's own.
	Budget float64
	// Options are the options of searchers over the screen. OverTail needs a screen with a tail.
	Options screen.Options
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
	file    *head.Head
	layer   *softmax.Layer
	model   *screen.Model
	pool    *screen.Pool      // nil without a screen
	preview *preview.Model    // nil without one
	codes   *preview.Searcher // keeps the codes of the preview, which searchers share
	learner *learn.Learner
	lender  *threadpool.Pool // of the model, nil for a head without one
	budget  float64          // for requests to the preview without a budget
	free    sync.Pool        // of *scratch
}

type scratch struct {
	*softmax.Searcher
	preview *preview.Searcher // nil without one
	best    []softmax.Prediction
}

// OpenHead opens the head of a model: of the GGUF file that llama.cpp runs, most often, or any
// source of package head. The rows stay in the file, which llama.cpp has mapped too.
func OpenHead(source string, o HeadOptions) (*Head, error) {
	f, err := head.Open(source, head.Options{})
	if err != nil {
		return nil, err
	}
	x := &Head{file: f, budget: o.Budget}
	var first *preview.Searcher // which keeps the codes that all searchers share
	if err := f.Read(func() (err error) {
		// The model applies the scale of states of a head in a folder to what is handed out here.
		if x.layer, err = layerfile.Of(f, f.StateScale()); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if o.Learn != nil {
			if o.Screen != "" || o.Options != (screen.Options{}) || o.Preview != nil {
				return fmt.Errorf("llamacpp: found the screen %q, with the options %+v, or a preview, for a head that learns, expected none: Learn.Keep names the file", o.Screen, o.Options)
			}
			if x.learner, err = learn.New(x.layer, *o.Learn); err == nil {
				x.pool = x.learner.Pool()
			}
			return err
		}
		if o.Preview != nil {
			if o.Screen != "" || o.Options != (screen.Options{}) {
				return fmt.Errorf("llamacpp: found the screen %q, with the options %+v, and a preview, expected one of the two", o.Screen, o.Options)
			}
			if first, err = preview.NewSearcher(o.Preview, x.layer); err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			x.preview = o.Preview
			return nil
		}
		if o.Screen == "" {
			return nil
		}
		if x.model, err = screen.Load(o.Screen); err != nil {
			return err
		}
		if x.pool, err = screen.NewPool(x.model, x.layer, o.Options); err != nil {
			return fmt.Errorf("%s: %w", o.Screen, err)
		}
		return nil
	}); err != nil {
		f.Close()
		return nil, err
	}
	x.layer.SetThreads(o.Threads)
	x.codes = first
	x.free.New = func() any {
		return &scratch{Searcher: softmax.NewSearcher(x.layer)}
	}
	return x, nil
}

// Head opens the head of the model's own file, and checks it if the architecture is not known,
// which empties all sequences.
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
	} else if source != m.path || !m.hook.trusted {
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

// Close releases the file, after the answers that are under way.
func (x *Head) Close() error {
	if x.learner != nil {
		x.learner.Close()
	}
	return x.file.Close()
}

// Dim returns d, the dimension of a hidden state.
func (x *Head) Dim() int { return x.layer.Dim() }

// Labels returns the number of tokens that can be answered.
func (x *Head) Labels() int { return x.layer.Labels() }

// File returns the head as it was opened.
func (x *Head) File() *head.Head { return x.file }

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
	(*exact.Layer)(x.layer).LendThreads(n, func(work func(worker int)) { x.lender.Run(n, work) })
}

// Layer returns the layer, which has the model's scale and soft cap, for searchers of the caller's
// own, within File().Read.
func (x *Head) Layer() *softmax.Layer { return x.layer }

// Learner returns the learner, nil without [HeadOptions].Learn.
func (x *Head) Learner() *learn.Learner { return x.learner }

// Screen returns the screen of HeadOptions.Screen, nil without one.
func (x *Head) Screen() *screen.Model { return x.model }

// Preview returns the preview of HeadOptions.Preview, nil without one.
func (x *Head) Preview() *preview.Model { return x.preview }

// Estimates reports whether the preview estimates log-sums. It does not for a model with a soft cap,
// nor for one with a scale if the preview was made without it.
func (x *Head) Estimates() bool {
	return x.preview != nil && (*previewing.Model)(x.preview).Estimates((*exact.Layer)(x.layer))
}

// with lends f the scratch of an exact search.
func (x *Head) with(f func(s *scratch) error) error {
	s := x.free.Get().(*scratch)
	err := x.file.Read(func() (err error) {
		if x.preview != nil && s.preview == nil {
			if s.preview, err = preview.NewSearcher(x.preview, x.layer); err != nil {
				return err
			}
		}
		return f(s)
	})
	if err == nil || errors.Is(err, softmax.ErrContext) || errors.Is(err, softmax.ErrRequest) {
		x.free.Put(s) // after a fault it may be in any state
	}
	return err
}

// Search is softmax.Searcher.Search, or screen.Pool.Search if there is a screen, or
// preview.Searcher.Search if there is a preview. Logits, and the biases, distances, temperatures and
// sums of a request are the model's: after the scale and the soft cap of some models. A request with Among is answered exactly, among these tokens alone.
func (x *Head) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (a softmax.Answer, err error) {
	if x.pool != nil && !exact.IsList(req.Among) {
		search := x.pool.Search
		if x.learner != nil {
			search = x.learner.Search
			if req.LogSum { // a screen that is learned has no tail
				req.Exact = true
			}
		}
		err = x.file.Read(func() (err error) {
			a, err = search(dst, h, req)
			return err
		})
		return a, err
	}
	err = x.with(func(s *scratch) (err error) {
		if s.preview != nil {
			req.Budget = cmp.Or(req.Budget, x.budget)
			a, err = s.preview.Search(dst, h, req)
		} else {
			a, err = s.Search(dst, h, req)
		}
		return err
	})
	return a, err
}

// SearchBatch is Search for n states at once, such as the states of a draft; exact answers and
// draws for them take one pass over the rows: see softmax.Searcher.SearchBatch.
func (x *Head) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, states []float32, req softmax.Request) error {
	if x.pool != nil && x.learner == nil && !exact.IsList(req.Among) {
		return x.file.Read(func() error { return x.pool.SearchBatch(dst, answers, states, req) })
	}
	n, d := len(answers), x.Dim()
	if x.learner == nil || n == 0 || len(dst)%n != 0 || len(states) != n*d {
		return x.with(func(s *scratch) error {
			if s.preview != nil {
				req.Budget = cmp.Or(req.Budget, x.budget)
				return s.preview.SearchBatch(dst, answers, states, req)
			}
			return s.SearchBatch(dst, answers, states, req)
		})
	}
	for i := range answers {
		var err error
		k := len(dst) / n
		if answers[i], err = x.Search(dst[i*k:][:k], states[i*d:][:d], req); err != nil {
			return err
		}
	}
	return nil
}

// Logits writes the model's logits of some tokens, exactly, from their rows alone: dst has one
// element per id, and the ids are distinct.
func (x *Head) Logits(dst []float64, h []float32, ids ...uint32) error {
	if len(dst) != len(ids) {
		return fmt.Errorf("llamacpp: found room for %d logits, expected %d", len(dst), len(ids))
	}
	return x.with(func(s *scratch) error {
		for i, id := range ids {
			if int64(id) >= int64(x.layer.Labels()) {
				return fmt.Errorf("llamacpp: ids[%d]: found token %d, expected one below the %d of the head", i, id, x.layer.Labels())
			}
		}
		return s.Searcher.Logits(dst, h, softmax.Only(ids))
	})
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
// the tokens that are not looked at if the options have screen.OverTail. A preview estimates their
// part: its rungs give the error. ExactSum asks for the sum itself, and Exact for the answer of a
// head without a preview: both are passes over all rows. For a model with a soft cap the sum is not
// estimated by a preview or a screen, but takes such a pass too.
func (x *Head) Best(dst []Choice, h []float32, req softmax.Request) (n int, logZ float64, err error) {
	s := x.free.Get().(*scratch)
	defer x.free.Put(s)
	s.best = grow.Slice(s.best, len(dst))
	best := s.best
	req.LogSum = true
	a, err := x.Search(best, h, req)
	if err != nil {
		return 0, 0, err
	}
	t := cmp.Or(req.Temperature, 1)
	for i, p := range best[:a.Count] {
		dst[i] = Choice{p.ID, p.Logit, p.Logit/t - a.LogSum}
	}
	return a.Count, a.LogSum, nil
}

// LogProb returns the log-probability of a token among all: its exact logit less the sum that a
// preview estimates, as in [Head.Best], or by the screen if there is one with a tail; else exactly,
// by a pass over all rows.
func (x *Head) LogProb(h []float32, id uint32) (p float64, err error) {
	if x.preview != nil {
		logit := []float64{0}
		if err := x.Logits(logit, h, id); err != nil {
			return 0, err
		}
		a, err := x.Search(nil, h, softmax.Request{LogSum: true})
		return logit[0] - a.LogSum, err
	}
	if x.model != nil && x.model.HasTail() {
		err = x.file.Read(func() (err error) {
			p, err = x.pool.LogProb(h, id, 1)
			return err
		})
		return p, err
	}
	err = x.with(func(s *scratch) (err error) {
		p, err = s.LogProb(h, id, 1)
		return err
	})
	return p, err
}

// Sampler draws tokens. It is for one goroutine and one sequence.
type Sampler struct {
	head  *Head
	draws *sample.Sampler
}

// Sampler returns a sampler with the options of package sample, over the preview, or over the
// screen if there is one with a tail, else exact. Over a preview, chains that do not begin with a
// top-k or a min-p are exact: see sample.NewPreviewed. Over a screen of a model with a soft cap all
// draws are. Edits and truncations are of the model's logits, after its scale and its soft cap.
func (x *Head) Sampler(o sample.Options) (*Sampler, error) {
	y := &Sampler{head: x}
	err := x.file.Read(func() (err error) {
		switch {
		case x.preview != nil:
			o.Budget = cmp.Or(o.Budget, x.budget)
			y.draws, err = sample.NewPreviewed(x.preview, x.layer, o)
		case x.model != nil && x.model.HasTail():
			y.draws, err = sample.NewScreened(x.model, x.layer, o)
		default:
			y.draws, err = sample.New(x.layer, o)
		}
		return err
	})
	return y, err
}

// Draw is sample.Sampler.Draw.
func (y *Sampler) Draw(h []float32, e sample.Edits) (t sample.Token, err error) {
	err = y.head.file.Read(func() (err error) {
		t, err = y.draws.Draw(h, e)
		return err
	})
	return t, err
}

// Stats is sample.Sampler.Stats.
func (y *Sampler) Stats() sample.Stats { return y.draws.Stats() }
