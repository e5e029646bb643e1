package openai

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// score answers with the log-probabilities of answers after a prompt or a chat.
func (s *Server) score(w http.ResponseWriter, r *http.Request) *failure {
	f, release, failed := s.read(w, r)
	if failed != nil {
		return failed
	}
	prompt, answers, failed := s.toScore(r.Context(), f)
	release()
	if failed != nil {
		return failed
	}
	job, failed := s.start(s.Score(r.Context(), prompt, answers))
	if failed != nil {
		return failed
	}
	<-job.Done()
	result, err := job.Result()
	if failed := ended(err); failed != nil {
		return failed
	}
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
	read := result.Read
	for i, a := range result.Answers {
		tokens := make([]object, len(a.Tokens))
		for j, id := range a.Tokens {
			tokens[j] = entry(s.m.Piece(id), s.m.Name(id), a.LogProbs[j])
			tokens[j]["id"] = id
		}
		list[i] = object{"index": i, "logprob": sums[i], "probability_among": math.Exp(sums[i]-best) / among, "tokens": tokens}
		read += len(a.Tokens) - 1
	}
	return s.answer(w, object{"object": "score", "model": s.o.Name, "answers": list, "logprob_error": engine.LogProbError(s.x, s.o.Budget),
		"usage": usage{read, 0, read}})
}

// written are the fields of a request for text that say how tokens are written.
var written = []string{"max_tokens", "max_completion_tokens", "stream", "stream_options", "stop", "seed", "temperature", "top_p", "top_k", "min_p",
	"presence_penalty", "frequency_penalty", "repeat_penalty", "repeat_last_n", "logprobs", "top_logprobs", "logit_bias", "allowed_tokens", "ignore_eos"}

// toScore reads a prompt, or messages, and the tokens of answers. Tokens may reach over the end of
// the prompt: the common beginning of all texts of prompt and answer is the prompt.
func (s *Server) toScore(ctx context.Context, f *fields) (prompt []uint32, answers [][]uint32, failed *failure) {
	if f.unbuilt(); f.failed != nil {
		return nil, nil, f.failed
	}
	for _, name := range written {
		if f.has(name) {
			return nil, nil, wrong(name, "found %s, expected none: /v1/score writes no tokens, it takes prompt or messages, and answers", short(f.of[name]))
		}
	}
	text := ""
	if f.has("messages") {
		if text, failed = s.chat(f); failed != nil {
			return nil, nil, failed
		}
	} else if !f.get("prompt", "a string", &text) || text == "" {
		return nil, nil, cmp.Or(f.failed, wrong("prompt", "found none, expected a string, or messages"))
	}
	list := f.texts("answers", "a list of strings")
	if f.failed != nil {
		return nil, nil, f.failed
	}
	if len(list) == 0 || len(list) > mostAnswers {
		return nil, nil, wrong("answers", "found %d, expected 1 to %d", len(list), mostAnswers)
	}
	if prompt, failed = s.tokens(ctx, "prompt", text); failed != nil {
		return nil, nil, failed
	}
	if len(prompt) > s.m.Context() { // before it is read again with each answer
		_, failed := s.start(nil, &engine.TooLongError{Tokens: len(prompt), Context: s.m.Context()})
		return nil, nil, failed
	}
	common := len(prompt)
	for _, answer := range list {
		if answer == "" {
			return nil, nil, wrong("answers", "found an empty string, expected texts")
		}
		all, failed := s.tokens(ctx, "answers", text+answer)
		if failed != nil {
			return nil, nil, failed
		}
		n := 0
		for n < min(common, len(all)-1) && all[n] == prompt[n] {
			n++
		}
		common = n
		answers = append(answers, all)
	}
	if common == 0 {
		return nil, nil, wrong("prompt", "found %.40q, all of whose tokens change with the answers, expected one token at least before these", text)
	}
	for i := range answers {
		answers[i] = answers[i][common:]
		if j := slices.IndexFunc(answers[:i], func(before []uint32) bool { return slices.Equal(before, answers[i]) }); j >= 0 {
			return nil, nil, wrong("answers", "found %.40q and %.40q, which are the same tokens, expected each once", list[j], list[i])
		}
	}
	return prompt[:common], answers, nil
}
