package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/progress"
)

// prepareResult is the JSON of l2s prepare.
type prepareResult struct {
	File        string  `json:"file"`
	Bytes       int64   `json:"bytes"`
	Labels      int     `json:"labels"`
	Dim         int     `json:"dim"`
	Fingerprint string  `json:"fingerprint"` // of the layer, hex
	Seconds     float64 `json:"seconds"`
}

func (r prepareResult) String() string {
	return fmt.Sprintf("%s: %s bytes, codes of %s labels of dimension %d, in %.1f s\n",
		r.File, progress.Count(int(r.Bytes)), progress.Count(r.Labels), r.Dim, r.Seconds)
}

func runPrepare(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	start := time.Now()
	f := newFlags("prepare", description{
		purpose: `Make the codes of a layer that its search goes by, and keep them: with --codes
FILE the other verbs map them instead of making them, and need not read the
weights to open the layer.

The file is for these weights and this bias, and refused for others. The verbs compare
the bias, the size of the weights' file, the time of its last change, and a sample of
the weights. If size or time differ, as after a copy, or with --verify, they compare
all weights, which takes as long as to make the codes.`,
		usage:   "MODEL --out head.codes [flags]",
		notes:   sourceNote,
		example: "l2s prepare models/llama --out llama.codes\nl2s topk m.l2s --head models/llama --codes llama.codes --contexts H.npy --k 5",
	}, stdout, stderr)
	out := f.needs("out", "`FILE` of codes to write")
	lf := layerFlags{
		f: f, weights: new(string), codes: new(string), verify: new(bool),
		bias: f.text("bias", "softmax bias b, a `SRC`, if it is not beside the weights; none for a layer without"),
		ids:  f.text("ids", "make a draft head of the labels in a list, a `SRC` of integers"),
	}
	f.boolean("quiet", "do not say what was taken")
	asJSON := f.json()
	models, err := f.parseFiles(args)
	if err != nil {
		return err
	}
	if len(models) != 1 || models[0] == "" {
		return f.wrongUse("expected one model, as in: l2s %s %s", f.verb, f.about.usage)
	}
	if err := f.checkRequired(); err != nil {
		return err
	}
	lf.head = &models[0]
	if err := checkOutputs(f, []output{{flag: "--out", path: *out}}, lf.files()...); err != nil {
		return err
	}
	var opt head.Options
	if *lf.ids != "" {
		opt.IDs = []uint32{}
	}
	// Before the weights are read: what changes afterwards makes it another.
	origin, originErr := layerfile.Origin(models[0], opt)
	l, err := lf.open(stderr)
	if err != nil {
		return err
	}
	defer l.head.Close()
	if originErr != nil {
		return originErr
	}
	if err := l.head.Read(func() error { return l.SaveCodes(*out, origin) }); err != nil {
		return err
	}
	info, err := os.Stat(*out)
	if err != nil {
		return err
	}
	fingerprint := l.Fingerprint()
	r := prepareResult{*out, info.Size(), l.Labels(), l.Dim(), hex.EncodeToString(fingerprint[:]), time.Since(start).Seconds()}
	if *asJSON {
		return printJSON(stdout, r)
	}
	return write(stdout, r.String())
}
