package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

func topkVerb() *verb {
	return &verb{
		name: "topk", args: "m.l2s --weights SRC --bias SRC --contexts SRC --k 5",
		summary: "print the top-k labels of each context",
		help: `
Prints one line a context: the ids of the top-k labels, their logits, and the
cluster, in three columns separated by tabs; with --vocab a fourth column of
words. Equal answers are equal bytes, on every machine and SIMD level.

Example:
  l2s topk m.l2s --weights W.npy --bias b.npy --contexts H.npy --k 5 --exact`,
		run: runTopK,
	}
}

// answer is a line of topk --json.
type answer struct {
	Context int       `json:"context"`
	IDs     []uint32  `json:"ids"`
	Logits  []float64 `json:"logits"`
	Cluster int       `json:"cluster"`
	Words   []string  `json:"words,omitempty"`
}

func runTopK(ctx context.Context, e *env) error {
	f := e.flags
	var in inputs
	in.register(e)
	k := f.Int("k", 5, "`k`, the number of labels to find")
	exact := f.Bool("exact", false, "answer by the exact layer, not by the screen")
	vocabPath := f.String("vocab", "", "vocabulary `FILE`, to print words")
	asJSON := f.Bool("json", false, "print a JSON object a line")
	pos, err := e.parse("the screen file")
	if err != nil {
		return err
	}
	layer, contexts, err := in.load(e)
	defer in.close()
	if err != nil {
		return err
	}
	if err := checkK(*k, layer.Labels()); err != nil {
		return err
	}
	m, err := loadModel(pos[0], layer)
	if err != nil {
		return err
	}
	var v *vocab.Vocab
	if *vocabPath != "" {
		if v, err = vocab.Load(*vocabPath); err != nil {
			return err
		}
		if err := v.CheckLen(layer.Labels()); err != nil {
			return err
		}
	}
	s, err := screen.NewSearcher(m, layer)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(e.stdout)
	defer w.Flush()
	q := softmax.NewQuery(layer.Dim())
	dst := make([]softmax.Prediction, *k)
	dim := layer.Dim()
	for i := range len(contexts) / dim {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := contexts[i*dim : (i+1)*dim]
		a := answer{Context: i}
		if a.Cluster, err = s.Cluster(h); err != nil {
			return fmt.Errorf("%s: row %d: %w", in.contexts, i, err)
		}
		if *exact {
			if err := q.Set(h); err != nil {
				return fmt.Errorf("%s: row %d: %w", in.contexts, i, err)
			}
			layer.TopK(dst, q)
		} else if _, err := s.TopK(dst, h); err != nil {
			return fmt.Errorf("%s: row %d: %w", in.contexts, i, err)
		}
		for _, p := range dst {
			a.IDs, a.Logits = append(a.IDs, p.ID), append(a.Logits, p.Logit)
			if v != nil {
				a.Words = append(a.Words, v.Word(p.ID))
			}
		}
		if err := a.print(w, *asJSON); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *answer) print(w *bufio.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(a)
	}
	var ids, logits []string
	for i, id := range a.IDs {
		ids = append(ids, strconv.FormatUint(uint64(id), 10))
		logits = append(logits, strconv.FormatFloat(a.Logits[i], 'g', -1, 64))
	}
	line := strings.Join(ids, " ") + "\t" + strings.Join(logits, " ") + "\t" + strconv.Itoa(a.Cluster)
	if a.Words != nil {
		line += "\t" + strings.Join(a.Words, " ")
	}
	_, err := w.WriteString(line + "\n")
	return err
}
