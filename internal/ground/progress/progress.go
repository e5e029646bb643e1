// Package progress shows the progress of long work: a bar on a terminal, plain lines now and then
// elsewhere.
//
//	p := progress.New(os.Stderr)
//	defer p.Close()
//	p.Start("labels", "contexts", n)
//	p.Set(done) // as often as one likes, from any goroutine
//	p.End()
//
// On a terminal that shows
//
//	labels [############............]  50%  22,080/s  21s left
//
// and ends as "labels: 929,589 contexts in 42.1s, 22,080/s".
package progress

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Printer shows one stage of the work after the other. Any number of goroutines may use it. A nil
// Printer shows nothing.
type Printer struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	now      func() time.Time

	open        bool // a stage has begun and not ended
	stage, unit string
	part        string // of the stage, "" for none
	percent     int    // in the last line about the stage, -1 for none
	done, total int
	start       time.Time // of the stage
	shown       time.Time // last output about the stage
	drawn       bool      // the current line shows a bar
}

const (
	barInterval  = 100 * time.Millisecond // the least time between two drawings of a bar
	lineInterval = 5 * time.Second        // and between two lines about one stage
	barWidth     = 24
)

// New returns a Printer to w. It draws bars if w is a terminal that can redraw a line.
func New(w io.Writer) *Printer {
	return &Printer{w: w, terminal: isTerminal(w), now: time.Now}
}

func isTerminal(w io.Writer) bool {
	f, _ := w.(*os.File)
	info, err := f.Stat() // nil has none
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// with calls f, unless p is nil, while no other call is under way.
func (p *Printer) with(f func(now time.Time)) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(p.now())
	}
}

// percent is the unit of work that is printed as a share alone, without a rate, and without
// repeating the last line.
const percent = "percent"

// Start begins a stage of total units of work, 0 if the number is unknown. For the unit "percent"
// the total may be larger than 100, for a finer estimate of the time left. A stage that has not
// ended is dropped without a message.
func (p *Printer) Start(stage, unit string, total int) {
	p.with(func(now time.Time) {
		p.erase()
		p.open, p.stage, p.unit, p.done, p.total, p.part, p.percent = true, stage, unit, 0, total, "", -1
		p.start, p.shown = now, now
		if p.terminal {
			p.draw(now)
		}
	})
}

// Set tells the number of finished units of the stage.
func (p *Printer) Set(done int) {
	p.with(func(now time.Time) {
		p.done = done
		show, interval := p.line, lineInterval
		if p.terminal {
			show, interval = p.draw, barInterval
		}
		again := p.unit == percent && !p.terminal && p.hundredths() == p.percent
		if p.open && now.Sub(p.shown) >= interval && !again {
			show(now)
			p.shown = now
		}
	})
}

// Part names the current part of the stage, which the bar shows after the name of the stage.
func (p *Printer) Part(name string) { p.with(func(time.Time) { p.part = name }) }

func (p *Printer) name() string {
	if p.part == "" {
		return p.stage
	}
	return p.stage + ", " + p.part
}

// End ends the stage with a line of its units and its time.
func (p *Printer) End() { p.EndWith("") }

// EndWith is End with a summary of the caller's instead of the number of units and their rate.
func (p *Printer) EndWith(summary string) {
	p.with(func(now time.Time) {
		if !p.open {
			return
		}
		p.erase()
		elapsed, perSecond := now.Sub(p.start), ""
		if summary == "" {
			summary, perSecond = Count(p.done)+" "+p.unit, rate(", ", p.done, elapsed)
		}
		fmt.Fprintf(p.w, "%s: %s in %s%s\n", p.stage, summary, Duration(elapsed), perSecond)
		p.open = false
	})
}

// Line prints a separate line. A bar continues below it.
func (p *Printer) Line(text string) {
	p.with(func(time.Time) {
		p.erase()
		fmt.Fprintln(p.w, text)
	})
}

// Close drops a stage that has not ended, so that later output starts on an empty line.
func (p *Printer) Close() {
	p.with(func(time.Time) {
		p.erase()
		p.open = false
	})
}

func (p *Printer) erase() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// share returns the part of the stage that is done, within 0 and 1.
func (p *Printer) share() float64 {
	return min(1, max(0, float64(p.done)/float64(p.total)))
}

// hundredths is share in whole percent, rounded down.
func (p *Printer) hundredths() int { return min(100, max(0, 100*p.done/max(1, p.total))) }

func (p *Printer) draw(now time.Time) {
	text := Count(p.done) + " " + p.unit
	if p.total > 0 {
		full := int(p.share() * barWidth)
		text = fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*p.share())
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s %s%s", p.name(), text, p.pace("  ", now.Sub(p.start)))
	p.drawn = true
}

func (p *Printer) line(now time.Time) {
	if p.unit == percent {
		p.percent = p.hundredths()
		fmt.Fprintf(p.w, "%s: %d%%%s\n", p.name(), p.percent, p.pace(", ", now.Sub(p.start)))
		return
	}
	of := ""
	if p.total > 0 {
		of = " of " + Count(p.total)
	}
	fmt.Fprintf(p.w, "%s: %s%s %s%s\n", p.name(), Count(p.done), of, p.unit, p.pace(", ", now.Sub(p.start)))
}

// pace tells the rate so far, and the time of the rest of the stage at this rate.
func (p *Printer) pace(before string, elapsed time.Duration) string {
	text, share := rate(before, p.done, elapsed), p.share()
	early := 0.05
	if p.unit == percent { // whose stages are long
		text, early = "", 0.01
	}
	if p.total <= 0 || share == 0 || elapsed < time.Second || share < early && elapsed < time.Minute {
		return text // too early to tell: the first units of a stage may be slow
	}
	return text + before + Duration(time.Duration(float64(elapsed)*(1-share)/share)) + " left"
}

func rate(before string, done int, elapsed time.Duration) string {
	if done <= 0 || elapsed < time.Second/2 {
		return ""
	}
	perSecond := float64(done) / elapsed.Seconds()
	if perSecond < 10 {
		return before + strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s"
	}
	return before + Count(int(perSecond+0.5)) + "/s"
}

// Count renders a number with a comma between each three digits.
func Count(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Duration renders a time in its two largest units: 12.3s, 4m05s, 3h20m.
func Duration(d time.Duration) string {
	tenths := d.Round(time.Second / 10)
	if tenths < time.Minute {
		return fmt.Sprintf("%.1fs", tenths.Seconds())
	}
	seconds := int(d.Round(time.Second) / time.Second)
	if seconds < 3600 {
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	}
	minutes := int(d.Round(time.Minute) / time.Minute)
	return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
}
