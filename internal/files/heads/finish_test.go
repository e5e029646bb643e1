package heads

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// The scale and the cap of the logits from a config.json, by the code of each model.
func TestConfigFinish(t *testing.T) {
	for name, c := range map[string]struct {
		config     string
		scale, cap float64 // below 0: a scale of the state, before the head
		err        string
	}{
		"nothing":                    {`{"model_type":"llama","vocab_size":32000}`, 1, 0, ""},
		"Cohere":                     {`{"model_type":"cohere","logit_scale":0.0625}`, 0.0625, 0, ""},
		"Cohere, by default":         {`{"model_type":"cohere2"}`, 0.0625, 0, ""},
		"Granite":                    {`{"model_type":"granite","logits_scaling":16.0}`, 1.0 / 16, 0, ""},
		"Granite, of experts":        {`{"model_type":"granitemoehybrid","logits_scaling":8}`, 1.0 / 8, 0, ""},
		"HyperCLOVA X":               {`{"model_type":"hyperclovax","logits_scaling":0.125}`, 0.125, 0, ""},
		"a scaling of 1":             {`{"model_type":"x","logits_scaling":1.0}`, 1, 0, ""},
		"Falcon-H1":                  {`{"model_type":"falcon_h1","lm_head_multiplier":0.5}`, 0.5, 0, ""},
		"Phi-3-small":                {`{"model_type":"phi3small","mup_width_multiplier":8.0}`, 1.0 / 8, 0, ""},
		"MiniCPM":                    {`{"model_type":"minicpm","dim_model_base":256,"hidden_size":2304}`, -256.0 / 2304, 0, ""},
		"MiniCPM without its base":   {`{"model_type":"minicpm","hidden_size":2304}`, 1, 0, ""},
		"MiniCPM 3":                  {`{"model_type":"minicpm3","hidden_size":2560}`, -0.1, 0, ""},
		"MiniCPM 3, null":            {`{"model_type":"minicpm3","hidden_size":2560,"dim_model_base":null}`, 1, 0, ""},
		"UDOP":                       {`{"model_type":"udop","d_model":1024}`, -1.0 / 32, 0, ""},
		"mT5":                        {`{"model_type":"mt5","d_model":1024}`, 1, 0, ""},
		"Cohere Compass":             {`{"model_type":"cohere_compass"}`, 1, 0, ""},
		"Grok":                       {`{"model_type":"grok-1","output_multiplier_scale":0.5}`, 0.5, 0, ""},
		"T5Gemma 2":                  {`{"model_type":"t5gemma2","decoder":{"model_type":"t5gemma2_decoder","vocab_size":9,"hidden_size":4}}`, 1, 0, ""},
		"Muse Glimmer":               {`{"model_type":"muse_glimmer","text_config":{"output_multiplier":0.5,"final_logit_softcapping":10}}`, 0.5, 10, ""},
		"MPT":                        {`{"model_type":"mpt","logit_scale":null,"d_model":4096}`, 1, 0, ""},
		"MPT, by its width":          {`{"model_type":"mpt","logit_scale":"inv_sqrt_d_model","d_model":4096}`, 1.0 / 64, 0, ""},
		"T5":                         {`{"model_type":"t5","d_model":1024,"tie_word_embeddings":true}`, -1.0 / 32, 0, ""},
		"T5, untied":                 {`{"model_type":"t5","d_model":1024,"tie_word_embeddings":false}`, 1, 0, ""},
		"Gemma 2":                    {`{"model_type":"gemma2","final_logit_softcapping":30.0,"attn_logit_softcapping":50.0}`, 1, 30, ""},
		"Gemma 2, by default":        {`{"model_type":"gemma2"}`, 1, 30, ""},
		"Gemma 3":                    {`{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","final_logit_softcapping":null}}`, 1, 0, ""},
		"Gemma 3n":                   {`{"model_type":"gemma3n","text_config":{"model_type":"gemma3n_text","final_logit_softcapping":20}}`, 1, 20, ""},
		"RecurrentGemma":             {`{"model_type":"recurrent_gemma","logits_soft_cap":15}`, 1, 15, ""},
		"a text model's":             {`{"model_type":"llava","text_config":{"model_type":"cohere","logit_scale":0.5},"vision_config":{"logit_scale":9}}`, 0.5, 0, ""},
		"the top before it":          {`{"model_type":"x","logit_scale":0.25,"text_config":{"logit_scale":0.5}}`, 0.25, 0, ""},
		"a text model's width":       {`{"hidden_size":null,"model_type":"minicpm","dim_model_base":256,"text_config":{"hidden_size":1024}}`, -0.25, 0, ""},
		"a text model's d_model":     {`{"d_model":null,"model_type":"t5","text_config":{"d_model":1024}}`, -1.0 / 32, 0, ""},
		"null before a text model's": {`{"logit_scale":null,"text_config":{"logit_scale":0.5}}`, 1, 0, ""},
		"no field that is read":      {`{"x":1,"x":2,"logit_scale":2,"text_config":{"y":1,"y":[]},"vision_config":1,"vision_config":{}}`, 2, 0, ""},
		"null for a text model":      {`{"text_config":null,"logit_scale":2}`, 2, 0, ""},
		"a width of other shape":     {`{"hidden_size":[1,2],"d_model":"x"}`, 1, 0, ""},
		"escaped":                    {`{"\u006cogit_scale":2}`, 2, 0, ""},
		"an unknown model's scaling": {`{"model_type":"x","logits_scaling":4}`, 0, 0, "config.json: logits_scaling: found 4 in a model of type x, expected type granite"},
		"a scale of 0":               {`{"logit_scale":0}`, 0, 0, "config.json: logit_scale: found 0, expected a number from 1.2e-38 to 8.5e+37"},
		"a negative scale":           {`{"logit_scale":-1}`, 0, 0, "config.json: logit_scale: found -1, expected a number from 1.2e-38 to 8.5e+37"},
		"a scale beyond float32":     {`{"logit_scale":1e300}`, 0, 0, "config.json: logit_scale: found 1e+300, expected a number from 1.2e-38 to 8.5e+37"},
		"a divisor near 0":           {`{"model_type":"granite","logits_scaling":1e-310}`, 0, 0, "config.json: logits_scaling: found 1e-310, expected a number from 1.2e-38 to 8.5e+37"},
		"a subnormal scale":          {`{"logit_scale":1e-320}`, 0, 0, "config.json: logit_scale: found 1e-320, expected a number from 1.2e-38 to 8.5e+37"},
		"a divisor beyond float32":   {`{"model_type":"granite","logits_scaling":1e300}`, 0, 0, "config.json: logits_scaling: found 1e+300, expected a number from 1.2e-38 to 8.5e+37"},
		"a product that underflows":  {`{"logit_scale":1e-30,"lm_head_multiplier":1e-30}`, 0, 0, "config.json: lm_head_multiplier: found 1e-30, which makes 1.0000000000000001e-60 of the scale of the logits, expected a number from 1.2e-38 to 8.5e+37"},
		"a product that overflows":   {`{"logit_scale":1e30,"lm_head_multiplier":1e30}`, 0, 0, "config.json: lm_head_multiplier: found 1e+30, which makes 1.0000000000000001e+60 of the scale of the logits"},
		"T5 with a width of 0":       {`{"model_type":"t5","d_model":0}`, 0, 0, "config.json: d_model: found 0, expected a number from 1.2e-38 to 8.5e+37"},
		"MPT with a width near 0":    {`{"model_type":"mpt","logit_scale":"inv_sqrt_d_model","d_model":1e-310}`, 0, 0, "config.json: d_model: found 1e-310, expected a number"},
		"a cap near 0":               {`{"final_logit_softcapping":1e-310}`, 0, 0, "config.json: final_logit_softcapping: found 1e-310, expected a number"},
		"a scale beyond float64":     {`{"logit_scale":1e999}`, 0, 0, `config: logit_scale: found "1e999", expected a number within float64`},
		"a scale of another name":    {`{"logit_scale":"x"}`, 0, 0, `config: logit_scale: found "\"x\"", expected a number or inv_sqrt_d_model`},
		"no width to scale by":       {`{"logit_scale":"inv_sqrt_d_model","model_type":"mpt"}`, 0, 0, "config.json: d_model: found none, expected the width that mpt scales its logits by"},
		"MiniCPM without its width":  {`{"model_type":"minicpm","dim_model_base":256}`, 0, 0, "config.json: hidden_size: found none, expected the width that minicpm scales its states by"},
		"a width beyond float64":     {`{"hidden_size":1e999}`, 0, 0, `config: hidden_size: found "1e999", expected a number within float64`},
		"a cap of text":              {`{"final_logit_softcapping":"30"}`, 0, 0, `config: final_logit_softcapping: found "\"30\"", expected a number within float64`},
		"a negative cap":             {`{"final_logit_softcapping":-30}`, 0, 0, "config.json: final_logit_softcapping: found -30, expected a number from 1.2e-38 to 8.5e+37"},
		"a cap of 0":                 {`{"final_logit_softcapping":0}`, 1, 0, ""},
		"a field twice":              {`{"logit_scale":1,"logit_scale":2}`, 0, 0, `config: found "logit_scale" twice, expected it once`},
		"a text model's field twice": {`{"text_config":{"logit_scale":1,"\u006cogit_scale":2}}`, 0, 0, `config: found "logit_scale" twice, expected it once`},
		"a text model twice":         {`{"text_config":null,"text_config":{}}`, 0, 0, `config: found "text_config" twice, expected it once`},
		"two text models":            {`{"text_config":{},"llm_config":{}}`, 0, 0, "config: llm_config: found a second text model, expected one"},
		"vocab_size of text":         {`{"vocab_size":"32000"}`, 0, 0, `config: vocab_size: found "\"32000\"", expected an integer`},
		"a negative vocab_size":      {`{"vocab_size":-1}`, 0, 0, `config: vocab_size: found "-1", expected 0 to 4294967295`},
		"text after it":              {`{}{}`, 0, 0, `config: found invalid character '{' after top-level value at byte 2, expected JSON`},
	} {
		t.Run(name, func(t *testing.T) {
			f := finish{}
			conf, err := parseConfig([]byte(c.config), "config.json")
			if err == nil {
				f, err = conf.finish()
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q in it", err, c.err)
				}
				return
			}
			h := Head{model: model{finish: f}}
			scale := h.LogitScale()
			if before := h.StateScale(); before != 1 { // no row has both
				scale *= -before
			}
			if err != nil || scale != c.scale || h.SoftCap() != c.cap {
				t.Errorf("scales %v and %v, cap %v, %v; want %v, %v", h.StateScale(), h.LogitScale(), h.SoftCap(), err, c.scale, c.cap)
			}
		})
	}
}

func TestConfigFields(t *testing.T) {
	c, err := parseConfig([]byte(`{"model_type":"a","vocab_size":7,"eos_token_id":[3,9],"pad_token_id":null,"bos_token_id":-1,"tie_word_embeddings":null,`+
		`"text_config":{"model_type":"b","vocab_size":8,"eos_token_id":11,"tie_word_embeddings":false}}`), "x")
	if err != nil {
		t.Fatal(err)
	}
	if c.modelType() != "b" || c.vocabulary != 8 || c.tokens != 12 || c.tied == nil || *c.tied {
		t.Errorf("found %+v", c)
	}
}

// For any numbers in a config.json, either an error names the file and one of them, or final logits
// and temperatures are finite numbers.
func TestConfigFinishIsFinite(t *testing.T) {
	fields := slices.DeleteFunc(slices.Clone(configNumbers), func(name string) bool { return name == "logits_soft_cap" })
	types := []string{"llama", "cohere", "granite", "hyperclovax", "phi3small", "minicpm", "t5", "gemma2"}
	rapid.Check(t, func(t *rapid.T) {
		exponent := rapid.OneOf(rapid.IntRange(-323, 307), rapid.IntRange(-40, 40), rapid.IntRange(-2, 2))
		var text strings.Builder
		fmt.Fprintf(&text, `{"model_type":%q`, rapid.SampledFrom(types).Draw(t, "type"))
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(fields), rapid.ID).Draw(t, "fields") {
			fmt.Fprintf(&text, `,%q:3e%d`, name, exponent.Draw(t, name))
		}
		text.WriteByte('}')
		c, err := parseConfig([]byte(text.String()), "config.json")
		f := finish{}
		if err == nil {
			f, err = c.finish()
		}
		if err != nil {
			if field, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "l2s: config.json: "), ":"); !slices.Contains(configNumbers, field) {
				t.Fatalf("%s: found the error %v, expected one that names the file and a field", text.String(), err)
			}
			return
		}
		h := Head{model: model{finish: f}}
		const raw = math.MaxFloat32 * math.MaxFloat32 * (1 << 32) // no larger one is in a file
		for _, x := range []float64{h.Logit(raw), h.Logit(-raw), h.Logit(1), 1 / h.LogitScale()} {
			if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 {
				t.Fatalf("%s: found %v with scale %v and cap %v, expected a finite number that is not 0", text.String(), x, f.scale, f.cap)
			}
		}
	})
}

// The same of the metadata of GGUF files.
func TestGGUFFinish(t *testing.T) {
	kv := gguftest.KV
	for name, c := range map[string]struct {
		arch       string
		metadata   []gguftest.Value
		scale, cap float64
		err        string
	}{
		"nothing":                  {"llama", nil, 1, 0, ""},
		"Cohere":                   {"command-r", []gguftest.Value{kv("command-r.logit_scale", float32(0.0625))}, 0.0625, 0, ""},
		"Granite":                  {"granite", []gguftest.Value{kv("granite.logit_scale", float32(8))}, 0.125, 0, ""},
		"Granite, hybrid":          {"granitehybrid", []gguftest.Value{kv("granitehybrid.logit_scale", float32(4))}, 0.25, 0, ""},
		"MiniCPM":                  {"minicpm", []gguftest.Value{kv("minicpm.logit_scale", float32(9))}, 1.0 / 9, 0, ""},
		"MiniCPM, old":             {"minicpm", nil, 0.125, 0, ""},
		"MiniCPM 3":                {"minicpm3", nil, 0.125, 0, ""},
		"Grok, old":                {"grok", nil, float64(float32(0.5773502691896257)), 0, ""},
		"Grok":                     {"grok", []gguftest.Value{kv("grok.logit_scale", float32(0.5)), kv("grok.final_logit_softcapping", float32(50))}, 0.5, 50, ""},
		"Gemma 2":                  {"gemma2", []gguftest.Value{kv("gemma2.final_logit_softcapping", float32(30))}, 1, 30, ""},
		"Gemma 2, old":             {"gemma2", nil, 1, 30, ""},
		"MiniCPM 3 with its field": {"minicpm3", []gguftest.Value{kv("minicpm3.logit_scale", float32(9))}, 0.125, 0, ""},
		"Gemma 2, a cap 0":         {"gemma2", []gguftest.Value{kv("gemma2.final_logit_softcapping", float32(0))}, 0, 0, "x: metadata gemma2.final_logit_softcapping: found 0, by which llama.cpp divides, expected a number above it"},
		"Gemma 3":                  {"gemma3", nil, 1, 0, ""},
		"Gemma 3n, old":            {"gemma3n", nil, 1, 30, ""},
		"Gemma 3n":                 {"gemma3n", []gguftest.Value{kv("gemma3n.final_logit_softcapping", float32(20))}, 1, 30, ""},
		"Gemma 4":                  {"gemma4", []gguftest.Value{kv("gemma4.final_logit_softcapping", float32(0))}, 1, 0, ""},
		"Gemma 4, old":             {"gemma4", nil, 1, 30, ""},
		"Muse Glimmer":             {"muse-glimmer", []gguftest.Value{kv("muse-glimmer.logit_scale", float32(0.25))}, 0.25, 30, ""},
		"Talkie":                   {"talkie", []gguftest.Value{kv("talkie.logit_scale", float32(4))}, 4, 0, ""},
		"Cohere 2":                 {"cohere2", []gguftest.Value{kv("cohere2.logit_scale", float32(0.0625))}, 0.0625, 0, ""},
		"Cohere, silent":           {"command-r", nil, 1, 0, ""},
		"a scale of 0":             {"command-r", []gguftest.Value{kv("command-r.logit_scale", float32(0))}, 1, 0, ""},
		"of another model":         {"llama", []gguftest.Value{kv("granite.logit_scale", float32(8))}, 1, 0, ""},
		"an integer":               {"llama", []gguftest.Value{kv("llama.logit_scale", uint32(2))}, 2, 0, ""},
		"a negative scale":         {"llama", []gguftest.Value{kv("llama.logit_scale", float32(-2))}, 0, 0, "x: metadata llama.logit_scale: found -2, expected a number from 1.2e-38 to 8.5e+37, or 0 for none"},
		"a divisor near 0":         {"granite", []gguftest.Value{kv("granite.logit_scale", 1e-310)}, 0, 0, "x: metadata granite.logit_scale: found 1e-310, expected a number from 1.2e-38 to 8.5e+37, or 0 for none"},
		"a subnormal scale":        {"command-r", []gguftest.Value{kv("command-r.logit_scale", float32(1e-40))}, 0, 0, "x: metadata command-r.logit_scale: found 9.99994610111476e-41, expected a number"},
		"a huge divisor":           {"granite", []gguftest.Value{kv("granite.logit_scale", float32(3e38))}, 0, 0, "x: metadata granite.logit_scale: found 3."},
		"a scale of NaN":           {"llama", []gguftest.Value{kv("llama.logit_scale", float32(math.NaN()))}, 0, 0, "x: metadata llama.logit_scale: found NaN, expected"},
		"an infinite cap":          {"llama", []gguftest.Value{kv("llama.final_logit_softcapping", float32(math.Inf(1)))}, 0, 0, "x: metadata llama.final_logit_softcapping: found +Inf, expected"},
		"a scale of text":          {"llama", []gguftest.Value{kv("llama.logit_scale", "2")}, 0, 0, "metadata llama.logit_scale: found a string, a bool or an array, expected a number"},
		"a number for arch":        {"", []gguftest.Value{kv("general.architecture", uint32(2))}, 0, 0, "metadata general.architecture: found a number or an array, expected a string"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.arch != "" {
				c.metadata = append(c.metadata, kv("general.architecture", c.arch))
			}
			path := t.TempDir() + "/x"
			file := gguftest.File{Metadata: c.metadata, Tensors: []gguftest.Tensor{{Name: "output.weight", Dims: []uint64{2048, 1}, Data: make([]byte, 4*2048)}}}
			writeFile(t, path, file.Bytes())
			h, err := Open(path, Options{})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if h.LogitScale() != c.scale || h.SoftCap() != c.cap {
				t.Errorf("scale %v, cap %v; want %v, %v", h.LogitScale(), h.SoftCap(), c.scale, c.cap)
			}
		})
	}
}

// Final logits equal the definition, within rounding, and in the order of the raw logits.
func TestLogit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.Float64Range(1e-3, 1e3).Draw(t, "scale")
		limit := rapid.SampledFrom([]float64{0, 1, 15, 30, 50}).Draw(t, "cap")
		h := Head{model: model{finish: finish{scale: scale, cap: limit}}}
		raw := rapid.SliceOfN(rapid.Float64Range(-200, 200), 1, 20).Draw(t, "raw")
		if i := rapid.IntRange(0, len(raw)-1).Draw(t, "small"); limit > 0 {
			raw[i] = rapid.Float64Range(-0.07, 0.07).Draw(t, "x") * limit / scale
		}
		slices.Sort(raw)
		last := math.Inf(-1)
		for _, x := range raw {
			want := scale * x
			if limit > 0 {
				want = limit * math.Tanh(want/limit)
			}
			got := h.Logit(x)
			if math.Abs(got-want) > 1e-14*math.Abs(want) {
				t.Fatalf("Logit(%v) = %v, want %v", x, got, want)
			}
			if got < last-1e-14*math.Abs(last) {
				t.Fatalf("Logit(%v) = %v is below the final logit %v of a smaller one", x, got, last)
			}
			last = got
		}
	})
	for _, x := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1000, -1000} {
		if got, want := kernels.SoftCap(x, 1), math.Tanh(x); math.Float64bits(got) != math.Float64bits(want) && !(got != got && want != want) {
			t.Errorf("SoftCap(%v, 1) = %v, want %v", x, got, want)
		}
	}
}

// The size of the tokenizer, by the existing files.
func TestTokenizerSize(t *testing.T) {
	pieces := func(n int) string {
		return strings.Repeat("\x0a\x03\x0a\x01x", n) + "\x12\x02\x08\x01\x18\x05\x21\x00\x00\x00\x00\x00\x00\x00\x00\x2d\x00\x00\x00\x00"
	}
	const config = `{"eos_token_id":2}`
	for name, c := range map[string]struct {
		files map[string]string
		want  int
		err   string
	}{
		"no files":                       {nil, 0, ""},
		"an object of ids":               {map[string]string{"tokenizer.json": `{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":0,"b":7,"c":3},"merges":[["a","b"]]}}`}, 8, ""},
		"a list of pieces":               {map[string]string{"tokenizer.json": `{"model":{"type":"Unigram","vocab":[["<s>",0.0],["x",-3.5]]},"added_tokens":null}`}, 0, `expected an array`},
		"a list and added tokens":        {map[string]string{"tokenizer.json": `{"model":{"vocab":[["<s>",0.0],["x",-3.5],["y",-4],["z",-5]]},"added_tokens":[{"content":"q","id":4}]}`}, 5, ""},
		"ids elsewhere":                  {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "tokenizer_config.json": `{"added_tokens_decoder":{"11":{"content":"x"}},"auto_map":null}`, "added_tokens.json": `{"x":9}`}, 12, ""},
		"an entry that is no object":     {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "tokenizer_config.json": `{"added_tokens_decoder":{"11":"x"}}`}, 12, ""},
		"a special token of the config":  {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`}, 3, ""},
		"a sentencepiece model":          {map[string]string{"tokenizer.model": pieces(6), "added_tokens.json": `{"x":6}`}, 7, ""},
		"with its own code":              {map[string]string{"tokenizer.model": pieces(6), "tokenizer_config.json": `{"auto_map":{"AutoTokenizer":["x.X",null]}}`}, 0, ""},
		"tokenizer.json before it":       {map[string]string{"tokenizer.model": pieces(6), "tokenizer.json": `{"model":{"vocab":{"a":3}}}`}, 4, ""},
		"tiktoken's under its name":      {map[string]string{"tokenizer.model": "IQ== 0\nIg== 1\n"}, 0, ""},
		"a cut sentencepiece model":      {map[string]string{"tokenizer.model": pieces(6)[:27]}, 0, ""},
		"an empty one":                   {map[string]string{"tokenizer.model": ""}, 0, ""},
		"added tokens alone":             {map[string]string{"added_tokens.json": `{"x":6}`}, 0, ""},
		"no vocabulary":                  {map[string]string{"tokenizer.json": `{"model":{}}`}, 0, "tokenizer.json: tokens: found no vocabulary in the model, expected one"},
		"an id below 0":                  {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":-7}}}`}, 0, "tokenizer.json: tokens: found the id -7, expected 0 to 4294967294"},
		"an id that is no number":        {map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"x":{}}}`}, 0, "tokenizer_config.json: tokens: found x in added_tokens_decoder, expected an id"},
		"an added id of text":            {map[string]string{"added_tokens.json": `{"x":"6"}`}, 0, `added_tokens.json: tokens: found "\"6\"", expected an integer`},
		"a tokenizer that ends too soon": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":1}`}, 0, `tokenizer.json: tokens: found unexpected end of JSON input at byte 24, expected JSON`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				writeFile(t, dir+"/"+file, []byte(text))
			}
			conf, err := parseConfig([]byte(config), "x")
			if err != nil {
				t.Fatal(err)
			}
			n, err := tokenizerSize(dir, conf)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q in it", err, c.err)
				}
				return
			}
			if n != c.want || err != nil {
				t.Errorf("found %d, %v, want %d", n, err, c.want)
			}
		})
	}
}

// The texts of tokens, in every form.
func TestTokens(t *testing.T) {
	sentencepiece := "\x0a\x05\x0a\x03<s>" + "\x0a\x0b\x0a\x04\xe2\x96\x81x\x15\x00\x00\x80\xbf" + "\x0a\x05\x15\x00\x00\x00\x00" + "\x12\x02\x08\x01"
	gguf := gguftest.File{Metadata: []gguftest.Value{gguftest.KV("tokenizer.ggml.tokens", []string{"a", "", "Ġb"})}}
	for name, c := range map[string]struct {
		files  map[string]string
		source string
		want   map[uint32]string
		err    string
	}{
		"an object of ids": {map[string]string{"tokenizer.json": `{"added_tokens":[{"id":9,"content":"<s>","special":true}],"model":{"vocab":{"a":0,"\u0120b":7}}}`}, "",
			map[uint32]string{0: "a", 7: "Ġb", 9: "<s>"}, ""},
		"the file alone": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "added_tokens.json": `{"x":1}`}, "/tokenizer.json",
			map[uint32]string{0: "a"}, ""},
		"a list of pieces": {map[string]string{"tokenizer.json": `{"model":{"vocab":[["<s>",0.0],["\u2581x",-3.5],[],7,["\n",1]]}}`}, "",
			map[uint32]string{0: "<s>", 1: "▁x", 2: "", 3: "", 4: "\n"}, ""},
		"added tokens in other files": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "tokenizer_config.json": `{"added_tokens_decoder":{"2":{"content":"</s>"},"3":{}}}`, "added_tokens.json": `{"x":4}`}, "",
			map[uint32]string{0: "a", 2: "</s>", 3: "", 4: "x"}, ""},
		"an added token that is no object": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "tokenizer_config.json": `{"added_tokens_decoder":{"5":"x","6":null}}`}, "",
			map[uint32]string{0: "a", 5: "", 6: ""}, ""},
		"an id beyond uint32": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":4294967295}}}`}, "", nil,
			"/tokenizer.json: tokens: found the id 4294967295, expected 0 to 4294967294"},
		"an id that no list reaches": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":4294967294}}}`}, "",
			map[uint32]string{4294967294: "a"}, ""},
		"sentencepiece in a folder":         {map[string]string{"tokenizer.model": sentencepiece}, "", map[uint32]string{0: "<s>", 1: "▁x", 2: ""}, ""},
		"sentencepiece":                     {map[string]string{"tokenizer.model": sentencepiece}, "/tokenizer.model", map[uint32]string{0: "<s>", 1: "▁x", 2: ""}, ""},
		"GGUF":                              {map[string]string{"m.gguf": string(gguf.Bytes())}, "/m.gguf", map[uint32]string{0: "a", 1: "", 2: "Ġb"}, ""},
		"GGUF without tokens":               {map[string]string{"m.gguf": string(gguftest.File{}.Bytes())}, "/m.gguf", nil, "/m.gguf: metadata: found no tokenizer.ggml.tokens, expected the tokens"},
		"another file with the name":        {map[string]string{"m.gguf": "{}"}, "/m.gguf", nil, "/m.gguf"},
		"a folder without a tokenizer":      {nil, "", nil, ": tokens: found a folder without tokenizer.json and tokenizer.model, expected one of them"},
		"another file of sentencepiece":     {map[string]string{"tokenizer.model": "IQ== 0\n"}, "/tokenizer.model", nil, "/tokenizer.model: tokens: found another kind of file, expected a model of sentencepiece"},
		"a file that is not there":          {nil, "/none.json", nil, "/none.json: no such file or directory"},
		"a text in the place of a number":   {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":"0"}}}`}, "", nil, `/tokenizer.json: tokens: found "\"0\"", expected an integer`},
		"a tokenizer.json that is cut":      {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}`}, "", nil, `/tokenizer.json: tokens: found unexpected end of JSON input at byte 24, expected JSON`},
		"an added token without an id":      {map[string]string{"tokenizer.json": `{"added_tokens":[{"content":"q"}],"model":{"vocab":{"a":0}}}`}, "", map[uint32]string{0: "a"}, ""},
		"a text that is there for two ids":  {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0,"a":1}}}`}, "", map[uint32]string{0: "a", 1: "a"}, ""},
		"an id that is there for two texts": {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0,"b":0}}}`}, "", map[uint32]string{0: "b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				writeFile(t, dir+"/"+file, []byte(text))
			}
			got, err := Tokens(dir + c.source)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), dir+c.err) {
					t.Errorf("error %v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("found %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// The list of names has no duplicates, and each name belongs to a matrix of weights.
func TestNamesAreLookedForOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range slices.Concat(headNames, embeddingNames) {
		if seen[name] || !strings.HasSuffix(name, ".weight") || tensorfile.Label(name) != name {
			t.Errorf("%q", name)
		}
		seen[name] = true
	}
}
