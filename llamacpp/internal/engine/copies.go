package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// StartCopies starts requests with the same prompt, which is read once: each goes on in a copy of its
// sequence. They take a place of the engine each, at the same time. A request is what [Place.Start]
// starts; there are at most Options.Parallel, and several are not Alone.
func (p *Place) StartCopies(ctx context.Context, all []Request) ([]*Job, error) {
	e := p.e
	if len(all) == 0 || len(all) > e.o.Parallel {
		return nil, fmt.Errorf("found %d requests of one prompt, expected 1 to %d, the places", len(all), e.o.Parallel)
	}
	if err := e.check(all[0].Prompt); err != nil {
		return nil, err
	}
	jobs := make([]*Job, len(all))
	for i, r := range all {
		switch {
		case len(all) > 1 && r.Alone:
			return nil, errors.New("found several requests of one prompt that are computed alone, expected one")
		case !slices.Equal(r.Prompt, all[0].Prompt):
			return nil, fmt.Errorf("request %d: found another prompt, expected that of the first", i)
		}
		jobs[i] = &Job{Request: r, ctx: ctx, head: e.Head(), done: make(chan struct{})}
		if err := r.Sampling.check(jobs[i].head); err != nil {
			return nil, err
		}
	}
	first := jobs[0]
	first.copies = jobs[1:]
	for _, j := range first.copies {
		j.of, j.leave = first, func() bool { return true }
	}
	return jobs, p.take(first)
}

// end ends a job that has no slot, with its copies.
func (j *Job) end(err error) {
	for _, x := range append(j.copies[:len(j.copies):len(j.copies)], j) {
		x.err = err
		close(x.done)
	}
}

// seat gives the copies of a job free slots, where they wait until its prompt is read.
func (e *Engine) seat(s *slot) error {
	var failed error
	for _, j := range s.job.copies {
		t := e.slots[slices.IndexFunc(e.slots, func(t *slot) bool { return t.job == nil })] // next has counted them
		*t = slot{job: j, m: s.m, number: -1, forks: t.forks, prompt: true, came: s.came, start: s.start, out: writer{stops: j.Stop},
			history: t.history[:0], keep: s.keep, best: t.best}
		j.result.Read, j.result.Queue = s.job.result.Read, s.job.result.Queue
		s.copies = append(s.copies, t)
		var err error
		if j.choose, err = NewChooser(j.head, j.Sampling); err != nil {
			failed = err
		}
	}
	return failed
}

// fork gives the copies of a slot, whose prompt is read, sequences with this prompt and the state after
// it, and returns them.
func (e *Engine) fork(s *slot) (forked []*slot) {
	for _, t := range s.copies {
		if t.job == nil || t.job.of != s.job { // it has ended
			continue
		}
		var err error
		if t.number, err = e.cache.copy(s.number); err != nil {
			t.number = -1
			e.end(t, "", err)
			continue
		}
		t.prompt, t.h, t.start = false, s.h, time.Now()
		t.history = append(t.history, s.job.Prompt...)
		r := &t.job.result
		r.Cached, r.Reading = s.job.result.Cached, s.job.result.Reading
		forked = append(forked, t)
	}
	s.copies = nil
	return forked
}

// copy returns a sequence that is a copy of one of a request under way, whose tokens are all read.
func (c *cache) copy(number int) (int, error) {
	of, to := c.of(number), c.free(nil)
	if to == nil {
		return -1, errors.New("found no free sequence for a copy")
	}
	c.clear(to)
	if err := c.m.Copy(to.number, number); err != nil {
		c.clear(to)
		return -1, err
	}
	c.turn++
	to.tokens, to.busy, to.used = append(to.tokens, of.tokens...), true, c.turn
	c.count()
	return to.number, nil
}
