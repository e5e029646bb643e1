package screening

import (
	"strings"
	"testing"
)

// A record of a few bytes a level would take many times its size to be shown.
func TestDeepRecordsAreRefused(t *testing.T) {
	nested := func(deep int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", deep-1) + `"\"[[["` + strings.Repeat("]", deep-1) + "}")
	}
	c := Config{Dim: 1, Labels: 2, Clusters: []float32{1}, Lists: []List{{IDs: []uint32{0}}}}
	c.Record = nested(maxDepth)
	if _, err := NewModel(c); err != nil {
		t.Errorf("%d deep: %v", maxDepth, err)
	}
	c.Record = nested(maxDepth + 1)
	if _, err := NewModel(c); err == nil || !strings.Contains(err.Error(), "record: found values within values 33 deep") {
		t.Errorf("%d deep: error %v", maxDepth+1, err)
	}
}
