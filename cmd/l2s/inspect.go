package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// inspectResult is the JSON of l2s inspect.
type inspectResult struct {
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Clusters int    `json:"clusters"`
	Groups   int    `json:"groups"` // 0 on one level
	// Overlap is the mean number of groups that a cluster is in, if groups have
	// lists of clusters.
	Overlap     float64  `json:"overlap,omitempty"`
	Dim         int      `json:"dim"`
	Labels      int      `json:"labels"`
	Fingerprint string   `json:"fingerprint"` // of the layer, hex; empty where it goes with any
	Always      []uint32 `json:"always"`      // rows, or labels with --ids
	Sets        setSizes `json:"sets"`
	// Shells are the sizes of the sets in each shell, near ones first, if there are several.
	Shells []shellSizes `json:"shells,omitempty"`
	// Pairs are the sizes of the sets of pairs of clusters, if there are any.
	Pairs *pairSizes `json:"pairs,omitempty"`
	// TailTemperatures are the temperatures of the regression of the tail.
	TailTemperatures []float64       `json:"tail_temperatures,omitempty"`
	ProbeMargin      float64         `json:"probe_margin"` // 0: one cluster always
	ExactMargin      float64         `json:"exact_margin"` // 0: no exact answers for a small lead
	Record           json.RawMessage `json:"record"`
}

// setSizes are the sizes of the candidate sets, each cluster counted once.
type setSizes struct {
	Min    int     `json:"min"`
	Median float64 `json:"median"`
	Max    int     `json:"max"`
	Mean   float64 `json:"mean"`
	Empty  int     `json:"empty"`
	Union  int     `json:"union"` // labels that are in any set
}

// shellSizes are the cosine with their cluster that contexts of a shell are below, 1 for
// the first, and the sizes of its sets.
type shellSizes struct {
	Below float64 `json:"below"`
	Max   int     `json:"max"`
	Mean  float64 `json:"mean"`
}

func shellsOf(m *screen.Model) (list []shellSizes) {
	if len(m.Shells()) == 0 {
		return nil
	}
	for j, below := range append([]float64{1}, m.Shells()...) {
		s, ids := shellSizes{Below: below}, 0
		for t := range m.Clusters() {
			size := len(m.Candidates(j*m.Clusters() + t))
			ids += size
			s.Max = max(s.Max, size)
		}
		s.Mean = float64(ids) / float64(m.Clusters())
		list = append(list, s)
	}
	return list
}

// pairSizes are the number of pairs of clusters that have a candidate set, and the
// sizes of these.
type pairSizes struct {
	Count int     `json:"count"`
	Max   int     `json:"max"`
	Mean  float64 `json:"mean"`
}

func pairsOf(m *screen.Model) *pairSizes {
	pairs := m.Pairs()
	if len(pairs) == 0 {
		return nil
	}
	s, ids := &pairSizes{Count: len(pairs)}, 0
	for _, p := range pairs {
		ids += len(p.Set)
		s.Max = max(s.Max, len(p.Set))
	}
	s.Mean = float64(ids) / float64(len(pairs))
	return s
}

func runInspect(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("inspect", description{
		purpose: "Show what a screen file holds: its shape, the sizes of its candidate sets, and\nhow it was trained.",
		usage:   "m.l2s [flags]",
		notes: `A screen of a draft head holds rows of the head, not labels of the full vocabulary:
--ids, as it was given to l2s train, turns the ones that are shown into labels.`,
		example: "l2s inspect m.l2s",
	}, stdout, stderr)
	idsSource := f.text("ids", "show labels of the draft head with this list, a `SRC` of integers, instead of rows")
	f.json()
	var path string
	if err := f.parse(args, &path); err != nil {
		return err
	}
	m, err := loading(ctx, screen.Load, path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	always := append([]uint32{}, m.Always()...)
	if *idsSource != "" {
		ids, err := loading(ctx, head.ReadIDs, *idsSource)
		if err != nil {
			return err
		}
		if len(ids) != m.Labels() {
			return fmt.Errorf("%s: found %d ids, expected %d, one a row of the layer of %s", *idsSource, len(ids), m.Labels(), path)
		}
		for i, row := range always {
			always[i] = ids[row]
		}
	}
	r := inspectResult{
		File: path, Bytes: info.Size(), Clusters: m.Clusters(), Groups: m.Groups(), Overlap: overlapOf(m), Dim: m.Dim(), Labels: m.Labels(),
		Always: always, Sets: sizesOf(m), Shells: shellsOf(m), Pairs: pairsOf(m),
		ProbeMargin: m.ProbeMargin(), ExactMargin: m.ExactMargin(), Record: m.Record(),
	}
	if t := m.Regression(); t != nil {
		r.TailTemperatures = t.Config().Temperatures
	}
	if fp := m.Fingerprint(); fp != [32]byte{} {
		r.Fingerprint = hex.EncodeToString(fp[:])
	}
	return f.print(r)
}

// overlapOf returns the mean number of groups that a cluster of the screen is in, 0
// for a screen whose groups have no lists.
func overlapOf(m *screen.Model) float64 {
	return float64(len(m.GroupClusters())) / float64(m.Clusters())
}

func sizesOf(m *screen.Model) setSizes {
	s := setSizes{Mean: m.MeanSetSize()}
	// The candidates are as many as the file holds; the labels are a number in its
	// header, which may be any.
	var all []uint32
	sizes := make([]int, m.Clusters()*(1+len(m.Shells())))
	for t := range sizes {
		set := m.Candidates(t)
		all = append(all, set...)
		if sizes[t] = len(set); len(set) == 0 {
			s.Empty++
		}
	}
	slices.Sort(sizes)
	slices.Sort(all)
	n := len(sizes)
	s.Min, s.Max, s.Union = sizes[0], sizes[n-1], len(slices.Compact(all))
	s.Median = float64(sizes[(n-1)/2]+sizes[n/2]) / 2
	return s
}

func (r inspectResult) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("file", "%s, %s bytes", r.File, progress.Count(int(r.Bytes)))
	line("labels", "%s", progress.Count(r.Labels))
	line("dimension", "%d", r.Dim)
	switch {
	case r.Overlap > 0:
		line("clusters", "%d, each in %.2f of %d groups on average", r.Clusters, r.Overlap, r.Groups)
	case r.Groups > 0:
		line("clusters", "%d in %d groups", r.Clusters, r.Groups)
	default:
		line("clusters", "%d", r.Clusters)
	}
	if r.Fingerprint == "" {
		line("layer", "any of this shape")
	} else {
		line("layer", "SHA-256 %s", r.Fingerprint)
	}
	line("set sizes", "min %d, median %v, max %d, mean %.1f (each cluster counted once)", r.Sets.Min, r.Sets.Median, r.Sets.Max, r.Sets.Mean)
	if r.Sets.Empty > 0 {
		line("", "sets that are empty, where the exact layer answers: %d", r.Sets.Empty)
	}
	for j, s := range r.Shells {
		if j == 0 {
			line("shells", "contexts near their cluster: sets of %.1f on average, max %d", s.Mean, s.Max)
		} else {
			line("", "contexts with a cosine below %.3f: sets of %.1f on average, max %d", s.Below, s.Mean, s.Max)
		}
	}
	if p := r.Pairs; p != nil {
		line("pairs", "%s of clusters have a set of their own, of %.1f on average, max %d", progress.Count(p.Count), p.Mean, p.Max)
	}
	line("", "%s of %s labels are in a set", progress.Count(r.Sets.Union), progress.Count(r.Labels))
	if len(r.Always) > 0 {
		line("always", "%s", strings.Trim(fmt.Sprint(r.Always), "[]"))
	}
	if len(r.TailTemperatures) > 0 {
		line("tail", "by regression, for probabilities at temperatures %s", strings.Trim(fmt.Sprint(r.TailTemperatures), "[]"))
	}
	if r.ProbeMargin > 0 || r.ExactMargin > 0 {
		line("margins", "two clusters %s, the exact layer %s", marginText(r.ProbeMargin), marginText(r.ExactMargin))
	}
	var t struct{ Calibration *calibrate.Calibration }
	if err := json.Unmarshal(r.Record, &t); err == nil && t.Calibration != nil {
		line("calibrated", "%s", strings.TrimRight(calibrationText(t.Calibration), "\n"))
	}
	b.WriteString(trainingText(r.Record))
	return b.String()
}

// trainingText says how a screen was trained. A record that package train has not
// written is shown as it is.
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
	bound := ""
	if o.Largest > 0 {
		bound = fmt.Sprintf(", largest %d", o.Largest)
	}
	fmt.Fprintf(&b, "\ntraining        %s contexts, seed %d, budget %v%s, k %d, lambda %v, gamma %v\n",
		progress.Count(t.Contexts), o.Seed, o.Budget, bound, o.K, o.Lambda, o.Gamma)
	fmt.Fprintf(&b, "on them         %.1f candidates on average, %s\n", t.MeanCandidates, precisionText(o.K, t.Precision1, t.PrecisionK))
	if u := t.Unseen; u != nil {
		fmt.Fprintf(&b, "held-out        %.1f candidates on average, %s, of %s contexts\n",
			u.MeanCandidates, precisionText(o.K, u.Precision1, u.PrecisionK), progress.Count(u.Contexts))
	}
	if n := len(t.KMeans); n > 0 {
		fmt.Fprintf(&b, "k-means         %d iterations, mean cosine %.4f\n", n, t.KMeans[n-1].Objective)
	}
	if len(t.Alternations) == 0 {
		b.WriteString("learning        none\n")
		return b.String()
	}
	fmt.Fprintf(&b, "learning        %s estimator, %d alternations; on %s held-out contexts:\n\n",
		o.Estimator, len(t.Alternations)-1, progress.Count(t.HeldOut))
	fmt.Fprintf(&b, "  alternation        loss   candidates      P@1      P@%d\n", o.K)
	for i, a := range t.Alternations {
		name, loss, mark := fmt.Sprint(i), fmt.Sprintf("%.4f", a.Loss), ""
		if i == 0 {
			name, loss = "k-means", "-"
		}
		if i == t.Best {
			mark = "  kept"
		}
		fmt.Fprintf(&b, "  %-11s  %10s   %10.1f   %.4f   %.4f%s\n", name, loss, a.MeanCandidates, a.Precision1, a.PrecisionK, mark)
	}
	return b.String()
}
