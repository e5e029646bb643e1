package openai

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// score answers with the log-probabilities of answers after a prompt or a chat.
func (s *Server) score(w http.ResponseWriter, r *http.Request) *failure {
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
	prompt, answers, failed := s.toScore(client.ctx, f)
	if failed != nil {
		return failed
	}
	alone, fresh := f.boolean("deterministic"), f.fresh()
	if f.failed != nil {
		return f.failed
	}
	f.of = nil
	bytes := int64(4 * len(prompt))
	for _, a := range answers {
		bytes += int64(24 + 12*len(a)) // with log-probabilities
	}
	if failed := h.become(bytes); failed != nil {
		return failed
	}
	job, failed := s.start(place.Score(client.ctx, engine.Request{Prompt: prompt, Alone: alone, Fresh: fresh}, answers))
	if failed != nil {
		return failed
	}
	client.wait(w, job)
	result, err := job.Result()
	if failed := ended(err, ""); failed != nil {
		return failed
	}
	noteOf(w).results(result)
	f.tell(w)
	sums, best := make([]float64, len(answers)), math.Inf(-1)
	for i, a := range result.Answers {
		for _, p := range a.LogProbs {
			sums[i] += least(p)
		}
		best = max(best, sums[i])
	}
	among := 0.0
	for _, x := range sums {
		among += math.Exp(x - best)
	}
	list := make([]object, len(answers))
	used := usageOf(result)
	for i, a := range result.Answers {
		tokens := make([]object, len(a.Tokens))
		for j, id := range a.Tokens {
			tokens[j] = entry(s.m.Piece(id), s.m.Name(id), a.LogProbs[j])
			tokens[j]["id"] = id
		}
		list[i] = object{"index": i, "logprob": sums[i], "probability_among": math.Exp(sums[i]-best) / among, "tokens": tokens}
		used.Prompt += len(a.Tokens) - 1
	}
	used.Total = used.Prompt
	return s.answer(w, object{"object": "score", "model": s.o.Name, "answers": list, "logprob_error": s.off(job.Head(), result.Shared),
		"usage": used})
}

// written are the fields of a request for text that say how tokens are written.
var written = []string{"max_tokens", "max_completion_tokens", "stream", "stream_options", "stop", "seed", "temperature", "top_p", "top_k", "min_p",
	"presence_penalty", "frequency_penalty", "repeat_penalty", "repeat_last_n", "logprobs", "top_logprobs", "logit_bias", "allowed_tokens", "ignore_eos",
	"logprob_token_ids", "return_tokens_as_token_ids", "grammar"}

// toScore reads a prompt, or messages, and the tokens of answers. Tokens may reach over the end of
// the prompt: the common beginning of all texts of prompt and answer is the prompt.
func (s *Server) toScore(ctx context.Context, f *fields) (prompt []uint32, answers [][]uint32, failed *failure) {
	for _, name := range []string{"n", "best_of"} {
		if n := f.integer(name, 1, 1, math.MaxInt32); n != 1 {
			return nil, nil, wrong(name, "found %d, expected 1: an answer has one score", n)
		}
	}
	f.unbuilt(false)
	if schema, isObject := f.format(); schema != nil || isObject {
		f.fail("response_format", "found %s, expected none: /v1/score writes no tokens", short(f.of["response_format"]))
	}
	if f.failed != nil {
		return nil, nil, f.failed
	}
	if f.known(slices.Concat(anywhere, written, []string{"prompt", "messages", "answers"}), s.o.Strict); f.failed != nil {
		return nil, nil, f.failed
	}
	for _, name := range written {
		if f.has(name) {
			return nil, nil, wrong(name, "found %s, expected none: /v1/score writes no tokens, it takes prompt or messages, and answers", short(f.of[name]))
		}
	}
	text := ""
	if f.has("messages") {
		if text, failed = s.chat(ctx, f, nil); failed != nil {
			return nil, nil, failed
		}
	} else if !f.get("prompt", "a string", &text) || text == "" {
		return nil, nil, cmp.Or(f.failed, wrong("prompt", "found none, expected a string, or messages"))
	}
	list := f.texts("answers", "a list of strings", mostAnswers)
	if f.failed != nil {
		return nil, nil, f.failed
	}
	if len(list) == 0 || len(list) > mostAnswers {
		return nil, nil, wrong("answers", "found %d, expected 1 to %d", len(list), mostAnswers)
	}
	for i, answer := range list {
		if most := mostBytes * engine.AnswerTokens; answer == "" {
			return nil, nil, wrong("answers", "found an empty string, expected texts")
		} else if len(answer) > most {
			return nil, nil, wrong("answers", "string %d: found %d bytes, expected at most %d, which %d tokens have room for", i, len(answer), most, engine.AnswerTokens)
		}
	}
	if prompt, failed = s.tokens(ctx, "prompt", text); failed != nil {
		return nil, nil, failed
	}
	if len(prompt) > s.m.Context() { // before it is read again with each answer
		_, failed := s.start(nil, &engine.TooLongError{Tokens: len(prompt), Context: s.m.Context()})
		return nil, nil, failed
	}
	all, failed := s.together(ctx, text, prompt, list)
	if failed != nil {
		return nil, nil, failed
	}
	common := len(prompt)
	for _, x := range all {
		n := min(x.after, common)
		for n < min(common, x.after+len(x.ids)-1) && x.ids[n-x.after] == prompt[n] {
			n++
		}
		common = n
	}
	if common == 0 {
		return nil, nil, wrong("prompt", "found %.40q, all of whose tokens change with the answers, expected one token at least before these", text)
	}
	for i, x := range all {
		answers = append(answers, slices.Concat(prompt[min(common, x.after):x.after], x.ids[max(0, common-x.after):]))
		if j := slices.IndexFunc(answers[:i], func(before []uint32) bool { return slices.Equal(before, answers[i]) }); j >= 0 {
			return nil, nil, wrong("answers", "found %.40q and %.40q, which are the same tokens, expected each once", list[j], list[i])
		}
	}
	return prompt[:common], answers, nil
}

// tail is the number of bytes at the end of a prompt that are read again with each answer.
const tail = 512

// joined are the tokens of a prompt with an answer: the first of the prompt alone, and others.
type joined struct {
	after int
	ids   []uint32
}

// together returns the tokens of the prompt with each answer. The prompt is read once, and its end
// again with each answer: tokens are merged from pieces of a text, and whether two tokens may follow
// each other depends on these two alone. So the tokens of the end and the answer follow on those of
// the prompt before it if they begin with a token that the prompt has there too.
func (s *Server) together(ctx context.Context, text string, prompt []uint32, answers []string) ([]joined, *failure) {
	cut := max(0, len(text)-tail)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	end, failed := prompt, (*failure)(nil)
	if cut > 0 {
		if end, failed = s.tokens(ctx, "prompt", text[cut:]); failed != nil {
			return nil, failed
		}
	}
	// The tokens of the end, after what it begins with because it is cut there, are the prompt's.
	same := 0
	for same < min(len(end), len(prompt)) && end[len(end)-1-same] == prompt[len(prompt)-1-same] {
		same++
	}
	odd := end[:len(end)-same]
	again := mostBytes * s.m.Context() // bytes of prompts that are read again where that is not so
	all := make([]joined, len(answers))
	for i, answer := range answers {
		if same > 0 {
			ids, failed := s.tokens(ctx, "answers", text[cut:]+answer)
			if failed != nil {
				return nil, failed
			}
			if n := len(odd) + 1; len(ids) >= n && slices.Equal(ids[:n], end[:n]) {
				all[i] = joined{len(prompt) - same, ids[len(odd):]}
				continue
			}
		}
		if again -= len(text); cut > 0 && again < 0 {
			return nil, wrong("answers", "found a prompt of %d bytes whose tokens change with many answers, expected fewer answers, or a shorter prompt", len(text))
		}
		if all[i].ids, failed = s.tokens(ctx, "answers", text+answer); failed != nil {
			return nil, failed
		}
	}
	return all, nil
}
