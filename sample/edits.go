package sample

import (
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Edits are the changes of one draw. The zero value changes nothing.
type Edits struct {
	// Allowed, unless nil, has the labels that may be drawn, and Banned, unless nil, the labels
	// that may not, as in l2s.Request.
	Allowed, Banned *bitset.Set
	// Biases are added to the logits of labels, ascending by ID.
	Biases []l2s.Bias
	// History has the labels for the penalties, each the number of times that it counts, in any
	// order: the last tokens, or all. An id that is not below L, such as the id of a picture in the
	// prompt, cannot be drawn, and has no effect.
	History []uint32
}

// edits are the effects of the edits of a draw on each label.
type edits struct {
	o       *Options
	order   []Step        // of the edits
	request exact.Request // the edits without the history
	marks   []uint32      // for each label, its number of times in the history, and the bits below
	changed []uint32      // labels whose logits the edits change,
	past    int           // the first of which are the history's
	raised  []uint32      // labels whose logits may grow

	biases   []exact.Bias // memory of the request,
	drawable []uint32     // and of the history without ids that are no labels
}

// The marks of a label, in addition to its number of times in the history.
const (
	biased uint32 = 1 << (31 - iota)
	mayGrow
	listed // the label is a candidate
	noted  // the label is changed by no more than a mask
	times  = noted - 1
)

// set checks the edits, and finds their effects. Edits that the order has no step for are dropped.
func (x *edits) set(e *Edits) error {
	labels := len(x.marks)
	x.biases = x.biases[:0]
	for _, b := range e.Biases {
		x.biases = append(x.biases, exact.Bias(b))
	}
	x.request = exact.Request{Allowed: e.Allowed, Banned: e.Banned, Biases: x.biases}
	if err := exact.Check(&x.request, labels, 1); err != nil {
		return err
	}
	if len(e.History) > int(times) {
		return exact.Invalid(exact.ErrRequest, "sample: history: found %d labels, expected at most %d", len(e.History), times)
	}
	history := e.History
	beyond := func(id uint32) bool { return int64(id) >= int64(labels) }
	if slices.ContainsFunc(history, beyond) {
		x.drawable = slices.DeleteFunc(append(x.drawable[:0], history...), beyond)
		history = x.drawable
	}
	if !x.o.has(Mask) {
		x.request.Allowed, x.request.Banned = nil, nil
	}
	if !x.o.has(Bias) {
		x.request.Biases = nil
	}
	for _, id := range x.changed {
		x.marks[id] = 0
	}
	x.changed, x.past, x.raised = x.changed[:0], 0, x.raised[:0]
	if x.o.has(Penalties) && (x.o.Repetition != 1 || x.o.Presence != 0 || x.o.Frequency != 0) {
		x.changed = mem.Grow(x.changed, len(history))
		changed, marks, past := x.changed, x.marks, 0
		for _, id := range history { // a CPU could not foretell a branch
			mark := marks[id]
			changed[past] = id
			marks[id] = mark + 1
			if mark == 0 {
				past++
			}
		}
		x.changed, x.past = changed[:past], past
		if x.o.Repetition < 1 || x.o.Presence < 0 || x.o.Frequency < 0 {
			for _, id := range x.changed {
				x.marks[id] |= mayGrow
				x.raised = append(x.raised, id)
			}
		}
	}
	for _, b := range x.request.Biases {
		if x.mark(b.ID, biased); b.Add > 0 && x.marks[b.ID]&mayGrow == 0 {
			x.marks[b.ID] |= mayGrow
			x.raised = append(x.raised, b.ID)
		}
	}
	return nil
}

// mark notes an effect on a label.
func (x *edits) mark(id, effect uint32) {
	if x.marks[id] == 0 {
		x.changed = append(x.changed, id)
	}
	x.marks[id] |= effect
}

// history are the labels that the penalties change.
func (x *edits) history() []uint32 { return x.changed[:x.past] }

// permits reports whether a label may be drawn.
func (x *edits) permits(id uint32) bool { return exact.Permits(&x.request, id) }

// refused iterates over the labels that may not be drawn, some perhaps twice.
func (x *edits) refused(yield func(id uint32) bool) {
	if a := x.request.Allowed; a != nil {
		for id := range a.Missing(0, len(x.marks)) {
			if !yield(id) {
				return
			}
		}
	}
	if b := x.request.Banned; b != nil {
		b.All()(yield)
	}
}

// logit returns the logit z of a label, after biases and penalties in their order. It does not
// descend in z.
func (x *edits) logit(id uint32, z float64) float64 {
	mark := x.marks[id]
	if mark == 0 {
		return z
	}
	for _, step := range x.order {
		switch {
		case step == Bias && mark&biased != 0:
			z += exact.Added(&x.request, id)
		case step == Penalties && mark&times > 0:
			if z > 0 {
				z /= x.o.Repetition
			} else {
				z *= x.o.Repetition
			}
			z -= float64(x.o.Frequency*float64(mark&times)) + x.o.Presence
		}
	}
	return z
}
