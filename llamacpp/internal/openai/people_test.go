package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

var people = flag.Bool("people", false, "measure chats and mixed requests on the models of the folder REAL, for many minutes")

var models = flag.String("models", "", "with -people, the names of the models, with commas between them, by default all")

// labModel is the name of the model of all tests here, which is small.
const labModel = "llm-65k"

// realModels are the models of the folder REAL that chat.
func realModels(t *testing.T, names ...string) (files []string) {
	t.Helper()
	if !*people || os.Getenv("REAL") == "" {
		t.Skip("-people and REAL=FOLDER measure models of a folder: make people")
	}
	for _, name := range names {
		if *models != "" && !slices.Contains(strings.Split(*models, ","), name) {
			continue
		}
		file := filepath.Join(os.Getenv("REAL"), name+".gguf")
		if name == labModel {
			file = gguf
		}
		if _, err := os.Stat(file); err != nil {
			t.Logf("%s is left out: %v", name, err)
			continue
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatal("found no model")
	}
	return files
}

// serveChats serves a model with its own chat template, or with Gemma's if it has none.
func serveChats(t *testing.T, file string, context_ int, change func(*openai.Options)) *served {
	t.Helper()
	for _, template := range []string{"", "gemma"} {
		s := serveFile(t, file, context_, func(o *openai.Options) { o.Template = template; change(o) })
		if template != "" || s.m.ChatTemplate() != "" {
			return s
		}
		s.end()
	}
	return nil
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatAnswer is an answer of a stream, with the time of its first part and its log-probabilities.
type chatAnswer struct {
	text                    string
	first                   time.Duration
	tokens                  []chatToken
	prompt, cached, written int
}

type chatToken struct {
	Token   string
	LogProb float64
	Top     []struct {
		Token   string
		LogProb float64
	} `json:"top_logprobs"`
}

// chat asks for an answer to messages at temperature 0, in a stream.
func (s *served) chat(t testing.TB, messages []chatMessage, tokens int, rest string) (a chatAnswer) {
	t.Helper()
	list, _ := json.Marshal(messages)
	body := fmt.Sprintf(`{"messages":%s,"max_tokens":%d,"temperature":0,"stream":true,"stream_options":{"include_usage":true}%s}`, list, tokens, rest)
	start := time.Now()
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return a
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is || data == "[DONE]" {
			continue
		}
		var x struct {
			Choices []struct {
				Delta    struct{ Content string }
				LogProbs struct{ Content []chatToken }
			}
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Written int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			Error any
		}
		if err := json.Unmarshal([]byte(data), &x); err != nil || x.Error != nil {
			t.Errorf("found the event %s, %v", data, err)
		}
		if len(x.Choices) > 0 && x.Choices[0].Delta.Content != "" {
			if a.text == "" {
				a.first = time.Since(start)
			}
			a.text += x.Choices[0].Delta.Content
			a.tokens = append(a.tokens, x.Choices[0].LogProbs.Content...)
		}
		if x.Usage != nil {
			a.prompt, a.cached, a.written = x.Usage.Prompt, x.Usage.Details.Cached, x.Usage.Written
		}
	}
	if r.StatusCode != 200 || lines.Err() != nil {
		t.Errorf("found the status %d, %v", r.StatusCode, lines.Err())
	}
	return a
}

// history is a text of about so many tokens of the model.
func (s *served) history(tokens int) string {
	sentences := []string{"The harbour of the old town has three basins, and each of them has its own gate.", "In winter the gates are closed at four, because the wind comes from the north.",
		"The harbour master writes down every ship, its flag, its cargo and the number of its crew.", "A ship that carries grain is led to the second basin, where the mills are.", "Fishermen sell their catch at the first basin until noon.",
		"The third basin is for repairs, and its crane is the largest on the coast.", "Children are not allowed there, but they come every day.", "On Sundays a band plays in front of the harbour office."}
	var b strings.Builder
	for i := 0; len(s.m.Tokens(b.String(), true)) < tokens; i++ {
		fmt.Fprintf(&b, "%s Note %d. ", sentences[i%len(sentences)], i+1)
	}
	return b.String()
}

var chatModels = []string{"gemma3-270m", "smollm2-135m", "qwen2.5-coder-0.5b"}

var chatQuestions = []string{"How many basins are there?", "When are the gates closed?", "Who writes down the ships?", "Where does grain go?", "When do fishermen sell?",
	"What is the third basin for?", "Who comes every day?", "What happens on Sundays?", "Name one cargo.", "Say goodbye."}

// The first token of every turn but the first comes in a small part of the time of the first one, which
// reads a history of 600 tokens: 8 in 100 at most in the middle. The times are measured and printed,
// and a turn that reads its history again is an error on any machine.
func TestRealTurns(t *testing.T) {
	for _, file := range realModels(t, chatModels...) {
		s := serveChats(t, file, 2048, func(o *openai.Options) { o.Parallel = 4 })
		s.chat(t, []chatMessage{{"user", "Hello"}}, 4, "") // so that the model is in memory
		var ratios []float64
		messages := []chatMessage{{"user", s.history(570) + chatQuestions[0]}}
		var first time.Duration
		for turn, question := range chatQuestions {
			if turn > 0 {
				messages = append(messages, chatMessage{"user", question})
			}
			a := s.chat(t, messages, 24, "")
			messages = append(messages, chatMessage{"assistant", a.text})
			if turn == 0 {
				first = a.first
				t.Logf("%s: turn 1: %d tokens, %v", filepath.Base(file), a.prompt, first.Round(time.Millisecond))
				continue
			}
			ratio := a.first.Seconds() / first.Seconds()
			ratios = append(ratios, ratio)
			t.Logf("%s: turn %d: %d tokens, %d of them read, %v, %.1f%% of the first", filepath.Base(file), turn+1, a.prompt, a.prompt-a.cached, a.first.Round(time.Millisecond), 100*ratio)
			if a.prompt-a.cached > 100 {
				t.Errorf("%s: turn %d: found %d tokens read again, expected the new ones alone", filepath.Base(file), turn+1, a.prompt-a.cached)
			}
		}
		slices.Sort(ratios)
		t.Logf("%s: the second turn and those after it take %.1f%% to %.1f%%, in the middle %.1f%%, of the time of the first", filepath.Base(file), 100*ratios[0], 100*ratios[len(ratios)-1], 100*ratios[len(ratios)/2])
	}
}

// nearTie is the largest distance of two log-probabilities that count as equal: batches of other sizes
// move each by half as much.
const nearTie = 1.2

// Chats of four clients at once have the texts of one client at a time, at temperature 0, but for near
// ties: where a text is another one, its first other token was as likely as the one before, almost.
// Later turns go on with the texts of the one client.
func TestRealChatsAtOnce(t *testing.T) {
	for _, file := range realModels(t, chatModels...) {
		s := serveChats(t, file, 2048, func(o *openai.Options) { o.Parallel = 4 })
		const clients, tokens = 4, 24
		const probs = `,"logprobs":true,"top_logprobs":5`
		chats, want := make([][]chatMessage, clients), make([][]chatAnswer, clients)
		for i := range clients {
			messages := []chatMessage{{"user", fmt.Sprintf("I am guest %d. ", i+1) + s.history(100+20*i) + chatQuestions[0]}}
			for turn, question := range chatQuestions {
				if turn > 0 {
					messages = append(messages, chatMessage{"user", question})
				}
				a := s.chat(t, messages, tokens, probs)
				messages, want[i] = append(messages, chatMessage{"assistant", a.text}), append(want[i], a)
			}
			chats[i] = messages
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		equal, cached, most := 0, 0, 0.0
		var ties []string
		for i, messages := range chats {
			wg.Go(func() {
				for turn := range chatQuestions {
					a := s.chat(t, messages[:2*turn+1], tokens, probs)
					mu.Lock()
					cached += a.cached
					w := want[i][turn]
					if a.text == w.text {
						equal++
					} else if gap, at, ok := firstOther(w.tokens, a.tokens); !ok || gap > nearTie {
						t.Errorf("%s, client %d, turn %d: found %q, expected %q, with a gap of %.3f at token %d", filepath.Base(file), i+1, turn+1, a.text, w.text, gap, at+1)
					} else {
						most = max(most, gap)
						ties = append(ties, fmt.Sprintf("client %d, turn %d, token %d: %q for %q, %.3f less likely", i+1, turn+1, at+1, a.tokens[at].Token, w.tokens[at].Token, gap))
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for _, tie := range ties {
			t.Logf("%s: near tie: %s", filepath.Base(file), tie)
		}
		t.Logf("%s: %d of %d texts equal, %d near ties, the largest of %.3f; %d tokens of prompts cached", filepath.Base(file), equal, clients*len(chatQuestions), len(ties), most, cached)
	}
}

// firstOther finds the first token of a text that is another one than expected, and how much less likely
// the expected text had it: ok is false if the best tokens there do not have it.
func firstOther(want, found []chatToken) (gap float64, at int, ok bool) {
	for at = range min(len(want), len(found)) {
		if want[at].Token == found[at].Token {
			continue
		}
		for _, top := range want[at].Top {
			if top.Token == found[at].Token {
				return math.Abs(want[at].LogProb - top.LogProb), at, true
			}
		}
		return math.Inf(1), at, false
	}
	// One has ended, by a token that is no text: what follows in the other tells nothing of it.
	return 0, min(len(want), len(found)) - 1, true
}

var mixed = flag.Int("mixed", 2000, "the number of requests of TestRealMixedRequests")

// completion is a text with its tokens and the best ones at each place.
type completion struct {
	text   string
	tokens []string
	top    []map[string]any
}

func completionOf(t *testing.T, answer any) (c completion) {
	c.text = at(t, answer, "choices", 0, "text").(string)
	for _, token := range at(t, answer, "choices", 0, "logprobs", "tokens").([]any) {
		c.tokens = append(c.tokens, token.(string))
	}
	for _, top := range at(t, answer, "choices", 0, "logprobs", "top_logprobs").([]any) {
		c.top = append(c.top, top.(map[string]any))
	}
	return c
}

// parts finds how much less likely the first other token of another text was. It reports false if none of
// the best tokens there begins the rest of that text.
func (c *completion) parts(text string) (gap float64, ok bool) {
	for i, token := range c.tokens {
		rest, same := strings.CutPrefix(text, token)
		if same {
			text = rest
			continue
		}
		gap = math.Inf(1)
		for other, p := range c.top[i] {
			if other != "" && strings.HasPrefix(text, other) {
				gap, ok = min(gap, math.Abs(c.top[i][token].(float64)-p.(float64))), true
			}
		}
		return gap, ok
	}
	return 0, true
}

// Mixed requests of eight clients, of which some vanish, some ask wrongly, and all kinds come in any order:
// each gets tokens that it allows, or the text that it gets alone but for near ties, and so never the
// text of another; the memory of the process stays what it is after a tenth of them; all sequences are there
// at the end.
func TestRealMixedRequests(t *testing.T) {
	for _, file := range realModels(t, labModel, "smollm2-135m") {
		const parallel, clients = 4, 8
		s := serveChats(t, file, 512, func(o *openai.Options) { o.Parallel, o.Waiting = parallel, 8*clients }) // vanished clients wait too, until they are noticed
		texts := make([]string, 24)
		want := make([]completion, len(texts))
		for i := range texts {
			texts[i] = fmt.Sprintf("Guest %d of the harbour asks about ship %d. %s", i+1, 7*i+3, s.history(20+3*i))
			want[i] = completionOf(t, s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":8,"temperature":0,"ignore_eos":true,"logprobs":5}`, texts[i])))
		}
		counts := map[string]int{}
		var mu sync.Mutex
		note := func(what string) {
			mu.Lock()
			counts[what]++
			mu.Unlock()
		}
		one := func(r *rand.Rand) {
			i := r.IntN(len(texts))
			path, kind := "/v1/completions", r.IntN(10)
			body := fmt.Sprintf(`{"prompt":%q,"max_tokens":8,"ignore_eos":true,"temperature":0`, texts[i])
			first := 1000 + r.IntN(20_000)
			switch kind {
			case 2, 3: // tokens of its own
				body += fmt.Sprintf(`,"n":%d,"logprobs":0,"return_tokens_as_token_ids":true,"allowed_tokens":[%d,%d,%d]}`, 1+r.IntN(3), first, first+1, first+2)
			case 4:
				body += `,"stream":true}`
			case 5: // it vanishes, somewhere
				body = fmt.Sprintf(`{"prompt":%q,"max_tokens":200,"ignore_eos":true,"n":%d,"stream":%v}`, texts[i], 1+r.IntN(2), r.IntN(2) == 0)
			case 6:
				path, body = "/v1/score", fmt.Sprintf(`{"prompt":%q,"answers":[" yes"," no, never"," the ship"]}`, texts[i])
			case 7:
				body += `,"temperature":"hot"}`
			case 8:
				path, body = "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":6,"temperature":0.8,"ignore_eos":true}`, texts[i])
			default:
				body += "}"
			}
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			q, _ := http.NewRequestWithContext(ctx, "POST", s.url+path, strings.NewReader(body))
			if kind == 5 {
				go func() { time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond); leave() }()
			}
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				if kind != 5 {
					t.Error(err)
				}
				note("vanished")
				return
			}
			defer a.Body.Close()
			all, err := io.ReadAll(a.Body)
			switch {
			case kind == 5:
				note("vanished")
				return
			case a.StatusCode == 503:
				note("503")
				return
			case kind == 7:
				if a.StatusCode != 400 {
					t.Errorf("%s: found %d", body, a.StatusCode)
				}
				note("400")
				return
			case a.StatusCode != 200 || err != nil:
				t.Errorf("%s: found %d, %s, %v", body, a.StatusCode, all, err)
				return
			}
			note(map[int]string{2: "allowed", 3: "allowed", 4: "stream", 6: "score", 8: "chat"}[kind] + " 200")
			text := ""
			switch kind {
			case 2, 3:
				for _, c := range at(t, parse(t, string(all)), "choices").([]any) {
					for _, token := range at(t, c, "logprobs", "tokens").([]any) {
						if id, err := strconv.Atoi(strings.TrimPrefix(token.(string), "token_id:")); err != nil || id < first || id > first+2 {
							t.Errorf("found the token %v, expected one of %d to %d", token, first, first+2)
						}
					}
				}
				return
			case 4:
				for line := range bytes.Lines(all) {
					if data, is := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: {")); is {
						text += at(t, parse(t, "{"+string(data)), "choices", 0, "text").(string)
					}
				}
			case 6, 8:
				return
			default:
				text = at(t, parse(t, string(all)), "choices", 0, "text").(string)
			}
			if text == want[i].text {
				note("text equal")
				return
			}
			note("text of a near tie")
			if gap, ok := want[i].parts(text); !ok || gap > nearTie {
				t.Errorf("prompt %d: found %q, expected %q, with a gap of %.3f where they part", i, text, want[i].text, gap)
			}
		}
		run := func(n int, seed uint64) {
			todo := make(chan struct{}, n)
			for range n {
				todo <- struct{}{}
			}
			close(todo)
			var wg sync.WaitGroup
			for i := range clients {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					for range todo {
						one(r)
					}
				})
			}
			wg.Wait()
			s.waits(t, "the end of mixed requests", idle)
		}
		start := time.Now()
		run(*mixed/10, 1)
		before := resident(t)
		t.Logf("%s: %d requests in %v, memory %.1f MiB", filepath.Base(file), *mixed/10, time.Since(start).Round(time.Second), before)
		run(*mixed-*mixed/10, 2)
		after := resident(t)
		t.Logf("%s: %d requests in %v: %v", filepath.Base(file), *mixed, time.Since(start).Round(time.Second), counts)
		t.Logf("%s: memory %.1f MiB after a tenth, %.1f after all, %+.2f%%", filepath.Base(file), before, after, 100*(after/before-1))
		if after > 1.05*before {
			t.Errorf("%s: found %.1f MiB, expected at most 5%% more than %.1f", filepath.Base(file), after, before)
		}
		// All sequences: texts with different beginnings, as many as there are, are all kept.
		all := parallel + openai.Kept(parallel)
		for i := range all {
			s.ok(t, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, strings.Repeat(strconv.Itoa(i)+" of them. ", 8)))
		}
		if kept := s.metrics(t)["l2s_cache_sequences"]; kept != float64(all) {
			t.Errorf("found %v sequences kept of as many texts, expected all %d", kept, all)
		}
		run(parallel, 3)
	}
}

// resident returns the memory of the process in MiB, after what is garbage.
func resident(t *testing.T) float64 {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
