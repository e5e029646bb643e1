package head

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// config is what a model's config.json says of its head.
type config struct {
	path       string
	modelType  string
	tied       *bool               // nil if it says nothing
	vocabulary int                 // 0 for none
	tokens     int                 // one more than the largest id of a special token
	specials   []uint32            // the ids of special tokens
	numbers    map[string]*float64 // nil if the file has null
	inverse    bool                // logit_scale is "inv_sqrt_d_model"
}

// configNumbers are the numbers that say what becomes of a logit.
var configNumbers = []string{
	"logit_scale", "logits_scaling", "lm_head_multiplier", "mup_width_multiplier", "dim_model_base",
	"hidden_size", "d_model", "final_logit_softcapping", "logits_soft_cap",
}

// readConfig reads a config.json. Of a model that has a text model among others,
// what stands at the top goes before what stands there, but for the text model's
// type and vocabulary.
func readConfig(path string) (c *config, err error) {
	err = tensorfile.Parse(path, func(data []byte) (err error) {
		c, err = parseConfig(data, path)
		return err
	})
	return c, err
}

func parseConfig(data []byte, path string) (*config, error) {
	newConfig := func() *config { return &config{path: path, numbers: map[string]*float64{}} }
	top, text := newConfig(), (*config)(nil)
	s := jsonscan.New(data)
	// fields reads an object; what inner reads is wanted at the top only.
	fields := func(c *config, inner func() error) error {
		seen := map[string]bool{}
		return s.Object(func(name []byte) error {
			field := string(name)
			nested := inner != nil && isTextModel(field)
			if !nested && !isField(field) {
				return s.Skip()
			}
			if seen[field] {
				return fmt.Errorf("found %s twice, expected it once", tensorfile.Label(field))
			}
			seen[field] = true
			read := func() error { return c.field(s, field) }
			if nested {
				read = inner
			}
			if err := read(); err != nil {
				return fmt.Errorf("%s: %w", tensorfile.Label(field), err)
			}
			return nil
		})
	}
	err := fields(top, func() error {
		if s.Kind() != '{' {
			return s.Skip()
		}
		if text != nil {
			return fmt.Errorf("found a second text model, expected one")
		}
		text = newConfig()
		return fields(text, nil)
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, fail(path, "config", "%w", err)
	}
	if text != nil {
		top.add(text)
	}
	return top, nil
}

// isTextModel reports whether a field of a config.json describes a text model.
func isTextModel(name string) bool {
	return name == "text_config" || name == "llm_config" || name == "language_config"
}

// isField reports whether field reads a field of this name.
func isField(name string) bool {
	switch name {
	case "model_type", "tie_word_embeddings", "vocab_size":
		return true
	}
	return slices.Contains(configNumbers, name) || strings.HasSuffix(name, "_token_id")
}

// field reads the value of a field.
func (c *config) field(s *jsonscan.Scanner, name string) error {
	switch kind := s.Kind(); {
	case name == "model_type" && kind == '"':
		b, err := s.Bytes()
		c.modelType = string(b)
		return err
	case name == "tie_word_embeddings":
		v, found, err := s.Bool()
		if found {
			c.tied = &v
		}
		return err
	case kind == 'n' && (name == "model_type" || name == "vocab_size" || strings.HasSuffix(name, "_token_id")):
		return s.Skip()
	case name == "model_type":
		_, err := s.Bytes()
		return err
	case name == "vocab_size":
		n, err := s.Int()
		if err == nil && (n < 0 || uint64(n) > math.MaxUint32) {
			err = fmt.Errorf("found %d, expected 0 to %d", n, uint32(math.MaxUint32))
		}
		c.vocabulary = n
		return err
	case strings.HasSuffix(name, "_token_id"):
		id := func() error {
			n, err := s.Int()
			c.tokens = max(c.tokens, min(n, math.MaxInt-1)+1)
			if err == nil && n >= 0 && uint64(n) < math.MaxUint32 { // some say -1 for none
				c.specials = append(c.specials, uint32(n))
			}
			return err
		}
		if kind == '[' {
			return s.Array(id)
		}
		return id()
	case name == "logit_scale" && kind == '"':
		b, err := s.Bytes()
		if err == nil && string(b) != "inv_sqrt_d_model" {
			err = fmt.Errorf("found %s, expected a number or inv_sqrt_d_model", tensorfile.Label(string(b)))
		}
		c.inverse = true
		return err
	case (name == "hidden_size" || name == "d_model") && kind != 0:
		return s.Skip() // of another kind of model, if nothing is scaled by it
	}
	x, found, err := s.Float()
	if c.numbers[name] = nil; found {
		c.numbers[name] = &x
	}
	return err
}

// add adds what the text model's part says.
func (c *config) add(text *config) {
	if text.modelType != "" {
		c.modelType = text.modelType
	}
	if text.vocabulary > 0 {
		c.vocabulary = text.vocabulary
	}
	if c.tied == nil {
		c.tied = text.tied
	}
	c.tokens = max(c.tokens, text.tokens)
	c.specials = append(c.specials, text.specials...)
	for name, x := range text.numbers {
		if _, ok := c.numbers[name]; !ok {
			c.numbers[name] = x
		}
	}
	c.inverse = c.inverse || text.inverse
}

// number returns a number that must be inRange, or otherwise if the file does
// not have it; null is as good as 1 of a scale and none of a cap.
func (c *config) number(name string, otherwise float64) (float64, error) {
	x, ok := c.numbers[name]
	switch {
	case !ok || x == nil:
		if ok {
			otherwise = 0
		}
		return otherwise, nil
	case !inRange(*x):
		return 0, fail(c.path, name, "found %v, expected %s", *x, rangeText)
	}
	return *x, nil
}

// finish returns the scale and the cap of the model, whose head may be its input
// embedding; see Head.LogitScale and Head.SoftCap.
func (c *config) finish(tied bool) (f finish, err error) {
	f.scale = 1
	// by changes the scale by a number of the file.
	by := func(name string, otherwise float64, change func(scale, x float64) float64) {
		x, e := c.number(name, otherwise)
		switch {
		case err != nil:
		case e != nil:
			err = e
		case x != 0:
			if f.scale = change(f.scale, x); !inRange(f.scale) {
				err = fail(c.path, name, "found %v, which makes %v of the scale of the logits, expected %s", x, f.scale, rangeText)
			}
		}
	}
	times := func(scale, x float64) float64 { return scale * x }
	over := func(scale, x float64) float64 { return scale / x }
	overRoot := func(scale, x float64) float64 { return scale / math.Sqrt(x) }
	family := func(prefix string) bool { return strings.HasPrefix(c.modelType, prefix) }
	width := func(name string) {
		if c.numbers[name] == nil && err == nil {
			err = fail(c.path, name, "found none, expected the width that %s scales its logits by", c.modelType)
		}
	}

	otherwise := 1.0
	if family("cohere") {
		otherwise = 0.0625
	}
	by("logit_scale", otherwise, times)
	if c.inverse {
		width("d_model")
		by("d_model", 1, overRoot)
	}
	by("lm_head_multiplier", 1, times)
	if x := c.numbers["logits_scaling"]; x != nil && *x != 1 && !family("granite") && !family("hyperclovax") {
		return f, fail(c.path, "logits_scaling", "found %v in a model of type %s, expected type granite, which divides by it, or hyperclovax, which multiplies: open the file of the tensor by its name for logits without it", *x, tensorfile.Label(c.modelType))
	}
	if family("granite") {
		by("logits_scaling", 1, over)
	} else {
		by("logits_scaling", 1, times)
	}
	switch {
	case c.modelType == "phi3small":
		by("mup_width_multiplier", 8, over)
	case family("minicpm") && c.numbers["dim_model_base"] != nil:
		width("hidden_size")
		by("dim_model_base", 1, times)
		by("hidden_size", 1, over)
	case tied && (c.modelType == "t5" || c.modelType == "mt5" || c.modelType == "umt5"):
		width("d_model")
		by("d_model", 1, overRoot)
	}
	if err != nil {
		return f, err
	}

	cap, name := 0.0, "final_logit_softcapping"
	switch {
	case family("gemma2"), family("gemma3n"):
		cap = 30
	case family("recurrent_gemma"):
		cap, name = 30, "logits_soft_cap"
	}
	if x := c.numbers[name]; x != nil && *x == 0 {
		return f, nil // as no cap
	}
	f.cap, err = c.number(name, cap)
	return f, err
}
