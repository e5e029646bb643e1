package openai

import (
	"reflect"
	"testing"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// Each token has its own place in top_logprobs, whatever its text: tokens of equal texts, parts of
// characters, and tokens without text. Offsets count whole characters, over all parts of a stream.
func TestTheListOfLogProbs(t *testing.T) {
	top := func(id uint32, piece string, p float64) engine.Top {
		return engine.Top{ID: id, Piece: piece, LogProb: p}
	}
	v := &view{}
	for i, c := range []struct {
		token  engine.Token
		text   string
		top    map[string]float64
		offset int
	}{
		{engine.Token{ID: 1, Piece: "a", LogProb: -2, Top: []engine.Top{top(2, "a", -1), top(1, "a", -2), top(3, "a", -3)}}, "a", map[string]float64{"a": -2, "token_id:2": -1, "token_id:3": -3}, 0},
		{engine.Token{ID: 4, Piece: "\xe2\x82", LogProb: -1, Top: []engine.Top{top(4, "\xe2\x82", -1), top(5, "\xe2", -2), top(6, "\xe3", -3)}}, `bytes:\xe2\x82`,
			map[string]float64{`bytes:\xe2\x82`: -1, `bytes:\xe2`: -2, `bytes:\xe3`: -3}, 1},
		{engine.Token{ID: 7, Piece: "\xac", Top: []engine.Top{top(7, "\xac", 0)}}, `bytes:\xac`, map[string]float64{`bytes:\xac`: 0}, 1},
		{engine.Token{ID: 8, Special: "<|im_end|>", LogProb: -1, Top: []engine.Top{{ID: 8, Special: "<|im_end|>", LogProb: -1}, {ID: 9, Special: "<|im_start|>", LogProb: -2}}}, "<|im_end|>",
			map[string]float64{"<|im_end|>": -1, "<|im_start|>": -2}, 2},
		{engine.Token{ID: 10, Piece: "é\xff"}, `bytes:\xc3\xa9\xff`, map[string]float64{`bytes:\xc3\xa9\xff`: 0}, 2},
		{engine.Token{ID: 11, Piece: "b"}, "b", map[string]float64{"b": 0}, 4}, // after a character in the place of \xff
	} {
		want := object{"tokens": []string{c.text}, "token_logprobs": []float64{c.token.LogProb}, "top_logprobs": []any{c.top}, "text_offset": []int{c.offset}}
		if found := v.list([]engine.Token{c.token}); !reflect.DeepEqual(found, want) {
			t.Errorf("token %d: found %v, expected %v", i, found, want)
		}
	}
}
