package heads

import (
	"math"
	"slices"
	"strings"
)

// factor is a number of a config.json that a model scales by.
type factor struct {
	field     string
	otherwise float64 // the default; 0: the file must have it
	by        func(scale, x float64) float64
	shows     string // the factor of the scale, in words of fields
	only      string // the field without which nothing is scaled by it
	unless    string // the field that must not be null
	tied      bool   // it applies unless tie_word_embeddings is false
}

func times(scale, x float64) float64    { return scale * x }
func over(scale, x float64) float64     { return scale / x }
func overRoot(scale, x float64) float64 { return scale / math.Sqrt(x) }

// family describes the scales and caps of models of some types, from the last normalisation to the
// final logits.
type family struct {
	name  string
	types string   // model_type of config.json, several with spaces between them; * matches any rest
	state []factor // of a state before the head
	logit []factor // of a logit after the head
	cap   float64  // the soft cap where the file is silent, 0 for none
	field string   // of the cap; final_logit_softcapping if empty
}

// families are the models that do more than every model may: see everyModel. The first whose types
// match is taken. Sources: the forward of each class ...ForCausalLM and ...ForConditionalGeneration
// of transformers 5.24, in models/*/modeling_*.py, and the defaults of models/*/configuration_*.py;
// the models' own modeling_minicpm.py, modeling_phi3_small.py and MPT's modeling_mpt.py.
var families = []family{
	{name: "T5, UMT5, LongT5, Pop2Piano, Switch Transformers, UDOP", types: "t5 umt5 longt5 pop2piano switch_transformers udop",
		state: []factor{{field: "d_model", by: overRoot, shows: "1/sqrt(d_model), unless tie_word_embeddings is false", tied: true}}},
	{name: "MiniCPM", types: "minicpm", state: []factor{
		{field: "dim_model_base", otherwise: 1, by: times, only: "dim_model_base", shows: "dim_model_base/hidden_size"},
		{field: "hidden_size", by: over, only: "dim_model_base"}}},
	{name: "MiniCPM3", types: "minicpm3", state: []factor{
		{field: "dim_model_base", otherwise: 256, by: times, shows: "dim_model_base/hidden_size, 256 by default"},
		{field: "hidden_size", by: over, unless: "dim_model_base"}}},
	{name: "MiniCPM-V, MiniCPM-o", types: "minicpm*", state: []factor{
		{field: "dim_model_base", otherwise: 1, by: times, only: "dim_model_base", shows: "dim_model_base/hidden_size"},
		{field: "hidden_size", by: over, only: "dim_model_base"}}},
	{name: "Inkling", types: "inkling inkling_text inkling_mm_model",
		state: []factor{{field: "logits_mup_width_multiplier", otherwise: 24, by: over, shows: "1/logits_mup_width_multiplier, 24 by default"}}},
	{name: "Cohere Command, Aya", types: "cohere cohere2 cohere2_moe cohere2_vision aya_vision",
		logit: []factor{{field: "logit_scale", otherwise: 0.0625, by: times, shows: "logit_scale, 0.0625 by default"}}},
	{name: "Granite Docling", types: "granite_docling*",
		logit: []factor{{field: "logits_scaling", otherwise: 4, by: over, shows: "1/logits_scaling, 4 by default"}}},
	{name: "Granite", types: "granite*", logit: []factor{{field: "logits_scaling", otherwise: 1, by: over, shows: "1/logits_scaling"}}},
	{name: "HyperCLOVA X", types: "hyperclovax*", logit: []factor{{field: "logits_scaling", otherwise: 1, by: times, shows: "logits_scaling"}}},
	{name: "Phi-3-small", types: "phi3small",
		logit: []factor{{field: "mup_width_multiplier", otherwise: 8, by: over, shows: "1/mup_width_multiplier, 8 by default"}}},
	{name: "Muse Glimmer", types: "muse_glimmer*", cap: 20,
		logit: []factor{{field: "output_multiplier", otherwise: 0.19611613513818404, by: times, shows: "output_multiplier, 0.196 by default"}}},
	{name: "Muse Spark", types: "muse_spark*", cap: 20,
		logit: []factor{{field: "output_multiplier", otherwise: 0.1767766952966369, by: times, shows: "output_multiplier, 0.177 by default"}}},
	{name: "Gemma 2, Gemma 3n, VaultGemma, DiffusionGemma", types: "gemma2 gemma3n* vaultgemma diffusion_gemma*", cap: 30},
	{name: "T5Gemma", types: "t5gemma t5_gemma_module", cap: 30},
	{name: "Mistral Large 4, Inkling 2, Beam", types: "mistral_large4* inkling2* beam", cap: 30},
	{name: "NanoChat", types: "nanochat", cap: 15},
	{name: "RecurrentGemma", types: "recurrent_gemma", cap: 30, field: "logits_soft_cap"},
}

// everyModel has the fields that a model of any type may have: MPT and Cohere Compass logit_scale,
// Falcon-H1 lm_head_multiplier, Grok output_multiplier_scale, and Gemma 3 and later a cap.
var everyModel = family{name: "all others", logit: []factor{
	{field: "logit_scale", otherwise: 1, by: times, shows: "logit_scale, lm_head_multiplier, output_multiplier_scale, if the file has them"},
	{field: "lm_head_multiplier", otherwise: 1, by: times},
	{field: "output_multiplier_scale", otherwise: 1, by: times},
}}

// familyOf returns the family of the first type that belongs to one.
func familyOf(types ...string) *family {
	for _, kind := range types {
		for i := range families {
			if kind != "" && slices.ContainsFunc(strings.Fields(families[i].types), func(want string) bool {
				stem, open := strings.CutSuffix(want, "*")
				return kind == want || open && strings.HasPrefix(kind, stem)
			}) {
				return &families[i]
			}
		}
	}
	return &everyModel
}

// factors returns the factors of the family, with the common factors that the family does not
// define.
func (f *family) factors() (state, logit []factor) {
	logit = slices.Clone(f.logit)
	if f != &everyModel {
		for _, x := range everyModel.logit {
			if !slices.ContainsFunc(logit, func(y factor) bool { return x.field == y.field }) {
				logit = append(logit, x)
			}
		}
	}
	return f.state, logit
}

// configNumbers are the names of the scales and caps of states and logits.
var configNumbers = func() []string {
	names := []string{"hidden_size", "d_model", "final_logit_softcapping", "logits_scaling"}
	add := func(list []factor) {
		for _, x := range list {
			names = append(names, x.field)
		}
	}
	for _, f := range append(slices.Clone(families), everyModel) {
		add(f.state)
		add(f.logit)
		if f.field != "" {
			names = append(names, f.field)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}()

// ggufFamily is the same of architectures of llama.cpp, by general.architecture. States are the
// values of its node result_norm, before all scales. Source: llama.cpp, src/models/*.cpp;
// load_arch_hparams has the defaults, build_arch_graph the rest.
type ggufFamily struct {
	name   string
	archs  string                    // with spaces between them; * matches any rest
	over   bool                      // logit_scale divides
	scale  func(dim float64) float64 // where the file has no logit_scale; nil for 1
	fixed  bool                      // the scale, even if the file has another
	shows  string
	cap    float64 // where the file has none
	always bool    // the cap, even if the file has another
	may    bool    // the file may have one, and most have none
}

var ggufFamilies = []ggufFamily{
	{name: "Granite", archs: "granite*", over: true, shows: "1/logit_scale"},
	{name: "MiniCPM", archs: "minicpm", over: true, scale: func(dim float64) float64 { return 256 / dim }, shows: "1/logit_scale, 256/d by default"},
	{name: "MiniCPM3", archs: "minicpm3", scale: func(dim float64) float64 { return 256 / dim }, fixed: true, shows: "256/d, always"},
	{name: "Cohere Command", archs: "command-r cohere2 cohere2moe", shows: "logit_scale"},
	{name: "Grok", archs: "grok", scale: func(float64) float64 { return float64(float32(0.5773502691896257)) }, shows: "logit_scale, 0.577 by default", may: true},
	{name: "Talkie", archs: "talkie", shows: "logit_scale"},
	{name: "Muse Glimmer", archs: "muse-glimmer", shows: "logit_scale", cap: 30},
	{name: "Gemma 2, Gemma 4", archs: "gemma2 gemma4", cap: 30},
	{name: "Gemma 3n", archs: "gemma3n", cap: 30, always: true},
}

// everyGGUF has the fields that a file of any other architecture may have.
var everyGGUF = ggufFamily{name: "all others", shows: "logit_scale, if the file has it", may: true}

func ggufFamilyOf(arch string) *ggufFamily {
	for i := range ggufFamilies {
		for _, want := range strings.Fields(ggufFamilies[i].archs) {
			if stem, open := strings.CutSuffix(want, "*"); arch == want || open && strings.HasPrefix(arch, stem) {
				return &ggufFamilies[i]
			}
		}
	}
	return &everyGGUF
}

// untied are the architectures whose files llama.cpp does not load without output.weight.
var untied = strings.Fields(`apertus arwkv7 baichuan bailingmoe bailingmoe2 dbrx deepseek4 dots1 exaone-moe gptneox hy_v4
	internlm2 jais kimi-k3 kimi-linear llada-moe maple mellum mimo2 minimax-m2 minimax-m3 muse-glimmer nemotron olmo2 olmoe
	gpt-oss orion phi2 phimoe plamo plm qwen qwen2moe rwkv6 rwkv6qwen2 rwkv7 stablelm talkie xverse`)
