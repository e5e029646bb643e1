package sample

import (
	"cmp"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The logits of all labels are put in buckets, from the largest down, so that only the logits of
// one bucket must be sorted to find the end of a nucleus.
const (
	nucleusBuckets = 1024
	nucleusSteps   = 16 // buckets to a factor of e of the probability
)

// buckets are memory to find the end of a nucleus.
type buckets struct {
	of      []uint16 // the bucket of each label
	weights *[nucleusBuckets]float64
}

// drawExact draws from the distribution of the layer.
func (s *Sampler) drawExact(u float64) (outcome, error) {
	if s.plan.narrow {
		return s.drawBest(u)
	}
	var x outcome
	var err error
	if s.plan.cut && s.plan.first == TopP {
		x, err = s.drawNucleus(u)
	} else if !s.plan.cut && !s.o.ExactLogProb {
		x, err = s.drawEnclosed()
	}
	if x.how == drawn || err != nil {
		return x, err
	}
	if x.how == proposed {
		u = s.random.Float64() // which the label has nothing to do with
	}
	if err := s.lookAtAll(); err != nil {
		return x, err
	}
	if !s.plan.cut || s.plan.onlyTopP() {
		return s.drawAll(s.plan.at, s.plan.cut, u, x)
	}
	k, _, err := s.truncate()
	if err != nil {
		return x, err
	}
	return s.drawHead(k.n, u), nil
}

// drawBest draws from the best labels of the layer, which are all that a narrow truncation keeps.
func (s *Sampler) drawBest(u float64) (outcome, error) {
	// Within a distance there are mostly fewer labels than this.
	k := cmp.Or(s.plan.fewest, manyWithin)
	for ; ; k *= 4 {
		if err := s.lookAtBest(min(k, s.labels)); err != nil {
			return outcome{}, err
		}
		if k, ok, err := s.truncate(); err != nil {
			return outcome{}, err
		} else if ok {
			return s.drawHead(k.n, u), nil
		}
	}
}

// lookAtAll makes all labels the pool.
func (s *Sampler) lookAtAll() error {
	s.stats.Passes++
	s.pool.logits = mem.Grow(s.pool.logits, s.labels)
	all := s.pool.logits
	if err := s.finder.logits(all, exact.Labels{}); err != nil {
		return err
	}
	for _, id := range s.edits.changed {
		all[id] = s.edits.logit(id, all[id])
	}
	for id := range s.edits.refused {
		all[id] = math.Inf(-1)
	}
	s.pool.filled(extent{dense: true, whole: true})
	return nil
}

// drawAll draws from all labels, which are the pool, or from the labels that top-p keeps at a
// temperature. A proposal may have the label.
func (s *Sampler) drawAll(temperature float64, nucleus bool, u float64, by outcome) (outcome, error) {
	x := s.pool.logits
	largest := slices.Max(x)
	if math.IsInf(largest, -1) {
		return outcome{}, errNone
	}
	logSum := s.weigh(x, largest, temperature)
	if nucleus {
		last := s.lastOfNucleus(x, largest, temperature)
		if t := s.plan.temperature; t != temperature {
			temperature = t
			logSum = s.weigh(x, largest, temperature)
		}
		for id, v := range x {
			if v < last.Logit || v == last.Logit && uint32(id) > last.ID {
				s.terms[id] = 0
			}
		}
		kept := sumOf(s.terms)
		for id := range s.terms {
			s.terms[id] /= kept
		}
		logSum += kernels.Log(kept)
	}
	id := by.ID
	if by.how != proposed || !s.list.takes(id, s.terms[id], by.chance) {
		id = uint32(s.pick(u, func(i int) uint32 { return uint32(i) }))
	}
	return outcome{Token: Token{ID: id, LogProb: min((x[id]-largest)/temperature-logSum, 0)}, how: drawn}, nil
}

// lastOfNucleus returns the last of the fewest first labels that have the share TopP, whose
// probabilities at a temperature are s.terms.
func (s *Sampler) lastOfNucleus(x []float64, largest, temperature float64) exact.Prediction {
	of, weights := mem.Grow(s.buckets.of, len(x)), s.buckets.weights
	if weights == nil {
		weights = new([nucleusBuckets]float64)
	}
	s.buckets = buckets{of, weights}
	clear(weights[:])
	scale := min(nucleusSteps/temperature, math.MaxFloat64)
	for i, v := range x {
		b := uint16(min((largest-v)*scale, nucleusBuckets-1))
		of[i] = b
		weights[b%nucleusBuckets] += s.terms[i]
	}
	end, sum := 0, 0.0
	for end < nucleusBuckets-1 && sum+weights[end] < s.o.TopP {
		sum += weights[end]
		end++
	}
	s.head = s.head[:0]
	for i, b := range of {
		if int(b) == end {
			s.head = append(s.head, exact.Prediction{ID: uint32(i), Logit: x[i]})
		}
	}
	s.head = s.sorter.Sort(s.head)
	last := exact.Prediction{ID: math.MaxUint32, Logit: -math.MaxFloat64} // all, if roundings leave less than the share
	for _, p := range s.head {
		last = p
		if sum += s.terms[p.ID]; sum >= s.o.TopP {
			break
		}
	}
	return last
}

// manyWithin is the number of labels that a draw first asks for if its truncation has only a
// distance: it costs nothing if there are fewer.
const manyWithin = 256

// lookAtBest makes the labels of the k largest edited logits the pool, and perhaps a few
// more, but no label without all that are better. Labels that are farther from the best than the
// truncations keep are left out.
func (s *Sampler) lookAtBest(k int) error {
	// Labels of the history may take places of others: their logits are others in the
	// search.
	history := s.edits.history()
	k = min(k+len(history), s.labels)
	s.terms = mem.Grow(s.terms, len(history))
	if err := s.finder.logits(s.terms, exact.Only(history)); err != nil {
		return err
	}
	s.edits.request.Within = s.within(history, s.terms)
	found, err := s.finder.best(k, &s.edits.request)
	if err != nil {
		return err
	}
	whole := len(found) < k || k == s.labels
	s.pool.empty()
	for _, p := range found {
		if s.edits.marks[p.ID]&times == 0 {
			s.pool.add(p.ID, p.Logit)
		}
	}
	for i, id := range history {
		if !s.edits.permits(id) {
			continue
		}
		x := s.edits.logit(id, s.terms[i])
		if whole || ranking.Compare(exact.Prediction{ID: id, Logit: x}, found[len(found)-1]) <= 0 {
			s.pool.add(id, x)
		}
	}
	s.pool.filled(extent{whole: whole})
	return nil
}

// within is the largest distance of a kept label from the best in a search without penalties, 0 if
// there is no bound. A label of the history may be the best of the search and not of the draw: the
// largest logit of the draw is at least the largest of the history.
func (s *Sampler) within(history []uint32, logits []float64) float64 {
	if s.plan.distance == 0 {
		return 0
	}
	before, after := math.Inf(-1), math.Inf(-1)
	for i, id := range history {
		if s.edits.permits(id) {
			before, after = max(before, logits[i]+exact.Added(&s.edits.request, id)), max(after, s.edits.logit(id, logits[i]))
		}
	}
	distance := s.plan.distance
	if before > after {
		distance += before - after
	}
	if distance *= 1 + 0x1p-40; !(distance <= math.MaxFloat64) { // roundings
		return 0
	}
	return distance
}

// sumInside returns the log of the sum of e^((x-largest)/T) over the pool.
func (s *Sampler) sumInside(temperature float64) float64 {
	if !s.pool.summed {
		s.pool.inside, s.pool.summed = s.weigh(s.pool.logits, slices.Max(s.pool.logits), temperature), true
	}
	return s.pool.inside
}

// weigh leaves probabilities in proportion to e^(x/T) in s.terms, whose sum is 1, and
// returns the log of the sum of e^((x-largest)/T).
func (s *Sampler) weigh(logits []float64, largest, temperature float64) float64 {
	s.terms = mem.Grow(s.terms, len(logits))
	for i, x := range logits {
		s.terms[i] = (x - largest) / temperature
	}
	return kernels.Softmax(s.terms, s.terms)
}

// walk returns the first index up to which the terms exceed at, the last one that is
// not 0 if none does by rounding.
func walk(terms []float64, at float64) int {
	sum, last := 0.0, 0
	for i, w := range terms {
		if sum += w; at < sum {
			return i
		}
		if w > 0 {
			last = i
		}
	}
	return last
}
