package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
)

const (
	shared = "../../../../shared"
	gguf   = shared + "/data/llm-65k-gguf/llm-65k.q8_0.gguf"
)

var missing string

func TestMain(m *testing.M) {
	if _, err := os.Stat(gguf); err != nil {
		missing = "found no model " + gguf + " (CONTRIBUTING.md, Data, describes it)"
	} else if folder, err := testlib.Get(shared+"/llama/get", "../../.."); err != nil {
		missing = err.Error()
	} else if err := llamacpp.Load(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if missing != "" {
		fmt.Fprintln(os.Stderr, "openai: all tests are skipped:", missing)
	}
	os.Exit(m.Run())
}

// served is a server under test.
type served struct {
	*openai.Server
	m   *llamacpp.Model
	x   *llamacpp.Head
	url string
	end func() // of the engine
}

func serve(t testing.TB, context_ int, change func(*openai.Options)) *served {
	t.Helper()
	return serveFile(t, gguf, context_, change)
}

// uncached is a change of serve: nothing is kept of finished requests.
func uncached(o *openai.Options) { o.Cache = 0 }

// serveFile serves the model of a file.
func serveFile(t testing.TB, file string, context_ int, change func(*openai.Options)) *served {
	t.Helper()
	return serveHead(t, file, context_, change, llamacpp.HeadOptions{})
}

// serveHead serves it with a head of its own.
func serveHead(t testing.TB, file string, context_ int, change func(*openai.Options), head llamacpp.HeadOptions) *served {
	t.Helper()
	if missing != "" {
		t.Skip(missing)
	}
	o := openai.Options{Name: "lab", Template: "chatml", Parallel: 2, Waiting: 4, Body: 1 << 20, Memory: 16 << 20, Timeout: 20 * time.Second, Cache: -1}
	if change != nil {
		change(&o)
	}
	m, err := llamacpp.Open(file, llamacpp.Options{Context: context_, Sequences: o.Parallel, Forks: openai.Forks, Kept: openai.Kept(o.Parallel), Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.Head(head)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openai.New(m, x, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	end := func() { cancel(); <-done }
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		c.(*net.TCPConn).SetWriteBuffer(4096) // so that a client that does not read is noticed soon
		return openai.WithConn(ctx, c)
	}
	h.Start()
	t.Cleanup(func() { h.CloseClientConnections(); h.Close(); end(); x.Close(); m.Close() })
	return &served{s, m, x, h.URL, end}
}

// post posts a body, and returns the status and the answer.
func (s *served) post(t testing.TB, path, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var x map[string]any
	if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
		t.Fatalf("%s %s: %v", path, body, err)
	}
	if r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: found the type %q", path, r.Header.Get("Content-Type"))
	}
	return r.StatusCode, x
}

func (s *served) ok(t testing.TB, path, body string) map[string]any {
	t.Helper()
	status, x := s.post(t, path, body)
	if status != 200 {
		t.Fatalf("%s %s: found the status %d: %v", path, body, status, x)
	}
	return x
}

// at walks into JSON.
func at(t testing.TB, x any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o, ok := x.(map[string]any)
			if !ok {
				t.Fatalf("%v: found %v, expected an object", path, x)
			}
			if x, ok = o[p]; !ok {
				t.Fatalf("%v: found no %q in %v", path, p, o)
			}
		case int:
			l, ok := x.([]any)
			if !ok || p >= len(l) {
				t.Fatalf("%v: found %v, expected a list above %d", path, x, p)
			}
			x = l[p]
		}
	}
	return x
}

// events posts a body and returns the data of all events.
func (s *served) events(t testing.TB, path, body string) (list []string) {
	t.Helper()
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(r.Body)
		t.Fatalf("%s %s: found the status %d, %q: %s", path, body, r.StatusCode, r.Header.Get("Content-Type"), text)
	}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if line := lines.Text(); line != "" {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				t.Fatalf("found the line %q, expected data", line)
			}
			list = append(list, data)
		}
	}
	return list
}

func parse(t testing.TB, text string) (x map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return x
}

const prompt = "The configuration file has three sections."

func TestAnswers(t *testing.T) {
	s := serve(t, 128, nil)
	for _, path := range []string{"/health", "/v1/models", "/v1/models/lab"} {
		r, err := http.Get(s.url + path)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: found %v, %v", path, r, err)
		}
		r.Body.Close()
	}
	whole := s.ok(t, "/v1/completions", fmt.Sprintf(`{"model":"any","prompt":%q,"max_tokens":12,"temperature":0,"ignore_eos":true}`, prompt))
	text := at(t, whole, "choices", 0, "text").(string)
	if text == "" || at(t, whole, "choices", 0, "finish_reason") != "length" || at(t, whole, "object") != "text_completion" || at(t, whole, "model") != "lab" {
		t.Errorf("found %v", whole)
	}
	read := len(s.m.Tokens(prompt, true))
	if at(t, whole, "usage", "prompt_tokens") != float64(read) || at(t, whole, "usage", "completion_tokens") != 12.0 || at(t, whole, "usage", "total_tokens") != float64(read+12) {
		t.Errorf("found the usage %v, expected %d and 12", at(t, whole, "usage"), read)
	}
	// The same prompt as tokens, and in lists.
	ids, _ := json.Marshal(s.m.Tokens(prompt, true))
	for _, form := range []string{string(ids), "[" + string(ids) + "]", fmt.Sprintf("[%q]", prompt)} {
		x := s.ok(t, "/v1/completions", `{"prompt":`+form+`,"max_tokens":12,"temperature":0,"ignore_eos":true}`)
		if at(t, x, "choices", 0, "text") != text {
			t.Errorf("the prompt %s: found %q, expected %q", form, at(t, x, "choices", 0, "text"), text)
		}
	}
	// A stream has the same text, and its usage.
	events := s.events(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":12,"temperature":0,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, prompt))
	streamed := ""
	for _, e := range events[:len(events)-2] {
		x := parse(t, e)
		streamed += at(t, x, "choices", 0, "text").(string)
		if at(t, x, "usage") != nil {
			t.Errorf("found %s, expected no usage yet", e)
		}
	}
	last := parse(t, events[len(events)-2])
	if streamed != text || events[len(events)-1] != "[DONE]" || at(t, last, "usage", "total_tokens") != float64(read+12) || len(at(t, last, "choices").([]any)) != 0 {
		t.Errorf("found %q, %v, %q, expected %q and the usage", streamed, last, events[len(events)-1], text)
	}
	// A chat is a completion of the text that the template makes of it.
	chat := `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Say "},{"type":"text","text":"yes."}]}],"max_completion_tokens":10,"temperature":0,"ignore_eos":true,"cache_prompt":false`
	x := s.ok(t, "/v1/chat/completions", chat+"}")
	if at(t, x, "object") != "chat.completion" || at(t, x, "choices", 0, "message", "role") != "assistant" {
		t.Errorf("found %v", x)
	}
	templated := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
	y := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":10,"temperature":0,"ignore_eos":true,"cache_prompt":false}`, templated))
	answer := at(t, x, "choices", 0, "message", "content").(string)
	if answer != at(t, y, "choices", 0, "text") {
		t.Errorf("a chat: found %q, expected %q", answer, at(t, y, "choices", 0, "text"))
	}
	// An assistant's message without content, as clients send it with calls of tools, is an empty
	// one.
	empty := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":%s},{"role":"user","content":"b"}],"max_tokens":8,"temperature":0,"ignore_eos":true}`
	if a, b := s.ok(t, "/v1/chat/completions", fmt.Sprintf(empty, "null")), s.ok(t, "/v1/chat/completions", fmt.Sprintf(empty, `""`)); at(t, a, "choices", 0, "message", "content") != at(t, b, "choices", 0, "message", "content") {
		t.Errorf("an assistant's null: found %v, expected %v", a, b)
	}
	streamed = ""
	events = s.events(t, "/v1/chat/completions", chat+`,"stream":true}`)
	for i, e := range events[:len(events)-1] {
		x := parse(t, e)
		delta := at(t, x, "choices", 0, "delta").(map[string]any)
		if i == 0 && delta["role"] != "assistant" || at(t, x, "object") != "chat.completion.chunk" {
			t.Errorf("event %d: found %s", i, e)
		}
		if i == len(events)-2 && (at(t, x, "choices", 0, "finish_reason") != "length" || len(delta) != 0) {
			t.Errorf("the last event: found %s", e)
		}
		part, _ := delta["content"].(string)
		streamed += part
	}
	if streamed != answer || events[len(events)-1] != "[DONE]" {
		t.Errorf("a chat: found %q in a stream, expected %q", streamed, answer)
	}
	// One seed, one text; another seed, another.
	drawn := func(seed string) string {
		return at(t, s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":20,"ignore_eos":true,"cache_prompt":false,"temperature":1.5,"top_k":0,"top_p":1,"min_p":0%s}`, prompt, seed)), "choices", 0, "text").(string)
	}
	if a, b, c, d := drawn(`,"seed":7`), drawn(`,"seed":7`), drawn(`,"seed":8`), drawn(""); a != b || a == c || d == a {
		t.Errorf("found %q and %q of one seed, %q of another, %q of none", a, b, c, d)
	}
	// -1 is no seed, in any form of the number; other negative numbers and 0 are seeds.
	for _, c := range []struct {
		seed string
		same bool
	}{{"-1", false}, {"-1.0", false}, {"-2", true}, {"0", true}, {"9223372036854775807", true}} {
		if a, b := drawn(`,"seed":`+c.seed), drawn(`,"seed":`+c.seed); (a == b) != c.same {
			t.Errorf("seed %s: found %q and %q, expected the same text: %v", c.seed, a, b, c.same)
		}
	}
	// Where the model's own template is missing.
	other := serve(t, 64, func(o *openai.Options) { o.Template = "" })
	if status, x := other.post(t, "/v1/chat/completions", chat+"}"); status != 400 || at(t, x, "error", "code") != "no_chat_template" {
		t.Errorf("no template: found %d, %v", status, x)
	}
}

// The second turn of a chat reads what is new alone, and so do other requests that begin with the same text:
// /v1/score, and a request again. Answers and /metrics tell how much; cache_prompt and deterministic
// leave the cache out.
func TestThePromptCache(t *testing.T) {
	s := serve(t, 512, nil)
	long := strings.Repeat("The first names the servers. ", 12)
	cached := func(x map[string]any) int {
		return int(at(t, x, "usage", "prompt_tokens_details", "cached_tokens").(float64))
	}
	ask := func(messages, rest string) map[string]any {
		return s.ok(t, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}%s],"max_tokens":8,"temperature":0,"ignore_eos":true%s}`, long, messages, rest))
	}
	first := ask("", "")
	read := int(at(t, first, "usage", "prompt_tokens").(float64))
	if cached(first) != 0 {
		t.Errorf("the first turn: found %d cached tokens", cached(first))
	}
	turn := fmt.Sprintf(`,{"role":"assistant","content":%q},{"role":"user","content":"And then?"}`, at(t, first, "choices", 0, "message", "content"))
	second := ask(turn, "")
	if n, all := cached(second), int(at(t, second, "usage", "prompt_tokens").(float64)); n < read || n >= all || at(t, second, "usage", "total_tokens") != float64(all+8) {
		t.Errorf("the second turn: found %d cached tokens of %d, expected the %d of the first and more", n, all, read)
	}
	sum := cached(second)
	for _, c := range []struct {
		rest string
		want int
	}{{"", read - 1}, {`,"cache_prompt":true`, read - 1}, {`,"cache_prompt":false`, 0}, {`,"deterministic":true`, 0}} {
		x := ask("", c.rest)
		if n := cached(x); n != c.want {
			t.Errorf("again%s: found %d cached tokens of %d, expected %d", c.rest, n, read, c.want)
		}
		sum += cached(x)
	}
	events := s.events(t, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true}}`, long))
	if x := parse(t, events[len(events)-2]); cached(x) != read-1 {
		t.Errorf("in a stream: found %d cached tokens, expected %d", cached(x), read-1)
	}
	sum += read - 1
	for i, c := range []struct {
		rest   string
		cached bool
		known  bool // texts of others in the memory move sums
	}{{"", false, false}, {"", true, false}, {`,"deterministic":true`, false, true}} { // another text, without the template
		x := s.ok(t, "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" a"," of the servers"]%s}`, long, c.rest))
		if (cached(x) > 0) != c.cached || (at(t, x, "logprob_error") != nil) != c.known {
			t.Errorf("score %d: found %d cached tokens and the error %v", i+1, cached(x), at(t, x, "logprob_error"))
		}
		sum += cached(x)
	}
	m := s.metrics(t)
	if m["l2s_prompt_cached_tokens_total"] != float64(sum) || m["l2s_cache_sequences"] < 2 || m["l2s_cache_tokens"] < float64(2*read) || m["l2s_cache_bytes"] < m["l2s_cache_tokens"] {
		t.Errorf("found %v, expected %d cached tokens, and what is kept", m, sum)
	}
	if status, x := s.post(t, "/v1/completions", `{"prompt":"a","cache_prompt":1}`); status != 400 || at(t, x, "error", "param") != "cache_prompt" {
		t.Errorf("found %d, %v, expected 400", status, x)
	}
}

func TestStops(t *testing.T) {
	s := serve(t, 128, nil)
	whole := at(t, s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":16,"temperature":0,"ignore_eos":true}`, prompt)), "choices", 0, "text").(string)
	stop := whole[len(whole)/2:][:4]
	if !utf8.ValidString(stop) {
		t.Fatalf("found %q, expected a stop in one piece", stop)
	}
	want := whole[:strings.Index(whole, stop)]
	q, _ := json.Marshal(stop)
	for _, form := range []string{string(q), `["no such text",` + string(q) + `]`} {
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":16,"temperature":0,"ignore_eos":true,"stop":%s,"logprobs":0`, prompt, form)
		x := s.ok(t, "/v1/completions", body+"}")
		if at(t, x, "choices", 0, "text") != want || at(t, x, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%s: found %v, expected %q", form, at(t, x, "choices", 0), want)
		}
		tokens := ""
		for _, piece := range at(t, x, "choices", 0, "logprobs", "tokens").([]any) {
			if piece != "</s>" { // which has no text
				tokens += piece.(string)
			}
		}
		if !strings.HasPrefix(tokens, want) {
			t.Errorf("%s: found the tokens %q, expected the tokens of %q", form, tokens, want)
		}
		streamed := ""
		events := s.events(t, "/v1/completions", body+`,"stream":true}`)
		for _, e := range events[:len(events)-1] {
			streamed += at(t, parse(t, e), "choices", 0, "text").(string)
		}
		if streamed != want {
			t.Errorf("%s: found %q in a stream, expected %q", form, streamed, want)
		}
	}
}

// A stop text that names a special token ends the text at this token, which is no text itself.
func TestStopsThatAreSpecialTokens(t *testing.T) {
	s := serve(t, 128, nil)
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":16,"temperature":0,"ignore_eos":true,"logprobs":0`, prompt)
	x := s.ok(t, "/v1/completions", body+"}")
	text, before := at(t, x, "choices", 0, "text").(string), ""
	special := 0
	for i, token := range at(t, x, "choices", 0, "logprobs", "tokens").([]any) {
		if token != "</s>" {
			before += token.(string)
			continue
		}
		if special++; special == 1 {
			if y := s.ok(t, "/v1/completions", body+`,"stop":["no such text","</s>"]}`); at(t, y, "choices", 0, "text") != before || at(t, y, "choices", 0, "finish_reason") != "stop" || at(t, y, "usage", "completion_tokens") != float64(i+1) {
				t.Errorf("found %v, expected %q, and %d tokens", at(t, y, "choices", 0), before, i+1)
			}
		}
		if before != "" { // with the text before it
			last := before[len(before)-1:]
			stop, _ := json.Marshal(last + "</s>")
			if y := s.ok(t, "/v1/completions", body+`,"stop":`+string(stop)+"}"); at(t, y, "choices", 0, "text") != before[:len(before)-1] || at(t, y, "choices", 0, "finish_reason") != "stop" {
				t.Errorf("%s: found %v, expected %q", stop, at(t, y, "choices", 0), before[:len(before)-1])
			}
			break
		}
	}
	if special == 0 {
		t.Fatalf("found no special token in the text %q, expected one", text)
	}
	// A part of a name is no text.
	if y := s.ok(t, "/v1/completions", body+`,"stop":["/s>"]}`); at(t, y, "choices", 0, "text") != text {
		t.Errorf("found %q, expected %q", at(t, y, "choices", 0, "text"), text)
	}
}

// all returns the distribution after a prompt, by all logits of the head.
func (s *served) all(t testing.TB, m *llamacpp.Model, ids []uint32) []float64 {
	t.Helper()
	m.Clear(0)
	h, err := m.Feed(context.Background(), 0, ids...)
	if err != nil {
		t.Fatal(err)
	}
	all, labels := make([]float64, s.x.Labels()), make([]uint32, s.x.Labels())
	for i := range labels {
		labels[i] = uint32(i)
	}
	if err := s.x.Logits(all, h, labels...); err != nil {
		t.Fatal(err)
	}
	largest, sum := slices.Max(all), 0.0
	for _, v := range all {
		sum += math.Exp(v - largest)
	}
	for i := range all {
		all[i] -= largest + math.Log(sum)
	}
	return all
}

func oracle(t testing.TB) *llamacpp.Model {
	t.Helper()
	m, err := llamacpp.Open(gguf, llamacpp.Options{Context: 256, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// near is the largest difference of log-probabilities of states that llama.cpp computes in batches
// of other sizes.
const near = 0.3

func TestLogProbs(t *testing.T) {
	s := serve(t, 128, nil)
	m := oracle(t)
	ids := m.Tokens(prompt, true)
	x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":5,"temperature":0,"ignore_eos":true,"logprobs":3}`, prompt))
	l := at(t, x, "choices", 0, "logprobs")
	if at(t, l, "logprob_error") != 0.0 {
		t.Errorf("found %v, expected exact log-probabilities", at(t, l, "logprob_error"))
	}
	text, before := at(t, x, "choices", 0, "text").(string), ""
	for i := range 5 {
		all := s.all(t, m, ids)
		best := 0
		for id, p := range all {
			if p > all[best] {
				best = id
			}
		}
		piece, want := at(t, l, "tokens", i).(string), m.Piece(uint32(best))
		adds := want
		if want == "" { // it has a name and no text
			want = m.Name(uint32(best))
		}
		if d := at(t, l, "token_logprobs", i).(float64) - all[best]; math.Abs(d) > near || piece != want {
			t.Errorf("token %d: found %q, %v, expected %q, %v", i, piece, at(t, l, "token_logprobs", i), want, all[best])
		}
		if top := at(t, l, "top_logprobs", i).(map[string]any); len(top) != 3 || top[piece] != at(t, l, "token_logprobs", i) {
			t.Errorf("token %d: found the best %v", i, top)
		}
		if at(t, l, "text_offset", i) != float64(utf8.RuneCountInString(before)) || !strings.HasPrefix(text, before) {
			t.Errorf("token %d: found the offset %v, expected %d", i, at(t, l, "text_offset", i), utf8.RuneCountInString(before))
		}
		before += adds
		ids = append(ids, uint32(best))
	}
	chat := `{"messages":[{"role":"user","content":"Say yes."}],"max_tokens":3,"temperature":0,"ignore_eos":true,"logprobs":true,"top_logprobs":2`
	x = s.ok(t, "/v1/chat/completions", chat+"}")
	content := at(t, x, "choices", 0, "logprobs", "content").([]any)
	joined := ""
	for i, entry := range content {
		joined += at(t, entry, "token").(string)
		if len(at(t, entry, "top_logprobs").([]any)) != 2 || at(t, entry, "top_logprobs", 0, "logprob") != at(t, entry, "logprob") || len(at(t, entry, "bytes").([]any)) != len(at(t, entry, "token").(string)) {
			t.Errorf("token %d: found %v", i, entry)
		}
	}
	if len(content) != 3 || joined != at(t, x, "choices", 0, "message", "content") {
		t.Errorf("found the tokens %q of %q", joined, at(t, x, "choices", 0, "message", "content"))
	}
	n := 0
	for _, e := range s.events(t, "/v1/chat/completions", chat+`,"stream":true}`) {
		if strings.Contains(e, `"content":[{`) {
			n++
		}
	}
	if n != 3 {
		t.Errorf("a stream: found %d events with log-probabilities, expected 3", n)
	}
}

// Tokens that are parts of characters: their offsets are places in the text, their bytes make it,
// and the token that was written is among the best, however unlikely it is.
func TestLogProbsOfPartsOfCharacters(t *testing.T) {
	s := serve(t, 128, nil)
	for _, text := range []string{"é", "€", "😀", "é€"} {
		bytes := s.m.Tokens(text, false)
		if bytes = bytes[1:]; len(bytes) != len(text) { // after the space of a word
			t.Fatalf("%s: found the tokens %v, expected one per byte", text, bytes)
		}
		allowed, _ := json.Marshal(bytes)
		// Penalties make the tokens of the bytes take turns.
		body := fmt.Sprintf(`"max_tokens":24,"temperature":0,"ignore_eos":true,"frequency_penalty":50,"allowed_tokens":%s`, allowed)
		x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"logprobs":2,%s}`, prompt, body))
		l := at(t, x, "choices", 0, "logprobs")
		var written strings.Builder
		for i, token := range at(t, l, "tokens").([]any) {
			whole := 0
			for rest := written.String(); utf8.FullRuneInString(rest); whole++ {
				_, size := utf8.DecodeRuneInString(rest)
				rest = rest[size:]
			}
			if at(t, l, "text_offset", i) != float64(whole) {
				t.Errorf("%s, token %d after %q: found the offset %v, expected %d", text, i, written.String(), at(t, l, "text_offset", i), whole)
			}
			code, ok := strings.CutPrefix(token.(string), `bytes:\x`)
			b, err := strconv.ParseUint(code, 16, 8)
			if !ok || err != nil {
				t.Fatalf("%s, token %d: found %q, expected the code of a byte", text, i, token)
			}
			written.WriteByte(byte(b))
			top := at(t, l, "top_logprobs", i).(map[string]any)
			if n := len(top); n != 2 && n != 3 || top[token.(string)] != at(t, l, "token_logprobs", i) {
				t.Errorf("%s, token %d: found %v, expected the two best and %q with %v", text, i, top, token, at(t, l, "token_logprobs", i))
			}
		}
		content := at(t, x, "choices", 0, "text").(string)
		if found := string([]rune(written.String())); found != content || written.Len() != 24 {
			t.Errorf("%s: found the tokens of %q, expected the text, %q", text, found, content)
		}
		x = s.ok(t, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":2,%s}`, body))
		var all []byte
		for i, entry := range at(t, x, "choices", 0, "logprobs", "content").([]any) {
			list := at(t, entry, "bytes").([]any)
			if want := fmt.Sprintf(`\x%02x`, int(list[0].(float64))); len(list) != 1 || at(t, entry, "token") != want {
				t.Errorf("%s, token %d of a chat: found %v, expected one byte, and its code", text, i, entry)
			}
			all = append(all, byte(list[0].(float64)))
			if !slices.ContainsFunc(at(t, entry, "top_logprobs").([]any), func(x any) bool {
				return reflect.DeepEqual(at(t, x, "bytes"), list) && at(t, x, "logprob") == at(t, entry, "logprob")
			}) {
				t.Errorf("%s, token %d of a chat: found %v, expected the token among the best", text, i, entry)
			}
		}
		if found := string([]rune(string(all))); found != at(t, x, "choices", 0, "message", "content") {
			t.Errorf("%s: found the bytes of %q in a chat, expected %q", text, found, at(t, x, "choices", 0, "message", "content"))
		}
	}
}

// Biases and allowed tokens decide the tokens; among allowed tokens the best of these is written.
func TestBiases(t *testing.T) {
	s := serve(t, 128, nil)
	all := s.all(t, oracle(t), s.m.Tokens(prompt, true))
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, all[b]-all[a])) })
	first := func(rest string) string {
		t.Helper()
		return at(t, s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"ignore_eos":true,"logprobs":0,%s}`, prompt, rest)), "choices", 0, "logprobs", "tokens", 0).(string)
	}
	piece := func(id int) string { return s.m.Piece(uint32(id)) }
	if found := first(fmt.Sprintf(`"temperature":0,"logit_bias":{"%d":-100}`, order[0])); found != piece(order[1]) {
		t.Errorf("the best banned: found %q, expected %q", found, piece(order[1]))
	}
	if found := first(fmt.Sprintf(`"temperature":0,"logit_bias":{"%d":100}`, order[5000])); found != piece(order[5000]) {
		t.Errorf("a bias of 100: found %q, expected %q", found, piece(order[5000]))
	}
	few := fmt.Sprintf("[%d,%d,%d]", order[900], order[700], order[8000])
	if found := first(`"temperature":0,"allowed_tokens":` + few); found != piece(order[700]) {
		t.Errorf("three allowed: found %q, expected %q", found, piece(order[700]))
	}
	bans := map[string]int{}
	for _, id := range order {
		if id != order[900] && id != order[700] {
			bans[strconv.Itoa(id)] = -100
		}
	}
	list, _ := json.Marshal(bans)
	if found := first(`"temperature":0,"logit_bias":` + string(list)); found != piece(order[700]) {
		t.Errorf("all but two banned: found %q, expected %q", found, piece(order[700]))
	}
	seen := map[string]bool{}
	for seed := range 40 {
		found := first(fmt.Sprintf(`"temperature":5,"seed":%d,"top_k":0,"min_p":0,"top_p":1,"allowed_tokens":%s`, seed, few))
		if found != piece(order[900]) && found != piece(order[700]) && found != piece(order[8000]) {
			t.Errorf("a draw among three: found %q", found)
		}
		seen[found] = true
	}
	if len(seen) < 2 {
		t.Errorf("draws among three: found %v alone", seen)
	}
	// A penalty keeps a text from going in circles.
	x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":30,"ignore_eos":true,"temperature":0,"frequency_penalty":100,"repeat_last_n":-1,"logprobs":0}`, prompt))
	written := map[any]int{}
	for _, piece := range at(t, x, "choices", 0, "logprobs", "tokens").([]any) {
		if written[piece]++; written[piece] > 1 {
			t.Errorf("found %q twice, expected each token once under this penalty", piece)
		}
	}
	// Only the rows of allowed tokens are read: a test of the cost is in package l2s. Here the
	// whole chain takes them.
	if status, x := s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"allowed_tokens":[3],"logit_bias":{"3":-100}}`, prompt)); status != 400 || at(t, x, "error", "param") != "logit_bias" {
		t.Errorf("nothing may be written: found %d, %v", status, x)
	}
}

func TestScore(t *testing.T) {
	s := serve(t, 128, nil)
	m := oracle(t)
	x := s.ok(t, "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" The first"," The"," Nothing"," of the servers and"]}`, prompt))
	shares := 0.0
	for i, answer := range []string{" The first", " The", " Nothing", " of the servers and"} {
		ids := m.Tokens(prompt, true)
		all := m.Tokens(prompt+answer, true)
		want := 0.0
		for _, id := range all[len(ids):] {
			want += s.all(t, m, ids)[id]
			ids = append(ids, id)
		}
		if !slices.Equal(ids, all) {
			t.Fatalf("%q: found tokens over the end of the prompt", answer)
		}
		found := at(t, x, "answers", i)
		if d := at(t, found, "logprob").(float64) - want; math.Abs(d) > near*float64(len(all)) {
			t.Errorf("%q: found %v, expected %v", answer, at(t, found, "logprob"), want)
		}
		sum := 0.0
		for _, token := range at(t, found, "tokens").([]any) {
			sum += at(t, token, "logprob").(float64)
		}
		if math.Abs(sum-at(t, found, "logprob").(float64)) > 1e-9 {
			t.Errorf("%q: found %v of tokens, expected their sum", answer, found)
		}
		shares += at(t, found, "probability_among").(float64)
	}
	if math.Abs(shares-1) > 1e-9 {
		t.Errorf("found shares of %v together, expected 1", shares)
	}
	// Tokens that reach over the end of the prompt.
	x = s.ok(t, "/v1/score", `{"prompt":"The config","answers":["uration","ured"]}`)
	for i, whole := range []string{"The configuration", "The configured"} {
		text := ""
		for _, token := range at(t, x, "answers", i, "tokens").([]any) {
			text += at(t, token, "token").(string)
		}
		if !strings.HasSuffix(whole, text) || text == "" {
			t.Errorf("found the tokens %q, expected the end of %q", text, whole)
		}
	}
	x = s.ok(t, "/v1/score", `{"messages":[{"role":"user","content":"Yes or no?"}],"answers":["yes","no"]}`)
	if len(at(t, x, "answers").([]any)) != 2 {
		t.Errorf("found %v", x)
	}
}

// Requests that are wrong have an error of OpenAI's shape that names the field.
// A score counts the tokens of the answers alone, also for a file that adds a token to the end of a
// text, and a prompt that names the token of the beginning has it once.
func TestScoresOfFilesThatAddTokens(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	scores := func(file, prompt string) any {
		t.Helper()
		x := serveFile(t, file, 128, nil).ok(t, "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" two sections."," files"]}`, prompt))
		return at(t, x, "answers")
	}
	adds := func(begin, end bool) string {
		t.Helper()
		file, err := testlib.Bools(t.TempDir(), gguf, map[string]bool{"tokenizer.ggml.add_bos_token": begin, "tokenizer.ggml.add_eos_token": end})
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	both := adds(true, true)
	for name, c := range map[string]struct{ file, prompt, plain string }{
		"the end is added":                  {adds(false, true), prompt, prompt},
		"the beginning is added":            {both, prompt, "<s>" + prompt},
		"the beginning is in the text":      {both, "<s>" + prompt, "<s>" + prompt},
		"the beginning is there twice":      {both, "<s><s>" + prompt, "<s><s>" + prompt},
		"the text ends with the end's name": {both, prompt + "</s>", "<s>" + prompt + "</s>"},
	} {
		if found, want := scores(c.file, c.prompt), scores(gguf, c.plain); !reflect.DeepEqual(found, want) {
			t.Errorf("%s: found %v, expected %v", name, found, want)
		}
	}
}

func TestWrongRequests(t *testing.T) {
	s := serve(t, 64, nil)
	chat := `{"messages":[{"role":"user","content":"a"}]`
	look := `{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"not":{}}}}}}`
	long := strings.Repeat("word ", 200)
	for _, c := range []struct {
		path, body string
		status     int
		param      any
		message    string
	}{
		{"completions", ``, 400, nil, "no JSON object"},
		{"completions", `[]`, 400, nil, "body: found an array, expected an object"},
		{"completions", ` "x"`, 400, nil, "body: found a string, expected an object"},
		{"completions", `1`, 400, nil, "body: found a number, expected an object"},
		{"completions", `true`, 400, nil, "body: found true or false, expected an object"},
		{"completions", `{"prompt":"a","prompt":"b"}`, 400, nil, "prompt: found the field twice"},
		{"completions", `{"PROMPT":"a"}`, 400, "PROMPT", "expected one that it does: prompt?"},
		{"completions", `{"prompt":"a","":1,"":2}`, 400, nil, "\"\": found the field twice"},
		{"completions", `{"prompt":"a","stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`, 400, "stream_options", "include_usage: found the field twice"},
		{"chat/completions", `{"messages":[{"role":"user","content":[ {"type":"text","text":"a","text":"b"} ]}]}`, 400, "messages[0]", "text: found the field twice"},
		{"chat/completions", `{"messages":[ 7 ]}`, 400, "messages[0]", "found 7"},
		{"completions", `{"prompt":"a","messages":[{"role":"user","content":"a"}]}`, 400, "prompt", "found prompt and messages"},
		{"chat/completions", chat + `,"prompt":"a"}`, 400, "prompt", "found prompt and messages"},
		{"completions", "{\"prompt\":\"a\xff\"}", 400, nil, "body: found the byte 0xff at byte 12, which is no UTF-8"},
		{"completions", "{\"prompt\":\"a\", \"x\":\"\xed\xa0\x80\"}", 400, nil, "body: found the byte 0xed at byte 20, which is no UTF-8"},
		{"completions", `{"prompt":"a\ud83d"}`, 400, nil, `body: found \ud83d at byte 12, which is half a surrogate pair`},
		{"completions", `{"prompt":"\uDE00a"}`, 400, nil, `body: found \uDE00 at byte 11, which is half`},
		{"completions", `{"prompt":"\ud83d\ud83d\ude00"}`, 400, nil, `body: found \ud83d at byte 11, which is half`},
		{"completions", `{"prompt":"\ud83d\n"}`, 400, nil, `body: found \ud83d at byte 11, which is half`},
		{"completions", `{"prompt":"\`, 400, nil, "no JSON object"},
		{"completions", `{"prompt":"\u`, 400, nil, "no JSON object"},
		{"completions", `{"prompt":"a","p\u0072ompt":"b"}`, 400, nil, "prompt: found the field twice"},
		{"chat/completions", `{"messages":[{"role":"user","role":"system","content":"a"}]}`, 400, "messages[0]", "role: found the field twice"},
		{"completions", `null`, 400, nil, "found null"},
		{"completions", `{"prompt":"a"} x`, 400, nil, "no JSON object"},
		{"completions", strings.Repeat(`{"a":`, 100_000), 400, nil, "no JSON object"},
		{"completions", `{}`, 400, "prompt", "found none"},
		{"completions", `{"prompt":7}`, 400, "prompt", "found 7"},
		{"completions", `{"prompt":""}`, 400, "prompt", "without tokens"},
		{"completions", `{"prompt":[]}`, 400, "prompt", "empty list"},
		{"completions", `{"prompt":["a","b"]}`, 400, "prompt", "found 2 prompts"},
		{"completions", `{"prompt":[1.5]}`, 400, "prompt", "found [1.5]"},
		{"completions", `{"prompt":[1.0,28.5]}`, 400, "prompt", "found [1.0,28.5]"},
		{"completions", `{"prompt":"a","allowed_tokens":[28.5]}`, 400, "allowed_tokens", "found [28.5]"},
		{"completions", `{"prompt":[1,null]}`, 400, "prompt", "found [1,null]"},
		{"completions", `{"prompt":[[null]]}`, 400, "prompt", "found [null]"},
		{"completions", `{"prompt":"a","stop":["a",null]}`, 400, "stop", `found ["a",null]`},
		{"completions", `{"prompt":"a","allowed_tokens":[null]}`, 400, "allowed_tokens", "found [null]"},
		{"completions", `{"prompt":"a","logit_bias":{"5":null}}`, 400, "logit_bias", `found {"5":null}`},
		{"completions", `{"prompt":[-1]}`, 400, "prompt", "found [-1]"},
		{"completions", `{"prompt":[65536000]}`, 400, "prompt", "found token 65536000"},
		{"completions", `{"prompt":"` + long + `"}`, 400, nil, "expected at most 64"},
		{"completions", `{"prompt":"` + strings.Repeat(long, 20) + `"}`, 400, "prompt", "expected at most 1024"},
		{"completions", `{"prompt":"a","max_tokens":"7"}`, 400, "max_tokens", `found "7", expected an integer`},
		{"completions", `{"prompt":"a","max_tokens":1.5}`, 400, "max_tokens", "expected an integer"},
		{"completions", `{"prompt":"a","max_tokens":0}`, 400, "max_tokens", "found 0, expected an integer, 1 to"},
		{"completions", `{"prompt":"a","max_tokens":1e999}`, 400, "max_tokens", "expected an integer"},
		{"completions", `{"prompt":"a","temperature":"hot"}`, 400, "temperature", `found "hot", expected a number`},
		{"completions", `{"prompt":"a","temperature":-1}`, 400, "temperature", "found -1"},
		{"completions", `{"prompt":"a","temperature":1e999}`, 400, "temperature", "expected a number"},
		{"completions", `{"prompt":"a","top_p":2}`, 400, "top_p", "found 2"},
		{"completions", `{"prompt":"a","top_k":[]}`, 400, "top_k", "expected an integer"},
		{"completions", `{"prompt":"a","min_p":true}`, 400, "min_p", "expected a number"},
		{"completions", `{"prompt":"a","seed":"x"}`, 400, "seed", "expected an integer"},
		{"completions", `{"prompt":"a","seed":""}`, 400, "seed", "expected an integer"},
		{"completions", `{"prompt":"a","seed":1e30}`, 400, "seed", "expected an integer"},
		{"completions", `{"prompt":"a","seed":9223372036854775808}`, 400, "seed", "found 9223372036854775808, expected an integer, -9223372036854775808 to 9223372036854775807"},
		{"completions", `{"prompt":"a","stop":7}`, 400, "stop", "found 7"},
		{"completions", `{"prompt":"a","stop":[1]}`, 400, "stop", "found [1]"},
		{"completions", `{"prompt":"a","stop":""}`, 400, "stop", "0 bytes"},
		{"completions", `{"prompt":"a","stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]}`, 400, "stop", "found 17"},
		{"completions", `{"prompt":"a","n":3}`, 400, "n", "found 3, expected an integer, 1 to 2"},
		{"completions", `{"prompt":"a","n":2,"best_of":3}`, 400, "best_of", "expected n, 2"},
		{"completions", `{"prompt":"a","n":2,"deterministic":true}`, 400, "n", "found 2 with deterministic"},
		{"completions", `{"prompt":"a","logprob_token_ids":[1]}`, 400, "logprob_token_ids", "without logprobs"},
		{"completions", `{"prompt":"a","logprobs":1,"logprob_token_ids":[65536000]}`, 400, "logprob_token_ids", "expected ids below"},
		{"completions", `{"prompt":"a","logprobs":1,"logprob_token_ids":["a"]}`, 400, "logprob_token_ids", "expected a list of ids"},
		{"completions", `{"prompt":"a","logprobs":1,"logprob_token_ids":[1` + strings.Repeat(",2", 128) + `]}`, 400, "logprob_token_ids", "found 129 ids, expected at most 128"},
		{"completions", `{"prompt":"a","best_of":3}`, 400, "best_of", "found 3"},
		{"completions", `{"prompt":"a","logprobs":true}`, 400, "logprobs", "found true"},
		{"completions", `{"prompt":"a","logprobs":50}`, 400, "logprobs", "found 50"},
		{"completions", `{"prompt":"a","presence_penalty":"x"}`, 400, "presence_penalty", "expected a number"},
		{"completions", `{"prompt":"a","frequency_penalty":1e9}`, 400, "frequency_penalty", "found 1e+09"},
		{"completions", `{"prompt":"a","repeat_penalty":0}`, 400, "repeat_penalty", "found 0"},
		{"completions", `{"prompt":"a","logit_bias":[1]}`, 400, "logit_bias", "expected an object"},
		{"completions", `{"prompt":"a","logit_bias":{"x":1}}`, 400, "logit_bias", `found "x"`},
		{"completions", `{"prompt":"a","logit_bias":{"4000000000":1}}`, 400, "logit_bias", "expected ids"},
		{"completions", `{"prompt":"a","logit_bias":{"1":1,"01":2}}`, 400, "logit_bias", "found token 1 twice"},
		{"completions", `{"prompt":"a","logit_bias":{"1":100,"01":-100}}`, 400, "logit_bias", "found token 1 twice"},
		{"completions", `{"prompt":"a","logit_bias":{"1":100,"1":-100}}`, 400, "logit_bias", "found token 1 twice"},
		{"score", `{"prompt":"a","messages":[{"role":"user","content":"a"}],"answers":["b"]}`, 400, "prompt", "found prompt and messages"},
		{"completions", `{"prompt":"a","logit_bias":{"1":1e9}}`, 400, "logit_bias", "expected -100 to 100"},
		{"completions", `{"prompt":"a","logit_bias":{"1":100.5}}`, 400, "logit_bias", "found 100.5 of token 1, expected -100 to 100"},
		{"completions", `{"prompt":"a","logit_bias":{"1":-101}}`, 400, "logit_bias", "found -101 of token 1, expected -100 to 100"},
		{"completions", `{"prompt":"a","allowed_tokens":[]}`, 400, "allowed_tokens", "found none"},
		{"completions", `{"prompt":"a","allowed_tokens":["a"]}`, 400, "allowed_tokens", `found ["a"]`},
		{"completions", `{"prompt":"a","allowed_tokens":[4000000000]}`, 400, "allowed_tokens", "found 4000000000"},
		{"completions", `{"prompt":"a","stream":"yes"}`, 400, "stream", "expected true or false"},
		{"completions", `{"prompt":"a","stream_options":7}`, 400, "stream_options", "expected an object"},
		{"completions", `{"prompt":"a","stream_options":{"include_usage":7}}`, 400, "include_usage", "expected true or false"},
		{"completions", `{"prompt":"a","echo":true}`, 400, "echo", "expected none"},
		{"completions", `{"prompt":"a","suffix":"b"}`, 400, "suffix", "expected none"},
		{"completions", `{"prompt":"a","suffix":" "}`, 400, "suffix", "expected none"},
		{"completions", `{"prompt":"a","tools":[ 1 ]}`, 400, "tools", "found [ 1 ], expected none: only a chat"},
		{"chat/completions", `{}`, 400, "messages", "found 0 messages"},
		{"chat/completions", `{"messages":"a"}`, 400, "messages", "expected a list"},
		{"chat/completions", `{"messages":[7]}`, 400, "messages[0]", "found 7"},
		{"chat/completions", `{"messages":[{"content":"a"}]}`, 400, "messages[0]", "role"},
		{"chat/completions", `{"messages":[{"role":7,"content":"a"}]}`, 400, "messages[0]", "role: found 7"},
		{"chat/completions", `{"messages":[{"role":"user","content":"a"},{"role":"wizard","content":"a"}]}`, 400, "messages[1]", `role: found "wizard", expected system`},
		{"chat/completions", `{"messages":[{"role":"user"}]}`, 400, "messages[0]", "content: found none"},
		{"chat/completions", `{"messages":[{"role":"user","content":{}}]}`, 400, "messages[0]", "content: found {}"},
		{"chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages[0]", `the type "image_url"`},
		{"chat/completions", `{"messages":[{"role":"user","content":"a\u0000b"}]}`, 400, "messages", "NUL"},
		{"chat/completions", chat + `,"response_format":{"type":"xml"}}`, 400, "response_format", `the type "xml"`},
		{"chat/completions", chat + `,"response_format":{"type":"json_schema"}}`, 400, "response_format", "json_schema: found none"},
		{"chat/completions", chat + `,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"properties":{"b":{"oneOf":[]}}}}}}`, 400, "response_format.json_schema.schema", `#/properties/b/oneOf: found the keyword "oneOf"`},
		{"chat/completions", chat + `,"response_format":{"type":"json_schema","json_schema":{"strict":1,"schema":{}}}}`, 400, "response_format", "strict: found 1"},
		{"chat/completions", chat + `,"response_format":{"type":"json_object"},"grammar":"root ::= \"a\""}`, 400, "grammar", "one form of the answer"},
		{"chat/completions", chat + `,"response_format":{"type":"json_object"},"ignore_eos":true}`, 400, "ignore_eos", "expected false"},
		{"completions", `{"prompt":"a","grammar":"root ::= x"}`, 400, "grammar", "line 1: found the rule x, which has no definition"},
		{"completions", `{"prompt":"a","grammar":"root ::= <no-such-token>"}`, 400, "grammar", "llama.cpp does not read"},
		{"completions", `{"prompt":"a","grammar":7}`, 400, "grammar", "found 7, expected a string"},
		{"completions", `{"prompt":"a","grammar":"root ::= \"zq\"","allowed_tokens":[5]}`, 400, "grammar", "found no token that may be written"},
		{"score", `{"prompt":"a","answers":["b","c"],"response_format":{"type":"json_object"}}`, 400, "response_format", "expected none"},
		{"chat/completions", chat + `,"response_format":"text"}`, 400, "response_format", "expected an object"},
		{"chat/completions", chat + `,"tools":[{"type":"function"}]}`, 400, "tools[0].function", "an object with a name"},
		{"chat/completions", chat + `,"tools":[{"type":"web"}]}`, 400, "tools[0].type", `"web"`},
		{"chat/completions", chat + `,"tools":[{"type":"function","function":{"name":"a b"}}]}`, 400, "tools[0].function.name", "without spaces"},
		{"chat/completions", chat + `,"tools":[` + look + `,` + look + `]}`, 400, "tools[1].function.name", "twice"},
		{"chat/completions", chat + `,"tools":[` + look + `],"tool_choice":"must"}`, 400, "tool_choice", `found "must"`},
		{"chat/completions", chat + `,"tools":[` + look + `],"tool_choice":{"type":"function","function":{"name":"other"}}}`, 400, "tool_choice", `found "other"`},
		{"chat/completions", chat + `,"tools":[` + look + `],"tool_choice":{"type":"allowed_tools"}}`, 400, "tool_choice", "expected \"auto\""},
		{"chat/completions", chat + `,"tool_choice":"required"}`, 400, "tool_choice", "without tools"},
		{"chat/completions", chat + `,"tools":[` + strings.Replace(look, `"name"`, `"strict":true,"name"`, 1) + `]}`, 400, "tools[0].function.parameters", "#/properties/at/not"},
		{"chat/completions", chat + `,"tools":[` + look + `],"grammar":"root ::= \"a\""}`, 400, "grammar", "one form of the answer"},
		{"chat/completions", chat + `,"functions":[1]}`, 400, "functions", "expected none"},
		{"chat/completions", chat + `,"top_logprobs":3}`, 400, "top_logprobs", "without logprobs"},
		{"chat/completions", chat + `,"logprobs":1}`, 400, "logprobs", "expected true or false"},
		{"score", `{"answers":["a"]}`, 400, "prompt", "found none"},
		{"score", `{"prompt":"a"}`, 400, "answers", "found 0"},
		{"score", `{"prompt":"a","answers":[""]}`, 400, "answers", "empty string"},
		{"score", `{"prompt":"a","answers":[7]}`, 400, "answers", "found [7]"},
		{"score", `{"prompt":"a","answers":[" b"," c"," b"]}`, 400, "answers", `found " b" and " b", which are the same tokens`},
		{"score", `{"prompt":"a","answers":[" b"," c"],"n":2}`, 400, "n", "found 2"},
		{"score", `{"messages":[{"role":"user","content":"a"}],"answers":[" b"],"tools":[{}]}`, 400, "tools", "expected none"},
		{"score", `{"prompt":"` + long + `","answers":["a"]}`, 400, nil, "expected at most 64"},
		{"score", `{"prompt":"a","answers":["` + long + `"]}`, 400, nil, "expected at most 64"},
		{"nothing", `{}`, 404, nil, "/v1/nothing"},
	} {
		status, x := s.post(t, "/v1/"+c.path, c.body)
		e, _ := x["error"].(map[string]any)
		if message, _ := e["message"].(string); status != c.status || e["param"] != c.param || !strings.Contains(message, c.message) || e["type"] != "invalid_request_error" || len(e) != 4 {
			t.Errorf("%s %.80s: found %d, %v, expected %d, the param %v and %q", c.path, c.body, status, x, c.status, c.param, c.message)
		}
	}
	for path, want := range map[string]int{"/v1/models/other": 404, "/": 404} {
		r, err := http.Get(s.url + path)
		if err != nil || r.StatusCode != want {
			t.Errorf("GET %s: found %v, %v, expected %d", path, r, err, want)
		} else {
			r.Body.Close()
		}
	}
	for _, c := range []struct{ method, path, expected, allow string }{
		{"GET", "/v1/completions", "POST", "POST"}, {"PUT", "/v1/chat/completions", "POST", "POST"}, {"GET", "/v1/score", "POST", "POST"},
		{"POST", "/v1/models", "GET", "GET, HEAD"}, {"DELETE", "/v1/models/lab", "GET", "GET, HEAD"}, {"POST", "/health", "GET", "GET, HEAD"}, {"POST", "/metrics", "GET", "GET, HEAD"},
	} {
		r, err := http.NewRequest(c.method, s.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		want := fmt.Sprintf(`%s: found the method \"%s\", expected %s"`, c.path, c.method, c.expected)
		if answer.StatusCode != 405 || answer.Header.Get("Allow") != c.allow || !strings.Contains(string(text), want) {
			t.Errorf("%s %s: found %d, Allow %q, %s, expected 405, Allow %q and %s", c.method, c.path, answer.StatusCode, answer.Header.Get("Allow"), text, c.allow, want)
		}
	}
	// A score has no use for the fields that say how tokens are written: all that the document has.
	doc, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, names, _ := strings.Cut(string(doc), "## Fields\n\n")
	names, _, _ = strings.Cut(names, "\n\n")
	fields := strings.Split(names, "`")
	for i := 1; i < len(fields); i += 2 {
		name, option, _ := strings.Cut(fields[i], ".")
		value := "true"
		if option != "" {
			value = `{"` + option + `":true}`
		}
		if status, x := s.post(t, "/v1/score", fmt.Sprintf(`{"prompt":"a","answers":[" b"," c"],%q:%s}`, name, value)); status != 400 || at(t, x, "error", "param") != name {
			t.Errorf("a score with %s: found %d, %v, expected 400", name, status, x)
		}
	}
	if len(fields) < 30 {
		t.Errorf("found %d fields in docs/server.md, expected more", len(fields)/2)
	}
	s.ok(t, "/v1/score", `{"model":"m","user":"me","prompt":"a","messages":[],"answers":[" b"," c"],"stream":false,"n":1,"logit_bias":{},"stop":null}`)
	// Names are exact. Nothing is ignored that could change an answer.
	for name, meant := range map[string]string{"MAX_TOKENS": "max_tokens", "max_token": "max_tokens", "temprature": "temperature", "n_predict": "max_tokens",
		"repetition_penalty": "repeat_penalty", "mirostat": "", "guided_regex": "", "gramar": "grammar", "PROMPT": "prompt"} {
		for _, path := range []string{"/v1/completions", "/v1/score"} {
			status, x := s.post(t, path, fmt.Sprintf(`{"prompt":"a",%q:5%s}`, name, map[string]string{"/v1/score": `,"answers":["a","b"]`}[path]))
			message, _ := at(t, x, "error", "message").(string)
			if status != 400 || at(t, x, "error", "param") != name || at(t, x, "error", "code") != "unknown_field" || meant != "" && !strings.HasSuffix(message, ": "+meant+"?") {
				t.Errorf("%s with %q: found %d, %v, expected 400 and %q", path, name, status, x, meant)
			}
		}
		s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":"a",%q:null,"max_tokens":1}`, name+"x"))
	}
	for name, value := range map[string]string{"tool_choice": `"required"`, "function_call": `{"name":"f"}`, "modalities": `["text","audio"]`} {
		if status, x := s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt":"a",%q:%s}`, name, value)); status != 400 || at(t, x, "error", "param") != name {
			t.Errorf("%s: found %d, %v, expected 400", name, status, x)
		}
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":1,"model":"m","user":"me","metadata":{"a":"b"},"store":true,"service_tier":"auto","safety_identifier":"x","prompt_cache_key":"k","prompt_cache_retention":"24h","prediction":{"type":"content","content":"a"},"parallel_tool_calls":false,"reasoning_effort":"low","verbosity":"low","modalities":["text"],"tool_choice":"auto","function_call":"none"}`)
	// Whole pairs, and escapes of a backslash.
	text := at(t, s.ok(t, "/v1/completions", `{"prompt":"😀 \\ud83d","max_tokens":8,"temperature":0,"ignore_eos":true}`), "choices", 0, "text")
	if found := at(t, s.ok(t, "/v1/completions", `{"prompt":"\ud83d\uDE00 \u005cud83d","max_tokens":8,"temperature":0,"ignore_eos":true}`), "choices", 0, "text"); found != text {
		t.Errorf("a prompt in escapes: found %q, expected %q", found, text)
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2,"logit_bias":{"1":-100,"2":100}}`)
	for _, role := range []string{"system", "developer", "user", "assistant", "tool", "function"} {
		s.ok(t, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":%q,"content":"a"}],"max_tokens":1}`, role))
	}
	// One rule for integers: a number with an integral value is one.
	for _, form := range []string{"28", "28.0", "2.8e1", "280e-1"} {
		body := fmt.Sprintf(`{"prompt":[%s],"allowed_tokens":[%[1]s],"max_tokens":%s,"top_k":%[1]s,"temperature":0,"logprobs":0}`, form, strings.ReplaceAll(form, "28", "2"))
		if x := s.ok(t, "/v1/completions", body); at(t, x, "usage", "prompt_tokens") != 1.0 {
			t.Errorf("%s: found %v", body, x)
		}
	}
	// Unknown fields, and null, count as absent.
	for _, rest := range []string{`,"user":"me","metadata":{"a":1},"frobnicate":null,"service_tier":"auto"`, `,"temperature":null,"stop":null,"seed":null,"logprobs":null,"logit_bias":null,"allowed_tokens":null,"stream":null,"max_tokens":null,"n":null,"tools":[],"response_format":null`, `,"max_tokens":3.0,"n":1,"best_of":1,"echo":false,"suffix":"","tools":[ ],"functions": { } ,"top_k":-1,"seed":-5,"top_p":0,"temperature":1e-300`} {
		if !strings.Contains(rest, `"max_tokens"`) {
			rest += `,"max_tokens":2`
		}
		s.ok(t, "/v1/completions", `{"prompt":"a"`+rest+`}`)
	}
	s.ok(t, "/v1/chat/completions", chat+`,"max_tokens":2,"response_format":{"type":"text"},"tool_choice":"none"}`)
	// A body that says that it is compressed.
	packed, _ := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"a","max_tokens":1}`))
	packed.Header.Set("Content-Encoding", "gzip")
	if answer, err := http.DefaultClient.Do(packed); err != nil || answer.StatusCode != 415 {
		t.Errorf("a body in gzip: found %v, %v, expected 415", answer, err)
	} else {
		answer.Body.Close()
	}
	// A page of another site.
	r, _ := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"prompt":"a"}`))
	r.Header.Set("Origin", "https://example.org")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != 403 {
		t.Errorf("a page of another site: found %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
}

// Requests that come on one connection before the answers to others are answered in turn, streams
// among them.
func TestPipelining(t *testing.T) {
	s := serve(t, 64, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 6
	for i := range n {
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":%v,"stream_options":{"include_usage":true}}`, prompt, i+1, i%2 == 0)
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	answers := bufio.NewReader(c)
	for i := range n {
		r, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		want := fmt.Sprintf(`"completion_tokens":%d,`, i+1)
		if err != nil || r.StatusCode != 200 || !strings.Contains(string(text), want) || strings.HasSuffix(string(text), "data: [DONE]\n\n") != (i%2 == 0) {
			t.Errorf("answer %d: found %d, %s, %v, expected %s", i, r.StatusCode, text, err, want)
		}
	}
}

// Concurrent requests get the same texts as each alone, streamed or not. All draw from the same few
// tokens: roundings of llama.cpp in batches of other sizes do not change the choice among these.
func TestRequestsAtOnceAreThoseAlone(t *testing.T) {
	s := serve(t, 64, func(o *openai.Options) { o.Parallel, o.Waiting = 4, 32 })
	var bodies []string
	for i, rest := range []string{
		`"logit_bias":{"300":100}`, `"allowed_tokens":[300]`, `"allowed_tokens":[301],"logprobs":2`, `"logit_bias":{"302":100},"temperature":1,"seed":5,"logprobs":1`,
		`"allowed_tokens":[300,301],"logit_bias":{"301":100},"frequency_penalty":0.1`, `"logit_bias":{"303":90},"presence_penalty":1,"repeat_last_n":5`,
		`"allowed_tokens":[400],"repeat_penalty":2`, `"logit_bias":{"305":100,"306":-100},"top_k":3,"seed":1`,
	} {
		bodies = append(bodies, fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"ignore_eos":true,%s`, strings.Repeat("The file. ", i+1), 6+i, rest))
	}
	text := func(x map[string]any) string { return at(t, x, "choices", 0, "text").(string) }
	var want []string
	for _, body := range bodies {
		want = append(want, text(s.ok(t, "/v1/completions", body+"}")))
		if n := len(want); want[n-1] == "" {
			t.Fatalf("%s: found no text", body)
		}
	}
	var several sync.WaitGroup
	for range 3 {
		for i, body := range bodies {
			several.Go(func() {
				if found := text(s.ok(t, "/v1/completions", body+"}")); found != want[i] {
					t.Errorf("%s: found %q with others, expected %q", body, found, want[i])
				}
			})
			several.Go(func() {
				streamed := ""
				events := s.events(t, "/v1/completions", body+`,"stream":true}`)
				for _, e := range events[:len(events)-1] {
					streamed += text(parse(t, e))
				}
				if streamed != want[i] {
					t.Errorf("%s: found %q in a stream with others, expected %q", body, streamed, want[i])
				}
			})
		}
		several.Wait()
	}
}

// endless returns a request that runs until its context is full.
func endless(stream bool) string {
	return fmt.Sprintf(`{"prompt":%q,"max_tokens":100000,"temperature":0,"stream":%v,"ignore_eos":true}`, prompt, stream)
}

func (s *served) waits(t testing.TB, what string, until func(active, waiting int) bool) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		active, waiting := s.Busy()
		if until(active, waiting) {
			return
		}
		if time.Since(start) > 10*time.Minute {
			t.Fatalf("%s: found %d requests under way and %d waiting", what, active, waiting)
		}
	}
}

func idle(active, waiting int) bool { return active == 0 && waiting == 0 }

func TestClientsThatGoAway(t *testing.T) {
	s := serve(t, 4096, func(o *openai.Options) { o.Parallel, o.Waiting = 1, 2 })
	begin := func(stream bool) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(endless(stream)))
		go func() {
			if answer, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}()
		return cancel
	}
	one := begin(true)
	s.waits(t, "the first", func(active, _ int) bool { return active == 1 })
	two, three := begin(false), begin(true)
	s.waits(t, "two more", func(_, waiting int) bool { return waiting == 2 })
	// No place is free, and no place to wait.
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(endless(false)))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"type":"server_error"`) || !strings.Contains(string(text), "the only place is taken and 2 requests wait already: try again later") {
		t.Errorf("all places taken: found %d, %v, %s", r.StatusCode, r.Header, text)
	}
	two()
	s.waits(t, "one that waits has gone", func(active, waiting int) bool { return active == 1 && waiting == 1 })
	one()
	s.waits(t, "one that writes has gone", func(active, waiting int) bool { return active == 1 && waiting == 0 })
	three()
	s.waits(t, "all have gone", idle)
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
}

// A client that reads nothing loses its connection after the timeout, and its place; nobody waits
// for it.
func TestASlowReader(t *testing.T) {
	s := serve(t, 4096, func(o *openai.Options) { o.Parallel, o.Timeout = 1, 300*time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(4096)
	body := endless(true)
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	s.waits(t, "it has begun", func(active, _ int) bool { return active == 1 || s.metrics(t)["l2s_prompt_tokens_total"] > 0 })
	s.waits(t, "it has lost its place", idle)
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
	text, _ := io.ReadAll(c)
	if n := strings.Count(string(text), "data: "); n == 0 || n > 2000 || strings.Contains(string(text), "[DONE]") {
		t.Errorf("found %d events, the last %q, expected a part of the answer", n, text[max(0, len(text)-100):])
	}
}

func TestBodies(t *testing.T) {
	s := serve(t, 64, func(o *openai.Options) { o.Body, o.Timeout = 1<<20, 10*time.Minute })
	// 100 MB, with a length and without.
	for _, chunked := range []bool{false, true} {
		var body io.Reader = bytes.NewReader(make([]byte, 100<<20))
		if chunked {
			body = io.MultiReader(body)
		}
		r, err := http.Post(s.url+"/v1/completions", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != 413 || !strings.Contains(string(text), "expected at most") {
			t.Errorf("100 MB: found %d, %s", r.StatusCode, text)
		}
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
	// Incomplete bodies: many of them together take less than the memory for all, and end after the
	// timeout.
	s = serve(t, 64, func(o *openai.Options) { o.Body, o.Memory, o.Timeout = 1<<20, 6<<20, 2*time.Second })
	codes, sent := map[int]int{}, 0
	// Where it takes longer than the timeout to send them, all may end by it: then once more.
	for tries := 0; tries < 20 && (codes[408] == 0 || codes[503] == 0); tries++ {
		var held []net.Conn
		for range 8 {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat(" ", 900_000))
			held = append(held, c)
		}
		for _, c := range held {
			c.SetReadDeadline(time.Now().Add(10 * time.Minute))
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			codes[r.StatusCode]++
			sent++
		}
	}
	if codes[408] == 0 || codes[503] == 0 || codes[408]+codes[503] != sent {
		t.Errorf("bodies that do not come whole: found the statuses %v, expected 408 and 503", codes)
	}
	// A body that is too large and does not come is too large.
	huge, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer huge.Close()
	fmt.Fprintf(huge, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999\r\n\r\n{")
	if r, err := http.ReadResponse(bufio.NewReader(huge), nil); err != nil || r.StatusCode != 413 {
		t.Errorf("a length of 10 TB: found %v, %v, expected the status 413", r, err)
	}
	// Bytes that are no chunks are an error at once, not a timeout.
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 400 {
		t.Errorf("chunks that are none: found %v, %v, expected the status 400", r, err)
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
}

// 200 connections at once each get an answer, or the advice to try again; the next request works.
func TestManyConnections(t *testing.T) {
	s := serve(t, 64, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	for range 200 {
		wg.Go(func() {
			r, err := client.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","max_tokens":8}`))
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			mu.Lock()
			codes[r.StatusCode]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if codes[200] < 6 || codes[200]+codes[503] != 200 {
		t.Errorf("found the statuses %v, expected 200 and 503", codes)
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
}

// The end of the engine in the middle of a stream is reported in the stream, and later requests are
// refused.
func TestTheEndInTheMiddleOfAStream(t *testing.T) {
	s := serve(t, 4096, nil)
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"a"}],"temperature":0,"stream":true,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	for range 9 {
		lines.Scan()
	}
	s.Stop()
	if r, err := http.Get(s.url + "/health"); err != nil || r.StatusCode != 503 {
		t.Errorf("health: found %v, %v, expected 503", r, err)
	}
	s.end()
	last := ""
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if !strings.Contains(last, `"error"`) || lines.Err() != nil {
		t.Errorf("found the end %q, %v, expected an error", last, lines.Err())
	}
	if status, _ := s.post(t, "/v1/completions", `{"prompt":"a"}`); status != 503 {
		t.Errorf("after the end: found the status %d, expected 503", status)
	}
}

// Metrics have the text format: each line is a comment or a name with labels and a number, and
// histograms ascend to their count.
func TestMetrics(t *testing.T) {
	s := serve(t, 64, nil)
	s.ok(t, "/v1/completions", `{"prompt":"The","max_tokens":5,"ignore_eos":true}`)
	s.post(t, "/v1/completions", `{}`)
	values := s.metrics(t)
	// The last step is counted after its answers are sent.
	for end := time.Now().Add(5 * time.Minute); values["l2s_written_tokens_total"] < 5 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		values = s.metrics(t)
	}
	read := float64(len(s.m.Tokens("The", true)))
	for name, want := range map[string]float64{"l2s_written_tokens_total": 5, "l2s_exact_tokens_total": 5, "l2s_prompt_tokens_total": read, "l2s_requests_active": 0, "l2s_body_bytes": 0, "l2s_token_seconds_count": 5,
		`l2s_token_seconds_bucket{le="+Inf"}`: 5, `l2s_http_requests_total{handler="completions",code="200"}`: 1, `l2s_http_requests_total{handler="completions",code="400"}`: 1} {
		if found, ok := values[name]; !ok || found != want {
			t.Errorf("%s: found %v, expected %v", name, found, want)
		}
	}
}

// metrics returns the values of /metrics, and checks their form.
func (s *served) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	values, last := map[string]float64{}, 0.0
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			last = 0
			continue
		}
		name, number, ok := strings.Cut(line, " ")
		x, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil {
			t.Fatalf("found the line %q", line)
		}
		if _, twice := values[name]; twice {
			t.Errorf("found %s twice", name)
		}
		values[name] = x
		if strings.Contains(name, "_bucket") {
			if strings.Contains(name, `le="0.00`) {
				last = 0
			}
			if x < last {
				t.Errorf("%s: found %v after %v", name, x, last)
			}
			last = x
		}
	}
	return values
}

// A message that the template leaves out of the prompt is a 400 that names it, and so is a call that
// no template renders. A template's own words reach the client.
func TestMessagesThatTheTemplateLeavesOut(t *testing.T) {
	const calls = `[{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{\"city\":\"Bern\"}"}}]},{"role":"tool","tool_call_id":"c","content":"cold"}]`
	const function = `[{"role":"user","content":"u"},{"role":"assistant","content":null,"function_call":{"name":"look","arguments":"{}"}},{"role":"function","name":"look","content":"cold"}]`
	users := "{% for m in messages %}{% if m.role == 'wizard' or m.content == 'no' %}{{ raise_exception('Only users!') }}{% endif %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
	whole := "{% for m in messages %}{{ m.role ~ (m.content or '') }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}{% endfor %}"
	for name, c := range map[string]struct {
		template, messages, param, message string // none: 200
	}{
		"whole":           {whole, calls, "", ""},
		"a function":      {whole, function, "", ""},
		"a lost system":   {users, `[{"role":"system","content":"s"},{"role":"user","content":"u"}]`, "messages[0].content", `of the role "system"`},
		"its words":       {users, `[{"role":"system","content":"u"},{"role":"user","content":"u u"}]`, "messages[0].content", `of the role "system"`},
		"a lost call":     {"chatml", calls, "messages[1].tool_calls", "a call that"},
		"a lost function": {"chatml", function, "messages[1].function_call", "a call that"},
		"a lost result":   {users, `[{"role":"user","content":"u"},{"role":"tool","content":"cold"}]`, "messages[1].content", `of the role "tool"`},
		"arguments":       {whole, strings.Replace(calls, `{\"city\":\"Bern\"}`, "Bern", 1), "messages[1].tool_calls[0].function.arguments", `found "Bern"`},
		"a refusal":       {users, `[{"role":"user","content":"no"}]`, "messages", "refuses the chat: Only users!"},
		"calls of a user": {whole, `[{"role":"user","content":"u","tool_calls":[{"function":{"name":"f"}}]}]`, "messages[0]", "tool_calls: found"},
		"a name":          {"{% for m in messages %}{{ m.name }}: {{ m.content }}{% endfor %}", `[{"role":"user","name":"Ann","content":"u"}]`, "", ""},
		"no names":        {whole, `[{"role":"user","name":null,"content":"u"},{"role":"assistant","name":"","refusal":null,"content":"u"},{"role":"user","content":"u","refusal":"","tool_call_id":null}]`, "", ""},
		"a lost name":     {whole, `[{"role":"user","name":"Ann","content":"Ann"}]`, "messages[0].name", `found "Ann"`},
		"a lost no":       {whole, `[{"role":"user","content":"u"},{"role":"assistant","content":null,"refusal":"I may not."}]`, "messages[1].refusal", "leaves out of the prompt"},
		"a no of a user":  {whole, `[{"role":"user","content":"u","refusal":"I may not."}]`, "messages[0]", "refusal: found"},
		"a sound":         {whole, `[{"role":"assistant","content":"u","audio":{"id":"a"}}]`, "messages[0]", "audio: found"},
		"another result":  {whole, strings.Replace(calls, `"tool_call_id":"c"`, `"tool_call_id":"d"`, 1), "messages[2].tool_call_id", `found "d"`},
		"an id of a user": {whole, `[{"role":"user","content":"u","tool_call_id":"c"}]`, "messages[0]", "tool_call_id: found"},
		"both":            {whole, `[{"role":"assistant","content":"u","tool_calls":[{"function":{"name":"f"}}],"function_call":{"name":"f"}}]`, "messages[0]", "function_call: found function_call and tool_calls"},
	} {
		s := serve(t, 128, func(o *openai.Options) { o.Template = c.template })
		status, x := s.post(t, "/v1/chat/completions", `{"messages":`+c.messages+`,"max_tokens":1}`)
		switch {
		case c.param == "" && status != 200:
			t.Errorf("%s: found %d, %v", name, status, x)
		case c.param != "" && (status != 400 || at(t, x, "error", "param") != c.param || !strings.Contains(at(t, x, "error", "message").(string), c.message)):
			t.Errorf("%s: found %d, %v, expected a 400 of %s, %q", name, status, x, c.param, c.message)
		}
		if status, _ := s.post(t, "/v1/score", `{"messages":`+c.messages+`,"answers":["a","b"]}`); (status == 200) != (c.param == "") {
			t.Errorf("%s: /v1/score: found %d", name, status)
		}
	}
}
