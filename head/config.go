package head

import (
	"cmp"
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

// textModels are the fields that describe a text model among others.
var textModels = []string{"text_config", "llm_config", "language_config"}

// isField reports whether a field of this name is read.
func isField(name string) bool {
	switch name {
	case "model_type", "tie_word_embeddings", "vocab_size":
		return true
	}
	return slices.Contains(configNumbers, name) || strings.HasSuffix(name, "_token_id")
}

// readConfig reads a config.json. Of a model that has a text model among others, what stands at
// the top goes before what stands there, but for the text model's type and vocabulary.
func readConfig(path string) (*config, error) {
	data, err := tensorfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(data, path)
}

func parseConfig(data []byte, path string) (*config, error) {
	c := &config{path: path, numbers: map[string]*float64{}}
	v, err := jsonscan.Parse(data)
	if err == nil {
		err = c.read(v, true)
	}
	if err != nil {
		return nil, fail(path, "config", "%w", err)
	}
	return c, nil
}

// read reads the fields of a model, after those of a text model within it. What is not read
// may be there twice.
func (c *config) read(v jsonscan.Value, top bool) error {
	var text jsonscan.Value
	seen := map[string]bool{}
	err := v.Entries(func(b []byte, value jsonscan.Value) error {
		name := string(b)
		nested := top && slices.Contains(textModels, name)
		switch {
		case !nested && !isField(name):
			return nil
		case seen[name]:
			return fmt.Errorf("found %.100q twice, expected it once", name)
		case nested && value[0] == '{' && text != nil:
			return fmt.Errorf("%s: found a second text model, expected one", name)
		case nested && value[0] == '{':
			text = value
		}
		seen[name] = true
		return nil
	})
	if err == nil && text != nil {
		err = c.read(text, false)
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

// field reads the value of a field. What the text model says of its type and its vocabulary
// is there already, and stays.
func (c *config) field(name string, v jsonscan.Value) error {
	number, width := slices.Contains(configNumbers, name), name == "hidden_size" || name == "d_model"
	switch {
	case v.IsNull():
		if number && !width { // the text model's width stays
			c.numbers[name] = nil
		}
	case name == "model_type":
		b, err := v.Bytes()
		c.modelType = cmp.Or(c.modelType, string(b))
		return err
	case name == "tie_word_embeddings":
		tied, err := v.Bool()
		c.tied = &tied
		return err
	case name == "vocab_size":
		n, err := v.Int()
		if err == nil && (n < 0 || uint64(n) > math.MaxUint32) {
			err = v.Found(fmt.Sprintf("0 to %d", uint32(math.MaxUint32)))
		}
		c.vocabulary = cmp.Or(c.vocabulary, n)
		return err
	case strings.HasSuffix(name, "_token_id") && v[0] == '[':
		return v.Array(c.special)
	case strings.HasSuffix(name, "_token_id"):
		return c.special(v)
	case name == "logit_scale" && v[0] == '"':
		c.inverse = string(v) == `"inv_sqrt_d_model"`
		if !c.inverse {
			return v.Found("a number or inv_sqrt_d_model")
		}
	case width && !strings.ContainsRune("-0123456789", rune(v[0])):
		// of another kind of model, if nothing is scaled by it
	case number:
		x, err := v.Float()
		c.numbers[name] = &x
		return err
	}
	return nil
}

// special notes the id of a special token.
func (c *config) special(v jsonscan.Value) error {
	n, err := v.Int()
	c.tokens = max(c.tokens, min(n, math.MaxInt-1)+1)
	if err == nil && n >= 0 && uint64(n) < math.MaxUint32 { // some say -1 for none
		c.specials = append(c.specials, uint32(n))
	}
	return err
}

// number returns a number that must be inRange, or otherwise if the file does
// not have it; null is as good as 1 of a scale and none of a cap.
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

// finish returns the scale and the cap of the model, whose head may be its input
// embedding; see Head.LogitScale and Head.SoftCap.
func (c *config) finish(tied bool) (f finish, err error) {
	family := func(prefix string) bool { return strings.HasPrefix(c.modelType, prefix) }
	if x := c.numbers["logits_scaling"]; x != nil && *x != 1 && !family("granite") && !family("hyperclovax") {
		return f, fail(c.path, "logits_scaling", "found %v in a model of type %s, expected type granite, which divides by it, or hyperclovax, which multiplies: open the file of the tensor by its name for logits without it", *x, tensorfile.Label(c.modelType))
	}
	otherwise := 1.0
	if family("cohere") {
		otherwise = 0.0625
	}
	times := func(x float64) float64 { return f.scale * x }
	over := func(x float64) float64 { return f.scale / x }
	overRoot := func(x float64) float64 { return f.scale / math.Sqrt(x) }
	miniCPM := family("minicpm") && c.numbers["dim_model_base"] != nil
	t5 := tied && (c.modelType == "t5" || c.modelType == "mt5" || c.modelType == "umt5")
	f.scale = 1
	for _, change := range []struct {
		applies   bool
		name      string
		otherwise float64 // 0 if the number must be there
		by        func(x float64) float64
	}{
		{true, "logit_scale", otherwise, times},
		{c.inverse, "d_model", 0, overRoot},
		{true, "lm_head_multiplier", 1, times},
		{family("granite"), "logits_scaling", 1, over},
		{!family("granite"), "logits_scaling", 1, times},
		{c.modelType == "phi3small", "mup_width_multiplier", 8, over},
		{miniCPM, "dim_model_base", 1, times},
		{miniCPM, "hidden_size", 0, over},
		{t5, "d_model", 0, overRoot},
	} {
		if !change.applies {
			continue
		}
		x, err := c.number(change.name, change.otherwise)
		switch {
		case err != nil:
			return f, err
		case x == 0 && change.otherwise == 0:
			return f, fail(c.path, change.name, "found none, expected the width that %s scales its logits by", c.modelType)
		case x == 0: // null
			continue
		}
		if f.scale = change.by(x); !inRange(f.scale) {
			return f, fail(c.path, change.name, "found %v, which makes %v of the scale of the logits, expected %s", x, f.scale, rangeText)
		}
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
