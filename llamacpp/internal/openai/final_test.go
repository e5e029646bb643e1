package openai_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
	"github.com/learning-to-screen/l2s/preview"
)

// A model that divides its logits by 8, and one whose rows have that, have equal logits: so they have
// equal texts, log-probabilities and scores, bit for bit, with every edit and every truncation.
func TestATwinOfAScaledModel(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	dir := t.TempDir()
	var twins [2]*served
	for i, scale := range []float32{8, 1} {
		path := filepath.Join(dir, fmt.Sprintf("%v.gguf", scale))
		if err := testlib.Granite(gguf, path, scale); err != nil {
			t.Fatal(err)
		}
		twins[i] = serveHead(t, path, 128, nil, llamacpp.HeadOptions{})
		if err := twins[i].m.Check(twins[i].x); err != nil {
			t.Fatal(err)
		}
	}
	if s := twins[0].x.Layer().Info().Scale; s != 0.125 || twins[1].x.Layer().Info().Scale != 1 {
		t.Fatalf("found the scale %v, expected 0.125 of one of the two", s)
	}
	areTwins(t, twins)
}

// So do a model with a soft cap that is so high that it changes no logit, and one without: a cap has
// no other twin among models. Draws without a truncation are left out: they reject candidates by
// intervals, which are wider under such a cap, and so take other random numbers. Package sample
// compares their probabilities with the definition.
func TestATwinOfACappedModel(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	dir := t.TempDir()
	var twins [2]*served
	for i, softCap := range []float32{1 << 33, 0} {
		path := filepath.Join(dir, fmt.Sprintf("%v.gguf", i))
		if err := testlib.Gemma3(gguf, path, softCap); err != nil {
			t.Fatal(err)
		}
		twins[i] = serveHead(t, path, 128, nil, llamacpp.HeadOptions{})
		if c := twins[i].x.Layer().Info().Cap; c != float64(softCap) {
			t.Fatalf("found the cap %v, expected %v", c, softCap)
		}
	}
	areTwins(t, twins)
}

// areTwins compares the answers of two servers to requests with every kind of edit and truncation, and
// with random ones.
func areTwins(t *testing.T, twins [2]*served) {
	t.Helper()
	ids := twins[0].m.Tokens("The file has names. The server", true)
	biases := fmt.Sprintf(`"logit_bias":{"%d":1.5,"%d":-2,"%d":4}`, ids[1], ids[2], ids[3])
	texts := map[string]bool{}
	all := []string{
		`"temperature":0`, `"temperature":0,` + biases, `"temperature":0,"presence_penalty":1,"frequency_penalty":0.5`,
		`"temperature":0,"repeat_penalty":1.5`, ``, `"top_p":0.9`, `"top_k":0,"top_p":0.5`, `"top_k":0,"top_p":1,"min_p":0.2`,
		`"top_k":0,"top_p":1,"min_p":0`, `"temperature":1.7,"top_k":5`, `"top_p":0.9,` + biases,
		`"top_p":0.8,"presence_penalty":0.7,"frequency_penalty":0.3,"repeat_penalty":1.2`, `"temperature":2,"min_p":0.1,"presence_penalty":-0.5,` + biases,
		fmt.Sprintf(`"allowed_tokens":[%d,%d,%d],"temperature":2`, ids[1], ids[2], ids[3]),
	}
	r := rand.New(rand.NewPCG(5, 4))
	for range 6 {
		fields := []string{fmt.Sprintf(`"temperature":%.2f`, max(0, 2*r.Float64()-0.3))}
		for _, f := range []struct {
			name  string
			value any
		}{{"top_k", r.IntN(50)}, {"top_p", 1 - r.Float64()}, {"min_p", r.Float64() / 3}, {"presence_penalty", 2*r.Float64() - 0.5},
			{"frequency_penalty", r.Float64()}, {"repeat_penalty", 0.7 + r.Float64()}, {"repeat_last_n", r.IntN(20)}} {
			if r.IntN(2) == 0 {
				fields = append(fields, fmt.Sprintf("%q:%v", f.name, f.value))
			}
		}
		if list := []string{}; r.IntN(2) == 0 {
			for _, id := range r.Perm(twins[0].x.Labels())[:20] {
				list = append(list, fmt.Sprintf(`"%d":%v`, id, float32(20*r.Float64()-5)))
			}
			fields = append(fields, `"logit_bias":{`+strings.Join(list, ",")+"}")
		}
		all = append(all, strings.Join(fields, ","))
	}
	capped := twins[0].x.Layer().Info().Cap != 0
	for seed, fields := range all {
		if capped && strings.Contains(fields, `"top_p":1,"min_p":0`) && !strings.Contains(fields, `"min_p":0.`) {
			continue
		}
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":8,"ignore_eos":true,"logprobs":3,"seed":%d`, prompt, seed)
		if fields != "" {
			body += "," + fields
		}
		got, want := twins[0].ok(t, "/v1/completions", body+"}"), twins[1].ok(t, "/v1/completions", body+"}")
		if !reflect.DeepEqual(got["choices"], want["choices"]) {
			t.Errorf("%s, seed %d: found %v, expected %v", fields, seed, got["choices"], want["choices"])
		}
		texts[at(t, want, "choices", 0, "text").(string)] = true
	}
	if len(texts) < 10 {
		t.Errorf("found %d texts, expected more: seeds and fields make no difference", len(texts))
	}
	body := fmt.Sprintf(`{"prompt":%q,"answers":[" The first"," The"," Nothing"," of the servers and"]}`, prompt)
	if got, want := twins[0].ok(t, "/v1/score", body), twins[1].ok(t, "/v1/score", body); !reflect.DeepEqual(got["answers"], want["answers"]) {
		t.Errorf("found the scores %v, expected %v", got["answers"], want["answers"])
	}
}

// By a preview too, and the error of its log-probabilities is told for the model's logits.
func TestATwinOfAScaledModelByAPreview(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	dir := t.TempDir()
	var twins [2]*served
	for i, scale := range []float32{8, 1} {
		path := filepath.Join(dir, fmt.Sprintf("%v.gguf", scale))
		if err := testlib.Granite(gguf, path, scale); err != nil {
			t.Fatal(err)
		}
		x, err := llamacpp.OpenHead(path, llamacpp.HeadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		states := statesOf(t, path)
		m, err := preview.Make(context.Background(), x.Layer(), l2s.Float32(states, x.Layer().Dim()), preview.Options{Coordinates: 128, Precision1: 0.9, PrecisionK: 0.9})
		x.Close()
		if err != nil {
			t.Fatal(err)
		}
		twins[i] = serveHead(t, path, 128, uncached, llamacpp.HeadOptions{Index: m})
	}
	for _, fields := range []string{`"temperature":0,"presence_penalty":1`, `"top_p":0.9`, `"top_k":20,"min_p":0.1,"frequency_penalty":0.5`} {
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":8,"ignore_eos":true,"logprobs":0,"seed":1,%s}`, prompt, fields)
		got, want := twins[0].ok(t, "/v1/completions", body), twins[1].ok(t, "/v1/completions", body)
		if a, b := at(t, got, "choices", 0, "text"), at(t, want, "choices", 0, "text"); a != b {
			t.Errorf("%s: found %q, expected %q", fields, a, b)
		}
		l, of := at(t, got, "choices", 0, "logprobs"), at(t, want, "choices", 0, "logprobs")
		off := at(t, of, "logprob_error").(float64)
		for i, p := range at(t, of, "token_logprobs").([]any) {
			if d := math.Abs(at(t, l, "token_logprobs", i).(float64) - p.(float64)); d > 0.1*off {
				t.Errorf("%s, token %d: found the log-probability %v, expected %v", fields, i, at(t, l, "token_logprobs", i), p)
			}
		}
		if e := at(t, l, "logprob_error").(float64); !(off > 0 && math.Abs(e-off) <= 0.1*off) {
			t.Errorf("%s: found the error %v, expected about that of the twin, %v", fields, e, off)
		}
	}
}

// statesOf returns the states after many tokens of a text.
func statesOf(t *testing.T, path string) (states []float32) {
	t.Helper()
	m, err := llamacpp.Open(path, llamacpp.Options{Context: 512, States: 512, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := m.Tokens(strings.Repeat("The configuration file names the servers and their ports, and says which of them may be restarted after a change. ", 40), true)
	for i := range 6 {
		m.Clear(0)
		var tokens []llamacpp.Token
		for j := range 300 {
			tokens = append(tokens, llamacpp.Token{ID: ids[(i*37+j*(i+1))%len(ids)], State: true})
		}
		found, err := m.Decode(context.Background(), tokens...)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, found...)
	}
	return states
}

// A model with a soft cap draws, and its edits are of capped logits: a bias decides if it is more than
// the distance of the final logits, and not if it is less.
func TestAModelWithASoftCap(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	path := filepath.Join(t.TempDir(), "capped.gguf")
	if err := testlib.Gemma2(gguf, path, 3, 4096); err != nil {
		t.Fatal(err)
	}
	s := serveHead(t, path, 128, func(o *openai.Options) { o.Template, o.Cache = "", 0 }, llamacpp.HeadOptions{})
	if s.x.Layer().Info().Cap != 3 {
		t.Fatalf("found the cap %v, expected 3", s.x.Layer().Info().Cap)
	}
	if err := s.m.Check(s.x); err != nil { // by llama.cpp's own logits, which have the cap
		t.Fatal(err)
	}
	m, err := llamacpp.Open(path, llamacpp.Options{Context: 256, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	all := s.all(t, m, m.Tokens(prompt, true))
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, all[b]-all[a])) })
	first := func(rest string) (string, float64) {
		t.Helper()
		x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"ignore_eos":true,"logprobs":0%s}`, prompt, rest))
		if e := at(t, x, "choices", 0, "logprobs", "logprob_error"); e != 0.0 {
			t.Errorf("%s: found the error %v of log-probabilities, expected 0", rest, e)
		}
		return at(t, x, "choices", 0, "logprobs", "tokens", 0).(string), at(t, x, "choices", 0, "logprobs", "token_logprobs", 0).(float64)
	}
	piece := func(id int) string { return s.m.Piece(uint32(id)) }
	best, far := order[0], order[len(order)/2]
	distance := all[best] - all[far]
	if distance < 1 {
		t.Fatalf("found a distance of %v of final logits, expected more", distance)
	}
	for _, c := range []struct {
		rest string
		want int
	}{
		{`,"temperature":0`, best},
		{fmt.Sprintf(`,"temperature":0,"logit_bias":{"%d":%v}`, far, distance+0.3), far},
		{fmt.Sprintf(`,"temperature":0,"logit_bias":{"%d":%v}`, far, distance-0.3), best},
		{`,"top_k":1`, best},
		{`,"top_k":0,"top_p":0`, best},
		{fmt.Sprintf(`,"top_k":1,"logit_bias":{"%d":%v}`, far, distance+0.3), far},
	} {
		found, p := first(c.rest)
		if named := piece(c.want); named != "" && found != named || math.Abs(p-all[c.want]) > near { // a token without text has another name
			t.Errorf("%s: found %q with the log-probability %v, expected %q with %v", c.rest, found, p, piece(c.want), all[c.want])
		}
	}
	// Draws among five tokens have the probabilities of the final logits, and of a bias after these.
	ids := []int{order[0], order[5], order[500], order[5000], order[50000]}
	const bias, draws = 1.5, 250
	weights, sum := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		weights[i] = math.Exp(all[id])
		if i == 3 {
			weights[i] *= math.Exp(bias)
		}
		sum += weights[i]
	}
	counts := map[string]int{}
	list := strings.ReplaceAll(fmt.Sprint(ids), " ", ",")
	for seed := range draws {
		x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"ignore_eos":true,"seed":%d,"top_k":0,"top_p":1,"min_p":0,"temperature":1,"allowed_tokens":%s,"logit_bias":{"%d":%v}}`, prompt, seed, list, ids[3], bias))
		counts[at(t, x, "choices", 0, "text").(string)]++
	}
	chi := 0.0
	for i, id := range ids {
		want := draws * weights[i] / sum
		chi += (float64(counts[piece(id)]) - want) * (float64(counts[piece(id)]) - want) / want
	}
	if chi > 18.5 { // 4 degrees of freedom: 1 in 1,000, and the seeds are fixed
		t.Errorf("found %v, chi-square %v, expected in proportion to %v", counts, chi, weights)
	}
	for seed := range 3 { // no temperature is named
		s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":8,"seed":%d}`, prompt, seed))
	}
	s.ok(t, "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" The first"," The"]}`, prompt))
}
