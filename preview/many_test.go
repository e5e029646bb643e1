package preview

import "testing"

func TestRequestsForManyLabelsLookLessFar(t *testing.T) {
	for _, c := range []struct {
		k                 int
		reach, deviations float64
	}{{1, 1, 1}, {5, 1, 1}, {40, 0.92, 0.8}, {512, 0.92, 0.8}} {
		if r, d := ofMany(c.k); r != c.reach || d != c.deviations {
			t.Errorf("k %d: found the factors %v and %v, expected %v and %v", c.k, r, d, c.reach, c.deviations)
		}
	}
}
