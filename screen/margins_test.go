package screen

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/softmax"
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
		t.Error("found another file without margins, expected that of the first model")
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

func TestBestTwo(t *testing.T) {
	v := []float32{4, 0, 0, 4, 3, 0, 0, 1}
	sets := [][]uint32{{0}, {0}, {0}, {0}}
	for _, c := range []struct {
		name          string
		config        Config
		h             []float32
		first, second int
		lead          float64
	}{
		{"one level", Config{Clusters: v, Sets: sets}, []float32{2, 1}, 0, 2, 2},
		{"equals", Config{Clusters: v, Sets: sets}, []float32{1, 1}, 0, 1, 0},
		{"the second of the best group", Config{Clusters: v, Sets: sets, Groups: []float32{1, 0, 0, 1}, GroupSizes: []int{2, 2}}, []float32{2, 1}, 0, 1, 4},
		{"a group of one", Config{Clusters: v, Sets: sets, Groups: []float32{1, 0, 0, 1}, GroupSizes: []int{1, 3}}, []float32{2, 1}, 0, 0, math.Inf(1)},
		{"one cluster", Config{Clusters: v[:2], Sets: sets[:1]}, []float32{2, 1}, 0, 0, math.Inf(1)},
	} {
		c.config.Dim, c.config.Labels = 2, 1
		m, err := NewModel(c.config)
		if err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]Option{nil, {Float32()}} {
			layer, err := softmax.NewLayer([]float32{1, 1}, nil, 2)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSearcher(m, layer, opts...)
			if err != nil {
				t.Fatal(err)
			}
			first, second, lead, err := s.BestTwo(c.h)
			if err != nil || first != c.first || second != c.second || lead != c.lead {
				t.Errorf("%s: found %d, %d, %v (%v), expected %d, %d, %v", c.name, first, second, lead, err, c.first, c.second, c.lead)
			}
			if _, _, _, err := s.BestTwo([]float32{1, float32(math.NaN())}); err == nil {
				t.Errorf("%s: found no error for NaN", c.name)
			}
			if s.Stats() != (Stats{}) {
				t.Errorf("%s: found %+v counted, expected nothing", c.name, s.Stats())
			}
		}
	}
}
