package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

func runTopK(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := newFlags("topk", description{
		purpose: `Print one line for each context, with columns that tabs separate: the ids of the k best
labels, the best first, then their logits, then the cluster of the context. --logprobs
adds the log-probabilities as a column before the cluster, --vocab the words as a last
column, and --header a first line with the names of the columns. Spaces separate the k
values of a column.

A logit is w.h + b, before the scale and the cap that some models have, which leave the
order as it is. It is printed as the shortest decimal number that reads back as the same
float64. Equal screens, layers and contexts give equal bytes on every CPU.`,
		usage: "m.l2s (--head MODEL | --weights SRC --bias SRC) --contexts H.npy --k 5 [flags]",
		notes: sourceNote + `

With --contexts - each context of text, a line or a list of JSON, is answered as soon as
it is there.

With --logprobs the natural logarithms of the probabilities among all labels follow
the logits, after a tab. They are the model's own: its scale and its cap are applied.
The screen gives them by its tail. With --budget exact they are exact. A head with a cap
needs --budget exact.

--vocab may also name the folder of a model, a tokenizer.json, a tokenizer.model or a
GGUF file: the words are then the pieces of its tokenizer, quoted if they are empty
or hold white space.

With --json each line is an object: ids, logits, with --logprobs logprobs,
cluster, and with --vocab words.`,
		example: "l2s topk m.l2s --weights W.npy --bias b.npy --contexts H.npy --k 5 --vocab vocab.txt",
	}, stdout, stderr)
	flags := f.layerAndContexts()
	k := f.whole("k", 5, 1, "print the `N` best labels of each context")
	limit := f.whole("limit", 0, 0, "answer at most `N` contexts, the first ones, 0 for all")
	budget := f.budget("")
	logProbs := f.boolean("logprobs", "add a column of log-probabilities over all labels")
	vocabulary := f.text("vocab", "add a column of words: line i of `FILE`, from 0, is label i; or a tokenizer")
	header := f.boolean("header", "begin with a line that names the columns")
	var path string
	if err := f.parse(args, &path); err != nil {
		return err
	}
	if *header && *f.asJSON {
		return f.wrongUse("--header is for lines of text: objects of --json name their fields")
	}
	in, err := flags.open(ctx, path, *k, oneByOne)
	if err != nil {
		return err
	}
	defer in.close(&err)
	l, m, c := in.layer, in.screen, in.contexts
	if *limit > 0 { // what comes behind is not read
		c.First(*limit)
	}
	noteK(f, path, m, *k)
	var words func(id uint32) string
	if *vocabulary != "" {
		if words, err = openWords(ctx, *vocabulary, *flags.head, l); err != nil {
			return err
		}
	}
	scale, softCap := l.scale()
	exact, capped := *budget == softmax.Exact, *logProbs && softCap != 0
	if capped && !exact {
		return fmt.Errorf("%s: found a soft cap of %v, expected --budget exact for --logprobs: the screen's sums are over logits without one", l.name, softCap)
	}
	if err := f.checkBudget(path, m, *budget); err != nil {
		return err
	}
	var opts []screen.Option
	if *logProbs && !exact {
		if err := needsTail(path, m, "--logprobs, or --budget exact"); err != nil {
			return err
		}
		opts = append(opts, screen.OverTail())
	}
	s, err := screen.NewSearcher(m, l.Layer, opts...)
	if err != nil {
		return err
	}
	full := softmax.NewSearcher(l.Layer)
	final := func(logit float64) float64 { return logit }
	var logits []float64
	q := softmax.NewQuery(l.Dim())
	switch {
	case capped:
		final, logits = l.head.Logit, make([]float64, l.Labels())
	case scale != 1: // the arithmetic of a log-sum at a temperature
		temperature := l.temperature()
		final = func(logit float64) float64 { return logit / temperature }
	}
	var nearest [1]softmax.Prediction
	dst := make([]softmax.Prediction, *k)
	w := bufio.NewWriterSize(writerFunc(func(b []byte) (int, error) { return len(b), write(stdout, string(b)) }), 1<<16)
	defer func() { // whatever ends it, what was answered is written
		if failed := w.Flush(); failed != nil {
			err = failed
		}
	}()
	var line []byte
	if *header {
		line = appendHeader(line, *logProbs, words != nil)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	h := make([]float32, l.Dim())
	for i := 0; *limit == 0 || i < *limit; i++ {
		if c.Waits() {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if next := c.Next(ctx, h); next != nil {
			if next == io.EOF {
				return nil
			}
			of := "" // text, whose contexts nobody has counted
			if n := c.Len(); n > 0 {
				of = " of " + progress.Count(n)
			}
			there := fmt.Sprintf("standard output has the answers to the first %s%s contexts", progress.Count(i), of)
			if ctx.Err() != nil && errors.Is(next, ctx.Err()) {
				return interruptedError{next, there}
			}
			if i > 0 {
				next = fmt.Errorf("%w; %s", next, there)
			}
			return next
		}
		var a softmax.Answer
		req := softmax.Request{K: *k, Budget: *budget, LogSum: *logProbs && !capped, ExactSum: exact}
		if req.LogSum && scale != 1 {
			req.Temperature = l.temperature()
		}
		if a, err = s.Search(dst, h, req); err != nil {
			return err
		}
		if capped {
			if a.LogSum, err = finalSum(full, q, l, logits, h); err != nil {
				return err
			}
		}
		if _, err := s.Nearest(nearest[:], h); err != nil {
			return err
		}
		if ids := l.ids(); ids != nil {
			for j := range dst[:a.Count] {
				dst[j].ID = ids[dst[j].ID]
			}
		}
		found := answered{dst[:a.Count], *logProbs, a.LogSum, final, int(nearest[0].ID)}
		if *f.asJSON {
			line = found.appendJSON(line[:0], words)
		} else {
			line = found.appendLine(line[:0], words)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// openWords opens a vocabulary for the labels of l: a file with one word a line, or the
// tokenizer of a model, of which an id may have no text. own is the model that the
// layer is of, if any: its tokenizer need not name all labels.
func openWords(ctx context.Context, path, own string, l *layer) (func(id uint32) string, error) {
	info, err := os.Stat(path)
	if isFolder := err == nil && info.IsDir(); !isFolder && !slices.Contains([]string{".json", ".model", ".gguf"}, filepath.Ext(path)) {
		voc, err := loading(ctx, vocab.Load, path)
		if err != nil {
			return nil, err
		}
		return voc.Word, voc.CheckLen(l.vocabulary())
	}
	tokens, err := loading(ctx, head.Tokens, path)
	if err != nil {
		return nil, err
	}
	if len(tokens) < l.vocabulary() && path != own {
		return nil, fmt.Errorf("%s: found %d tokens, expected %d, one a label", path, len(tokens), l.vocabulary())
	}
	return func(id uint32) string { return tokens[id] }, nil
}

// appendWord appends a word, quoted if it would not stand for itself between spaces.
func appendWord(b []byte, word string) []byte {
	apart := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError }
	if word == "" || word[0] == '"' || strings.ContainsFunc(word, apart) {
		return strconv.AppendQuote(b, word)
	}
	return append(b, word...)
}

// finalSum returns the log of the sum of e^x over all labels, x their logits behind
// the scale and the cap of the model. It has room for the logits.
func finalSum(s *softmax.Searcher, q *softmax.Query, l *layer, logits []float64, h []float32) (float64, error) {
	if err := q.Set(h); err != nil {
		return 0, err
	}
	if err := s.Logits(logits, q, softmax.Labels{}); err != nil {
		return 0, err
	}
	for i, x := range logits {
		logits[i] = l.head.Logit(x)
	}
	return kernels.LogSumExp(logits), nil
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// appendList appends the elements of an answer with a separator between them.
func appendList(b []byte, p []softmax.Prediction, separator byte, element func(b []byte, p softmax.Prediction) []byte) []byte {
	for i, x := range p {
		if i > 0 {
			b = append(b, separator)
		}
		b = element(b, x)
	}
	return b
}

func appendID(b []byte, p softmax.Prediction) []byte { return strconv.AppendUint(b, uint64(p.ID), 10) }

func appendLogit(b []byte, p softmax.Prediction) []byte {
	return strconv.AppendFloat(b, p.Logit, 'g', -1, 64)
}

// answered is what a line tells of a context.
type answered struct {
	best     []softmax.Prediction
	logProbs bool    // are wanted
	logSum   float64 // over all labels, if they are
	final    func(logit float64) float64
	cluster  int
}

func (a *answered) appendLogProb(b []byte, p softmax.Prediction) []byte {
	return strconv.AppendFloat(b, a.final(p.Logit)-a.logSum, 'g', -1, 64)
}

// appendHeader appends the names of the columns of appendLine.
func appendHeader(b []byte, logProbs, words bool) []byte {
	b = append(b, "ids\tlogits\t"...)
	if logProbs {
		b = append(b, "logprobs\t"...)
	}
	b = append(b, "cluster"...)
	if words {
		b = append(b, "\twords"...)
	}
	return append(b, '\n')
}

func (a *answered) appendLine(b []byte, words func(id uint32) string) []byte {
	b = append(appendList(b, a.best, ' ', appendID), '\t')
	b = append(appendList(b, a.best, ' ', appendLogit), '\t')
	if a.logProbs {
		b = append(appendList(b, a.best, ' ', a.appendLogProb), '\t')
	}
	b = strconv.AppendInt(b, int64(a.cluster), 10)
	if words != nil {
		b = appendList(append(b, '\t'), a.best, ' ', func(b []byte, p softmax.Prediction) []byte { return appendWord(b, words(p.ID)) })
	}
	return append(b, '\n')
}

func (a *answered) appendJSON(b []byte, words func(id uint32) string) []byte {
	b = appendList(append(b, `{"ids":[`...), a.best, ',', appendID)
	b = appendList(append(b, `],"logits":[`...), a.best, ',', appendLogit)
	if a.logProbs {
		b = appendList(append(b, `],"logprobs":[`...), a.best, ',', a.appendLogProb)
	}
	b = fmt.Appendf(b, `],"cluster":%d`, a.cluster)
	if words != nil {
		b = appendList(append(b, `,"words":[`...), a.best, ',', func(b []byte, p softmax.Prediction) []byte {
			word, _ := json.Marshal(words(p.ID)) // a string always has a JSON form
			return append(b, word...)
		})
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}
