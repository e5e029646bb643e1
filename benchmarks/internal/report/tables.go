package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// table is one table of the report. The first text columns are words, the others numbers.
type table struct {
	title string
	note  string
	head  []string
	text  int
	rows  [][]string
	best  []int // rows to stress

	picture, alt string // the name of a picture, without its suffix, and its text
}

// none is printed for a figure that was not measured, or that the paper does not give.
const none = "–"

func times(x float64) string {
	switch {
	case x >= 99.5:
		return fmt.Sprintf("%.0fx", x)
	case x >= 9.95:
		return fmt.Sprintf("%.1fx", x)
	}
	return fmt.Sprintf("%.2fx", x)
}

func micros(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func share(p float64) string { return fmt.Sprintf("%.4f", p) }

// thousands writes n with commas.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size is a number of bytes for people.
func size(bytes int64) string {
	const mib = 1 << 20
	switch b := float64(bytes); {
	case bytes == 0:
		return "0"
	case b >= 0.95*mib:
		return fmt.Sprintf("%.1f MiB", b/mib)
	default:
		return fmt.Sprintf("%.0f KiB", math.Ceil(b/1024))
	}
}

func seconds(s float64) string {
	switch {
	case s >= 10:
		return fmt.Sprintf("%.0f s", s)
	case s >= 0.1:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f ms", 1000*s)
}

// given returns the parameters of construction and query.
func given(p points.Point) string { return strings.TrimSpace(p.Build + " " + p.Query) }

// spread is a speedup with its quartiles.
func spread(median, q1, q3 float64) string {
	return fmt.Sprintf("%s (%s–%s)", times(median), strings.TrimSuffix(times(q1), "x"), strings.TrimSuffix(times(q3), "x"))
}

func tableOne(f *points.File) table {
	paper, own := paperOf(f.Layer.Name)
	t := table{
		title: "Table 1: speedup and precision",
		note: "Each row is the measured point with P@1 and P@5 closest to the paper's values for the method, or for its L2S, in nines, -log10(1-P). " +
			"The speedup is over the dense float32 scan, with quartiles. Memory includes the int8 codes of W. The paper measured with numpy, on another machine. " +
			"Its PCA-MIPS and LSH-MIPS transform contexts and labels differently; here both get the same transform, so these rows are closest to L2S too.",
		head: []string{"method", "parameters", "speedup", "P@1", "P@5", "µs", "memory", "build", "paper: speedup", "P@1", "P@5"},
		text: 2,
	}
	if !own {
		t.note += " The paper has no such layer: its figures are for " + paper.name + "."
	}
	names, of := byMethod(f)
	for _, name := range names {
		said, has := paper.methods[name]
		target := said
		if !has || name == pca || name == lsh {
			target = paper.methods[l2s]
		}
		p := closest(of[name], target)
		row := []string{name, given(p), spread(p.Speedup, p.SpeedupQ1, p.SpeedupQ3), share(p.P1), share(p.P5), micros(p.Micros), size(p.Bytes), seconds(p.BuildSeconds)}
		if has {
			row = append(row, fmt.Sprintf("%gx", said.speedup), fmt.Sprintf("%.3f", said.p1), fmt.Sprintf("%.3f", said.p5))
		} else {
			row = append(row, none, none, none)
		}
		if name == decided {
			t.best = append(t.best, len(t.rows))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// Levels are the P@5 at which methods are compared with each other.
var Levels = []float64{0.90, 0.95, 0.98, 0.99, 0.995}

// aim is the P@5 from which screens must be ahead.
const aim = 0.98

func tableEqual(f *points.File) table {
	t := table{
		title: "Speedup at equal precision",
		note:  "The fastest point of each method with at least this P@5. " + standardError(f) + " " + verdict(f),
		head:  []string{"method"}, text: 1,
	}
	t.atLevels(f, fastest, func(p points.Point) string { return times(p.Speedup) })
	return t
}

// atLevels adds a column for each level and a row for each method, with the text of cell for the
// point that best returns.
func (t *table) atLevels(f *points.File, best func([]points.Point, float64) (points.Point, bool), cell func(points.Point) string) {
	for _, least := range Levels {
		t.head = append(t.head, fmt.Sprintf("P@5 ≥ %g", least))
	}
	names, of := byMethod(f)
	for _, name := range names {
		row := []string{name}
		for _, least := range Levels {
			if p, ok := best(of[name], least); ok {
				row = append(row, cell(p))
			} else {
				row = append(row, none)
			}
		}
		if name == decided {
			t.best = append(t.best, len(t.rows))
		}
		t.rows = append(t.rows, row)
	}
}

func tableCold(f *points.File) (table, bool) {
	t := table{
		title: "Cold caches",
		note: fmt.Sprintf("Microseconds per query, and the speedup over the dense scan, after a read of %d MiB of other memory. "+
			"The table above has the settings. Medians of %d rounds of %d queries.", f.ColdMiB, f.ColdRounds, f.TurnContexts),
		head: []string{"method"}, text: 1,
	}
	t.atLevels(f, fastestCold, func(p points.Point) string {
		return fmt.Sprintf("%s (%s)", micros(p.Cold.Micros), times(p.Cold.Speedup))
	})
	return t, f.ColdRounds > 0
}

// standardError describes the uncertainty of the choice by precision. The hits of a context are
// between 0 and k, so that their variance is at most the variance of hits that come all together,
// and k times less if they are independent.
func standardError(f *points.File) string {
	n, k := float64(f.PrecisionContexts), float64(f.K)
	if n == 0 || k == 0 {
		return ""
	}
	most := math.Sqrt(aim * (1 - aim) / n)
	return fmt.Sprintf("The same %s contexts choose and measure a point: the standard error of a P@5 of %g is %.4f to %.4f.",
		thousands(f.PrecisionContexts), aim, most/math.Sqrt(k), most)
}

// verdict tells whether a screen is ahead of all other methods at each precision.
func verdict(f *points.File) string {
	var ours, others []points.Point
	for _, p := range f.Of(points.Curves) {
		if screened(p.Method) {
			ours = append(ours, p)
		} else {
			others = append(others, p)
		}
	}
	var ahead, behind []string
	for _, least := range Levels {
		if least < aim {
			continue
		}
		a, haveA := fastest(ours, least)
		b, haveB := fastest(others, least)
		switch {
		case !haveA && !haveB:
		case !haveA:
			behind = append(behind, fmt.Sprintf("none reaches P@5 %g, where %s has %s", least, b.Method, times(b.Speedup)))
		case !haveB:
			ahead = append(ahead, fmt.Sprintf("%s (%s) at P@5 ≥ %g, which no other method reaches", times(a.Speedup), a.Method, least))
		case a.Speedup > b.Speedup:
			ahead = append(ahead, fmt.Sprintf("%s (%s) at P@5 ≥ %g, where %s has %s", times(a.Speedup), a.Method, least, b.Method, times(b.Speedup)))
		default:
			behind = append(behind, fmt.Sprintf("%s (%s) at P@5 ≥ %g, where %s has %s", times(a.Speedup), a.Method, least, b.Method, times(b.Speedup)))
		}
	}
	var s []string
	if len(ahead) > 0 {
		s = append(s, "Screens are ahead of every other method: "+strings.Join(ahead, "; ")+".")
	}
	if len(behind) > 0 {
		s = append(s, "Screens are not ahead: "+strings.Join(behind, "; ")+".")
	}
	return strings.Join(s, " ")
}

func tableClusters(f *points.File) (table, bool) {
	list := f.Of(points.Clusters)
	slices.SortStableFunc(list, func(a, b points.Point) int {
		return cmp.Or(cmp.Compare(a.Clusters, b.Clusters), cmp.Compare(a.Budget, b.Budget))
	})
	t := table{
		title: "Numbers of clusters",
		note:  "Learned clusters by the paper's estimator. A query scans about the same number of rows in each: cluster vectors and candidates.",
		head:  []string{"clusters r", "budget", "mean candidates", "rows scanned", "µs", "speedup", "P@1", "P@5", "paper: ms", "P@1", "P@5"},
	}
	for _, p := range list {
		row := []string{fmt.Sprint(p.Clusters), fmt.Sprintf("%g", p.Budget), fmt.Sprintf("%.1f", p.MeanCandidates), fmt.Sprintf("%.0f", p.RowsScanned),
			micros(p.Micros), times(p.Speedup), share(p.P1), share(p.P5)}
		if said, ok := paperClusters[p.Clusters]; ok {
			row = append(row, fmt.Sprintf("%.2f", said[0]), fmt.Sprintf("%.3f", said[1]), fmt.Sprintf("%.3f", said[2]))
		} else {
			row = append(row, none, none, none)
		}
		t.rows = append(t.rows, row)
	}
	return t, len(list) > 0
}

func tableKMeans(f *points.File) (table, bool) {
	list := f.Of(points.KMeans)
	slices.SortStableFunc(list, func(a, b points.Point) int {
		return cmp.Or(cmp.Compare(a.Clusters, b.Clusters), cmp.Compare(a.Budget, b.Budget))
	})
	paper, own := paperOf(f.Layer.Name)
	t := table{
		title: "Learned clusters against spherical k-means",
		note: fmt.Sprintf("The gain from learning, at equal clusters and budgets. The paper (%s): L2S %s, k-means %s.",
			paper.name, inWords(paper.methods[l2s]), inWords(paper.methods[kmeans])),
		head: []string{"clusters", "budget", "method", "mean candidates", "µs", "speedup", "P@1", "P@5"}, text: 0,
	}
	if !own {
		t.note += " It has no such layer."
	}
	for _, p := range list {
		if p.Clusters != list[0].Clusters { // the fewest clusters are shown: more clusters give more similar rows
			continue
		}
		if p.Method != kmeans {
			t.best = append(t.best, len(t.rows))
		}
		t.rows = append(t.rows, []string{fmt.Sprint(p.Clusters), fmt.Sprintf("%g", p.Budget), p.Method, fmt.Sprintf("%.1f", p.MeanCandidates), micros(p.Micros), times(p.Speedup), share(p.P1), share(p.P5)})
	}
	return t, len(list) > 0
}

func inWords(x figures) string {
	return fmt.Sprintf("%gx at P@1 %.3f, P@5 %.3f", x.speedup, x.p1, x.p5)
}

func tablePerplexity(f *points.File) (table, bool) {
	paper, _ := paperOf(f.Layer.Name)
	t := table{
		title: "Perplexity",
		note: fmt.Sprintf("%s, %s words. Logits of found labels are exact. All others have a low-rank logit, or one common weight from the tail of the screen. "+
			"The speedup is over the dense float32 scan with log-sum-exp. The paper's figures are for %s.",
			f.Text, thousands(f.Tokens), paper.name),
		head: []string{"method", "parameters", "rank", "perplexity", "µs a word", "speedup", "paper: perplexity", "speedup"}, text: 2,
	}
	for i, p := range f.Perplexity {
		rank := none
		if p.Rank > 0 {
			rank = fmt.Sprint(p.Rank)
		}
		row := []string{p.Method, p.Params, rank, fmt.Sprintf("%.2f", p.Perplexity), micros(p.Micros), spread(p.Speedup, p.SpeedupQ1, p.SpeedupQ3)}
		name := p.Method
		switch {
		case i == 0:
			name = original // the row that all speedups are to
		case name == decided:
			name = l2s
		}
		if said, ok := paper.perplexity[name]; ok {
			row = append(row, fmt.Sprintf("%.2f", said[0]), fmt.Sprintf("%gx", said[1]))
		} else {
			row = append(row, none, none)
		}
		if screened(name) {
			t.best = append(t.best, len(t.rows))
		}
		t.rows = append(t.rows, row)
	}
	return t, len(t.rows) > 0
}

// tables returns those tables for which there are points.
func tables(f *points.File) []table {
	all := []table{tableOne(f), tableEqual(f)}
	for _, make := range []func(*points.File) (table, bool){tableCold, tableClusters, tableKMeans, tablePerplexity} {
		if t, ok := make(f); ok {
			all = append(all, t)
		}
	}
	return all
}

// title of the report.
func title(f *points.File) string {
	return fmt.Sprintf("Comparison on %s, %s x %s", f.Layer.Name, thousands(f.Layer.Labels), thousands(f.Layer.Dim))
}

// measured describes the machine, the data and the method of the measurement, in a paragraph each.
func measured(f *points.File) []string {
	m := f.Machine
	s := []string{
		fmt.Sprintf("Layer: %s, %s labels, dimension %s. Machine: %s, cores: %d, %s/%s, %s, kernels at level %s.",
			f.Layer.Name, thousands(f.Layer.Labels), thousands(f.Layer.Dim), m.CPU, m.Cores, m.OS, m.Arch, m.Go, f.Level),
		fmt.Sprintf("Times are of top-%d queries on one thread: %d rounds, methods in random order, turns of at least %d of %s contexts. "+
			"A time is the median over rounds, a speedup the median ratio to the dense scan of the same round. P@k is over %s contexts. "+
			"Methods learned from %s other contexts; their labels took %s, not included in build times.",
			f.K, f.Rounds, f.TurnContexts, thousands(f.TestContexts), thousands(f.PrecisionContexts), thousands(f.TrainContexts), seconds(f.LabelSeconds)),
		fmt.Sprintf("Sweep %s, seed %d, %s in all.", f.Sweep, f.Seed, time.Duration(f.Seconds*1e9).Round(time.Second)),
	}
	if !f.Complete {
		s = append(s, "The run was interrupted: settings are missing, or have fewer rounds than others.")
	}
	return s
}
