package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train"
)

// inspectResult is the JSON of l2s inspect.
type inspectResult struct {
	screenResult
	File             string          `json:"file"`
	Bytes            int64           `json:"bytes"`
	Fingerprint      string          `json:"fingerprint"` // of the layer, hex; empty if the screen fits any layer
	Always           []uint32        `json:"always"`      // rows, or labels with --ids
	Shells           []float64       `json:"shells"`      // the cosines that cut clusters
	Lists            listSizes       `json:"lists"`
	TailTemperatures []float64       `json:"tail_temperatures,omitempty"`
	Record           json.RawMessage `json:"record"`
}

// listSizes are the numbers of candidates of the cells within the budget, each cell counted
// once, and of the labels that any has at any budget.
type listSizes struct {
	Cells  int     `json:"cells"`
	Min    int     `json:"min"`
	Median float64 `json:"median"`
	Max    int     `json:"max"`
	Mean   float64 `json:"mean"`
	Labels int     `json:"labels"`
}

func inspectVerb(f *flags) action {
	f.screen = true
	source := f.text("ids")
	f.before = func(context.Context) error {
		kind := ""
		switch {
		case isModel(f.files[0]):
			kind = "model"
		case isPreview(f.files[0]):
			kind = "preview"
		}
		if f.screen = kind == ""; !f.screen && *source != "" {
			return f.wrongUse("--ids is for a screen, found the %s %s", kind, f.files[0])
		}
		return nil
	}
	return func(ctx context.Context, in *inputs) (fmt.Stringer, error) {
		if !f.screen {
			if isPreview(f.files[0]) {
				return inspectPreview(ctx, f.files[0])
			}
			return inspectModel(ctx, f.files[0])
		}
		m := in.screen
		info, err := os.Stat(in.path)
		if err != nil {
			return nil, err
		}
		c := m.Config()
		always := append([]uint32{}, c.Lists[0].IDs[:c.Always]...)
		if *source != "" {
			ids, err := loading(ctx, heads.ReadIDs, *source)
			if err != nil {
				return nil, err
			}
			if len(ids) != m.Labels() {
				return nil, fmt.Errorf("%s: found %d ids, expected %d, one per row of the layer of %s", *source, len(ids), m.Labels(), in.path)
			}
			for i, row := range always {
				always[i] = ids[row]
			}
		}
		r := inspectResult{
			screenResult: screenResultOf(m), File: in.path, Bytes: info.Size(), Always: always, Shells: append([]float64{}, c.Shells...), Lists: sizesOf(m),
			Record: m.Record(),
		}
		if t := m.Tail(); t != nil {
			r.TailTemperatures = t.Config().Temperatures
		}
		if fp := c.Fingerprint; fp != [32]byte{} {
			r.Fingerprint = hex.EncodeToString(fp[:])
		}
		return r, nil
	}
}

// isModel reports whether a source is a model for --head, and no screen: a folder, a tensor in a
// file, or a file whose name or first bytes show it.
func isModel(source string) bool {
	path, _, named := tensorfile.SplitSource(source)
	info, err := os.Stat(path)
	switch {
	case err != nil || named || info.IsDir():
		return named || err == nil
	case !info.Mode().IsRegular():
		return false
	case tensorfile.Extension(path) != "":
		return true
	}
	return begins(path, "GGUF")
}

// isPreview reports whether a file is a preview.
func isPreview(path string) bool { return begins(path, previewing.Magic) }

// begins reports whether path is a file, and no pipe, whose first bytes are magic.
func begins(path, magic string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	start, err := tensorfile.Start(path, len(magic))
	return err == nil && string(start) == magic
}

// explained is the error of a file that inspect took for a screen: if it is none, with a guess at
// its kind.
func explained(path string, err error) error {
	info, statErr := os.Stat(path)
	if statErr != nil || !info.Mode().IsRegular() || info.Size() == 0 || begins(path, screening.Magic) {
		return err
	}
	return fmt.Errorf("%w; l2s inspect takes a screen, a preview, or a model: a folder, a GGUF file, or a tensor", err)
}

// previewResult is the JSON of l2s inspect of a preview.
type previewResult struct {
	File        string            `json:"file"`
	Bytes       int64             `json:"bytes"`
	Labels      int               `json:"labels"`
	Dim         int               `json:"dim"`
	Fingerprint string            `json:"fingerprint"` // of the layer, hex
	HeldOut     int               `json:"held_out"`
	K           int               `json:"k"` // of precision_k
	Own         int               `json:"own_states"`
	Rungs       []previewing.Rung `json:"rungs"`
	Default     int               `json:"default"` // of the rungs
}

// inspectPreview shows the content of a preview.
func inspectPreview(ctx context.Context, path string) (fmt.Stringer, error) {
	x, err := loading(ctx, l2s.Load, path)
	if err != nil {
		return nil, err
	}
	return previewResultOf((*engine.Index)(x).Preview(), path)
}

// previewResultOf returns the result for the preview in a file.
func previewResultOf(m *previewing.Model, path string) (r previewResult, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return r, err
	}
	p := m.Parts()
	return previewResult{
		File: path, Bytes: info.Size(), Labels: p.Labels, Dim: p.Dim, Fingerprint: hex.EncodeToString(p.Fingerprint[:]),
		K: p.K, HeldOut: p.HeldOut, Own: p.Own, Rungs: p.Rungs, Default: p.Normal,
	}, nil
}

func (r previewResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "file       %s, a preview, %s bytes\nlabels     %s\ndimension  %d\nlayer      SHA-256 %s\nheld out   %s contexts\nown states %s\n\n", r.File, progress.Count(int(r.Bytes)), progress.Count(r.Labels), r.Dim, r.Fingerprint, progress.Count(r.HeldOut), progress.Count(r.Own))
	b.WriteString("looked: share of the labels that a query looks at; exact: share of contexts that the exact layer answers\n\n")
	fmt.Fprintf(&b, "%8s  %8s  %6s  %-25s %-25s own states\n", "budget", "looked", "exact", "P@1", fmt.Sprintf("P@%d", r.K))
	for i, x := range r.Rungs {
		of := func(e precision.Estimate) string { return fmt.Sprintf("%.4f (%.4f to %.4f)", e.Value, e.Low, e.High) }
		fmt.Fprintf(&b, "%8v  %7.1f%%  %5.1f%%  %s  %s  %s", x.Kept, 100*x.Looked, 100*x.Exact, of(x.Precision1), of(x.PrecisionK), of(x.Own))
		if i == r.Default {
			b.WriteString("  default")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// modelResult is the JSON of l2s inspect of a model.
type modelResult struct {
	Source     string   `json:"source"`
	File       string   `json:"file"`   // that has the rows
	Tensor     string   `json:"tensor"` // "" of a .npy file
	Labels     int      `json:"labels"`
	Dim        int      `json:"dim"`
	Type       string   `json:"type"`
	Tied       bool     `json:"tied"`
	Why        string   `json:"why"` // it is, or is not, tied
	Bias       string   `json:"bias"`
	Padding    int      `json:"padding"` // rows
	LogitScale float64  `json:"logit_scale"`
	StateScale float64  `json:"state_scale"`
	SoftCap    float64  `json:"soft_cap"` // 0 for none
	Contexts   string   `json:"contexts"` // the place at which a state is taken
	Specials   []uint32 `json:"specials"`
	Suppressed []uint32 `json:"suppressed"`
	Notes      []string `json:"notes"`
}

// inspectModel shows the parts of a model that --head uses.
func inspectModel(ctx context.Context, source string) (fmt.Stringer, error) {
	h, err := loading(ctx, func(source string) (*heads.Head, error) { return heads.Open(source, heads.Options{}) }, source)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	o := h.Origin()
	r := modelResult{
		Source: source, File: o.File, Tensor: o.Tensor, Labels: h.Labels(), Dim: h.Dim(), Type: h.Rows().Element().String(), Tied: o.Tied, Why: o.Why, Bias: o.Bias, Padding: o.Padding,
		LogitScale: h.LogitScale(), StateScale: h.StateScale(), SoftCap: h.SoftCap(), Contexts: o.State, Specials: []uint32{}, Suppressed: append([]uint32{}, h.Suppressed()...), Notes: append([]string{}, o.Notes...),
	}
	if ids, err := heads.Specials(source); err == nil { // a file of one tensor has none
		r.Specials = ids
	}
	return r, nil
}

func (r modelResult) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	ids := func(list []uint32) string {
		const most = 12
		switch n := len(list); {
		case n == 0:
			return "none"
		case n > most:
			return fmt.Sprintf("%s and %s more", strings.Trim(fmt.Sprint(list[:most]), "[]"), progress.Count(n-most))
		}
		return strings.Trim(fmt.Sprint(list), "[]")
	}
	tied, bias, soft := "no", "none", "no cap"
	if r.Tied {
		tied = "yes"
	}
	if r.Bias != "" {
		bias = tensorfile.Label(r.Bias)
	}
	if r.SoftCap > 0 {
		soft = fmt.Sprintf("the cap %g", r.SoftCap)
	}
	line("file", "%s", r.File)
	line("head", "%s", cmp.Or(tensorfile.Label(r.Tensor), "the array"))
	line("type", "%s, %s labels of %d numbers", r.Type, progress.Count(r.Labels), r.Dim)
	line("tied", "%s: %s", tied, r.Why)
	line("bias", "%s", bias)
	line("padding", "%s rows left out", progress.Count(r.Padding))
	line("scale", "of states %g before the head, of logits %g after it, then %s", r.StateScale, r.LogitScale, soft)
	line("contexts", "%s", r.Contexts)
	line("specials", "%s", ids(r.Specials))
	line("suppressed", "%s", ids(r.Suppressed))
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
	return b.String()
}

func sizesOf(m *screening.Model) listSizes {
	// The file bounds the number of candidates; the number of labels is a field of its header and
	// may be anything.
	var all []uint32
	n := m.Cells()
	sizes, total := make([]int, n), 0
	for cell := range sizes {
		list, err := m.Candidates(cell, m.Budget())
		must(err)
		sizes[cell] = len(list)
		total += len(list)
		all = append(all, m.List(cell).IDs...)
	}
	slices.Sort(sizes)
	slices.Sort(all)
	return listSizes{n, sizes[0], float64(sizes[(n-1)/2]+sizes[n/2]) / 2, sizes[n-1], float64(total) / float64(n), len(slices.Compact(all))}
}

func (r inspectResult) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("file", "%s, %s bytes", r.File, progress.Count(int(r.Bytes)))
	line("labels", "%s", progress.Count(r.Labels))
	line("dimension", "%d", r.Dim)
	line("clusters", "%d", r.Clusters)
	if r.Fingerprint == "" {
		line("layer", "any of this shape")
	} else {
		line("layer", "SHA-256 %s", r.Fingerprint)
	}
	if len(r.Shells) > 0 {
		line("shells", "contexts with a cosine below %s of their cluster's vector have candidates of their own", strings.ReplaceAll(strings.Trim(fmt.Sprintf("%.3g", r.Shells), "[]"), " ", " and "))
	}
	line("cells", "%s, each with a list; at budget %v with %d to %s candidates, %v in the median, %.1f on average over the cells", progress.Count(r.Lists.Cells), r.Budget, r.Lists.Min, progress.Count(r.Lists.Max), r.Lists.Median, r.Lists.Mean)
	line("lists", "hold %s of the %s labels; only the exact layer finds the others", progress.Count(r.Lists.Labels), progress.Count(r.Labels))
	if len(r.Always) > 0 {
		line("always", "%s", strings.Trim(fmt.Sprint(r.Always), "[]"))
	}
	if len(r.TailTemperatures) > 0 {
		line("tail", "for probabilities at temperatures %s", strings.Trim(fmt.Sprint(r.TailTemperatures), "[]"))
	}
	b.WriteString(trainingText(r.Record))
	if r.HeldOut == 0 {
		line("budget", "%v of %d", r.Budget, len(r.Ladder))
	}
	b.WriteString(r.ladderText())
	return b.String()
}

// trainingText describes how a screen was trained. A record that package train has not written is
// shown as it is.
func trainingText(raw json.RawMessage) string {
	var t train.Record
	if err := json.Unmarshal(raw, &t); err != nil || t.Contexts == 0 {
		if string(raw) == "{}" {
			return "training        no record\n"
		}
		return "training record " + string(raw) + "\n"
	}
	var b strings.Builder
	o := t.Options
	fmt.Fprintf(&b, "\ntraining        %s contexts, seed %d, k %d\n", progress.Count(t.Contexts), o.Seed, o.K)
	for _, d := range t.Decisions {
		fmt.Fprintf(&b, "                %s\n", d)
	}
	for _, w := range t.Warnings {
		fmt.Fprintf(&b, "                warning: %s\n", w)
	}
	if n := len(t.KMeans); n > 0 {
		fmt.Fprintf(&b, "k-means         %d iterations, mean cosine %.4f\n", n, t.KMeans[n-1].Objective)
	}
	if x := t.Learning; x != nil {
		fmt.Fprintf(&b, "learning        %s estimator, the vectors after %d of %d alternations\n", o.Learning.Estimator, x.Best, len(x.Alternations)-1)
	} else {
		b.WriteString("learning        none\n")
	}
	return b.String()
}
