// Package engine writes tokens for several requests at once: their sequences share the batches of
// llama.cpp, and one search finds the tokens of a step.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
)

// Options are the options of an engine.
type Options struct {
	// Parallel is the number of concurrent requests, which use the first sequences of the model; 0
	// means 1.
	Parallel int
	// Forks is the Forks of the model, for the answers of [Engine.Score].
	Forks int
	// Cache bounds the memory of the sequences of finished requests, in bytes, which others that begin
	// with the same tokens continue: 0 keeps none, and less than 0 as much as the context of the
	// model has room for.
	Cache int64
	// Waiting is the number of additional requests that may wait: others are refused with
	// [ErrBusy].
	Waiting int
	// Audit is the share of the time of the engine that may go to an audit of a head that may miss
	// a token: the exact layer answers about some states too.
	Audit float64
	// Step, unless nil, gets each step. It must not wait.
	Step func(Step)
}

// Step describes the work of one step.
type Step struct {
	Read, Written int // tokens
	Cached        int // tokens of prompts that were in the cache, and so not read
	Exact         int // written tokens that the exact layer answered
	// Audited is the number of states that the exact layer was asked about too, and Agreed the
	// number of them whose best token the head had.
	Audited, Agreed int
	Took            time.Duration
	// Reading is the time of llama.cpp for the tokens of prompts, and Model its time for tokens that
	// were written: a batch of both counts by its tokens. Head is the time of the head, with
	// log-probabilities.
	Reading, Model, Head time.Duration
}

// chunk is the number of tokens of prompts that a step reads: other requests wait that long for
// their next token, and so does the end of a request.
const chunk = 128

// ErrBusy is the error of a request for which there is no place.
var ErrBusy = errors.New("found all places taken, and no room for another waiting request")

// ErrClosed is the error of a request to an engine that has ended.
var ErrClosed = errors.New("the engine has ended")

// TooLongError is the error of a prompt for which the context has no room.
type TooLongError struct{ Tokens, Context int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("found a prompt of %d tokens, expected at most %d, which the context has room for", e.Tokens, e.Context)
}

// Request asks for tokens after a prompt.
type Request struct {
	Prompt []uint32
	Most   int // tokens to write, -1 for no end
	Sampling
	Stop     []string // texts that end the writing, and are not written; names of special tokens may be in them
	LogProbs int      // the number of best tokens to return with each, besides itself; -1 for no log-probabilities
	Named    []uint32 // distinct tokens to return with each in place of the best, if there are log-probabilities
	Ends     bool     // the writing ends where the model ends the text
	Shift    bool     // a full context loses its older half, besides what it keeps; otherwise it ends the writing
	// Keep is the number of tokens at the beginning of the prompt that a full context keeps, in
	// addition to the token that the model wants there; -1 for all of the prompt. Three quarters of
	// the context are the most that is kept: see Result.Kept.
	Keep int
	// Alone has llama.cpp compute the request apart from all others, in batches of its own tokens
	// alone, so that its answer does not depend on them. One such request is under way at a time.
	Alone bool
	// Fresh has the prompt read anew, without the tokens that the cache has.
	Fresh bool
	// Reasons has the reasons counted for which the exact layer chooses tokens: see Result.Fallbacks.
	Reasons bool
	// Write gets text, and the tokens that complete it, from the goroutine of the engine: it must
	// not wait long, since the goroutine serves other requests, too. It returns false to end the
	// writing.
	Write func(text string, tokens []Token) bool
}

// Reason is the reason why the writing ended.
type Reason string

const (
	Stopped Reason = "stop"   // the model ended the text, or a stop text came
	Full    Reason = "length" // the requested number of tokens is reached, or the context is full
	Refused Reason = "cut"    // Write returned false
)

// Result is the result of a request.
type Result struct {
	Reason        Reason
	By            string    // the stop text, if one came
	End           uint32    // the token with which the model ended the text, if it did
	Read, Written int       // tokens; of the prompt all, also those that were in the cache
	Cached        int       // tokens of the prompt that were in the cache
	Exact         int       // tokens that the exact layer chose, the last one of a text that it ends among them
	Fallbacks     Fallbacks // of these
	Shifts, Kept  int       // how often the context was full, and the tokens of the prompt that it kept then
	Reading, Time time.Duration
	Queue         time.Duration // that the request waited for its place
	// Model is the time of llama.cpp in the steps that wrote tokens of the request, and Head the time
	// of the head, with log-probabilities: both are of all requests that had a part in these steps.
	Model, Head time.Duration
	Answers     []Answer // of a score
	// Shared reports whether other requests had tokens in a batch or in the memory, also finished ones
	// whose tokens are kept, or the request continued cached tokens: llama.cpp rounds otherwise then.
	Shared bool
}

// Job is a request under way.
type Job struct {
	Request
	ctx    context.Context
	head   *llamacpp.Head // of the engine when the job was taken
	choose *Chooser
	score  *score // or nil
	copies []*Job // other requests of the same prompt: see StartCopies
	of     *Job   // of a copy: the one that reads the prompt
	taken  time.Time
	done   chan struct{}
	leave  func() bool // the end of ctx does nothing any more
	result Result
	err    error
}

// Done is closed at the end of the job.
func (j *Job) Done() <-chan struct{} { return j.done }

// Head returns the head that finds the tokens of the job.
func (j *Job) Head() *llamacpp.Head { return j.head }

// Result returns the result of the job, after its end.
func (j *Job) Result() (Result, error) { return j.result, j.err }

// slot is a place of a job: a sequence of a model.
type slot struct {
	job     *Job
	m       *llamacpp.Model
	number  int      // of the sequence
	forks   int      // the sequence that is its first fork
	broken  bool     // its sequence may have other tokens than the slot knows
	todo    []uint32 // tokens to read
	prompt  bool     // they are of the prompt
	history []uint32
	keep    int // tokens at the beginning of the prompt that stay
	out     writer
	came    uint64 // the order in which jobs came
	start   time.Time
	written int
	run     []uint32  // the tokens that were written last, most often one
	h       []float32 // after the last token, in this step
	chosen  chosen    // in this step
	best    []llamacpp.Choice
	copies  []*slot // that wait for the end of the prompt
	doubter *doubter
}

// chosen is the next token of a slot.
type chosen struct {
	Token
	ends  bool // the token ends the text, and is not written
	exact bool // the exact layer answered
	err   error
}

// Engine writes tokens for requests. Run runs it; all other methods are for any goroutine.
type Engine struct {
	m    *llamacpp.Model
	head atomic.Pointer[llamacpp.Head]
	o    Options

	mu       sync.Mutex
	waiting  []*Job
	reserved int // places of requests that are not started
	active   int
	closed   bool
	wake     chan struct{}

	vocabulary *Vocabulary

	slots  []*slot
	cache  *cache
	alone  []*slot // one, of a context of its own, which the first request that is computed alone makes
	turn   []*slot // whose batch is computed: slots, or alone
	came   uint64
	tokens []llamacpp.Token
	whose  []*slot // of each of tokens
	owners []*slot // distinct
	ready  []*slot // of these, the slots for which a token is chosen
	rest   []*slot
	group  []*slot
	states []float32
	found  []l2s.Prediction
	answer []l2s.Answer
	logits []float64
	step   Step
	cached int           // tokens that requests have begun with since the last step
	credit time.Duration // that the audit may take
}

// New returns an engine that owns a model, which must have o.Parallel sequences and o.Forks forks,
// except for the methods that any goroutine may call.
func New(m *llamacpp.Model, x *llamacpp.Head, o Options) *Engine {
	o.Parallel = max(o.Parallel, 1)
	e := &Engine{m: m, o: o, wake: make(chan struct{}, 1)}
	e.head.Store(x)
	for range o.Parallel {
		e.slots = append(e.slots, &slot{m: m, forks: o.Parallel})
	}
	e.cache, e.vocabulary = newCache(m, o.Parallel, o.Cache), NewVocabulary(m)
	e.alone = []*slot{{forks: 1}}
	return e
}

// Head returns the head of requests that come.
func (e *Engine) Head() *llamacpp.Head { return e.head.Load() }

// Vocabulary returns the vocabulary for grammars.
func (e *Engine) Vocabulary() *Vocabulary { return e.vocabulary }

// Use changes the head of requests that come to another one of the same layer. Those that have come
// keep theirs, so that each is of one head.
func (e *Engine) Use(x *llamacpp.Head) { e.head.Store(x) }

// Busy returns the numbers of running jobs and of waiting ones, reserved places among them.
func (e *Engine) Busy() (active, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active, len(e.waiting) + e.reserved
}

// Place is a place for a request. It is for one goroutine.
type Place struct{ e *Engine } // nil if it is used

// Cache describes the sequences of finished requests that are kept.
type Cache struct {
	Sequences, Tokens int
	Bytes             int64
}

// Cache returns what is kept, about: of the last request that began or ended.
func (e *Engine) Cache() Cache {
	if c := e.cache.now.Load(); c != nil {
		return *c
	}
	return Cache{}
}

// Reserve takes a place for a request before the work of making its tokens, or returns ErrBusy or
// ErrClosed. Free gives it back, unless a request has been started with it.
func (e *Engine) Reserve() (*Place, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.active+len(e.waiting)+e.reserved >= e.o.Parallel+e.o.Waiting:
		return nil, ErrBusy
	}
	e.reserved++
	return &Place{e}, nil
}

// Free gives an unused place back.
func (p *Place) Free() {
	if p.e != nil {
		p.e.mu.Lock()
		p.e.reserved--
		p.e.mu.Unlock()
		p.e = nil
	}
}

// Start is Reserve, and the start of a request there.
func (e *Engine) Start(ctx context.Context, r Request) (*Job, error) {
	p, err := e.Reserve()
	if err != nil {
		return nil, err
	}
	defer p.Free()
	return p.Start(ctx, r)
}

// Start checks a request, and takes it or has it wait. The end of ctx ends it, and frees its place
// with the step under way.
func (p *Place) Start(ctx context.Context, r Request) (*Job, error) {
	jobs, err := p.StartCopies(ctx, []Request{r})
	if err != nil {
		return nil, err
	}
	return jobs[0], nil
}

func (e *Engine) check(prompt []uint32) error {
	switch {
	case len(prompt) == 0:
		return errors.New("found a prompt without tokens, expected one at least")
	case len(prompt) > e.m.Context():
		return &TooLongError{len(prompt), e.m.Context()}
	}
	for i, id := range prompt {
		if int64(id) >= int64(e.m.Labels()) {
			return fmt.Errorf("prompt[%d]: found token %d, expected one below the %d of the vocabulary", i, id, e.m.Labels())
		}
	}
	return nil
}

// take has a job wait for its turn.
func (p *Place) take(j *Job) error {
	e := p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.reserved--
	p.e = nil
	j.taken = time.Now()
	e.waiting = append(e.waiting, j)
	j.leave = context.AfterFunc(j.ctx, func() { e.forget(j) })
	e.poke()
	return nil
}

// forget ends a job that waits still.
func (e *Engine) forget(j *Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, of := range e.waiting {
		if of == j {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			j.end(j.ctx.Err())
			return
		}
	}
	e.poke()
}

// poke has the engine look at its jobs.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run serves requests until ctx ends. Then jobs that are not done end with ErrClosed.
func (e *Engine) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if e.places() {
			e.run(ctx)
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	e.closed = true
	waiting := e.waiting
	e.waiting = nil
	e.mu.Unlock()
	for _, j := range waiting {
		j.leave()
		j.end(ErrClosed)
	}
	for _, s := range e.all() {
		if s.job != nil {
			e.end(s, "", ErrClosed)
		}
	}
	if m := e.alone[0].m; m != nil {
		m.Close()
	}
}

// all returns all slots.
func (e *Engine) all() []*slot { return append(e.slots[:len(e.slots):len(e.slots)], e.alone...) }

// places ends jobs that nobody waits for, gives free places to jobs that wait, and reports whether
// there is a job.
func (e *Engine) places() bool {
	for _, s := range e.all() {
		if s.job != nil && s.job.ctx.Err() != nil {
			e.end(s, "", s.job.ctx.Err())
		}
	}
	for s, j := e.next(); j != nil; s, j = e.next() {
		e.begin(s, j)
	}
	return slices.ContainsFunc(e.all(), func(s *slot) bool { return s.job != nil })
}

// next takes the first of the waiting jobs whose slot is free, nil if there is none, or if enough
// are under way.
func (e *Engine) next() (*slot, *Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active == e.o.Parallel {
		return nil, nil
	}
	for i, j := range e.waiting {
		if e.active+1+len(j.copies) > e.o.Parallel {
			break // nobody overtakes it: it would wait for ever
		}
		slots := e.slots
		if j.Alone {
			slots = e.alone
		}
		if at := slices.IndexFunc(slots, func(s *slot) bool { return s.job == nil }); at >= 0 {
			e.waiting = slices.Delete(e.waiting, i, i+1)
			e.active += 1 + len(j.copies)
			return slots[at], j
		}
	}
	return nil, nil
}

func (e *Engine) begin(s *slot, j *Job) {
	e.came++
	*s = slot{job: j, m: s.m, forks: s.forks, todo: j.Prompt, prompt: true, came: e.came, start: time.Now(), out: writer{stops: j.Stop},
		history: append(s.history[:0], j.Prompt...), keep: e.kept(&j.Request), best: s.best}
	j.result.Read, j.result.Queue = len(j.Prompt), s.start.Sub(j.taken)
	var err error
	if s.m == nil {
		if s.m, err = e.m.Apart(); err != nil {
			e.end(s, "", err)
			return
		}
	}
	if !j.Alone {
		var cached int
		s.number, cached = e.cache.take(j.Prompt, j.Fresh)
		s.todo = j.Prompt[cached:]
		// Tokens of others move the places of its own, in which order llama.cpp sums.
		j.result.Cached, j.result.Shared = cached, cached > 0 || e.cache.kept().Sequences > 0
		e.cached += cached
	}
	if j.score != nil {
		return
	}
	// Here, so that only requests under way have the memory of a sampler.
	j.choose, err = NewChooser(j.head, j.Sampling)
	if err = cmp.Or(e.seat(s), err); err != nil {
		e.end(s, "", err)
	} else if j.Reasons {
		s.doubter = newDoubter(j.choose)
	}
}

// kept returns the number of tokens at the beginning of a prompt that a full context keeps. Models
// write far worse without the token that all their texts began with.
func (e *Engine) kept(r *Request) int {
	n := r.Keep
	if begin, begins := e.m.Begins(); n >= 0 && begins && r.Prompt[0] == begin {
		n++
	}
	if n < 0 || n > len(r.Prompt) {
		n = len(r.Prompt)
	}
	most := e.m.Context()
	return min(n, most-max(most/4, 1))
}

// end ends the job of a slot. Text that is held back is written, unless an error or a stop text
// ends it.
func (e *Engine) end(s *slot, reason Reason, err error) {
	j := s.job
	if reason != "" && reason != Refused {
		text, tokens, stop := s.out.end()
		if (text != "" || len(tokens) > 0) && j.Write != nil {
			j.Write(text, tokens)
		}
		j.result.By = cmp.Or(j.result.By, stop)
	}
	switch {
	case s.number < 0: // a copy that waited for its prompt
	case !j.Alone:
		e.cache.leave(s.number, !s.broken)
	case s.m != nil:
		s.m.Clear(s.number)
	}
	j.result.Reason, j.result.Written, j.err = reason, s.written, err
	if s.prompt {
		j.result.Reading = time.Since(s.start)
	} else {
		j.result.Time = time.Since(s.start)
	}
	copies := s.copies
	s.job, s.todo, s.h, s.out, s.copies = nil, nil, nil, writer{}, nil
	e.mu.Lock()
	e.active--
	e.mu.Unlock()
	j.leave()
	close(j.done)
	for _, t := range copies { // the prompt has not come to its end
		if t.job != nil && t.job.of == j {
			e.end(t, reason, err)
		}
	}
}

// run is one step: it reads the next tokens of all sequences, and writes one for each that has read
// all.
func (e *Engine) run(ctx context.Context) {
	start := time.Now()
	e.step, e.cached = Step{Cached: e.cached}, 0
	for _, turn := range [][]*slot{e.slots, e.alone} {
		jobs := 0
		for _, s := range turn {
			if s.job != nil {
				jobs++
			}
		}
		for _, s := range turn {
			if s.job != nil && jobs > 1 {
				s.job.result.Shared = true
			}
		}
		if jobs > 0 {
			e.turn = turn
			e.runs(ctx)
		}
	}
	if e.o.Step != nil {
		e.step.Took = time.Since(start)
		e.o.Step(e.step)
	}
}

// runs is the step of the slots of a turn.
func (e *Engine) runs(ctx context.Context) {
	start := time.Now()
	e.fill()
	if err := e.read(ctx); err != nil {
		for _, s := range e.owners {
			s.broken = true
			e.end(s, "", err)
		}
	} else {
		e.write()
		e.audit(time.Since(start))
	}
	for _, s := range e.turn {
		if s.job != nil && s.job.score != nil && !s.prompt {
			e.scores(ctx, s)
		}
	}
}

// fill makes the batch of a step: a token of each sequence that writes, and then of prompts, in the
// order in which they came.
func (e *Engine) fill() {
	e.tokens, e.whose, e.owners = e.tokens[:0], e.whose[:0], e.owners[:0]
	e.rest = append(e.rest[:0], e.turn...)
	slices.SortFunc(e.rest, func(a, b *slot) int { return cmp.Compare(a.number, b.number) }) // as recurrent models need them in one batch
	for _, s := range e.rest {
		if s.job != nil && len(s.todo) == 1 {
			e.add(s, 1)
		}
	}
	for room := chunk; room > 0; {
		var next *slot
		for _, s := range e.turn {
			if s.job != nil && len(s.todo) > 1 && (next == nil || s.came < next.came) {
				next = s
			}
		}
		if next == nil {
			break
		}
		n := min(room, len(next.todo))
		e.add(next, n)
		if room -= n; len(next.todo) == 1 { // it has a token in the batch already
			break
		}
	}
}

func (e *Engine) add(s *slot, n int) {
	for i, id := range s.todo[:n] {
		e.tokens = append(e.tokens, llamacpp.Token{Sequence: s.number, ID: id, State: i == len(s.todo)-1})
		e.whose = append(e.whose, s)
	}
	if !s.job.Alone {
		e.cache.add(s.number, s.todo[:n])
	}
	s.todo = s.todo[n:]
	e.owners = append(e.owners, s)
	if s.prompt {
		e.step.Read += n
	}
}

// read has llama.cpp compute the batch, and gives each slot that has read its prompt the state
// after its last token.
func (e *Engine) read(ctx context.Context) error {
	for _, s := range e.owners {
		s.h = nil
	}
	if len(e.tokens) == 0 {
		return nil
	}
	if !e.owners[0].job.Alone {
		e.cache.room()
	}
	start, prompts := time.Now(), 0
	states, err := e.turn[0].m.Decode(ctx, e.tokens...)
	if err != nil {
		return err
	}
	took := time.Since(start)
	for _, s := range e.whose {
		if s.prompt {
			prompts++
		}
	}
	for _, s := range e.owners {
		if !s.prompt {
			s.job.result.Model += took
		}
	}
	reading := took * time.Duration(prompts) / time.Duration(len(e.tokens))
	e.step.Reading, e.step.Model = e.step.Reading+reading, e.step.Model+took-reading
	d := e.m.Dim()
	for i, t := range e.tokens {
		if t.State {
			e.whose[i].h, states = states[:d], states[d:]
		}
	}
	return nil
}

// write chooses a token for each slot that has a state.
func (e *Engine) write() {
	e.ready = e.ready[:0]
	for _, s := range e.owners {
		if s.h == nil {
			continue
		}
		if s.prompt {
			s.prompt = false
			s.job.result.Reading, s.start = time.Since(s.start), time.Now()
		}
		if s.job.score != nil {
			continue
		}
		for _, s := range append(e.fork(s), s) {
			if s.job.Most == 0 {
				e.end(s, Full, nil)
				continue
			}
			e.ready = append(e.ready, s)
		}
	}
	start := time.Now()
	e.choosesAll()
	took := time.Since(start)
	e.step.Head += took
	for _, s := range e.ready {
		s.job.result.Head += took
		e.written(s)
	}
}

// choosesAll chooses for the slots that are ready.
func (e *Engine) choosesAll() {
	for _, s := range e.ready {
		s.job.choose.Begin()
	}
	if len(e.ready) > 1 && slices.ContainsFunc(e.ready, func(s *slot) bool { return s.job.head.Previews() }) {
		e.apart()
	} else {
		e.together()
	}
}

// together chooses by one pass over the rows for all that ask the same, each on all threads.
func (e *Engine) together() {
	for todo := append(e.rest[:0], e.ready...); len(todo) > 0; {
		group, rest := append(e.group[:0], todo[0]), todo[:0]
		for _, s := range todo[1:] {
			if first := group[0].job.choose; first.width > 0 && first.same(s.job.choose) {
				group = append(group, s)
			} else {
				rest = append(rest, s)
			}
		}
		e.group, e.rest, todo = group, rest, rest
		if len(group) == 1 {
			e.choose(group[0])
		} else {
			e.chooses(group)
		}
	}
}

// chooses chooses for slots that ask the same.
func (e *Engine) chooses(group []*slot) {
	// Of the best labels, the first are the best of a narrower search: see same.
	widest := group[0].job.choose
	for _, s := range group {
		if c := s.job.choose; c.width > widest.width {
			widest = c
		}
	}
	n, d, k := len(group), e.m.Dim(), widest.width
	e.states = e.states[:0]
	for _, s := range group {
		e.states = append(e.states, s.h[:d]...)
	}
	if len(e.found) < n*k {
		e.found = make([]l2s.Prediction, n*k)
	}
	if len(e.answer) < n {
		e.answer = make([]l2s.Answer, n)
	}
	found, answers := e.found[:n*k], e.answer[:n]
	err := widest.head.SearchBatch(found, answers, e.states, widest.request())
	for i, s := range group {
		if err != nil {
			s.chosen = chosen{err: err}
			continue
		}
		c := s.job.choose
		id, err := c.choose(s.h, s.history, found[i*k:][:min(answers[i].Count, c.width)])
		exactly := answers[i].Exact
		if err == nil {
			id, exactly, err = c.judged(id, exactly, s.h, s.history)
		}
		e.name(s, id, exactly, err)
	}
}

// apart chooses by a preview, which has no pass over rows in common for several states: each slot
// is the work of one of the threads of the model.
func (e *Engine) apart() {
	var next atomic.Int64
	e.m.Lend(len(e.ready), func(int) {
		for i := int(next.Add(1)) - 1; i < len(e.ready); i = int(next.Add(1)) - 1 {
			e.choose(e.ready[i])
		}
	})
}

// choose chooses for one slot. Several threads call it at once, for different slots.
func (e *Engine) choose(s *slot) {
	id, exact, err := s.job.choose.Next(s.h, s.history)
	if exact && s.doubter != nil {
		s.doubter.count(s.h, &s.job.result.Fallbacks)
	}
	e.name(s, id, exact, err)
}

// name notes the chosen token, with the text of the token, and its log-probability if that is asked
// for.
func (e *Engine) name(s *slot, id uint32, exact bool, err error) {
	c := &s.chosen
	*c = chosen{Token: Token{ID: id, Shared: s.job.result.Shared}, exact: exact, err: err}
	if err != nil {
		return
	}
	if c.ends = s.job.Ends && e.m.Ends(id); c.ends {
		return
	}
	if c.Piece, c.Special = e.text(id); c.Piece == "" && s.job.Grammar != nil {
		c.Piece, c.Special = c.Special, "" // the text that the grammar has judged
	}
	if s.job.LogProbs >= 0 {
		c.err = e.logProbs(s)
	}
}

// text returns the text of a token, or its name if it has none.
func (e *Engine) text(id uint32) (piece, special string) {
	if piece = e.m.Piece(id); piece == "" {
		special = e.m.Name(id)
	}
	return piece, special
}

// written writes the token that was chosen for a slot, and those that its grammar then leaves no
// choice for: no head is asked for them, and one batch has them all.
func (e *Engine) written(s *slot) {
	s.run = s.run[:0]
	for e.writes(s) {
		id, only := s.job.choose.Forced()
		if !only || s.job.LogProbs >= 0 || len(s.todo) != len(s.run) || s.m.Len(s.number)+len(s.todo) >= e.m.Context() {
			return // the last ones: the context is read again, or full
		}
		e.name(s, id, false, nil)
	}
}

// writes writes the token that was chosen for a slot, and reports whether the writing goes on.
func (e *Engine) writes(s *slot) bool {
	j, c := s.job, &s.chosen
	if c.err != nil {
		e.end(s, "", c.err)
		return false
	}
	e.step.Written++
	if c.exact {
		e.step.Exact++
		j.result.Exact++
	}
	if c.ends {
		j.result.End, s.out.ending = c.ID, e.m.Name(c.ID)
		e.end(s, Stopped, nil)
		return false
	}
	s.written++
	text, tokens, stop := s.out.add(c.Token)
	if (text != "" || len(tokens) > 0) && j.Write != nil && !j.Write(text, tokens) {
		e.end(s, Refused, nil)
		return false
	}
	if stop != "" {
		j.result.By = stop
		e.end(s, Stopped, nil)
		return false
	}
	if s.written == j.Most {
		e.end(s, Full, nil)
		return false
	}
	j.choose.Accept(c.ID)
	most := e.m.Context()
	if s.history = append(s.history, c.ID); len(s.history) > 2*most { // older tokens are not used again
		s.history = append(s.history[:0], s.history[len(s.history)-most:]...)
	}
	s.run = append(s.run, c.ID)
	s.todo = s.run
	if s.m.Len(s.number) == most {
		if !j.Shift {
			e.end(s, Full, nil)
			return false
		}
		// All is read again: a cache of which the middle is cut out has states that saw it.
		if s.m.Clear(s.number); !j.Alone {
			e.cache.forget(s.number)
		}
		s.todo = append(slices.Clone(j.Prompt[:s.keep]), s.history[len(s.history)-max(1, (most-s.keep)/2):]...)
		j.result.Shifts, j.result.Kept = j.result.Shifts+1, s.keep
	}
	return true
}

// audit asks about a state of the step twice: for the best token of the head, and for the best
// token of the exact layer. It takes its share of the time of steps, which it saves up.
func (e *Engine) audit(took time.Duration) {
	x := e.Head()
	if e.o.Audit <= 0 || x.Index() == nil {
		return
	}
	if e.credit += time.Duration(e.o.Audit * float64(took)); e.credit < 0 || e.step.Written == 0 {
		return
	}
	start := time.Now()
	h := e.states[:0]
	for _, s := range e.owners { // of the first that has one
		if s.h != nil {
			h = append(h, s.h...)
			break
		}
	}
	if e.states = h; len(h) == 0 {
		return
	}
	var found, best [1]l2s.Prediction
	if _, err := x.Search(found[:], h, l2s.Request{}); err != nil {
		return
	}
	if _, err := x.Search(best[:], h, l2s.Request{Exact: true}); err != nil {
		return
	}
	if e.step.Audited++; found[0].ID == best[0].ID {
		e.step.Agreed++
	}
	e.credit = -time.Since(start)
}

// logProbs tells the log-probability of the token that was chosen, and the best ones, with the
// chosen one after them if it is none of them.
func (e *Engine) logProbs(s *slot) error {
	t, best, x := &s.chosen.Token, s.job.LogProbs, s.job.head
	named := s.job.Named
	if len(named) > 0 {
		best = 0
	}
	k := min(max(best, 1), x.Labels())
	if cap(s.best) < k {
		s.best = make([]llamacpp.Choice, k)
	}
	choices := s.best[:k]
	n, logZ, err := x.Best(choices, s.h, sum(x))
	if err != nil {
		return err
	}
	known, listed := false, false
	for i, c := range choices[:n] {
		if c.ID == t.ID {
			t.LogProb, known, listed = c.LogProb, true, i < best
		}
		if i < best {
			piece, special := e.text(c.ID)
			t.Top = append(t.Top, Top{c.ID, piece, special, c.LogProb})
		}
	}
	if len(named) > 0 {
		logits := make([]float64, len(named))
		if err := x.Logits(logits, s.h, named...); err != nil {
			return err
		}
		for i, id := range named {
			piece, special := e.text(id)
			t.Top = append(t.Top, Top{id, piece, special, min(logits[i]-logZ, 0)})
			listed = listed || id == t.ID
		}
	}
	if !known {
		var logit [1]float64
		if err := x.Logits(logit[:], s.h, t.ID); err != nil {
			return err
		}
		t.LogProb = logit[0] - logZ
	}
	if !listed {
		t.Top = append(t.Top, Top{t.ID, t.Piece, t.Special, t.LogProb})
	}
	return nil
}

// sum is a request for log-probabilities: exact ones where a preview has no error of its own to tell.
func sum(x *llamacpp.Head) l2s.Request {
	exactly := !x.Estimates()
	return l2s.Request{Exact: exactly, ExactSum: exactly}
}

// LogProbError returns the largest error of 95 in 100 log-probabilities: 0 for a head without a
// preview, or one whose sums no preview estimates.
func LogProbError(x *llamacpp.Head, budget float64) float64 {
	if !x.Estimates() {
		return 0
	}
	return Rung(x.Index(), budget).LogSumOff
}
