package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// Translation is Table 2 of the paper for a translation model: its heads, dense float32 first.
type Translation struct {
	Model, Level string
	Machine      points.Machine
	Labels, Dim  int
	Heads        []Head
	Rivals       []Rival
	Note         string
}

// Widths are the widths of the beam.
var Widths = [2]int{1, 5}

// Head is a way to find the best labels, with its figures for each width of the beam.
type Head struct {
	Name    string
	P1      float64    // of the steps of greedy decoding
	Labels  float64    // that it looks at with all codes, on average
	Micros  [2]float64 // of a context
	Speedup [2]float64 // over dense float32 in the same rounds
	Same    [2]float64 // share of the sentences that have the text of all logits
	ChrF    [2]float64 // against that text
	Words   [2]float64 // of the source, for each second of the whole translation
}

// Rival is another program that translates with the same model or one of its kind.
type Rival struct {
	Name  string
	Words float64
	ChrF  float64 // against the text of all logits, greedy
}

// Save writes it to a file in JSON.
func (t *Translation) Save(path string) error {
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(t)
	})
}

// TranslationSummary writes the table as text.
func TranslationSummary(w io.Writer, t *Translation) error {
	heads := t.table()
	return heads.plain(w)
}

// tables returns Table 2, and the table of other programs.
func (t *Translation) tables() []table {
	list := []table{t.table()}
	if len(t.Rivals) > 0 {
		r := table{title: "Other programs", note: "The same sentences, one thread, greedy, each program as it comes.", head: []string{"program", "words/s", "chrF"}, text: 1}
		for _, x := range t.Rivals {
			r.rows = append(r.rows, []string{x.Name, fmt.Sprintf("%.0f", x.Words), fmt.Sprintf("%.2f", x.ChrF)})
		}
		list = append(list, r)
	}
	return list
}

func (t *Translation) table() table {
	m := t.Machine
	x := table{
		title: "Table 2: heads of a translator",
		note:  fmt.Sprintf("%s labels, dimension %s. %s, %d cores, %s, level %s. %s", thousands(t.Labels), thousands(t.Dim), m.CPU, m.Cores, m.Go, t.Level, t.Note),
		head:  []string{"head", "labels", "P@1"}, text: 1,
		picture: "translate", alt: "P@1 against speedup, with the paper's translation",
	}
	for _, width := range Widths {
		x.head = append(x.head, fmt.Sprintf("beam %d: µs", width), "speedup", "same text", "chrF", "words/s")
	}
	for _, h := range t.Heads {
		row := []string{h.Name, thousands(int(h.Labels + .5)), share(h.P1)}
		for i := range Widths {
			row = append(row, micros(h.Micros[i]), times(h.Speedup[i]), fmt.Sprintf("%.1f %%", 100*h.Same[i]), fmt.Sprintf("%.2f", h.ChrF[i]), fmt.Sprintf("%.0f", h.Words[i]))
		}
		x.rows = append(x.rows, row)
	}
	return x
}

// chart is P@1 against speedup, beside the paper's figures for translation.
func (t *Translation) chart() chart {
	c := chart{
		numbered: true,
		title:    "P@1 against speedup: " + t.Model + ", and the paper's translation",
		note:     fmt.Sprintf("greedy, one thread, level %s, %s; the paper's points are from Table 1, on its machine", t.Level, t.Machine.CPU),
		x:        "speedup over the dense float32 scan", y: "P@1", unit: "x",
	}
	for _, h := range t.Heads {
		if n := len(c.lines); n > 0 && c.lines[n-1].name == h.Name {
			c.lines[n-1].points = append(c.lines[n-1].points, xy{h.Speedup[0], h.P1})
			continue
		}
		c.lines = append(c.lines, line{h.Name, []xy{{h.Speedup[0], h.P1}}})
	}
	paper, _ := paperOf("NMT: DE-EN")
	for _, name := range order {
		if f, ok := paper.methods[name]; ok && f.p1 > .9 {
			c.lines = append(c.lines, line{"paper: " + name, []xy{{f.speedup, f.p1}}})
		}
	}
	return c
}
