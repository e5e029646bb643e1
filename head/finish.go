package head

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// finish is what a model does with a logit: it multiplies it by scale, then, if
// there is a cap, maps it to cap*tanh(x/cap).
type finish struct {
	scale float64 // 0 stands for 1
	cap   float64 // 0 for none
}

// inRange reports whether x can be a scale or a cap, or a number that a scale is computed from: x
// and 1/x are normal numbers of float32, and a final logit is within float64.
func inRange(x float64) bool { return 0x1p-126 <= x && x <= 0x1p126 }

const rangeText = "a number from 1.2e-38 to 8.5e+37"

// LogitScale returns what the model multiplies a logit by, 1 if it does not:
//
//	logit_scale           Cohere, in a folder and in GGUF; MPT, which may call 1/sqrt(d_model) "inv_sqrt_d_model"
//	1/logits_scaling      Granite in a folder; in GGUF its logit_scale is the divisor, too
//	logits_scaling        HyperCLOVA X in a folder
//	lm_head_multiplier    Falcon-H1 in a folder; GGUF files have it in the weights
//	1/mup_width_multiplier  Phi-3-small in a folder
//	dim_model_base/hidden_size  MiniCPM in a folder; in GGUF logit_scale is the divisor
//	1/sqrt(d_model)       T5 with a tied embedding
//
// Sources: transformers, the forward of the class ...ForCausalLM in
// models/cohere/modeling_cohere.py, models/granite/modeling_granite.py,
// models/falcon_h1/modeling_falcon_h1.py and models/t5/modeling_t5.py; the models'
// own modeling_hyperclovax.py, modeling_phi3_small.py, modeling_minicpm.py and
// MPT's modeling_mpt.py; llama.cpp, src/models/command-r.cpp, cohere2.cpp,
// grok.cpp (which has 1/sqrt(3) if the file states none) and granite.cpp, whose
// graph minicpm.cpp shares, and the class FalconH1Model of its converter.
func (h *Head) LogitScale() float64 {
	if h.finish.scale == 0 {
		return 1
	}
	return h.finish.scale
}

// SoftCap returns c if the model maps a scaled logit x to c tanh(x/c), 0 if it does not:
// final_logit_softcapping of Gemma and others, logits_soft_cap of RecurrentGemma. The cap comes
// after the scale, as in llama.cpp's src/models/grok.cpp; no model of transformers has both.
//
// Sources: Gemma 2, https://arxiv.org/abs/2408.00118, section 2; transformers,
// models/gemma2/modeling_gemma2.py and models/recurrent_gemma; llama.cpp, src/models/gemma2.cpp.
func (h *Head) SoftCap() float64 { return h.finish.cap }

// Logit returns the logit that the model's softmax is of, from the raw one, w_s.h + b_s. Apart from
// rounding it rises with the raw one, so the best labels are the same for both. Log-probabilities
// are of final logits. The bits are the same on every machine.
func (h *Head) Logit(raw float64) float64 {
	x := raw * h.LogitScale()
	if c := h.finish.cap; c > 0 {
		return c * tanh(x/c)
	}
	return x
}

// tanh is within a few units in the last place of the hyperbolic tangent, with the
// same bits on every machine, which math.Tanh does not promise.
func tanh(x float64) float64 {
	switch a := math.Abs(x); {
	case a < 0x1p-27: // the next term is below a half of the last place
		return x
	case a >= 1.0/16 || a != a:
		return math.Copysign(1-2/(kernels.Exp(2*a)+1), x)
	}
	// The Taylor series; what is left out is below 2^-60 of x.
	p, x2 := 21844.0/6081075, float64(x*x)
	for _, c := range [...]float64{-1382.0 / 155925, 62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3} {
		p = float64(p*x2) + c
	}
	return x + float64(float64(x*x2)*p)
}
