package progress

import (
	"bytes"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is a time that tests set.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) forward(d time.Duration) { c.t = c.t.Add(d) }

func newPrinter(terminal bool) (*Printer, *bytes.Buffer, *clock) {
	var b bytes.Buffer
	c := &clock{time.Unix(1000, 0)}
	return &Printer{w: &b, terminal: terminal, now: c.now}, &b, c
}

func expect(t *testing.T, got *bytes.Buffer, want ...string) {
	t.Helper()
	if w := strings.Join(want, ""); got.String() != w {
		t.Errorf("got:\n%q\nwant:\n%q", got, w)
	}
}

func TestPlainLinesAreFewAndOneEndsTheStage(t *testing.T) {
	p, b, c := newPrinter(false)
	p.Start("labels", "contexts", 10000)
	for i := 0; i <= 10000; i += 100 {
		p.Set(i)
		c.forward(110 * time.Millisecond)
	}
	p.End()
	p.Line("done")
	expect(t, b,
		"labels: 4,600 of 10,000 contexts, 909/s, 5.9s left\n",
		"labels: 9,200 of 10,000 contexts, 909/s, 0.9s left\n",
		"labels: 10,000 contexts in 11.1s, 900/s\n",
		"done\n")
}

func TestBarIsRedrawnInPlaceAndRemoved(t *testing.T) {
	p, b, c := newPrinter(true)
	p.Start("labels", "contexts", 4)
	c.forward(50 * time.Millisecond)
	p.Set(1) // too soon
	c.forward(950 * time.Millisecond)
	p.Set(2)
	p.Line("a line")
	c.forward(time.Second)
	p.Set(3)
	c.forward(time.Second)
	p.End()
	expect(t, b,
		"\r\x1b[Klabels [........................]   0%",
		"\r\x1b[Klabels [############............]  50%  2.0/s  1.0s left",
		"\r\x1b[Ka line\n",
		"\r\x1b[Klabels [##################......]  75%  1.5/s  0.7s left",
		"\r\x1b[Klabels: 3 contexts in 3.0s, 1.0/s\n")
}

func TestUnknownTotalShowsACount(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		p, b, c := newPrinter(terminal)
		p.Start("text", "tokens", 0)
		c.forward(10 * time.Second)
		p.Set(12345)
		p.Close()
		if terminal {
			expect(t, b, "\r\x1b[Ktext 0 tokens", "\r\x1b[Ktext 12,345 tokens  1,235/s", "\r\x1b[K")
		} else {
			expect(t, b, "text: 12,345 tokens, 1,235/s\n")
		}
	}
}

func TestStageThatIsNotEndedLeavesNothing(t *testing.T) {
	p, b, c := newPrinter(true)
	p.Start("learn", "contexts", 10)
	c.forward(time.Second)
	p.Start("assign", "contexts", 10)
	p.Close()
	p.Close()
	p.Set(5)
	p.End()
	expect(t, b,
		"\r\x1b[Klearn [........................]   0%",
		"\r\x1b[K", "\r\x1b[Kassign [........................]   0%",
		"\r\x1b[K")
}

func TestMoreDoneThanExpectedStaysWithinTheBar(t *testing.T) {
	p, b, c := newPrinter(true)
	p.Start("x", "y", 10)
	c.forward(2 * time.Second)
	p.Set(20)
	expect(t, b, "\r\x1b[Kx [........................]   0%", "\r\x1b[Kx [########################] 100%  10/s  0.0s left")
}

func TestSummaryOfTheCaller(t *testing.T) {
	p, b, c := newPrinter(false)
	p.Start("k-means", "contexts", 100)
	c.forward(1500 * time.Millisecond)
	p.EndWith("20 iterations")
	expect(t, b, "k-means: 20 iterations in 1.5s\n")
}

func TestGoroutinesMayShareAPrinter(t *testing.T) {
	var b bytes.Buffer
	p := New(&b)
	p.Start("x", "y", 1000)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100 {
				p.Set(g*100 + i)
				if i == 50 {
					p.Line("half")
				}
			}
		})
	}
	wg.Wait()
	p.Close()
	expect(t, &b, "half\nhalf\nhalf\nhalf\n")
}

// Lines of percents name the part, and no line repeats the percent of the last one.
func TestPercentsAreToldOnce(t *testing.T) {
	p, b, c := newPrinter(false)
	p.Start("preview", "percent", 1000)
	p.Part("states")
	for _, done := range []int{0, 0, 4, 9, 10, 11, 19, 20, 500, 505} {
		c.forward(6 * time.Second)
		p.Set(done)
		p.Set(done)
	}
	p.Part("blocks")
	c.forward(5 * time.Second)
	p.Set(750)
	p.Set(760) // too soon
	p.EndWith("4,000 states")
	expect(t, b,
		"preview, states: 0%\n",
		"preview, states: 1%, 49m30s left\n",
		"preview, states: 2%, 39m12s left\n",
		"preview, states: 50%, 54.0s left\n",
		"preview, blocks: 75%, 21.7s left\n",
		"preview: 4,000 states in 1m05s\n")
	p, b, c = newPrinter(true)
	p.Start("preview", "percent", 1000)
	p.Part("states")
	c.forward(10 * time.Second)
	p.Set(500)
	expect(t, b, "\r\x1b[Kpreview [........................]   0%", "\r\x1b[Kpreview, states [############............]  50%  10.0s left")
}

func TestNilPrinterShowsNothing(t *testing.T) {
	var p *Printer
	p.Start("x", "y", 1)
	p.Set(1)
	p.Part("x")
	p.Line("x")
	p.End()
	p.EndWith("x")
	p.Close()
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if New(f).terminal || New(&bytes.Buffer{}).terminal {
		t.Error("a file or a buffer was taken for a terminal")
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                           "0.0s",
		59940 * time.Millisecond:    "59.9s",
		59960 * time.Millisecond:    "1m00s",
		61 * time.Second:            "1m01s",
		59*time.Minute + 59600e6:    "1h00m",
		3*time.Hour + 5*time.Minute: "3h05m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 929589: "929,589", 1234567: "1,234,567",
		-5: "-5", -1000: "-1,000", math.MinInt32: "-2,147,483,648",
	} {
		if got := Count(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
