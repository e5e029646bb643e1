package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train"
)

// labelsResult is the JSON of l2s labels and of l2s merge.
type labelsResult struct {
	Out string `json:"out"`
	K   int    `json:"k"`
	// First is the number of the first context in the file, Contexts how many
	// are in it, and Corpus how many there are.
	First    int `json:"first"`
	Contexts int `json:"contexts"`
	Corpus   int `json:"corpus"`
	Labels   int `json:"labels"`
	Dim      int `json:"dim"`
	// Parts is the number of files merged; none of l2s labels.
	Parts   int     `json:"parts,omitempty"`
	Seconds float64 `json:"seconds"`
	Level   string  `json:"level"`
}

func newLabelsResult(out string, h labelfile.Header, parts int, start time.Time) labelsResult {
	return labelsResult{
		Out: out, K: h.K, First: h.First, Contexts: h.Count, Corpus: h.Total, Labels: h.Labels, Dim: h.Dim,
		Parts: parts, Seconds: round(time.Since(start).Seconds()), Level: kernels.Level(),
	}
}

func (r labelsResult) String() string {
	what := fmt.Sprintf("%s contexts", progress.Count(r.Contexts))
	if r.Contexts < r.Corpus {
		what = fmt.Sprintf("contexts %s to %s of %s", progress.Count(r.First), progress.Count(r.First+r.Contexts-1), progress.Count(r.Corpus))
	}
	return fmt.Sprintf("%s: the best %d labels of %s\n", r.Out, r.K, what)
}

// shard is part Index of Count parts of the contexts.
type shard struct{ Index, Count int }

func parseShard(s string) (shard, error) {
	index, count, ok := strings.Cut(s, "/")
	n, err := parseWhole(count, 1)
	if ok && err == nil {
		if i, err := parseWhole(index, 0); err == nil && i < n {
			return shard{i, n}, nil
		}
	}
	return shard{}, fmt.Errorf("expected i/n with 0 <= i < n")
}

// of returns the contexts of the shard, of n. Shards differ by one context at
// most, and none is empty if there are as many contexts as shards.
func (s shard) of(n int) (first, end int) {
	at := func(i int) int { return i*(n/s.Count) + i*(n%s.Count)/s.Count }
	return at(s.Index), at(s.Index + 1)
}

// labelBlock is the number of contexts that are labelled between two writes:
// it bounds the memory.
const labelBlock = 1 << 15

func runLabels(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	start := time.Now()
	f := newFlags("labels", description{
		purpose: `Find the best k labels of every context by the exact layer, and write them to
a file for l2s train --labels.

With --shard i/n only part i of n equal parts of the contexts is done, i from 0
to n-1, so that many machines can share the work. l2s merge joins the parts to
the file that one run without --shard writes, byte for byte.`,
		usage: "(--head MODEL | --weights SRC --bias SRC) --contexts H.npy --out FILE [flags]",
		notes: sourceNote,
		example: `l2s labels --weights W.npy --bias b.npy --contexts H.npy --shard 0/2 --out part-0
l2s labels --weights W.npy --bias b.npy --contexts H.npy --shard 1/2 --out part-1
l2s merge --out H.labels part-0 part-1`,
	}, stdout, stderr)
	flags := f.layerAndContexts()
	out := f.needs("out", "`FILE` of labels to write")
	k := f.whole("k", train.DefaultOptions().K, 1, "find the `N` best labels of each context")
	part := custom(f, "shard", shard{0, 1}, "", "do part `i/n` of the contexts, i from 0", parseShard)
	threads := f.threads("run")
	if err := f.parse(args, nil); err != nil {
		return err
	}
	if err := checkOutputs(ctx, f, []output{{flag: "--out", path: *out}}, flags.files()...); err != nil {
		return err
	}
	in, err := flags.open(ctx, "", *k, inBlocks)
	if err != nil {
		return err
	}
	defer in.close(&err)
	l, c := in.layer, in.contexts
	n, dim := c.Len(), l.Dim()
	if n < part.Count {
		return fmt.Errorf("%s: found %d contexts, expected at least one for each of %d shards", c.Name(), n, part.Count)
	}
	first, end := part.of(n)
	w, err := labelfile.Create(*out, labelfile.Header{
		K: *k, First: first, Count: end - first, Total: n, Labels: l.Labels(), Dim: dim, Fingerprint: l.Fingerprint(),
	})
	if err != nil {
		return err
	}
	defer w.Abort()

	p := f.printer()
	defer p.Close()
	p.Start("labels", "contexts", end-first)
	block := make([]float32, min(labelBlock, end-first)*dim)
	for at := first; at < end; at += labelBlock {
		rows := block[:min(labelBlock, end-at)*dim]
		if err := c.Read(rows, at); err != nil {
			return err
		}
		digest, err := labelfile.DigestOf(ctx, rows, dim, at, *threads)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
		labels, err := train.Labels(ctx, l.Layer, rows, *k, train.LabelOptions{
			Threads: *threads, Progress: func(r train.Progress) { p.Set(at - first + r.Done) },
		})
		if err != nil {
			return err
		}
		if err := w.Write(labels, digest); err != nil {
			return err
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	p.End()
	r := newLabelsResult(*out, w.Header(), 0, start)
	return f.print(r)
}

func runMerge(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	start := time.Now()
	f := newFlags("merge", description{
		purpose: `Join the files that l2s labels --shard wrote, in any order, to the file that
one run without --shard would have written, byte for byte.

The parts must be of the same layer, the same k and the same corpus, and hold
each of its contexts once.`,
		usage:   "--out FILE part...",
		example: "l2s merge --out H.labels part-*",
	}, stdout, stderr)
	out := f.needs("out", "`FILE` of labels to write")
	var parts []string
	if err := f.parseList(args, "files of labels", &parts); err != nil {
		return err
	}
	if err := checkOutputs(ctx, f, []output{{flag: "--out", path: *out}}, parts...); err != nil {
		return err
	}
	p := f.printer()
	defer p.Close()
	p.Start("merge", "contexts", 0)
	h, err := labelfile.Merge(ctx, *out, parts, p.Set)
	if err != nil {
		return err
	}
	p.End()
	r := newLabelsResult(*out, h, len(parts), start)
	return f.print(r)
}

// readLabels reads the labels at path, which must be the best k of all of the
// contexts by the layer.
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
	digest, err := digestContexts(ctx, in, threads, p)
	if err != nil {
		return nil, err
	}
	if digest != f.Contexts {
		return nil, fmt.Errorf("%s: digest of the contexts: found %x..., expected %x..., the digest of %s: the labels are of other contexts",
			path, f.Contexts[:8], digest[:8], in.contexts.Name())
	}
	return f.ReadAll(ctx)
}

// digestContexts returns the digest of all contexts with progress on p.
func digestContexts(ctx context.Context, in *inputs, threads int, p *progress.Printer) (labelfile.Digest, error) {
	n, dim := in.contexts.Len(), in.layer.Dim()
	p.Start("digest", "contexts", n)
	var sum labelfile.Digest
	for at := 0; at < n; at += labelBlock {
		end := min(at+labelBlock, n)
		d, err := labelfile.DigestOf(ctx, in.rows[at*dim:end*dim], dim, at, threads)
		if err != nil {
			return sum, fmt.Errorf("%s: %w", in.contexts.Name(), err)
		}
		sum.Add(d)
		p.Set(end)
	}
	p.End()
	return sum, nil
}
