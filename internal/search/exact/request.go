package exact

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
)

// The errors of package l2s.
var (
	ErrContext = errors.New("l2s: not a context")
	ErrRequest = errors.New("l2s: not a request for this layer")
	ErrLayer   = errors.New("l2s: the model was made for another layer")
)

// Invalid returns an error with that text, which is of that kind.
func Invalid(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Sprintf(format, args...)}
}

type kindError struct {
	kind error
	text string
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }

// Prediction is l2s.Prediction.
type Prediction = ranking.Prediction

// Request is l2s.Request, which has the comments. The exact search does not look at Budget, Exact and
// Also.
type Request struct {
	Budget, Within, Temperature float64
	Exact, LogSum, ExactSum     bool
	Also                        []uint32
	Among                       Labels
	Allowed, Banned             *bitset.Set
	Biases                      []Bias
}

// Bias is l2s.Bias.
type Bias struct {
	ID  uint32
	Add float32
}

const maxBias = 0x1p100

// MinTemperature is the least temperature: at it x/T is finite for every logit x with a bias.
const MinTemperature = 1e-100

// Labels is l2s.Labels.
type Labels struct {
	listed bool
	ids    []uint32
	packed *Packed     // the packed codes of a list; nil for a list of Only
	list   *packedList // which of packed the ids are of, or the first of
}

// Only is l2s.Only. Find and Logits panic for an id that is not below L.
func Only(ids []uint32) Labels { return Labels{listed: true, ids: ids} }

// IsList reports whether the set is a list. The zero value, all labels, is none.
func IsList(l Labels) bool { return l.listed }

// Edits reports whether the request bans, allows or biases labels.
func Edits(r *Request) bool {
	return r.Allowed != nil || r.Banned != nil || len(r.Biases) > 0
}

// Permits reports whether a label, below L, may be answered: it is among the allowed labels, and
// not among the banned ones.
func Permits(r *Request, id uint32) bool {
	return (r.Allowed == nil || r.Allowed.Has(id)) && (r.Banned == nil || !r.Banned.Has(id))
}

// Added returns the number that is added to the logit of a label.
func Added(r *Request, id uint32) float64 {
	if i, ok := BiasOf(r, id); ok {
		return float64(r.Biases[i].Add)
	}
	return 0
}

// BiasOf returns the place of a label among the biases.
func BiasOf(r *Request, id uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(r.Biases, id, compareBias)
}

func (r *Request) temperature() float64 { return cmp.Or(r.Temperature, 1) }

// logSum returns the log-sum of logits at the request's temperature, and overwrites them.
func (r *Request) logSum(logits []float64) float64 {
	if t := r.temperature(); t != 1 {
		for i := range logits {
			logits[i] /= t
		}
	}
	return kernels.LogSumExp(logits)
}

func compareBias(b Bias, id uint32) int { return int(int64(b.ID) - int64(id)) }

// Each returns k, the number of labels per context for which n contexts have room, and 1 if there
// are no contexts.
func Each(room, n int) (k int, err error) {
	switch {
	case n == 0 && room == 0:
		return 1, nil
	case n == 0 || room%n != 0:
		return 0, Invalid(ErrRequest, "l2s: dst: found room for %d labels, expected the same number for each of %d contexts", room, n)
	}
	return room / n, nil
}

// Check returns an error, for which errors.Is holds with [ErrRequest], unless the request is valid
// for the k best of a number of labels.
func Check(r *Request, labels, k int) error {
	if err := r.check(labels, k); err != nil {
		return err
	}
	return r.Among.check(labels)
}

func (l *Labels) check(labels int) error { return checkIDs("ids", l.ids, labels) }

func checkIDs(name string, ids []uint32, labels int) error {
	if kernels.Below(ids, labels) {
		return nil
	}
	for i, id := range ids {
		if uint64(id) >= uint64(labels) {
			return Invalid(ErrRequest, "l2s: %s[%d]: found label %d, expected one below the %d labels", name, i, id, labels)
		}
	}
	return nil
}

// check is Check without the ids of a list.
func (r *Request) check(labels, k int) error {
	least := 1
	if r.LogSum {
		least = 0
	}
	if k < least || k > labels {
		return Invalid(ErrRequest, "l2s: k: found %d, expected %d to the %d labels", k, least, labels)
	}
	if s := r.Allowed; s != nil && s.Len() != labels {
		return Invalid(ErrRequest, "l2s: allowed: found a set over %d labels, expected %d", s.Len(), labels)
	}
	if s := r.Banned; s != nil && s.Len() != labels {
		return Invalid(ErrRequest, "l2s: banned: found a set over %d labels, expected %d", s.Len(), labels)
	}
	if t := r.Temperature; t != 0 && !(t >= MinTemperature && t <= math.MaxFloat64) {
		return Invalid(ErrRequest, "l2s: temperature: found %v, expected a finite number of at least %v, or 0 for 1", t, MinTemperature)
	}
	if !(r.Within >= 0 && r.Within <= math.MaxFloat64) {
		return Invalid(ErrRequest, "l2s: within: found %v, expected a finite number above 0, or 0 for none", r.Within)
	}
	if !(r.Budget >= 0) {
		return Invalid(ErrRequest, "l2s: budget: found %v, expected a number above 0, or 0 for the budget of the searcher", r.Budget)
	}
	if err := checkIDs("also", r.Also, labels); err != nil {
		return err
	}
	for i, b := range r.Biases {
		switch {
		case uint64(b.ID) >= uint64(labels):
			return Invalid(ErrRequest, "l2s: biases[%d]: found label %d, expected one below the %d labels", i, b.ID, labels)
		case i > 0 && b.ID <= r.Biases[i-1].ID:
			return Invalid(ErrRequest, "l2s: biases[%d]: found label %d after %d, expected ascending, distinct labels", i, b.ID, r.Biases[i-1].ID)
		case !(math.Abs(float64(b.Add)) <= maxBias):
			return Invalid(ErrRequest, "l2s: biases[%d]: found %v, expected a finite number of at most %v in magnitude", i, b.Add, float64(maxBias))
		}
	}
	return nil
}

// Answer is l2s.Answer.
type Answer struct {
	Count int
	// LogSum, unless the request has ExactSum, is not computed in the reference arithmetic, and with
	// k = 0 no logit is. It is off by less than 10^-5 more than the intervals alone allow, for
	// exponentials in float32 ([kernels.SumExpCentres]), and has the same bits on every CPU.
	LogSum float64
	Source Source
}

// Source tells which labels an answer was chosen among.
type Source uint8

const (
	FromLayer Source = iota // all labels of the request: the answer is exact
	FromSet                 // the candidates that a screen has for the context
)
