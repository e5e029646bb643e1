package train

import (
	"fmt"
	"slices"
)

// Estimator is the way the gradient of the expected loss with respect to V is
// estimated, see Section 3 of the paper.
// Both reach about the same in the same time (train/RESULTS.md); [DefaultOptions] take Expected.
type Estimator uint8

const (
	// GumbelST draws one cluster for each context by the Gumbel trick and
	// passes the gradient straight through to the relaxed sample, at
	// temperature 1 (Equations 4 and 5).
	GumbelST Estimator = iota
	// Expected takes the expectation over the clusters, sum_t P(t|h) l_t, in
	// closed form: the loss is linear in the one-hot sample. Without noise.
	Expected
)

var estimatorNames = []string{GumbelST: "gumbel-st", Expected: "expected"}

// String returns "gumbel-st" or "expected".
func (e Estimator) String() string {
	if int(e) < len(estimatorNames) {
		return estimatorNames[e]
	}
	return fmt.Sprintf("Estimator(%d)", uint8(e))
}

// MarshalText returns the name, as String does. An unknown value is an error.
func (e Estimator) MarshalText() ([]byte, error) {
	if int(e) < len(estimatorNames) {
		return []byte(estimatorNames[e]), nil
	}
	return nil, fmt.Errorf("train: estimator %d: expected one of %q", uint8(e), estimatorNames)
}

// UnmarshalText accepts the names that String returns.
func (e *Estimator) UnmarshalText(text []byte) error {
	i := slices.Index(estimatorNames, string(text))
	if i < 0 {
		return fmt.Errorf("train: estimator %q: expected one of %q", text, estimatorNames)
	}
	*e = Estimator(i)
	return nil
}
