package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// A chat is the text that the template makes of the prompt, and generate prints notes on surprising
// results.
func TestGenerateAChat(t *testing.T) {
	need(t)
	ctx := context.Background()
	greedy := []string{"generate", "--model", gguf, "--threads", "1", "-n", "10", "--temp", "0", "--ignore-eos"}
	chat, _ := runs(t, ctx, 0, append(slices.Clone(greedy), "--prompt", "Say yes.", "--chat", "--system", "Be brief.", "--chat-template", "chatml")...)
	text, _ := runs(t, ctx, 0, append(slices.Clone(greedy), "--prompt", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n")...)
	if chat != text || strings.TrimSpace(chat) == "" {
		t.Errorf("found %q, expected %q", chat, text)
	}
	if _, why := runs(t, ctx, 1, append(slices.Clone(greedy), "--prompt", "Say yes.", "--chat")...); !strings.Contains(why, "found no tokenizer.chat_template") {
		t.Errorf("a model without a template: found %q", why)
	}
	if _, why := runs(t, ctx, 1, append(slices.Clone(greedy), "--prompt", "Say yes.", "--chat", "--chat-template", "no such")...); !strings.Contains(why, "expected the file of a template in Jinja, or a name") || !strings.Contains(why, "chatml") {
		t.Errorf("a template that is not there: found %q", why)
	}
	// A template in a file; one that renders nothing is found at the start, before the model.
	file := filepath.Join(t.TempDir(), "t.jinja")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\\n' }}")
	if own, _ := runs(t, ctx, 0, append(slices.Clone(greedy), "--prompt", "Say yes.", "--chat", "--system", "Be brief.", "--chat-template", file)...); own != chat {
		t.Errorf("a file: found %q, expected %q", own, chat)
	}
	for source, want := range map[string]string{
		"{% for m in messages %}":                         "line 1: found the end of the template, expected endfor or else",
		"{{ raise_exception('never') }}":                  "refuses the chat: never",
		"{{ messages[0].words.upper() }}":                 "line 1: 'dict object' has no attribute 'words'",
		"{% include '/etc/passwd' %}":                     "line 1: found include",
		"a chat":                                          "found a message of the role \"user\" that the chat template leaves out",
		"{{ 'x' * 9999999999 }}":                          "the template takes too much memory",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "macros in each other",
	} {
		write(source)
		if _, why := runs(t, ctx, 1, append(slices.Clone(greedy), "--prompt", "a", "--chat", "--chat-template", file)...); !strings.Contains(why, "--chat-template: ") || !strings.Contains(why, want) {
			t.Errorf("%s: found %q, expected %q", source, why, want)
		}
	}
	// This text is at its end for the model.
	if out, why := runs(t, ctx, 0, "generate", "--model", gguf, "--threads", "1", "--temp", "0", "--prompt", "The configuration file has three sections."); strings.TrimSpace(out) != "" || !strings.Contains(why, "nothing was written: the first token of the model is") {
		t.Errorf("found %q and %q, expected nothing, and why", out, why)
	}
}

// serving runs the server until stop, and returns its address; ended has the result of run.
func serving(t *testing.T, args ...string) (url string, stop func(), ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	url, ended = servingUntil(t, ctx, args...)
	return url, cancel, ended
}

// servingUntil runs it until the end of ctx.
func servingUntil(t *testing.T, ctx context.Context, args ...string) (url string, ended chan error) {
	t.Helper()
	need(t)
	r, w := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		err := runServe(ctx, append([]string{"--model", gguf, "--threads", "1", "--addr", "127.0.0.1:0"}, args...), io.Discard, w)
		w.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			url = at
			break
		}
	}
	if url == "" {
		t.Fatalf("found no server: %v", <-ended)
	}
	go io.Copy(io.Discard, r)
	return url, ended
}

// The text of the server at temperature 0 equals the text of generate, for each kind of head; its
// end waits for running requests.
func TestServe(t *testing.T) {
	model := fastModel(t)
	for name, flags := range map[string][]string{"exact": nil, "fast": {"--fast", "--budget", "100000"}} {
		args := append([]string{"--model", model}, flags...)
		want, _ := runs(t, context.Background(), 0, append([]string{"generate", "--threads", "1", "--temp", "0", "-n", "24", "--ignore-eos", "--prompt", "Once upon a time"}, args...)...)
		url, stop, ended := serving(t, append(args, "--audit", "1")...)
		ask := func(stream bool) *http.Response {
			r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":"Once upon a time","max_tokens":24,"temperature":0,"ignore_eos":true,"stream":%v,"logprobs":1}`, stream)))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		var x struct {
			Choices []struct {
				Text     string
				LogProbs struct {
					Error float64 `json:"logprob_error"`
				}
			}
		}
		r := ask(false)
		if err := json.NewDecoder(r.Body).Decode(&x); err != nil || len(x.Choices) != 1 || x.Choices[0].Text+"\n" != want || (x.Choices[0].LogProbs.Error > 0) != (name == "fast") {
			t.Errorf("%s: found %+v, %v, expected %q", name, x, err, want)
		}
		r.Body.Close()
		// Several at once, greedy and drawn, share the steps.
		var several sync.WaitGroup
		for i := range 4 {
			several.Go(func() {
				var x struct {
					Usage struct {
						Completion int `json:"completion_tokens"`
					}
				}
				r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":"Once upon a time","max_tokens":24,"temperature":%d,"seed":%d,"ignore_eos":true}`, i%2, i)))
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Body.Close()
				if err := json.NewDecoder(r.Body).Decode(&x); err != nil || x.Usage.Completion != 24 {
					t.Errorf("%s, one of several: found %+v, %v, expected 24 tokens", name, x, err)
				}
			})
		}
		several.Wait()
		var text []byte
		counts := map[string]int{}
		// A step is counted after its answers are sent.
		for end := time.Now().Add(5 * time.Minute); counts["written_tokens"] < 5*24 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			metrics, err := http.Get(url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			text, _ = io.ReadAll(metrics.Body)
			metrics.Body.Close()
			for _, name := range []string{"audited_tokens", "audited_agreed", "written_tokens", "exact_tokens"} {
				_, rest, _ := strings.Cut(string(text), "\nl2s_"+name+"_total ")
				n := 0
				fmt.Sscan(rest, &n)
				counts[name] = n
			}
		}
		fast := name == "fast" // the rung that scores most tokens misses next to none, of states that depend on how requests meet
		if counts["written_tokens"] != 5*24 || (counts["audited_tokens"] > 0) != fast || counts["audited_agreed"] > counts["audited_tokens"] || 10*counts["audited_agreed"] < 9*counts["audited_tokens"] || !fast && counts["exact_tokens"] != 5*24 || strings.Contains(string(text), "l2s_precision_held_out{") != fast {
			t.Errorf("%s: found %v in\n%s", name, counts, text)
		}
		r = ask(true)
		stop() // in the middle of the stream
		text, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Count(string(text), "data: ") < 24 {
			t.Errorf("%s: found the stream %q, %v, expected all of it", name, text[max(0, len(text)-300):], err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: found the error %v at the end", name, err)
		}
		if _, err := http.Get(url + "/health"); err == nil {
			t.Errorf("%s: found a server after its end", name)
		}
	}
}

func TestServeWithoutGrace(t *testing.T) {
	url, stop, ended := serving(t, "--grace", "0s", "--parallel", "1")
	r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Once","max_tokens":4000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	// On a loopback address the server answers for no other host: its owner can lead a name of a site
	// to this machine, and a browser takes the page then for one of the same site.
	for host, want := range map[string]int{"evil.com": 403, "evil.com:9272": 403, "localhost:9272": 200, "127.0.0.1": 200, "[::1]:1": 200} {
		for _, path := range []string{"/v1/models", "/metrics"} {
			q, err := http.NewRequest("GET", url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Host = host
			q.Header.Set("Origin", "http://"+host)
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode != want || want == 403 && !strings.Contains(string(text), "expected localhost, 127.0.0.1 or [::1]") {
				t.Errorf("the host %s: found %d and %s, expected %d", host, a.StatusCode, text, want)
			}
		}
	}
	stop()
	text, _ := io.ReadAll(r.Body)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "after --grace 0s") {
		t.Errorf("found the error %v", err)
	}
	if n := strings.Count(string(text), "data: "); !strings.Contains(string(text), `"error"`) || n >= 4000 {
		t.Errorf("found the end %q after %d events, expected an error before the answer is whole", text[max(0, len(text)-200):], n)
	}
	// An address that is taken.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, why := runs(t, context.Background(), 1, "serve", "--model", gguf, "--addr", taken.Addr().String()); !strings.Contains(why, "address already in use") {
		t.Errorf("found %q", why)
	}
}

// The port is open as long as requests under way have their grace: others are told, by 503, and so is who
// asks for the health.
func TestThePortIsOpenForTheGrace(t *testing.T) {
	url, stop, ended := serving(t, "--grace", "1h", "--parallel", "1")
	r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Once","max_tokens":4000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	stop()
	events := bufio.NewScanner(r.Body)
	for { // the text goes on meanwhile
		if !events.Scan() {
			t.Fatal("found the end of a request under way, expected a server that says that it ends")
		}
		if status, _ := health(t, url); status == 503 {
			break
		}
	}
	a, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Once"}`))
	if err != nil || a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("a request after the end: found %v, %v, expected 503", a, err)
	}
	if a != nil {
		a.Body.Close()
	}
	if !events.Scan() {
		t.Errorf("found the end of the stream, %v, expected more of it", events.Err())
	}
	r.Body.Close() // the client goes away, and the server ends without a failure
	if err := <-ended; err != nil {
		t.Errorf("found the error %v at the end", err)
	}
	if _, err := http.Get(url + "/health"); err == nil {
		t.Error("found an open port after the end")
	}
}

// After SIGTERM a server without requests answers for a moment, so that those who send requests learn
// that it ends; after the interrupt key it ends at once.
func TestThePortLingersAfterSIGTERM(t *testing.T) {
	for _, c := range []struct {
		signal os.Signal
		grace  string
		answer bool
	}{{syscall.SIGTERM, "1h", true}, {os.Interrupt, "1h", false}} {
		ctx, cancel := context.WithCancelCause(context.Background())
		url, ended := servingUntil(t, ctx, "--grace", c.grace)
		cancel(&signalled{c.signal})
		if c.answer {
			for status := 200; status == 200; {
				status, _ = health(t, url)
			}
		}
		if err := <-ended; err != nil {
			t.Errorf("%v: found the error %v", c.signal, err)
		}
	}
}

// A server in the log format JSON writes nothing else; a wrong key and a wrong origin are found before
// the model is read.
func TestServeForOperators(t *testing.T) {
	need(t)
	keys := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		file string
		want string
	}{
		{[]string{"--log", "xml"}, "", `--log: found "xml"`},
		{[]string{"--api-key", "a,,b"}, "", "--api-key: found a key that is empty"},
		{[]string{"--api-key-file", keys}, "a\n\nb\n", "--api-key-file: " + keys + ": found a key that is empty"},
		{[]string{"--api-key-file", keys}, " \n", "found a key that is empty"},
		{[]string{"--cors", "*"}, "", "found * without a key"},
		{[]string{"--cors", "app.example"}, "", `--cors: found "app.example"`},
	} {
		write(c.file)
		if _, why := runs(t, context.Background(), 2, append([]string{"serve", "--model", "none.gguf"}, c.args...)...); !strings.Contains(why, c.want) {
			t.Errorf("%q: found %q, expected %q", c.args, why, c.want)
		}
	}
	write("first\r\n  second  \n")
	t.Setenv(keyVariable, "third, fourth")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := runServe(ctx, []string{"--model", gguf, "--threads", "1", "--addr", "127.0.0.1:0", "--log", "json", "--api-key-file", keys, "--cors", "https://app.example"}, io.Discard, w)
		w.Close()
		ended <- err
	}()
	url, lines := "", make(chan string, 100)
	go func() {
		for all := bufio.NewScanner(r); all.Scan(); {
			lines <- all.Text()
		}
		close(lines)
	}()
	next := func() (x struct{ Msg, Level, Path string }) {
		t.Helper()
		line, ok := <-lines
		if !ok {
			t.Fatalf("found the end of the log: %v", <-ended)
		}
		out.WriteString(line)
		if err := json.Unmarshal([]byte(line), &x); err != nil || x.Msg == "" || x.Level == "" {
			t.Fatalf("found the line %s, %v, expected JSON with a message", line, err)
		}
		return x
	}
	for url == "" {
		url, _ = strings.CutPrefix(next().Msg, "listening on ")
		if !strings.HasPrefix(url, "http") {
			url = ""
		}
	}
	for key, want := range map[string]int{"first": 200, "second": 200, "third": 200, "fourth": 200, "": 401, "fifth": 401} {
		q, _ := http.NewRequest("GET", url+"/v1/models", nil)
		q.Header.Set("Authorization", "Bearer "+key)
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("the key %q: found %d, expected %d", key, a.StatusCode, want)
		}
		if x := next(); x.Msg != "request" || x.Path == "" {
			t.Errorf("found the line %+v, expected one of the request", x)
		}
	}
	cancel()
	for line := range lines {
		out.WriteString(line)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, key := range []string{"first", "second", "third", "fourth", "fifth"} {
		if strings.Contains(out.String(), key) {
			t.Errorf("found the key %q in the log", key)
		}
	}
}

// The hint at the start is for threads that have a CPU for less than three quarters of the time.
func TestTheHintAtTheStart(t *testing.T) {
	for _, c := range []struct {
		threads int
		share   float64
		want    bool
	}{{2, 0.98, false}, {2, 0.76, false}, {2, 0.5, true}, {8, 0.74, true}, {1, 0.3, false}, {2, 1, false}} {
		if waits(c.threads, c.share) != c.want {
			t.Errorf("%d threads with a share of %v: found %v", c.threads, c.share, !c.want)
		}
	}
	if share := spin(1); !(share > 0 && share < 1.5) {
		t.Errorf("found the share %v of a thread", share)
	}
}

// Requests that do not come, and answers that nobody takes, do not stretch the end: without grace
// the server ends with its step, not when their time is over.
func TestTheEndDoesNotWaitForClients(t *testing.T) {
	url, stop, ended := serving(t, "--grace", "0s", "--timeout", "1h")
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, text)
		return c
	}
	dial("POST /v1/comp")
	other := dial("POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
	time.Sleep(100 * time.Millisecond) // for a handler that does not show to begin
	half := dial("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if bytes.Contains(text, []byte("\nl2s_body_bytes ")) && !bytes.Contains(text, []byte("\nl2s_body_bytes 0\n")) {
			break // its handler reads the body
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stopped := time.Now()
	stop()
	r, err := http.ReadResponse(bufio.NewReader(half), nil)
	if err != nil || r.StatusCode != 503 {
		t.Errorf("half a body at the end: found %v, %v, expected 503", r, err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || r.StatusCode != 404 {
		t.Errorf("half a body of another path at the end: found %v, %v, expected 404", r, err)
	}
	<-ended
	// They end by themselves, long before the 10 s after which connections are cut, and the hour of
	// --timeout.
	t.Logf("the end took %v", time.Since(stopped))
}

// The head of a request that drips has 408, after the time for heads.
func TestAHeadThatDrips(t *testing.T) {
	url, _, _ := serving(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 408 {
		t.Errorf("found %v, %v, expected 408", r, err)
	}
}

// The server says once that its threads wait for a CPU, after ten seconds of steps in which they had
// one for less than half of the time. Time without requests does not count.
func TestServeSaysThatThreadsWait(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads int
		share   float64 // of the time that all threads have
		want    int
	}{{"idle machine", 4, 0.9, 0}, {"busy machine", 4, 0.3, 1}, {"one thread", 1, 0.3, 0}} {
		said, cpu := 0, time.Duration(0)
		w := &watch{threads: c.threads, say: func() { said++ }, cpu: func() time.Duration { return cpu }}
		for i := range 400 {
			took := 100 * time.Millisecond
			cpu += time.Duration(c.share * float64(took) * float64(c.threads))
			w.step(engine.Step{Took: took})
			if i == 98 && said > 0 {
				t.Errorf("%s: found the hint before ten seconds", c.name)
			}
		}
		if said != c.want {
			t.Errorf("%s: found the hint %d times, expected %d", c.name, said, c.want)
		}
	}
}

// health returns the status of a server, and what it says.
func health(t *testing.T, url string) (int, map[string]any) {
	t.Helper()
	r, err := http.Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var x map[string]any
	if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, x
}

// While --fast makes its preview the exact head answers; /health and /metrics tell so, and the server
// changes over at the end. Its end in between leaves states, with which the next start goes on.
func TestServeWhileThePreviewIsMade(t *testing.T) {
	model := fastModel(t)
	kept := keptFile(model + ".l2p")
	for i := range 2 {
		url, stop, ended := serving(t, "--model", model, "--fast", "--cache", "0")
		ask := func() float64 {
			r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Once upon a time","max_tokens":4,"temperature":0,"ignore_eos":true,"logprobs":1}`))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			var x struct {
				Choices []struct {
					LogProbs struct {
						Error *float64 `json:"logprob_error"`
					}
				}
			}
			if err := json.NewDecoder(r.Body).Decode(&x); err != nil || len(x.Choices) != 1 || x.Choices[0].LogProbs.Error == nil {
				t.Fatalf("found %v, %v, expected an answer", x, err)
			}
			return *x.Choices[0].LogProbs.Error
		}
		status, x := health(t, url)
		if p, _ := x["preparing"].(map[string]any); status != 200 || x["head"] != "exact" || p == nil {
			t.Fatalf("start %d: found %d, %v, expected the exact head, and a preview that is made", i+1, status, x)
		}
		if off := ask(); off != 0 {
			t.Errorf("start %d: found the error %v before there is a preview, expected 0", i+1, off)
		}
		if i == 0 { // it ends in the middle
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if info, err := os.Stat(kept); err == nil && info.Size() > int64(len(keptMagic))+32 {
					break
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("found the error %v at the end", err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Errorf("found no states of the preview: %v", err)
			}
			continue
		}
		for end := time.Now().Add(5 * time.Minute); x["head"] != "preview" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			_, x = health(t, url)
		}
		if x["head"] != "preview" || x["preparing"] != nil && ask() == 0 {
			t.Fatalf("found %v, expected the preview", x)
		}
		if off := ask(); off == 0 {
			t.Errorf("found the error 0 of a preview")
		}
		if _, err := os.Stat(kept); err == nil {
			t.Errorf("found %s after its preview was made", kept)
		}
		r, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if !strings.Contains(string(text), "\nl2s_head{kind=\"preview\"} 1\n") || !strings.Contains(string(text), "\nl2s_head{kind=\"exact\"} 0\n") || !strings.Contains(string(text), "l2s_precision_held_out{") {
			t.Errorf("found the metrics\n%s", text)
		}
		stop()
		<-ended
	}
	// prepare finds the file.
	if out, said := runs(t, context.Background(), 0, "prepare", "--model", model, "--threads", "1"); out != model+".l2p\n" || strings.Contains(said, " states in ") {
		t.Errorf("found %q and %q, expected the file that is there", out, said)
	}
}
