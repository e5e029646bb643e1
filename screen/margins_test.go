package screen

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestWithMargins(t *testing.T) {
	m, err := NewModel(Config{Dim: 2, Labels: 3, Clusters: []float32{1, 0, 0, 1}, Sets: [][]uint32{{0}, {1, 2}}, Record: json.RawMessage(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.WithMargins(1.5, 0.25, json.RawMessage(`{"b":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.ProbeMargin() != 1.5 || c.ExactMargin() != 0.25 || string(c.Record()) != `{"b":2}` {
		t.Errorf("found margins %v and %v and record %s, expected those given", c.ProbeMargin(), c.ExactMargin(), c.Record())
	}
	if m.ProbeMargin() != 0 || m.ExactMargin() != 0 || string(m.Record()) != `{"a":1}` {
		t.Error("found the model changed, expected a copy")
	}
	back, err := c.WithMargins(0, 0, m.Record())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.encode(), m.encode()) {
		t.Error("found another file without margins, expected the file of the first model")
	}
	if kept, err := m.WithMargins(1, 1, nil); err != nil || string(kept.Record()) != `{"a":1}` {
		t.Errorf("found record %s (%v), expected the model's own", kept.Record(), err)
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), math.Copysign(0, -1)} {
		if _, err := m.WithMargins(bad, 0, nil); err == nil || !strings.Contains(err.Error(), "probe margin: found") {
			t.Errorf("probe margin %v: found error %v", bad, err)
		}
		if _, err := m.WithMargins(0, bad, nil); err == nil || !strings.Contains(err.Error(), "exact margin: found") {
			t.Errorf("exact margin %v: found error %v", bad, err)
		}
	}
	if _, err := m.WithMargins(1, 1, json.RawMessage(`[]`)); err == nil || !strings.Contains(err.Error(), "record: ") {
		t.Errorf("a record that is no object: found error %v", err)
	}
}
