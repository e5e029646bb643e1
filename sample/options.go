package sample

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Step is a processor in the order of a sampler.
type Step uint8

const (
	// Mask makes labels impossible that are not allowed or that are banned.
	Mask Step = iota
	// Bias adds numbers to logits.
	Bias
	// Penalties change the logits of labels that have occurred n > 0 times: a positive
	// logit is divided by Options.Repetition, any other is multiplied by it (Keskar et al.
	// 2019). Then n times Options.Frequency, and Options.Presence, are subtracted.
	Penalties
	// Temperature divides logits by Options.Temperature.
	Temperature
	// TopK keeps the first Options.TopK labels.
	TopK
	// TopP keeps the first labels that have the share Options.TopP.
	TopP
	// MinP keeps labels of at least Options.MinP times the probability of the first.
	MinP
	// Typical keeps the fewest labels that have the share Options.Typical, in the order of the
	// distance of -log p from the entropy.
	Typical
)

var stepNames = [...]string{"mask", "bias", "penalties", "temperature", "top-k", "top-p", "min-p", "typical"}

// String returns the name of the step.
func (s Step) String() string {
	if int(s) < len(stepNames) {
		return stepNames[s]
	}
	return fmt.Sprintf("Step(%d)", uint8(s))
}

// LlamaCPP is the order of llama.cpp: its logit biases, then the default of
// common_params_sampling.samplers (common/common.h) without the samplers that this
// package lacks. The temperature is last, so that truncations do not depend on it.
func LlamaCPP() []Step {
	return []Step{Mask, Bias, Penalties, TopK, Typical, TopP, MinP, Temperature}
}

// VLLM is the order of vLLM's sampler (vllm/v1/sample/sampler.py): allowed tokens, logit
// biases, penalties, temperature, min-p, and top-k before top-p. It has no typical sampling.
func VLLM() []Step { return []Step{Mask, Bias, Penalties, Temperature, MinP, TopK, TopP} }

// HuggingFace is the order of Hugging Face transformers (generation/utils.py,
// _get_logits_processor): biases and penalties, then the mask, then the warpers.
func HuggingFace() []Step {
	return []Step{Bias, Penalties, Mask, Temperature, TopK, TopP, MinP, Typical}
}

// Options configures a [Sampler]. The zero value is an error, because TopP, Typical and
// Repetition must not be 0: start from [DefaultOptions], and change fields.
type Options struct {
	// Order holds the steps, each at most once; the edits (Mask, Bias, Penalties) come
	// first. A step that is absent is not done, even if its option is set.
	Order []Step
	// Temperature is T: finite and at least 1e-100, or 0 for the label with the
	// largest logit, with any truncation.
	Temperature float64
	// TopK is k, 0 for all labels.
	TopK int
	// TopP is p: above 0 and at most 1, where 1 keeps all labels.
	TopP float64
	// MinP is p: 0 to 1, where 0 keeps all labels.
	MinP float64
	// Typical is the share of typical sampling: above 0 and at most 1, where 1 keeps all labels.
	Typical float64
	// Repetition is from 2^-100 to 2^100. 1 changes nothing, and more makes labels that have
	// occurred less probable.
	Repetition float64
	// Presence and Frequency are at most 2^100 in magnitude. 0 changes nothing, and more makes
	// labels that have occurred less probable.
	Presence, Frequency float64
	// Budget applies to draws over a screen or a preview: the number of labels to look at, as in
	// l2s.Request. 0 is the screen's largest, or its own if that is less than a third of it,
	// and the preview's own.
	Budget float64
	// Confidence applies to draws over a screen: the confidence of the bound Token.Variation, at
	// least 0 and below 1. A screen has intervals up to a largest confidence, 0.995 by
	// default; above it nothing is known of the labels that are not looked at.
	Confidence float64
	// MaxVariation applies to draws over a screen: the largest total variation from the layer's
	// distribution, as Token.Variation bounds it, with which the candidates alone answer. If the
	// bound is larger, a draw has the distribution of the layer: see [New]. 0 to 1, where 1
	// always takes the candidates; [ByChain] is 1 if a top-k or min-p bounds the set to draw from
	// (0.2 if there are fewer candidates than it keeps), and 0 for other chains.
	MaxVariation float64
	// ExactLogProb asks for exact log-probabilities of all draws over a layer. Then a draw without
	// truncation computes the logits of all labels, which takes several times as long, and one with
	// top-p first more of them: see [Token].
	ExactLogProb bool
	// Seed seeds the random numbers. A sampler continues its random numbers from draw to draw: use
	// a separate sampler for each sequence of tokens that must be repeatable.
	Seed uint64
}

// DefaultOptions draws from the unchanged distribution of the layer, at temperature 1, in the order
// of llama.cpp. Over a screen the confidence is 0.95, and MaxVariation is ByChain.
func DefaultOptions() Options {
	return Options{Order: LlamaCPP(), Temperature: 1, TopP: 1, Typical: 1, Repetition: 1, Confidence: 0.95, MaxVariation: ByChain}
}

// ByChain is the MaxVariation that depends on the truncations.
const ByChain = -1

// maxPenalty bounds penalties, so that the logits of a layer remain finite numbers at every
// temperature, with any biases and any history.
const maxPenalty = 0x1p100

func (o *Options) check() error {
	for i, s := range o.Order {
		switch {
		case int(s) >= len(stepNames):
			return fmt.Errorf("sample: order: found %v at %d, expected a step", s, i)
		case slices.Contains(o.Order[:i], s):
			return fmt.Errorf("sample: order: found %v twice, expected each step once at most", s)
		case i > 0 && s <= Penalties && o.Order[i-1] > Penalties:
			return fmt.Errorf("sample: order: found %v after %v, expected mask, bias and penalties first", s, o.Order[i-1])
		}
	}
	for _, f := range []struct {
		name  string
		value float64
		ok    bool
		want  string
	}{
		{"temperature", o.Temperature, o.Temperature == 0 || o.Temperature >= exact.MinTemperature, fmt.Sprintf("0, or a finite number of at least %v", exact.MinTemperature)},
		{"top-k", float64(o.TopK), o.TopK >= 0, "at least 0"},
		{"top-p", o.TopP, o.TopP > 0 && o.TopP <= 1, "above 0 and at most 1"},
		{"min-p", o.MinP, o.MinP >= 0 && o.MinP <= 1, "0 to 1"},
		{"repetition", o.Repetition, o.Repetition >= 1/maxPenalty && o.Repetition <= maxPenalty, "2^-100 to 2^100"},
		{"presence", o.Presence, math.Abs(o.Presence) <= maxPenalty, "at most 2^100 in magnitude"},
		{"frequency", o.Frequency, math.Abs(o.Frequency) <= maxPenalty, "at most 2^100 in magnitude"},
		{"typical", o.Typical, o.Typical > 0 && o.Typical <= 1, "above 0 and at most 1"},
		{"max variation", o.MaxVariation, o.MaxVariation == ByChain || o.MaxVariation >= 0 && o.MaxVariation <= 1, "0 to 1, or -1 for ByChain"},
		{"budget", o.Budget, o.Budget >= 0, "a finite number above 0, or 0"},
		{"confidence", o.Confidence, o.Confidence >= 0 && o.Confidence < 1, "at least 0 and below 1"},
	} {
		if !f.ok || math.IsInf(f.value, 0) {
			return fmt.Errorf("sample: %s: found %v, expected %s%s", f.name, f.value, f.want, o.hint())
		}
	}
	return nil
}

// hint points to the defaults if the options that must not be 0 are: they were probably not set.
func (o *Options) hint() string {
	if o.TopP == 0 || o.Repetition == 0 || o.Typical == 0 {
		return ": start from DefaultOptions and change what you need"
	}
	return ""
}

// has reports whether the order has a step.
func (o *Options) has(s Step) bool { return slices.Contains(o.Order, s) }

// plan is the options' result.
type plan struct {
	edited []Step // the edits, in their order
	steps  []Step // temperature and the truncations that may leave labels out, in theirs
	// first is the first of these truncations, if cut is set, and at the temperature of
	// the logits at that step. Without one it is the temperature of the draw.
	first       Step
	cut         bool
	at          float64
	temperature float64 // of the draw
	// narrow: the first truncation keeps labels by their logits alone, not by a share of the
	// probability. It keeps at least fewest of them if it is a top-k or takes the largest logit;
	// otherwise fewest is 0.
	narrow bool
	fewest int
	// distance is the largest distance of a kept label from the largest logit, if the truncations
	// begin with a min-p, or with a top-k and a min-p; otherwise 0.
	distance float64
	allowed  float64 // MaxVariation, or the value of ByChain for the chain
	// confidence is the confidence of each interval of the tail: a chain that looks at two
	// temperatures needs two intervals.
	confidence float64
}

func (o *Options) plan() plan {
	p := plan{temperature: 1, allowed: o.MaxVariation, confidence: o.Confidence}
	for _, s := range o.Order {
		switch {
		case s <= Penalties:
			p.edited = append(p.edited, s)
			continue
		case s == Temperature:
			p.temperature = o.Temperature
		case s == TopK && o.TopK == 0, s == TopP && o.TopP == 1, s == MinP && o.MinP == 0, s == Typical && o.Typical == 1:
			continue
		case !p.cut:
			p.first, p.at, p.cut = s, p.temperature, true
		}
		p.steps = append(p.steps, s)
	}
	if !p.cut {
		p.at = p.temperature
	}
	greedy := p.temperature == 0
	p.narrow = greedy || p.cut && (p.first == TopK || p.first == MinP)
	switch {
	case greedy:
		p.fewest = 1
	case p.first == TopK:
		p.fewest = o.TopK
	}
	p.distance = o.distance(p.steps)
	if o.MaxVariation == ByChain {
		p.allowed = 0
		if greedy || slices.Contains(p.steps, TopK) || slices.Contains(p.steps, MinP) {
			p.allowed = 1
		}
	}
	if p.at != p.temperature && !greedy {
		p.confidence = 1 - (1-o.Confidence)/2
	}
	return p
}

// distance returns the field distance of a plan with these steps.
func (o *Options) distance(steps []Step) float64 {
	t := 1.0
	for _, s := range steps {
		switch s {
		case Temperature:
			t = o.Temperature
		case MinP:
			// Probabilities are compared in float64: the bound leaves room for the rounding.
			return t * (0x1p-20 - kernels.Log(o.MinP))
		case TopP, Typical: // the labels that these keep depend on labels farther than a distance
			return 0
		}
	}
	return 0
}

// onlyTopP reports whether top-p is the only truncation.
func (p *plan) onlyTopP() bool {
	return p.cut && !slices.ContainsFunc(p.steps, func(s Step) bool { return s != Temperature && s != TopP })
}
