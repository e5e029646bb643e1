package audit

import "slices"

// The tests of an audit are e-detectors (Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric
// framework for sequential change detection", 2023). A sample gives a number e >= 0 whose
// expectation, given the samples before, is at most 1 as long as no more labels are missed than
// allowed, and above 1 after the change that the test looks for. The Shiryaev-Roberts sum R = (1 +
// R) e then has an expectation of at most the number of samples, so that the mean number of samples
// until R reaches a threshold is at least the threshold: the mean time between two false alarms. A
// mean of such sums is such a sum, too.

const (
	// sampleEvery is the mean number of queries of a searcher for one that is sampled.
	sampleEvery = 8
	// tests is the number of detectors: P@1, P@k and cosine.
	tests = 3
	// alarmAt is the threshold of each: together they give at most one false alarm per week at
	// 1,000 queries per second.
	alarmAt = tests * 1000 * 7 * 24 * 60 * 60 / sampleEvery
	// calm is the number of samples after which an alarm is over that no later one repeats.
	calm = 2000
)

// detector is the common part of all tests.
type detector struct {
	at      float64 // the threshold
	samples uint64
	crossed uint64    // the number of samples at the last alarm, 0 for none
	r       []float64 // the sums
}

// sample takes a sample, with its e for each sum, or none if it tells nothing. It reports whether
// an alarm begins, and resets the sums if their mean reaches the threshold.
func (d *detector) sample(e ...float64) (begins bool) {
	d.samples++
	mean := 0.0
	for i := range e {
		d.r[i] = (1 + d.r[i]) * e[i]
		mean += d.r[i] / float64(len(e))
	}
	if mean < d.at {
		return false
	}
	begins = !d.up()
	d.crossed = d.samples
	clear(d.r)
	return begins
}

func (d *detector) up() bool { return d.crossed > 0 && d.samples-d.crossed < calm }

// driftDetector looks for bins of a histogram with more than their largest share. Its e is q/most
// for the bin of the sample, where q is the prediction from the earlier samples.
type driftDetector struct {
	detector
	of     Histogram
	recent [2]decayingCounts
}

// decayingCounts is a distribution of bins that forgets.
type decayingCounts struct {
	keep   float64 // of a count, from sample to sample
	counts []float64
	total  float64
}

// prior is the count of each bin before any sample.
const prior = 0.5

func newDriftDetector(h Histogram) *driftDetector {
	d := &driftDetector{detector: detector{at: alarmAt, r: make([]float64, 2)}, of: h}
	for i, samples := range []float64{32, 1024} { // for sudden changes, and for small ones
		d.recent[i] = decayingCounts{keep: 1 - 1/samples, counts: make([]float64, len(h.Shares))}
	}
	return d
}

func (d *driftDetector) add(x float64) (begins bool) {
	if len(d.of.Shares) == 0 {
		return d.sample()
	}
	var e [2]float64
	bin := d.of.bin(x)
	for i := range d.recent {
		e[i] = d.recent[i].predict(bin) / d.of.Most[bin]
		d.recent[i].add(bin)
	}
	return d.sample(e[:]...)
}

func (m *decayingCounts) predict(bin int) float64 {
	return (m.counts[bin] + prior) / (m.total + float64(prior*float64(len(m.counts))))
}

func (m *decayingCounts) add(bin int) {
	for i := range m.counts {
		m.counts[i] *= m.keep
	}
	m.counts[bin]++
	m.total = float64(m.total*m.keep) + 1
}

// now returns the shares of the last samples, some thousand of them.
func (d *driftDetector) now() []float64 {
	m := &d.recent[1]
	shares := slices.Clone(m.counts)
	for i := range shares {
		shares[i] /= max(m.total, 1)
	}
	return shares
}

// missDetector looks for misses whose mean is above the allowed part. Its e is the payoff of bets
// of several sizes: 1 - c + c x/allowed, where x is the part of the labels that were missed.
type missDetector struct {
	detector
	k int // of P@k
}

var bets = [4]float64{0.5, 0.1, 0.02, 0.005}

func newMissDetector() *missDetector {
	return &missDetector{detector: detector{at: alarmAt, r: make([]float64, len(bets))}}
}

func (d *missDetector) add(missed, allowed float64) (begins bool) {
	var e [len(bets)]float64
	for i, c := range bets {
		e[i] = 1 - c + float64(c*missed/allowed)
	}
	return d.sample(e[:]...)
}
