package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// piece is a part of an answer, as it comes, or its end.
type piece struct {
	text   string
	tokens []engine.Token
	choice int
	ends   bool
}

// feed holds parts of answers until the client takes them.
type feed struct {
	mu     sync.Mutex
	pieces []piece
	come   chan struct{}
}

func (f *feed) write(p piece) bool {
	f.mu.Lock()
	f.pieces = append(f.pieces, p)
	f.mu.Unlock()
	select {
	case f.come <- struct{}{}:
	default:
	}
	return true
}

func (f *feed) take() []piece {
	f.mu.Lock()
	defer f.mu.Unlock()
	pieces := f.pieces
	f.pieces = nil
	return pieces
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// usageOf counts the tokens of a request: its prompt once, and all its answers.
func usageOf(results ...engine.Result) *usage {
	u := &usage{Prompt: results[0].Read}
	u.Details.Cached = results[0].Cached
	for _, r := range results {
		u.Completion += r.Written
	}
	u.Total = u.Prompt + u.Completion
	return u
}

// complete answers a request for text.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) *failure {
	f, h, failed := s.read(w, r)
	if failed != nil {
		return failed
	}
	defer h.release()
	client, stop := s.caller(w, r)
	defer stop()
	place, failed := s.reserve()
	if failed != nil {
		return failed
	}
	defer place.Free()
	a, failed := s.ask(client.ctx, f, chat)
	if failed != nil {
		return failed
	}
	a.Alone, a.Fresh = f.boolean("deterministic"), f.fresh()
	if f.failed != nil {
		return f.failed
	}
	f.of = nil
	if failed := h.become(a.bytes()); failed != nil {
		return failed
	}
	f.tell(w)
	note := noteOf(w)
	note.stream = a.stream
	views, all, requests := make([]*view, a.choices), make([]piece, a.choices), a.seeded()
	feed := &feed{come: make(chan struct{}, 1)}
	for i := range requests {
		views[i] = &view{s: s, asked: a, created: time.Now().Unix(), choice: i, id: "cmpl-" + note.id}
		if chat {
			views[i].id = "chat" + views[i].id
		}
		requests[i].Write = func(text string, tokens []engine.Token) bool {
			if a.stream {
				return feed.write(piece{text: text, tokens: tokens, choice: i})
			}
			all[i].text += text
			all[i].tokens = append(all[i].tokens, tokens...)
			return true
		}
	}
	jobs, err := place.StartCopies(client.ctx, requests)
	if failed := s.notStarted(err, a.form); failed != nil {
		return failed
	}
	results := make([]engine.Result, len(jobs))
	for i, job := range jobs {
		views[i].by = job.Head()
	}
	if !a.stream {
		for i, job := range jobs {
			client.wait(w, job)
			if results[i], err = job.Result(); err != nil {
				stop()
				return ended(err, a.form)
			}
		}
		o := whole(views, all, results)
		note.results(results...)
		return s.answer(w, o)
	}
	for i, job := range jobs {
		go func() {
			<-job.Done() // after its last text
			feed.write(piece{choice: i, ends: true})
		}()
	}
	out := newEvents(s, w)
	headers := func() {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
	}
	left := func() { // who takes no part of an answer frees its place
		stop()
		for _, job := range jobs {
			<-job.Done()
		}
	}
	for begun, done := false, 0; done < len(jobs) && out.err == nil; {
		select {
		case <-feed.come:
		case <-client.ended:
			client.probe(headers)
			continue
		}
		for _, p := range feed.take() {
			if p.ends {
				results[p.choice], err = jobs[p.choice].Result()
				if failed := ended(err, a.form); failed != nil {
					left()
					if !begun { // the answer can have a status still
						return failed
					}
					out.send(object{"error": failed})
					out.flush()
					return nil
				}
			}
			if !begun {
				headers()
				for _, v := range views {
					if v.begin(); chat {
						v.chunk(out, piece{}, "", true)
					}
				}
				begun = true
			}
			if !p.ends {
				views[p.choice].write(out, p, false)
				continue
			}
			views[p.choice].write(out, piece{}, true)
			if done++; done == len(jobs) && !a.usage {
				views[p.choice].last(timings(results...))
			}
			r := &results[p.choice].Reason
			*r = views[p.choice].reason(*r)
			views[p.choice].chunk(out, piece{}, *r, false)
		}
		if done < len(jobs) { // otherwise the last events come with these
			out.flush()
		}
	}
	if out.err != nil {
		left()
		return nil
	}
	note.results(results...)
	if a.usage {
		last := views[0].head()
		last["choices"], last["usage"], last["timings"] = []any{}, usageOf(results...), timings(results...)
		out.send(last)
	}
	out.buf.WriteString("data: [DONE]\n\n")
	out.flush()
	return nil
}

// events are server-sent events. They collect until flush, which takes one write.
type events struct {
	s       *Server
	w       http.ResponseWriter
	control *http.ResponseController
	noted   time.Time // when the client was last given its time
	buf     bytes.Buffer
	json    *json.Encoder // into buf
	err     error
}

func newEvents(s *Server, w http.ResponseWriter) *events {
	e := &events{s: s, w: w, control: http.NewResponseController(w)}
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}

// value adds a value in JSON.
func (e *events) value(x any) {
	_ = e.json.Encode(x) // of values without errors
	e.buf.Truncate(e.buf.Len() - 1)
}

// send adds an event.
func (e *events) send(x any) {
	e.buf.WriteString("data: ")
	e.value(x)
	e.buf.WriteString("\n\n")
}

// flush writes the events that have come. A deadline takes a system call and a timer: it is set
// again after an eighth of its time.
func (e *events) flush() {
	if e.err != nil {
		return
	}
	if now, more := time.Now(), e.s.o.Timeout/8; now.Sub(e.noted) > more && e.s.over.Err() == nil {
		_ = e.control.SetWriteDeadline(now.Add(e.s.o.Timeout + more)) // if the writer supports it
		e.noted = now
	}
	if _, e.err = e.w.Write(e.buf.Bytes()); e.err == nil {
		e.err = e.control.Flush()
	}
	if e.buf.Reset(); e.buf.Cap() > mostKept {
		e.buf = bytes.Buffer{}
	}
}

// mostKept bounds the memory of events that a stream keeps, in bytes.
const mostKept = 64 << 10

// view is how a request sees its answer.
type view struct {
	s       *Server
	asked   *asked
	by      *llamacpp.Head // finds its tokens
	id      string
	created int64
	choice  int    // its index
	offset  int    // of the text, in whole characters
	part    string // the bytes of a character after them

	// Of a chat with tools: the calls in its text, the event under way, and the tokens of text that is
	// held back.
	calls  *callReader
	delta  *callDelta
	tokens []engine.Token

	before, after string // the parts that are the same in all events of a stream, around the choice
}

type object = map[string]any

// head returns the common beginning of all answers and events.
func (v *view) head() object {
	kind := "text_completion"
	if v.asked.chat {
		kind = "chat.completion"
		if v.asked.stream {
			kind += ".chunk"
		}
	}
	return object{"id": v.id, "object": kind, "created": v.created, "model": v.s.o.Name}
}

// whole returns a whole answer. A result that calls tools has that as its reason from now on.
func whole(views []*view, all []piece, results []engine.Result) object {
	choices := make([]any, len(views))
	for i, v := range views {
		choice := object{"index": i, "logprobs": v.logProbs(all[i].tokens)}
		if v.asked.tools != nil {
			var calls bool
			if choice["message"], calls = v.asked.tools.message(all[i].text); calls && results[i].Reason == engine.Stopped {
				results[i].Reason = called
			}
		} else if v.asked.chat {
			choice["message"] = object{"role": "assistant", "content": all[i].text, "refusal": nil}
		} else {
			choice["text"] = all[i].text
		}
		choice["finish_reason"] = results[i].Reason
		choices[i] = choice
	}
	o := views[0].head()
	o["choices"], o["usage"], o["timings"] = choices, usageOf(results...), timings(results...)
	return o
}

// begin prepares the events of a stream.
func (v *view) begin() {
	var head bytes.Buffer
	encode(&head, v.head())
	v.before = "data: " + strings.TrimSuffix(head.String(), "}\n") + `,"choices":[{"index":` + strconv.Itoa(v.choice) + `,`
	v.after = "}]}\n\n"
	if v.asked.usage {
		v.after = "}],\"usage\":null}\n\n"
	}
}

// last adds timings to the last event.
func (v *view) last(t object) {
	var text bytes.Buffer
	encode(&text, t)
	v.after = `}],"timings":` + strings.TrimSuffix(text.String(), "\n") + "}\n\n"
}

// chunk adds an event: the first of a chat, a text, or the last, with a reason.
func (v *view) chunk(e *events, p piece, reason engine.Reason, first bool) {
	b := &e.buf
	b.WriteString(v.before)
	switch {
	case !v.asked.chat:
		b.WriteString(`"text":`)
		e.value(p.text)
	case first:
		b.WriteString(`"delta":{"role":"assistant","content":""}`)
	case reason != "":
		b.WriteString(`"delta":{}`)
	case v.delta != nil:
		b.WriteString(`"delta":`)
		e.value(v.delta.object())
	default:
		b.WriteString(`"delta":{"content":`)
		e.value(p.text)
		b.WriteByte('}')
	}
	b.WriteString(`,"logprobs":`)
	if len(p.tokens) > 0 {
		e.value(v.logProbs(p.tokens))
	} else {
		b.WriteString("null")
	}
	b.WriteString(`,"finish_reason":`)
	if reason != "" {
		e.value(reason)
	} else {
		b.WriteString("null")
	}
	b.WriteString(v.after)
}

// least is a log-probability in JSON, which has no infinity.
func least(p float64) float64 { return max(p, -9999) }

// logProbs returns the log-probabilities of tokens, in the form of each path, and their error. Nil
// if none are asked for.
func (v *view) logProbs(tokens []engine.Token) any {
	if v.asked.LogProbs < 0 {
		return nil
	}
	off := v.s.off(v.by, slices.ContainsFunc(tokens, func(t engine.Token) bool { return t.Shared }))
	if v.asked.chat {
		content := make([]object, len(tokens))
		for i, t := range tokens {
			top := []object{}
			if v.asked.LogProbs > 0 || len(v.asked.Named) > 0 {
				for _, x := range t.Top {
					top = append(top, v.entry(x.ID, x.Piece, x.Special, x.LogProb))
				}
			}
			content[i] = v.entry(t.ID, t.Piece, t.Special, t.LogProb)
			content[i]["top_logprobs"] = top
		}
		return object{"content": content, "refusal": nil, "logprob_error": off}
	}
	l := v.list(tokens)
	l["logprob_error"] = off
	return l
}

// list returns the log-probabilities of tokens in the form of /v1/completions: by the texts of
// tokens, or by ids where another token has the same text.
func (v *view) list(tokens []engine.Token) object {
	texts, probs, tops, offsets := []string{}, []float64{}, []any{}, []int{}
	for _, t := range tokens {
		text := v.shown(t.ID, t.Piece, t.Special)
		texts, probs, offsets = append(texts, text), append(probs, least(t.LogProb)), append(offsets, v.offset)
		for v.part += t.Piece; utf8.FullRuneInString(v.part); v.offset++ {
			_, size := utf8.DecodeRuneInString(v.part)
			v.part = v.part[size:]
		}
		top := map[string]float64{text: least(t.LogProb)}
		for _, x := range t.Top {
			if x.ID == t.ID {
				continue
			}
			key := v.shown(x.ID, x.Piece, x.Special)
			if _, twice := top[key]; twice {
				key = byID(x.ID)
			}
			top[key] = least(x.LogProb)
		}
		tops = append(tops, top)
	}
	return object{"tokens": texts, "token_logprobs": probs, "top_logprobs": tops, "text_offset": offsets}
}

// shown returns the text of a token as answers show it: the name of a token without text, and the
// bytes of a part of a character, as \xe2\x82, after a prefix. JSON has no bytes.
func shown(text, special, prefix string) string {
	switch {
	case text == "":
		return special
	case utf8.ValidString(text):
		return text
	}
	for _, b := range []byte(text) {
		prefix += fmt.Sprintf(`\x%02x`, b)
	}
	return prefix
}

// entry describes a token. Its bytes are what it adds to the text: null for none.
func entry(text, special string, p float64) object {
	var bytes []int
	for _, b := range []byte(text) {
		bytes = append(bytes, int(b))
	}
	return object{"token": shown(text, special, ""), "logprob": least(p), "bytes": bytes}
}

// byID is the name of a token by its id, as vLLM writes it.
func byID(id uint32) string { return fmt.Sprintf("token_id:%d", id) }

// shown is how /v1/completions shows a token.
func (v *view) shown(id uint32, text, special string) string {
	if v.asked != nil && v.asked.byID {
		return byID(id)
	}
	return shown(text, special, "bytes:")
}

// entry describes a token of a chat.
func (v *view) entry(id uint32, text, special string, p float64) object {
	o := entry(text, special, p)
	if v.asked.byID {
		o["token"] = byID(id)
	}
	return o
}
