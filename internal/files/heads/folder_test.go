package heads_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/heads"
)

// tensors returns a safetensors file of float32 tensors: of each its shape, and
// the first of its elements, which count up from there.
func tensors(t testing.TB, names string) []byte {
	t.Helper()
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]entry{}
	var data []byte
	for line := range strings.Lines(names) {
		var name string
		var rows, cols, first int
		if _, err := fmt.Sscan(line, &name, &rows, &cols, &first); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		shape, n := []int{rows, cols}, rows*cols
		if cols == 0 {
			shape, n = shape[:1], rows
		}
		begin := len(data)
		for i := range n {
			data = append(data, f32s(float32(first+i))...)
		}
		header[name] = entry{"F32", shape, [2]int{begin, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return safetensors(string(text), data)
}

// counting are the n numbers from first on.
func counting(first, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(first + i)
	}
	return x
}

func TestFolders(t *testing.T) {
	type files map[string]string // contents; for .safetensors, the text that tensors reads
	for name, c := range map[string]struct {
		files files
		name  string
		want  string // String, or the error
		rows  int    // the first element of W
		bias  []float32
		ids   []uint32
	}{
		"a separate head": {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.weight 3 2 20\n"},
			want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"tied":                        {files: files{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\n"}, want: "model.embed_tokens.weight, 3 x 2 float32, mapped; no bias", rows: 10},
		"tied, though both are there": {files: files{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.weight 3 2 20\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20}, // as transformers 5 does
		"tied, and only a head":       {files: files{"config.json": `{"tie_word_embeddings":true}`, "model.safetensors": "lm_head.weight 3 2 20\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"no field, with a head":       {files: files{"config.json": `{}`, "model.safetensors": "transformer.wte.weight 3 2 10\nlm_head.weight 3 2 20\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"no field, without":           {files: files{"config.json": `{}`, "model.safetensors": "transformer.wte.weight 3 2 10\n"}, want: "transformer.wte.weight, 3 x 2 float32, mapped; no bias", rows: 10},
		"GPT-NeoX":                    {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors": "gpt_neox.embed_in.weight 3 2 10\nembed_out.weight 3 2 20\n"}, want: "embed_out.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"the text model's word on it": {files: files{"config.json": `{"text_config":{"tie_word_embeddings":true},"vision_config":{"tie_word_embeddings":false}}`, "model.safetensors": "language_model.model.embed_tokens.weight 3 2 10\nlm_head.weight 3 2 20\n"},
			want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"a bias next to it": {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.bias 3 0 5\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; bias lm_head.bias", rows: 20, bias: counting(5, 3)},
		"a tied bias":       {files: files{"config.json": `{}`, "model.safetensors": "bert.embeddings.word_embeddings.weight 3 2 20\ncls.predictions.bias 3 0 5\n"}, want: "bert.embeddings.word_embeddings.weight, 3 x 2 float32, mapped; bias cls.predictions.bias", rows: 20, bias: counting(5, 3)},
		"BART's bias":       {files: files{"config.json": `{}`, "model.safetensors": "model.shared.weight 3 2 20\nfinal_logits_bias 1 3 5\n"}, want: "model.shared.weight, 3 x 2 float32, mapped; bias final_logits_bias", rows: 20, bias: counting(5, 3)},
		"a name":            {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nmedusa.weight 2 2 40\nmedusa.bias 2 0 50\n"}, name: ":medusa.weight", want: "medusa.weight, 2 x 2 float32, mapped; bias medusa.bias", rows: 40, bias: counting(50, 2)},
		"shards": {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors.index.json": `{"weight_map":{"model.embed_tokens.weight":"a.safetensors","lm_head.weight":"b.safetensors","lm_head.bias":"a.safetensors"}}`,
			"a.safetensors": "model.embed_tokens.weight 3 2 10\nlm_head.bias 3 0 5\n", "b.safetensors": "lm_head.weight 3 2 20\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; bias lm_head.bias", rows: 20, bias: counting(5, 3)},
		"one shard is enough": {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors.index.json": `{"weight_map":{"lm_head.weight":"b.safetensors","x":"missing.safetensors"}}`, "b.safetensors": "lm_head.weight 3 2 20\n"},
			want: "lm_head.weight, 3 x 2 float32, mapped; no bias", rows: 20},
		"padding": {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 9 2 20\n", "tokenizer.json": `{"added_tokens":[{"id":6,"content":"<eos>","special":true}],"model":{"type":"BPE","vocab":{"a":0,"b":5},"merges":["a b"]}}`},
			want: "lm_head.weight, 7 x 2 float32, mapped; no bias; 2 rows of padding left out", rows: 20},
		"a scale and a cap": {files: files{"config.json": `{"model_type":"granite","logits_scaling":8,"final_logit_softcapping":30.0}`, "model.safetensors": "lm_head.weight 3 2 20\n"}, want: "lm_head.weight, 3 x 2 float32, mapped; no bias; scale 0.125; soft cap 30", rows: 20},
		"EAGLE-3": {files: files{"config.json": `{"vocab_size":50,"draft_vocab_size":3,"tie_word_embeddings":false}`, "model.safetensors": "lm_head.weight 3 2 20\n", "tokenizer.json": `{"model":{"vocab":{"a":0}}}`, "d2t": "0 7 20"},
			want: "lm_head.weight, 3 x 2 float32, mapped; no bias; a draft of 50 labels", rows: 20, ids: []uint32{0, 8, 22}},

		"no config": {files: files{"model.safetensors": "lm_head.weight 3 2 20\n"}, want: "l2s: DIR: files: found a folder, expected a file, such as a GGUF file, or a folder with config.json"},
		"no files":  {files: files{"config.json": `{}`}, want: "l2s: DIR: files: found neither model.safetensors nor model.safetensors.index.json, expected one of them"},
		"PyTorch": {files: files{"config.json": `{}`, "pytorch_model.bin": "PK"},
			want: `l2s: DIR: files: found pytorch_model.bin, which only Python can read, expected model.safetensors: convert it by python -c "from transformers import AutoModelForCausalLM as M; M.from_pretrained('.').save_pretrained('safetensors')" in the folder`},
		"no head":         {files: files{"config.json": `{"tie_word_embeddings":false}`, "model.safetensors": "model.embed_tokens.weight 3 2 10\n"}, want: "l2s: DIR: head: found tie_word_embeddings false and no head, expected lm_head.weight; or name its tensor, FOLDER:tensor.name"},
		"nothing known":   {files: files{"config.json": `{}`, "model.safetensors": "x 3 2 10\n"}, want: "l2s: DIR: head: found no head and no input embedding that is known, expected lm_head.weight; or name its tensor, FOLDER:tensor.name"},
		"another name":    {files: files{"config.json": `{}`, "model.safetensors": "x 3 2 10\n"}, name: ":y", want: "l2s: model.safetensors: name: found y, expected one of x"},
		"no such tensor":  {files: files{"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":{"x":"a"}}`}, name: ":y", want: "l2s: model.safetensors.index.json: weight_map: found no y, expected one of the 1 tensors there"},
		"a missing shard": {files: files{"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":{"lm_head.weight":"a.safetensors"}}`}, want: "l2s: a.safetensors: no such file or directory"},
		"a shard without it": {files: files{"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":{"lm_head.weight":"a.safetensors"}}`, "a.safetensors": "x 1 1 0\n"},
			want: "l2s: a.safetensors: name: found lm_head.weight, expected one of x"},
		"a shard elsewhere": {files: files{"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":{"lm_head.weight":"../a.safetensors"}}`},
			want: "l2s: model.safetensors.index.json: index: weight_map: found the file ../a.safetensors, expected the name of a file in the same folder"},
		"a vector":             {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 0 20\n"}, want: "l2s: model.safetensors:lm_head.weight: shape: found [3], expected [any any]"},
		"a bias of other rows": {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\nlm_head.bias 2 0 0\n"}, want: "l2s: model.safetensors:lm_head.bias: shape: found [2], expected [3], one number for each row of DIR:lm_head.weight"},
		"a broken config":      {files: files{"config.json": `{"a":`, "model.safetensors": "lm_head.weight 3 2 20\n"}, want: `l2s: config.json: config: found unexpected end of JSON input at byte 4, expected JSON`},
		"a config of text":     {files: files{"config.json": `llama`, "model.safetensors": "lm_head.weight 3 2 20\n"}, want: `l2s: config.json: config: found invalid character 'l' looking for beginning of value at byte 0, expected JSON`},
		"a broken tokenizer":   {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 3 2 20\n", "tokenizer.json": `{"model":{"vocab":{"a":-1}}}`}, want: "l2s: tokenizer.json: tokens: found the id -1, expected 0 to 4294967294"},
		"an unknown scale":     {files: files{"config.json": `{"model_type":"x","logits_scaling":2}`, "model.safetensors": "lm_head.weight 3 2 20\n"}, want: "l2s: config.json: logits_scaling: found 2 in a model of type x, expected type granite, which divides by it, or hyperclovax, which multiplies: open the file of the tensor by its name for logits without it"},
		"Baichuan 2": {files: files{"config.json": `{"model_type":"baichuan","vocab_size":125696}`, "model.safetensors": "lm_head.weight 3 2 20\n"},
			want: "l2s: DIR: head: found Baichuan 2, which divides each row of lm_head.weight by its length, expected rows as they are: save them so, and name the file"},
		"EAGLE-3 with twins": {files: files{"config.json": `{}`, "model.safetensors": "lm_head.weight 2 2 20\n", "d2t": "1 0"}, want: "l2s: DIR:d2t: labels: found label 1 at positions 0 and 1, expected it once"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				data := []byte(content)
				switch {
				case file == "d2t":
					continue
				case strings.HasSuffix(file, ".safetensors"):
					data = tensors(t, content)
					if list, ok := c.files["d2t"]; ok {
						data = withDraft(t, content, list)
					}
				}
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(c.want, ", expected ") || strings.Contains(c.want, "no such file") {
				_, err := heads.Open(dir+c.name, heads.Options{})
				refuse(t, err, dir, c.want)
				return
			}
			h := open(t, dir+c.name, heads.Options{})
			if runtime.GOOS == "windows" {
				c.want = strings.Replace(c.want, "mapped", "copied", 1)
			}
			if got := h.String(); got != c.want || !sameBits(values(h), counting(c.rows, h.Labels()*2)) || !slices.Equal(h.Bias(), c.bias) || !slices.Equal(h.IDs(), c.ids) {
				t.Errorf("found %q, %v, %v, %v\n want %q", got, values(h), h.Bias(), h.IDs(), c.want)
			}
			own := open(t, dir+c.name, heads.Options{Copy: true})
			if own.Origin().Mapped || !sameBits(values(own), values(h)) {
				t.Errorf("the copy is %v, %v", own, values(own))
			}
		})
	}
}

// withDraft returns the file of tensors with an additional one, d2t, of these integers.
func withDraft(t testing.TB, names, list string) []byte {
	file := tensors(t, names)
	n := le.Uint64(file)
	header, data := strings.TrimRight(string(file[8:8+n]), " "), file[8+n:]
	var ids []byte
	for _, s := range strings.Fields(list) {
		var x uint64
		if _, err := fmt.Sscan(s, &x); err != nil {
			t.Fatal(err)
		}
		ids = le.AppendUint64(ids, x)
	}
	header = strings.TrimSuffix(header, "}") + fmt.Sprintf(`,"d2t":{"dtype":"I64","shape":[%d],"data_offsets":[%d,%d]}}`, len(ids)/8, len(data), len(data)+len(ids))
	for len(header)%8 != 0 {
		header += " "
	}
	return safetensors(header, data, ids)
}

// Weights of 8 bits are refused with the reason.
func TestFloat8IsRefused(t *testing.T) {
	path := write(t, "w.safetensors", safetensors(`{"w":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[0,2]}}`, []byte{1, 2}))
	_, err := heads.Open(path+":w", heads.Options{})
	refuse(t, err, filepath.Dir(path), "l2s: w.safetensors:w: dtype: found float8_e4m3, weights that have their scales in another tensor, expected float32, float16 or bfloat16: save the model in bfloat16")
}
