package openai

import (
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// choices reads the number of answers.
func (s *Server) choices(f *fields) int {
	n := f.integer("n", 1, 1, int64(max(s.o.Parallel, 1)))
	if of := f.integer("best_of", n, 1, 1<<30); of != n {
		f.fail("best_of", "found %d, expected n, %d: all answers are returned", of, n)
	}
	if n > 1 && f.boolean("deterministic") {
		f.fail("n", "found %d with deterministic, expected 1: such a request is computed alone", n)
	}
	return int(n)
}

// named reads the tokens whose log-probabilities come with each token, as in vLLM, which wants the field
// that asks for log-probabilities too.
func (s *Server) named(f *fields, a *asked) {
	a.byID = f.boolean("return_tokens_as_token_ids")
	n := 0
	f.list("logprob_token_ids", "a list of ids of tokens", func(v jsonscan.Value) error {
		id, err := tokenID(v)
		switch {
		case err != nil:
			return err
		case int64(id) >= int64(s.x.Labels()):
			f.fail("logprob_token_ids", "found %d, expected ids below %d", id, s.x.Labels())
			return f.failed
		}
		if n++; n <= mostNamed && !slices.Contains(a.Named, id) {
			a.Named = append(a.Named, id)
		}
		return nil
	})
	if n > mostNamed {
		f.fail("logprob_token_ids", "found %d ids, expected at most %d", n, mostNamed)
	}
	if len(a.Named) > 0 && a.LogProbs < 0 {
		f.fail("logprob_token_ids", "found ids without logprobs, expected both")
	}
}

// seeded returns the requests of all choices: the seed of each is one more than that of the one before.
func (a *asked) seeded() []engine.Request {
	all := make([]engine.Request, a.choices)
	for i := range all {
		all[i] = a.Request
		all[i].Options.Seed += uint64(i)
	}
	return all
}
