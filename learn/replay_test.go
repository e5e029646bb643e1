package learn

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
)

var (
	long           = flag.Bool("long", false, "run TestReplay, which takes minutes")
	replayHead     = flag.String("replay.head", "../../shared/data/llm-65k", "the `LAYER` of TestReplay")
	replayContexts = flag.String("replay.contexts", "train,test,news,test", "`FILES` of contexts, one after the other; a name is contexts_NAME.npy in the folder of the layer")
	replaySwitch   = flag.Bool("replay.switch", false, "the second file is of a kind that breaks the promise: expect the exact layer within 2,000 queries, and a screen again after the third")
	replayPause    = flag.Bool("replay.pause", true, "ask nothing while a training runs, so that only the number of contexts counts")
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestReplay lets a learner answer the contexts of files, and prints its precision, window by
// window: go test ./learn -run Replay -v -args -long
func TestReplay(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: make test-long")
	}
	if path, _, _ := strings.Cut(*replayHead, ":"); !exists(path) {
		t.Skip(path, " is not there")
	}
	layer, err := l2s.Open(*replayHead, l2s.OpenOptions{Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan Event, 1000)
	l := newTest(t, layer, Options{CPU: 1, Audit: 0.1, Bytes: 512 << 20, Event: func(e Event) { events <- e }})
	exact := exactly(t, layer)
	top, best := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
	const window = 5000
	var queries, screened, hits1, hits5, missed, worst int
	var misses [window]int // of P@1, of the last queries
	var took [3]struct {   // by the exact layer, by it while a training runs, and by a screen
		time.Duration
		queries int
	}
	training := false
	begin := time.Now()
	for part, name := range strings.Split(*replayContexts, ",") {
		path, alarm := name, -1
		if !strings.Contains(name, ".") {
			path = *replayHead + "/contexts_" + name + ".npy"
		}
		c, release, err := heads.OpenContexts(path, layer.Dim())
		if err != nil {
			t.Fatal(err)
		}
		rows, d := c, layer.Dim()
		from, fromScreened, from1, from5 := queries, screened, hits1, hits5
		for i := range len(rows) / d {
			h := rows[i*d : (i+1)*d]
			at := time.Now()
			if _, err := l.TopK(top, h); err != nil {
				t.Fatal(err)
			}
			passed, miss, by := time.Since(at), 0, 0
			if training {
				by = 1
			}
			if l.Screened() {
				by = 2
				screened++
				if _, err := exact.TopK(best, h); err != nil {
					t.Fatal(err)
				}
				if hits1++; top[0] != best[0] {
					hits1--
					miss = 1
				}
				for _, x := range top {
					for _, y := range best {
						if x.ID == y.ID {
							hits5++
						}
					}
				}
			}
			took[by].Duration += passed
			took[by].queries++
			missed += miss - misses[queries%window]
			misses[queries%window] = miss
			worst = max(worst, missed)
			queries++
			for more := true; more; {
				select {
				case e := <-events:
					t.Logf("%s: query %d: %s: %s (%v)", name, queries, e.Kind, e.Text, e.Time.Round(time.Millisecond))
					if training = e.Kind == began || e.Kind == trains; e.Kind == unlearnt && alarm < 0 {
						alarm = i
					}
				default:
					if more = training && *replayPause; more {
						time.Sleep(time.Millisecond)
					}
				}
			}
		}
		release()
		if *replaySwitch && part == 1 && (alarm < 0 || alarm > 2000) {
			t.Errorf("%s: found the exact layer after %d queries, expected 2000 at most", name, alarm)
		}
		if n := screened - fromScreened; n > 0 {
			t.Logf("%s: %d queries, %d by a screen: P@1 %.4f, P@5 %.4f of these", name, queries-from, n, float64(hits1-from1)/float64(n), float64(hits5-from5)/float64(5*n))
		} else {
			t.Logf("%s: %d queries, none by a screen", name, queries-from)
		}
	}
	t.Logf("%d queries, %d by a screen, in %v; the worst window of %d has P@1 %.4f", queries, screened, time.Since(begin).Round(time.Second), window, 1-float64(worst)/window)
	t.Logf("with a screen the exact layer answered %d queries", l.Stats().Exact-uint64(queries-screened))
	for i, by := range []string{"exactly", "exactly while a training runs", "by a screen"} {
		t.Logf("a query takes %v %s", took[i].Duration/time.Duration(max(took[i].queries, 1)), by)
	}
	if *replaySwitch && !l.Screened() {
		t.Error("found the exact layer at the end, expected a screen again")
	}
	if float64(worst) > 0.002*window {
		t.Errorf("found %d misses in a window of %d, expected 10 at most", worst, window)
	}
}
