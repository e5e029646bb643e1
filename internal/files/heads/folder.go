package heads

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// The files of a folder.
const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"

	tokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
	addedTokensFile     = "added_tokens.json"
	generationConfig    = "generation_config.json" // names tokens, too: more than one may end a text
	piecesFile          = "tokenizer.model"        // of sentencepiece
	vocabularyFile      = "vocab.json"             // of tokenizers in Python, most with a merges.txt
	mergesFile          = "merges.txt"
	sourceFile          = "source.spm" // which Marian has next to a vocab.json
	specialTokensFile   = "special_tokens_map.json"
)

// headNames are the names of the head by architecture, and embeddingNames of the input
// embedding, in the order in which they are looked for.
var (
	headNames = []string{
		"lm_head.weight",                                      // most
		"language_model.lm_head.weight",                       // the text model of LLaVA and others
		"text_model.lm_head.weight", "thinker.lm_head.weight", // Kosmos, Qwen-Omni
		"embed_out.weight",                 // GPT-NeoX
		"output.weight",                    // InternLM 2, Llama as Meta writes it
		"transformer.output_layer.weight",  // ChatGLM
		"lm_head.linear.weight",            // the first Phi
		"word_embeddings_for_head.weight",  // Persimmon
		"head.weight",                      // RWKV
		"cls.predictions.decoder.weight",   // BERT
		"lm_head.decoder.weight",           // RoBERTa
		"lm_head.out_proj.weight",          // T5Gemma
		"decoder.weight",                   // ModernBERT's decoder
		"proj_out.weight",                  // Whisper, Moonshine
		"output_projection.weight",         // BioGPT
		"decoder.output_projection.weight", // TrOCR
		"generator_lm_head.weight",         // ELECTRA
		"vocab_projector.weight",           // DistilBERT
		"pred_layer.proj.weight",           // XLM
		"lm_loss.weight",                   // XLNet
	}
	embeddingNames = []string{
		"model.embed_tokens.weight", // most
		"model.language_model.embed_tokens.weight",
		"language_model.model.embed_tokens.weight",
		"transformer.wte.weight", "wte.weight", // GPT-2, GPT-J, MPT
		"gpt_neox.embed_in.weight",
		"transformer.word_embeddings.weight", "word_embeddings.weight", // Falcon, BLOOM
		"transformer.embedding.word_embeddings.weight",                     // ChatGLM
		"model.decoder.embed_tokens.weight", "decoder.embed_tokens.weight", // OPT
		"model.tok_embeddings.weight", "tok_embeddings.weight",
		"backbone.embeddings.weight", "backbone.embedding.weight", // Mamba
		"transformer.embd.wte.weight", "model.transformer.wte.weight", // the first Phi, OLMo
		"transformer.token_embeddings.weight",  // OpenELM
		"model.shared.weight", "shared.weight", // BART, T5
		"embed_tokens.weight",
		"bert.embeddings.word_embeddings.weight", "roberta.embeddings.word_embeddings.weight",
		"thinker.model.embed_tokens.weight",
		"model.text_model.embed_tokens.weight", "text_model.model.embed_tokens.weight", // Idefics 3
		"model.embeddings.tok_embeddings.weight", // ModernBERT
		"biogpt.embed_tokens.weight",
		"electra.embeddings.word_embeddings.weight", "distilbert.embeddings.word_embeddings.weight",
		"transformer.embeddings.weight", "transformer.word_embedding.weight", // XLM, XLNet
		"rwkv.embeddings.weight", "transformer.tokens_embed.weight",
	}
	// normNames are the names of the last normalisation by architecture.
	normNames = []string{
		"model.norm.weight", // most
		"model.language_model.norm.weight", "language_model.model.norm.weight",
		"transformer.ln_f.weight", "ln_f.weight", // GPT-2, GPT-J, Falcon, BLOOM
		"gpt_neox.final_layer_norm.weight", "model.decoder.final_layer_norm.weight",
		"model.final_layernorm.weight", "model.final_norm.weight",
		"transformer.norm_f.weight", "backbone.norm_f.weight", "transformer.norm.weight",
		"transformer.encoder.final_layernorm.weight",                   // ChatGLM
		"decoder.final_layer_norm.weight", "model.decoder.norm.weight", // T5, T5Gemma
	}
	// tiedBiases are the names of the bias of a head that is the input embedding.
	tiedBiases = []string{"lm_head.bias", "language_model.lm_head.bias", "final_logits_bias", "cls.predictions.bias"}
)

// Files returns the files that decide the result of Open(source): the file that the source names
// with the others of its model, or, for a folder, all files that give a head or would give it if
// they existed. A program that writes none of them does not change the head.
func Files(source string) []string {
	files := tensorfile.Files(source)
	dir := files[len(files)-1]
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir() && isGGUF(dir):
		for _, part := range others(dir, "*") {
			if isGGUF(part) {
				files = append(files, part)
			}
		}
		return files
	case err != nil || !info.IsDir():
		return files
	}
	names := []string{configFile, generationConfig, weightsFile, indexFile, tokenizerFile, tokenizerConfigFile, addedTokensFile, specialTokensFile, piecesFile, vocabularyFile, mergesFile, sourceFile}
	if shards, err := tensorfile.ReadIndex(filepath.Join(dir, indexFile)); err == nil {
		names = append(names, slices.Compact(slices.Sorted(maps.Values(shards)))...)
	}
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	return append(files, others(filepath.Join(dir, weightsFile), "*.safetensors")...)
}

// isGGUF reports whether a file is a GGUF file by its name, or by its first bytes if its name does
// not tell: parts of a model in a cache have hashes for names.
func isGGUF(path string) bool {
	if ext := tensorfile.Extension(path); ext != "" {
		return ext == ".gguf"
	}
	start, err := tensorfile.Start(path, 4)
	return err == nil && string(start) == "GGUF"
}

// others returns the files in the folder of one whose names fit a pattern, without it, in order.
func others(path, pattern string) (list []string) {
	entries, err := os.ReadDir(filepath.Dir(path)) // in order
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if fits, _ := filepath.Match(pattern, strings.ToLower(e.Name())); fits && !e.IsDir() && e.Name() != filepath.Base(path) {
			list = append(list, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return list
}

// baichuan2 is the size of the vocabulary by which Baichuan 2 is known from its
// elder; see the class NormHead of its modeling_baichuan.py.
const baichuan2 = 125696

// folder is an open model folder, as tensors.
type folder struct {
	path  string
	files map[string]string // of each tensor, if there is an index
	open  map[string]*tensorfile.File
}

// openFolder opens a model as Hugging Face lays it out, and of its tensors the
// head, or the one of this name.
func openFolder(path, name string) (*model, error) {
	c, err := readConfig(filepath.Join(path, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noConfig(path)
	}
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, open: map[string]*tensorfile.File{}}
	m := &model{path: path, file: f, weights: name, biases: []string{biasOf(name)}, declared: c.vocabulary, offsets: true, norms: normNames, whole: true}
	if name == "" && c.width > 0 && !c.is("reformer") { // whose head has two states side by side
		m.widths, m.widthField = c.allWidths, configFile+" says hidden_size"
	}
	m.origin = Origin{State: "the input of the head: a hook on it sees it", Why: "its tensor was named"}
	err = f.find()
	if err == nil && name == "" {
		err = c.strange(path)
	}
	if err == nil && name == "" {
		err = f.head(c, m)
	}
	if err == nil {
		m.origin.File = f.fileOf(m.weights)
		m.tokens, err = tokenizerSize(path, c)
	}
	if err == nil {
		m.suppressed, err = suppressed(path, c)
	}
	if err == nil {
		m.finish, err = c.finish()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if c.from != "" {
		m.origin.Notes = append(m.origin.Notes, fmt.Sprintf("of %s the object %s was read, which has the sizes of the head", configFile, tensorfile.Label(c.from)))
	}
	return m, nil
}

// strange refuses models whose logits are no product with a matrix.
func (c *config) strange(path string) error {
	switch {
	case c.is("baichuan") && c.vocabulary == baichuan2:
		return fail(path, "head", "found Baichuan 2, which divides each row of lm_head.weight by its length, expected rows as they are: save them so, and name the file")
	case c.is("dory"):
		return fail(path, "head", "found Dory, which scales each logit by another number, expected unscaled rows: multiply each row by it, save them so, and name the file")
	}
	return nil
}

// noConfig is the error for a folder without a config.json.
func noConfig(path string) error {
	if _, err := os.Stat(filepath.Join(path, "consolidated.safetensors")); err == nil {
		return fail(path, "files", "found consolidated.safetensors, which Mistral writes, and no %s, expected it with the files of transformers: download these too, or name the tensor: %s:output.weight", configFile, filepath.Join(path, "consolidated.safetensors"))
	}
	return fail(path, "files", "found a folder, expected a file, such as a GGUF file, or a folder with %s", configFile)
}

// suppressed returns the ids that the model's generation_config.json, or else its config.json,
// forbids.
func suppressed(path string, c *config) ([]uint32, error) {
	g, err := readConfig(filepath.Join(path, generationConfig))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.suppressed, nil
	case err != nil:
		return nil, err
	}
	return g.suppressed, nil
}

// find finds where the tensors are: in one file, or in the files of an index.
func (f *folder) find() (err error) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(f.path, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	if exists(weightsFile) {
		_, err = f.file(weightsFile)
		return err
	}
	if exists(indexFile) {
		f.files, err = tensorfile.ReadIndex(filepath.Join(f.path, indexFile))
		return err
	}
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json"} {
		if exists(name) {
			return fail(f.path, "files", "found %s, which only Python can read, expected %s: convert it by python -c \"from transformers import AutoModelForCausalLM as M; M.from_pretrained('.').save_pretrained('safetensors')\" in the folder", name, weightsFile)
		}
	}
	beside := others(filepath.Join(f.path, weightsFile), "*.safetensors")
	for _, file := range beside {
		if name := filepath.Base(file); strings.Contains(name, "-of-") {
			return fail(f.path, "files", "found %s, one of several files, and no %s, expected it: download it too, or name the tensor: %s:%s", tensorfile.Label(name), indexFile, tensorfile.Label(file), headNames[0])
		}
	}
	if len(beside) > 0 {
		return fail(f.path, "files", "found %s, expected %s or %s: name the tensor, %s:%s, of a model of Mistral %s:output.weight", tensorfile.Label(filepath.Base(beside[0])), weightsFile, indexFile, tensorfile.Label(beside[0]), headNames[0], tensorfile.Label(beside[0]))
	}
	return fail(f.path, "files", "found neither %s nor %s, expected one of them", weightsFile, indexFile)
}

// file returns a file of the folder, open.
func (f *folder) file(name string) (*tensorfile.File, error) {
	if file := f.open[name]; file != nil {
		return file, nil
	}
	file, err := tensorfile.OpenSafetensors(filepath.Join(f.path, name))
	if err == nil {
		f.open[name] = file
	}
	return file, err
}

func (f *folder) Has(name string) bool {
	if f.files != nil {
		_, ok := f.files[name]
		return ok
	}
	return f.open[weightsFile].Has(name)
}

// fileOf returns the file that has a tensor.
func (f *folder) fileOf(name string) string {
	if f.files != nil {
		return filepath.Join(f.path, f.files[name])
	}
	return filepath.Join(f.path, weightsFile)
}

func (f *folder) Tensor(name string) (*tensorfile.Tensor, error) {
	in := weightsFile
	if f.files != nil {
		var ok bool
		if in, ok = f.files[name]; !ok {
			return nil, fail(filepath.Join(f.path, indexFile), "weight_map", "found no %s, expected one of the %d tensors there", tensorfile.Label(name), len(f.files))
		}
	}
	file, err := f.file(in)
	if err != nil {
		return nil, err
	}
	return file.Tensor(name)
}

func (f *folder) Close() error {
	var errs []error
	for _, file := range f.open {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// head finds the head of the model. It is the input embedding only if no file of the folder has a
// tensor that may be the head, and config.json does not deny it.
func (f *folder) head(c *config, m *model) error {
	first := func(names []string) string {
		if i := slices.IndexFunc(names, f.Has); i >= 0 {
			return names[i]
		}
		return ""
	}
	own, embedding := first(headNames), first(embeddingNames)
	denied := c.tied != nil && !*c.tied
	m.origin.Notes = append(m.origin.Notes, c.conflict()...)
	if own != "" {
		m.weights, m.biases = own, append([]string{biasOf(own)}, tiedBiases...)
		m.origin.Why = "config.json has no tie_word_embeddings, and there is a separate head"
		switch {
		case denied:
			m.origin.Why = "tie_word_embeddings is false"
		case c.tied != nil && embedding == "":
			m.origin.Tied, m.origin.Why = true, "tie_word_embeddings is true, and the tensor is stored as "+own
		case c.tied != nil:
			m.origin.Why = "tie_word_embeddings is true, but the head is stored with other values, and taken as transformers 5 does"
			if f.same(own, embedding) {
				m.origin.Tied, m.origin.Why = true, "tie_word_embeddings is true, and both tensors are stored"
			} else {
				m.origin.Notes = append(m.origin.Notes, fmt.Sprintf("%s ties head and embedding, but %s and %s differ: %s was taken, as transformers 5 does; transformers 4 takes the other, FOLDER:%s", configFile, own, embedding, own, embedding))
			}
		}
		return nil
	}
	list := f.list()
	for _, x := range list {
		if headLike(x.name) {
			return fail(f.path, "head", "found %s in %s, %s, and no %s, expected it: %s", tensorfile.Label(x.name), tensorfile.Label(x.file), kindOf(x.name, list), headNames[0], f.wayOut(x, embedding))
		}
	}
	switch {
	case denied && embedding != "":
		return fail(f.path, "head", "found tie_word_embeddings false and no head, expected %s%s; or name its tensor, FOLDER:tensor.name", headNames[0], shaped(list, c, embedding))
	case embedding == "":
		return fail(f.path, "head", "found no head and no input embedding that is known, expected %s%s; or name its tensor, FOLDER:tensor.name", headNames[0], shaped(list, c, ""))
	}
	m.weights, m.biases = embedding, tiedBiases
	m.origin.Tied, m.origin.Why = true, "tie_word_embeddings is true"
	if c.tied == nil {
		if twin := twinOf(embedding, list); twin != nil {
			return fail(f.path, "head", "found no head by its name, but %s in %s, of the same shape as the embedding %s, expected tie_word_embeddings in %s to say if the two are one; or name the head, FOLDER:tensor.name", tensorfile.Label(twin.name), tensorfile.Label(twin.file), embedding, configFile)
		}
		m.origin.Why = "config.json has no tie_word_embeddings, and no file of the folder has a head"
	}
	return nil
}

// conflict notes that two fields of a config.json disagree on the tie.
func (c *config) conflict() []string {
	if c.tied == nil || c.textTied == nil || *c.tied == *c.textTied {
		return nil
	}
	return []string{fmt.Sprintf("%s says tie_word_embeddings %t, its text model %t: the first counts, as in transformers 5", configFile, *c.tied, *c.textTied)}
}

// same reports whether two tensors have the same numbers, by a sample of rows.
func (f *folder) same(a, b string) bool {
	x, err := f.Tensor(a)
	if err != nil {
		return true // its error comes later
	}
	y, err := f.Tensor(b)
	if err != nil {
		return true
	}
	if !slices.Equal(x.Shape, y.Shape) || len(x.Shape) != 2 || x.DType != y.DType {
		return false
	}
	const sample = 256
	n := min(sample, x.Rows())
	p, q := make([]float32, x.Cols()), make([]float32, x.Cols())
	for i := range n {
		row := i * (x.Rows() - 1) / max(n-1, 1) // the first and the last among them
		_, errX := x.ReadRows(p, row)
		_, errY := y.ReadRows(q, row)
		if errX != nil || errY != nil {
			return true
		}
		if !slices.Equal(p, q) {
			return false
		}
	}
	return true
}

// listed is a tensor in a file of a folder.
type listed struct {
	name, file string
	shape      []int // nil if the file cannot be read
}

// list returns the tensors of all files of the folder, of the model and others, by name. A file
// that cannot be read has the tensors of the index.
func (f *folder) list() (all []listed) {
	files := map[string]bool{}
	for _, path := range others(filepath.Join(f.path, "-"), "*.safetensors") {
		files[filepath.Base(path)] = true
	}
	for _, file := range f.files {
		files[file] = true
	}
	seen := map[[2]string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, opened := f.open[name], false
		if file == nil {
			var err error
			if file, err = tensorfile.OpenSafetensors(filepath.Join(f.path, name)); err != nil {
				continue
			}
			opened = true
		}
		for _, tensor := range file.Names() {
			_, shape := file.Layout(tensor)
			all = append(all, listed{tensor, name, slices.Clone(shape)})
			seen[[2]string{tensor, name}] = true
		}
		if opened {
			file.Close()
		}
	}
	for tensor, file := range f.files {
		if !seen[[2]string{tensor, file}] {
			all = append(all, listed{name: tensor, file: file})
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.file, b.file)) })
	return all
}
