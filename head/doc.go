// Package head opens the head of a language model: the matrix W, one row per label,
// the bias b, and the scale and cap of a logit w_s.h + b_s before it is a
// probability.
//
//	h, err := head.Open("models/gemma-3-270m", head.Options{})
//
// A source is one of
//
//	FOLDER                   a model as Hugging Face lays it out: config.json and safetensors
//	FOLDER:tensor.name       another tensor of it
//	FILE.gguf                a model of llama.cpp, or one file of it: output.weight, or token_embd.weight
//	FILE.gguf:tensor.name    another tensor of it
//	FILE.safetensors:name    one tensor
//	FILE.npy, FILE.npz:name  an array of numpy
//
// FILE may have any name: its end tells the format, or its first bytes.
//
// # Rows in place
//
// Rows of float32, float16, bfloat16 and ggml's quantised types Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
// Q5_K and Q6_K stay unchanged in the file, which is mapped into memory: a weight of bfloat16 takes
// 2 bytes, which the system reads when they are needed and takes back when memory is short. A
// quantised weight has the value of ggml's dequantisation in float32, to the bit.
//
// If that is not possible, the rows are copied: unchanged for rows at an odd address and systems
// without a mapping; as float32 for the Fortran order and float64. [Head.String] tells which.
// [Options.Copy] asks for a copy.
//
// # Mapped files
//
// Mapped rows, and contexts of [OpenContexts], are for files that nobody changes while they are
// open. If another program shortens the file, or the disk fails, a page that is read may not be
// there any more. The system then raises a fault, which ends the program. Within [Head.Read] a
// fault of the same goroutine is an error instead, in Go code and in the assembly of package
// kernels; so is a fault of contexts in package train. A program that serves from files that
// others can change should ask within Read, or copy the rows.
//
// If another program changes the file in place, answers come from old and new bytes, and may be
// NaN. It is safe to replace a file by renaming, as all writers in this module do. No read goes
// outside the rows: Open checks and copies names, shapes and lists.
//
// # Which tensor is the head
//
// In a folder it is lm_head.weight, or the name that the architecture gives it, if it is stored,
// even if config.json ties it. It is the input embedding only if no file of the folder has a tensor
// that is named like a head, with any prefix and quantisation, and config.json does not deny the
// tie; without a word in config.json, no other matrix may have the shape of the embedding either.
// In a GGUF model it is output.weight, else token_embd.weight, if no file of the model has the
// first and llama.cpp loads the architecture so. Open looks for the bias in the same place.
// [Head.Origin] names the tensors, and the reason. The names come from
// gguf-py/gguf/tensor_mapping.py of https://github.com/ggml-org/llama.cpp, which lists them for
// each architecture, and from transformers' _tied_weights_keys.
//
// # Padding
//
// Models pad W with rows that no token has, for the speed of other hardware. Rows from the size of
// the tokenizer on are left out, so that they are never answered: see [Origin].
//
// In a folder the size is one more than the largest id in tokenizer.json. Without that file it is
// the number of pieces of a sentencepiece tokenizer.model, unless the model has its own code that
// adds to them (auto_map), or else the size of a vocab.json with merges.txt or source.spm. It is
// above every id that tokenizer_config.json, added_tokens.json and config.json name, and a
// vocab.json gets further ids for special tokens with a name and no id. In a GGUF file it is the
// length of tokenizer.ggml.tokens without the [PADn] at its end, with which llama.cpp's converter
// fills the list up. Without any of these, rows of zeros at the end are left out, unless there is a
// bias, and all other rows are labels.
package head
