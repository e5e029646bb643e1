package screening

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
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

// The inverse of a temperature below exact.MinTemperature may be infinite, and an interval between
// it and another temperature is then wrong.
func TestTailsAtTemperaturesWithoutAnInverseAreRefused(t *testing.T) {
	c := TailConfig{
		Clusters: 1, Temperatures: []float64{1e-309, 1}, Intercepts: make([]float32, 2), Slopes: make([]float32, 2),
		Squares: make([]float32, 4), Directions: make([]float32, 1), Levels: []float64{0.5}, Widths: []float32{float32(math.Inf(1)), 0}, Ranges: Everything(1, 2),
	}
	if _, err := NewTail(c); err == nil {
		t.Error("found a tail at 1e-309, expected an error")
	}
	c.Temperatures[0] = exact.MinTemperature
	if _, err := NewTail(c); err != nil {
		t.Error(err)
	}
}

// A stream has no size to compare with the sizes in a header: it must not be read without end.
func TestAStreamOfAHugeSizeIsNotRead(t *testing.T) {
	header := make([]byte, headerSize)
	copy(header, magic)
	binary.LittleEndian.PutUint32(header[8:], version)
	binary.LittleEndian.PutUint64(header[atSize:], 1<<63)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		defer w.Close()
		n, _ := w.Write(header)
		for err := error(nil); err == nil; {
			var more int
			more, err = w.Write(make([]byte, 1<<16))
			n += more
		}
		ended <- n
	}()
	if _, err := load(r); err == nil || !strings.Contains(err.Error(), "file size: found 9223372036854775808 in the header") {
		t.Errorf("error %v", err)
	}
	r.Close()
	if n := <-ended; n > 1<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// NaN as temperature or confidence tells nothing of the tail.
func TestTheTailOfNaN(t *testing.T) {
	nan := math.NaN()
	tail, err := NewTail(TailConfig{Temperatures: []float64{1, 2}, Levels: []float64{0.5}, Clusters: 1, Intercepts: make([]float32, 2),
		Slopes: make([]float32, 2), Squares: make([]float32, 4), Widths: []float32{1, 1}, Directions: []float32{1}, Ranges: Everything(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if i := tail.at(new(Rest), 1, nan); i.Low != math.Inf(-1) || i.High != math.Inf(1) {
		t.Errorf("a confidence of NaN: %+v", i)
	}
	layer, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 2, 3}, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(Config{Dim: 1, Labels: 3, Clusters: []float32{1}, Lists: []List{{IDs: []uint32{0}}}, Tail: tail})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSearcher(m, layer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rest Rest
	if _, ok, err := s.Head([]float32{1}, 0, &rest); err != nil || !ok {
		t.Fatal(ok, err)
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
	tail, err := NewTail(TailConfig{
		Clusters: 1, Temperatures: []float64{0.7, 0.9}, Intercepts: []float32{1, 2}, Slopes: make([]float32, 2),
		Directions: []float32{1}, Squares: make([]float32, 4), Levels: []float64{0.9}, Widths: []float32{inf, 0.5}, Ranges: Everything(1, 2),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float64{math.Nextafter(0.7, 1), 0.8, math.Nextafter(0.9, 0)} {
		var rest Rest
		known := tail.predict(&rest, []float32{1})
		if x := tail.at(&rest, temperature, 0.5); !known || x.High != math.Inf(1) || !(x.Log >= 1 && x.Log <= 2) {
			t.Errorf("T = %v: found %+v, expected a logarithm from 1 to 2 and no upper end", temperature, x)
		}
	}
}
