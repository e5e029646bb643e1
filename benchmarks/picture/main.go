// Command picture draws the pictures of the documents, each as SVG and PNG: how, the path of a
// query through the three searches; peers, precision against time, from results/peers.tsv; and
// token, the time of a token by parts, from the JSON of l2s-llama bench.
//
//	cd benchmarks && go run ./picture -out ../docs ["Gemma 3 270M=gemma.json" ...]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
)

// Sizes are in points.
const (
	width, height = 730, 372
	boxWidth      = 152
	boxHeight     = 62
)

// box is a step of a search: its name, the data that it reads, and the number of labels after it,
// as the length of a bar from 0 to 1.
type box struct {
	name, reads, left string
	bar               float64
}

// search is one row of the picture.
type search struct {
	name, needs string
	color       color.RGBA
	steps       []box
}

var searches = []search{
	{"exact", "needs nothing", color.RGBA{0x55, 0x55, 0x55, 0xff}, []box{
		{"scan all labels", "8-bit codes, or the file's blocks", "262,144 intervals", 1},
		{"keep survivors", "upper end reaches the k-th", "some 10 rows", .05},
		{"exact logits", "float64 sums in fixed order", "k labels, none missed", .03},
	}},
	{"preview", "needs 4,000 contexts", color.RGBA{0xd5, 0x5e, 0x00, 0xff}, []box{
		{"nearest blocks", "few coordinates of h, 7-bit centres", "some tenths of the labels", .35},
		{"previews", "4-bit codes of their labels", "some hundred labels", .1},
		{"exact logits", "rows of W", "k labels, few missed", .03},
	}},
	{"screen", "needs 100,000 contexts", color.RGBA{0x00, 0x72, 0xb2, 0xff}, []box{
		{"nearest cluster", "150 vectors", "its list: some hundred labels", .1},
		{"keep survivors", "8-bit codes of the list", "some 10 rows", .05},
		{"exact logits", "rows of W", "k labels, few missed", .03},
	}},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("picture: ")
	out := flag.String("out", "../docs", "the `folder` to write to")
	flag.Parse()
	table, err := os.ReadFile("results/peers.tsv")
	if err != nil {
		log.Fatal(err)
	}
	both(filepath.Join(*out, "how"), painted(height, paint))
	both(filepath.Join(*out, "peers"), report.Peers(table))
	if flag.NArg() == 0 {
		return
	}
	var models []model
	for _, arg := range flag.Args() {
		name, file, _ := strings.Cut(arg, "=")
		models = append(models, model{name, readRows(file)})
	}
	both(filepath.Join(*out, "token"), painted(60+vg.Length(len(models))*modelHeight, func(c draw.Canvas) { paintTokens(c, models) }))
}

// both writes a picture as SVG and PNG.
func both(path string, picture func(w io.Writer, format string) error) {
	for _, format := range []string{"svg", "png"} {
		if err := atomicfile.WriteFile(path+"."+format, func(w io.Writer) error { return picture(w, format) }); err != nil {
			log.Fatal(err)
		}
	}
}

// painted is a picture of this width.
func painted(high vg.Length, paint func(draw.Canvas)) func(w io.Writer, format string) error {
	return func(w io.Writer, format string) error { return report.Draw(w, format, width, high, paint) }
}

func paint(c draw.Canvas) {
	words(c, "One query: a context h, and the k largest logits of W h + b", 16, height-26, 14, color.Black)
	for i, s := range searches {
		top := vg.Length(height - 52 - 104*i)
		middle := top - 8 - boxHeight/2
		words(c, s.name, 16, middle+4, 14, s.color)
		words(c, s.needs, 16, middle-12, 9, color.Black)
		from := vg.Length(132)
		arrow(c, from-14, from, middle, s.color)
		for j, b := range s.steps {
			x := from + vg.Length(j)*(boxWidth+64)
			c.SetColor(s.color)
			c.SetLineWidth(1.4)
			c.Stroke(rectangle(x, top-8-boxHeight, boxWidth, boxHeight))
			words(c, b.name, x+8, middle+10, 12, color.Black)
			words(c, b.reads, x+8, middle-6, 8.5, color.Black)
			pale := s.color
			pale.A = 0xff
			pale.R, pale.G, pale.B = light(pale.R), light(pale.G), light(pale.B)
			c.SetColor(pale)
			c.Fill(rectangle(x+8, middle-25, (boxWidth-16)*vg.Length(b.bar), 8))
			words(c, b.left, x, top-8-boxHeight-13, 9, s.color)
			if j+1 < len(s.steps) {
				arrow(c, x+boxWidth+4, x+boxWidth+60, middle, s.color)
			}
		}
	}
	words(c, "Bars (not to scale): labels that go on. Every logit of an answer is exact; only previews and screens may miss a label.", 16, 10, 9, color.Black)
}

func light(x uint8) uint8 { return 255 - (255-x)/2 }

func rectangle(x, y, w, h vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: x, Y: y})
	p.Line(vg.Point{X: x + w, Y: y})
	p.Line(vg.Point{X: x + w, Y: y + h})
	p.Line(vg.Point{X: x, Y: y + h})
	p.Close()
	return p
}

func arrow(c draw.Canvas, from, to, y vg.Length, ink color.Color) {
	c.SetColor(ink)
	c.SetLineWidth(1.4)
	var line vg.Path
	line.Move(vg.Point{X: from, Y: y})
	line.Line(vg.Point{X: to - 6, Y: y})
	c.Stroke(line)
	var head vg.Path
	head.Move(vg.Point{X: to, Y: y})
	head.Line(vg.Point{X: to - 8, Y: y + 4})
	head.Line(vg.Point{X: to - 8, Y: y - 4})
	head.Close()
	c.Fill(head)
}

func words(c draw.Canvas, s string, x, y vg.Length, size vg.Length, ink color.Color) {
	style := draw.TextStyle{Color: ink, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: text.Plain{Fonts: font.DefaultCache}}
	c.FillText(style, vg.Point{X: x, Y: y}, s)
}

// row is a line of l2s-llama bench.
type row struct {
	Task         string  `json:"task"`
	Head         string  `json:"head"`
	Threads      int     `json:"threads"`
	Microseconds float64 `json:"microseconds"`
}

type model struct {
	name string
	rows []row
}

const modelHeight = 106

// readRows reads the rows of the greedy task on one thread.
func readRows(file string) (rows []row) {
	var bench struct {
		Rows []row `json:"rows"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &bench)
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range bench.Rows {
		if r.Threads == 1 && (r.Task == "greedy" || r.Task == "none") {
			rows = append(rows, r)
		}
	}
	return rows
}

// paintTokens draws a bar for each head: the model without its head, and the head.
func paintTokens(c draw.Canvas, models []model) {
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
			ink := color.Color(searches[0].color)
			switch r.Head {
			case "preview":
				ink = searches[1].color
			case "screen":
				ink = searches[2].color
			case "llama.cpp":
				ink = color.RGBA{0x22, 0x22, 0x22, 0xff}
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
