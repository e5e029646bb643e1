package heads

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// The metadata of a GGUF file that matter here, see gguf.md.
const (
	ggufArchitecture = "general.architecture"
	ggufTokens       = "tokenizer.ggml.tokens"
	ggufSuppressed   = "tokenizer.ggml.suppress_tokens"
	ggufTypes        = "tokenizer.ggml.token_type"
	ggufSplits       = "split.count"
	ggufSplit        = "split.no"
	ggufSplitTensors = "split.tensors.count"
	ggufWidth        = ".embedding_length"
	ggufScale        = ".logit_scale"
	ggufCap          = ".final_logit_softcapping"

	ggufHead      = "output.weight"
	ggufEmbedding = "token_embd.weight"
	ggufHeadScale = "output.scale"
)

// wantedMetadata reports whether to keep a key of the metadata.
func wantedMetadata(key []byte) bool {
	switch string(key) {
	case ggufArchitecture, ggufTokens, ggufTypes, ggufSuppressed, ggufSplits, ggufSplit, ggufSplitTensors:
		return true
	}
	return bytes.HasPrefix(key, []byte("tokenizer.ggml.")) && bytes.HasSuffix(key, []byte("_token_id")) || bytes.HasSuffix(key, []byte(ggufWidth)) || bytes.HasSuffix(key, []byte(ggufScale)) || bytes.HasSuffix(key, []byte(ggufCap))
}

// ggufSet is the open files of a GGUF model, as tensors: one, or several, which llama.cpp calls
// splits.
type ggufSet struct {
	parts   []ggufPart // that are there, in order
	count   int        // of the parts that there should be
	missing string     // the name of a missing part, "" for none
}

type ggufPart struct {
	*tensorfile.File
	path string
	no   int // its place, from 0 on
}

// splitName is the name that llama.cpp wants of a split.
var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.(?i:gguf))$`)

// maxSplits bounds the files of a set. The largest models have some hundreds.
const maxSplits = 10000

// openSet opens the files of the model that f, the file at a path, is a part of. f belongs to the
// set, or is closed.
func openSet(path string, f *tensorfile.File) (*ggufSet, error) {
	s := &ggufSet{parts: []ggufPart{{f, path, 0}}, count: 1}
	if err := s.gather(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openGGUF opens the files of the GGUF model that a path names.
func openGGUF(path string) (*ggufSet, error) {
	f, err := tensorfile.OpenFile(path, wantedMetadata)
	if err != nil {
		return nil, err
	}
	return openSet(path, f)
}

// gather opens the other files of the model of the only one.
func (s *ggufSet) gather() error {
	first := &s.parts[0]
	path, name := first.path, splitName.FindStringSubmatch(filepath.Base(first.path))
	n, err := first.Number(ggufSplits)
	if err != nil {
		return err
	}
	if n == 0 && name != nil {
		of, _ := strconv.Atoi(name[3])
		n = float64(of)
	}
	switch {
	case n <= 1:
		return nil
	case n > maxSplits || n != float64(int(n)):
		return fail(path, "metadata "+ggufSplits, "found %v, expected a whole number of at most %d", n, maxSplits)
	}
	s.count = int(n)
	if first.no, err = s.number(first.File, path); err != nil {
		return err
	}
	own := first.no
	if name != nil && name[3] == fmt.Sprintf("%05d", s.count) {
		present := others(path, "*.gguf")
		for i := range s.count {
			part := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d%s", name[1], i+1, s.count, name[4]))
			switch {
			case i == own:
			case slices.Contains(present, part):
				if err := s.take(part, true); err != nil {
					return err
				}
			case s.missing == "":
				s.missing = filepath.Base(part)
			}
		}
	} else { // under other names
		for _, beside := range others(path, "*") {
			if sameFile(path, beside) { // a link
				continue
			}
			if ext := tensorfile.Extension(beside); ext == "" || ext == ".gguf" {
				if err := s.take(beside, false); err != nil {
					return err
				}
			}
		}
		for i := range s.count {
			if s.missing == "" && !slices.ContainsFunc(s.parts, func(p ggufPart) bool { return p.no == i }) {
				s.missing = fmt.Sprintf("the file of %s %d", ggufSplit, i)
			}
		}
	}
	slices.SortFunc(s.parts, func(a, b ggufPart) int { return a.no - b.no })
	return s.complete(path)
}

// sameFile reports whether two names are of one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// take opens a file and adds it if it belongs to the model, which it must if that is certain.
func (s *ggufSet) take(path string, certain bool) error {
	f, err := tensorfile.OpenFile(path, wantedMetadata)
	if err != nil {
		if certain {
			return err
		}
		return nil // another file
	}
	count, err := f.Number(ggufSplits)
	belongs := f.Format == ".gguf" && err == nil && (int(count) == s.count || certain && count == 0) && alike(s.parts[0].File, f)
	no := 0
	if belongs {
		no, err = s.number(f, path)
	}
	switch i := slices.IndexFunc(s.parts, func(p ggufPart) bool { return p.no == no }); {
	case belongs && err == nil && i < 0:
		s.parts = append(s.parts, ggufPart{f, path, no})
		return nil
	case err != nil && !belongs && !certain:
		err = nil
	case err != nil:
	case belongs:
		err = fail(s.parts[i].path, "metadata "+ggufSplit, "found number %d in it and in %s, expected the files of one model alone in their folder: open the file whose name ends in -00001-of-%05d.gguf, or move the other one away", no, tensorfile.Label(filepath.Base(path)), s.count)
	case certain:
		err = fail(path, "metadata "+ggufSplits, "found a file of another model or of %v files, expected one of the %d of %s", count, s.count, tensorfile.Label(filepath.Base(s.parts[0].path)))
	}
	f.Close()
	return err
}

// number returns the place of a split.
func (s *ggufSet) number(f *tensorfile.File, path string) (int, error) {
	x, err := f.Number(ggufSplit)
	if name := splitName.FindStringSubmatch(filepath.Base(path)); err == nil && !f.HasMetadata(ggufSplit) && name != nil {
		n, _ := strconv.Atoi(name[2])
		x = float64(n - 1)
	}
	if err == nil && (x < 0 || x >= float64(s.count) || x != float64(int(x))) {
		err = fail(path, "metadata "+ggufSplit, "found %v, expected one below %d", x, s.count)
	}
	return int(x), err
}

// alike reports whether two splits describe the same model.
func alike(a, b *tensorfile.File) bool {
	x, errX := a.Number(ggufSplitTensors)
	y, errY := b.Number(ggufSplitTensors)
	return errX == nil && errY == nil && x == y
}

// complete checks that the tensors of the splits make one model.
func (s *ggufSet) complete(path string) error {
	seen := map[string]bool{}
	for _, p := range s.parts {
		for _, name := range p.Names() {
			if seen[name] {
				return fail(path, "tensors", "found %s in two files of the model, expected it once", tensorfile.Label(name))
			}
			seen[name] = true
		}
	}
	want, err := s.parts[0].Number(ggufSplitTensors)
	if err == nil && s.missing == "" && want > 0 && want != float64(len(seen)) {
		err = fail(path, "metadata "+ggufSplitTensors, "found %v, and %d tensors in the %d files, expected the files of one model", want, len(seen), s.count)
	}
	return err
}

// with returns the file that has a tensor, nil for none.
func (s *ggufSet) with(name string) *ggufPart {
	if i := slices.IndexFunc(s.parts, func(p ggufPart) bool { return p.Has(name) }); i >= 0 {
		return &s.parts[i]
	}
	return nil
}

// saying returns the file that has a value of metadata, or the first.
func (s *ggufSet) saying(key string) ggufPart {
	return s.parts[max(0, slices.IndexFunc(s.parts, func(p ggufPart) bool { return p.HasMetadata(key) }))]
}

func (s *ggufSet) Has(name string) bool { return s.with(name) != nil }

func (s *ggufSet) Tensor(name string) (*tensorfile.Tensor, error) {
	switch p := s.with(name); {
	case p != nil:
		return p.File.Tensor(name)
	case s.missing != "":
		return nil, s.incomplete(name)
	}
	return s.parts[0].File.Tensor(name)
}

func (s *ggufSet) incomplete(what string) error {
	return fail(s.parts[0].path, "tensors", "found %d of the %d files of a model and no %s in them, expected all in one folder: %s is missing", len(s.parts), s.count, tensorfile.Label(what), tensorfile.Label(s.missing))
}

func (s *ggufSet) Close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.File.Close())
	}
	return errors.Join(errs...)
}

// gguf finds the head of a GGUF model, unless its tensor is named, and its
// metadata.
func (m *model) gguf(s *ggufSet, named bool) error {
	arch, err := s.saying(ggufArchitecture).Text(ggufArchitecture)
	if err != nil {
		return err
	}
	if s.missing != "" && arch == "" {
		return s.incomplete(ggufArchitecture)
	}
	m.origin = Origin{State: "the node result_norm of llama.cpp, its embeddings without pooling", Why: "its tensor was named"}
	if s.missing != "" {
		m.origin.Notes = append(m.origin.Notes, fmt.Sprintf("%d of the %d files of the model are there: %s is missing", len(s.parts), s.count, tensorfile.Label(s.missing)))
	}
	if !named {
		if err := m.ggufHead(s, arch); err != nil {
			return err
		}
	}
	if !s.Has(m.weights) {
		_, err := s.Tensor(m.weights)
		return err
	}
	m.origin.File = s.with(m.weights).path
	m.norms = []string{"output_norm.weight"}
	if m.tokens, err = countTokens(s.saying(ggufTokens).File); err != nil {
		return err
	}
	list, err := s.saying(ggufSuppressed).Ints(ggufSuppressed)
	if err != nil {
		return err
	}
	for _, id := range list {
		if id >= 0 && id < 1<<32-1 {
			m.suppressed = append(m.suppressed, uint32(id))
		}
	}
	if arch == "chameleon" { // of pictures: its graph makes them minus infinity
		for id := range uint32(8196 - 4) {
			m.suppressed = append(m.suppressed, id+4)
		}
	}
	dim := 0
	if t, err := s.Tensor(m.weights); err == nil {
		dim = t.Cols()
	}
	if key := arch + ggufWidth; !named && s.saying(key).HasMetadata(key) {
		x, err := s.saying(key).Number(key)
		if err != nil {
			return err
		}
		m.widths, m.widthField = []int{int(min(max(x, 0), 1<<31))}, "metadata "+key
	}
	m.finish, err = ggufFinish(s, m.path, arch, dim)
	return err
}

// ggufHead chooses the tensor as llama.cpp does.
func (m *model) ggufHead(s *ggufSet, arch string) error {
	m.weights, m.biases = ggufHead, []string{"output.bias"}
	m.origin.Why = ggufHead + " is there"
	switch {
	case s.Has(ggufHead):
		if own, embedding := s.with(ggufHead), s.with(ggufEmbedding); strings.HasPrefix(arch, "qwen3vl") && embedding != nil {
			_, a := own.Layout(ggufHead)
			_, b := embedding.Layout(ggufEmbedding)
			if len(a) == 2 && len(b) == 2 && a[0] < b[0] {
				return m.fail("shape", "found %d rows, and %d of %s, expected the same number: llama.cpp takes them for the last tokens; name the tensor to read its rows unchanged", a[0], b[0], ggufEmbedding)
			}
		}
	case s.missing != "":
		return s.incomplete(ggufHead)
	case s.Has(ggufEmbedding) && slices.Contains(untied, arch):
		return fail(m.path, "tensors", "found no %s in a model of architecture %s, expected it, as llama.cpp does: convert the model anew, or name the embedding, FILE:%s", ggufHead, tensorfile.Label(arch), ggufEmbedding)
	case s.Has(ggufEmbedding):
		for _, p := range s.parts {
			for _, name := range p.Names() {
				if headLike(name) {
					return fail(m.path, "tensors", "found %s and no %s, expected it: name the tensor of the head, FILE:tensor", tensorfile.Label(name), ggufHead)
				}
			}
		}
		m.weights = ggufEmbedding
		m.origin.Tied, m.origin.Why = true, "no file of the model has "+ggufHead
	}
	return nil
}

// specials returns the ids of special tokens: the tokens that the metadata name, and the tokens
// whose type is unknown or control.
func (s *ggufSet) specials() (ids []uint32, err error) {
	for _, name := range []string{"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "cls", "mask"} { // as gguf.md spells them
		key := "tokenizer.ggml." + name + "_token_id"
		p := s.saying(key)
		if !p.HasMetadata(key) {
			continue
		}
		x, err := p.Number(key)
		if err != nil {
			return nil, err
		}
		if x >= 0 && x < 1<<32-1 { // some have -1 for none
			ids = append(ids, uint32(x))
		}
	}
	const unknown, control = 2, 3 // enum llama_token_type
	types, err := s.saying(ggufTypes).Ints(ggufTypes)
	for id, kind := range types {
		if kind == unknown || kind == control {
			ids = append(ids, uint32(id))
		}
	}
	return ids, err
}

// countTokens returns the number of tokens before the [PADn] that the converter
// writes for rows that no token has, 0 if the file has no tokens.
func countTokens(f *tensorfile.File) (n int, err error) {
	_, err = f.Strings(ggufTokens, func(i int, s []byte) {
		if number, ok := bytes.CutPrefix(s, []byte("[PAD")); ok && string(number) == strconv.Itoa(i)+"]" {
			return
		}
		n = i + 1
	})
	return n, err
}

// ggufFinish returns the scale and the cap of a model with that number of columns.
func ggufFinish(s *ggufSet, path, arch string, dim int) (fin finish, err error) {
	number := func(key string) (x float64, there bool, err error) {
		f := s.saying(arch + key)
		x, err = f.Number(arch + key)
		if err == nil && x != 0 && !inRange(x) {
			err = fail(path, "metadata "+tensorfile.Label(arch+key), "found %v, expected %s, or 0 for none", x, rangeText)
		}
		return x, f.HasMetadata(arch + key), err
	}
	family := ggufFamilyOf(arch)
	scale, _, err := number(ggufScale)
	if err != nil {
		return fin, err
	}
	switch {
	case family.scale != nil && (scale == 0 || family.fixed):
		scale = family.scale(float64(dim))
	case scale != 0 && family.over:
		scale = 1 / scale
	}
	if s.Has(ggufHeadScale) { // of a quantised matrix as a whole
		x, err := s.headScale()
		if err != nil {
			return fin, err
		}
		if scale = max(scale, 0); scale == 0 {
			scale = 1
		}
		if scale *= x; !inRange(scale) {
			return fin, fail(path, ggufHeadScale, "found %v, which makes %v of the scale of the logits, expected %s", x, scale, rangeText)
		}
	}
	fin.scale = scale
	soft, there, err := number(ggufCap)
	switch {
	case err != nil:
	case family.always, !there:
		soft = family.cap
	case soft == 0 && arch == "gemma2":
		err = fail(path, "metadata "+arch+ggufCap, "found 0, by which llama.cpp divides, expected a number above it, or none for %v", family.cap)
	}
	fin.cap = soft
	return fin, err
}

// headScale reads the number that llama.cpp multiplies all logits by.
func (s *ggufSet) headScale() (float64, error) {
	t, err := s.Tensor(ggufHeadScale)
	if err == nil {
		err = t.ExpectShape(1)
	}
	if err != nil {
		return 0, err
	}
	x, err := t.Float32s()
	if err == nil && !inRange(float64(x[0])) {
		err = fail(s.with(ggufHeadScale).path, ggufHeadScale, "found %v, expected %s", x[0], rangeText)
	}
	if err != nil {
		return 0, err
	}
	return float64(x[0]), nil
}
