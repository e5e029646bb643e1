package head

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// The metadata of a GGUF file that matter here, see gguf.md.
const (
	ggufArchitecture = "general.architecture"
	ggufTokens       = "tokenizer.ggml.tokens"
	ggufSuppressed   = "tokenizer.ggml.suppress_tokens"
	ggufSplits       = "split.count"
	ggufSplit        = "split.no"
	ggufSplitTensors = "split.tensors.count"
	ggufScale        = ".logit_scale"
	ggufCap          = ".final_logit_softcapping"

	ggufHead      = "output.weight"
	ggufEmbedding = "token_embd.weight"
	ggufHeadScale = "output.scale"
)

// wantedMetadata says which metadata are kept.
func wantedMetadata(key []byte) bool {
	switch string(key) {
	case ggufArchitecture, ggufTokens, ggufSuppressed, ggufSplits, ggufSplit, ggufSplitTensors:
		return true
	}
	return bytes.HasSuffix(key, []byte(ggufScale)) || bytes.HasSuffix(key, []byte(ggufCap))
}

// ggufSet is the open files of a GGUF model, as tensors: one, or several, which llama.cpp calls splits.
type ggufSet struct {
	files   []*tensorfile.File // of the splits that are there, in order
	paths   []string
	count   int    // of the splits that there should be
	missing string // the name of one that is not there, "" for none
}

// splitName is the name that llama.cpp wants of a split.
var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})(\.(?i:gguf))$`)

// maxSplits bounds the files of a set. Those of the largest models have some hundreds.
const maxSplits = 10000

// openSet opens the files of the model that f, the file at a path, is a part of. f belongs to the set, or
// is closed.
func openSet(path string, f *tensorfile.File) (s *ggufSet, err error) {
	s = &ggufSet{files: []*tensorfile.File{f}, paths: []string{path}, count: 1}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	n, err := f.Number(ggufSplits)
	if err != nil {
		return nil, err
	}
	name := splitName.FindStringSubmatch(filepath.Base(path))
	if n == 0 && name != nil {
		of, _ := strconv.Atoi(name[3])
		n = float64(of)
	}
	switch {
	case n <= 1:
		return s, nil
	case n > maxSplits || n != float64(int(n)):
		return nil, fail(path, "metadata "+ggufSplits, "found %v, expected a whole number of at most %d", n, maxSplits)
	}
	s.count = int(n)
	parts := map[int]string{} // the path of each split but f
	own, err := s.number(f, path, name)
	if err != nil {
		return nil, err
	}
	open := map[int]*tensorfile.File{own: f}
	parts[own] = path
	take := func(path string, certain bool) error {
		if ext := tensorfile.Extension(path); ext != "" && ext != ".gguf" {
			return nil
		}
		other, err := tensorfile.OpenFile(path, wantedMetadata)
		if err != nil {
			if certain {
				return err
			}
			return nil
		}
		no, count := -1, 0.0
		if other.Format == ".gguf" {
			if count, err = other.Number(ggufSplits); err == nil && (certain || count > 1) {
				no, err = s.number(other, path, splitName.FindStringSubmatch(filepath.Base(path)))
			}
		}
		belongs := err == nil && no >= 0 && (int(count) == s.count || certain && count == 0) && alike(f, other)
		switch {
		case certain && err != nil:
		case certain && !belongs:
			err = fail(path, "metadata "+ggufSplits, "found a file of another model or of %v files, expected one of the %d of %s", count, s.count, tensorfile.Label(filepath.Base(s.paths[0])))
		case !belongs:
			err = nil
		case open[no] != nil:
			err = fail(path, "metadata "+ggufSplit, "found number %d, which %s has too, expected the files of one model alone in their folder, or names that end in -00001-of-%05d.gguf", no, tensorfile.Label(filepath.Base(parts[no])), s.count)
		default:
			open[no], parts[no] = other, path
			return nil
		}
		other.Close()
		return err
	}
	defer func() {
		s.files, s.paths = s.files[:0], s.paths[:0]
		for _, no := range slices.Sorted(maps.Keys(open)) {
			s.files, s.paths = append(s.files, open[no]), append(s.paths, parts[no])
		}
	}()
	if name != nil && name[3] == fmt.Sprintf("%05d", s.count) {
		present := map[string]bool{}
		for _, beside := range others(path, "*.gguf") {
			present[beside] = true
		}
		for i := range s.count {
			part := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d%s", name[1], i+1, s.count, name[4]))
			switch {
			case i == own:
			case present[part]:
				if err = take(part, true); err != nil {
					return nil, err
				}
			case s.missing == "":
				s.missing = filepath.Base(part)
			}
		}
	} else { // under other names
		for _, beside := range others(path, "*") {
			if err = take(beside, false); err != nil {
				return nil, err
			}
		}
		for i := range s.count {
			if open[i] == nil && s.missing == "" {
				s.missing = fmt.Sprintf("that of %s %d", ggufSplit, i)
			}
		}
	}
	return s, s.complete(open, path)
}

// number returns the place of a split, from 0 on.
func (s *ggufSet) number(f *tensorfile.File, path string, name []string) (int, error) {
	x, err := f.Number(ggufSplit)
	if err == nil && !f.HasMetadata(ggufSplit) && name != nil {
		n, _ := strconv.Atoi(name[2])
		x = float64(n - 1)
	}
	if err == nil && (x < 0 || x >= float64(s.count) || x != float64(int(x))) {
		err = fail(path, "metadata "+ggufSplit, "found %v, expected one below %d", x, s.count)
	}
	return int(x), err
}

// alike reports whether two splits say the same of their model.
func alike(a, b *tensorfile.File) bool {
	x, errX := a.Number(ggufSplitTensors)
	y, errY := b.Number(ggufSplitTensors)
	return errX == nil && errY == nil && x == y
}

// complete checks that the tensors of the splits are those of one model.
func (s *ggufSet) complete(open map[int]*tensorfile.File, path string) error {
	seen := map[string]bool{}
	for _, no := range slices.Sorted(maps.Keys(open)) {
		for _, name := range open[no].Names() {
			if seen[name] {
				return fail(path, "tensors", "found %s in two files of the model, expected it once", tensorfile.Label(name))
			}
			seen[name] = true
		}
	}
	want, err := open[slices.Min(slices.Collect(maps.Keys(open)))].Number(ggufSplitTensors)
	if err == nil && s.missing == "" && want > 0 && want != float64(len(seen)) {
		return fail(path, "metadata "+ggufSplitTensors, "found %v, and %d tensors in the %d files, expected the files of one model", want, len(seen), s.count)
	}
	return err
}

// with returns the file that has a tensor, nil for none.
func (s *ggufSet) with(name string) *tensorfile.File {
	if i := slices.IndexFunc(s.files, func(f *tensorfile.File) bool { return f.Has(name) }); i >= 0 {
		return s.files[i]
	}
	return nil
}

// saying returns the file that has a value of metadata, or the first.
func (s *ggufSet) saying(key string) *tensorfile.File {
	if i := slices.IndexFunc(s.files, func(f *tensorfile.File) bool { return f.HasMetadata(key) }); i >= 0 {
		return s.files[i]
	}
	return s.files[0]
}

func (s *ggufSet) Has(name string) bool { return s.with(name) != nil }

func (s *ggufSet) Tensor(name string) (*tensorfile.Tensor, error) {
	if f := s.with(name); f != nil {
		return f.Tensor(name)
	}
	if s.missing != "" {
		return nil, s.incomplete(name)
	}
	return s.files[0].Tensor(name)
}

// fileOf returns the path of the file that has a tensor.
func (s *ggufSet) fileOf(name string) string {
	return s.paths[max(0, slices.Index(s.files, s.with(name)))]
}

func (s *ggufSet) incomplete(what string) error {
	return fail(s.paths[0], "tensors", "found %d of the %d files of a model and no %s in them, expected all in one folder: %s is missing", len(s.files), s.count, tensorfile.Label(what), tensorfile.Label(s.missing))
}

func (s *ggufSet) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// gguf finds the head of a GGUF model, unless its tensor is named, and what its
// files say of it.
func (m *model) gguf(s *ggufSet, named bool) error {
	arch, err := s.saying(ggufArchitecture).Text(ggufArchitecture)
	if err != nil {
		return err
	}
	if s.missing != "" && arch == "" {
		return s.incomplete(ggufArchitecture)
	}
	m.origin = Origin{State: "the node result_norm of llama.cpp, its embeddings without pooling", Why: "its tensor was named"}
	if s.count > 1 {
		m.origin.Notes = append(m.origin.Notes, fmt.Sprintf("%d of the %d files of the model are there", len(s.files), s.count))
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
	m.origin.File = s.fileOf(m.weights)
	m.norms = []string{"output_norm.weight"}
	if m.tokens, err = countTokens(s.saying(ggufTokens)); err != nil {
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
				return m.fail("shape", "found %d rows, and %d of %s, expected as many: llama.cpp takes them for the last tokens; name the tensor for rows as they are", a[0], b[0], ggufEmbedding)
			}
		}
	case s.missing != "":
		return s.incomplete(ggufHead)
	case s.Has(ggufEmbedding) && slices.Contains(untied, arch):
		return fail(m.path, "tensors", "found no %s in a model of architecture %s, expected it, as llama.cpp does: convert the model anew, or name the embedding, FILE:%s", ggufHead, tensorfile.Label(arch), ggufEmbedding)
	case s.Has(ggufEmbedding):
		for _, f := range s.files {
			for _, name := range f.Names() {
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

// ggufFinish returns the scale and the cap of a model of so many columns.
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
		err = fail(s.fileOf(ggufHeadScale), ggufHeadScale, "found %v, expected %s", x[0], rangeText)
	}
	if err != nil {
		return 0, err
	}
	return float64(x[0]), nil
}
