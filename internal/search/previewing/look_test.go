package previewing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// The mean of e^x over a normal distribution of which nothing is above a limit, by a sum over small
// steps, is at most what its estimate says, and not far below it.
func TestRaisedIsABoundOfTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		square, far := rapid.Float64Range(1e-3, 400).Draw(t, "square"), rapid.Float64Range(1e-3, 60).Draw(t, "far")
		deviation := math.Sqrt(square)
		const steps = 40000
		from := min(-12*deviation, far-60)
		width := (far - from) / steps
		log := math.Inf(-1)
		for i := range steps {
			x := from + (float64(i)+0.5)*width
			log = kernels.LogAddExp(log, x-x*x/(2*square))
		}
		log += math.Log(width / (deviation * math.Sqrt(2*math.Pi)))
		if got := raised(square, far); got < log-1e-3 || got > log+1+math.Log(1+3*deviation) {
			t.Fatalf("square %v, far %v: found %v, want at least %v, and not much more", square, far, got, log)
		}
	})
}

// The stages of panels look LeastReach far at least where rises do not count, and all stages, from the usual
// spread on, as far in logits as there. A larger reach looks no less far, and what every search finds is what the least one reaches, or the margin.
func TestHowFarStagesLook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Parts{Codes: rapid.SampledFrom(stageEnds[2:]).Draw(t, "codes"), Factors: [MostStages - 1]float64{1, 0.9, 0.6, 0.5}, Rising: rapid.Float64Range(0, 3).Draw(t, "rising"), Usual: rapid.Float64Range(0, 3).Draw(t, "usual")}
		for j := range p.Margins {
			p.Margins[j] = rapid.Float64Range(-1, 2).Draw(t, "margin")
		}
		reach, spread, j := rapid.Float64Range(0, 12).Draw(t, "reach"), rapid.Float64Range(0.1, 6).Draw(t, "spread"), rapid.IntRange(0, p.Stages()-1).Draw(t, "stage")
		far := p.reachAfter(j, reach, spread)
		if more := p.reachAfter(j, reach+1, spread); more < far {
			t.Fatalf("found %v for the reach %v and %v for one more", far, reach, more)
		}
		want, panels := reach, j < PanelStages
		if panels && spread < p.Rising {
			want = max(want, LeastReach)
		}
		if j < p.Stages()-1 {
			want *= p.Factors[j]
		}
		if p.Usual > 0 && spread > p.Usual {
			want *= p.Usual / spread
		}
		if math.Abs(far-want) > 1e-9 {
			t.Fatalf("stage %d, reach %v, spread %v of %v and %v: found %v, want %v", j, reach, spread, p.Rising, p.Usual, far, want)
		}
		need, margin := rapid.Float64Range(0, 12).Draw(t, "need"), rapid.Float64Range(-2, 3).Draw(t, "of margin")
		always := margin <= p.Margins[j]
		if panels && spread < p.Rising {
			always = need <= p.reachAfter(j, 0, spread)
		}
		if got := p.finds(j, need, margin, spread); got != always {
			t.Fatalf("stage %d, need %v, margin %v, spread %v: found by every search %v, want %v", j, need, margin, spread, got, always)
		}
	})
}
