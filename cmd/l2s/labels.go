package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/train"
)

// labelsResult is the JSON of l2s labels and of l2s merge.
type labelsResult struct {
	Out      string  `json:"out"`
	K        int     `json:"k"`
	First    int     `json:"first"`    // the number of the first context in the file
	Contexts int     `json:"contexts"` // in the file
	Corpus   int     `json:"corpus"`   // all contexts
	Labels   int     `json:"labels"`
	Dim      int     `json:"dim"`
	Parts    int     `json:"parts,omitempty"` // files merged; 0 after l2s labels
	Seconds  float64 `json:"seconds"`
	Level    string  `json:"level"`
}

func newLabelsResult(out string, h labelfile.Header, parts int, start time.Time) labelsResult {
	return labelsResult{
		Out: out, K: h.K, First: h.First, Contexts: h.Count, Corpus: h.Total, Labels: h.Labels, Dim: h.Dim,
		Parts: parts, Seconds: round(time.Since(start).Seconds()), Level: kernels.Level(),
	}
}

func (r labelsResult) String() string {
	what := progress.Count(r.Contexts) + " contexts"
	if r.Contexts < r.Corpus {
		what = fmt.Sprintf("contexts %s to %s of %s", progress.Count(r.First), progress.Count(r.First+r.Contexts-1), progress.Count(r.Corpus))
	}
	return fmt.Sprintf("%s: the best %d labels of %s\n", r.Out, r.K, what)
}

// shard is part Index of Count parts of the contexts.
type shard struct{ Index, Count int }

func parseShard(s string) (shard, error) {
	index, count, _ := strings.Cut(s, "/")
	i, noIndex := parseWhole(index, 0)
	n, noCount := parseWhole(count, 1)
	if noIndex != nil || noCount != nil || i >= n {
		return shard{}, errors.New("expected i/n with 0 <= i < n")
	}
	return shard{i, n}, nil
}

// of returns the contexts of the shard, of n. Shards differ by one context at most, and none is
// empty if there are at least n contexts.
func (s shard) of(n int) (first, end int) {
	at := func(i int) int { return i*(n/s.Count) + i*(n%s.Count)/s.Count }
	return at(s.Index), at(s.Index + 1)
}

// labelBlock is the number of contexts that are labelled between two writes: it bounds the memory.
const labelBlock = 1 << 15

func labelsVerb(f *flags) action {
	start := time.Now()
	k := f.whole("k", train.DefaultOptions().K, 1)
	f.layerAndContexts(false, func() int { return *k })
	out := f.needs("out")
	part := custom(f, "shard", shard{0, 1}, parseShard)
	threads := f.threads()
	f.before = func(ctx context.Context) error {
		return checkOutputs(ctx, f, []cmdline.Output{{Flag: "--out", Path: *out}})
	}
	return func(ctx context.Context, in *inputs) (fmt.Stringer, error) {
		l, c, p := in.layer, in.contexts, f.progress
		n, dim := c.Len(), l.Dim()
		if n < part.Count {
			return nil, fmt.Errorf("%s: found %d contexts, expected at least one for each of %d shards", c.Name(), n, part.Count)
		}
		first, end := part.of(n)
		w, err := labelfile.Create(*out, labelfile.Header{
			K: *k, First: first, Count: end - first, Total: n, Labels: l.Labels(), Dim: dim, Fingerprint: l.Fingerprint(),
		})
		if err != nil {
			return nil, err
		}
		defer w.Abort()

		p.Start("labels", "contexts", end-first)
		block := make([]float32, min(labelBlock, end-first)*dim)
		for at := first; at < end; at += labelBlock {
			rows := block[:min(labelBlock, end-at)*dim]
			if err := c.Read(rows, at); err != nil {
				return nil, err
			}
			digest, err := labelfile.DigestOf(ctx, kernels.Float32Rows(rows, dim), at, *threads)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name(), err)
			}
			labels, err := train.Labels(ctx, l.Layer, rows, *k, train.RunOptions{
				Threads: *threads, Progress: func(r train.Progress) { p.Set(at - first + r.Done) },
			})
			if err != nil {
				return nil, err
			}
			if err := w.Write(labels, digest); err != nil {
				return nil, err
			}
		}
		if err := w.Commit(); err != nil {
			return nil, err
		}
		p.End()
		return newLabelsResult(*out, w.Header(), 0, start), nil
	}
}

func mergeVerb(f *flags) action {
	start := time.Now()
	f.parts = true
	out := f.needs("out")
	f.before = func(ctx context.Context) error {
		return checkOutputs(ctx, f, []cmdline.Output{{Flag: "--out", Path: *out}})
	}
	return func(ctx context.Context, _ *inputs) (fmt.Stringer, error) {
		f.progress.Start("merge", "contexts", 0)
		h, err := labelfile.Merge(ctx, *out, f.files, f.progress.Set)
		if err != nil {
			return nil, err
		}
		f.progress.End()
		return newLabelsResult(*out, h, len(f.files), start), nil
	}
}

// readLabels reads the labels at path, which must be the best k of all of the contexts by the
// layer.
func readLabels(ctx context.Context, path string, in *inputs, k, threads int, p *progress.Printer) ([]uint32, error) {
	f, err := labelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := in.layer.own(path, "the labels are of", f.Dim, f.Labels, f.Fingerprint); err != nil {
		return nil, err
	}
	switch {
	case f.K != k:
		return nil, fmt.Errorf("%s: k: found %d labels of each context, expected %d", path, f.K, k)
	case f.Total != in.contexts.Len():
		return nil, fmt.Errorf("%s: contexts: found a corpus of %d, expected the %d of %s", path, f.Total, in.contexts.Len(), in.contexts.Name())
	case !f.Whole():
		return nil, fmt.Errorf("%s: contexts: found %d to %d, expected all %d: l2s merge joins the parts", path, f.First, f.First+f.Count-1, f.Total)
	}
	p.Start("digest", "contexts", f.Total)
	digest, err := labelfile.DigestOf(ctx, kernels.Float32Rows(in.rows, in.layer.Dim()), 0, threads)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.contexts.Name(), err)
	}
	p.Set(f.Total)
	p.End()
	if digest != f.Contexts {
		return nil, fmt.Errorf("%s: digest of the contexts: found %x..., expected %x..., the digest of %s: the labels are of other contexts",
			path, f.Contexts[:8], digest[:8], in.contexts.Name())
	}
	return f.ReadAll(ctx)
}
