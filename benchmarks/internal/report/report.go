// Package report turns measurements into a page for people: among others the tables and figures of
// the paper, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural
// Networks", with the paper's figures next to the measured ones.
package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// Summary writes the table of the speedups at equal precision as text.
func Summary(w io.Writer, f *points.File) error {
	t := tableEqual(f)
	return t.plain(w)
}

// plain writes the note and the rows.
func (t *table) plain(w io.Writer) error {
	b := bytes.NewBufferString(t.note + "\n\n")
	t.markdown(b)
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
