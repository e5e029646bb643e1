// Package report turns the points of a comparison into a report for people: the tables and figures
// of the paper, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural
// Networks", with the paper's figures next to the measured ones.
package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// Write writes the report of f into the folder dir, which it makes where it is not there:
//
//   - REPORT.md, the tables with links to the figures;
//   - p1.svg, p1.png, p5.svg and p5.png, precision against speedup.
//
// It returns an error where f has no curve, or where a file cannot be written.
func Write(dir string, f *points.File) error {
	if len(f.Of(points.Curves)) == 0 {
		return fmt.Errorf("report: found no points of the curves, expected some")
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		"REPORT.md": func(w io.Writer) error { return writeMarkdown(w, f) },
		"p1.svg":    func(w io.Writer) error { return figure(f, 1).draw(w, "svg") },
		"p1.png":    func(w io.Writer) error { return figure(f, 1).draw(w, "png") },
		"p5.svg":    func(w io.Writer) error { return figure(f, 5).draw(w, "svg") },
		"p5.png":    func(w io.Writer) error { return figure(f, 5).draw(w, "png") },
	} {
		if err := writeFile(filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	out, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := write(out); err != nil {
		return err
	}
	return out.Commit()
}

// Summary writes the table of the speedups at equal precision as text.
func Summary(w io.Writer, f *points.File) error {
	t := tableEqual(f)
	return t.plain(w)
}

func writeMarkdown(w io.Writer, f *points.File) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", title(f))
	for _, s := range measured(f) {
		fmt.Fprintf(&b, "%s\n\n", s)
	}
	b.WriteString("![P@5 against speedup](p5.png)\n\n![P@1 against speedup](p1.png)\n")
	return markdown(w, &b, tables(f))
}

// plain writes the note and the rows.
func (t *table) plain(w io.Writer) error {
	b := bytes.NewBufferString(t.note + "\n\n")
	t.markdown(b)
	_, err := b.WriteTo(w)
	return err
}

// markdown writes what b has, and the tables after it.
func markdown(w io.Writer, b *bytes.Buffer, tables []table) error {
	for _, t := range tables {
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n", t.title, t.note)
		t.markdown(b)
	}
	_, err := b.WriteTo(w)
	return err
}

func (t *table) markdown(b *bytes.Buffer) {
	line := func(cells []string, stress bool) {
		for _, c := range cells {
			c = strings.ReplaceAll(c, "|", "\\|")
			if stress && c != none && c != "" {
				c = "**" + c + "**"
			}
			fmt.Fprintf(b, "| %s ", c)
		}
		b.WriteString("|\n")
	}
	line(t.head, false)
	for i := range t.head {
		if i < t.text {
			b.WriteString("|---")
		} else {
			b.WriteString("|---:")
		}
	}
	b.WriteString("|\n")
	for i, row := range t.rows {
		line(row, t.stressed(i))
	}
}

func (t *table) stressed(row int) bool {
	for _, i := range t.best {
		if i == row {
			return true
		}
	}
	return false
}
