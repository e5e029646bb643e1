package openai_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

// dial sends a request of a version of HTTP, and bytes after it.
func (s *served) dial(t testing.TB, version, path, body, after string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/%s\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s%s", path, version, len(body), body, after)
	return c.(*net.TCPConn)
}

// A client that vanishes frees its place, whatever it has sent after its request, under way and
// waiting. The text of 4,096 tokens would keep it for long.
func TestClientsThatVanish(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whether a client is gone that has sent more than its request")
	}
	s := serve(t, 4096, func(o *openai.Options) { o.Parallel, o.Waiting = 1, 3 })
	for _, c := range []struct{ version, after string }{{"1.1", ""}, {"1.1", "x"}, {"1.1", strings.Repeat("GET / HTTP/1.1\r\n", 100)}, {"1.0", ""}, {"1.0", "x"}} {
		for _, reset := range []bool{false, true} {
			name := fmt.Sprintf("HTTP/%s, %d bytes after it, reset %v", c.version, len(c.after), reset)
			var all []*net.TCPConn
			for i := range 4 {
				all = append(all, s.dial(t, c.version, "/v1/completions", endless(i%2 == 0), c.after))
			}
			s.waits(t, name+": all have places", func(active, waiting int) bool { return active == 1 && waiting == 3 })
			for _, x := range all {
				if reset {
					x.SetLinger(0)
				}
				x.Close()
			}
			begin := s.metrics(t)["l2s_written_tokens_total"]
			s.waits(t, name+": all are gone", idle)
			if written := s.metrics(t)["l2s_written_tokens_total"] - begin; written > 3500 {
				t.Errorf("%s: found %v tokens written for clients that were gone", name, written)
			}
		}
	}
	s.ok(t, "/v1/completions", `{"prompt":"a","max_tokens":2}`)
}

// A client that ends its side of the connection after its request, as nc -N does, and waits, gets
// its answer.
func TestClientsThatEndTheirSide(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells these from clients that are gone")
	}
	s := serve(t, 512, func(o *openai.Options) { o.Parallel, o.Waiting = 1, 8 })
	var wg sync.WaitGroup
	for _, version := range []string{"1.0", "1.1"} {
		for _, form := range []string{`,"stream":false`, `,"stream":true`, "score"} {
			path, body := "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":150,"temperature":0,"ignore_eos":true%s}`, prompt, form)
			if form == "score" {
				path, body = "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" a b"," c"]}`, prompt)
			}
			c := s.dial(t, version, path, body, "")
			c.CloseWrite()
			wg.Go(func() {
				in := bufio.NewReader(c)
				answer, err := http.ReadResponse(in, nil)
				if err == nil && answer.StatusCode == 100 && version == "1.1" {
					answer, err = http.ReadResponse(in, nil)
				}
				if err != nil || answer.StatusCode != 200 {
					t.Errorf("HTTP/%s %s: found %v, %v", version, form, answer, err)
					return
				}
				text, err := io.ReadAll(answer.Body)
				if form == `,"stream":true` {
					if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Count(string(text), "data: ") < 100 {
						t.Errorf("HTTP/%s, a stream: found %q, %v, expected all of it", version, text[max(0, len(text)-200):], err)
					}
				} else if !json.Valid(text) || err != nil || strings.Contains(string(text), `"error"`) {
					t.Errorf("HTTP/%s %s: found %s, %v", version, form, text, err)
				}
			})
		}
	}
	wg.Wait()
}

// live has the collector run, and returns the bytes of the objects that it found in use: garbage, of
// which a busy machine leaves more, is none of them.
func live() int64 {
	runtime.GC()
	found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(found)
	return int64(found[0].Value.Uint64())
}

// The memory of bodies, with what is read of them, is bounded for all requests together: many small
// values take no more than their text.
func TestTheMemoryOfBodies(t *testing.T) {
	const size, n = 4 << 20, 4
	const memory = 3 * n * size
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what comes while the collector looks counts as in use
	s := serve(t, 64, func(o *openai.Options) { o.Body, o.Memory, o.Parallel = size, memory, n })
	many := func(begin, value, end string) string {
		return begin + strings.Repeat(value, (size-len(begin)-len(end))/len(value)) + end
	}
	fields := bytes.NewBufferString("{")
	for i := 0; fields.Len() < size-100; i++ {
		fmt.Fprintf(fields, `"%x":1,`, i)
	}
	fields.WriteString(`"prompt":"a"}`)
	for name, c := range map[string]struct{ path, body string }{
		"ids":      {"completions", many(`{"prompt":[`, "1,", "1]}")},
		"lists":    {"completions", many(`{"prompt":[`, "[],", "1]}")},
		"fields":   {"completions", fields.String()},
		"stops":    {"completions", many(`{"prompt":"a","stop":[`, `"",`, `""]}`)},
		"allowed":  {"completions", many(`{"prompt":"a","max_tokens":1,"allowed_tokens":[`, "1,", "1]}")},
		"messages": {"chat/completions", many(`{"messages":[`, `{"role":"user","content":""},`, `{}]}`)},
		"parts":    {"chat/completions", many(`{"messages":[{"role":"user","content":[`, `{"type":"text","text":""},`, `{}]}]}`)},
		"answers":  {"score", many(`{"prompt":"a","answers":[`, `"",`, `""]}`)},
	} {
		before, most := live(), int64(0)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { s.post(t, "/v1/"+c.path, c.body) })
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for end := false; !end; {
			select {
			case <-done:
				end = true
			case <-time.After(2 * time.Millisecond):
			}
			most = max(most, live())
		}
		t.Logf("%s: %d MiB more in use", name, (most-before)>>20)
		if most-before > memory {
			t.Errorf("%s: found %d MiB more in use, expected at most %d", name, (most-before)>>20, memory>>20)
		}
		if held := s.metrics(t)["l2s_body_bytes"]; held != 0 {
			t.Errorf("%s: found %v bytes held after the answers", name, held)
		}
	}
}

// Places come before tokens: texts that take the tokenizer long have places, so that there are no
// more of them than places, and others are told to come again at once.
func TestPlacesComeBeforeTokens(t *testing.T) {
	s := serve(t, 4096, func(o *openai.Options) { o.Parallel, o.Waiting = 1, 3 })
	slow := fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat(" ", 60_000))
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes, most, tokenizing := map[int]int{}, 0, 0.0
	for range 16 {
		wg.Go(func() {
			r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(slow))
			if err != nil {
				t.Error(err)
				return
			}
			r.Body.Close()
			mu.Lock()
			codes[r.StatusCode]++
			mu.Unlock()
			if r.StatusCode == 503 && r.Header.Get("Retry-After") == "" {
				t.Error("found 503 without Retry-After")
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for end := false; !end; {
		select {
		case <-done:
			end = true
		case <-time.After(time.Millisecond):
		}
		active, waiting := s.Busy()
		most = max(most, active+waiting)
		tokenizing = max(tokenizing, s.metrics(t)["l2s_requests_tokenizing"])
	}
	if codes[503] == 0 || codes[200]+codes[400]+codes[503] != 16 || most > 4 || tokenizing > 4 || tokenizing == 0 {
		t.Errorf("found the statuses %v, %d places taken, %v texts at the tokenizer, expected 503 among them and at most 4 of both", codes, most, tokenizing)
	}
}

// The tokens of a prompt with an answer are those of the whole text, though the prompt is read once.
func TestTokensOfAPromptWithAnswers(t *testing.T) {
	s := serve(t, 4096, nil)
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"The configuration", " file", "ured", " ", "  ", "\n", "\n\n", "12", "345", "é", "漢字", "🙂", "aaaa", "<|im_end|>", "</s>", ".", " server's", "ing", "x"}
	text := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	for i := range 60 {
		prompt := text(1 + random.IntN(3000))
		var answers []string
		for range 1 + random.IntN(8) {
			answers = append(answers, text(1+random.IntN(40)))
		}
		found, err := openai.Together(s.Server, prompt, answers)
		if err != nil {
			t.Fatal(err)
		}
		for j, answer := range answers {
			if want := s.m.Tokens(prompt+answer, true); !slices.Equal(found[j], want) {
				t.Fatalf("text %d: %q and %q: found other tokens than of the whole text", i, prompt, answer)
			}
		}
	}
}

// A request that is computed alone has the answer of an idle server, bit for bit, under any load.
func TestDeterministic(t *testing.T) {
	deterministic(t, gguf, 512, 20)
}

// So has a model of the folder REAL with a sliding window, Gemma 3, which prompt and texts leave.
func TestRealDeterministic(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("REAL"), "gemma3-*.gguf"))
	if os.Getenv("REAL") == "" || len(files) == 0 {
		t.Skip("REAL names no folder with a gemma3-*.gguf")
	}
	for _, file := range files {
		deterministic(t, file, 2048, 80)
	}
}

// deterministic asks an idle server for answers, and a busy one for answers computed alone. Long prompts
// repeat a text. The idle one keeps nothing of finished requests, which would move sums too.
func deterministic(t *testing.T, file string, context, repeats int) {
	idle := serveFile(t, file, context, uncached)
	s := serveFile(t, file, context, func(o *openai.Options) { o.Parallel, o.Waiting = 4, 32 })
	long := strings.Repeat(prompt+" ", repeats)
	t.Logf("a prompt of %d tokens", len(s.m.Tokens(long, true)))
	asks := []struct{ path, body string }{
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":40,"temperature":0,"ignore_eos":true,"logprobs":5`, long)},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":30,"temperature":1,"seed":3,"ignore_eos":true,"logprobs":2`, prompt)},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"Say yes."}],"max_tokens":20,"temperature":0,"ignore_eos":true,"logprobs":true,"top_logprobs":3`},
		{"/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" The first"," Nothing of the sort"," a"," of the servers and their ports"]`, long)},
	}
	answer := func(s *served, i int, rest string) any {
		x := s.ok(t, asks[i].path, asks[i].body+rest+"}")
		if asks[i].path == "/v1/score" {
			return []any{at(t, x, "answers"), at(t, x, "logprob_error")}
		}
		return at(t, x, "choices")
	}
	var want []any
	for i := range asks {
		want = append(want, answer(idle, i, ""))
		if found := answer(s, i, `,"deterministic":true`); !reflect.DeepEqual(found, want[i]) {
			t.Errorf("%s, computed alone on an idle server: found %v, expected %v", asks[i].path, found, want[i])
		}
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 3 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"ignore_eos":true}`, strings.Repeat("word ", 7*i+1), 20+i))
			}
		})
	}
	shared := 0
	for range 3 {
		for i := range asks {
			if found := answer(s, i, `,"deterministic":true`); !reflect.DeepEqual(found, want[i]) {
				t.Errorf("%s, computed alone under load: found %v, expected %v", asks[i].path, found, want[i])
			}
		}
		// Others say that their log-probabilities have an error that nobody knows.
		x := s.ok(t, asks[0].path, asks[0].body+"}")
		if at(t, x, "choices", 0, "logprobs", "logprob_error") == nil {
			shared++
		}
	}
	close(stop)
	load.Wait()
	if shared == 0 {
		t.Error("found no request under load whose logprob_error is null")
	}
	if status, x := s.post(t, "/v1/completions", `{"prompt":"a","deterministic":1}`); status != 400 || at(t, x, "error", "param") != "deterministic" {
		t.Errorf("found %d, %v, expected 400", status, x)
	}
}

// A second line of a header counts, and a trailer that drips ends as a body does, with 408; a body
// that nobody reads does not keep its connection.
func TestOddBodies(t *testing.T) {
	s := serve(t, 64, func(o *openai.Options) { o.Timeout = time.Second })
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"two codings":             {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415},
		"two of identity":         {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 400},
		"a trailer that drips":    {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\n{}\r\n0\r\nX: ", 408},
		"a body that drips":       {"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", 408},
		"a path without a body":   {"POST /v1/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", 404},
		"a method without a body": {"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", 405},
	} {
		c2, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c2, c.request)
		c2.SetReadDeadline(time.Now().Add(5 * time.Minute))
		if r, err := http.ReadResponse(bufio.NewReader(c2), nil); err != nil || r.StatusCode != c.status {
			t.Errorf("%s: found %v, %v, expected the status %d", name, r, err, c.status)
		}
		c2.Close()
	}
}
