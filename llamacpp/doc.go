// Package llamacpp runs a model of llama.cpp up to its head, and has the head computed by
// packages l2s and sample: exactly, by a preview, or by a screen.
//
// llama.cpp is driven by [github.com/hybridgroup/yzma], without cgo. A [Hook] is a context of
// llama.cpp that stops at the final normalisation and hands out its result, the hidden state h
// that the head is applied to. A [Model] is a GGUF file with its tokenizer, a hook, and the
// positions of its sequences. A [Head] answers about hidden states, for any number of
// goroutines:
//
//	err := llamacpp.Load(folder) // of llama.cpp's libraries
//	m, err := llamacpp.Open("M.gguf", llamacpp.Options{})
//	x, err := m.Head(llamacpp.HeadOptions{Index: index}) // of l2s.Load; nil is exact
//	h, err := m.Feed(ctx, 0, m.Tokens("Once upon a time", true)...)
//	_, err = x.Search(best, h, l2s.Request{})
//
// A program that has a model of yzma makes a hook with [NewHook] in place of
// llama.InitFromModel.
//
// # Left out
//
// Here llama.cpp computes on the CPU alone, and never computes its head: a decode in which it does
// returns an error. The logits of llama.cpp are stale, and this package does not return them.
// llama.cpp copies them nevertheless, 4 bytes per label and state.
//
// # Which models
//
// For architectures that llama.cpp's source shows to apply the head to that state, as package
// head reads it from the file, nothing is checked. For all others [Hook.Check] compares
// logits, and states are refused until it has passed. Models with an encoder, and models that
// do not decode from left to right, are refused.
package llamacpp
