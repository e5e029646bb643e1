package testlib

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// Granite writes the GGUF file of a model of architecture llama, whose embedding is Q8_0 and is the
// head too, as a Granite model that divides its logits by a scale: a power of two, by which the rows of
// the head are multiplied in turn. So all scales give models with equal logits.
func Granite(from, to string, scale float32) error {
	f, err := read(from, "granite")
	if err != nil {
		return err
	}
	f.Metadata = append(f.Metadata, gguftest.KV("granite.logit_scale", scale))
	for _, t := range f.Tensors {
		if t.Name != "token_embd.weight" {
			continue
		}
		t.Name, t.Data = "output.weight", slices.Clone(t.Data)
		const block = 34 // a factor in float16, and 32 codes
		for b := t.Data; len(b) >= block; b = b[block:] {
			bits, ok := float16.Narrow(scale * float16.Widen(binary.LittleEndian.Uint16(b)))
			if !ok || float16.Widen(bits) != scale*float16.Widen(binary.LittleEndian.Uint16(b)) {
				return fmt.Errorf("%s: found a block whose factor has no %v-fold in float16", from, scale)
			}
			binary.LittleEndian.PutUint16(b, bits)
		}
		f.Tensors = append(f.Tensors, t)
	}
	return os.WriteFile(to, f.Bytes(), 0o600)
}

// With writes it with a further key of its own architecture, llama.
func With(from, to, key string, value float32) error {
	f, err := read(from, "llama")
	if err != nil {
		return err
	}
	f.Metadata = append(f.Metadata, gguftest.KV(key, value))
	return os.WriteFile(to, f.Bytes(), 0o600)
}

// Gemma2 writes it as a Gemma 2 model, with a soft cap of its logits. It is no model that has learned
// its text, since Gemma's layers are others, but a whole one. Every second layer sees a window of
// tokens.
func Gemma2(from, to string, softCap float32, window uint32) error {
	f, err := read(from, "gemma2")
	if err != nil {
		return err
	}
	f.Metadata = append(f.Metadata, gguftest.KV("gemma2.final_logit_softcapping", softCap), gguftest.KV("gemma2.attn_logit_softcapping", float32(50)),
		gguftest.KV("gemma2.attention.sliding_window", window), gguftest.KV("gemma2.attention.key_length", uint32(64)), gguftest.KV("gemma2.attention.value_length", uint32(64)))
	for _, t := range f.Tensors {
		for norm, post := range map[string]string{".attn_norm.weight": ".post_attention_norm.weight", ".ffn_norm.weight": ".post_ffw_norm.weight"} {
			if stem, is := strings.CutSuffix(t.Name, norm); is {
				ones := slices.Repeat([]float32{1}, int(t.Dims[0]))
				f.Tensors = append(f.Tensors, gguftest.Tensor{Name: stem + post, Type: gguftest.F32, Dims: t.Dims, Data: gguftest.Floats(ones...)})
			}
		}
	}
	return os.WriteFile(to, f.Bytes(), 0o600)
}

// Gemma3 writes it as a Gemma 3 model, as Gemma2 does, with a soft cap unless that is 0.
func Gemma3(from, to string, softCap float32) error {
	f, err := read(from, "gemma3")
	if err != nil {
		return err
	}
	f.Metadata = append(f.Metadata, gguftest.KV("gemma3.attention.sliding_window", uint32(4096)),
		gguftest.KV("gemma3.attention.key_length", uint32(64)), gguftest.KV("gemma3.attention.value_length", uint32(64)))
	if softCap != 0 {
		f.Metadata = append(f.Metadata, gguftest.KV("gemma3.final_logit_softcapping", softCap))
	}
	ones := func(name string, n uint64) gguftest.Tensor {
		return gguftest.Tensor{Name: name, Type: gguftest.F32, Dims: []uint64{n}, Data: gguftest.Floats(slices.Repeat([]float32{1}, int(n))...)}
	}
	for _, t := range f.Tensors {
		if stem, is := strings.CutSuffix(t.Name, ".attn_norm.weight"); is {
			f.Tensors = append(f.Tensors, ones(stem+".post_attention_norm.weight", t.Dims[0]), ones(stem+".attn_q_norm.weight", 64), ones(stem+".attn_k_norm.weight", 64))
		} else if stem, is := strings.CutSuffix(t.Name, ".ffn_norm.weight"); is {
			f.Tensors = append(f.Tensors, ones(stem+".post_ffw_norm.weight", t.Dims[0]))
		}
	}
	return os.WriteFile(to, f.Bytes(), 0o600)
}

// Mamba writes a recurrent model with its embedding and its tokenizer, and a layer of random numbers.
func Mamba(from, to string) error {
	f, err := read(from, "mamba")
	if err != nil {
		return err
	}
	keep := f.Tensors[:0]
	dim := uint64(0)
	for _, t := range f.Tensors {
		if t.Name == "token_embd.weight" || t.Name == "output_norm.weight" {
			keep, dim = append(keep, t), t.Dims[0]
		}
	}
	inner := 2 * dim // as llama.cpp wants it
	const state, conv, rank = 8, 4, 8
	f.Metadata = slices.DeleteFunc(f.Metadata, func(v gguftest.Value) bool { return strings.HasPrefix(v.Key, "mamba.") })
	f.Metadata = append(f.Metadata, gguftest.KV("mamba.context_length", uint32(1024)), gguftest.KV("mamba.embedding_length", uint32(dim)),
		gguftest.KV("mamba.feed_forward_length", uint32(0)), gguftest.KV("mamba.attention.head_count", uint32(0)), gguftest.KV("mamba.block_count", uint32(1)),
		gguftest.KV("mamba.ssm.conv_kernel", uint32(conv)), gguftest.KV("mamba.ssm.inner_size", uint32(inner)), gguftest.KV("mamba.ssm.state_size", uint32(state)),
		gguftest.KV("mamba.ssm.time_step_rank", uint32(rank)), gguftest.KV("mamba.attention.layer_norm_rms_epsilon", float32(1e-5)))
	r := rand.New(rand.NewPCG(57, 1))
	add := func(name string, middle, spread float64, dims ...uint64) {
		n := uint64(1)
		for _, d := range dims {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(middle + spread*r.NormFloat64())
		}
		keep = append(keep, gguftest.Tensor{Name: "blk.0." + name, Type: gguftest.F32, Dims: dims, Data: gguftest.Floats(x...)})
	}
	add("attn_norm.weight", 1, 0, dim)
	add("ssm_in.weight", 0, 0.05, dim, 2*inner)
	add("ssm_conv1d.weight", 0.2, 0.3, conv, inner)
	add("ssm_conv1d.bias", 0, 0.1, inner)
	add("ssm_x.weight", 0, 0.05, inner, rank+2*state)
	add("ssm_dt.weight", 0, 0.3, rank, inner)
	add("ssm_dt.bias", -2, 0.3, inner) // a long memory
	add("ssm_a", -0.5, 0.1, state, inner)
	add("ssm_d", 1, 0.1, inner)
	add("ssm_out.weight", 0, 0.05, inner, dim)
	f.Tensors = keep
	return os.WriteFile(to, f.Bytes(), 0o600)
}

// read reads a GGUF file of architecture llama, with the keys of another one.
func read(path, arch string) (f gguftest.File, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%s: found no whole GGUF file of floats and Q8_0, expected one", path)
		}
	}()
	at := 0
	u32 := func() uint32 { at += 4; return binary.LittleEndian.Uint32(b[at-4:]) }
	u64 := func() uint64 { at += 8; return binary.LittleEndian.Uint64(b[at-8:]) }
	text := func() string { n := int(u64()); at += n; return string(b[at-n : at]) }
	sizes := map[uint32]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	const isText, isArray = 8, 9
	at = 8
	tensors, values := int(u64()), int(u64())
	for range values {
		key, from := text(), at
		switch kind := u32(); kind {
		case isText:
			text()
		case isArray:
			if kind, n := u32(), int(u64()); kind == isText {
				for range n {
					text()
				}
			} else {
				at += n * sizes[kind]
			}
		default:
			at += sizes[kind]
		}
		var value any = gguftest.Raw(b[from:at])
		if key == "general.architecture" {
			value = arch
		} else if rest, is := strings.CutPrefix(key, "llama."); is {
			key = arch + "." + rest
		}
		f.Metadata = append(f.Metadata, gguftest.KV(key, value))
	}
	var offsets []int
	for range tensors {
		t := gguftest.Tensor{Name: text()}
		for range u32() {
			t.Dims = append(t.Dims, u64())
		}
		t.Type = u32()
		offsets = append(offsets, int(u64()))
		f.Tensors = append(f.Tensors, t)
	}
	data := b[(at+31)/32*32:]
	for i, offset := range offsets {
		t := &f.Tensors[i]
		n := 1
		for _, d := range t.Dims {
			n *= int(d)
		}
		switch t.Type {
		case gguftest.F32:
			n *= 4
		case gguftest.Q80:
			n = n / 32 * 34
		default:
			n = math.MaxInt
		}
		t.Data = data[offset : offset+n]
	}
	return f, nil
}
