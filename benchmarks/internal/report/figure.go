package report

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// The figure: axes at the left, the legend next to them, titles above.
const (
	figureWidth  = 10.8 * vg.Inch
	figureHeight = 6.6 * vg.Inch
	legendWidth  = 3.8 * vg.Inch
	headHeight   = 0.62 * vg.Inch
	margin       = 0.12 * vg.Inch
	legendStep   = 0.27 * vg.Inch
	figureDPI    = 160
)

// style is how a method looks: colour, dashes and mark all differ, so that the lines differ in
// print without colours, too.
type style struct {
	color  color.Color
	shape  draw.GlyphDrawer
	dashes []vg.Length
	width  vg.Length
}

// The colours of Okabe and Ito, which people with red-green blindness can distinguish, and greys
// for the exact methods.
var (
	blue    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	navy    = color.RGBA{0x1b, 0x2a, 0x6b, 0xff}
	sky     = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	orange  = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	red     = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	green   = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	pink    = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	black   = color.RGBA{0x00, 0x00, 0x00, 0xff}
	grey    = color.RGBA{0x77, 0x77, 0x77, 0xff}
	purple  = color.RGBA{0x6a, 0x3d, 0x9a, 0xff}
	brown   = color.RGBA{0x8c, 0x56, 0x1c, 0xff}
	dark    = color.RGBA{0x33, 0x33, 0x33, 0xff}
	long    = []vg.Length{vg.Points(7), vg.Points(3)}
	short   = []vg.Length{vg.Points(3), vg.Points(2)}
	dotted  = []vg.Length{vg.Points(1.2), vg.Points(2.2)}
	dashDot = []vg.Length{vg.Points(7), vg.Points(2), vg.Points(1.5), vg.Points(2)}
)

var styles = map[string]style{
	decided:          {blue, draw.CircleGlyph{}, nil, 2.4},
	expected:         {navy, draw.BoxGlyph{}, nil, 1.8},
	l2s:              {navy, draw.PyramidGlyph{}, long, 1.8},
	kmeans:           {sky, draw.RingGlyph{}, nil, 1.5},
	fgd:              {red, draw.PyramidGlyph{}, nil, 1.5},
	"ip-NSW":         {orange, draw.TriangleGlyph{}, long, 1.5},
	svd:              {green, draw.BoxGlyph{}, short, 1.5},
	"Weighted SVD":   {green, draw.CircleGlyph{}, nil, 1.8},
	adaptive:         {pink, draw.CircleGlyph{}, dashDot, 1.5},
	greedy:           {purple, draw.CrossGlyph{}, nil, 1.5},
	pca:              {brown, draw.PlusGlyph{}, short, 1.5},
	lsh:              {grey, draw.SquareGlyph{}, dotted, 1.5},
	"Frequency head": {black, draw.RingGlyph{}, dotted, 1.5},

	"l2s preview":        {red, draw.CircleGlyph{}, nil, 2.4},
	"l2s exact":          {dark, draw.BoxGlyph{}, nil, 1.5},
	"hnswlib":            {blue, draw.TriangleGlyph{}, nil, 1.5},
	"faiss HNSW32":       {green, draw.PyramidGlyph{}, long, 1.5},
	"usearch i8":         {pink, draw.SquareGlyph{}, nil, 1.5},
	"ScaNN":              {sky, draw.RingGlyph{}, nil, 1.5},
	"faiss IVF1024":      {grey, draw.CrossGlyph{}, short, 1.5},
	"torch":              {black, draw.RingGlyph{}, dotted, 1.5},
	"SVS":                {purple, draw.PyramidGlyph{}, dashDot, 1.5},
	"faiss PQ fast scan": {orange, draw.PlusGlyph{}, nil, 1.5},
}

// spare are the styles of other methods, such as the exact ones, which are a point each.
var spare = []style{
	{dark, draw.PlusGlyph{}, nil, 1.5}, {dark, draw.CrossGlyph{}, nil, 1.5}, {dark, draw.TriangleGlyph{}, nil, 1.5}, {dark, draw.SquareGlyph{}, nil, 1.5},
}

// legendOrder sorts methods for the legend of the figure: the fastest at the precision aimed at
// first, so that the legend has about the order of the lines.
func legendOrder(names []string, of map[string][]points.Point) []string {
	names = slices.Clone(names)
	score := func(name string) float64 {
		if p, ok := fastest(of[name], aim); ok {
			return p.Speedup
		}
		best := 0.0 // methods that do not reach it, by their precision
		for _, p := range of[name] {
			best = max(best, p.P5)
		}
		return best - 2
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if score(a) > score(b) {
			return -1
		}
		if score(a) < score(b) {
			return 1
		}
		return 0
	})
	return names
}

// chart is a picture of precisions, a line for each method, against a number on a logarithmic scale.
type chart struct {
	title, note string
	x, y        string // what the axes are
	unit        string // of the ticks of x
	lines       []line // in the order of the legend
	numbered    bool   // by numbers beside the points: there are more lines than styles
}

// line is the points of one method.
type line struct {
	name   string
	points []xy
}

type xy struct{ x, precision float64 }

// figure returns the chart of P@k against speedup.
func figure(f *points.File, k int) chart {
	precision := p1
	if k == 5 {
		precision = p5
	}
	c := chart{
		title: fmt.Sprintf("P@%d against speedup: %s, %s labels, dimension %s", k, f.Layer.Name, thousands(f.Layer.Labels), thousands(f.Layer.Dim)),
		note:  fmt.Sprintf("Pareto front of each method's settings; one thread, level %s, %s", f.Level, f.Machine.CPU),
		x:     "speedup over the dense float32 scan", y: fmt.Sprintf("P@%d", k), unit: "x",
	}
	names, of := byMethod(f)
	for _, name := range legendOrder(names, of) {
		l := line{name: name}
		for _, q := range front(of[name], precision) {
			l.points = append(l.points, xy{q.Speedup, precision(q)})
		}
		c.lines = append(c.lines, l)
	}
	return c
}

// draw draws the chart in the format svg or png.
func (c chart) draw(w io.Writer, format string) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = c.x+" (log scale)", c.y+" (scale: number of nines)"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = font.From(figureFont, vg.Points(12))
		axis.Tick.Label.Font = font.From(figureFont, vg.Points(10.5))
		axis.Label.Padding = vg.Points(4)
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = grey, grey
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe2}, color.Gray{0xe2}
	p.Add(grid)

	looks, spares := map[string]style{}, 0
	low, high := math.Inf(1), 0.0
	for _, l := range c.lines {
		s, ok := styles[l.name]
		if !ok {
			s = spare[spares%len(spare)]
			spares++
		}
		looks[l.name] = s
	}
	for i, l := range slices.Backward(c.lines) { // the best on top
		var xys plotter.XYs
		for _, q := range l.points {
			xys = append(xys, plotter.XY{X: math.Log10(q.x), Y: nines(q.precision)})
			low, high = min(low, q.x), max(high, q.x)
		}
		way, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			return fmt.Errorf("report: %s: %w", l.name, err)
		}
		way.LineStyle = lineStyle(looks[l.name])
		marks.GlyphStyle = glyphStyle(looks[l.name])
		p.Add(way, marks)
		if c.numbered {
			texts, err := plotter.NewLabels(plotter.XYLabels{XYs: xys, Labels: slices.Repeat([]string{strconv.Itoa(i + 1)}, len(xys))})
			if err != nil {
				return fmt.Errorf("report: %s: %w", l.name, err)
			}
			for j := range texts.TextStyle {
				texts.TextStyle[j] = textStyle(9)
			}
			texts.Offset = vg.Point{X: vg.Points(4), Y: vg.Points(11)}
			p.Add(texts)
		}
	}
	// The axis is in powers of 10: plot.LogScale would take room for a label that
	// is centred on the number in the middle.
	p.X.Min, p.X.Max = math.Log10(low/1.2), math.Log10(high*1.2)
	p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return logTicks(lo, hi, c.unit) })
	p.Y.Min, p.Y.Max = 0, mostNines+0.15
	p.Y.Tick.Marker = plot.TickerFunc(func(_, _ float64) []plot.Tick { return precisionTicks() })

	return Draw(w, format, figureWidth, figureHeight, func(dc draw.Canvas) {
		p.Draw(draw.Crop(dc, margin, -legendWidth-2*margin, margin, -headHeight))
		top := dc.Max.Y - margin
		dc.FillText(textStyle(14), vg.Point{X: 2 * margin, Y: top}, c.title)
		dc.FillText(textStyle(10), vg.Point{X: 2 * margin, Y: top - 0.25*vg.Inch}, c.note)
		x, y := dc.Max.X-legendWidth, dc.Max.Y-headHeight-0.1*vg.Inch
		for i, l := range c.lines {
			at := y - vg.Length(i)*legendStep
			middle := at - vg.Points(5.5)
			if len(l.points) > 1 {
				dc.StrokeLine2(lineStyle(looks[l.name]), x, middle, x+0.48*vg.Inch, middle)
			}
			dc.DrawGlyph(glyphStyle(looks[l.name]), vg.Point{X: x + 0.24*vg.Inch, Y: middle})
			name := l.name
			if c.numbered {
				name = fmt.Sprintf("%d  %s", i+1, name)
			}
			dc.FillText(textStyle(10.5), vg.Point{X: x + 0.57*vg.Inch, Y: at}, name)
		}
	})
}

// Draw writes a picture of the size, which paint paints on white, in the format svg or png.
func Draw(w io.Writer, format string, width, height vg.Length, paint func(draw.Canvas)) error {
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if format == "svg" {
		canvas = vgsvg.New(width, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(figureDPI))}
	}
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	paint(dc)
	if format == "png" {
		_, err := canvas.WriteTo(w)
		return err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// The font may not be there where the picture is looked at.
	_, err := w.Write(fontFamily.ReplaceAll(b.Bytes(), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif")))
	return err
}

// peersPicture returns a function that draws P@5 against the time of a query from the rows of the table
// of libraries of nearest neighbours: method, setting, P@1, P@5 and the median of microseconds.
func peersPicture(layer string, rows [][]string) func(w io.Writer, format string) error {
	c := chart{
		title: "P@5 against the time of a query: " + layer,
		note:  "one thread, one query for five labels at a time, each library by its own Python package",
		x:     "microseconds per query", y: "P@5",
	}
	for _, cells := range rows {
		precision, err := strconv.ParseFloat(cells[3], 64)
		micros, wrong := strconv.ParseFloat(strings.ReplaceAll(cells[4], ",", ""), 64)
		if err != nil || wrong != nil {
			continue
		}
		if n := len(c.lines); n == 0 || c.lines[n-1].name != cells[0] {
			c.lines = append(c.lines, line{name: cells[0]})
		}
		l := &c.lines[len(c.lines)-1]
		l.points = append(l.points, xy{micros, precision})
	}
	return c.draw
}

var fontFamily = regexp.MustCompile(`font-family:Liberation Sans`)

func lineStyle(s style) draw.LineStyle {
	return draw.LineStyle{Color: s.color, Width: vg.Points(float64(s.width)), Dashes: s.dashes}
}

func glyphStyle(s style) draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.color, Radius: vg.Points(3.6), Shape: s.shape}
}

var figureFont = font.Font{Typeface: "Liberation", Variant: "Sans"}

// textStyle is for text whose upper left corner is given.
func textStyle(size float64) draw.TextStyle {
	return draw.TextStyle{
		Color: color.Black, Font: font.From(figureFont, vg.Points(size)), XAlign: draw.XLeft, YAlign: draw.YTop,
		Handler: text.Plain{Fonts: font.DefaultCache},
	}
}

// precisionTicks are the marks of the axis of nines. The last one includes all larger values.
func precisionTicks() (ticks []plot.Tick) {
	for _, p := range []float64{0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999} {
		ticks = append(ticks, plot.Tick{Value: nines(p), Label: strconv.FormatFloat(p, 'g', -1, 64)})
	}
	return append(ticks, plot.Tick{Value: mostNines, Label: "1"})
}

// logTicks are 1, 2 and 5 times powers of 10, in an axis of powers of 10.
func logTicks(lo, hi float64, unit string) (ticks []plot.Tick) {
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); math.Log10(v) >= lo && math.Log10(v) <= hi {
				ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: strconv.FormatFloat(v, 'f', max(0, -int(e)), 64) + unit})
			}
		}
	}
	return ticks
}
