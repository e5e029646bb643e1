package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageTable is a table as the page shows it.
type pageTable struct {
	Title, Note string
	Head        []pageCell
	Rows        []pageRow
}

type pageRow struct {
	Best  bool
	Cells []pageCell
}

type pageCell struct {
	Text   string
	Number bool
}

// writeHTML writes the page. The page needs no other files.
func writeHTML(w io.Writer, f *points.File) error {
	data := struct {
		Title    string
		Measured []string
		Figures  []template.HTML
		Tables   []pageTable
	}{Title: title(f), Measured: measured(f)}
	for _, k := range []int{5, 1} {
		var b bytes.Buffer
		spots, err := drawSpots(&b, "svg", f, k)
		if err != nil {
			return err
		}
		data.Figures = append(data.Figures, inline(b.Bytes(), fmt.Sprintf("P@%d against speedup", k), spots))
	}
	for _, t := range append(tables(f), tableAll(f)) {
		data.Tables = append(data.Tables, t.page())
	}
	return page.Execute(w, data)
}

var (
	svgHead  = regexp.MustCompile(`(?s)^.*?<svg[^>]*viewBox="([^"]*)"[^>]*>`)
	comments = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// inline returns a picture as an element of a page: it needs no declarations there, and takes the
// available width. A point shows its description under the pointer.
func inline(svg []byte, name string, spots []spot) template.HTML {
	svg = comments.ReplaceAll(svg, nil)
	head := fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="$1">`, template.HTMLEscapeString(name))
	var b strings.Builder
	for _, s := range spots {
		p := s.point
		text := fmt.Sprintf("%s\n%s\n%s, P@1 %s, P@5 %s", p.Method, given(p), times(p.Speedup), share(p.P1), share(p.P5))
		fmt.Fprintf(&b, `<circle class="spot" cx="%.1f" cy="%.1f" r="6"><title>%s</title></circle>`,
			float64(s.at.X), float64(figureHeight-s.at.Y), template.HTMLEscapeString(text))
	}
	svg = svgHead.ReplaceAll(svg, []byte(head))
	return template.HTML(bytes.Replace(svg, []byte("</svg>"), []byte(b.String()+"</svg>"), 1))
}

// tableAll is every point of the curves.
func tableAll(f *points.File) table {
	t := table{
		title: "All points", note: "Every setting measured for the figures.",
		head: []string{"method", "construction", "query", "speedup", "P@1", "P@5", "µs", "memory", "build"}, text: 3,
	}
	names, of := byMethod(f)
	for _, name := range names {
		for _, p := range of[name] {
			t.rows = append(t.rows, []string{name, p.Build, p.Query, times(p.Speedup), share(p.P1), share(p.P5), micros(p.Micros), size(p.Bytes), seconds(p.BuildSeconds)})
		}
	}
	return t
}

func (t *table) page() pageTable {
	cells := func(row []string) (list []pageCell) {
		for i, text := range row {
			list = append(list, pageCell{text, i >= t.text})
		}
		return list
	}
	p := pageTable{Title: t.title, Note: t.note, Head: cells(t.head)}
	for i, row := range t.rows {
		p.Rows = append(p.Rows, pageRow{t.stressed(i), cells(row)})
	}
	return p
}
