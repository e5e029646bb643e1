package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// piece is a part of an answer, as it comes.
type piece struct {
	text   string
	tokens []engine.Token
}

// feed holds parts of an answer until the client takes them.
type feed struct {
	mu     sync.Mutex
	pieces []piece
	come   chan struct{}
}

func (f *feed) write(text string, tokens []engine.Token) bool {
	f.mu.Lock()
	f.pieces = append(f.pieces, piece{text, tokens})
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

func usageOf(r engine.Result) *usage {
	u := &usage{Prompt: r.Read, Completion: r.Written, Total: r.Read + r.Written}
	u.Details.Cached = r.Cached
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
	v := &view{s: s, asked: a, created: time.Now().Unix()}
	v.id = "cmpl-" + rand.Text()
	if chat {
		v.id = "chat" + v.id
	}
	ctx := client.ctx
	if !a.stream {
		var all piece
		a.Write = func(text string, tokens []engine.Token) bool {
			all.text += text
			all.tokens = append(all.tokens, tokens...)
			return true
		}
		job, failed := s.start(place.Start(ctx, a.Request))
		if failed != nil {
			return failed
		}
		client.wait(w, job)
		v.by = job.Head()
		result, err := job.Result()
		if failed := ended(err); failed != nil {
			return failed
		}
		return s.answer(w, v.whole(all, result))
	}
	feed := &feed{come: make(chan struct{}, 1)}
	a.Write = feed.write
	job, failed := s.start(place.Start(ctx, a.Request))
	if failed != nil {
		return failed
	}
	v.by = job.Head()
	out := newEvents(s, w)
	headers := func() {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
	}
	for begun, done := false, false; !done && out.err == nil; {
		select {
		case <-feed.come:
		case <-client.ended:
			client.probe(headers)
			continue
		case <-job.Done():
			done = true
			if _, err := job.Result(); err != nil && !begun { // the answer can have a status still
				return ended(err)
			}
		}
		if !begun {
			headers()
			v.begin()
			if chat {
				v.chunk(out, piece{}, "", true)
			}
			begun = true
		}
		for _, p := range feed.take() {
			v.chunk(out, p, "", false)
		}
		if !done { // otherwise the last events come with these
			out.flush()
		}
	}
	if out.err != nil {
		stop() // who takes no part of an answer frees its place
		<-job.Done()
		return nil
	}
	result, err := job.Result()
	if failed := ended(err); failed != nil {
		out.send(object{"error": failed})
	} else {
		v.chunk(out, piece{}, result.Reason, false)
		if a.usage {
			last := v.head()
			last["choices"], last["usage"] = []any{}, usageOf(result)
			out.send(last)
		}
		out.buf.WriteString("data: [DONE]\n\n")
	}
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
	offset  int    // of the text, in whole characters
	part    string // the bytes of a character after them

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

// whole returns a whole answer.
func (v *view) whole(all piece, r engine.Result) object {
	choice := object{"index": 0, "finish_reason": r.Reason, "logprobs": v.logProbs(all.tokens)}
	if v.asked.chat {
		choice["message"] = object{"role": "assistant", "content": all.text, "refusal": nil}
	} else {
		choice["text"] = all.text
	}
	o := v.head()
	o["choices"], o["usage"] = []any{choice}, usageOf(r)
	return o
}

// begin prepares the events of a stream.
func (v *view) begin() {
	var head bytes.Buffer
	encode(&head, v.head())
	v.before = "data: " + strings.TrimSuffix(head.String(), "}\n") + `,"choices":[{"index":0,`
	v.after = "}]}\n\n"
	if v.asked.usage {
		v.after = "}],\"usage\":null}\n\n"
	}
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
			if v.asked.LogProbs > 0 {
				for _, x := range t.Top {
					top = append(top, entry(x.Piece, x.Special, x.LogProb))
				}
			}
			content[i] = entry(t.Piece, t.Special, t.LogProb)
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
		text := shown(t.Piece, t.Special, "bytes:")
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
			key := shown(x.Piece, x.Special, "bytes:")
			if _, twice := top[key]; twice {
				key = fmt.Sprintf("token_id:%d", x.ID)
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
