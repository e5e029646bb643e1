package head

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// The metadata of a GGUF file that matter here, see gguf.md.
const (
	ggufArchitecture = "general.architecture"
	ggufTokens       = "tokenizer.ggml.tokens"
	ggufSplits       = "split.count"
	ggufScale        = ".logit_scale"
	ggufCap          = ".final_logit_softcapping"
)

// wantedMetadata says which metadata are kept.
func wantedMetadata(key []byte) bool {
	switch string(key) {
	case ggufArchitecture, ggufTokens, ggufSplits:
		return true
	}
	return bytes.HasSuffix(key, []byte(ggufScale)) || bytes.HasSuffix(key, []byte(ggufCap))
}

// gguf finds the head of a GGUF file, unless its tensor is named, and what the
// file says of it.
func (m *model) gguf(f *tensorfile.File, named bool) error {
	arch, err := f.Text(ggufArchitecture)
	if err != nil {
		return err
	}
	if !named {
		m.weights = "output.weight"
		if !f.Has(m.weights) && f.Has("token_embd.weight") {
			m.weights = "token_embd.weight"
		}
		m.biases = []string{"output.bias"}
	}
	if !f.Has(m.weights) {
		splits, err := f.Number(ggufSplits)
		if err != nil {
			return err
		}
		if splits > 1 {
			return fail(m.path, "tensors", "found one of %g files of a model and no %s in it, expected the whole: join them by llama-gguf-split --merge", splits, tensorfile.Label(m.weights))
		}
		_, err = f.Tensor(m.weights)
		return err
	}
	m.norms = []string{"output_norm.weight"}
	if m.tokens, err = countTokens(f); err != nil {
		return err
	}
	dim := 0
	if t, err := f.Tensor(m.weights); err == nil {
		dim = t.Cols()
	}
	m.finish, err = ggufFinish(f, m.path, arch, dim)
	return err
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
func ggufFinish(f *tensorfile.File, path, arch string, dim int) (fin finish, err error) {
	number := func(key string) (float64, error) {
		x, err := f.Number(arch + key)
		if err == nil && x != 0 && !inRange(x) {
			err = fail(path, "metadata "+tensorfile.Label(arch+key), "found %v, expected %s, or 0 for none", x, rangeText)
		}
		return x, err
	}
	if fin.scale, err = number(ggufScale); err != nil {
		return fin, err
	}
	switch {
	case fin.scale != 0 && (strings.HasPrefix(arch, "granite") || arch == "minicpm"):
		fin.scale = 1 / fin.scale
	case fin.scale != 0:
	case arch == "minicpm" || arch == "minicpm3": // by the model's own definition; its base is 256
		fin.scale = 256 / float64(dim)
	case arch == "grok":
		fin.scale = float64(float32(0.5773502691896257))
	}
	if fin.cap, err = number(ggufCap); err == nil && fin.cap == 0 && arch == "gemma2" {
		fin.cap = 30
	}
	return fin, err
}
