package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// Page writes a page of figures, in Markdown: a section for each folder of measurements, with the tables
// of its files. Pictures go into the folders, as SVG and PNG. With the folder results the page begins
// with about.txt of it, and a picture of the tokens of all models goes there. A folder has some of
//
//   - about.txt, a title and what a reader has to know;
//   - points.json, of command compare;
//   - translation.json, of command translate;
//   - tokens.json, of l2s-llama bench --json;
//   - times-*.json, of l2s bench --cold 64 --json, one for each index;
//   - own.json, of l2s eval --own --json, for a preview;
//   - peers.tsv, of make real-peers.
//
// It returns an error where a folder has none of the files, or where one cannot be read or written.
func Page(path, results string, folders ...string) error {
	var b bytes.Buffer
	var err error
	if results != "" {
		about, err := os.ReadFile(filepath.Join(results, "about.txt"))
		if err != nil {
			return err
		}
		b.Write(about)
	}
	var models []tokens
	for _, folder := range folders {
		s := section{dir: folder}
		if s.link, err = relative(filepath.Dir(path), folder); err != nil {
			return err
		}
		if err := s.read(); err != nil {
			return err
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		s.write(&b)
		if s.bench != nil {
			models = append(models, tokens{s.title, s.bench.Rows})
		}
	}
	if results != "" && len(models) > 0 {
		if err := picture(filepath.Join(results, "token"), tokenPicture(models)); err != nil {
			return err
		}
	}
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		_, err := b.WriteTo(w)
		return err
	})
}

// relative returns the way from one folder to another.
func relative(from, to string) (way string, err error) {
	if from, err = filepath.Abs(from); err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// Folders returns the folders of results that have an about.txt, by name.
func Folders(results string) (folders []string) {
	files, _ := filepath.Glob(filepath.Join(results, "*", "about.txt")) // the pattern is well formed
	for _, f := range files {
		folders = append(folders, filepath.Dir(f))
	}
	return folders
}

// section is the part of a folder.
type section struct {
	dir, link string
	title     string
	text      []string // paragraphs
	tables    []table
	bench     *bench
}

func (s *section) read() error {
	about, err := os.ReadFile(filepath.Join(s.dir, "about.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	title, text, _ := strings.Cut(strings.TrimSpace(string(about)), "\n")
	s.title = strings.TrimPrefix(title, "# ")
	if text = strings.TrimSpace(text); text != "" {
		s.text = append(s.text, text)
	}
	for _, read := range []func() error{s.tokens, s.times, s.own, s.peers, s.translation, s.points} {
		if err := read(); err != nil {
			return err
		}
	}
	if s.title == "" {
		s.title = filepath.Base(s.dir)
	}
	if len(s.tables) == 0 {
		return fmt.Errorf("report: %s: found no measurements, expected points.json or another file of them", s.dir)
	}
	return nil
}

func (s *section) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "## %s\n", s.title)
	for _, t := range s.text {
		fmt.Fprintf(b, "\n%s\n", t)
	}
	for _, t := range s.tables {
		fmt.Fprintf(b, "\n### %s\n", t.title)
		if t.note != "" {
			fmt.Fprintf(b, "\n%s\n", t.note)
		}
		b.WriteString("\n")
		t.markdown(b)
		if t.picture != "" {
			fmt.Fprintf(b, "\n![%s](%s)\n", t.alt, filepath.ToSlash(filepath.Join(s.link, t.picture+".png")))
		}
	}
}

// parsed reads a file in JSON, if it is there.
func (s *section) parsed(name string, to any) (bool, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		return false, fmt.Errorf("report: %s: %w", filepath.Join(s.dir, name), err)
	}
	return true, nil
}

// points adds the tables and pictures of a comparison of methods.
func (s *section) points() error {
	var f points.File
	if ok, err := s.parsed("points.json", &f); !ok {
		return err
	}
	if len(f.Of(points.Curves)) == 0 {
		return fmt.Errorf("report: %s: found no points of the curves, expected some", s.dir)
	}
	if s.title == "" {
		s.title = title(&f)
	}
	for _, k := range []int{1, 5} {
		if err := picture(filepath.Join(s.dir, fmt.Sprintf("p%d", k)), figure(&f, k).draw); err != nil {
			return err
		}
	}
	list := tables(&f)
	list[0].note = strings.Join(append(measured(&f), list[0].note), "\n\n")
	for i, k := range []int{1, 5} {
		list[i].picture, list[i].alt = fmt.Sprintf("p%d", k), fmt.Sprintf("P@%d against speedup, one line for each method", k)
	}
	s.tables = append(s.tables, list...)
	return nil
}

// own adds what l2s eval measured.
func (s *section) own() error {
	var x struct {
		Precision  map[string]float64
		Looked     float64
		MeanScored float64 `json:"mean_scored"`
		Contexts   int
		Own        struct {
			Labels, States int
			Found          struct{ Value, Low, High float64 }
		}
	}
	if ok, err := s.parsed("own.json", &x); !ok {
		return err
	}
	s.tables = append(s.tables, table{
		title: "What the preview finds",
		note:  fmt.Sprintf("On states of a text that the making of the preview did not see, and on own states of labels (docs/how.md) that begin at these (`l2s eval --own %d`).", x.Own.Labels),
		head:  []string{"states of text", "P@1", "P@5", "share of labels looked at", "labels scored in full", "own states", "found"},
		rows: [][]string{{thousands(x.Contexts), share(x.Precision["1"]), share(x.Precision["5"]), fmt.Sprintf("%.1f %%", 100*x.Looked), fmt.Sprintf("%.0f", x.MeanScored),
			thousands(x.Own.States), fmt.Sprintf("%.4f (%.4f to %.4f)", x.Own.Found.Value, x.Own.Found.Low, x.Own.Found.High)}},
	})
	return nil
}

// times adds the times of single queries of the exact search and of indexes.
func (s *section) times() error {
	files, err := filepath.Glob(filepath.Join(s.dir, "times-*.json"))
	if err != nil || len(files) == 0 {
		return err
	}
	t := table{
		title: "The searches of one layer",
		head:  []string{"search", "warm: median, µs", "warm: 99th percentile", "after 64 MiB: median, µs", "after 64 MiB: 99th percentile", "warm, against exact", "after 64 MiB, against exact", "P@1", "P@5"}, text: 1,
	}
	for _, file := range files { // by name
		var x struct {
			CPU, Level, Kind string
			K, Queries       int
			Exact            float64 `json:"exact_median_us"`
			Exact99          float64 `json:"exact_p99_us"`
			Dense            float64 `json:"dense_f32_median_us"`
			Dense99          float64 `json:"dense_f32_p99_us"`
			Found            float64 `json:"screened_median_us"`
			Found99          float64 `json:"screened_p99_us"`
			Cold             []struct {
				Dense   float64 `json:"dense_f32_us"`
				Exact   float64 `json:"exact_us"`
				Found   float64 `json:"screened_us"`
				Found99 float64 `json:"screened_p99_us"`
			}
			Precision map[string]float64
			Contexts  int `json:"precision_contexts"`
		}
		if _, err := s.parsed(filepath.Base(file), &x); err != nil {
			return err
		}
		if len(x.Cold) != 1 {
			return fmt.Errorf("report: %s: found %d cold measurements, expected one", file, len(x.Cold))
		}
		cold := x.Cold[0]
		if !plausible(x.Exact, x.Found, cold.Exact, cold.Found) || len(t.rows) == 0 && !plausible(x.Dense, cold.Dense) {
			return fmt.Errorf("report: %s: found a time that no measurement has, or none", file)
		}
		if len(t.rows) == 0 {
			t.note = fmt.Sprintf("Top-%d, one thread, %s, level %s; medians of %s queries, in turns; P@k on %s contexts. `l2s bench --cold 64`", x.K, x.CPU, x.Level, thousands(x.Queries), thousands(x.Contexts))
			t.rows = append(t.rows,
				[]string{"dense float32", whole(x.Dense), whole(x.Dense99), whole(cold.Dense), none, times(x.Exact / x.Dense), times(cold.Exact / cold.Dense), share(1), share(1)},
				[]string{"exact", whole(x.Exact), whole(x.Exact99), whole(cold.Exact), none, times(1), times(1), share(1), share(1)})
		}
		t.rows = append(t.rows, []string{x.Kind, whole(x.Found), whole(x.Found99), whole(cold.Found), whole(cold.Found99), times(x.Exact / x.Found), times(cold.Exact / cold.Found), share(x.Precision["1"]), share(x.Precision[fmt.Sprint(x.K)])})
	}
	s.tables = append(s.tables, t)
	return nil
}

// plausible reports whether times or rates may be those of a measurement.
func plausible(list ...float64) bool {
	for _, x := range list {
		if !(x > 0 && x < 1e12) {
			return false
		}
	}
	return true
}

// whole is a number of microseconds, with a decimal below 100.
func whole(us float64) string {
	if us < 99.5 {
		return fmt.Sprintf("%.1f", us)
	}
	return thousands(int(us + .5))
}

// peers adds the table of libraries of nearest neighbours, and its picture.
func (s *section) peers() error {
	data, err := os.ReadFile(filepath.Join(s.dir, "peers.tsv"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	t := table{
		title: "Libraries of nearest neighbours",
		note: "Each by its own Python package, the best five of 500 states; indexes that learn do so from some thousand other states. One thread, CPU time; a batch has 64 states, and the figure is of one of them. " +
			"Building has all cores. Memory is what loading and searching take beside the rows; l2s counts pages of the file of a head that it maps. A P@1 of 1.0000 here is .994 at least, by 95% intervals. `make real-peers`",
		head: strings.Split(strings.NewReplacer("us", "µs", "99th", "99th percentile").Replace(lines[0]), "\t"), text: 2,
		picture: "peers", alt: "P@5 against the time of a query, one line for each library",
	}
	if len(t.head) < 5 {
		return fmt.Errorf("report: %s: found %d columns, expected method, setting, P@1, P@5, the median of microseconds, and any others", filepath.Join(s.dir, "peers.tsv"), len(t.head))
	}
	for _, l := range lines[1:] {
		row := strings.Split(l, "\t")
		if len(row) != len(t.head) {
			return fmt.Errorf("report: %s: found %d cells in %q, expected the %d of the head", filepath.Join(s.dir, "peers.tsv"), len(row), l, len(t.head))
		}
		if strings.HasSuffix(row[1], "the default") {
			t.best = append(t.best, len(t.rows))
		}
		t.rows = append(t.rows, row)
	}
	s.tables = append(s.tables, t)
	return picture(filepath.Join(s.dir, "peers"), peersPicture(s.title, t.rows))
}

// tokens adds the tokens per second of a model.
func (s *section) tokens() error {
	var x bench
	if ok, err := s.parsed("tokens.json", &x); !ok {
		return err
	}
	for _, r := range x.Rows {
		if !plausible(r.Microseconds, r.Tokens) {
			return fmt.Errorf("report: %s: the head %q at the task %q: found %v microseconds and %v tokens per second, expected numbers of a measurement", filepath.Join(s.dir, "tokens.json"), r.Head, r.Task, r.Microseconds, r.Tokens)
		}
	}
	s.bench = &x
	s.tables = append(s.tables, x.table())
	return nil
}

// translation adds Table 2 of the paper, and its picture.
func (s *section) translation() error {
	var x Translation
	if ok, err := s.parsed("translation.json", &x); !ok {
		return err
	}
	if s.title == "" {
		s.title = "Translation with " + x.Model
	}
	s.tables = append(s.tables, x.tables()...)
	c := x.chart()
	return picture(filepath.Join(s.dir, "translate"), c.draw)
}

// picture writes a picture as SVG and PNG.
func picture(path string, draw func(w io.Writer, format string) error) error {
	for _, format := range []string{"svg", "png"} {
		if err := atomicfile.WriteFile(path+"."+format, func(w io.Writer) error { return draw(w, format) }); err != nil {
			return err
		}
	}
	return nil
}
