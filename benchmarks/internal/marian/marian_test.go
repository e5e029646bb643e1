package marian

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"pgregory.net/rapid"
)

// made is a tensor of a made-up file.
type made struct {
	name  string
	kind  uint64
	shape []int
	data  []byte
}

// bytes returns the file of some tensors.
func bytesOf(tensors []made) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(nil, version), uint64(len(tensors)))
	for _, t := range tensors {
		for _, x := range []int{len(t.name) + 1, int(t.kind), len(t.shape), len(t.data)} {
			b = le.AppendUint64(b, uint64(x))
		}
	}
	for _, t := range tensors {
		b = append(append(b, t.name...), 0)
	}
	for _, t := range tensors {
		for _, d := range t.shape {
			b = le.AppendUint32(b, uint32(d))
		}
	}
	b = append(le.AppendUint64(b, 3), 1, 2, 3)
	for _, t := range tensors {
		b = append(b, t.data...)
	}
	return b
}

const (
	testDim, testFFN, testHeads, testLabels = 24, 40, 3, 50
	description                             = `dec-cell: ssru
dec-depth: 2
dim-emb: 24
enc-depth: 2
transformer-decoder-autoreg: rnn
transformer-dim-ffn: 40
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-heads: 3
transformer-no-projection: false
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-postprocess-top: ""
transformer-preprocess: ""
transformer-tied-layers: []
transformer-train-position-embeddings: false
tied-embeddings-all: true
type: transformer
`
)

// random returns the tensors of a small model, and its weights as numbers: matrices of in x out, and
// rows.
func random(seed uint64) (list []made, weights map[string][]float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	weights = map[string][]float64{}
	codes := func(name string, in, out int, transposed bool) {
		data, multiplier := make([]byte, in*out), float32(20*math.Sqrt(float64(in)))
		w := make([]float64, in*out)
		for i := range w {
			c := int8(max(-127, min(127, 40*r.NormFloat64())))
			w[i] = float64(c) / float64(multiplier)
			if transposed {
				data[i%out*in+i/out] = byte(c)
			} else {
				data[i] = byte(c)
			}
		}
		list = append(list, made{name, typeCodes, []int{in, out}, binary.LittleEndian.AppendUint32(data, math.Float32bits(multiplier))})
		weights[name] = w
	}
	row := func(name string, n int, mean float64) {
		t := made{name, typeFloat32, []int{1, n}, nil}
		for range n {
			x := float32(mean + .3*r.NormFloat64())
			t.data = binary.LittleEndian.AppendUint32(t.data, math.Float32bits(x))
			weights[name] = append(weights[name], float64(x))
		}
		list = append(list, t)
	}
	codes("Wemb", testLabels, testDim, false)
	row("decoder_ff_logit_out_b", testLabels, 0)
	normalisation := func(p string) { row(p+"_scale", testDim, 1); row(p+"_bias", testDim, 0) }
	common := func(p, attention string) {
		for _, x := range []string{"q", "k", "v", "o"} {
			codes(p+attention+"_W"+x, testDim, testDim, true)
			row(p+attention+"_b"+x, testDim, 0)
		}
		normalisation(p + attention + "_Wo_ln")
		codes(p+"ffn_W1", testDim, testFFN, true)
		row(p+"ffn_b1", testFFN, 0)
		codes(p+"ffn_W2", testFFN, testDim, true)
		row(p+"ffn_b2", testDim, 0)
		normalisation(p + "ffn_ffn_ln")
	}
	for l := 1; l <= 2; l++ {
		common(fmt.Sprintf("encoder_l%d_", l), "self")
		p := fmt.Sprintf("decoder_l%d_", l)
		common(p, "context")
		codes(p+"rnn_W", testDim, testDim, true)
		codes(p+"rnn_Wf", testDim, testDim, true)
		row(p+"rnn_bf", testDim, 0)
		normalisation(p + "rnn_ffn_ln")
	}
	list = append(list, made{"special:model.yml", typeInt8, []int{len(description)}, []byte(description)})
	list = append(list, made{"Wemb_QuantMultA", 0x9999, []int{1, 1}, []byte{1}})
	return list, weights
}

func parsed(t testing.TB, seed uint64) (*Model, plain) {
	t.Helper()
	list, weights := random(seed)
	m, err := Parse(bytesOf(list))
	if err != nil {
		t.Fatal(err)
	}
	return m, plain(weights)
}

// plain computes contexts as the package's comment defines them, in float64, piece by piece.
type plain map[string][]float64

func (p plain) product(x []float64, w, b string, out int) []float64 {
	y := make([]float64, out)
	for j := range y {
		for i, v := range x {
			y[j] += v * p[w][i*out+j]
		}
		if b != "" {
			y[j] += p[b][j]
		}
	}
	return y
}

func (p plain) norm(x, y []float64, name string) []float64 {
	z, mean, variance := make([]float64, len(x)), 0.0, 0.0
	for i := range x {
		z[i] = x[i] + y[i]
		mean += z[i] / float64(len(x))
	}
	for _, v := range z {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for i := range z {
		z[i] = (z[i]-mean)/math.Sqrt(variance+1e-9)*p[name+"_scale"][i] + p[name+"_bias"][i]
	}
	return z
}

func (p plain) attend(x []float64, source [][]float64, name string) []float64 {
	q := p.product(x, name+"Wq", name+"bq", testDim)
	sum, each := make([]float64, testDim), testDim/testHeads
	for h := range testHeads {
		var weights []float64
		total := 0.0
		for _, s := range source {
			k, dot := p.product(s, name+"Wk", name+"bk", testDim), 0.0
			for j := h * each; j < (h+1)*each; j++ {
				dot += q[j] * k[j]
			}
			weights = append(weights, math.Exp(dot/math.Sqrt(float64(each))))
			total += weights[len(weights)-1]
		}
		for i, s := range source {
			v := p.product(s, name+"Wv", name+"bv", testDim)
			for j := h * each; j < (h+1)*each; j++ {
				sum[j] += weights[i] / total * v[j]
			}
		}
	}
	return p.norm(x, p.product(sum, name+"Wo", name+"bo", testDim), name+"Wo_ln")
}

func (p plain) forward(x []float64, name string) []float64 {
	y := p.product(x, name+"ffn_W1", name+"ffn_b1", testFFN)
	for i := range y {
		y[i] = max(y[i], 0)
	}
	return p.norm(x, p.product(y, name+"ffn_W2", name+"ffn_b2", testDim), name+"ffn_ffn_ln")
}

func (p plain) input(piece, t int) []float64 {
	x := make([]float64, testDim)
	for j := range x {
		if piece >= 0 {
			x[j] = p["Wemb"][piece*testDim+j] * math.Sqrt(testDim)
		}
		turn := float64(t) * math.Pow(10000, -float64(j%(testDim/2))/(testDim/2-1))
		if j < testDim/2 {
			x[j] += math.Sin(turn)
		} else {
			x[j] += math.Cos(turn)
		}
	}
	return x
}

// contexts returns the contexts of the decoder that reads the pieces of target.
func (p plain) contexts(source, target []uint32) (list [][]float64) {
	var x [][]float64
	for t, piece := range source {
		x = append(x, p.input(int(piece), t))
	}
	for l := 1; l <= 2; l++ {
		name, y := fmt.Sprintf("encoder_l%d_", l), make([][]float64, len(x))
		for i := range x {
			y[i] = p.forward(p.attend(x[i], x, name+"self_"), name)
		}
		x = y
	}
	cells := [2][]float64{make([]float64, testDim), make([]float64, testDim)}
	for t := 0; t <= len(target); t++ {
		h := p.input(-1, t)
		if t > 0 {
			h = p.input(int(target[t-1]), t)
		}
		for l := range 2 {
			name := fmt.Sprintf("decoder_l%d_", l+1)
			forget, u := p.product(h, name+"rnn_Wf", name+"rnn_bf", testDim), p.product(h, name+"rnn_W", "", testDim)
			relu := make([]float64, testDim)
			for j, c := range cells[l] {
				f := 1 / (1 + math.Exp(-forget[j]))
				cells[l][j] = f*c + (1-f)*u[j]
				relu[j] = max(cells[l][j], 0)
			}
			h = p.forward(p.attend(p.norm(h, relu, name+"rnn_ffn_ln"), x, name+"context_"), name)
		}
		list = append(list, h)
	}
	return list
}

// distance is the length of the difference of a context and one of float64, over the length of it.
func distance(h []float32, want []float64) float64 {
	difference, length := 0.0, 0.0
	for j, x := range want {
		difference += (float64(h[j]) - x) * (float64(h[j]) - x)
		length += x * x
	}
	return math.Sqrt(difference / length)
}

func TestContextsAreTheDefinition(t *testing.T) {
	for precision, most := range map[Precision]float64{Int16: 1e-3, Int8: .2} {
		for seed := range uint64(4) {
			m, p := parsed(t, seed)
			r := rand.New(rand.NewPCG(seed, 2))
			source, target := pieces(r, 7), pieces(r, 9)
			sources, err := m.NewEncoder(precision).Encode([][]uint32{source})
			if err != nil {
				t.Fatal(err)
			}
			d := m.NewDecoder(precision)
			d.Start(sources)
			before := uint32(0)
			for i, want := range p.contexts(source, target) {
				h, err := d.Step([]int{0}, []uint32{before})
				if err != nil {
					t.Fatal(err)
				}
				if x := distance(h, want); !(x <= most) {
					t.Errorf("int16 %v, seed %d, step %d: found a context that is off by %.2g of its length, expected at most %.2g", precision, seed, i, x, most)
				}
				if i < len(target) {
					before = target[i]
				}
			}
		}
	}
}

func pieces(r *rand.Rand, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = uint32(r.IntN(testLabels))
	}
	return s
}

// Sentences and hypotheses beside it change no bit of a context.
func TestContextsDependOnNothingElse(t *testing.T) {
	m, _ := parsed(t, 5)
	rapid.Check(t, func(t *rapid.T) {
		precision := Precision(rapid.Bool().Draw(t, "int16"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		sentences := make([][]uint32, 1+r.IntN(5))
		for i := range sentences {
			sentences[i] = pieces(r, 1+r.IntN(9))
		}
		alone := func(s int, history []uint32) []float32 {
			sources, err := m.NewEncoder(precision).Encode(sentences[s : s+1])
			if err != nil {
				t.Fatal(err)
			}
			d := m.NewDecoder(precision)
			d.Start(sources)
			var h []float32
			for i := range len(history) + 1 {
				if h, err = d.Step([]int{0}, []uint32{append([]uint32{0}, history...)[i]}); err != nil {
					t.Fatal(err)
				}
			}
			return h
		}
		sources, err := m.NewEncoder(precision).Encode(sentences)
		if err != nil {
			t.Fatal(err)
		}
		d := m.NewDecoder(precision)
		d.Start(sources)
		type hypothesis struct {
			sentence int
			history  []uint32
		}
		var list []hypothesis
		parents := make([]int, len(sentences))
		for i := range sentences {
			list, parents[i] = append(list, hypothesis{i, nil}), i
		}
		before := make([]uint32, len(parents))
		for range 4 {
			h, err := d.Step(parents, before)
			if err != nil {
				t.Fatal(err)
			}
			i := r.IntN(len(list))
			if d.Of()[i] != list[i].sentence {
				t.Fatalf("hypothesis %d: found the sentence %d, expected %d", i, d.Of()[i], list[i].sentence)
			}
			if want := alone(list[i].sentence, list[i].history); !slices.Equal(h[i*testDim:][:testDim], want) {
				t.Fatalf("hypothesis %d: found a context that differs from that of the sentence alone", i)
			}
			var next []hypothesis
			parents, before = nil, nil
			for range 1 + r.IntN(6) {
				parent, piece := r.IntN(len(list)), uint32(r.IntN(testLabels))
				next = append(next, hypothesis{list[parent].sentence, append(slices.Clone(list[parent].history), piece)})
				parents, before = append(parents, parent), append(before, piece)
			}
			list = next
		}
	})
}

// The decoder is one of package beam.
func TestBeamSearchRuns(t *testing.T) {
	m, _ := parsed(t, 6)
	layer, err := m.Layer()
	if err != nil {
		t.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := m.NewEncoder(Int8).Encode([][]uint32{{1, 2, 0}, {3, 0}})
	if err != nil {
		t.Fatal(err)
	}
	d := m.NewDecoder(Int8)
	d.Start(sources)
	s, err := beam.New(d, searcher, beam.Options{Width: 3, MaxLen: 8})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Run(context.Background(), 2)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %d results, %v, expected 2", len(found), err)
	}
}

func TestWrongSentences(t *testing.T) {
	m, _ := parsed(t, 7)
	for _, c := range []struct {
		sentence []uint32
		want     string
	}{
		{nil, "found 0 pieces"}, {make([]uint32, Most+1), "found 1025 pieces"}, {[]uint32{1, testLabels}, "found the piece 50"},
	} {
		if _, err := m.NewEncoder(Int8).Encode([][]uint32{{1}, c.sentence}); err == nil || !strings.Contains(err.Error(), "sentence 1: "+c.want) {
			t.Errorf("found %v, expected %s", err, c.want)
		}
	}
	sources, err := m.NewEncoder(Int8).Encode([][]uint32{{1}})
	if err != nil {
		t.Fatal(err)
	}
	d := m.NewDecoder(Int8)
	d.Start(sources)
	if _, err := d.Step([]int{1}, []uint32{0}); err == nil || !strings.Contains(err.Error(), "found the parent 1") {
		t.Errorf("found %v, expected an error about the parent", err)
	}
	if _, err := d.Step([]int{0}, []uint32{testLabels}); err != nil {
		t.Errorf("found %v, expected that the first step looks at no piece", err)
	}
	if _, err := d.Step([]int{0}, []uint32{testLabels}); err == nil || !strings.Contains(err.Error(), "found the piece 50") {
		t.Errorf("found %v, expected an error about the piece", err)
	}
}

func TestBadFiles(t *testing.T) {
	change := func(name string, f func(m *made)) []byte {
		list, _ := random(1)
		for i := range list {
			if list[i].name == name {
				f(&list[i])
			}
		}
		return bytesOf(list)
	}
	list, _ := random(1)
	good := bytesOf(list)
	word := func(at int, x uint64) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], x)
		return b
	}
	yml := func(old, changed string) []byte {
		return change("special:model.yml", func(m *made) {
			m.data = []byte(strings.Replace(string(m.data), old, changed, 1))
			m.shape[0] = len(m.data)
		})
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "found 0 bytes"},
		{[]byte("PK\x03\x04 and more than sixteen bytes"), "found a zip archive"},
		{[]byte("GGUF and more than sixteen bytes"), "found GGUF"},
		{word(0, 2), "version: found 2, expected 1"},
		{word(8, 1<<60), "number of tensors: found 1152921504606846976"},
		{word(16, 1<<62), "tensor 0: name: found 4611686018427387904 bytes"},
		{word(32, 9), "Wemb: shape: found 9 dimensions"},
		{word(40, 1<<63), "data: found 9223372036854775808 bytes"},
		{word(40, 3), "Wemb: data: found 3 bytes, expected 1204"},
		{good[:len(good)-1], "found 1 bytes, expected at most the 0 that are left"},
		{append(slices.Clone(good), 0), "found 1 bytes behind the last tensor"},
		{change("encoder_l2_ffn_W1", func(m *made) { m.name = "encoder_l9_ffn_W1" }), "encoder_l2_ffn_W1: found no tensor"},
		{change("Wemb_QuantMultA", func(m *made) { m.name = "more" }), "more: found a tensor that is no part"},
		{change("decoder_l1_rnn_bf", func(m *made) { m.name = "decoder_l1_rnn_W" }), "decoder_l1_rnn_W: found two tensors"},
		{change("decoder_l1_rnn_bf", func(m *made) { m.shape[1]-- }), "decoder_l1_rnn_bf: shape: found [1 23], expected [1 24]"},
		{change("decoder_l1_rnn_bf", func(m *made) { m.kind = typeInt8 }), "decoder_l1_rnn_bf: type: found 0x101"},
		{change("decoder_l1_rnn_bf", func(m *made) { m.data[7] = 0x7f; m.data[6] = 0xc0 }), "decoder_l1_rnn_bf[1]: found NaN"},
		{change("decoder_l1_rnn_W", func(m *made) { m.data[5] = 0x80 }), "decoder_l1_rnn_W: code 5: found -128"},
		{change("decoder_l1_rnn_W", func(m *made) { copy(m.data[len(m.data)-4:], "\x00\x00\x00\x00") }), "decoder_l1_rnn_W: multiplier: found 0"},
		{yml("dim-emb: 24", "dim-emb: 26"), "dim-emb: found 26, expected an even multiple of the 3 heads"},
		{yml("dim-emb: 24", "dim-emb: x"), `dim-emb: found "x"`},
		{yml("dec-cell: ssru", "dec-cell: gru"), `dec-cell: found "gru", expected "ssru"`},
		{yml("type: transformer\n", "type: s2s\n"), `type: found "s2s"`},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("found %v, expected %s", err, c.want)
		}
	}
}

func FuzzModel(f *testing.F) {
	list, _ := random(1)
	good := bytesOf(list)
	f.Add(good)
	f.Add(good[:400])
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		sources, err := m.NewEncoder(Int8).Encode([][]uint32{{0}})
		if err != nil {
			t.Fatal(err)
		}
		d := m.NewDecoder(Int8)
		d.Start(sources)
		if h, err := d.Step([]int{0}, []uint32{0}); err != nil || len(h) != m.Dim() {
			t.Fatalf("found %d numbers and %v, expected %d", len(h), err, m.Dim())
		}
	})
}

// shortlist returns the file of a dictionary.
func shortlist(words [6]uint64, starts []uint64, lists []uint32) (b []byte) {
	for _, x := range append(words[:], starts...) {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	for _, x := range lists {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func TestShortlists(t *testing.T) {
	words := [6]uint64{shortlistMagic, 0, 2, 50, 6, 4}
	starts, lists := []uint64{0, 2, 2, 3, 4, 4}, []uint32{4, 1, 3, 4}
	good := shortlist(words, starts, lists)
	s, err := ParseShortlist(good, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ sentence, want []uint32 }{
		{nil, []uint32{0, 1}}, {[]uint32{0}, []uint32{0, 1, 4}}, {[]uint32{1, 4}, []uint32{0, 1, 4}}, {[]uint32{2, 3, 2}, []uint32{0, 1, 2, 3, 4}},
	} {
		if got := s.Of([]uint32{9}, c.sentence); !slices.Equal(got[1:], c.want) || got[0] != 9 {
			t.Errorf("%v: found %v, expected %v behind 9", c.sentence, got, c.want)
		}
	}
	with := func(i int, x uint64) []byte { w := words; w[i] = x; return shortlist(w, starts, lists) }
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "found 0 bytes"}, {with(0, 1), "magic: found 0x1"}, {with(2, 6), "first: found 6"}, {with(4, 5), "starts: found 5"},
		{with(5, 3), "found 64 bytes behind the header"}, {with(5, 1<<62), "found 64 bytes behind the header"}, {good[:len(good)-1], "found 63 bytes"},
		{shortlist(words, []uint64{0, 2, 1, 3, 4, 4}, lists), "starts[2]: found 1"}, {shortlist(words, []uint64{0, 2, 2, 3, 4, 5}, lists), "starts[5]: found 5"},
		{shortlist(words, starts, []uint32{4, 1, 3, 5}), "lists[3]: found the piece 5"},
	} {
		if _, err := ParseShortlist(c.data, 5); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("found %v, expected %s", err, c.want)
		}
	}
}

// Piece 0 has the list 4, 1, and pieces 2 and 3 have 3 and 4.
func TestAThinListHasWhatTranslationsHave(t *testing.T) {
	s, err := ParseShortlist(shortlist([6]uint64{shortlistMagic, 0, 0, 50, 6, 4}, []uint64{0, 2, 2, 3, 4, 4}, []uint32{4, 1, 3, 4}), 5)
	if err != nil {
		t.Fatal(err)
	}
	sentences, translations := [][]uint32{{0, 0, 2}, {0}, {3}}, [][]uint32{{4, 4}, {4, 1, 3}, nil}
	for _, c := range []struct {
		often, least int
		want         [4][]uint32 // the lists of sentences of one piece
	}{
		{1, 1, [4][]uint32{{0, 1, 4}, {1}, {2}, {3}}},
		{1, 2, [4][]uint32{{0, 4}, {1}, {2}, {3}}},
		{2, 2, [4][]uint32{{0, 4}, {1}, {2, 3}, {3, 4}}}, // two sentences have piece 0, one has piece 2 or 3
		{3, 2, [4][]uint32{{0, 1, 4}, {1}, {2, 3}, {3, 4}}},
	} {
		thin := s.Thin(sentences, translations, c.often, c.least)
		for piece, want := range c.want {
			if got := thin.Of(nil, []uint32{uint32(piece)}); !slices.Equal(got, want) {
				t.Errorf("often %d, least %d, piece %d: found %v, expected %v", c.often, c.least, piece, got, want)
			}
		}
	}
}

func FuzzShortlist(f *testing.F) {
	f.Add(shortlist([6]uint64{shortlistMagic, 0, 2, 50, 6, 4}, []uint64{0, 2, 2, 3, 4, 4}, []uint32{4, 1, 3, 4}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := ParseShortlist(data, 5); err == nil {
			for _, id := range s.Of(nil, []uint32{0, 1, 2, 3, 4}) {
				if id >= 5 {
					t.Fatalf("found the piece %d, expected one below 5", id)
				}
			}
		}
	})
}
