package main

import (
	"fmt"
	"image/color"
	"log"
	"math"
	"os"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const peersHeight = 430

// point is a setting of a method.
type point struct{ precision, microseconds float64 }

// line is a method with its settings.
type line struct {
	name   string
	points []point
}

// readTable reads P@5 and the medians of a table: method, setting, P@1, P@5, median, ...
func readTable(file string) (lines []line) {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range strings.Split(string(text), "\n") {
		cells := strings.Split(row, "\t")
		if len(cells) < 5 {
			continue
		}
		number := func(i int) float64 {
			x, err := strconv.ParseFloat(strings.ReplaceAll(cells[i], ",", ""), 64)
			if err != nil {
				return math.NaN()
			}
			return x
		}
		p := point{number(3), number(4)}
		if math.IsNaN(p.precision) || math.IsNaN(p.microseconds) {
			continue // the head of the table
		}
		name := cells[0]
		if len(lines) == 0 || lines[len(lines)-1].name != name {
			lines = append(lines, line{name: name})
		}
		l := &lines[len(lines)-1]
		l.points = append(l.points, p)
	}
	return lines
}

// nines is the scale of precision: .9 is 1, .99 is 2; more than .9999 is 4.
func nines(p float64) float64 { return min(4, -math.Log10(1-p+1e-12)) }

// paintPeers draws precision against the time of a query, a line for each method.
func paintPeers(c draw.Canvas, lines []line) {
	c.SetColor(color.White)
	c.Fill(rectangle(0, 0, width, peersHeight))
	words(c, "The head of Gemma 3 270M, 262,144 labels: P@5 against the time of a query, one thread", 16, peersHeight-26, 14, color.Black)
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "microseconds per query (log scale)", "P@5 (scale: number of nines)"
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = font.From(sans, 11), font.From(sans, 10)
		axis.Label.Padding = 4
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe2}, color.Gray{0xe2}
	p.Add(grid)
	p.X.Min, p.X.Max = math.Log10(30), math.Log10(12_000)
	p.Y.Min, p.Y.Max = nines(.5), 4.15
	ticks := func(scale func(float64) float64, labels ...float64) plot.Ticker {
		return plot.TickerFunc(func(_, _ float64) (t []plot.Tick) {
			for _, x := range labels {
				t = append(t, plot.Tick{Value: scale(x), Label: fmt.Sprint(x)})
			}
			return t
		})
	}
	p.X.Tick.Marker = ticks(math.Log10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
	p.Y.Tick.Marker = ticks(nines, .5, .8, .9, .95, .98, .99, .995, .998, .999, .9995, 1)
	inks := []color.RGBA{
		searches[1].color, searches[0].color, {0x00, 0x72, 0xb2, 0xff}, {0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x99, 0x99, 0x99, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
	}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.SquareGlyph{}, draw.RingGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}
	for i, l := range lines {
		xys := make(plotter.XYs, len(l.points))
		for j, q := range l.points {
			xys[j] = plotter.XY{X: math.Log10(q.microseconds), Y: nines(q.precision)}
		}
		way, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			log.Fatal(err)
		}
		way.Color, way.Width = inks[i%len(inks)], 1.2
		if i == 0 {
			way.Width = 2.4
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: inks[i%len(inks)], Radius: 3.2, Shape: shapes[i%len(shapes)]}
		p.Add(way, marks)
		y := vg.Length(peersHeight - 70 - 20*i)
		c.SetColor(inks[i%len(inks)])
		c.SetLineWidth(way.Width)
		var path vg.Path
		path.Move(vg.Point{X: 560, Y: y})
		path.Line(vg.Point{X: 590, Y: y})
		c.Stroke(path)
		c.DrawGlyph(marks.GlyphStyle, vg.Point{X: 575, Y: y})
		words(c, l.name, 598, y-4, 10, color.Black)
	}
	p.Draw(draw.Crop(c, 14, -(width - 540), 12, -44))
}
