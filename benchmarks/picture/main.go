// Command picture draws pictures of measurements for the documents, each as SVG and PNG: peers,
// precision against time, from results/peers.tsv; and token, the time of a token by parts, from the
// JSON of l2s-llama bench.
//
//	cd benchmarks && go run ./picture ["Gemma 3 270M=gemma.json" ...]
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
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

const width = 730 // in points

// inks are the colours of the heads, as in how.svg.
var inks = map[string]color.RGBA{
	"exact": {0x55, 0x55, 0x55, 0xff}, "preview": {0xd5, 0x5e, 0x00, 0xff}, "screen": {0x00, 0x72, 0xb2, 0xff}, "llama.cpp": {0x22, 0x22, 0x22, 0xff},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("picture: ")
	out := flag.String("out", "results", "the `folder` to write to")
	flag.Parse()
	table, err := os.ReadFile("results/peers.tsv")
	if err != nil {
		log.Fatal(err)
	}
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
		if r.Threads == 1 && (r.Task == "greedy" || r.Task == "none" && r.Head == "none") {
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
