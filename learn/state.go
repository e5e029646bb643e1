package learn

import "time"

// state is where a Learner is. It is one value: a query loads it whole, and only [Learner.step]
// replaces it. These are the steps that change who answers:
//
//	              makePreview              settle
//	exact layer ---------------> preview ----------> screen
//	     ^                        |   ^                |
//	     |         check          |   |    unlearn     |
//	     '------------------------'   '----------------'
//
// From the exact layer settle leads to the screen too, and without a preview unlearn leads back to
// the exact layer. One goroutine works, and waits between its works for a number of contexts:
//
//	previewAt: makePreview, or check of the preview that answers
//	trainAt:   attempt, which trains; then try, which waits anew; then settle
//
// The numbers of the fields are numbers of contexts that were kept, if nothing else is said.
type state struct {
	screened bool         // a screen answers,
	since    uint64       // from the query of this number on
	preview  *livePreview // answers while no screen does; nil for none

	training  bool   // a training or a trial is under way, and no preview is worked on
	trainAt   uint64 // the next training begins, or the trial that is under way ends
	previewAt uint64 // a preview is made or checked; never for a layer without previews

	screensFrom  uint64    // no screen answers before, after an alarm
	alarmWait    uint64    // the contexts between the next alarm and a screen
	previewsFrom uint64    // the first context that previews are made from
	checkFrom    time.Time // no check begins before

	events []Event // of the step that makes the state
}

// livePreview has the facts about a preview that answers.
type livePreview struct {
	made    uint64 // the number of contexts that were there
	checked uint64 // the number of contexts up to the last check
}

// workAt is the number of contexts that the worker waits for.
func (s *state) workAt() uint64 {
	if s.training {
		return s.trainAt
	}
	return min(s.trainAt, s.previewAt)
}

// tell adds an event of the step, which Options.Event gets when the step is done.
func (s *state) tell(e Event) { s.events = append(s.events, e) }

// step replaces the state by a changed one, and tells its events: one step after the other.
func (l *Learner) step(change func(s *state)) {
	l.stepping.Lock()
	defer l.stepping.Unlock()
	s := *l.state.Load()
	change(&s)
	events := s.events
	s.events = nil
	l.state.Store(&s)
	if l.o.Event != nil {
		for _, e := range events {
			l.o.Event(e)
		}
	}
}

// tell is a step that changes nothing.
func (l *Learner) tell(e Event) { l.step(func(s *state) { s.tell(e) }) }
