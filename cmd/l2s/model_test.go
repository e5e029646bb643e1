package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/preview"
)

// Labels that are banned, or not allowed, are in no answer and in no sum. The order and the sum
// equal the full ranking without them.
func TestBannedAndAllowedLabels(t *testing.T) {
	dir := files(t)
	exact := joined(goodTopK, "--budget", "exact", "--json", "--limit", "5")
	type line struct {
		IDs      []uint32
		Logits   []float64
		LogProbs []float64
	}
	lines := func(args ...string) (list []line) {
		for text := range strings.Lines(succeed(t, dir, args...)) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			list = append(list, l)
		}
		return list
	}
	all := lines(joined(exact, "--k", "300")...)
	banned := []uint32{all[0].IDs[0], all[0].IDs[1], all[1].IDs[0], 9}
	ban := fmt.Sprintf("%d,%d,%d,9", banned[0], banned[1], banned[2])
	writeFile(t, filepath.Join(dir, "ids.txt"), []byte("1 2 3 4 5 6 7 8 9 10\n"))
	for name, c := range map[string]struct {
		args   []string
		permit func(id uint32) bool
	}{
		"banned":  {[]string{"--ban", ban}, func(id uint32) bool { return !slices.Contains(banned, id) }},
		"allowed": {[]string{"--allow", "@ids.txt"}, func(id uint32) bool { return id >= 1 && id <= 10 }},
		"both":    {[]string{"--allow", "@ids.txt", "--ban", ban}, func(id uint32) bool { return id >= 1 && id <= 8 || id == 10 }},
	} {
		got := lines(joined(exact, "--k", "5", "--logprobs", c.args)...)
		for i, l := range got {
			var ids []uint32
			sum := 0.0
			for j, id := range all[i].IDs {
				if !c.permit(id) {
					continue
				}
				sum += math.Exp(all[i].Logits[j] - all[i].Logits[0])
				if len(ids) < 5 {
					ids = append(ids, id)
				}
			}
			if !slices.Equal(l.IDs, ids) {
				t.Errorf("%s: context %d: found %v, want %v", name, i, l.IDs, ids)
				continue
			}
			for j, p := range l.LogProbs {
				if want := l.Logits[j] - all[i].Logits[0] - math.Log(sum); math.Abs(p-want) > 1e-9 {
					t.Errorf("%s: context %d: found the log-probability %v, want %v", name, i, p, want)
				}
			}
		}
	}
	for i, l := range lines(joined(goodTopK, "--json", "--ban", ban)...) { // by the screen
		for _, id := range banned {
			if slices.Contains(l.IDs, id) {
				t.Errorf("context %d: found the banned label %d in %v", i, id, l.IDs)
			}
		}
	}
	every := ""
	for id := range 300 {
		every += fmt.Sprintln(id)
	}
	writeFile(t, filepath.Join(dir, "all.txt"), []byte(every))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--allow", "300"}, 1, "l2s topk: W.npy: found 300 labels, expected more than 300, an id of --allow\n"},
		{[]string{"--ban", "500"}, 1, "W.npy: found 300 labels, expected more than 500, an id of --ban"},
		{[]string{"--allow", "1,2", "--ban", "1,2"}, 1, "W.npy: found no label that may be answered, expected one at least: see --allow and --ban"},
		{[]string{"--ban", "@all.txt"}, 1, "W.npy: found no label that may be answered, expected one at least: see --ban"},
		{[]string{"--ban", "specials"}, 2, "--ban specials is for --head"},
		{[]string{"--ban", "x"}, 2, `invalid value "x" for --ban: expected whole numbers, at least 0, @FILE or specials or suppressed, with commas between them`},
	} {
		if r := invoke(t, dir, joined(goodTopK, c.args)...); r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: found %d and %q, want %d and %q", c.args, r.code, r.stderr, c.code, c.want)
		}
	}
}

// The tokenizer of the model itself may have ids beyond the rows, or rows without an id, however
// its path is written; the first bytes of a file tell its kind.
func TestTheTokenizerOfTheModelItself(t *testing.T) {
	dir := files(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(in("model"), 0o777); err != nil {
		t.Fatal(err)
	}
	w, labels, dim := rows(t, in("W.npy"))
	writeFile(t, in("model/config.json"), []byte(`{"tie_word_embeddings":false}`))
	if err := gguftest.WriteSafetensors(in("model/model.safetensors"), gguftest.Array{Name: "lm_head.weight", Shape: []int{labels, dim}, Data: w},
		gguftest.Array{Name: "lm_head.bias", Shape: []int{labels}, Data: tensor(t, in("b.npy")).Data}); err != nil {
		t.Fatal(err)
	}
	vocabulary := []byte(`{"added_tokens":[{"id":300,"content":"<image>"}],"model":{"vocab":{"a":0,"last":299}}}`)
	writeFile(t, in("model/tokenizer.json"), vocabulary)
	for _, path := range []string{"model", "./model", "model/", in("model"), "model/tokenizer.json", in("model/../model/tokenizer.json")} {
		if r := invoke(t, dir, "topk", "m.l2s", "--head", "model", "--contexts", "T.npy", "--vocab", path, "--k", "1", "--limit", "1"); r.code != 0 {
			t.Errorf("%s: found %d and %s", path, r.code, r.stderr)
		}
	}
	var tokens []string
	for i := range 301 {
		tokens = append(tokens, fmt.Sprintf(`"t%d":%d`, i, i))
	}
	writeFile(t, in("sha256-0a"), []byte(`{"model":{"vocab":{`+strings.Join(tokens, ",")+`}}}`))
	got := succeed(t, dir, joined(goodTopK, "--vocab", "sha256-0a", "--k", "1", "--limit", "1")...)
	if id, _, _ := strings.Cut(got, "\t"); !strings.HasSuffix(got, "\tt"+id+"\n") {
		t.Errorf("found %q, want the token of the id", got)
	}
}

// inspect describes the head of a model in ten lines and the notes.
func TestInspectAModel(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(in("m"), 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, in("m/config.json"), []byte(`{"model_type":"t5","d_model":4,"tie_word_embeddings":true,"eos_token_id":1,"pad_token_id":0,"text_config":{"tie_word_embeddings":false}}`))
	writeFile(t, in("m/generation_config.json"), []byte(`{"suppress_tokens":[2]}`))
	if err := gguftest.WriteSafetensors(in("m/model.safetensors"), gguftest.Array{Name: "shared.weight", Shape: []int{3, 4}, Data: make([]float32, 12)}); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"file         " + filepath.Join("m", "model.safetensors"),
		"head         shared.weight",
		"type         float32, 3 labels of 4 numbers",
		"tied         yes: tie_word_embeddings is true",
		"bias         none",
		"padding      0 rows left out",
		"scale        of states 0.5 before the head, of logits 1 after it, then no cap",
		"contexts     the input of the head: a hook on it sees it",
		"specials     0 1",
		"suppressed   2",
		"note         config.json says tie_word_embeddings true, its text model false: the first counts, as in transformers 5",
		"",
	}, "\n")
	if got := succeed(t, dir, "inspect", "m"); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	o := object(t, dir, "inspect", "m", "--json")
	if o["tensor"] != "shared.weight" || o["tied"] != true || o["state_scale"] != 0.5 || fmt.Sprint(o["suppressed"]) != "[2]" {
		t.Errorf("found %v", o)
	}
	if r := invoke(t, dir, "inspect", "m", "--ids", "x.npy"); r.code != 2 || !strings.Contains(r.stderr, "--ids is for a screen, found the model m") {
		t.Errorf("found %d, %q", r.code, r.stderr)
	}
	golden, err := filepath.Abs(filepath.Join("../..", "internal", "files", "heads", "testdata", "wild", "split-00001-of-00002.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	text := succeed(t, dir, "inspect", golden)
	for _, line := range []string{"split-00002-of-00002.gguf\nhead         output.weight\n", "\ntied         no: output.weight is there\n", "of logits 0.125 after it", "\nsuppressed   1 3\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("found no %q in\n%s", line, text)
		}
	}
}

// If the states were taken before a scale of the model, eval notices it by the targets, and train
// by the normalisation.
func TestStatesWithoutTheScaleAreNoticed(t *testing.T) {
	simdtest.Long(t)
	const labels, d, n = 60, 32, 1200
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(in("m"), 0o777); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(41, 2))
	w, gain := make([]float32, labels*d), make([]float32, d)
	for i := range w {
		w[i] = float32(4 * r.NormFloat64())
	}
	for i := range gain {
		gain[i] = 1
	}
	behind, atHead, targets := make([]float32, n*d), make([]float32, n*d), make([]byte, 0, 8*n)
	for i := range n {
		u, square := behind[i*d:][:d], 0.0
		for j := range u {
			u[j] = float32(r.NormFloat64())
			square += float64(u[j]) * float64(u[j]) / d
		}
		weights := make([]float64, labels)
		total := 0.0
		for j := range u {
			u[j] /= float32(math.Sqrt(square))
			atHead[i*d+j] = float32(float64(u[j]) / math.Sqrt(d))
		}
		for s := range weights {
			logit := 0.0
			for j := range u {
				logit += float64(w[s*d+j]) * float64(u[j]) / math.Sqrt(d)
			}
			weights[s] = math.Exp(logit)
			total += weights[s]
		}
		x, target := r.Float64()*total, 0
		for ; target < labels-1 && x >= weights[target]; target++ {
			x -= weights[target]
		}
		targets = append(targets, byte(target), 0, 0, 0, 0, 0, 0, 0)
	}
	writeFile(t, in("m/config.json"), []byte(`{"model_type":"t5","d_model":32,"tie_word_embeddings":true}`))
	if err := gguftest.WriteSafetensors(in("m/model.safetensors"), gguftest.Array{Name: "shared.weight", Shape: []int{labels, d}, Data: w}, gguftest.Array{Name: "decoder.final_layer_norm.weight", Shape: []int{d}, Data: gain}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string][]float32{"head.npy": atHead, "after.npy": behind} {
		if err := tensorfile.WriteNPY(in(name), x, n, d); err != nil {
			t.Fatal(err)
		}
	}
	header := fmt.Sprintf(`{"x":{"dtype":"I64","shape":[%d],"data_offsets":[0,%d]}}`, n, len(targets))
	writeFile(t, in("targets.safetensors"), slices.Concat([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, []byte(header), targets))
	for name, want := range map[string][2]string{
		"head.npy":  {"", ""},
		"after.npy": {"they lack the scale of 0.1768 that the model has between its last normalisation and its head", "times as large fit the targets better, on a sample with perplexity"},
	} {
		train := invoke(t, dir, "train", "--head", "m", "--contexts", name, "--out", "m.l2s", "--any-precision", "--quiet")
		eval := invoke(t, dir, "eval", "m.l2s", "--head", "m", "--contexts", name, "--targets", "targets.safetensors:x")
		for i, r := range []result{train, eval} {
			if warned := strings.Contains(r.stderr, "warning: "); r.code != 0 || want[i] == "" && strings.Contains(r.stderr, "scale of") || want[i] != "" && (!warned || !strings.Contains(r.stderr, want[i])) {
				t.Errorf("%s, run %d: found %d and\n%s\nwant %q", name, i, r.code, r.stderr, want[i])
			}
		}
		if want[1] == "" && strings.Contains(eval.stderr, "fit the targets better") {
			t.Errorf("%s: found\n%s", name, eval.stderr)
		}
	}
}

// inspect of a preview describes its layer, and the precision of each budget.
func TestInspectPreview(t *testing.T) {
	x := make([]float32, 300*8)
	for i := range x {
		x[i] = float32(math.Sin(float64(i * i)))
	}
	l, err := l2s.New(l2s.Float32(x, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := preview.Make(context.Background(), l, l2s.Float32(x, l.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Save(filepath.Join(dir, "m.gguf.l2p")); err != nil {
		t.Fatal(err)
	}
	text := succeed(t, dir, "inspect", "m.gguf.l2p")
	steps, normal := m.Steps()
	for i, line := range strings.Split(strings.TrimSpace(text[strings.Index(text, "P@1"):]), "\n")[1:] {
		if !strings.HasPrefix(strings.TrimSpace(line), fmt.Sprint(steps[i].Budget)+" ") || strings.HasSuffix(line, "default") != (i == normal) {
			t.Errorf("rung %d: found %q, expected the budget %v, the default: %v", i, line, steps[i].Budget, i == normal)
		}
	}
	expectIn(t, text, "a preview", "labels     300", fmt.Sprintf("SHA-256 %x", m.Fingerprint()))
	_, held := m.Measured()
	if got := number(t, object(t, dir, "inspect", "m.gguf.l2p", "--json"), "held_out"); got != float64(held) {
		t.Errorf("found %v held-out contexts, expected %d", got, held)
	}
}
