package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// scattered writes n contexts to a .npy file.
func scattered(t *testing.T, path string, n, dim int) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	h := make([]float32, n*dim)
	for i := range h {
		h[i] = float32(r.NormFloat64())
	}
	if err := tensorfile.WriteNPY(path, h, n, dim); err != nil {
		t.Fatal(err)
	}
}

// finals returns answers of l2s topk --json with the final logits of a model in place of w.h + b.
func finals(t *testing.T, lines string, model *heads.Head) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for line := range strings.Lines(lines) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		for i, x := range a.Logits {
			a.Logits[i] = model.Logit(x)
		}
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Each head in a GGUF file is used for training, measuring and queries by --head alone. The screen
// also fits the layer of its values in a .npy file, and the answers are equal, but for the scale and
// the cap of the logits.
// TestRowsAreWhatGGUFReads of internal/files/heads compares these values with another reader's.
func TestHeadsInGGUFFiles(t *testing.T) {
	simdtest.Long(t)
	paths, err := filepath.Glob(filepath.Join("..", "..", "internal", "files", "heads", "testdata", "gguf", "*.gguf"))
	if err != nil || len(paths) < 9 {
		t.Fatalf("found %d files (%v), expected at least 9", len(paths), err)
	}
	said := map[string]string{
		"head-bf16": "token_embd.weight, 44 x 96 bfloat16, mapped; no bias; 4 rows of padding left out",
		"head-f16":  "output.weight, 48 x 96 float16, mapped; no bias",
		"head-f32":  "output.weight, 48 x 96 float32, mapped; no bias",
		"head-q8_0": "token_embd.weight, 44 x 608 q8_0, mapped; no bias; 4 rows of padding left out",
		"head-q4_k": "output.weight, 48 x 512 q4_k, mapped; no bias; scale",
		"head-q6_k": "output.weight, 48 x 512 q6_k, mapped; no bias; soft cap",
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".gguf")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			gguf := name + ".gguf"
			writeFile(t, filepath.Join(dir, gguf), readFile(t, path))
			source, err := heads.Open(path, heads.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			n, dim := source.Labels(), source.Dim()
			w := make([]float32, n*dim)
			for i := range n {
				source.Rows().Widen(w[i*dim:][:dim], i)
			}
			contexts := 300
			if name == "head-q4_k" {
				contexts = 1200 // for bench
			}
			scattered(t, filepath.Join(dir, "H.npy"), contexts, dim)
			on := []string{"--head", gguf, "--contexts", "H.npy"}
			r := invoke(t, dir, joined("train", on, options(t, `{"clusters": 3, "budget": 20, "iterations": 1, "tail": null}`), "--out", "m.l2s")...)
			if r.code != 0 || !strings.HasPrefix(r.stderr, "l2s train: "+gguf+": "+said[name]) {
				t.Fatalf("found exit status %d, standard error:\n%s", r.code, r.stderr)
			}
			if labels := int(number(t, object(t, dir, joined("eval", "m.l2s", on, "--json", "--quiet")...), "labels")); labels != n {
				t.Errorf("found %d labels of %d", labels, n)
			}
			if err := tensorfile.WriteNPY(filepath.Join(dir, "W.npy"), w, n, dim); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"--k", "5"}, {"--k", "40", "--budget", "exact"}} {
				ask := joined("topk", "m.l2s", "--contexts", "H.npy", "--json", args)
				want := finals(t, succeed(t, dir, joined(ask, "--weights", "W.npy", "--bias", "none")...), source)
				if got := succeed(t, dir, joined(ask, "--head", gguf)...); got != want {
					t.Errorf("%v: found other answers than with the values in a .npy file", args)
				}
			}
			if name == "head-q4_k" {
				expectFields(t, object(t, dir, joined("bench", "m.l2s", on, "--json", "--quiet")...), "screened_us", "dense_f32_us")
			}
		})
	}
}

// Logits and log-probabilities are the model's own, with its scale and its cap, and so is what biases
// and masks are added to.
func TestLogProbabilitiesOfAHeadWithAScaleOrACap(t *testing.T) {
	simdtest.Long(t)
	for _, name := range []string{
		"head-q4_k", // a scale
		"head-q6_k", // a cap
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, gguf := t.TempDir(), name+".gguf"
			in := filepath.Join(dir, gguf)
			writeFile(t, in, readFile(t, filepath.Join("..", "..", "internal", "files", "heads", "testdata", "gguf", gguf)))
			model, err := heads.Open(in, heads.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer model.Close()
			if model.LogitScale() == 1 && model.SoftCap() == 0 {
				t.Fatal("found neither scale nor cap: not the case to be tested")
			}
			scattered(t, filepath.Join(dir, "H.npy"), 1200, model.Dim())
			on := []string{"--head", gguf, "--contexts", "H.npy"}
			scattered(t, filepath.Join(dir, "T.npy"), 150, model.Dim())
			onFew := []string{"--head", gguf, "--contexts", "T.npy"}
			tail := fmt.Sprintf(`{"temperatures": [%v]}`, 1/model.LogitScale())
			succeed(t, dir, joined("train", on, options(t, `{"clusters": 3, "budget": 20, "iterations": 1, "tail": `+tail+`}`), "--out", "m.l2s")...)
			ask := joined("topk", "m.l2s", onFew, "--logprobs", "--json")
			h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
			check := func(lines string, room float64) {
				t.Helper()
				logits := make([]float64, model.Labels())
				for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
					model.Rows().RefScan(logits, model.Bias(), h[i*model.Dim():(i+1)*model.Dim()])
					for j, x := range logits {
						logits[j] = model.Logit(x)
					}
					var answer struct {
						IDs              []int
						Logits, LogProbs []float64
					}
					if err := json.Unmarshal([]byte(line), &answer); err != nil || len(answer.IDs) != 5 {
						t.Fatalf("found %s (%v)", line, err)
					}
					sum := kernels.LogSumExp(slices.Clone(logits))
					for j, id := range answer.IDs {
						if math.Abs(answer.Logits[j]-logits[id]) > 1e-9 {
							t.Fatalf("context %d, label %d: found logit %v, expected %v", i, id, answer.Logits[j], logits[id])
						}
						if want := logits[id] - sum; math.Abs(answer.LogProbs[j]-want) > room {
							t.Fatalf("context %d, label %d: found log-probability %v, expected %v", i, id, answer.LogProbs[j], want)
						}
					}
				}
			}
			check(succeed(t, dir, joined(ask, "--budget", "exact", "--k", "5")...), 1e-9)
			check(succeed(t, dir, joined(ask, "--k", "5")...), 0.1)
			timed := object(t, dir, joined("bench", "m.l2s", on, "--json", "--quiet")...)["log_prob_us"]
			if capped := model.SoftCap() != 0; (timed == nil) != capped { // the exact layer's are of no interest
				t.Errorf("bench: found %v us for a log-probability, expected a time: %v", timed, !capped)
			}
			// The label that follows context i is i modulo their number.
			var targets []int32
			want, logits := 0.0, make([]float64, model.Labels())
			for i := range len(h) / model.Dim() {
				id := i % model.Labels()
				targets = append(targets, int32(id))
				model.Rows().RefScan(logits, model.Bias(), h[i*model.Dim():(i+1)*model.Dim()])
				for j, x := range logits {
					logits[j] = model.Logit(x)
				}
				want += kernels.LogSumExp(slices.Clone(logits)) - logits[id]
			}
			want = math.Exp(want / float64(len(targets)))
			if err := writeInt32s(filepath.Join(dir, "y.npy"), targets); err != nil {
				t.Fatal(err)
			}
			o := object(t, dir, joined("eval", "m.l2s", onFew, "--targets", "y.npy", "--json", "--quiet")...)
			if p, exact := number(t, o, "perplexity"), number(t, o, "exact_perplexity"); math.Abs(math.Log(exact/want)) > 1e-9 || math.Abs(math.Log(p/want)) > 0.05 {
				t.Errorf("found perplexities %v and %v, expected %v and nearly that", exact, p, want)
			}
		})
	}
}

// modelFolder writes a model's folder with the shared layer as its head, in two
// shards, and 20 rows of padding.
func modelFolder(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
		t.Fatal(err)
	}
	in := func(file string) string { return filepath.Join(dir, name, file) }
	w, labels, dim := rows(t, filepath.Join(dir, "W.npy"))
	b := tensor(t, filepath.Join(dir, "b.npy")).Data
	const padding = 20
	for file, array := range map[string]gguftest.Array{
		"one.safetensors": {Name: "lm_head.weight", Shape: []int{labels + padding, dim}, Data: append(slices.Clone(w), make([]float32, padding*dim)...)},
		"two.safetensors": {Name: "lm_head.bias", Shape: []int{labels + padding}, Data: append(slices.Clone(b), make([]float32, padding)...)},
	} {
		if err := gguftest.WriteSafetensors(in(file), array); err != nil {
			t.Fatal(err)
		}
	}
	var vocabulary strings.Builder
	for i := range labels {
		fmt.Fprintf(&vocabulary, `,"w%d":%d`, i, i)
	}
	for file, text := range map[string]string{
		"config.json":                  `{"model_type":"cohere","tie_word_embeddings":false,"logit_scale":0.5}`,
		"model.safetensors.index.json": `{"weight_map":{"lm_head.weight":"one.safetensors","lm_head.bias":"two.safetensors"}}`,
		"tokenizer.json":               `{"model":{"vocab":{` + vocabulary.String()[1:] + `}}}`,
	} {
		writeFile(t, in(file), []byte(text))
	}
}

// A model's folder gives the layer of its head: screens, answers and the results of every verb are
// the same as for the same numbers in separate files, but for the scale of logits.
func TestTheHeadOfAFolder(t *testing.T) {
	dir := files(t)
	modelFolder(t, dir, "model")
	in := func(name string) []byte { return readFile(t, filepath.Join(dir, name)) }
	const took = "model: lm_head.weight, 300 x 12 float32, mapped; bias lm_head.bias; 20 rows of padding left out; scale 0.5\n"
	model, err := heads.Open(filepath.Join(dir, "model"), heads.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	head := []string{"--head", "model"}
	for _, verb := range [][]string{
		joined("train", "--contexts", "H.npy", options(t, `{"tail": null}`), "--out"),
		joined("labels", "--contexts", "H.npy", "--quiet", "--out"),
	} {
		succeed(t, dir, joined(verb, "want", layerArgs())...)
		succeed(t, dir, joined(verb, "model/got", head)...) // a new file in the folder harms nothing
		if !bytes.Equal(in("want"), in("model/got")) {
			t.Errorf("%s: found another file than of the same layer in files of its own", verb[0])
		}
	}
	for _, verb := range [][]string{
		joined("eval", "m.l2s", "--contexts", "T.npy", "--json"),
		joined("topk", "m.l2s", "--contexts", "T.npy", "--vocab", "words.txt", "--json"),
	} {
		want := succeed(t, dir, joined(verb, layerArgs())...)
		if verb[0] == "topk" {
			want = finals(t, want, model)
		}
		r := invoke(t, dir, joined(verb, head)...)
		if r.code != 0 || r.stdout != want || !strings.HasPrefix(r.stderr, "l2s "+verb[0]+": "+took) {
			t.Errorf("%s: found exit status %d, another result than of the same layer in files of its own, or this on standard error:\n%s", verb[0], r.code, r.stderr)
		}
	}
	if r := invoke(t, dir, joined("eval", "m.l2s", "--contexts", "T.npy", "--quiet", head)...); r.code != 0 || r.stderr != "" {
		t.Errorf("found exit status %d and on standard error, with --quiet, %q", r.code, r.stderr)
	}
}

// The words of topk are the words of a vocabulary, or the pieces of a model's tokenizer.
func TestTheWordsOfATokenizer(t *testing.T) {
	dir := files(t)
	modelFolder(t, dir, "model")
	in := func(name string) string { return filepath.Join(dir, name) }
	tokens := strings.Fields(string(readFile(t, in("words.txt"))))
	pieces := slices.Clone(tokens)
	for i := range pieces {
		pieces[i] = "w" + strconv.Itoa(i)
	}
	pieces[3], pieces[4], pieces[5] = "a b", "\n", `"`
	var vocabulary strings.Builder
	for i, piece := range pieces {
		fmt.Fprintf(&vocabulary, ",%q:%d", piece, i)
	}
	writeFile(t, in("odd.json"), []byte(`{"model":{"vocab":{`+vocabulary.String()[1:]+`}}}`))
	gguf := gguftest.File{Metadata: []gguftest.Value{gguftest.KV("tokenizer.ggml.tokens", pieces)}}
	writeFile(t, in("m.gguf"), gguf.Bytes())
	plain := slices.Clone(pieces)
	plain[3], plain[4], plain[5] = "w3", "w4", "w5"
	quoted := slices.Clone(pieces)
	quoted[3], quoted[4], quoted[5] = `"a b"`, `"\n"`, `"\""`

	for _, c := range []struct {
		name, vocab string
		json        bool
		want        []string // the word of each label
	}{
		{"a vocabulary", "words.txt", false, tokens},
		{"a folder", "model", false, plain},
		{"the file of a folder", "model/tokenizer.json", false, plain},
		{"odd pieces", "odd.json", false, quoted},
		{"odd pieces in JSON", "odd.json", true, pieces},
		{"a GGUF file", "m.gguf", false, quoted},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := joined(goodTopK, "--k", "12", "--vocab", c.vocab)
			if c.json {
				args = append(args, "--json")
			}
			for line := range strings.Lines(succeed(t, dir, args...)) {
				var ids []int
				var words []string
				if c.json {
					var o struct {
						IDs   []int
						Words []string
					}
					if err := json.Unmarshal([]byte(line), &o); err != nil {
						t.Fatal(err)
					}
					ids, words = o.IDs, o.Words
				} else {
					columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
					for _, id := range strings.Split(columns[0], " ") {
						n, _ := strconv.Atoi(id)
						ids = append(ids, n)
					}
					for _, id := range ids {
						words = append(words, c.want[id])
					}
					if got := columns[2]; got != strings.Join(words, " ") {
						t.Fatalf("labels %v: found %q, expected %q", ids, got, strings.Join(words, " "))
					}
				}
				for i, id := range ids {
					if words[i] != c.want[id] {
						t.Fatalf("label %d: found %q, expected %q", id, words[i], c.want[id])
					}
				}
			}
		})
	}
	t.Run("a tokenizer with fewer tokens", func(t *testing.T) {
		writeFile(t, in("few.json"), []byte(`{"model":{"vocab":{"a":0}}}`))
		r := invoke(t, dir, joined(goodTopK, "--vocab", "few.json")...)
		if want := "l2s topk: few.json: found 1 tokens, expected 300, one per label\n"; r.code != 1 || r.stderr != want {
			t.Errorf("found exit status %d and %q, expected 1 and %q", r.code, r.stderr, want)
		}
	})
	t.Run("the model's own tokenizer, which does not name all labels", func(t *testing.T) {
		writeFile(t, in("model/tokenizer.json"), []byte(`{"model":{"vocab":{"a":0,"last":299}}}`))
		r := invoke(t, dir, "topk", "m.l2s", "--head", "model", "--contexts", "T.npy", "--vocab", "model", "--k", "1")
		if r.code != 0 || !strings.HasSuffix(strings.SplitN(r.stdout, "\n", 2)[0], "\t\"\"") {
			t.Errorf("found exit status %d, %s and\n%s, expected an empty word", r.code, r.stderr, r.stdout)
		}
	})
}

// A draft head answers with labels of the full vocabulary: the labels of its list, in
// the order in which the full layer gives them.
func TestADraftHead(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	var ids []int32
	for id := int32(299); id > 0; id -= 7 {
		ids = append(ids, id)
	}
	data := tensorfile.NPYHeader("i4", len(ids))
	for _, id := range ids {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	writeFile(t, filepath.Join(dir, "ids.npy"), data)
	draft := joined(layerArgs(), "--ids", "ids.npy")
	succeed(t, dir, joined("train", draft, "--contexts", "H.npy", options(t, `{"clusters": 3, "budget": 20}`), "--always", "299,5", "--out", "draft.l2s")...)
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "always          0 42\n"}, {[]string{"--ids", "ids.npy"}, "always          299 5\n"}} {
		if text := succeed(t, dir, joined("inspect", "draft.l2s", c.args)...); !strings.Contains(text, c.want) {
			t.Errorf("inspect %v: found no %q in\n%s", c.args, c.want, text)
		}
	}
	if r := invoke(t, dir, "inspect", "m.l2s", "--ids", "ids.npy"); r.code != 1 || r.stderr != "l2s inspect: ids.npy: found 43 ids, expected 300, one per row of the layer of m.l2s\n" {
		t.Errorf("found exit status %d and %q", r.code, r.stderr)
	}
	got := strings.Split(succeed(t, dir, joined("topk", "draft.l2s", draft, "--contexts", "T.npy", "--budget", "exact", "--k", "4", "--vocab", "words.txt")...), "\n")
	full := strings.Split(succeed(t, dir, joined("topk", "m.l2s", layerArgs(), "--contexts", "T.npy", "--budget", "exact", "--k", "300", "--vocab", "words.txt")...), "\n")
	if len(got) != tinyTest+1 || len(full) != len(got) {
		t.Fatalf("found %d and %d lines, expected %d", len(got), len(full), tinyTest+1)
	}
	for i := range tinyTest {
		var want [3][]string
		columns := strings.Split(full[i], "\t")
		labels, logits, words := strings.Fields(columns[0]), strings.Fields(columns[1]), strings.Fields(columns[2])
		for j, label := range labels {
			if len(want[0]) < 4 && slices.ContainsFunc(ids, func(id int32) bool { return fmt.Sprint(id) == label }) {
				want[0], want[1], want[2] = append(want[0], label), append(want[1], logits[j]), append(want[2], words[j])
			}
		}
		columns = strings.Split(got[i], "\t")
		for c, column := range columns {
			if column != strings.Join(want[c], " ") {
				t.Fatalf("context %d: found %q, expected %q", i, column, strings.Join(want[c], " "))
			}
		}
	}
}

// A head is read from its file during queries. If the file is cut off meanwhile, the error names
// it, without a crash, and earlier answers remain.
func TestAHeadThatIsCutOffWhileAnswering(t *testing.T) {
	dir := files(t)
	cmd := command(t, dir, "topk", "m.l2s", "--head", "layer.safetensors:weight", "--contexts", "T.npy", "--budget", "exact", "--k", "300")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The answers are some megabytes: the command waits until they are read.
	answers := bufio.NewReader(stdout)
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatalf("found no answer (%v); standard error:\n%s", err, stderr.String())
	}
	if err := os.Truncate(filepath.Join(dir, "layer.safetensors"), 1); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(answers)
	err = cmd.Wait()
	const want = "layer.safetensors:weight: data: found bytes that cannot be read any more, expected a file that stays as it was opened"
	if text := stderr.String(); cmd.ProcessState.ExitCode() != 1 || !bytes.HasSuffix(rest, []byte("\n")) || !strings.Contains(text, want) || strings.Contains(text, "goroutine") {
		t.Errorf("found %v, %d bytes of answers, standard error:\n%s", err, len(rest), text)
	}
}

func TestBadHeads(t *testing.T) {
	model := func(t *testing.T, dir string) { modelFolder(t, dir, "model") }
	head := func(args []string, source string) []string {
		return append(without(without(args, "--weights"), "--bias"), "--head", source)
	}
	replaces := func(output string) []string {
		return []string{"--out " + output + " would replace the input model: give another --out"}
	}
	cases := []badCase{
		{name: "train: --head and --weights", args: joined(goodTrain, "--head", "model"), code: 2, want: []string{"--head and --weights exclude each other: give one of them"}},
		{name: "train: --head without a name", args: head(goodTrain, ""), code: 2, want: []string{"missing --head"}},
		{name: "topk: no such head", args: head(goodTopK, "model"), code: 1, want: []string{"model", "no such file"}},
		{name: "topk: a folder that is no model", files: func(t *testing.T, dir string) { os.Mkdir(filepath.Join(dir, "model"), 0o777) }, args: head(goodTopK, "model"),
			code: 1, want: []string{"model: files: found a folder, expected a file, such as a GGUF file, or a folder with config.json"}},
		{name: "eval: a tensor that the model lacks", files: model, args: head(goodEval, "model:embed"), code: 1, want: []string{"found no embed, expected one of the 2 tensors there"}},
		{name: "eval: a screen of another head", files: model, args: joined(head(goodEval, "model"), "--bias", "none", "--quiet"), code: 1, want: []string{"m.l2s: fingerprint", "the fingerprint of model and its bias"}},
		{name: "train: ids that are no list", files: model, args: joined(head(goodTrain, "model"), "--ids", "W.npy"), code: 1, want: []string{"W.npy", "shape: found [300 12], expected [any]"}},
		{name: "train: an id beyond the head", files: inFile("ids.npy", append(tensorfile.NPYHeader("i4", 1), 44, 1, 0, 0)), args: joined(goodTrain, "--ids", "ids.npy"), code: 1,
			want: []string{"found label 300 at position 0, expected one below 300"}},
		{name: "train: an id of --always that the draft lacks", files: inFile("ids.npy", append(tensorfile.NPYHeader("i4", 2), 5, 0, 0, 0, 6, 0, 0, 0)), args: joined(goodTrain, "--ids", "ids.npy", "--always", "7"), code: 1,
			want: []string{"found no label 7 in the draft head, expected it for --always"}},
		{name: "train: contexts by a pattern that no file has", args: joined(goodTrain, "--contexts", "no-*.npy"), code: 1, want: []string{"no-*.npy: found no such file, expected at least one"}},
		{name: "train: one of several contexts of another dimension", files: matrixIn("I.npy", 10, 13), args: joined(goodTrain, []string{"--contexts", "H.npy", "--contexts", "I.npy"}), code: 1,
			want: []string{"I.npy: shape: found [10 13], expected [any 12]"}},
		{name: "train: over the second of the contexts", args: joined(goodTrain, []string{"--contexts", "H.npy", "--contexts", "T.npy"}, "--out", "T.npy"), code: 2, want: []string{"--out T.npy would replace the input T.npy"}},
	}
	for _, file := range []string{"config.json", "model.safetensors.index.json", "one.safetensors", "two.safetensors", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
		cases = append(cases, badCase{name: "train: over a file of the model: " + file, files: model, args: joined(head(goodTrain, "model"), "--out", "model/"+file), code: 2, want: replaces("model/" + file)})
	}
	runCases(t, cases)
}

// A real model's folder: a screen is trained on its head and measured, with --head and
// --contexts alone.
func TestARealModel(t *testing.T) {
	simdtest.Long(t)
	model, err := filepath.Abs("../../../shared/data/llm-65k")
	if err == nil {
		_, err = os.Stat(model)
	}
	if err != nil {
		t.Skip("../shared/data/llm-65k is not there (CONTRIBUTING.md, Data, describes it): ", err)
	}
	t.Parallel()
	dir := t.TempDir()
	source, err := tensorfile.OpenTensor(filepath.Join(model, "contexts_test.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	h := make([]float32, 2400*384)
	if _, err := source.ReadRows(h, 0); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"H.npy", "T.npy"} {
		if err := tensorfile.WriteNPY(filepath.Join(dir, name), h[i*1200*384:][:1200*384], 1200, 384); err != nil {
			t.Fatal(err)
		}
	}
	plain := []string{"train", "--head", model, "--budget", "100", "--out", "m.l2s", "--options", "plain.json"}
	writeFile(t, filepath.Join(dir, "plain.json"), []byte(`{"clusters": 40, "iterations": 0, "tail": null}`))
	r := invoke(t, dir, joined(plain, "--contexts", "H.npy")...)
	if want := "l2s train: " + model + ": model.embed_tokens.weight, 65536 x 384 bfloat16, mapped; no bias\n"; r.code != 0 || !strings.HasPrefix(r.stderr, want) || strings.Contains(r.stderr, "warning") {
		t.Fatalf("found exit status %d, standard error:\n%s", r.code, r.stderr)
	}
	if p := number(t, object(t, dir, "eval", "m.l2s", "--head", model, "--contexts", "T.npy", "--json", "--quiet"), "precision", "1"); p < 0.7 {
		t.Errorf("found P@1 %v on other contexts, expected at least 0.7", p)
	}
	if lines := strings.Count(succeed(t, dir, "topk", "m.l2s", "--head", model, "--contexts", "T.npy"), "\n"); lines != 1200 {
		t.Errorf("found %d answers, expected 1200", lines)
	}

	for i := range h { // as before the normalisation: of many lengths
		h[i] *= 1 + float32(i/384%7)
	}
	if err := tensorfile.WriteNPY(filepath.Join(dir, "U.npy"), h[:300*384], 300, 384); err != nil {
		t.Fatal(err)
	}
	r = invoke(t, dir, joined(plain, "--contexts", "U.npy", "--out", "u.l2s")...)
	if r.code != 0 || !strings.Contains(r.stderr, "warning: U.npy: the contexts do not look like those that the layer is applied to: after the model's last normalisation") {
		t.Errorf("found exit status %d, standard error:\n%s", r.code, r.stderr)
	}
}
