package sample

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
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
	// TopP keeps the first labels that hold the share Options.TopP.
	TopP
	// MinP keeps labels of at least Options.MinP times the probability of the first.
	MinP
)

var stepNames = [...]string{"mask", "bias", "penalties", "temperature", "top-k", "top-p", "min-p"}

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
func LlamaCPP() []Step { return []Step{Mask, Bias, Penalties, TopK, TopP, MinP, Temperature} }

// VLLM is the order of vLLM's sampler (vllm/v1/sample/sampler.py): allowed tokens, logit
// biases, penalties, temperature, min-p, and top-k before top-p.
func VLLM() []Step { return []Step{Mask, Bias, Penalties, Temperature, MinP, TopK, TopP} }

// HuggingFace is the order of Hugging Face transformers (generation/utils.py,
// _get_logits_processor): biases and penalties, then the mask, then the warpers.
func HuggingFace() []Step { return []Step{Bias, Penalties, Mask, Temperature, TopK, TopP, MinP} }

// Options say how a [Sampler] draws. The zero value is an error, because TopP, Repetition
// and MaxOutside must not be 0: start from [DefaultOptions], and change what you need.
type Options struct {
	// Order holds the steps, each at most once; the edits (Mask, Bias, Penalties) come
	// first. A step that is not in it is not done, whatever its option says.
	Order []Step
	// Temperature is T: finite and at least softmax.MinTemperature, or 0 for the label with the
	// largest logit.
	Temperature float64
	// TopK is k, 0 for all labels.
	TopK int
	// TopP is p: above 0 and at most 1, where 1 keeps all labels.
	TopP float64
	// MinP is p: 0 to 1, where 0 keeps all labels.
	MinP float64
	// Repetition is from 2^-100 to 2^100. 1 changes nothing, and more makes labels that have
	// occurred less probable.
	Repetition float64
	// Presence and Frequency are at most 2^100 in magnitude. 0 changes nothing, and more makes
	// labels that have occurred less probable.
	Presence, Frequency float64
	// Confidence is for draws over a screen: the confidence of the interval of the tail, at
	// least 0 and below 1. More confidence makes the interval wider, and the exact layer
	// answers more often. A screen has intervals up to a largest confidence, 0.995 by
	// default; above it the exact layer answers draws without truncation.
	Confidence float64
	// MaxOutside is for truncations over a screen: the largest share of the probability,
	// as estimated, that the labels outside the candidate set may have. If they have more,
	// the exact layer answers; else the truncation looks at the set alone, and what it
	// keeps wrongly is a part of that share. Above 0 and at most 1, which bounds nothing.
	MaxOutside float64
	// ExactLogProb asks for exact log-probabilities of all draws over a layer. Then a draw
	// without truncation, or with top-p first, computes the logits of all labels, which
	// takes several times as long: see [Token].
	ExactLogProb bool
	// Seed seeds the random numbers. A sampler goes on with its random numbers from draw to
	// draw: give each sequence of tokens that is to be repeatable a sampler of its own.
	Seed uint64
}

// DefaultOptions draws from the distribution of the layer as it is, at temperature 1, in
// the order of llama.cpp. Over a screen the confidence is 0.95, and MaxOutside is 0.07.
func DefaultOptions() Options {
	return Options{Order: LlamaCPP(), Temperature: 1, TopP: 1, Repetition: 1, Confidence: 0.95, MaxOutside: 0.07}
}

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
		{"temperature", o.Temperature, o.Temperature == 0 || o.Temperature >= softmax.MinTemperature, fmt.Sprintf("0, or a finite number of at least %v", softmax.MinTemperature)},
		{"top-k", float64(o.TopK), o.TopK >= 0, "at least 0"},
		{"top-p", o.TopP, o.TopP > 0 && o.TopP <= 1, "above 0 and at most 1"},
		{"min-p", o.MinP, o.MinP >= 0 && o.MinP <= 1, "0 to 1"},
		{"repetition", o.Repetition, o.Repetition >= 1/maxPenalty && o.Repetition <= maxPenalty, "2^-100 to 2^100"},
		{"presence", o.Presence, math.Abs(o.Presence) <= maxPenalty, "at most 2^100 in magnitude"},
		{"frequency", o.Frequency, math.Abs(o.Frequency) <= maxPenalty, "at most 2^100 in magnitude"},
		{"max outside", o.MaxOutside, o.MaxOutside > 0 && o.MaxOutside <= 1, "above 0 and at most 1"},
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
	if o.TopP == 0 || o.Repetition == 0 || o.MaxOutside == 0 {
		return ": start from DefaultOptions and change what you need"
	}
	return ""
}

// has reports whether the order has a step.
func (o *Options) has(s Step) bool { return slices.Contains(o.Order, s) }

// cuts reports whether a step of the order is a truncation that may leave labels out.
func (o *Options) cuts(s Step) bool {
	return s == TopK && o.TopK > 0 || s == TopP && o.TopP < 1 || s == MinP && o.MinP > 0
}

// firstCut returns the first truncation, if there is one, and the temperature of the
// logits at that step. Without a truncation it is the temperature of the draw.
func (o *Options) firstCut() (step Step, temperature float64, some bool) {
	temperature = 1
	for _, s := range o.Order {
		if s == Temperature {
			temperature = o.Temperature
		}
		if o.cuts(s) {
			return s, temperature, true
		}
	}
	return 0, temperature, false
}

// temperature returns the temperature of the draw.
func (o *Options) temperature() float64 {
	if o.has(Temperature) {
		return o.Temperature
	}
	return 1
}
