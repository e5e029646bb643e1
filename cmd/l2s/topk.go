package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
)

func topKVerb(f *flags) action {
	f.screen, f.previews, f.exact = true, true, true
	k := f.whole("k", 5, 1)
	f.layerAndContexts(false, func() int { return *k })
	limit := f.whole("limit", 0, 0)
	budget := f.budget("")
	logProbs, header := f.boolean("logprobs"), f.boolean("header")
	vocabulary := f.text("vocab")
	edits := f.edits()
	w := bufio.NewWriterSize(f.stdout, 1<<16)
	f.before = func(context.Context) error {
		if *header && *f.asJSON {
			return f.wrongUse("--header is for lines of text: objects of --json name their fields")
		}
		return nil
	}
	return func(ctx context.Context, in *inputs) (_ fmt.Stringer, err error) {
		defer func() { // write the answers so far, whatever ends the loop
			if failed := w.Flush(); failed != nil {
				err = failed
			}
		}()
		l, c := in.layer, in.contexts
		if *limit > 0 { // later contexts are not read
			c.First(*limit)
		}
		var words func(id uint32) string
		if *vocabulary != "" {
			if words, err = openWords(ctx, *vocabulary, *f.inputs.head, l); err != nil {
				return nil, err
			}
		}
		exact := *budget == exactBudget || in.path == ""
		if in.path == "" && *budget != 0 && *budget != exactBudget {
			return nil, f.wrongUse("--budget %v: expected a screen or a preview, which has budgets, or none for the exact search", *budget)
		}
		if !exact {
			f.noteK(in, *k)
			f.noteBudget(in, *budget)
		}
		var opts l2s.Options
		if *logProbs && !exact {
			if err := in.needsTail("--logprobs, or --budget exact"); err != nil {
				return nil, err
			}
			opts.OverTail = true
		}
		s, err := l2s.NewSearcher(in.layer.Layer, in.index, opts)
		if err != nil {
			return nil, err
		}
		req := l2s.Request{Exact: exact, LogSum: *logProbs, ExactSum: exact}
		if !exact {
			req.Budget = *budget
		}
		if err := edits.apply(ctx, f, l, &req); err != nil {
			return nil, err
		}
		if *header {
			columns := []string{"ids", "logits", "logprobs", "words"}
			columns = slices.DeleteFunc(columns, func(name string) bool { return name == "logprobs" && !*logProbs || name == "words" && words == nil })
			fmt.Fprintln(w, strings.Join(columns, "\t"))
		}
		toJSON := json.NewEncoder(w)
		toJSON.SetEscapeHTML(false)
		h, dst := make([]float32, l.Dim()), make([]l2s.Prediction, *k)
		for i := range c.Len() {
			if err := c.Next(ctx, h); err != nil {
				return nil, behind(ctx, i, c.Len(), err)
			}
			a, err := s.Search(dst, h, req)
			if err != nil {
				return nil, err
			}
			var found answer
			for _, p := range dst[:a.Count] {
				if ids := l.head.IDs(); ids != nil {
					p.ID = ids[p.ID]
				}
				found.IDs, found.Logits = append(found.IDs, p.ID), append(found.Logits, p.Logit)
				if *logProbs {
					found.LogProbs = append(found.LogProbs, p.Logit-a.LogSum)
				}
				if words != nil {
					found.Words = append(found.Words, words(p.ID))
				}
			}
			if *f.asJSON {
				err = toJSON.Encode(&found)
			} else {
				_, err = fmt.Fprintln(w, &found)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// answer is the JSON of l2s topk for a context.
type answer struct {
	IDs      []uint32  `json:"ids"`
	Logits   []float64 `json:"logits"`
	LogProbs []float64 `json:"logprobs,omitempty"`
	Words    []string  `json:"words,omitempty"`
}

// String is the line of text: columns, in which spaces separate the values.
func (a *answer) String() string {
	values := func(list any) string { return strings.Trim(fmt.Sprint(list), "[]") }
	columns := []string{values(a.IDs), values(a.Logits)}
	if a.LogProbs != nil {
		columns = append(columns, values(a.LogProbs))
	}
	if a.Words != nil {
		words := make([]string, len(a.Words))
		for i, word := range a.Words {
			words[i] = quoted(word)
		}
		columns = append(columns, strings.Join(words, " "))
	}
	return strings.Join(columns, "\t")
}

// behind adds to an error of reading contexts how many of all are answered.
func behind(ctx context.Context, answered, all int, err error) error {
	there := fmt.Sprintf("standard output has the answers to the first %s of %s contexts", progress.Count(answered), progress.Count(all))
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return interruptedError{err, there}
	case answered > 0:
		return fmt.Errorf("%w; %s", err, there)
	}
	return err
}

// besideEachOther reports whether two sources belong to one model, in any spelling of their paths:
// the same file or folder, or a folder and a file in it.
func besideEachOther(a, b string) bool {
	if b == "" {
		return false
	}
	folder := func(source string) (string, os.FileInfo) {
		path, _, _ := tensorfile.SplitSource(source)
		info, err := os.Stat(path)
		if err != nil {
			return "", nil
		}
		return path, info
	}
	p, x := folder(a)
	q, y := folder(b)
	if x == nil || y == nil {
		return false
	}
	same := func(p string, y os.FileInfo) bool {
		x, err := os.Stat(filepath.Dir(p))
		return err == nil && os.SameFile(x, y)
	}
	return os.SameFile(x, y) || y.IsDir() && !x.IsDir() && same(p, y) || x.IsDir() && !y.IsDir() && same(q, x)
}

// openWords opens a vocabulary for the labels of l: a file with one word per line, or the tokenizer
// of a model, in which an id may have no text. It must name all labels, unless its path is own, the
// path of the layer's model.
func openWords(ctx context.Context, path, own string, l *layer) (func(id uint32) string, error) {
	if !heads.IsTokenizer(path) {
		voc, err := loading(ctx, vocab.Load, path)
		if err != nil {
			return nil, err
		}
		return voc.Word, voc.CheckLen(l.head.Vocabulary())
	}
	tokens, err := loading(ctx, heads.Tokens, path)
	if err != nil {
		return nil, err
	}
	if n := l.head.Vocabulary(); !besideEachOther(path, own) {
		// Ids above the rows are no labels: a tokenizer may have such ids, for pictures.
		named := 0
		for id := range tokens {
			if int64(id) < int64(n) {
				named++
			}
		}
		if more := len(tokens) - named; named != n || more > n/100 {
			return nil, fmt.Errorf("%s: found %d tokens, expected %d, one per label", path, len(tokens), n)
		}
	}
	return func(id uint32) string { return tokens[id] }, nil
}

// quoted is a word, in quotes if it could be misread between spaces.
func quoted(word string) string {
	apart := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError }
	if word == "" || word[0] == '"' || strings.ContainsFunc(word, apart) {
		return strconv.Quote(word)
	}
	return word
}
