package heads_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// ints is an array of int32 as metadata.
func ints(x ...int32) gguftest.Raw {
	b := le.AppendUint32(le.AppendUint32(nil, 9), 5)
	b = le.AppendUint64(b, uint64(len(x)))
	for _, v := range x {
		b = le.AppendUint32(b, uint32(v))
	}
	return b
}

// matrix returns a tensor of float32 with rows of 2, whose elements count up from first.
func matrix(name string, rows, first int) gguftest.Tensor {
	return gguftest.Tensor{Name: name, Dims: []uint64{2, uint64(rows)}, Data: f32s(counting(first, 2*rows)...)}
}

// split is one of the files of a GGUF model.
func split(no, count, tensors int, metadata []gguftest.Value, list ...gguftest.Tensor) string {
	kv := gguftest.KV
	metadata = append(slices.Clone(metadata), kv("split.no", uint32(no)), kv("split.count", uint32(count)), kv("split.tensors.count", int32(tensors)))
	return string(gguftest.File{Metadata: metadata, Tensors: list}.Bytes())
}

// padded returns a file of a multiple of 32 bytes.
func padded(file string) string { return file + string(make([]byte, -len(file)&31)) }

// typed is a safetensors file of lm_head.weight, 2 x 2 in bfloat16 from 20 on, and a tensor of
// another type.
func typed(name, dtype, shape string, size int) string {
	header := fmt.Sprintf(`{"lm_head.weight":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},%q:{"dtype":%q,"shape":%s,"data_offsets":[8,%d]}}`, name, dtype, shape, 8+size)
	return string(safetensors(header, []byte{0xa0, 0x41, 0xa8, 0x41, 0xb0, 0x41, 0xb8, 0x41}, make([]byte, size)))
}

// raw is a safetensors file of tensors of these types, shapes and sizes, all of zeros.
func raw(lines string) string {
	var entries []string
	at := 0
	for line := range strings.Lines(lines) {
		var name, dtype, shape string
		var size int
		if _, err := fmt.Sscan(line, &name, &dtype, &shape, &size); err != nil {
			panic(err)
		}
		entries = append(entries, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, at, at+size))
		at += size
	}
	return string(safetensors("{"+strings.Join(entries, ",")+"}", make([]byte, at)))
}

// Models as people have them: the files of a folder, and the result. For names that end in
// .safetensors, tensors makes the file from the text, unless the text is a file already.
var wild = []struct {
	what   string
	files  map[string]string
	source string
	want   string // a part of the result of String, or an error
	first  float32
	tied   bool
	note   string // a part of a note
	banned []uint32
}{
	// "Absent" is a word about all files of a model.
	{what: "GGUF in two files, the head in the second, the first named", source: "/m-00001-of-00002.gguf", first: 20, want: "output.weight, 3 x 2",
		files: map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20))}},
	{what: "the second named, and the scale in the first", source: "/m-00002-of-00002.gguf", first: 20, want: "output.weight, 2 x 2 float32, mapped; no bias; 1 rows of padding left out; scale 0.125; the model forbids 1 tokens", banned: []uint32{1},
		files: map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "granite"), gguftest.KV("granite.logit_scale", float32(8)), gguftest.KV("tokenizer.ggml.tokens", []string{"a", "b", "[PAD2]"}), gguftest.KV("tokenizer.ggml.suppress_tokens", ints(1, -1, 9))},
			matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20))}},
	{what: "GGUF in three files, the first without tensors, padded as ggml does", source: "/m-00001-of-00003.gguf", first: 20, want: "output.weight, 3 x 2",
		files: map[string]string{"m-00001-of-00003.gguf": padded(split(0, 3, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")})), "m-00002-of-00003.gguf": split(1, 3, 2, nil, matrix("token_embd.weight", 3, 10)), "m-00003-of-00003.gguf": split(2, 3, 2, nil, matrix("output.weight", 3, 20))}},
	{what: "GGUF in two files, tied", source: "/m-00002-of-00002.gguf", first: 10, tied: true, want: "token_embd.weight, 3 x 2",
		files: map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("blk.0.x", 3, 20))}},
	{what: "the second is missing", source: "/m-00001-of-00002.gguf", want: "m-00001-of-00002.gguf: tensors: found 1 of the 2 files of a model and no output.weight in them, expected all in one folder: m-00002-of-00002.gguf is missing",
		files: map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10))}},
	{what: "a third, which does not matter, is missing", source: "/m-00002-of-00003.gguf", first: 20, want: "output.weight, 3 x 2", note: "2 of the 3 files of the model are there: m-00003-of-00003.gguf is missing",
		files: map[string]string{"m-00001-of-00003.gguf": split(0, 3, 3, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00003.gguf": split(1, 3, 3, nil, matrix("output.weight", 3, 20))}},
	{what: "the first, which has the scale, is missing", source: "/m-00002-of-00002.gguf", want: "found 1 of the 2 files of a model and no general.architecture in them, expected all in one folder: m-00001-of-00002.gguf is missing",
		files: map[string]string{"m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20))}},
	{what: "under other names", source: "/a", first: 20, want: "output.weight, 3 x 2",
		files: map[string]string{"a": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "b.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20)), "c.gguf": split(1, 2, 9, nil, matrix("output.weight", 3, 30))}},
	{what: "two that may be the second", source: "/a.gguf", want: "b.gguf: metadata split.no: found number 1 in it and in c.gguf, expected the files of one model alone in their folder",
		files: map[string]string{"a.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "b.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20)), "c.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 30))}},
	{what: "a copy of a part under another name", source: "/sl.gguf", want: "sl.gguf: metadata split.no: found number 0 in it and in m-00001-of-00002.gguf, expected the files of one model alone in their folder: open the file whose name ends in -00001-of-00002.gguf, or move the other one away",
		files: map[string]string{"sl.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20))}},
	{what: "a second file of another model", source: "/m-00001-of-00002.gguf", want: "m-00002-of-00002.gguf: metadata split.count: found a file of another model or of 2 files, expected one of the 2 of m-00001-of-00002.gguf",
		files: map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 7, nil, matrix("output.weight", 3, 20))}},
	{what: "an architecture that llama.cpp loads with output.weight alone", source: "/m.gguf", want: "tensors: found no output.weight in a model of architecture gpt-oss, expected it",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "gpt-oss")}, Tensors: []gguftest.Tensor{matrix("token_embd.weight", 3, 10)}}.Bytes())}},
	{what: "a scale of the matrix as a whole", source: "/m.gguf", first: 20, want: "scale 0.5",
		files: map[string]string{"m.gguf": string(gguftest.File{Tensors: []gguftest.Tensor{matrix("output.weight", 3, 20), {Name: "output.scale", Dims: []uint64{1}, Data: f32s(0.5)}}}.Bytes())}},
	{what: "GPTQ's head and an embedding", want: "head: found lm_head.qweight in model.safetensors, quantised by GPTQ, AWQ or AutoRound, and no lm_head.weight, expected it: take the folder of the model before it was quantised",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.qweight 3 2 20\nlm_head.scales 3 2 20\n"}},
	{what: "and a config that is tied", want: "head: found lm_head.qweight in model.safetensors, quantised by GPTQ",
		files: map[string]string{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.qweight 3 2 20\n"}},
	{what: "the head of compressed-tensors", want: "head: found lm_head.weight_packed in model.safetensors, quantised by compressed-tensors, and no lm_head.weight, expected it",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.weight_packed 3 2 20\n"}},
	{what: "MLX's head", want: "model:lm_head.weight: dtype: found uint32, quantised by MLX, expected float32, float16 or bfloat16: take the folder of the model before it was quantised",
		files: map[string]string{"config.json": `{}`, "model.safetensors": raw("lm_head.weight U32 [3,1] 12\nlm_head.scales F16 [3,1] 6\nlm_head.biases F16 [3,1] 6\nmodel.embed_tokens.weight F16 [3,8] 48\n")}},
	{what: "MLX's embedding, tied", want: "model:model.embed_tokens.weight: dtype: found uint32, quantised by MLX, expected float32",
		files: map[string]string{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": raw("model.embed_tokens.weight U32 [3,1] 12\nmodel.embed_tokens.scales F16 [3,1] 6\n")}},
	{what: "the head in a file that the index does not name", want: "head: found lm_head.weight in extra.safetensors, a head under a name that is not known, and no lm_head.weight, expected it: name it if this is the head, FOLDER/extra.safetensors:lm_head.weight, or move the file away",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\n", "extra.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "no head by its name, but a twin of the embedding", want: "head: found no head by its name, but model.unmbed.weight in model.safetensors, of the same shape as the embedding model.embed_tokens.weight, expected tie_word_embeddings in config.json",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nmodel.unmbed.weight 3 2 20\n"}},
	{what: "tied, with embeddings of positions, drafts and encoders", first: 10, tied: true, want: "model.embed_tokens.weight, 3 x 2",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nmodel.layers.9.shared_head.head.weight 3 2 20\nencoder.embed_tokens.weight 3 2 30\nmtp.lm_head.weight 3 2 40\nlm_head.dense.weight 2 2 40\nlm_head.bias 3 0 50\n"}},
	{what: "a head under an unknown prefix", want: "found no head and no input embedding that is known, expected lm_head.weight, or a.proj in model.safetensors or b.emb in model.safetensors, which has the shape of a head",
		files: map[string]string{"config.json": `{"vocab_size":3,"hidden_size":2}`, "model.safetensors": "a.proj 3 2 10\nb.emb 4 2 20\nc.weight 2 2 30\n"}},

	// A scale before the head, and one after it.
	{what: "T5, tied", first: 10, tied: true, want: "; states are scaled by 0.25 before it",
		files: map[string]string{"config.json": `{"model_type":"t5","tie_word_embeddings":true,"d_model":16}`, "model.safetensors": "shared.weight 3 16 10\n"}},
	{what: "T5, untied", first: 20, want: "lm_head.weight, 3 x 16 float32, mapped; no bias",
		files: map[string]string{"config.json": `{"model_type":"t5","tie_word_embeddings":false,"d_model":16}`, "model.safetensors": "shared.weight 3 16 10\nlm_head.weight 3 16 20\n"}},

	// Sizes that the files of a model state, and the tensor.
	{what: "another hidden_size", want: "model:lm_head.weight: columns: found 2, expected 77, as config.json says hidden_size: the files are of different models",
		files: map[string]string{"config.json": `{"hidden_size":77}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "another hidden_size, and the tensor by its name", source: ":lm_head.weight", first: 20, want: "lm_head.weight, 3 x 2",
		files: map[string]string{"config.json": `{"hidden_size":77}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "a projection before the head", first: 20, want: "lm_head.weight, 3 x 2",
		files: map[string]string{"config.json": `{"hidden_size":77,"word_embed_proj_dim":2}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "the width of the whole, and of the text model", first: 20, want: "lm_head.weight, 3 x 2",
		files: map[string]string{"config.json": `{"hidden_size":77,"text_config":{"hidden_size":2}}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "another embedding_length", source: "/m.gguf", want: "m.gguf:output.weight: columns: found 2, expected 77, as metadata llama.embedding_length",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "llama"), gguftest.KV("llama.embedding_length", uint32(77))}, Tensors: []gguftest.Tensor{matrix("output.weight", 3, 10)}}.Bytes())}},
	{what: "the same embedding_length", source: "/m.gguf", first: 10, want: "output.weight, 3 x 2",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "llama"), gguftest.KV("llama.embedding_length", uint32(2))}, Tensors: []gguftest.Tensor{matrix("output.weight", 3, 10)}}.Bytes())}},
	{what: "embedding_length twice", source: "/m.gguf", want: "metadata: found llama.embedding_length twice, expected once",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "llama"), gguftest.KV("llama.embedding_length", uint32(2)), gguftest.KV("llama.embedding_length", uint32(2))}, Tensors: []gguftest.Tensor{matrix("output.weight", 3, 10)}}.Bytes())}},
	{what: "a larger vocab_size", first: 20, want: "lm_head.weight, 3 x 2", note: "config.json says vocab_size 9, and the head has 3 rows",
		files: map[string]string{"config.json": `{"vocab_size":9}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "a vocab_size of few of the rows", first: 20, want: "lm_head.weight, 600 x 2", note: "config.json says vocab_size 10, and the head has 600 rows",
		files: map[string]string{"config.json": `{"vocab_size":10}`, "model.safetensors": "lm_head.weight 600 2 20\n"}},

	// A quantised head whose elements are stored as floats.
	{what: "a scale beside the head", want: "model:lm_head.weight: tensors: found lm_head.weight_scale beside it, quantised with scales of its own, expected weights without scales in another tensor: take the folder of the model before it was quantised",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.weight_scale 3 0 1\n"}},
	{what: "scales of blocks", want: "found lm_head.weight_scale_inv beside it", files: map[string]string{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.weight_scale_inv 1 1 1\n"}},
	{what: "scales of GPTQ", want: "found lm_head.qweight beside it, quantised by GPTQ", files: map[string]string{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.qweight 1 1 1\nlm_head.scales 1 1 1\n"}},
	{what: "scales of bitsandbytes", want: "found lm_head.weight.absmax beside it, quantised to 4 bits by bitsandbytes", files: map[string]string{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.weight.absmax 1 0 1\n"}},
	{what: "scales of a tied embedding", want: "model:model.embed_tokens.weight: tensors: found model.embed_tokens.scales beside it, quantised by MLX", files: map[string]string{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "model.embed_tokens.weight 3 2 20\nmodel.embed_tokens.scales 1 1 1\n"}},
	{what: "scales of another matrix", first: 20, want: "lm_head.weight, 3 x 2", files: map[string]string{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nmodel.layers.0.q.weight_scale 1 1 1\n"}},

	// Defaults of the runtime.
	{what: "Gemma 3n without a cap", source: "/m.gguf", first: 10, tied: true, want: "; soft cap 30",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "gemma3n")}, Tensors: []gguftest.Tensor{matrix("token_embd.weight", 3, 10)}}.Bytes())}},
	{what: "Gemma 3n with another cap, which llama.cpp does not read", source: "/m.gguf", first: 10, tied: true, want: "; soft cap 30",
		files: map[string]string{"m.gguf": string(gguftest.File{Metadata: []gguftest.Value{gguftest.KV("general.architecture", "gemma3n"), gguftest.KV("gemma3n.final_logit_softcapping", float32(20))}, Tensors: []gguftest.Tensor{matrix("token_embd.weight", 3, 10)}}.Bytes())}},
	{what: "T5Gemma", first: 20, want: "lm_head.out_proj.weight, 3 x 2 float32, mapped; no bias; soft cap 25", note: "of config.json the object decoder was read, which has the sizes of the head",
		files: map[string]string{"config.json": `{"model_type":"t5gemma","encoder":{"model_type":"t5_gemma_module","vocab_size":9,"hidden_size":9,"final_logit_softcapping":7.0,"tie_word_embeddings":true},"decoder":{"model_type":"t5_gemma_module","vocab_size":3,"hidden_size":2,"final_logit_softcapping":25.0,"tie_word_embeddings":false}}`,
			"model.safetensors": "model.decoder.embed_tokens.weight 3 2 10\nlm_head.out_proj.weight 3 2 20\n"}},
	{what: "T5Gemma, tied, its cap by default", first: 10, tied: true, want: "; soft cap 30", note: "object decoder",
		files: map[string]string{"config.json": `{"model_type":"t5gemma","decoder":{"model_type":"t5_gemma_module","vocab_size":3,"hidden_size":2,"tie_word_embeddings":true}}`, "model.safetensors": "model.decoder.embed_tokens.weight 3 2 10\n"}},
	{what: "a thinker with a text model", first: 20, want: "scale 0.5", note: "the object thinker_config.text_config was read",
		files: map[string]string{"config.json": `{"model_type":"x","talker_config":{},"thinker_config":{"audio_config":{"vocab_size":1,"hidden_size":1},"text_config":{"logit_scale":0.5,"vocab_size":3,"hidden_size":2}}}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},

	// Padding.
	{what: "vocab.json and merges.txt", first: 20, want: "lm_head.weight, 4 x 2 float32, mapped; no bias; 5 rows of padding left out",
		files: map[string]string{"config.json": `{}`, "vocab.json": `{"a":0,"b":1}`, "merges.txt": "a b\n", "added_tokens.json": `{"<x>":2}`, "special_tokens_map.json": `{"bos_token":{"content":"<s>"},"eos_token":"a","additional_special_tokens":["<x>"]}`, "model.safetensors": "lm_head.weight 9 2 20\n"}},
	{what: "a vocab.json of something else", first: 20, want: "lm_head.weight, 9 x 2 float32, mapped; no bias",
		files: map[string]string{"config.json": `{}`, "vocab.json": `{"eng":{"a":0}}`, "merges.txt": "", "model.safetensors": "lm_head.weight 9 2 20\n"}},
	{what: "no tokenizer that is read, and zeros after the vocabulary", first: -4, want: "; no bias; 1 rows of padding left out", note: "1 rows of zeros at the end were taken for padding",
		files: map[string]string{"config.json": `{}`, "model.safetensors": string(safetensors(`{"lm_head.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`, f32s(-4, -3, 0, 0)))}},
	{what: "unpadded_vocab_size of Inkling, and its scale", first: 20, want: "2 rows of padding left out; states are scaled by 0.04166",
		files: map[string]string{"config.json": `{"model_type":"inkling_mm_model","text_config":{"model_type":"inkling_text","unpadded_vocab_size":3,"vocab_size":5,"hidden_size":2}}`, "model.safetensors": "lm_head.weight 5 2 20\n"}},

	// Tokens that are never to be written.
	{what: "suppress_tokens of generation_config.json", first: 20, want: "; the model forbids 2 tokens", banned: []uint32{0, 2},
		files: map[string]string{"config.json": `{"suppress_tokens":[1]}`, "generation_config.json": `{"suppress_tokens":[2,0,-1,2,9]}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},

	// The words of a config on the tie.
	{what: "a tie that the stored head contradicts", first: 20, want: "lm_head.weight", note: "config.json ties head and embedding, but lm_head.weight and model.embed_tokens.weight differ: lm_head.weight was taken, as transformers 5 does; transformers 4 takes the other, FOLDER:model.embed_tokens.weight",
		files: map[string]string{"config.json": `{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.weight 3 2 20\n"}},
	{what: "and the text model", first: 10, tied: true, want: "model.embed_tokens.weight", note: "config.json says tie_word_embeddings true, its text model false: the first counts, as in transformers 5",
		files: map[string]string{"config.json": `{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\n"}},
	{what: "a tie with both tensors stored, equal", first: 20, tied: true, want: "lm_head.weight",
		files: map[string]string{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "model.embed_tokens.weight 3 2 20\nlm_head.weight 3 2 20\n"}},

	// JSON as Python writes it.
	{what: "Infinity in a field that does not matter", first: 20, want: "lm_head.weight, 3 x 2",
		files: map[string]string{"config.json": `{"time_step_limit": [0.0, Infinity], "x": NaN, "vision_config": {"logit_scale": -Infinity}}`, "tokenizer_config.json": `{"model_max_length": Infinity}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "NaN in a field that does", want: `config: logit_scale: found "NaN", expected a number within float64`,
		files: map[string]string{"config.json": `{"logit_scale": NaN}`, "model.safetensors": "lm_head.weight 3 2 20\n"}},

	// Other types in the file of a head of bfloat16.
	{what: "F4", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F4", "[3,2]", 3)}},
	{what: "F6_E2M3", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F6_E2M3", "[2,2]", 3)}},
	{what: "F6_E3M2", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F6_E3M2", "[4]", 3)}},
	{what: "F8_E4M3FNUZ", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F8_E4M3FNUZ", "[3]", 3)}},
	{what: "F8_E5M2FNUZ", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F8_E5M2FNUZ", "[3]", 3)}},
	{what: "F8_E8M0", first: 20, want: "bfloat16", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F8_E8M0", "[3]", 3)}},
	{what: "a head of F4", want: "model:lm_head.weight: dtype: found float4_e2m1, weights that have their scales in another tensor", files: map[string]string{"config.json": `{}`, "model.safetensors": raw("lm_head.weight F4 [3,2] 3\n")}},
	{what: "half a byte of F4", want: "shape: found [3] of float4_e2m1, expected a multiple of 2 elements", files: map[string]string{"config.json": `{}`, "model.safetensors": typed("a", "F4", "[3]", 2)}},

	// Files of other kinds.
	{what: "a pointer of git-lfs", want: "model.safetensors: contents: found a pointer of git-lfs, which names a file, expected the file itself: run git lfs pull",
		files: map[string]string{"config.json": `{}`, "model.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"}},
	{what: "one of a tokenizer", want: "tokenizer.json: contents: found a pointer of git-lfs",
		files: map[string]string{"config.json": `{}`, "tokenizer.json": "version https://git-lfs.github.com/spec/v1\n", "model.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "a page of HTML", source: "/m.gguf", want: "m.gguf: contents: found a page of HTML, expected the file itself",
		files: map[string]string{"m.gguf": "\n<!DOCTYPE html>\n<html>"}},
	{what: "one shard without its index", want: "files: found model-00001-of-00002.safetensors, one of several files, and no model.safetensors.index.json, expected it: download it too, or name the tensor",
		files: map[string]string{"config.json": `{}`, "model-00001-of-00002.safetensors": "lm_head.weight 3 2 20\n"}},
	{what: "Mistral's own file", want: "files: found consolidated.safetensors, expected model.safetensors or model.safetensors.index.json: name the tensor",
		files: map[string]string{"config.json": `{}`, "consolidated.safetensors": "output.weight 3 2 20\n"}},
	{what: "Mistral's own file alone", want: "files: found consolidated.safetensors, which Mistral writes, and no config.json, expected it",
		files: map[string]string{"consolidated.safetensors": "output.weight 3 2 20\n"}},
	{what: "MXFP4 in GGUF", source: "/m.gguf", want: "dtype: found mxfp4, expected float32, float16, bfloat16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or q6_k: llama-quantize --output-tensor-type q6_K makes a file with such a head",
		files: map[string]string{"m.gguf": string(gguftest.File{Tensors: []gguftest.Tensor{{Name: "output.weight", Type: 39, Dims: []uint64{32, 1}, Data: make([]byte, 17)}}}.Bytes())}},
	{what: "IQ4_XS in GGUF", source: "/m.gguf", want: "dtype: found iq4_xs, expected float32",
		files: map[string]string{"m.gguf": string(gguftest.File{Tensors: []gguftest.Tensor{{Name: "output.weight", Type: 23, Dims: []uint64{256, 1}, Data: make([]byte, 136)}}}.Bytes())}},
	{what: "bfloat16 of ml_dtypes", source: "/w.npy", want: `descr: found "<V2", two bytes without a type, as numpy writes bfloat16 of ml_dtypes, expected a type of numbers: save x.astype('float32'), or the array as safetensors`,
		files: map[string]string{"w.npy": string(numpy("<V2", "False", "(1, 2)", make([]byte, 4)))}},
	{what: "an array of objects", source: "/w.npy", want: `descr: found "|O", objects of Python, expected numbers: save np.vstack(x).astype(np.float32)`, files: map[string]string{"w.npy": string(numpy("|O", "False", "(1, 2)", make([]byte, 4)))}},
	{what: "two arrays in one file", source: "/w.npy", want: "data: found 140 bytes, expected 4",
		files: map[string]string{"w.npy": string(numpy("<f2", "False", "(1, 2)", make([]byte, 4))) + string(numpy("<f2", "False", "(1, 2)", make([]byte, 8)))}},
	{what: "float16 as a GPU's tensor saves it", source: "/w.npy", first: 1, want: "1 x 2 float16", files: map[string]string{"w.npy": string(numpy("<f2", "False", "(1, 2)", []byte{0, 0x3c, 0, 0x40}))}},
}

// A link to a part opens the model of the part.
func TestLinkToAPart(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"m-00001-of-00002.gguf": split(0, 2, 2, []gguftest.Value{gguftest.KV("general.architecture", "llama")}, matrix("token_embd.weight", 3, 10)), "m-00002-of-00002.gguf": split(1, 2, 2, nil, matrix("output.weight", 3, 20))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for i, make := range []func(old, new string) error{os.Symlink, os.Link} {
		path := filepath.Join(dir, "sl.gguf")
		if err := make(filepath.Join(dir, "m-00001-of-00002.gguf"), path); err != nil {
			t.Skip(err)
		}
		h, err := heads.Open(path, heads.Options{})
		if err != nil {
			t.Fatalf("link %d: found the error %v, expected the head of the second part", i, err)
		}
		if values(h)[0] != 20 {
			t.Errorf("link %d: found %v, expected the rows of the second part", i, values(h))
		}
		h.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWild(t *testing.T) {
	for _, c := range wild {
		t.Run(c.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			for name, content := range c.files {
				data := []byte(content)
				if strings.HasSuffix(name, ".safetensors") && content[0] >= 'a' && !strings.HasPrefix(content, "version ") && len(content) > 8 && content[8] != '{' {
					data = tensors(t, content)
				}
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if runtime.GOOS == "windows" {
				c.want = strings.Replace(c.want, "mapped", "copied", 1)
			}
			h, err := heads.Open(dir+c.source, heads.Options{})
			if err != nil || strings.Contains(c.want, ", expected ") {
				if err == nil {
					h.Close()
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("found %v, %v, want %q", h, err, c.want)
				}
				return
			}
			defer h.Close()
			if !strings.Contains(h.String(), c.want) || values(h)[0] != c.first {
				t.Errorf("found %q from %v on, want %q from %v on", h, values(h)[0], c.want, c.first)
			}
			o := h.Origin()
			if o.Tied != c.tied || o.Why == "" || o.State == "" {
				t.Errorf("found tied %v: %s; want %v", o.Tied, o.Why, c.tied)
			}
			if _, err := os.Stat(o.File); err != nil {
				t.Errorf("the file of the head: %v", err)
			}
			if c.note != "" && !slices.ContainsFunc(o.Notes, func(s string) bool { return strings.Contains(s, c.note) }) {
				t.Errorf("found the notes %q, want %q in one", o.Notes, c.note)
			}
			if !slices.Equal(h.Suppressed(), c.banned) {
				t.Errorf("found the suppressed tokens %v, want %v", h.Suppressed(), c.banned)
			}
		})
	}
}

// The files that gguf of PyPI wrote have the values that it reads back, and a model in two files is
// one model.
func TestWildGoldens(t *testing.T) {
	dir := filepath.Join("testdata", "wild")
	for file, want := range map[string]struct {
		array string
		rows  int
		line  string
	}{
		"head-q4_1.gguf":            {"head-q4_1.npy", 24, "output.weight, 24 x 64 q4_1, mapped; no bias"},
		"head-q5_1.gguf":            {"head-q5_1.npy", 24, "output.weight, 24 x 64 q5_1, mapped; no bias"},
		"split-00001-of-00002.gguf": {"split.npy", 4, "output.weight, 4 x 8 float32, mapped; no bias; 1 rows of padding left out; scale 0.125; the model forbids 2 tokens"},
		"split-00002-of-00002.gguf": {"split.npy", 4, "output.weight, 4 x 8 float32, mapped; no bias; 1 rows of padding left out; scale 0.125; the model forbids 2 tokens"},
	} {
		h := open(t, filepath.Join(dir, file), heads.Options{})
		x, shape := readArray(t, filepath.Join(dir, want.array))
		if !sameBits(values(h), x[:want.rows*shape[1]]) {
			t.Errorf("%s: the rows differ from gguf's", file)
		}
		if runtime.GOOS != "windows" && h.String() != want.line {
			t.Errorf("%s: found %q, want %q", file, h, want.line)
		}
	}
}

// For a model in any number of files, in any order and with any names, a head in any of them is the
// head, or the model is refused; only a model without a head opens as tied.
func TestNoHeadIsOverlooked(t *testing.T) {
	names := []string{
		"lm_head.weight", "output.weight", "embed_out.weight", "language_model.lm_head.weight", "lm_head.out_proj.weight", "lm_head.linear.weight", "thinker.lm_head.weight", "x.y.lm_head.weight",
		"lm_head.qweight", "lm_head.weight_packed", "lm_head.weight_scale", "lm_head.scales", "lm_head.weight.absmax", "lm_head.SCB", "model.lm_head.modules_to_save.default.weight", "proj_out.weight", "model.output.qweight",
	}
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		gguf := rapid.Bool().Draw(t, "gguf")
		name := rapid.SampledFrom(append([]string{""}, names...)).Draw(t, "head")
		if gguf && name != "" {
			name = "output.weight"
		}
		n := rapid.IntRange(1, 4).Draw(t, "files")
		in := rapid.IntRange(0, n-1).Draw(t, "in")
		embedding := rapid.IntRange(0, n-1).Draw(t, "embedding")
		var source string
		if gguf {
			source = writeSplits(t, dir, name, n, in, embedding)
		} else {
			source = dir
			writeShards(t, dir, name, n, in, embedding)
		}
		h, err := heads.Open(source, heads.Options{})
		if err != nil {
			if name == "" && (!gguf || n == 1) {
				t.Fatalf("a tied model is refused: %v", err)
			}
			if text := err.Error(); !strings.Contains(text, "found ") || !strings.Contains(text, ", expected ") {
				t.Fatalf("error %q", text)
			}
			return
		}
		defer h.Close()
		switch first := values(h)[0]; {
		case name == "" && (first != 10 || !h.Origin().Tied):
			t.Fatalf("found %v from %v on, %+v, want the embedding", h, first, h.Origin())
		case name != "" && (first != 20 || h.Origin().Tied):
			t.Fatalf("head %s: found %v from %v on, %+v, want the head", name, h, first, h.Origin())
		}
	})
}

// writeSplits writes a GGUF model of n files, and returns the name of one.
func writeSplits(t *rapid.T, dir, name string, n, in, embedding int) string {
	tensors := n + 1
	if name == "" {
		tensors = n
	}
	renamed := rapid.Bool().Draw(t, "renamed")
	away := -1
	if rapid.IntRange(0, 4).Draw(t, "away") == 0 {
		away = rapid.IntRange(0, n-1).Draw(t, "which")
	}
	files := make([]string, n)
	for i, place := range rapid.Permutation(makeRange(n)).Draw(t, "places") {
		var metadata []gguftest.Value
		if i == 0 {
			metadata = append(metadata, gguftest.KV("general.architecture", "llama"))
		}
		var list []gguftest.Tensor
		if i == embedding {
			list = append(list, matrix("token_embd.weight", 3, 10))
		} else {
			list = append(list, matrix(fmt.Sprintf("blk.%d.x", i), 3, 30))
		}
		if i == in && name != "" {
			list = append(list, matrix(name, 3, 20))
		}
		files[i] = filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, n))
		if renamed {
			files[i] = filepath.Join(dir, fmt.Sprintf("%c.gguf", 'a'+place))
		}
		data := split(i, n, tensors, metadata, list...)
		if n == 1 {
			data = string(gguftest.File{Metadata: metadata, Tensors: list}.Bytes())
		}
		if i == away && n > 1 {
			continue
		}
		if err := os.WriteFile(files[i], []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	named := rapid.IntRange(0, n-1).Draw(t, "named")
	if named == away && n > 1 {
		named = (named + 1) % n
	}
	return files[named]
}

func makeRange(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// writeShards writes a folder whose index names the tensors of all n files, or of all but the
// head's.
func writeShards(t *rapid.T, dir, name string, n, in, embedding int) {
	config := `{}`
	if rapid.Bool().Draw(t, "said") {
		config = `{"tie_word_embeddings":` + fmt.Sprint(name == "") + `}`
	}
	write := func(file string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", []byte(config))
	forgotten := rapid.Bool().Draw(t, "forgotten")
	var entries []string
	places := rapid.Permutation(makeRange(n)).Draw(t, "places")
	for i := range n {
		file := fmt.Sprintf("%c.safetensors", 'a'+places[i])
		single := n == 1 && !forgotten
		if single {
			file = "model.safetensors"
		}
		var arrays []gguftest.Array
		add := func(name string, first int) {
			arrays = append(arrays, gguftest.Array{Name: name, Shape: []int{3, 2}, Data: counting(first, 6)})
			if first != 20 || !forgotten {
				entries = append(entries, fmt.Sprintf("%q:%q", name, file))
			}
		}
		if i == embedding {
			add("model.embed_tokens.weight", 10)
		}
		if i == in && name != "" {
			add(name, 20)
		}
		add(fmt.Sprintf("model.layers.%d.x.weight", i), 30)
		path := filepath.Join(dir, file)
		if err := gguftest.WriteSafetensors(path, arrays...); err != nil {
			t.Fatal(err)
		}
		if single {
			return
		}
	}
	write("model.safetensors.index.json", []byte(`{"weight_map":{`+strings.Join(entries, ",")+`}}`))
}
