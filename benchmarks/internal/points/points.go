// Package points is the form in which a comparison of methods is kept: a JSON file with one point
// for each setting of each method. Command compare writes it, package report reads it.
package points

import (
	"encoding/json"
	"runtime"

	"github.com/klauspost/cpuid/v2"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

// Schema is the version of the form.
const Schema = 2

// The sweeps: the extents of a comparison.
const (
	Quick   = "quick"   // some settings of each method, within two minutes
	Reduced = "reduced" // the curves and tables, within ten minutes
	Full    = "full"    // finer sweeps, and training on all contexts
)

// The tables that points belong to.
const (
	// Curves is the precision-against-speedup curves, and Table 1 of the paper:
	// all points whose Table is empty.
	Curves = ""
	// Clusters is the table of r = 50, 100, 200, 250 learned clusters at a like number of rows
	// scanned (the paper's "Selection of the Number of Clusters").
	Clusters = "clusters"
	// KMeans is the table of spherical k-means against learned clusters, with the same number of
	// clusters and the same budget (the paper's appendix).
	KMeans = "kmeans"
)

// Dense is the Method of the dense float32 scan: the speedup of 1.
const Dense = "Dense float32"

// File is a comparison on one layer.
type File struct {
	Schema int `json:"schema"`
	// Sweep is Quick, Reduced or Full.
	Sweep string `json:"sweep"`
	// Complete is false where the run was interrupted: settings are missing,
	// or have fewer rounds than Rounds.
	Complete bool    `json:"complete"`
	Machine  Machine `json:"machine"`
	// Level is the level of package kernels: generic, avx2 or avx512.
	Level string `json:"level"`
	Layer Layer  `json:"layer"`
	// K is the number of labels of a query when times were taken.
	K    int    `json:"k"`
	Seed uint64 `json:"seed"`
	// TrainContexts is the number of contexts that the methods could learn from.
	TrainContexts int `json:"train_contexts"`
	// LabelSeconds is the time that their labels took. Screens and the
	// frequency head need them and share them; no BuildSeconds contains it.
	LabelSeconds float64 `json:"label_seconds"`
	// TestContexts is the number of different contexts that were timed.
	TestContexts int `json:"test_contexts"`
	// PrecisionContexts is the number of contexts, out of these, over which P@1 and P@5 are the
	// means.
	PrecisionContexts int `json:"precision_contexts"`
	// Rounds is the number of rounds in which each setting was timed.
	Rounds int `json:"rounds"`
	// ColdMiB is the number of MiB read before each query of Point.Cold, and ColdRounds the number
	// of rounds, of TurnContexts contexts each; 0 if these were not measured.
	ColdMiB    int `json:"cold_mib,omitempty"`
	ColdRounds int `json:"cold_rounds,omitempty"`
	// TurnContexts is the number of contexts that each setting answered at least in a round; faster
	// settings answered more.
	TurnContexts int `json:"turn_contexts"`
	// Seconds is the time of the whole run.
	Seconds float64 `json:"seconds"`
	Points  []Point `json:"points"`
	// Perplexity is the table of perplexities, empty where the layer has no text.
	Perplexity []Perplexity `json:"perplexity,omitempty"`
	// Text is the name of the text of Perplexity, and Tokens its length.
	Text   string `json:"text,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
}

// Machine is where a comparison ran.
type Machine struct {
	CPU   string `json:"cpu"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
}

// Layer is the softmax layer of a comparison.
type Layer struct {
	Name   string `json:"name"` // such as "PTB-Small"
	Labels int    `json:"labels"`
	Dim    int    `json:"dim"`
}

// Point is one setting of one method: a construction and its query-time parameters.
type Point struct {
	// Table is Curves, Clusters or KMeans.
	Table string `json:"table,omitempty"`
	// Method names the curve.
	Method string `json:"method"`
	// Build and Query are the parameters of the construction and of the query, either may be empty.
	Build string `json:"build,omitempty"`
	Query string `json:"query,omitempty"`
	// BuildSeconds is the time of the construction, on all cores.
	BuildSeconds float64 `json:"build_seconds"`
	// Bytes is the memory that queries read beyond W and b: the index, and, counted once, the int8
	// codes of W and b if the method reads them.
	Bytes int64 `json:"bytes"`
	Timing
	// P1 and P5 are P@1 and P@5 (Section 4 of the paper): the share of the
	// exact top-k that is among the k labels of the answer.
	P1 float64 `json:"p1"`
	P5 float64 `json:"p5"`

	// Cold is the time of a query after a read of other data, so that the caches hold only the
	// context. It is measured for the settings that are the fastest at a precision.
	Cold *Timing `json:"cold,omitempty"`

	// For screens only, 0 otherwise. Clusters is r, Budget is B, MeanCandidates is L-bar on the
	// test contexts, and RowsScanned the mean number of rows scanned in all: vectors of clusters,
	// and candidates.
	Clusters       int     `json:"clusters,omitempty"`
	Budget         float64 `json:"budget,omitempty"`
	MeanCandidates float64 `json:"mean_candidates,omitempty"`
	RowsScanned    float64 `json:"rows_scanned,omitempty"`
}

// Perplexity is one row of the table of perplexities (the paper's appendix): exact logits for the
// candidates of the method, low-rank logits outside.
type Perplexity struct {
	Method string `json:"method"`
	// Params are the parameters of construction and query.
	Params string `json:"params,omitempty"`
	// Rank is the rank of the tail outside the candidates, 0 if there is none.
	Rank       int     `json:"rank,omitempty"`
	Perplexity float64 `json:"perplexity"`
	// Timing is for the log-probability of one token, next to the exact row.
	Timing
}

// Timing is the time per context: the median over the rounds of the mean in a round, in
// microseconds, and the median of its speedup over the dense scan in the round, each with its
// quartiles.
type Timing struct {
	Micros    float64 `json:"us"`
	MicrosQ1  float64 `json:"us_q1"`
	MicrosQ3  float64 `json:"us_q3"`
	Speedup   float64 `json:"speedup"`
	SpeedupQ1 float64 `json:"speedup_q1"`
	SpeedupQ3 float64 `json:"speedup_q3"`
}

// Of returns the points of a table, in order.
func (f *File) Of(table string) []Point {
	var list []Point
	for _, p := range f.Points {
		if p.Table == table {
			list = append(list, p)
		}
	}
	return list
}

// Methods returns the methods of a table in the order of their first points.
func (f *File) Methods(table string) []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range f.Points {
		if p.Table == table && !seen[p.Method] {
			seen[p.Method] = true
			names = append(names, p.Method)
		}
	}
	return names
}

// Here returns the machine that the program runs on.
func Here() Machine {
	return Machine{CPU: cpuid.CPU.BrandName, OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
}

// Save writes the file to path, where it appears when it is complete.
func (f *File) Save(path string) error {
	out, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(f); err != nil {
		return err
	}
	return out.Commit()
}
