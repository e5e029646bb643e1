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
}

// spare are the styles of other methods, such as the exact ones, which are a
// point each.
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

// drawFigure draws P@k against speedup in the format svg or png.
func drawFigure(w io.Writer, format string, f *points.File, k int) error {
	precision := p1
	if k == 5 {
		precision = p5
	}
	names, of := byMethod(f)
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "speedup over the dense float32 scan (log scale)", fmt.Sprintf("P@%d (scale: number of nines)", k)
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
	fast, slow := 1.0, 1.0
	listed := legendOrder(names, of)
	for _, name := range listed {
		s, ok := styles[name]
		if !ok {
			s = spare[spares%len(spare)]
			spares++
		}
		looks[name] = s
	}
	for _, name := range slices.Backward(listed) { // the best on top
		line := front(of[name], precision)
		var xys plotter.XYs
		for _, q := range line {
			xys = append(xys, plotter.XY{X: math.Log10(q.Speedup), Y: nines(precision(q))})
			fast, slow = max(fast, q.Speedup), min(slow, q.Speedup)
		}
		l, marks, err := plotter.NewLinePoints(xys)
		if err != nil {
			return fmt.Errorf("report: %s: %w", name, err)
		}
		l.LineStyle = lineStyle(looks[name])
		marks.GlyphStyle = glyphStyle(looks[name])
		p.Add(l, marks)
	}
	// The axis is in powers of 10: plot.LogScale would take room for a label that
	// is centred on the speedup in the middle.
	p.X.Min, p.X.Max = math.Log10(slow/1.2), math.Log10(fast*1.2)
	p.X.Tick.Marker = plot.TickerFunc(speedupTicks)
	p.Y.Min, p.Y.Max = 0, mostNines+0.15
	p.Y.Tick.Marker = plot.TickerFunc(func(_, _ float64) []plot.Tick { return precisionTicks() })

	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if format == "svg" {
		canvas = vgsvg.New(figureWidth, figureHeight)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(figureWidth, figureHeight), vgimg.UseDPI(figureDPI))}
	}
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	axes := draw.Crop(dc, margin, -legendWidth-2*margin, margin, -headHeight)
	p.Draw(axes)
	top := dc.Max.Y - margin
	dc.FillText(textStyle(14), vg.Point{X: 2 * margin, Y: top}, fmt.Sprintf("P@%d against speedup: %s, %s labels, dimension %s",
		k, f.Layer.Name, thousands(f.Layer.Labels), thousands(f.Layer.Dim)))
	dc.FillText(textStyle(10), vg.Point{X: 2 * margin, Y: top - 0.25*vg.Inch}, fmt.Sprintf(
		"Pareto front of each method's settings; one thread, level %s, %s", f.Level, f.Machine.CPU))
	x, y := dc.Max.X-legendWidth, dc.Max.Y-headHeight-0.1*vg.Inch
	for i, name := range listed {
		at := y - vg.Length(i)*legendStep
		middle := at - vg.Points(5.5)
		if len(front(of[name], precision)) > 1 {
			dc.StrokeLine2(lineStyle(looks[name]), x, middle, x+0.48*vg.Inch, middle)
		}
		dc.DrawGlyph(glyphStyle(looks[name]), vg.Point{X: x + 0.24*vg.Inch, Y: middle})
		dc.FillText(textStyle(10.5), vg.Point{X: x + 0.57*vg.Inch, Y: at}, name)
	}
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

// speedupTicks are 1, 2 and 5 times powers of 10, in an axis of powers of 10.
func speedupTicks(lo, hi float64) (ticks []plot.Tick) {
	for e := math.Floor(lo); e <= hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); math.Log10(v) >= lo && math.Log10(v) <= hi {
				ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: strconv.FormatFloat(v, 'f', max(0, -int(e)), 64) + "x"})
			}
		}
	}
	return ticks
}
