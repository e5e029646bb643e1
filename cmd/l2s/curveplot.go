package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/progress"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The picture: a panel for each pair of axes, below a title and the legend.
const (
	curvePanelWidth  = 5 * vg.Inch
	curvePanelHeight = 3.5 * vg.Inch
	curveHead        = 1.05 * vg.Inch
	curveMargin      = 0.12 * vg.Inch
	curveDPI         = 150
	curveLegendShort = 36 // characters, at most, of entries three of which stand beside each other, and else two
	curveLegendStep  = 0.22 * vg.Inch
)

// The colours of Okabe and Ito, which people who do not tell red from green
// tell apart: warm ones first, for k-means, then cold ones.
var curveColors = []color.Color{
	color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff},
}

// series are the screens of one method with one number of clusters, alike in
// which margins they have, in what their clusters were learned for, in
// their shells, and in the bound of their sets.
type series struct {
	name   string
	points []curvePoint
	line   draw.LineStyle
	glyph  draw.GlyphStyle
}

// seriesOf groups the screens, which are in order. Screens by k-means have
// dashed lines and hollow marks, the others solid ones; the groups of one
// method differ in colour.
func seriesOf(r *curveResult) (all []series) {
	next := map[string]int{methodKMeans: 0, methodL2S: 3, methodUnknown: 2}
	for _, p := range r.Screens {
		if n := len(all); n > 0 && all[n-1].points[0].order(p) == 0 {
			all[n-1].points = append(all[n-1].points, p)
			continue
		}
		own := curveColors[next[p.Method]%len(curveColors)]
		next[p.Method]++
		s := series{points: []curvePoint{p}}
		s.line = draw.LineStyle{Color: own, Width: vg.Points(1.5)}
		s.glyph = draw.GlyphStyle{Color: own, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
		name := map[string]string{methodKMeans: "spherical k-means", methodL2S: "L2S", methodUnknown: "screen"}[p.Method]
		switch p.Method {
		case methodKMeans:
			s.line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
			s.glyph.Shape = hollowGlyph{}
		case methodUnknown:
			s.glyph.Shape = draw.SquareGlyph{}
		}
		s.name = fmt.Sprintf("%s, %s clusters", name, progress.Count(p.Clusters))
		if p.Groups > 0 {
			s.name = fmt.Sprintf("%s, %s clusters in %s groups", name, progress.Count(p.Clusters), progress.Count(p.Groups))
		}
		if p.ProbeMargin > 0 {
			s.name += ", second probes"
		}
		if p.ExactMargin > 0 {
			s.name += ", exact answers"
		}
		if len(p.Shells) > 0 {
			s.name += ", shells " + strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Shells), "[]"), " ", ",")
		}
		if p.Largest > 0 {
			s.name += fmt.Sprintf(", sets of at most %s", progress.Count(p.Largest))
		}
		if p.family > 0 {
			s.name += fmt.Sprintf(", learned for %v", p.family)
		}
		all = append(all, s)
	}
	return all
}

// hollowGlyph is a circle that hides the line below it.
type hollowGlyph struct{}

func (hollowGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	circle := func(radius vg.Length) vg.Path {
		var p vg.Path
		p.Move(vg.Point{X: at.X + radius, Y: at.Y})
		p.Arc(at, radius, 0, 2*math.Pi)
		p.Close()
		return p
	}
	c.SetColor(color.White)
	c.Fill(circle(style.Radius))
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: vg.Points(1.5)})
	c.Stroke(circle(style.Radius))
}

// drawCurve draws the picture in the format svg or png.
func drawCurve(w io.Writer, format string, r *curveResult) error {
	all := seriesOf(r)
	ks := []int{1}
	if r.K > 1 {
		ks = append(ks, r.K)
	}
	columns := 3
	if slices.ContainsFunc(all, func(s series) bool { return len(s.name) > curveLegendShort }) {
		columns = 2
	}
	legendRows := (len(all) + columns - 1) / columns
	head := curveHead + vg.Length(legendRows-1)*curveLegendStep
	width, height := 2*curvePanelWidth, vg.Length(len(ks))*curvePanelHeight+head

	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if format == "svg" {
		canvas = vgsvg.New(width, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(curveDPI))}
	}
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())

	var panels [][]*plot.Plot
	for _, k := range ks {
		precision := func(p curvePoint) float64 { return p.Precision[strconv.Itoa(k)] }
		name := fmt.Sprintf("P@%d", k)
		candidates, err := curvePanel(all, name, "candidates of a context (mean)", func(p curvePoint) float64 { return p.MeanCandidates }, precision)
		if err != nil {
			return err
		}
		time, err := curvePanel(all, name, "mean time of a query (µs)", func(p curvePoint) float64 { return p.Screened }, precision)
		if err != nil {
			return err
		}
		panels = append(panels, []*plot.Plot{candidates, time})
	}
	body := draw.Crop(dc, curveMargin, -curveMargin, curveMargin, -head)
	tiles := draw.Tiles{Rows: len(ks), Cols: 2, PadX: 3 * curveMargin, PadY: 2 * curveMargin}
	for i, row := range plot.Align(panels, tiles, body) {
		for j, c := range row {
			panels[i][j].Draw(c)
		}
	}

	left, top := 2*curveMargin, dc.Max.Y-2*curveMargin
	dc.FillText(textStyle(12), vg.Point{X: left, Y: top}, fmt.Sprintf(
		"P@k: share of the exact k best labels that the screen finds; %s contexts, %s labels, dimension %d",
		progress.Count(r.Contexts), progress.Count(r.Labels), r.Dim))
	dc.FillText(textStyle(10), vg.Point{X: left, Y: top - 0.22*vg.Inch}, fmt.Sprintf(
		"Times on one thread at level %s. The dense float32 scan takes %.1f µs, the exact layer %.1f µs.", r.Level, r.DenseF32, r.Exact))
	for i, s := range all {
		row, column := i/columns, i%columns
		x := left + vg.Length(column)*(width-4*curveMargin)/vg.Length(columns)
		y := top - 0.55*vg.Inch - vg.Length(row)*curveLegendStep
		middle := y - vg.Points(5)
		dc.StrokeLine2(s.line, x, middle, x+0.5*vg.Inch, middle)
		dc.DrawGlyph(s.glyph, vg.Point{X: x + 0.25*vg.Inch, Y: middle})
		dc.FillText(textStyle(11), vg.Point{X: x + 0.6*vg.Inch, Y: y}, s.name)
	}
	_, err := canvas.WriteTo(w)
	return err
}

var curveFont = font.Font{Typeface: "Liberation", Variant: "Sans"}

// textStyle is for text whose upper left corner is given.
func textStyle(points float64) draw.TextStyle {
	return draw.TextStyle{
		Color: color.Black, Font: font.From(curveFont, vg.Points(points)), XAlign: draw.XLeft, YAlign: draw.YTop,
		Handler: text.Plain{Fonts: font.DefaultCache},
	}
}

// curvePanel is one pair of axes with all series.
func curvePanel(all []series, yName, xName string, x, y func(curvePoint) float64) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xName, yName
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = font.From(curveFont, vg.Points(12))
		axis.Tick.Label.Font = font.From(curveFont, vg.Points(10))
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Marker = plot.TickerFunc(roundTicks)
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe0}, color.Gray{0xe0}
	p.Add(grid)
	for _, s := range all {
		var points plotter.XYs
		for _, q := range s.points {
			points = append(points, plotter.XY{X: x(q), Y: y(q)})
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("curve: %w", err)
		}
		line.LineStyle, marks.GlyphStyle = s.line, s.glyph
		p.Add(line, marks)
	}
	// Room at the edges, so that marks are whole; a single point has some too.
	widen := func(axis *plot.Axis, least float64) {
		margin := max(0.06*(axis.Max-axis.Min), least)
		axis.Min, axis.Max = axis.Min-margin, axis.Max+margin
	}
	widen(&p.X, 0.01*p.X.Max)
	widen(&p.Y, 0.0005)
	return p, nil
}

// roundTicks are five to ten round numbers within a range.
func roundTicks(lo, hi float64) (ticks []plot.Tick) {
	exponent := math.Floor(math.Log10((hi - lo) / 5))
	step := math.Pow(10, exponent)
	for _, m := range []float64{5, 2} {
		if (hi-lo)/(m*step) >= 5 {
			step *= m
			break
		}
	}
	decimals := int(max(0, -exponent))
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'f', decimals, 64)})
	}
	return ticks
}
