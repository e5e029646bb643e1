package heads

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
)

// config has the fields of a config.json about the head.
type config struct {
	path       string
	types      []string            // of the text model, and of the whole
	tied       *bool               // nil if absent
	textTied   *bool               // of the text model alone
	vocabulary int                 // 0 for none
	width      int                 // of a state, 0 if absent
	allWidths  []int               // that the columns of the head may have, of the text model and of the whole
	unpadded   int                 // the rows that are labels, 0 if absent
	tokens     int                 // one more than the largest id of a special token
	specials   []uint32            // the ids of special tokens
	suppressed []uint32            // the ids that are never written; nil if absent
	numbers    map[string]*float64 // nil if the file has null
	inverse    bool                // logit_scale is "inv_sqrt_d_model"
	from       string              // the object within the file that has the sizes, "" for the whole
}

// textModels are the fields that describe a text model among others.
var textModels = []string{"text_config", "llm_config", "language_config"}

// widths are the names of the field with the number of elements of a state.
var widths = []string{"hidden_size", "d_model", "n_embd", "dim"}

// narrower are the names of the field with the columns of the head, of models that project a state
// before it.
var narrower = []string{"word_embed_proj_dim", "embedding_size", "embedding_dim", "emb_dim", "embed_dim"}

// isField reports whether a field of this name is read.
func isField(name string) bool {
	switch name {
	case "model_type", "tie_word_embeddings", "vocab_size", "unpadded_vocab_size", "suppress_tokens":
		return true
	}
	return slices.Contains(configNumbers, name) || slices.Contains(widths, name) || strings.HasSuffix(name, "_token_id")
}

// readConfig reads a config.json. If a model has a text model among others, fields at the
// top win over the text model's, except type and vocabulary.
func readConfig(path string) (*config, error) {
	data, err := tensorfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(data, path)
}

func parseConfig(data []byte, path string) (*config, error) {
	c := &config{path: path, numbers: map[string]*float64{}}
	v, err := jsonscan.ParsePython(data)
	if err == nil {
		err = c.read(v, "", 0)
	}
	if err != nil {
		return nil, fail(path, "config", "%w", err)
	}
	return c, nil
}

// mostNested is the largest depth of text models within each other: Qwen-Omni has one within its
// thinker.
const mostNested = 3

// read reads the fields of a model at a place in the file, after the fields of a text model within
// it. Fields that are not read may occur twice.
func (c *config) read(v jsonscan.Value, at string, depth int) error {
	var text jsonscan.Value
	var in string
	seen := map[string]bool{}
	err := v.Entries(func(b []byte, value jsonscan.Value) error {
		name := string(b)
		nested := depth < mostNested && slices.Contains(textModels, name)
		switch {
		case !nested && !isField(name):
			return nil
		case seen[name]:
			return fmt.Errorf("found %.100q twice, expected it once", name)
		case nested && value[0] == '{' && text != nil:
			return fmt.Errorf("%s: found a second text model, expected one", name)
		case nested && value[0] == '{':
			text, in = value, name
		}
		seen[name] = true
		return nil
	})
	if err == nil && text == nil && depth < mostNested && !hasSizes(v) {
		text, in = decoderOf(v, depth)
	}
	if err == nil && text != nil {
		in = strings.TrimPrefix(at+"."+in, ".")
		if hasSizes(text) {
			c.from = in
		}
		err = c.read(text, in, depth+1)
		c.textTied = c.tied
	}
	if err != nil {
		return err
	}
	return v.Entries(func(name []byte, value jsonscan.Value) error {
		if err := c.field(string(name), value); err != nil {
			return fmt.Errorf("%s: %w", tensorfile.Label(string(name)), err)
		}
		return nil
	})
}

// hasSizes reports whether an object has the number of labels of a head and of elements of a row.
func hasSizes(v jsonscan.Value) bool {
	labels, width := false, false
	_ = v.Entries(func(name []byte, value jsonscan.Value) error {
		if n, err := value.Int(); err == nil && n > 0 {
			labels = labels || string(name) == "vocab_size"
			width = width || slices.Contains(widths, string(name))
		}
		return nil
	})
	return labels && width
}

// decoderOf returns the object that describes the part of a model that has the head: the one named
// decoder, or otherwise the first with the sizes of a head, in it or in a text model within it. An
// object whose name tells an encoder, pictures or sound is not one.
func decoderOf(v jsonscan.Value, depth int) (found jsonscan.Value, in string) {
	_ = v.Entries(func(b []byte, value jsonscan.Value) error {
		name := string(b)
		for _, other := range []string{"encoder", "vision", "image", "audio", "speech"} {
			if strings.Contains(name, other) {
				return nil
			}
		}
		if value[0] != '{' || found != nil && name != "decoder" {
			return nil
		}
		sized := hasSizes(value)
		if !sized && depth+1 < mostNested {
			_ = value.Entries(func(b []byte, value jsonscan.Value) error {
				sized = sized || value[0] == '{' && slices.Contains(textModels, string(b)) && hasSizes(value)
				return nil
			})
		}
		if sized {
			found, in = value, name
		}
		return nil
	})
	return found, in
}

// field reads the value of a field. The type and the vocabulary of the text model are read before,
// and are kept.
func (c *config) field(name string, v jsonscan.Value) error {
	number, width := slices.Contains(configNumbers, name), slices.Contains(widths, name)
	switch {
	case v.IsNull():
		if number && !width { // the text model's width is kept
			c.numbers[name] = nil
		}
	case slices.Contains(narrower, name):
		if n, err := v.Int(); err == nil {
			c.allWidths = append(c.allWidths, n)
		}
	case name == "model_type":
		b, err := v.Bytes()
		c.types = append(c.types, string(b))
		return err
	case name == "tie_word_embeddings":
		tied, err := v.Bool()
		c.tied = &tied
		return err
	case name == "vocab_size", name == "unpadded_vocab_size":
		n, err := v.Int()
		if err == nil && (n < 0 || uint64(n) > math.MaxUint32) {
			err = v.Found(fmt.Sprintf("0 to %d", uint32(math.MaxUint32)))
		}
		to := &c.vocabulary
		if name == "unpadded_vocab_size" {
			to = &c.unpadded
		}
		*to = cmp.Or(*to, n)
		return err
	case name == "suppress_tokens":
		c.suppressed = []uint32{}
		return v.Array(func(v jsonscan.Value) error {
			n, err := v.Int()
			if err == nil && n >= 0 && uint64(n) < math.MaxUint32 {
				c.suppressed = append(c.suppressed, uint32(n))
			}
			return err
		})
	case strings.HasSuffix(name, "_token_id") && v[0] == '[':
		return v.Array(c.special)
	case strings.HasSuffix(name, "_token_id"):
		return c.special(v)
	case name == "logit_scale" && v[0] == '"':
		c.inverse = string(v) == `"inv_sqrt_d_model"`
		if !c.inverse {
			return v.Found("a number or inv_sqrt_d_model")
		}
	case width && !strings.ContainsRune("-0123456789", rune(v[0])), width && string(v) == "-Infinity":
		// of another kind of model, if nothing is scaled by it
	case number, width:
		x, err := v.Float()
		if width && 0 < x && x < math.MaxInt32 {
			c.width = cmp.Or(c.width, int(x))
			c.allWidths = append(c.allWidths, int(x))
		}
		if number {
			c.numbers[name] = &x
			return err
		}
	}
	return nil
}

// special notes the id of a special token.
func (c *config) special(v jsonscan.Value) error {
	n, err := v.Int()
	c.tokens = max(c.tokens, min(n, math.MaxInt-1)+1)
	if err == nil && n >= 0 && uint64(n) < math.MaxUint32 { // some have -1 for none
		c.specials = append(c.specials, uint32(n))
	}
	return err
}

// modelType is the type as errors name it.
func (c *config) modelType() string {
	return cmp.Or(append(slices.Clone(c.types), "")...)
}

// is reports whether this is a type of the model or of its text model.
func (c *config) is(kind string) bool { return slices.Contains(c.types, kind) }

func (c *config) isNull(name string) bool {
	x, ok := c.numbers[name]
	return ok && x == nil
}

// number returns a number that must be inRange, or otherwise if the file does not have it; null
// means a scale of 1, or no cap.
func (c *config) number(name string, otherwise float64) (float64, error) {
	x, ok := c.numbers[name]
	switch {
	case !ok:
		return otherwise, nil
	case x == nil:
		return 0, nil
	case !inRange(*x):
		return 0, fail(c.path, name, "found %v, expected %s", *x, rangeText)
	}
	return *x, nil
}

// finish returns the scales and the cap of the model: see Head.LogitScale, Head.StateScale and
// Head.SoftCap.
func (c *config) finish() (f finish, err error) {
	family := familyOf(c.types...)
	state, logit := family.factors()
	if x := c.numbers["logits_scaling"]; x != nil && *x != 1 && !slices.ContainsFunc(logit, func(x factor) bool { return x.field == "logits_scaling" }) {
		return f, fail(c.path, "logits_scaling", "found %v in a model of type %s, expected type granite, which divides by it, or hyperclovax, which multiplies: open the file of the tensor by its name for logits without it", *x, tensorfile.Label(c.modelType()))
	}
	if c.inverse {
		logit = append(logit, factor{field: "d_model", by: overRoot})
	}
	if f.state, err = c.scale(state, "states"); err == nil {
		f.scale, err = c.scale(logit, "logits")
	}
	if err != nil {
		return f, err
	}
	name := cmp.Or(family.field, "final_logit_softcapping")
	if x := c.numbers[name]; x != nil && *x == 0 {
		return f, nil // as no cap
	}
	f.cap, err = c.number(name, family.cap)
	return f, err
}

// scale returns the product of the factors that apply.
func (c *config) scale(factors []factor, of string) (scale float64, err error) {
	scale = 1
	for _, x := range factors {
		if x.tied && c.tied != nil && !*c.tied || x.only != "" && c.numbers[x.only] == nil || c.isNull(x.unless) {
			continue
		}
		n, err := c.number(x.field, x.otherwise)
		switch {
		case err != nil:
			return 1, err
		case n == 0 && x.otherwise == 0:
			return 1, fail(c.path, x.field, "found none, expected the width that %s scales its %s by", c.modelType(), of)
		case n == 0: // null
			continue
		}
		if scale = x.by(scale, n); !inRange(scale) {
			return 1, fail(c.path, x.field, "found %v, which makes %v of the scale of the %s, expected %s", n, scale, of, rangeText)
		}
	}
	return scale, nil
}
