package tail_test

import (
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

func TestTailsAreRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := func() tail.Config {
		return tail.Config{
			Clusters: 1, Temperatures: []float64{1}, Intercepts: []float32{1}, Slopes: []float32{1, 2}, Directions: []float32{0, 1},
			Squares: []float32{3, 4}, Levels: []float64{0.5, 0.9}, Widths: []float32{1, inf}, Ranges: screentest.Everything(1, 1), Cosines: screentest.AnyCosine(1),
		}
	}
	if _, err := tail.New(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(c *tail.Config)
		want   string
	}{
		{"no clusters", func(c *tail.Config) { c.Clusters = 0 }, "clusters: found 0, expected at least 1"},
		{"no temperatures", func(c *tail.Config) { c.Temperatures = nil }, "found 0 temperatures and 2 levels"},
		{"too many temperatures", func(c *tail.Config) { c.Temperatures = make([]float64, 65) }, "found 65 temperatures and 2 levels"},
		{"too many levels", func(c *tail.Config) { c.Levels = make([]float64, 65) }, "found 1 temperatures and 65 levels"},
		{"a temperature of 0", func(c *tail.Config) { c.Temperatures = []float64{0} }, "temperatures: found 0 at 0"},
		{"temperatures that 1/T does not tell apart", func(c *tail.Config) {
			c.Temperatures = []float64{1.7e308, math.Nextafter(1.7e308, math.Inf(1))}
		}, "temperatures: found 1.7"},
		{"an infinite temperature", func(c *tail.Config) { c.Temperatures = []float64{math.Inf(1)} }, "temperatures: found +Inf at 0"},
		{"a level of 1", func(c *tail.Config) { c.Levels[1] = 1 }, "levels: found 1 at 1"},
		{"levels that descend", func(c *tail.Config) { c.Levels = []float64{0.9, 0.5} }, "levels: found 0.5 at 1"},
		{"intercepts", func(c *tail.Config) { c.Intercepts = c.Intercepts[1:] }, "intercepts: found 0 numbers, expected 1 rows of 1"},
		{"slopes", func(c *tail.Config) { c.Slopes = nil }, "slopes: found 0 elements"},
		{"widths", func(c *tail.Config) { c.Widths = c.Widths[1:] }, "widths: found 1 numbers, expected 1 rows of 2"},
		{"ranges", func(c *tail.Config) { c.Ranges = nil }, "ranges: found 0 numbers, expected 1 rows of 6"},
		{"cosines", func(c *tail.Config) { c.Cosines = nil }, "cosines: found 0 numbers, expected 1 rows of 2"},
		{"a cosine of NaN", func(c *tail.Config) { c.Cosines[1] = math.NaN() }, "cosines: found NaN at 1, expected numbers"},
		{"a range of NaN", func(c *tail.Config) { c.Ranges[3] = math.NaN() }, "ranges: found NaN at 3, expected numbers"},
		{"NaN in an intercept", func(c *tail.Config) { c.Intercepts[0] = nan }, "intercepts: found NaN at row 0, column 0"},
		{"NaN in a slope", func(c *tail.Config) { c.Slopes[1] = nan }, "slopes: found NaN at row 0, column 1"},
		{"no directions", func(c *tail.Config) { c.Directions = nil }, "directions: found 0 elements, expected 1 to 64 rows of dim 2"},
		{"directions that are no rows", func(c *tail.Config) { c.Directions = []float32{1, 2, 3} }, "directions: found 3 elements, expected 1 to 64 rows of dim 2"},
		{"too many directions", func(c *tail.Config) { c.Directions = make([]float32, 130) }, "directions: found 130 elements, expected 1 to 64 rows of dim 2"},
		{"squares", func(c *tail.Config) { c.Squares = nil }, "squares: found 0 numbers, expected 1 rows of 2"},
		{"an infinite direction", func(c *tail.Config) { c.Directions[1] = inf }, "directions: found +Inf at row 0, column 1"},
		{"a square of NaN", func(c *tail.Config) { c.Squares[0] = nan }, "squares: found NaN at row 0, column 0"},
		{"a negative width", func(c *tail.Config) { c.Widths[0] = -1 }, "widths: found -1 at row 0, column 0"},
		{"widths that descend", func(c *tail.Config) { c.Widths[1] = 0.5 }, "widths: found 0.5 at row 0, column 1"},
		{"a width of NaN", func(c *tail.Config) { c.Widths[0] = nan }, "widths: found NaN at row 0, column 0"},
	} {
		config := good()
		c.change(&config)
		if _, err := tail.New(config); err == nil || !strings.HasPrefix(err.Error(), "tail: "+c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}

// The inverse of a temperature below exact.MinTemperature may be infinite, and an interval between
// it and another temperature is then wrong.
func TestTailsAtTemperaturesWithoutAnInverseAreRefused(t *testing.T) {
	c := tail.Config{
		Clusters: 1, Temperatures: []float64{1e-309, 1}, Intercepts: make([]float32, 2), Slopes: make([]float32, 2),
		Squares: make([]float32, 4), Directions: make([]float32, 1), Levels: []float64{0.5}, Widths: []float32{float32(math.Inf(1)), 0}, Ranges: screentest.Everything(1, 2), Cosines: screentest.AnyCosine(1),
	}
	if _, err := tail.New(c); err == nil {
		t.Error("found a tail at 1e-309, expected an error")
	}
	c.Temperatures[0] = exact.MinTemperature
	if _, err := tail.New(c); err != nil {
		t.Error(err)
	}
}

// NaN as temperature or confidence tells nothing of the tail.
func TestTheTailOfNaN(t *testing.T) {
	nan := math.NaN()
	of, err := tail.New(tail.Config{Temperatures: []float64{1, 2}, Levels: []float64{0.5}, Clusters: 1, Intercepts: make([]float32, 2),
		Slopes: make([]float32, 2), Squares: make([]float32, 4), Widths: []float32{1, 1}, Directions: []float32{1}, Ranges: screentest.Everything(1, 2), Cosines: screentest.AnyCosine(1)})
	if err != nil {
		t.Fatal(err)
	}
	var rest tail.Rest
	if !of.Predict(&rest, 0, 2, []float32{1}, 1) {
		t.Fatal("found no estimate")
	}
	if i := rest.At(1, nan); i.Low != math.Inf(-1) || i.High != math.Inf(1) {
		t.Errorf("a confidence of NaN: %+v", i)
	}
	for _, temperature := range []float64{nan, 0, -1, exact.MinTemperature / 2, math.Inf(1), math.Inf(-1)} {
		if i := rest.At(temperature, 0.5); !math.IsNaN(i.Log) || i.Low != math.Inf(-1) || i.High != math.Inf(1) {
			t.Errorf("a temperature of %v: %+v", temperature, i)
		}
	}
}

// Between two temperatures with equal 1/T an unknown half-width is unknown, too.
func TestUnknownWidthsBetweenTemperatures(t *testing.T) {
	inf := float32(math.Inf(1))
	of, err := tail.New(tail.Config{
		Clusters: 1, Temperatures: []float64{0.7, 0.9}, Intercepts: []float32{1, 2}, Slopes: make([]float32, 2),
		Directions: []float32{1}, Squares: make([]float32, 4), Levels: []float64{0.9}, Widths: []float32{inf, 0.5}, Ranges: screentest.Everything(1, 2), Cosines: screentest.AnyCosine(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float64{math.Nextafter(0.7, 1), 0.8, math.Nextafter(0.9, 0)} {
		var rest tail.Rest
		known := of.Predict(&rest, 0, 1, []float32{1}, 1)
		if x := rest.At(temperature, 0.5); !known || x.High != math.Inf(1) || !(x.Log >= 1 && x.Log <= 2) {
			t.Errorf("T = %v: found %+v, expected a logarithm from 1 to 2 and no upper end", temperature, x)
		}
	}
}

// Below the least cosine of its cluster a context is like none that the tail was fitted to. From the
// middle one on the half-widths are as in the file, and towards the least they grow.
func TestHalfWidthsGrowTowardsTheLeastCosine(t *testing.T) {
	of, err := tail.New(tail.Config{
		Clusters: 1, Temperatures: []float64{1}, Intercepts: []float32{2}, Slopes: []float32{0}, Directions: []float32{1},
		Squares: []float32{0, 0}, Levels: []float64{0.9}, Widths: []float32{0.5}, Ranges: screentest.Everything(1, 1), Cosines: []float64{0.25, 0.75},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cosine, width float64
		known         bool
	}{{1, 0.5, true}, {0.75, 0.5, true}, {0.5, 1.5, true}, {0.25, 2.5, true}, {0.249, 0, false}, {-1, 0, false}, {math.NaN(), 0, false}} {
		var rest tail.Rest
		if known := of.Predict(&rest, 0, 3, []float32{1}, c.cosine); known != c.known {
			t.Errorf("cosine %v: found an estimate: %v, want %v", c.cosine, known, c.known)
		} else if x := rest.At(1, 0.9); known && (x.Log != 2 || x.High != 2+c.width || x.Low != 2-c.width) {
			t.Errorf("cosine %v: found %+v, want 2 with a half-width of %v", c.cosine, x, c.width)
		}
	}
}
