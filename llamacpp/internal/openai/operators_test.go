package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

// do sends a request with headers, in pairs, and returns the answer with its text.
func (s *served) do(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// n answers have one prompt, which is read and counted once, their own indexes, and the texts of their
// seeds: the first is that of a request for one. A stream has the same texts, each with its end.
func TestSeveralChoices(t *testing.T) {
	s := serve(t, 128, func(o *openai.Options) { o.Parallel = 3 })
	ask := func(n, seed int, rest string) string {
		return fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"ignore_eos":true,"temperature":3,"top_k":0,"top_p":1,"min_p":0,"cache_prompt":false,"n":%d,"seed":%d%s}`, prompt, n, seed, rest)
	}
	text := func(x map[string]any, i int) string { return at(t, x, "choices", i, "text").(string) }
	var want []string
	for i := range 3 {
		want = append(want, text(s.ok(t, "/v1/completions", ask(1, 7+i, "")), 0))
	}
	read := len(s.m.Tokens(prompt, true))
	// A step counts its tokens at its end, which may be after an answer.
	counted := func(least int) (n float64) {
		for end := time.Now().Add(time.Minute); n < float64(least) && time.Now().Before(end); time.Sleep(time.Millisecond) {
			n = s.metrics(t)["l2s_prompt_tokens_total"]
		}
		return n
	}
	before := counted(3 * read)
	x := s.ok(t, "/v1/completions", ask(3, 7, `,"logprobs":1`))
	if n := len(at(t, x, "choices").([]any)); n != 3 {
		t.Fatalf("found %d choices, expected 3", n)
	}
	for i := range 3 {
		if text(x, i) != want[i] || at(t, x, "choices", i, "index") != float64(i) || len(at(t, x, "choices", i, "logprobs", "tokens").([]any)) != 1 {
			t.Errorf("choice %d: found %v, expected %q", i, at(t, x, "choices", i), want[i])
		}
	}
	if want[0] == want[1] && want[1] == want[2] {
		t.Errorf("found the text %q of all seeds", want[0])
	}
	if u := at(t, x, "usage"); at(t, u, "prompt_tokens") != float64(read) || at(t, u, "completion_tokens") != 3.0 || at(t, u, "total_tokens") != float64(read+3) {
		t.Errorf("found the usage %v, expected a prompt of %d tokens once, and 3", u, read)
	}
	if n := counted(4*read) - before; n != float64(read) {
		t.Errorf("found %v tokens read for three choices, expected %d", n, read)
	}
	for _, chat := range []bool{false, true} {
		path, body := "/v1/completions", ask(3, 7, `,"stream":true,"stream_options":{"include_usage":true}`)
		if chat {
			path, body = "/v1/chat/completions", `{"messages":[{"role":"user","content":"Say yes."}],"max_tokens":5,"ignore_eos":true,"temperature":2,"n":3,"stream":true,"stream_options":{"include_usage":true}}`
		}
		events := s.events(t, path, body)
		texts, ends, roles := make([]string, 3), make([]int, 3), 0
		for _, e := range events[:len(events)-2] {
			x := parse(t, e)
			i := int(at(t, x, "choices", 0, "index").(float64))
			if chat {
				delta := at(t, x, "choices", 0, "delta").(map[string]any)
				part, _ := delta["content"].(string)
				texts[i] += part
				if delta["role"] != nil {
					roles++
				}
			} else {
				texts[i] += text(x, 0)
			}
			if at(t, x, "choices", 0, "finish_reason") != nil {
				ends[i]++
			} else if ends[i] > 0 {
				t.Errorf("found %s after the end of choice %d", e, i)
			}
		}
		if !chat && !slices.Equal(texts, want) || slices.Contains(texts, "") || !slices.Equal(ends, []int{1, 1, 1}) || chat && roles != 3 {
			t.Errorf("a stream, chat %v: found %q with %v ends and %d roles, expected %q and an end each", chat, texts, ends, roles, want)
		}
		last := parse(t, events[len(events)-2])
		if n := map[bool]float64{false: 3, true: 15}[chat]; at(t, last, "usage", "completion_tokens") != n || at(t, last, "timings", "predicted_n") != n || events[len(events)-1] != "[DONE]" {
			t.Errorf("a stream, chat %v: found the end %v", chat, last)
		}
	}
	s.ok(t, "/v1/completions", ask(2, 7, `,"best_of":2`))
}

// Choices share the places with other requests: more than there are wait for each other, each gets
// its answers, and clients that vanish leave all.
func TestChoicesAmongOthers(t *testing.T) {
	s := serve(t, 256, func(o *openai.Options) { o.Parallel, o.Waiting = 3, 12 })
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			n := 1 + i%3
			body := fmt.Sprintf(`{"prompt":%q,"max_tokens":12,"ignore_eos":true,"n":%d}`, prompt[:10+i], n)
			if status, x := s.post(t, "/v1/completions", body); status != 200 || len(at(t, x, "choices").([]any)) != n || at(t, x, "usage", "completion_tokens") != float64(12*n) {
				t.Errorf("%s: found %d, %v", body, status, x)
			}
		})
	}
	wg.Wait()
	c := s.dial(t, "1.1", "/v1/completions", `{"prompt":"a","max_tokens":250,"ignore_eos":true,"n":3,"stream":true}`, "")
	s.waits(t, "three under way", func(active, _ int) bool { return active == 3 })
	c.Close()
	s.waits(t, "all gone", idle)
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2,"n":3}`)
}

// Named tokens come in place of the best ones, with the log-probabilities that these have among all, by
// their texts or, as vLLM has it, by ids.
func TestLogProbsOfNamedTokens(t *testing.T) {
	s := serve(t, 128, nil)
	all := s.all(t, oracle(t), s.m.Tokens(prompt, true))
	best := 0
	for id, p := range all {
		if p > all[best] {
			best = id
		}
	}
	ids := []int{900, 40_000, 12_345}
	body := `"max_tokens":1,"temperature":0,"ignore_eos":true,"cache_prompt":false,"logprob_token_ids":[900,40000,12345,900],"return_tokens_as_token_ids":%v`
	x := s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"logprobs":5,`+body+`}`, prompt, true))
	top := at(t, x, "choices", 0, "logprobs", "top_logprobs", 0).(map[string]any)
	if name := fmt.Sprintf("token_id:%d", best); at(t, x, "choices", 0, "logprobs", "tokens", 0) != name || len(top) != 4 || top[name] != at(t, x, "choices", 0, "logprobs", "token_logprobs", 0) {
		t.Errorf("found %v, expected the three named tokens and the written one, %d", top, best)
	}
	for _, id := range ids {
		if p, _ := top[fmt.Sprintf("token_id:%d", id)].(float64); math.Abs(p-all[id]) > near {
			t.Errorf("token %d: found %v, expected %v", id, p, all[id])
		}
	}
	top = at(t, s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"logprobs":0,`+body+`}`, prompt, false)), "choices", 0, "logprobs", "top_logprobs", 0).(map[string]any)
	for _, id := range ids {
		if p, _ := top[s.m.Piece(uint32(id))].(float64); math.Abs(p-all[id]) > near {
			t.Errorf("token %d, %q: found %v, expected %v", id, s.m.Piece(uint32(id)), p, all[id])
		}
	}
	for _, byID := range []bool{false, true} {
		x = s.ok(t, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"logprobs":true,`+body+`}`, byID))
		list := at(t, x, "choices", 0, "logprobs", "content", 0, "top_logprobs").([]any)
		if len(list) < 3 {
			t.Fatalf("a chat: found %v, expected the named tokens", list)
		}
		for i, id := range ids {
			name := s.m.Piece(uint32(id))
			if byID {
				name = fmt.Sprintf("token_id:%d", id)
			}
			if at(t, list[i], "token") != name || string(bytesOf(at(t, list[i], "bytes"))) != s.m.Piece(uint32(id)) {
				t.Errorf("a chat, token %d: found %v, expected %q", id, list[i], name)
			}
		}
	}
}

func bytesOf(list any) (b []byte) {
	l, _ := list.([]any)
	for _, x := range l {
		b = append(b, byte(x.(float64)))
	}
	return b
}

// Answers have their timings by llama-server's names, in a stream in the last event; they agree with
// the usage, and with each other. /metrics has the parts of the time apart.
func TestTimings(t *testing.T) {
	s := serve(t, 256, nil)
	long := strings.Repeat(prompt+" ", 4)
	read := len(s.m.Tokens(long, true))
	check := func(name string, x any, cached, written int) {
		t.Helper()
		of := at(t, x, "timings").(map[string]any)
		get := func(name string) float64 {
			v, ok := of[name].(float64)
			if !ok || v < 0 {
				t.Errorf("found %v of %s, expected a number", of[name], name)
			}
			return v
		}
		if get("cache_n") != float64(cached) || get("prompt_n") != float64(read-cached) || get("predicted_n") != float64(written) || get("exact_n") != float64(written) {
			t.Errorf("%s: found %v, expected %d cached tokens of %d, and %d written", name, of, cached, read, written)
		}
		for _, part := range []string{"prompt", "predicted"} {
			n, ms := get(part+"_n"), get(part+"_ms")
			if ms <= 0 || math.Abs(get(part+"_per_token_ms")*n/ms-1) > 0.01 || math.Abs(get(part+"_per_second")*ms/1e3/n-1) > 0.01 {
				t.Errorf("%s: found %v, expected times that agree", name, of)
			}
		}
		if sum := get("model_ms") + get("head_ms"); sum > get("predicted_ms")*1.01+1 {
			t.Errorf("%s: found %v ms of the model and the head, expected at most the %v of all", name, sum, get("predicted_ms"))
		}
		get("queue_ms")
	}
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":9,"temperature":0,"ignore_eos":true`, long)
	check("whole", s.ok(t, "/v1/completions", body+"}"), 0, 9)
	check("again", s.ok(t, "/v1/completions", body+"}"), read-1, 9)
	events := s.events(t, "/v1/completions", body+`,"stream":true}`)
	check("a stream", parse(t, events[len(events)-2]), read-1, 9)
	for _, e := range events[:len(events)-2] {
		if strings.Contains(e, "timings") {
			t.Errorf("found timings in %s, expected them in the last event", e)
		}
	}
	events = s.events(t, "/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`)
	check("a stream with usage", parse(t, events[len(events)-2]), read-1, 9)
	s.waits(t, "the end", idle)
	m := s.metrics(t)
	if m["l2s_prompt_seconds_total"] <= 0 || m["l2s_model_seconds_total"] <= 0 || m["l2s_head_seconds_total"] <= 0 {
		t.Errorf("found %v, expected seconds of prompts, of the model and of the head", m)
	}
}

// The log has a line for each request, with its id, its path and its numbers, and no text of a client,
// whatever the client sends. Probes that are answered well are not of its level.
func TestTheLog(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	s := serve(t, 256, func(o *openai.Options) {
		o.Keys = []string{"secret-key"}
		o.Log = slog.New(slog.NewJSONHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(p)
		}), nil))
	})
	auth := []string{"Authorization", "Bearer secret-key"}
	const secret = "xyzzy"
	chat := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":6,"ignore_eos":true,"temperature":0,"user":%[1]q,"stop":[%[1]q],"n":2%%s}`, secret)
	r, text := s.do(t, "POST", "/v1/chat/completions", fmt.Sprintf(chat, ""), auth...)
	var x struct{ ID string }
	if json.Unmarshal([]byte(text), &x) != nil || r.StatusCode != 200 || x.ID != "chatcmpl-"+r.Header.Get("X-Request-Id") {
		t.Errorf("found the id %q and %q in the header", x.ID, r.Header.Get("X-Request-Id"))
	}
	s.do(t, "POST", "/v1/chat/completions", fmt.Sprintf(chat, `,"stream":true`), auth...)
	s.do(t, "POST", "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":["a","b"]}`, secret), auth...)
	s.do(t, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,%[1]q:1,"max_tokens":0}`, secret), auth...)
	s.do(t, "GET", "/"+secret+"?"+secret, "", auth...)
	s.do(t, "GET", "/v1/models/"+secret, "", auth...)
	s.do(t, "POST", "/v1/completions", `{"prompt":"a"}`, "Authorization", "Bearer "+secret)
	s.do(t, "GET", "/health", "")
	s.do(t, "GET", "/metrics", "", auth...)
	call := `{"messages":[{"role":"user","content":"a"}],"max_tokens":300,"temperature":0,"parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"none","parameters":{"type":"object","properties":{"a":{"enum":[1]}},"required":["a"],"additionalProperties":false}}}],"tool_choice":"required","stream":%v}`
	s.do(t, "POST", "/v1/chat/completions", fmt.Sprintf(call, false), auth...)
	s.do(t, "POST", "/v1/chat/completions", fmt.Sprintf(call, true), auth...)
	c := s.dial(t, "1.1", "/v1/completions", `{"prompt":"a"`, "")
	c.Close()
	http.DefaultClient.CloseIdleConnections()
	want := []struct {
		path   string
		status float64
		text   bool
	}{{"/v1/chat/completions", 200, true}, {"/v1/chat/completions", 200, true}, {"/v1/score", 200, true}, {"/v1/completions", 400, false}, {"other", 404, false}, {"/v1/models/{name...}", 404, false}, {"/v1/completions", 401, false},
		{"/v1/chat/completions", 200, true}, {"/v1/chat/completions", 200, true}}
	s.waits(t, "all lines", func(int, int) bool { // a line comes after its answer
		mu.Lock()
		defer mu.Unlock()
		return bytes.Count(out.Bytes(), []byte("\n")) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, w := range want {
		x := parse(t, lines[i])
		if x["path"] != w.path || x["status"] != w.status || x["id"] == "" || x["msg"] != "request" {
			t.Errorf("line %d: found %s, expected %s with %v", i, lines[i], w.path, w.status)
		}
		for _, name := range []string{"prompt_tokens", "cached_tokens", "predicted_tokens", "exact_tokens", "queue_ms", "prompt_ms", "head_ms", "model_ms"} {
			if v, ok := x[name].(float64); ok != w.text || v < 0 {
				t.Errorf("line %d: found %v of %s in %s", i, x[name], name, lines[i])
			}
		}
	}
	if x := parse(t, lines[1]); x["stream"] != true || x["choices"] != 2.0 || x["predicted_tokens"] != 12.0 || x["finish"] != "length" {
		t.Errorf("found %v, expected a stream of two choices of 6 tokens", x)
	}
	for _, line := range lines[7:9] {
		if x := parse(t, line); x["finish"] != "tool_calls" {
			t.Errorf("found %s, expected the end of a call", line)
		}
	}
	for _, no := range []string{secret, "secret-key", "/health", "/metrics"} {
		if strings.Contains(out.String(), no) {
			t.Errorf("found %q in the log:\n%s", no, out.String())
		}
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A server with keys answers those who have one, by either header, and everybody about its health.
func TestKeys(t *testing.T) {
	s := serve(t, 64, func(o *openai.Options) { o.Keys = []string{"one", "two words"} })
	for _, c := range []struct {
		path    string
		headers []string
		want    int
	}{
		{"/v1/models", nil, 401}, {"/metrics", nil, 401}, {"/nothing", nil, 401}, {"/health", nil, 200}, {"/health", []string{"Authorization", "Bearer no"}, 200},
		{"/v1/models", []string{"Authorization", "Bearer one"}, 200}, {"/v1/models", []string{"Authorization", "bearer two words"}, 200},
		{"/metrics", []string{"Authorization", "Bearer one"}, 200}, {"/v1/models", []string{"X-Api-Key", "one"}, 200},
		{"/v1/models", []string{"Authorization", "Bearer on"}, 401}, {"/v1/models", []string{"Authorization", "Bearer onee"}, 401}, {"/v1/models", []string{"Authorization", "Bearer "}, 401},
		{"/v1/models", []string{"Authorization", "Basic one"}, 401}, {"/v1/models", []string{"Authorization", "one"}, 401}, {"/v1/models", []string{"X-Api-Key", ""}, 401},
		{"/v1/models", []string{"Authorization", "Bearer \xff"}, 401},
	} {
		r, text := s.do(t, "GET", c.path, "", c.headers...)
		if r.StatusCode != c.want || c.want == 401 && (r.Header.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(text, `"code":"invalid_api_key"`) || !strings.Contains(text, `"type":"invalid_request_error"`)) {
			t.Errorf("%s with %q: found %d, %v, %s, expected %d", c.path, c.headers, r.StatusCode, r.Header, text, c.want)
		}
	}
	if r, _ := s.do(t, "POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`); r.StatusCode != 401 {
		t.Errorf("found %d without a key, expected 401", r.StatusCode)
	}
}

// Pages of the origins that may ask get answers that their browser lets them read; the browser's own
// question before needs no key. Other pages get none.
func TestPagesOfOtherOrigins(t *testing.T) {
	const page, other = "https://app.example", "https://other.example"
	s := serve(t, 64, func(o *openai.Options) { o.Origins, o.Keys, o.Local = []string{page}, []string{"key"}, true })
	cross := func(origin string) []string {
		return []string{"Origin", origin, "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer key"}
	}
	question := func(s *served, origin string) *http.Response {
		r, _ := s.do(t, "OPTIONS", "/v1/chat/completions", "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
		return r
	}
	r := question(s, page)
	if r.StatusCode != 204 || r.Header.Get("Access-Control-Allow-Origin") != page || !strings.Contains(r.Header.Get("Access-Control-Allow-Headers"), "authorization") || r.Header.Get("Access-Control-Allow-Methods") != "POST" {
		t.Errorf("the question of a browser: found %d, %v", r.StatusCode, r.Header)
	}
	if r := question(s, other); r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page: found %v, expected no leave", r.Header)
	}
	r, text := s.do(t, "POST", "/v1/completions", `{"prompt":"a","max_tokens":1,"frobnicate":1}`, cross(page)...)
	if r.StatusCode != 200 || r.Header.Get("Access-Control-Allow-Origin") != page || !strings.Contains(strings.ToLower(r.Header.Get("Access-Control-Expose-Headers")), "x-l2s-ignored") || !slices.Contains(r.Header.Values("Vary"), "Origin") {
		t.Errorf("a page that may ask: found %d, %v, %s", r.StatusCode, r.Header, text)
	}
	if r, _ := s.do(t, "POST", "/v1/completions", `{"prompt":"a"}`, cross(other)...); r.StatusCode != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page: found %d, %v, expected 403", r.StatusCode, r.Header)
	}
	if r, _ := s.do(t, "POST", "/v1/completions", `{"prompt":"a"}`, "Origin", page, "Sec-Fetch-Site", "cross-site"); r.StatusCode != 401 || r.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("without a key: found %d, %v, expected a 401 that the page can read", r.StatusCode, r.Header)
	}
	all := serve(t, 64, func(o *openai.Options) { o.Origins = []string{"*"} })
	if r := question(all, other); r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("any page: found %v", r.Header)
	}
	if r, _ := all.do(t, "POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`, cross(other)...); r.StatusCode != 200 || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("any page: found %d, %v", r.StatusCode, r.Header)
	}
	for origin, good := range map[string]bool{"*": true, page: true, "http://localhost:3000": true, "": false, "app.example": false, "https://*.example": false, page + "/": false, "https://App.example": false} {
		if err := openai.CheckOrigin(origin); (err == nil) != good {
			t.Errorf("%q: found %v", origin, err)
		}
	}
}

// Fields that nothing reads are named in a header, also of a stream and of a score, and with Strict they are
// refused. Values with which a field of another server changes nothing are such fields.
func TestFieldsThatNothingReads(t *testing.T) {
	s, strict := serve(t, 64, nil), serve(t, 64, func(o *openai.Options) { o.Strict = true })
	many := `"x00":0`
	for i := 1; i < 30; i++ {
		many += fmt.Sprintf(`,"x%02d":0`, i)
	}
	for fields, want := range map[string]string{
		`"frobnicate":1,"request_id":"a"`:                                             "frobnicate, request_id",
		`"mirostat":0,"typical_p":1.0,"top_n_sigma":-1,"n_predict":null,"tfs_z":null`: "mirostat, top_n_sigma, typical_p",
		`"guided_json":null,"chat_template_kwargs":{},"samplers":[],"n_keep":0e5`:     "chat_template_kwargs, n_keep, samplers",
		`"a b\n":1,"":2,"é,":3,"` + strings.Repeat("y", 100) + `":4`:                  "?",
		many:                       "x00, x01",
		`"user":"a","metadata":{}`: "",
	} {
		for path, rest := range map[string]string{"/v1/completions": `,"max_tokens":1`, "/v1/completions?stream": `,"max_tokens":1,"stream":true`, "/v1/score": `,"answers":[" b"," c"]`} {
			path, _, _ = strings.Cut(path, "?")
			body := `{"prompt":"a",` + fields + rest + `}`
			r, text := s.do(t, "POST", path, body)
			found := r.Header.Get("X-L2S-Ignored")
			if r.StatusCode != 200 || (want == "") != (found == "") || !strings.Contains(found, want) || len(found) > 1000 || strings.Count(found, ",") > 20 {
				t.Errorf("%s: found %d, %q, %s, expected the header %q", body, r.StatusCode, found, text, want)
			}
			if r, text := strict.do(t, "POST", path, body); (r.StatusCode == 400) != (want != "") || want != "" && !strings.Contains(text, "unknown_field") && !strings.Contains(text, `"param":null`) {
				t.Errorf("strict, %s: found %d, %s", body, r.StatusCode, text)
			}
		}
	}
	for field, expected := range map[string]string{`"mirostat":1`: "expected 0, or none", `"typical_p":0.9`: "expected 1, or none", `"json_schema":{"type":"object"}`: "", `"min_tokens":3`: ""} {
		if r, text := s.do(t, "POST", "/v1/completions", `{"prompt":"a",`+field+`}`); r.StatusCode != 400 || !strings.Contains(text, "unknown_field") || !strings.Contains(text, expected) {
			t.Errorf("%s: found %d, %s, expected 400 and %q", field, r.StatusCode, text, expected)
		}
	}
}

// After Stop requests under way go on, and others are refused, by 503 with Retry-After; the port is open.
func TestAfterStop(t *testing.T) {
	s := serve(t, 4096, nil)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":%q,"max_tokens":60,"temperature":0,"stream":true,"ignore_eos":true}`, prompt)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	s.Stop()
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/score"} {
		if a, text := s.do(t, "POST", path, `{"prompt":"a"}`); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" || !a.Close {
			t.Errorf("%s: found %d, %v, %s, expected 503, and the end of the connection", path, a.StatusCode, a.Header, text)
		}
	}
	if a, _ := s.do(t, "GET", "/health", ""); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("/health: found %d, %v, expected 503", a.StatusCode, a.Header)
	}
	if a, _ := s.do(t, "GET", "/metrics", ""); a.StatusCode != 200 {
		t.Errorf("/metrics: found %d, expected 200", a.StatusCode)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("found the stream %q, %v, expected all of it", text[max(0, len(text)-200):], err)
	}
}
