package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// A draw from all labels does not need the logits of all labels. The int8 codes give an
// upper end for each logit. A label is proposed with a probability in proportion to
// e^(upper/T), and is taken with the probability e^((x-upper)/T), for which only its own
// logit x is computed. So a label is taken in proportion to e^(x/T): rejection sampling,
// whose result does not depend on how wide the intervals are. The upper end of a label
// that was rejected becomes its logit.
//
// A label that is drawn so belongs to a nucleus unless the labels before it hold the share
// p. The intervals bound this share. If they leave it open, some logits are computed;
// if they still do, all logits are. Labels that do not belong to the nucleus are drawn anew.
const (
	// leastEnveloped is the number of labels from which this is faster than all logits.
	leastEnveloped = 1024
	// blockLabels is the number of labels whose upper ends have one sum.
	blockLabels = 128
	// maxProposals bounds the proposals, and maxRedraws the labels that are drawn, before
	// all logits are computed.
	maxProposals = 256
	maxRedraws   = 64
	// maxPinned is the share of the labels above which all logits are computed.
	maxPinned = 0.25
	// fewLabels is a number of logits whose time does not matter.
	fewLabels = 256
	// manyLabels is the share of all labels whose logits take far less time than all.
	manyLabels = 8
	// maxOpen is how far apart the logs of the sums over lower and over upper ends may be for
	// an estimate between them to be a log-probability.
	maxOpen = 1
	// mostRounding bounds what float32 loses of a logit, in units of the temperature.
	mostRounding = 0x1p-10
	// keptError is the relative error of the probability of a nucleus at which all logits
	// are computed.
	keptError = 0.1
	// likelyError is the part of the interval of the log of a sum by which its estimate may be
	// off for that, and likelyCoarse what parts of the range add.
	likelyError  = 1. / 32
	likelyCoarse = 1. / 64
	// slack bounds the ratio of a sum of float32 exponentials to the true sum.
	slack = 1 + 1e-4
	// The temperatures at which the exponents keep their precision in float32.
	leastTemperature = 0x1p-7
	mostTemperature  = 0x1p10
)

// depths are how far below a label, in units of the temperature, logits are computed to
// decide whether the label belongs to a nucleus.
var depths = [...]float64{0, 2, 4}

// envelope holds an interval for the edited logit of each label, and sums of the
// exponentials of the upper ends.
type envelope struct {
	lower, upper []float32
	proposed     []float32 // upper ends of what labels are proposed by: less where a part is sure
	temperature  float64
	reference    float64   // all weights are relative to e^(reference/temperature)
	top          float64   // the largest upper end
	tops         []float32 // of each block the largest upper end of what is proposed,
	weights      []float64 // and the sum of e^(upper/temperature)
	total        float64   // of the weights
	terms        [blockLabels]float64

	ids, open []uint32
	keep      [2][]float32 // the intervals of labels that are out of a sum for a while
	parts     [3][]float32
	logits    []float64
	nearest   []float64
	counts    []uint32
	one       [1]uint32
	oneLogit  [1]float64
}

// enclose makes the envelope of the edited logits. It reports false if all logits are to be
// computed.
func (s *Sampler) enclose(temperature float64) (bool, error) {
	if s.labels < leastEnveloped || s.o.ExactLogProb || temperature < leastTemperature || temperature > mostTemperature {
		return false, nil
	}
	e := &s.envelope
	var err error
	if e.lower, e.upper, err = s.layer.Bounds(s.query, softmax.Labels{}); e.lower == nil || err != nil {
		return false, err
	}
	e.logits = grow.Slice(e.logits, len(s.changed))
	if err := s.layer.Logits(e.logits, s.query, softmax.Only(s.changed)); err != nil {
		return false, err
	}
	for i, id := range s.changed {
		x := s.edit(id, e.logits[i])
		if !(math.Abs(x) < math.MaxFloat32/4) {
			return false, nil
		}
		e.pin(id, x)
	}
	none := float32(math.Inf(-1))
	for id := range s.refused {
		e.lower[id], e.upper[id] = none, none
	}
	return true, nil
}

// pin makes the interval of a label the narrowest that holds its logit.
func (e *envelope) pin(id uint32, x float64) { e.lower[id], e.upper[id] = below(x), above(x) }

// below is the largest float32 that is at most x, above the least that is at least x.
func below(x float64) float32 {
	f := float32(x)
	if float64(f) > x {
		f = math.Nextafter32(f, float32(math.Inf(-1)))
	}
	return f
}

func above(x float64) float32 { return -below(-x) }

// isPinned reports whether the interval of a label is as narrow as pin makes it.
func (e *envelope) isPinned(id uint32) bool {
	return math.Nextafter32(e.lower[id], e.upper[id]) == e.upper[id]
}

// scaleOf is what exponents in float32 are multiplied by.
func scaleOf(temperature float64) float32 {
	return float32(min(max(1/temperature, 0x1p-126), math.MaxFloat32))
}

// weigh sums the exponentials of the upper ends at a temperature. It reports false if
// float32 is too coarse for the largest of them.
func (e *envelope) weigh(temperature float64) bool {
	e.temperature = temperature
	n := (len(e.proposed) + blockLabels - 1) / blockLabels
	e.tops, e.weights = grow.Slice(e.tops, n), grow.Slice(e.weights, n)
	top := float32(math.Inf(-1))
	for b := range n {
		upper := e.block(b)
		e.tops[b], e.weights[b] = kernels.SumExpCentres(upper, upper, scaleOf(temperature))
		top = max(top, e.tops[b])
	}
	e.reference, e.total = float64(top), 0
	for b, sum := range e.weights {
		e.weights[b] = e.relative(float64(e.tops[b])) * sum
		e.total += e.weights[b]
	}
	return math.Abs(e.reference)*0x1p-23 <= float64(mostRounding*temperature)
}

// block are the upper ends by which the labels of a block are proposed.
func (e *envelope) block(b int) []float32 {
	return e.proposed[b*blockLabels : min((b+1)*blockLabels, len(e.proposed))]
}

// relative is e^((x - reference)/T).
func (e *envelope) relative(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return kernels.Exp((x - e.reference) / e.temperature)
}

// tighten takes the logit of a label of block b into account, which is not above the
// upper end that the label had.
func (e *envelope) tighten(b int, id uint32, x float64) {
	e.pin(id, x)
	e.proposed[id] = e.upper[id]
	upper := e.block(b)
	top, sum := kernels.SumExpCentres(upper, upper, scaleOf(e.temperature))
	e.tops[b], e.weights[b] = top, e.relative(float64(top))*sum
	e.total = 0
	for _, w := range e.weights {
		e.total += w
	}
}

// logit returns the edited logit of a label.
func (s *Sampler) logit(id uint32) (float64, error) {
	e := &s.envelope
	e.one[0] = id
	if err := s.layer.Logits(e.oneLogit[:], s.query, softmax.Only(e.one[:])); err != nil {
		return 0, err
	}
	return s.edit(id, e.oneLogit[0]), nil
}

// propose draws a label with a probability in proportion to e^(x/T), by the envelope that
// was weighed at T, and returns its logit x too; times part for a label of which a share is
// sure. It reports false if too many proposals were rejected.
func (s *Sampler) propose(part float64) (id uint32, x float64, ok bool, err error) {
	e := &s.envelope
	for range maxProposals {
		if !(e.total > 0) {
			break
		}
		b := walk(e.weights, s.random.Float64()*e.total)
		upper, top := e.block(b), float64(e.tops[b])
		terms, sum := e.terms[:len(upper)], 0.0
		for i, u := range upper {
			terms[i] = kernels.Exp((float64(u) - top) / e.temperature)
			sum += terms[i]
		}
		i := walk(terms, s.random.Float64()*sum)
		id = uint32(b*blockLabels + i)
		if x, err = s.logit(id); err != nil {
			return 0, 0, false, err
		}
		// The weight that the label was proposed with. It is not below the label's own but
		// for roundings, for which the slack makes room.
		proposed := e.weights[b] * terms[i] / sum * slack
		some, weight := s.list.share(id) > 0, e.relative(x)
		if some {
			weight *= part
		}
		if s.random.Float64()*proposed < weight {
			return id, x, true, nil
		}
		if !some {
			e.tighten(b, id, x)
		}
	}
	return 0, 0, false, nil
}

// bounds are the logs of three sums: over lower ends, over centres and over upper ends.
type bounds struct{ low, about, high float64 }

// logSumOf is the log of the sum of e^(c/T) over the centres c of intervals.
func logSumOf(lower, upper []float32, temperature float64) float64 {
	top, sum := kernels.SumExpCentres(lower, upper, scaleOf(temperature))
	if sum == 0 {
		return math.Inf(-1)
	}
	return float64(top)/temperature + kernels.Log(sum)
}

// sumWithout bounds the log of the sum of e^(x/T) over all labels but some.
func (e *envelope) sumWithout(ids []uint32, temperature float64) bounds {
	none := float32(math.Inf(-1))
	e.keep[0], e.keep[1] = grow.Slice(e.keep[0], len(ids)), grow.Slice(e.keep[1], len(ids))
	for i, id := range ids {
		e.keep[0][i], e.keep[1][i] = e.lower[id], e.upper[id]
		e.lower[id], e.upper[id] = none, none
	}
	b := bounds{logSumOf(e.lower, e.lower, temperature), logSumOf(e.lower, e.upper, temperature), logSumOf(e.upper, e.upper, temperature)}
	for i, id := range ids {
		e.lower[id], e.upper[id] = e.keep[0][i], e.keep[1][i]
	}
	return b
}

// atLeast finds the labels whose upper ends are at least x, and leaves them in e.ids.
func (e *envelope) atLeast(x float64) []uint32 {
	e.ids = grow.Slice(e.ids, len(e.upper))
	return e.ids[:kernels.SelectAtLeast(e.ids, e.upper, below(x))]
}

// pinAll computes the logits of labels.
func (s *Sampler) pinAll(ids []uint32) error {
	e := &s.envelope
	e.open = slices.DeleteFunc(append(e.open[:0], ids...), e.isPinned) // as labels are that edits change
	e.logits = grow.Slice(e.logits, len(e.open))
	if err := s.layer.Logits(e.logits, s.query, softmax.Only(e.open)); err != nil {
		return err
	}
	for i, id := range e.open {
		e.pin(id, e.logits[i])
	}
	return nil
}

// before bounds the share of the probability, at a temperature, of the labels in front of
// a label in the order of their logits.
func (e *envelope) before(id uint32, x, temperature float64) (low, high float64) {
	ids := e.atLeast(x)
	for i := range e.parts {
		e.parts[i] = e.parts[i][:0]
	}
	for _, j := range ids {
		switch {
		case j == id:
		case float64(e.lower[j]) > x:
			e.parts[0], e.parts[1] = append(e.parts[0], e.lower[j]), append(e.parts[1], e.upper[j])
		default: // on either side of x
			e.parts[2] = append(e.parts[2], e.upper[j])
		}
	}
	var sums [3]float64
	for i, part := range e.parts {
		sums[i] = logSumOf(part, part, temperature)
	}
	behind, own := e.sumWithout(ids, temperature), x/temperature // the label is among ids
	share := func(front, behind float64) float64 {
		if math.IsInf(front, -1) {
			return 0
		}
		return 1 / (1 + kernels.Exp(kernels.LogAddExp(behind, own)-front))
	}
	return share(sums[0], kernels.LogAddExp(behind.high, sums[2])), share(kernels.LogAddExp(sums[1], sums[2]), behind.low)
}

// membership says whether a label belongs to a nucleus.
type membership uint8

const (
	undecided membership = iota
	inside
	outside
)

// inNucleus finds out whether a label with the logit x belongs to the nucleus at a
// temperature. What it returns is certain, unless it is undecided. All labels whose upper
// ends are above the logit known have intervals that are pinned.
func (s *Sampler) inNucleus(id uint32, x, temperature float64) (m membership, known float64, err error) {
	e := &s.envelope
	known = math.Inf(1)
	decide := func() bool {
		switch low, high := e.before(id, x, temperature); {
		case high < s.o.TopP/slack:
			m = inside
		case low > s.o.TopP*slack:
			m = outside
		}
		return m != undecided
	}
	if len(e.atLeast(x)) > fewLabels { // far from the end of the nucleus intervals suffice
		if decide() {
			return m, known, nil
		}
		either := slices.DeleteFunc(e.atLeast(x), func(j uint32) bool { return float64(e.lower[j]) > x })
		if err := s.pinAll(either); err != nil || decide() { // those that may be in front of the label or behind it
			return m, known, err
		}
	}
	from := func(depth int) float64 { return x - float64(depths[depth]*temperature) }
	depth := len(depths) - 1 // the deepest with few labels: less deep ones take as long
	for depth > 0 && len(e.atLeast(from(depth))) > fewLabels {
		depth--
	}
	for ; depth < len(depths); depth++ {
		ids := e.atLeast(from(depth))
		if float64(len(ids)) > float64(maxPinned*float64(s.labels)) {
			break
		}
		known = from(depth)
		if err := s.pinAll(ids); err != nil || decide() {
			return m, known, err
		}
	}
	return m, known, nil
}

// drawEnclosed draws from all labels, or from the nucleus at the temperature at if that is
// the only truncation. It reports false if all logits are to be computed; a label that
// is in s.proposed then is the one that is drawn if it belongs to the nucleus.
func (s *Sampler) drawEnclosed(at float64, nucleus bool) (Token, bool, error) {
	s.proposed = s.proposed[:0]
	temperature := s.temperature
	if ok, err := s.enclose(temperature); !ok || err != nil {
		return Token{}, false, err
	}
	e := &s.envelope
	if nucleus && (at < leastTemperature || at > mostTemperature) {
		return Token{}, false, nil
	}
	e.proposed = append(e.proposed[:0], e.upper...)
	e.top, e.temperature = float64(slices.Max(e.upper)), temperature
	// Labels of which a share is sure are proposed by the part of their probability that is left. It is the same for all
	// of them, 1 - c times the weight of all that is kept: at most part, at least fewer.
	part, fewer, kept := 1.0, 1.0, bounds{}
	if ids := s.list.ids; len(ids) > 0 {
		err := s.pinAll(ids)
		if err == nil {
			part, fewer, kept, err = s.leftOf(at, nucleus, fewLabels)
		}
		if err != nil || !(part > 0) {
			return Token{}, false, err
		}
		down := temperature * kernels.Log(part)
		for _, id := range ids {
			e.proposed[id] = above(float64(e.upper[id]) + down)
		}
	}
	if !e.weigh(temperature) || nucleus && math.Abs(e.reference)*0x1p-23 > float64(mostRounding*at) {
		return Token{}, false, nil
	}
	for range maxRedraws {
		id, x, ok, err := s.propose(part)
		if !ok || err != nil {
			return Token{}, false, err
		}
		s.chance = s.random.Float64() * part
		some := s.list.share(id) > 0
		switch {
		case some && s.chance >= fewer:
			if most, least, kept, err := s.leftOf(at, nucleus, s.labels/manyLabels); err != nil {
				return Token{}, false, err
			} else if most > 0 && s.chance >= most {
				continue
			} else if s.chance < least {
				return Token{ID: id, LogProb: min(x/temperature-kept.about, 0)}, true, nil
			}
			s.proposed = append(s.proposed, softmax.Prediction{ID: id, Logit: x})
			return Token{}, false, nil
		case some || !nucleus && len(s.list.ids) > 0:
			return Token{ID: id, LogProb: min(x/temperature-kept.about, 0)}, true, nil
		case !nucleus:
			sum, _, err := s.logSum(temperature, fewLabels)
			return Token{ID: id, LogProb: min(x/temperature-sum.about, 0)}, sum.high-sum.low <= maxOpen, err
		}
		m, known, err := s.inNucleus(id, x, at)
		switch {
		case err != nil:
			return Token{}, false, err
		case m == inside && len(s.list.ids) > 0 && !math.IsInf(kept.high, 1):
			return Token{ID: id, LogProb: min(x/temperature-kept.about, 0)}, true, nil
		case m == inside && len(s.list.ids) == 0:
			if kept, sure := e.logKept(s.o.TopP, x, known, at); sure {
				return Token{ID: id, LogProb: min(x/temperature-kept, 0)}, true, nil
			}
			fallthrough
		case m != outside:
			s.proposed = append(s.proposed, softmax.Prediction{ID: id, Logit: x})
			return Token{}, false, nil
		}
	}
	return Token{}, false, nil
}

// leftOf is the part of the probability that is left of labels of which a share is sure, at most and at
// least, and the log of the weight of all that is kept, by so many logits. The part is 0 if it is not known.
func (s *Sampler) leftOf(at float64, nucleus bool, many int) (part, fewer float64, kept bounds, err error) {
	e, l := &s.envelope, &s.list
	kept, known, err := s.logSum(at, many)
	if err != nil || kept.high-kept.low > maxOpen {
		return 0, 0, kept, err
	}
	if nucleus {
		if kept = e.boundKept(s.o.TopP, kept, known, at); max(kept.high-kept.about, kept.about-kept.low) > maxOpen {
			return 0, 0, kept, nil
		}
	}
	x, err := s.logit(l.ids[0])
	left := func(sum float64) float64 {
		return 1 - l.shares[l.ids[0]]*kernels.Exp(sum-x/e.temperature)
	}
	return min(left(kept.low)+(slack-1), 1), left(kept.high) - (slack - 1), kept, err
}

// logSum bounds the log of the sum of e^(x/T) over all labels. The largest logits, of which few have
// most of the weight, are computed, at most so many. All labels with upper ends of known or more are pinned.
func (s *Sampler) logSum(temperature float64, many int) (sum bounds, known float64, err error) {
	e := &s.envelope
	known = math.Inf(1)
	for _, depth := range [...]float64{6, 4, 2} {
		x := e.top - float64(depth*temperature)
		if ids := e.atLeast(x); len(ids) <= many {
			if err := s.pinAll(ids); err != nil {
				return sum, 0, err
			}
			known = x
			break
		}
	}
	return e.sumWithout(nil, temperature), known, nil
}

// boundKept bounds the log of the weight of a nucleus at the temperature of the envelope, by the log of
// the sum over all labels at the temperature at, and the labels from known up, which are pinned.
func (e *envelope) boundKept(p float64, z bounds, known, at float64) bounds {
	e.gatherNearest(known)
	weight := func(sum, more float64) (log float64, end bool) {
		_, kept, end := e.keptOf(e.top, math.Inf(1), at, float64(p*kernels.Exp(sum-e.top/at))*more)
		return e.top/e.temperature + kernels.Log(kept), end
	}
	share := kernels.Log(p)
	if high, end := weight(z.high, slack); end {
		low, _ := weight(z.low, 1/slack)
		about, _ := weight(z.about, 1)
		return bounds{low, about, high}
	}
	if at == e.temperature && !math.IsInf(known, 1) {
		return bounds{z.low + share, z.about + share, kernels.LogAddExp(z.high+share, known/at)}
	}
	return e.boundWide(p, at)
}

const (
	wideBuckets = 16384
	wideSteps   = 512 // buckets to a factor of e of the probability
)

// boundWide bounds the log of the weight of a nucleus of the share p at the temperature at, by the numbers of
// labels in equal parts of the range: of their lower ends, and of their upper ends. First labels that hold
// the share though each weighs what its lower end says, and all others what their upper ends
// say, are at least the nucleus; and first labels that the other way round do not hold it belong to it.
func (e *envelope) boundWide(p, at float64) bounds {
	e.counts = grow.Slice(e.counts, 2*wideBuckets)
	clear(e.counts)
	lower, upper := e.counts[:wideBuckets], e.counts[wideBuckets:]
	width, widest := min(at, e.temperature)/wideSteps, 0.0
	part := func(x float32) int { return int(min((e.top-float64(x))/width, wideBuckets-1)) }
	for id, u := range e.upper {
		l := e.lower[id]
		lower[part(l)]++
		upper[part(u)]++
		if l > float32(math.Inf(-1)) {
			widest = max(widest, float64(u)-float64(l))
		}
	}
	apart := kernels.Exp(widest / at) // what upper ends weigh for lower ends, at most
	weight := func(n uint32, parts int, t float64) float64 {
		return float64(n) * kernels.Exp(-float64(parts)*width/t)
	}
	behindLower, behindUpper := 0.0, 0.0
	for b := range wideBuckets {
		if lower[b] > 0 {
			behindLower += weight(lower[b], b, at)
		}
		if upper[b] > 0 {
			behindUpper += weight(upper[b], b+1, at)
		}
	}
	var least, most, front, top float64
	full, inside := false, true
	for b := range wideBuckets - 1 {
		if upper[b] > 0 {
			most += weight(upper[b], b, e.temperature)
		}
		if full { // one part more than holds enough
			break
		}
		if lower[b] == 0 && upper[b] == 0 {
			continue
		}
		front += weight(lower[b], b+1, at)
		behindLower -= weight(lower[b], b, at)
		full = front >= p*slack*(front+max(behindLower, 0)*apart)
		top += weight(upper[b], b, at)
		behindUpper -= weight(upper[b], b+1, at)
		if inside = inside && top < p/slack*(top+max(behindUpper, 0)/apart); inside {
			least += weight(lower[b], b+1, e.temperature)
		}
	}
	if !full {
		most = math.Inf(1)
	}
	shift := e.top / e.temperature
	b := bounds{low: shift + kernels.Log(least), high: shift + kernels.Log(most)}
	switch {
	case !full: // nothing is known above
		b.about = b.low
	case least == 0:
		b.about = b.high
	default:
		b.about = (b.low + b.high) / 2
	}
	return b
}

// gatherNearest leaves the centres of the labels from known up in e.nearest, ascending.
func (e *envelope) gatherNearest(known float64) {
	e.nearest = e.nearest[:0]
	for _, id := range e.atLeast(known) {
		if c := e.centre(id); c >= known {
			e.nearest = append(e.nearest, c)
		}
	}
	slices.Sort(e.nearest)
}

// logKept estimates the log of the sum of e^(x/T) over the nucleus at the temperature at, in
// which a label has the logit x, at the temperature of the envelope. Labels whose logits are
// at least known are pinned. It reports false if the estimate may be more than keptError off
// because the intervals leave too much open, or which of the pinned labels is the last one.
func (e *envelope) logKept(p, x, known, at float64) (log float64, sure bool) {
	z := e.sumWithout(nil, at)
	if z.high-z.low > maxOpen {
		return 0, false
	}
	top := e.top
	e.gatherNearest(known)
	share := func(sum float64) float64 { return p * kernels.Exp(sum-top/at) }
	want := share(z.about)
	if _, kept, end := e.keptOf(top, x, at, want); end {
		_, least, _ := e.keptOf(top, x, at, share(z.low)/slack)
		if _, most, end := e.keptOf(top, x, at, share(z.high)*slack); end {
			return top/e.temperature + kernels.Log(kept), most-least <= float64(keptError*kept)
		}
	}
	if w := e.sumWithout(nil, e.temperature); w.high-w.low > maxOpen {
		return 0, false
	}
	// The others by their number in equal parts of the range.
	e.counts = grow.Slice(e.counts, nucleusBuckets)
	clear(e.counts)
	scale := e.partsPerLogit(at)
	for id := range e.upper {
		if c := e.centre(uint32(id)); c < known {
			e.counts[int(min((top-c)*scale, nucleusBuckets-1))]++
		}
	}
	kept, last := e.keptAmong(top, x, at, want)
	// What the nucleus holds at the one temperature for what it holds at the other.
	ratio := func(want float64) float64 {
		kept, _ := e.keptAmong(top, x, at, want)
		return kept / want
	}
	off := float64((z.high-z.low)*likelyError) + likelyCoarse
	open := math.Abs(ratio(share(z.about+off)) - ratio(share(z.about-off)))
	return top/e.temperature + kernels.Log(kept), float64(open*want)+last <= float64(keptError*kept)
}

// partsPerLogit is the number of parts of e.counts to a difference of logits of 1: as fine as
// the lower of the temperatures needs.
func (e *envelope) partsPerLogit(at float64) float64 { return nucleusSteps / min(at, e.temperature) }

// keptAmong sums e^((x-top)/T) over the labels of a nucleus as keptOf does, and, as far as they
// do not end it, over those behind them, whose numbers in parts of the range are e.counts. The
// last of these may be a fraction of a label: it returns what the whole one adds.
func (e *envelope) keptAmong(top, least, at, want float64) (kept, last float64) {
	sum, kept, end := e.keptOf(top, least, at, want)
	if end {
		return kept, 0
	}
	for b, n := range e.counts[:nucleusBuckets-1] {
		if n == 0 {
			continue
		}
		down := (float64(b) + 0.5) / e.partsPerLogit(at)
		one := kernels.Exp(-down / at)
		last = kernels.Exp(-down / e.temperature)
		many := min(float64(n), max((want-sum)/one, 0))
		sum += float64(many * one)
		kept += float64(many * last)
		if sum >= want {
			break
		}
	}
	return kept, last
}

// keptOf sums e^((x-top)/T) over the labels in e.nearest, in the order of their logits, up to
// the end of a nucleus: a label from least down at which the sum at the temperature at is want.
// It reports whether the end is there.
func (e *envelope) keptOf(top, least, at, want float64) (sum, kept float64, end bool) {
	for i := len(e.nearest) - 1; i >= 0; i-- {
		c := e.nearest[i]
		sum += kernels.Exp((c - top) / at)
		kept += kernels.Exp((c - top) / e.temperature)
		if sum >= want && c <= float64(above(least)) { // a centre is rounded
			return sum, kept, true
		}
	}
	return sum, kept, false
}

// centre is the middle of the interval of a label.
func (e *envelope) centre(id uint32) float64 {
	return (float64(e.lower[id]) + float64(e.upper[id])) / 2
}
