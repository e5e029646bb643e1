package heads

import (
	"fmt"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// Components of the names of tensors by which a head is recognised if its name is not in headNames:
// headParts anywhere in the name, topParts at the top of a model. A tensor with such a name within
// otherParts belongs to another part: drafts of several tokens ahead, pictures, sound.
var (
	headParts  = []string{"lm_head", "embed_out", "output_layer", "word_embeddings_for_head", "generator_lm_head", "lm_loss", "unembed", "unembedding", "vocab_projector", "output_embeddings"}
	topParts   = []string{"output", "head", "proj_out", "output_projection", "decoder", "logits", "pred_layer"}
	tops       = []string{"model", "transformer", "language_model", "text_model", "base_model", "module", "decoder", "gpt_neox", "backbone", "thinker"}
	otherParts = []string{"layers", "h", "blocks", "mtp", "nextn", "talker", "code_predictor", "depth_decoder", "vision", "visual", "image", "audio", "speech", "medusa", "draft", "eagle"}
	weightEnds = []string{"weight", "qweight", "weight_packed", "qzeros", "scales", "weight_scale", "weight_scale_inv", "g_idx", "absmax", "SCB"}
	innerParts = []string{"dense", "layer_norm", "layernorm", "LayerNorm", "norm", "ln", "transform", "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"}
)

// headLike reports whether the name of a tensor is a name of a head's weights, for any model and
// quantisation.
func headLike(name string) bool {
	parts := strings.Split(name, ".")
	for i, part := range parts[:len(parts)-1] {
		if slices.ContainsFunc(otherParts, func(other string) bool { return part == other || len(other) > 1 && strings.HasPrefix(part, other+"_") }) {
			return false
		}
		rest := parts[i+1:]
		weights := slices.Contains(weightEnds, rest[len(rest)-1]) && !slices.ContainsFunc(rest, func(s string) bool { return slices.Contains(innerParts, s) })
		if slices.Contains(headParts, part) {
			return weights
		}
		top := !slices.ContainsFunc(parts[:i], func(s string) bool { return !slices.Contains(tops, s) })
		if top && slices.Contains(topParts, part) && len(rest) == 1 && weights {
			return true
		}
	}
	return false
}

// kindOf names the program that wrote a tensor of such a name, by its neighbours.
func kindOf(name string, list []listed) string {
	stem := name[:strings.LastIndexByte(name, '.')]
	if inner, ok := strings.CutSuffix(stem, ".weight"); ok { // lm_head.weight.absmax
		stem = inner
	}
	return quantisation(stem, func(name string) bool {
		return slices.ContainsFunc(list, func(x listed) bool { return x.name == name })
	}, "a head under a name that is not known")
}

// quantisation names the program that wrote the tensors of a matrix, or returns otherwise.
func quantisation(stem string, has func(name string) bool, otherwise string) string {
	for _, x := range []struct{ end, kind string }{
		{".qweight", "quantised by GPTQ, AWQ or AutoRound"},
		{".weight_packed", "quantised by compressed-tensors"},
		{".weight.absmax", "quantised to 4 bits by bitsandbytes"},
		{".SCB", "quantised to 8 bits by bitsandbytes"},
		{".scales", "quantised by MLX"},
		{".weight_scale_inv", "quantised with scales for its blocks"},
		{".weight_scale", "quantised with scales of its own"},
	} {
		if has(stem + x.end) {
			return x.kind
		}
	}
	return otherwise
}

// original is the way to the weights of a quantised head.
const original = "take the folder of the model before it was quantised, or a GGUF file of it"

// wayOut tells a user the way to use a model whose head cannot be read.
func (f *folder) wayOut(x listed, embedding string) string {
	switch {
	case strings.HasSuffix(x.name, ".weight") && f.Has(x.name):
		return "name its tensor if this is the head, FOLDER:" + tensorfile.Label(x.name)
	case strings.HasSuffix(x.name, ".weight"):
		return fmt.Sprintf("name it if this is the head, FOLDER/%s:%s, or move the file away", tensorfile.Label(x.file), tensorfile.Label(x.name))
	}
	if embedding != "" {
		return original + "; FOLDER:" + embedding + " is the input embedding"
	}
	return original
}

// shaped lists the matrices that have the shape of a head, with their files.
func shaped(list []listed, c *config, embedding string) string {
	var names []string
	for _, x := range list {
		if len(x.shape) != 2 || x.name == embedding || c.vocabulary == 0 && c.width == 0 {
			continue
		}
		rows := c.vocabulary == 0 || x.shape[0] >= c.vocabulary && x.shape[0] < c.vocabulary+c.vocabulary/8+512
		if rows && (c.width == 0 || x.shape[1] == c.width) && (c.vocabulary > 0 || x.shape[0] > 8*x.shape[1]) {
			names = append(names, fmt.Sprintf("%s in %s", tensorfile.Label(x.name), tensorfile.Label(x.file)))
		}
	}
	const most = 8
	switch n := len(names); {
	case n == 0:
		return ""
	case n > most:
		return fmt.Sprintf(", or one of %s and %d more, which have the shape of a head", strings.Join(names[:most], ", "), n-most)
	}
	return fmt.Sprintf(", or %s, which has the shape of a head", strings.Join(names, " or "))
}

// twinOf returns a matrix of the shape of the embedding that is not by its name an embedding, too.
func twinOf(embedding string, list []listed) *listed {
	i := slices.IndexFunc(list, func(x listed) bool { return x.name == embedding })
	if i < 0 {
		return nil
	}
	for j, x := range list {
		name := strings.ToLower(x.name)
		named := slices.ContainsFunc([]string{"emb", "wte", "shared", "tok", "wpe", "position", "lora_"}, func(s string) bool { return strings.Contains(name, s) })
		inLayer := slices.ContainsFunc(strings.Split(name, "."), func(part string) bool { return slices.Contains(otherParts, part) })
		if !named && !inLayer && len(x.shape) == 2 && slices.Equal(x.shape, list[i].shape) && x.shape[0] != x.shape[1] {
			return &list[j]
		}
	}
	return nil
}
