package openai

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

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
}

func usageOf(r engine.Result) *usage { return &usage{r.Read, r.Written, r.Read + r.Written} }

// complete answers a request for text.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) *failure {
	f, release, failed := s.read(w, r)
	if failed != nil {
		return failed
	}
	a, failed := s.ask(r.Context(), f, chat)
	release()
	if failed != nil {
		return failed
	}
	v := &view{s: s, asked: a, created: time.Now().Unix()}
	v.id = "cmpl-" + rand.Text()
	if chat {
		v.id = "chat" + v.id
	}
	ctx, cancel := context.WithCancel(r.Context()) // who takes no part of an answer frees its place
	defer cancel()
	if !a.stream {
		var all piece
		a.Write = func(text string, tokens []engine.Token) bool {
			all.text += text
			all.tokens = append(all.tokens, tokens...)
			return true
		}
		job, failed := s.start(s.Start(ctx, a.Request))
		if failed != nil {
			return failed
		}
		<-job.Done()
		result, err := job.Result()
		if failed := ended(err); failed != nil {
			return failed
		}
		return s.answer(w, v.whole(all, result))
	}
	feed := &feed{come: make(chan struct{}, 1)}
	a.Write = feed.write
	job, failed := s.start(s.Start(ctx, a.Request))
	if failed != nil {
		return failed
	}
	out := &events{s: s, w: w}
	for begun, done := false, false; !done && out.err == nil; begun = true {
		select {
		case <-feed.come:
		case <-job.Done():
			done = true
			if _, err := job.Result(); err != nil && !begun { // the answer can have a status still
				return ended(err)
			}
		}
		if !begun {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-cache")
			if chat {
				out.send(v.chunk(piece{}, "", true))
			}
		}
		for _, p := range feed.take() {
			out.send(v.chunk(p, "", false))
		}
		out.flush()
	}
	if out.err != nil {
		cancel()
		<-job.Done()
		return nil
	}
	result, err := job.Result()
	if failed := ended(err); failed != nil {
		out.send(map[string]any{"error": failed})
	} else {
		out.send(v.chunk(piece{}, result.Reason, false))
		if a.usage {
			last := v.chunk(piece{}, "", false)
			last["choices"], last["usage"] = []any{}, usageOf(result)
			out.send(last)
		}
		out.data([]byte("[DONE]"))
	}
	out.flush()
	return nil
}

// events are server-sent events.
type events struct {
	s   *Server
	w   http.ResponseWriter
	buf bytes.Buffer
	err error
}

func (e *events) send(x any) {
	e.buf.Reset()
	encode(&e.buf, x)
	e.data(bytes.TrimSpace(e.buf.Bytes()))
}

// data writes an event, of one line.
func (e *events) data(line []byte) {
	if e.err != nil {
		return
	}
	e.s.patient(e.w)
	for _, part := range [][]byte{[]byte("data: "), line, []byte("\n\n")} {
		if _, e.err = e.w.Write(part); e.err != nil {
			return
		}
	}
}

func (e *events) flush() {
	if e.err == nil {
		e.err = http.NewResponseController(e.w).Flush()
	}
}

// view is how a request sees its answer.
type view struct {
	s       *Server
	asked   *asked
	id      string
	created int64
	offset  int // of the text, in characters
}

type object = map[string]any

// head is what all answers begin with.
func (v *view) head(kind string) object {
	return object{"id": v.id, "object": kind, "created": v.created, "model": v.s.o.Name}
}

// whole is an answer at once.
func (v *view) whole(all piece, r engine.Result) object {
	choice := object{"index": 0, "finish_reason": r.Reason, "logprobs": v.logProbs(all.tokens)}
	kind := "text_completion"
	if v.asked.chat {
		kind = "chat.completion"
		choice["message"] = object{"role": "assistant", "content": all.text, "refusal": nil}
	} else {
		choice["text"] = all.text
	}
	o := v.head(kind)
	o["choices"], o["usage"] = []any{choice}, usageOf(r)
	return o
}

// chunk is a part of an answer: the first of a chat, a text, or the last, with a reason.
func (v *view) chunk(p piece, reason engine.Reason, first bool) object {
	choice := object{"index": 0, "finish_reason": nil, "logprobs": nil}
	if len(p.tokens) > 0 {
		choice["logprobs"] = v.logProbs(p.tokens)
	}
	if reason != "" {
		choice["finish_reason"] = reason
	}
	kind := "text_completion"
	if v.asked.chat {
		kind = "chat.completion.chunk"
		delta := object{}
		switch {
		case first:
			delta["role"], delta["content"] = "assistant", ""
		case reason == "":
			delta["content"] = p.text
		}
		choice["delta"] = delta
	} else {
		choice["text"] = p.text
	}
	o := v.head(kind)
	o["choices"] = []any{choice}
	if v.asked.usage {
		o["usage"] = nil
	}
	return o
}

// least is a log-probability in JSON, which has no infinity.
func least(p float64) float64 { return max(p, -9999) }

// logProbs are the log-probabilities of tokens, as each path has them, and what they may be off by.
// Nil if none are asked for.
func (v *view) logProbs(tokens []engine.Token) any {
	if v.asked.LogProbs < 0 {
		return nil
	}
	off := engine.LogProbError(v.s.x, v.s.o.Budget)
	if v.asked.chat {
		content := make([]object, len(tokens))
		for i, t := range tokens {
			top := make([]object, len(t.Top))
			for j, x := range t.Top {
				top[j] = entry(x.Piece, x.LogProb)
			}
			content[i] = entry(t.Piece, t.LogProb)
			content[i]["top_logprobs"] = top
		}
		return object{"content": content, "refusal": nil, "logprob_error": off}
	}
	texts, probs, tops, offsets := []string{}, []float64{}, []any{}, []int{}
	for _, t := range tokens {
		texts, probs, offsets = append(texts, t.Piece), append(probs, least(t.LogProb)), append(offsets, v.offset)
		v.offset += utf8.RuneCountInString(t.Piece)
		top := map[string]float64{}
		for _, x := range t.Top {
			if p, twice := top[x.Piece]; !twice || x.LogProb > p { // parts of characters look alike
				top[x.Piece] = least(x.LogProb)
			}
		}
		tops = append(tops, top)
	}
	return object{"tokens": texts, "token_logprobs": probs, "top_logprobs": tops, "text_offset": offsets, "logprob_error": off}
}

func entry(text string, p float64) object {
	bytes := make([]int, len(text))
	for i := range len(text) {
		bytes[i] = int(text[i])
	}
	return object{"token": text, "logprob": least(p), "bytes": bytes}
}
