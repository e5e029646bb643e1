// Package layerfile opens contexts for a layer in files, and tells whether they look like its own.
package layerfile

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
)

const (
	normSample  = 256 // contexts that Unnormed looks at
	logitSample = 32  // and of which it computes all logits
)

// Unnormed describes why the contexts, rows of the dimension of a layer of a file, do not look like the contexts
// that the head is applied to, "" if they do. Most often they were taken before the model's last
// normalisation, or scaled to length 1.
//
// If the head's files have the normalisation, its results are known: (h/s - Bias)/Gain has a mean
// square of 1, where s is the scale that the head's states have. That must hold within a twentieth
// for half of a sample; if it holds with another scale of the model in place of s, the text tells
// that this scale is missing, or applied twice. Otherwise the probabilities decide: for half of a
// sample the best label must have neither all of the probability except a millionth, nor as little
// as three labels of an even distribution.
func Unnormed(l *l2s.Layer, contexts []float32) string {
	h, d := (*engine.Layer)(l).Head(), l.Dim()
	if h == nil {
		return ""
	}
	if gain, bias := h.Norm(); gain != nil {
		squares := make([]float64, 0, normSample)
		state, logit := h.StateScale(), h.LogitScale()
		const ( // possible factors of a state
			asAtHead = iota
			nothing
			both
			kinds
		)
		var like [kinds]int
		for _, row := range sample(contexts, d, normSample) {
			plain := meanSquare(row, gain, bias, 0, 1)
			squares = append(squares, plain)
			for kind, scale := range [kinds]float64{state, 1, state * logit} {
				if near(meanSquare(row, gain, bias, 0, scale), 1) || near(meanSquare(row, gain, bias, 1, scale), 1) {
					like[kind]++
				}
			}
		}
		switch most := len(squares); {
		case 2*like[asAtHead] >= most:
			return ""
		case 2*like[nothing] >= most:
			return fmt.Sprintf("they lack the scale of %.4g that the model has between its last normalisation and its head: take them at the head, or multiply them by it", state)
		case 2*like[both] >= most:
			return fmt.Sprintf("they have the scale of %.4g already that the model has for its logits, and would have it twice: take them before it, or divide them by it", logit)
		}
		slices.Sort(squares)
		return fmt.Sprintf("after the model's last normalisation their mean square would be 1 by its gain; found %.3g in the median", squares[len(squares)/2])
	}
	best := make([]float64, 0, logitSample)
	logits := make([]float64, h.Labels())
	for _, row := range sample(contexts, d, logitSample) {
		h.Rows().RefScan(logits, h.Bias(), row)
		for i, x := range logits {
			logits[i] = h.Logit(x)
		}
		best = append(best, slices.Max(logits)-kernels.LogSumExp(logits))
	}
	slices.Sort(best)
	switch p := math.Exp(best[len(best)/2]); {
	case h.Labels() > 1 && p > 1-1e-6:
		return "for most of them the best label has all of the probability"
	case h.Labels() >= 100 && p < 3/float64(h.Labels()):
		return "for most of them all labels are about as probable as each other"
	}
	return ""
}

// sample returns n rows at equal distances, or all there are.
func sample(rows []float32, d, n int) (list [][]float32) {
	all := len(rows) / d
	n = min(n, all)
	for i := range n {
		list = append(list, rows[i*(all/n)*d:][:d])
	}
	return list
}

// meanSquare returns the mean square of the input of the normalisation, with plus on its gain and a
// scale after it, that gave row.
func meanSquare(row, gains, biases []float32, plus, scale float64) float64 {
	sum, n := 0.0, 0
	for j, x := range row {
		gain, v := float64(gains[j])+plus, float64(x)/scale
		if biases != nil {
			v -= float64(biases[j])
		}
		if gain != 0 {
			u := v / gain
			sum += float64(u * u)
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// near reports whether x is within a twentieth of want.
func near(x, want float64) bool { return math.Abs(x-want) <= want/20 }
