package report

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bench is what l2s-llama bench measured.
type bench struct {
	CPU  string `json:"cpu"`
	Rows []row  `json:"rows"`
}

// row is a head at a task.
type row struct {
	Task         string  `json:"task"`
	Head         string  `json:"head"`
	Threads      int     `json:"threads"`
	Tokens       float64 `json:"tokens_per_second"`
	Microseconds float64 `json:"microseconds"`
	Speedup      float64 `json:"speedup"`
}

// columns are the heads of the table, in order.
var columns = []string{"llama.cpp", "exact", "preview", "screen", "read", "none"}

// table has a line for each task and number of threads.
func (x *bench) table() table {
	t := table{
		title: "Tokens per second in llama.cpp",
		note:  x.CPU + ". In brackets: over llama.cpp's own head. Medians of 9 rounds, which vary by a tenth. *Read* reads the bytes of the head's rows and no more, which an exact head takes at least. *None* has no head at all. *Sampled*: temperature .8, top-k 40, top-p .95. *Draft*: four tokens in one batch, and the best token after each. `l2s-llama bench --fast`",
		head:  []string{"task"}, text: 1,
	}
	t.head = append(t.head, "threads")
	var heads []string
	for _, head := range columns {
		for _, r := range x.Rows {
			if r.Head == head {
				heads = append(heads, head)
				break
			}
		}
	}
	t.head = append(t.head, heads...)
	for _, r := range x.Rows {
		if r.Task == "none" || r.Head != "llama.cpp" {
			continue
		}
		cells := []string{r.Task, fmt.Sprint(r.Threads)}
		for _, head := range heads {
			cell := none
			for _, y := range x.Rows {
				if y.Head != head || y.Threads != r.Threads || y.Task != r.Task && (y.Task != "none" || r.Task != "greedy") {
					continue
				}
				cell = fmt.Sprintf("%.1f", y.Tokens)
				if y.Speedup > 0 && head != "llama.cpp" {
					cell += fmt.Sprintf(" (%.2f)", y.Speedup)
				}
			}
			cells = append(cells, cell)
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// tokens are the rows of a model.
type tokens struct {
	name string
	rows []row
}

const (
	tokenWidth  = 730 // in points
	modelHeight = 106
)

// inks are the colours of the heads, as in how.svg.
var inks = map[string]color.RGBA{
	"exact": {0x55, 0x55, 0x55, 0xff}, "preview": {0xd5, 0x5e, 0x00, 0xff}, "screen": {0x00, 0x72, 0xb2, 0xff}, "llama.cpp": {0x22, 0x22, 0x22, 0xff},
}

// tokenPicture returns a function that draws the time of a token of some models, by the greedy task on one
// thread.
func tokenPicture(models []tokens) func(w io.Writer, format string) error {
	var some []tokens
	for _, m := range models {
		x := tokens{name: m.name}
		for _, r := range m.rows {
			if r.Threads == 1 && (r.Task == "greedy" || r.Task == "none" && r.Head == "none") {
				x.rows = append(x.rows, r)
			}
		}
		some = append(some, x)
	}
	return func(w io.Writer, format string) error {
		return Draw(w, format, tokenWidth, 60+vg.Length(len(some))*modelHeight, func(c draw.Canvas) { paintTokens(c, some) })
	}
}

func rectangle(x, y, w, h vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: x, Y: y})
	p.Line(vg.Point{X: x + w, Y: y})
	p.Line(vg.Point{X: x + w, Y: y + h})
	p.Line(vg.Point{X: x, Y: y + h})
	p.Close()
	return p
}

func words(c draw.Canvas, s string, x, y vg.Length, size vg.Length, ink color.Color) {
	style := draw.TextStyle{Color: ink, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: text.Plain{Fonts: font.DefaultCache}}
	c.FillText(style, vg.Point{X: x, Y: y}, s)
}

// paintTokens draws a bar for each head: the model without its head, and the head.
func paintTokens(c draw.Canvas, models []tokens) {
	high := 60 + vg.Length(len(models))*modelHeight
	words(c, "The time of a token by parts: greedy, one thread", 16, high-26, 14, color.Black)
	most := 0.0
	for _, m := range models {
		for _, r := range m.rows {
			most = max(most, r.Microseconds)
		}
	}
	grey := color.RGBA{0xbb, 0xbb, 0xbb, 0xff}
	const from, long = 168, 430
	for i, m := range models {
		top := high - 48 - vg.Length(i)*modelHeight
		words(c, m.name, 16, top-14, 12, color.Black)
		none := 0.0
		for _, r := range m.rows {
			if r.Head == "none" {
				none = r.Microseconds
			}
		}
		line := 0
		for _, r := range m.rows {
			if r.Head == "none" {
				continue
			}
			y := top - 34 - vg.Length(line)*20
			line++
			ink, ok := inks[r.Head]
			if !ok {
				ink = inks["exact"]
			}
			words(c, r.Head+" head", 32, y+3, 10, ink)
			c.SetColor(grey)
			c.Fill(rectangle(from, y, vg.Length(long*none/most), 12))
			c.SetColor(ink)
			c.Fill(rectangle(from+vg.Length(long*none/most), y, vg.Length(long*max(0, r.Microseconds-none)/most), 12))
			words(c, fmt.Sprintf("%.1f ms, %.0f tokens per second", r.Microseconds/1000, 1e6/r.Microseconds), from+vg.Length(long*r.Microseconds/most)+6, y+3, 9, color.Black)
		}
	}
	words(c, "Grey: the model up to its head. Colour: the head.", 16, 12, 9, color.Black)
}
