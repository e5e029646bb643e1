package head

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
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
)

// headNames are what architectures call the head, and embeddingNames the input
// embedding, in the order in which they are looked for.
var (
	headNames = []string{
		"lm_head.weight",                  // most
		"language_model.lm_head.weight",   // the text model of LLaVA and others
		"embed_out.weight",                // GPT-NeoX
		"output.weight",                   // InternLM 2, Llama as Meta writes it
		"transformer.output_layer.weight", // ChatGLM
		"lm_head.linear.weight",           // the first Phi
		"word_embeddings_for_head.weight", // Persimmon
		"head.weight",                     // RWKV
		"cls.predictions.decoder.weight",  // BERT
		"lm_head.decoder.weight",          // RoBERTa
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
	}
	// normNames are what architectures call their last normalisation.
	normNames = []string{
		"model.norm.weight", // most
		"model.language_model.norm.weight", "language_model.model.norm.weight",
		"transformer.ln_f.weight", "ln_f.weight", // GPT-2, GPT-J, Falcon, BLOOM
		"gpt_neox.final_layer_norm.weight", "model.decoder.final_layer_norm.weight",
		"model.final_layernorm.weight", "model.final_norm.weight",
		"transformer.norm_f.weight", "backbone.norm_f.weight", "transformer.norm.weight",
		"transformer.encoder.final_layernorm.weight", // ChatGLM
	}
	// tiedBiases are the names of the bias of a head that is the input embedding.
	tiedBiases = []string{"lm_head.bias", "language_model.lm_head.bias", "final_logits_bias", "cls.predictions.bias"}
)

// Files returns the files that decide what Open(source) opens: the file that the source
// names, or, of a folder, all files that a head is read from or would be read from if
// they were there. A program that writes none of them leaves the head as it is.
func Files(source string) []string {
	files := tensorfile.Files(source)
	dir := files[len(files)-1]
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return files
	}
	names := []string{configFile, generationConfig, weightsFile, indexFile, tokenizerFile, tokenizerConfigFile, addedTokensFile, piecesFile}
	if shards, err := tensorfile.ReadIndex(filepath.Join(dir, indexFile)); err == nil {
		names = append(names, slices.Compact(slices.Sorted(maps.Values(shards)))...)
	}
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	return files
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
		return nil, fail(path, "files", "found a folder, expected a file, such as a GGUF file, or a folder with %s", configFile)
	}
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, open: map[string]*tensorfile.File{}}
	m := &model{path: path, file: f, weights: name, biases: []string{biasOf(name)}, declared: c.vocabulary, offsets: true, norms: normNames}
	tied := c.tied == nil || *c.tied
	err = f.find()
	if err == nil && name == "" && c.modelType == "baichuan" && c.vocabulary == baichuan2 {
		err = fail(path, "head", "found Baichuan 2, which divides each row of lm_head.weight by its length, expected rows as they are: save them so, and name the file")
	}
	if err == nil && name == "" {
		m.weights, m.biases, tied, err = f.head(c.tied)
	}
	if err == nil {
		m.tokens, err = tokenizerSize(path, c)
	}
	if err == nil {
		m.finish, err = c.finish(tied)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return m, nil
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

// head returns the names of the head and of the biases it may have, and whether it
// is the input embedding.
func (f *folder) head(tie *bool) (weights string, biases []string, tied bool, err error) {
	first := func(names []string) string {
		if i := slices.IndexFunc(names, f.Has); i >= 0 {
			return names[i]
		}
		return ""
	}
	own, embedding := first(headNames), first(embeddingNames)
	switch {
	case own != "" && (tie == nil || !*tie || embedding == ""):
		return own, append([]string{biasOf(own)}, tiedBiases...), false, nil
	case embedding != "" && (tie == nil || *tie):
		return embedding, tiedBiases, true, nil
	case embedding != "":
		return "", nil, false, fail(f.path, "head", "found tie_word_embeddings false and no head, expected %s; or name its tensor, FOLDER:tensor.name", headNames[0])
	}
	return "", nil, false, fail(f.path, "head", "found no head and no input embedding that is known, expected %s; or name its tensor, FOLDER:tensor.name", headNames[0])
}
