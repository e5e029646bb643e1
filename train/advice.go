package train

import "fmt"

// What [Record.Advice] takes for remarkable.
const (
	adviseGap       = 0.02 // of training over held-out P@k
	adviseLow       = 0.95 // P@k
	adviseContexts  = 500  // held out
	adviseDeviation = 0.005
)

// text is a line of the figures.
func (u *Unseen) text(k int) string {
	f := figures{precision1: u.Precision1, precisionK: u.PrecisionK, meanCandidates: u.MeanCandidates}
	return fmt.Sprintf("held-out contexts: %s, P@%d within about %.4f", f.text(k), k, u.within())
}

// within is about how far P@K of other contexts may be from PrecisionK: two standard errors,
// and no less than three contexts of all, which is what may have been missed if none was seen.
func (u *Unseen) within() float64 { return max(2*u.Deviation, 3/float64(u.Contexts)) }

// Advice says in plain words, a sentence or two each, what of the run should make
// its user think twice, and what to do about it. It is empty if nothing does.
func (r *Record) Advice() (advice []string) {
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	o, u := &r.Options, r.Unseen
	switch {
	case o.Measure && u == nil:
		add("no contexts were held out, so that nothing is known of the precision on others: train on more contexts, or measure with l2s eval")
	case u != nil && (u.Contexts < adviseContexts || u.Deviation > adviseDeviation):
		add("%d held-out contexts are few: P@%d on others may differ from %.4f by %.4f; a larger share of them (--held-out), or l2s eval on more contexts, says it better", u.Contexts, o.K, u.PrecisionK, u.within())
	}
	if u != nil {
		if gap := r.PrecisionK - u.PrecisionK; gap > max(adviseGap, 2*u.Deviation) {
			more := "more contexts or fewer clusters help"
			if o.Geometry == 0 {
				more = "sets from geometry (--geometry 20), more contexts or fewer clusters help"
			}
			add("P@%d is %.4f on the contexts of training and %.4f on held-out ones: %s", o.K, r.PrecisionK, u.PrecisionK, more)
		}
		if u.PrecisionK < adviseLow {
			add("P@%d is only %.4f on held-out contexts: %s", o.K, u.PrecisionK, r.more())
		}
	} else if r.PrecisionK < adviseLow {
		add("P@%d is only %.4f on the contexts of training: %s", o.K, r.PrecisionK, r.more())
	}
	if n := len(r.Alternations); n > 1 && r.Best == 0 {
		add("learning gained nothing: none of %d alternations did better on held-out contexts than k-means, which is kept", n-1)
	}
	if repeating(r.Alternations) {
		add("the last %d alternations have the same figures, and learning stopped: a larger learning rate or fewer alternations", repeats)
	}
	return advice
}

// more says what gives more precision.
func (r *Record) more() string {
	if o := &r.Options; o.Largest != 0 && float64(o.Largest) < 2*o.Budget {
		return fmt.Sprintf("a larger bound on the sets than %d (--largest), which is %.1f times the budget, or more clusters help", o.Largest, float64(o.Largest)/o.Budget)
	}
	if r.MeanCandidates < r.Options.Budget-1 && r.MeanCandidates < 0.9*r.Options.Budget {
		if r.Options.Geometry == 0 {
			return fmt.Sprintf("the sets are at their end with %.1f of %v candidates: sets from geometry (--geometry 20), more contexts or fewer clusters help", r.MeanCandidates, r.Options.Budget)
		}
		return fmt.Sprintf("the sets are at their end with %.1f of %v candidates: more contexts help", r.MeanCandidates, r.Options.Budget)
	}
	return fmt.Sprintf("a larger budget than %v, or more clusters, helps", r.Options.Budget)
}

// repeats is the number of alternations of equal figures that end learning.
const repeats = 5

// repeating reports whether the last alternations, k-means not counted, have the
// same figures on the contexts held out: the clusters of contexts do not change
// any more.
func repeating(all []Alternation) bool {
	if len(all) <= repeats {
		return false
	}
	last := all[len(all)-repeats:]
	for _, a := range last[1:] {
		if a.MeanCandidates != last[0].MeanCandidates || a.Precision1 != last[0].Precision1 || a.PrecisionK != last[0].PrecisionK {
			return false
		}
	}
	return true
}
