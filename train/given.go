package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/softmax"
)

// useLabels takes the labels that the caller has in place of computing them,
// and checks what the computation would have checked on its way.
func (t *trainer) useLabels(ctx context.Context, labels []uint32) error {
	if len(labels) != t.n*t.k {
		return fmt.Errorf("train: labels: found %d, want k = %d for each of %d contexts", len(labels), t.k, t.n)
	}
	for i, s := range labels {
		if int64(s) >= int64(t.universe) {
			return fmt.Errorf("train: labels: found id %d for context %d, want below %d, the number of labels", s, i/t.k, t.universe)
		}
	}
	t.labels = labels
	return t.eachQuery(ctx, nil, func(int, int, *softmax.Query) {})
}
