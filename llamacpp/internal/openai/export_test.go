package openai

import (
	"context"
	"slices"
)

// Together returns the tokens of a prompt with each answer, as a score has them, and the number of
// bytes that were read for them.
func Together(s *Server, text string, answers []string) ([][]uint32, error) {
	prompt, failed := s.tokens(context.Background(), "prompt", text)
	if failed != nil {
		return nil, failed
	}
	all, failed := s.together(context.Background(), text, prompt, answers)
	if failed != nil {
		return nil, failed
	}
	var list [][]uint32
	for _, x := range all {
		list = append(list, slices.Concat(prompt[:x.after], x.ids))
	}
	return list, nil
}
