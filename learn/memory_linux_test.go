// The race detector takes additional memory.

//go:build !race

package learn

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// A learner adds no more to the memory of a program than Options.Bytes and a tenth of it: with full
// memory, in a training while a screen answers, and when another screen replaces it.
func TestALearnerKeepsToItsMemory(t *testing.T) {
	simdtest.Long(t)
	anonymous := func() (kB int64) {
		status, err := os.ReadFile("/proc/self/status")
		if _, rest, found := bytes.Cut(status, []byte("RssAnon:")); err != nil || !found {
			t.Skip("the system does not report the memory that is taken: ", err)
		} else if _, err := fmt.Fscan(bytes.NewReader(rest), &kB); err != nil {
			t.Fatal(err)
		}
		return kB << 10
	}
	var layer *l2s.Layer
	rows, o := []float32(nil), testOptions(nil)
	if *long {
		var err error
		if layer, err = l2s.Open(*replayHead, l2s.OpenOptions{Copy: true}); err != nil {
			t.Skip(err)
		}
		c, release, err := heads.OpenContexts(*replayHead+"/contexts_train.npy", layer.Dim())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		rows, o = c, Options{CPU: 1, Audit: 0.02}
	} else {
		data := synthetic.Structured(20000, 64, 40, 20000, 1)
		for i := range data.Len() {
			rows = append(rows, data.Context(i)...)
		}
		layer, o.Bytes, o.Least = data.Layer, 32<<20, 11000
	}
	events := make(chan Event, 1000)
	o.Event, o.HalfLife = func(e Event) { events <- e }, 1000 // each query is kept
	d, top := layer.Dim(), make([]l2s.Prediction, 5)
	if _, err := exactly(t, layer).TopK(top, rows[:d]); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	before := anonymous()
	l := newTest(t, layer, o)
	most, training, screens, h := int64(0), false, 0, make([]float32, d)
	for i := 0; screens < 2; i++ {
		copy(h, rows[i*d%len(rows):])
		h[i*d/len(rows)%d] *= 1.001 // so that no context comes twice
		if _, err := l.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			select {
			case e := <-events:
				t.Logf("query %d: %s: %s: at most %d MB", i, e.Kind, e.Text, most/1e6)
				if training = e.Kind == began || e.Kind == trains; e.Kind == answering {
					screens++
				}
			default:
				most = max(most, anonymous()-before)
				if more = training; more {
					time.Sleep(time.Millisecond)
				}
			}
		}
	}
	t.Logf("%d MB in addition to the layer, of %d MB", most/1e6, l.o.Bytes/1e6)
	if float64(most) > 1.1*float64(l.o.Bytes) {
		t.Errorf("found %d bytes, expected at most %d and a tenth", most, l.o.Bytes)
	}
}
