package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/gbnf"
	"github.com/learning-to-screen/l2s/preview"
)

// judge is llama.cpp's own judgement of all tokens: the oracle.
type judge struct {
	s      llama.Sampler
	tokens []llama.TokenData
}

func newJudge(t testing.TB, m *llamacpp.Model, grammar string) *judge {
	t.Helper()
	j := &judge{s: llama.SamplerInitGrammar(llama.ModelGetVocab(m.Llama()), grammar, "root"), tokens: make([]llama.TokenData, m.Labels())}
	if j.s == 0 {
		t.Fatalf("llama.cpp reads no grammar:\n%s", grammar)
	}
	t.Cleanup(func() { llama.SamplerFree(j.s) })
	return j
}

func (j *judge) allowed() (ids []uint32) {
	for i := range j.tokens {
		j.tokens[i] = llama.TokenData{Id: llama.Token(i)}
	}
	all := llama.TokenDataArray{Data: &j.tokens[0], Size: uint64(len(j.tokens)), Selected: -1}
	llama.SamplerApply(j.s, &all)
	for i, x := range j.tokens {
		if !math.IsInf(float64(x.Logit), -1) {
			ids = append(ids, uint32(i))
		}
	}
	return ids
}

func (j *judge) accept(id uint32) { llama.SamplerAccept(j.s, llama.Token(id)) }

func schemaGrammar(t testing.TB, schema string) string {
	t.Helper()
	g := gbnf.New()
	name, err := g.Schema([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	g.Rule("root", name)
	return g.String()
}

const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":12},"kind":{"enum":["sailor","sail","farmer"]},"age":{"type":"integer","minimum":0,"maximum":150},
	"tags":{"type":"array","items":{"enum":["old","new"]},"minItems":1,"maxItems":3},"ok":{"type":"boolean"}},"required":["name","kind","age","tags","ok"],"additionalProperties":false}`

// The walk over the vocabulary finds the tokens that llama.cpp allows if it judges all of them, also
// for characters of several bytes, and for grammars that are not judged by beginnings.
func TestAllowedTokensAreLlamaCpps(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 64})
	v := engine.NewVocabulary(m)
	random := rand.New(rand.NewPCG(57, 2))
	for name, grammar := range map[string]string{
		"a schema": schemaGrammar(t, person), "any value": schemaGrammar(t, `true`),
		"characters": "root ::= [é-ü中😀]{1,9} \" \" [^\"] (\"Übung\" | \"日本\")",
		"negated":    "root ::= [^é中]{1,6} \"é\" [^\\u0080-\\uFFFF]{2}", "tokens": "root ::= (!<[17]> | <[5]> <[6]>){1,9}",
	} {
		g, err := v.Grammar(grammar, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 {
			j := newJudge(t, m, grammar)
			var text []uint32
			for range 8 {
				want := j.allowed()
				found, accepted := engine.GrammarWalk(g, text)
				if slices.Sort(found); accepted != len(text) || !slices.Equal(found, want) {
					t.Fatalf("%s, after %d tokens (%d accepted): found %d tokens, expected %d", name, len(text), accepted, len(found), len(want))
				}
				// One in three by its text, so that states within characters and words come too.
				id := want[random.IntN(len(want))]
				if m.Ends(id) {
					break
				}
				text = append(text, id)
				j.accept(id)
			}
		}
	}
	_ = x
}

// At temperature 0 a text is the best token that llama.cpp's grammar allows, one after the other, also
// by a preview, and runs of forced tokens are a part of it.
func TestGreedyUnderAGrammar(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 512, Sequences: 2})
	oracle, _ := open(t, llamacpp.Options{Context: 512})
	p, err := preview.Make(context.Background(), x.Layer(), l2s.Float32(realStates(t, x, 1500), x.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	y, err := m.Head(llamacpp.HeadOptions{Index: p})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	for name, head := range map[string]*llamacpp.Head{"exact": x, "preview": y} {
		e, stop := runs(t, m, head, engine.Options{Parallel: 2, Waiting: 4})
		for _, c := range []struct{ schema, grammar string }{{person, ""}, {`{"const":"a long constant of which nothing is left to choose, 0123456789"}`, ""}, {"", "root ::= (\"yes\" | \"no\") \"!\""}, {"", "root ::= [ぁ-ん]{3,5}"}} {
			grammar := c.grammar
			if grammar == "" {
				grammar = schemaGrammar(t, c.schema)
			}
			g, err := e.Vocabulary().Grammar(grammar, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, prompt := range prompts[:1] {
				s := greedy()
				s.Grammar = g
				ids := m.Tokens(prompt, true)
				job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: ids, Most: 48, Sampling: s, Ends: true, LogProbs: -1})
				r := end(t, job)
				j, text, written := newJudge(t, m, grammar), slices.Clone(ids), ""
				oracle.Clear(0)
				for i, token := range *tokens {
					allowed := j.allowed()
					h, err := oracle.Feed(context.Background(), 0, text...)
					if err != nil {
						t.Fatal(err)
					}
					all := make([]float64, len(allowed))
					if err := x.Logits(all, h, allowed...); err != nil {
						t.Fatal(err)
					}
					largest, at := slices.Max(all), slices.Index(allowed, token.ID)
					best := allowed[slices.Index(all, largest)]
					if at < 0 || all[at] < largest-near {
						t.Fatalf("%s, %s, token %d: found %q, expected %q", name, c.schema, i, m.Piece(token.ID), m.Piece(best))
					}
					j.accept(token.ID)
					text, written = []uint32{token.ID}, written+token.Piece
				}
				if r.Reason == engine.Stopped && !slices.ContainsFunc(j.allowed(), m.Ends) || r.Reason != engine.Stopped && r.Written != 48 {
					t.Errorf("%s, %s: found the end %v after %q", name, c.schema, r.Reason, written)
				}
			}
		}
		stop()
	}
}

// After the trigger the grammar holds, and before it all is free.
func TestATriggeredGrammar(t *testing.T) {
	m, _ := open(t, llamacpp.Options{Context: 64})
	v := engine.NewVocabulary(m)
	g, err := v.Grammar(`root ::= " ab" | "x"`, "<go>")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want int // tokens after the text that are allowed, of all
	}{{"free < go>", -1}, {"<go", -1}, {"some text <go> ab", 0}, {"<go>x", 0}, {"<go>y", -1}, {"<go>x<go>", -1}} {
		ids := m.Tokens(c.text, false)
		allowed, accepted := engine.GrammarWalk(g, ids)
		_ = allowed
		switch {
		case c.want == 0 && (accepted != len(ids) || !slices.ContainsFunc(allowed, m.Ends) || len(allowed) > 8):
			t.Errorf("%q: found %d of %d tokens accepted, and %d allowed, expected the end", c.text, accepted, len(ids), len(allowed))
		case c.text == "<go>x<go>" && accepted == len(ids):
			t.Errorf("%q: found all accepted, expected the end before", c.text)
		}
	}
}

// chiSquare fails if counts are not draws from the probabilities: by the Wilson-Hilferty approximation,
// at a chance of one in a million. Cells of fewer than 5 are taken together.
func chiSquare(t *testing.T, name string, counts map[string]int, probabilities map[string]float64) {
	t.Helper()
	n := 0
	for key, count := range counts {
		if n += count; probabilities[key] == 0 {
			t.Errorf("%s: found %d draws of %q, expected none", name, count, key)
		}
	}
	sum, cells, rare, rareWant := 0.0, 0, 0, 0.0
	add := func(count int, want float64) {
		sum += (float64(count) - want) * (float64(count) - want) / want
		cells++
	}
	for key, p := range probabilities {
		if want := p * float64(n); want < 5 {
			rare, rareWant = rare+counts[key], rareWant+want
		} else {
			add(counts[key], want)
		}
	}
	if rareWant > 1 {
		add(rare, rareWant)
	}
	free := float64(cells - 1)
	if free < 1 {
		t.Fatalf("%s: found %d cells, expected two at least: %v", name, cells, probabilities)
	}
	z := (math.Cbrt(sum/free) - (1 - 2/(9*free))) / math.Sqrt(2/(9*free))
	t.Logf("%s: chi-square %.1f of %v degrees of freedom (z = %.2f), %d draws", name, sum, free, z, n)
	if z > 4.75 {
		t.Errorf("%s: found %v, expected %v of %d: chi-square %.1f of %v degrees of freedom", name, counts, probabilities, n, sum, free)
	}
}

// 20,000 texts of a toy schema are draws from the distribution of the model with llama.cpp's grammar
// applied to all tokens, by the exact head and by a preview: the product of the masked and renormalised
// probabilities of the tokens, over all ways to write a text.
func TestDrawsUnderAGrammarHaveItsDistribution(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 64, Sequences: 2})
	const toy = `{"enum":["red","rose","r","green",17,[1,2]]}`
	grammar := schemaGrammar(t, toy)
	g, err := engine.NewVocabulary(m).Grammar(grammar, "")
	if err != nil {
		t.Fatal(err)
	}
	prompt := m.Tokens("The colour, in JSON:", true)
	if _, err := m.Feed(context.Background(), 0, prompt...); err != nil {
		t.Fatal(err)
	}
	states := map[string][]float32{} // of texts
	state := func(text []uint32) []float32 {
		h := states[fmt.Sprint(text)]
		if h == nil {
			if err := m.Cut(0, len(prompt)-1); err != nil {
				t.Fatal(err)
			}
			last, err := m.Feed(context.Background(), 0, append(slices.Clone(prompt[len(prompt)-1:]), text...)...)
			if err != nil {
				t.Fatal(err)
			}
			h = slices.Clone(last)
			states[fmt.Sprint(text)] = h
		}
		return h
	}
	want := map[string]float64{}
	var walk func(text []uint32, written string, p float64)
	walk = func(text []uint32, written string, p float64) {
		if p < 1e-6 { // rare ways to write a text
			return
		}
		ids, _ := engine.GrammarWalk(g, text)
		all := make([]float64, len(ids))
		if err := x.Logits(all, state(text), ids...); err != nil {
			t.Fatal(err)
		}
		sum := logSum(all)
		for i, id := range ids {
			q := p * math.Exp(all[i]-sum)
			if m.Ends(id) {
				want[written] += q
				continue
			}
			walk(append(slices.Clone(text), id), written+m.Piece(id), q)
		}
	}
	walk(nil, "", 1)
	s := engine.Sampling{Options: greedy().Options, Grammar: g}
	s.Options.Temperature, s.Options.Seed = 1, 57
	counts := map[string]int{}
	c, err := engine.NewChooser(x, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		c.Restart()
		var text []uint32
		written := ""
		for {
			c.Begin()
			id, _, err := c.Next(state(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if m.Ends(id) {
				break
			}
			c.Accept(id)
			text, written = append(text, id), written+m.Piece(id)
		}
		counts[written]++
	}
	chiSquare(t, toy, counts, want)
}

// Where a grammar leaves many tokens the one that is drawn from all is judged first, and if it is
// refused the samplers see the allowed ones alone, as in llama.cpp's server. Without truncations that
// is the masked distribution.
func TestDrawsAreJudgedAsInLlamaCppsServer(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 64})
	const grammar = `root ::= " " [a-m] [^0-9]*`
	g, err := engine.NewVocabulary(m).Grammar(grammar, "")
	if err != nil {
		t.Fatal(err)
	}
	prompt := m.Tokens("The first names the servers, the second their", true)
	all := logits(t, m, x, prompt)
	m.Clear(0)
	h, err := m.Feed(context.Background(), 0, prompt...)
	if err != nil {
		t.Fatal(err)
	}
	allowed := make([]bool, len(all))
	ids, _ := engine.GrammarWalk(g, nil)
	for _, id := range ids {
		allowed[id] = true
	}
	// chain returns the probabilities of a chain over some tokens: top-k, top-p, min-p, temperature.
	chain := func(o engine.Sampling, in func(id int) bool) map[string]float64 {
		var list []int
		for id := range all {
			if in(id) {
				list = append(list, id)
			}
		}
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(all[b], all[a]) })
		if k := o.Options.TopK; k > 0 {
			list = list[:min(k, len(list))]
		}
		weigh := func(temperature float64) (p []float64) {
			sum := 0.0
			for _, id := range list {
				p = append(p, math.Exp((all[id]-all[list[0]])/temperature))
				sum += p[len(p)-1]
			}
			for i := range p {
				p[i] /= sum
			}
			return p
		}
		sum := 0.0
		for i, p := range weigh(1) {
			if sum += p; sum >= o.Options.TopP {
				list = list[:i+1]
				break
			}
		}
		p := weigh(1)
		list = list[:len(slices.DeleteFunc(p, func(q float64) bool { return q < o.Options.MinP*p[0] }))]
		found := map[string]float64{}
		for i, q := range weigh(o.Options.Temperature) {
			found[fmt.Sprint(list[i])] = q
		}
		return found
	}
	plain, cut := greedy(), greedy()
	plain.Options.Temperature = 1
	cut.Options.Temperature, cut.Options.TopK, cut.Options.TopP, cut.Options.MinP = 0.8, 40, 0.95, 0.02
	for name, c := range map[string]struct {
		s engine.Sampling
		n int
	}{"without truncations": {plain, 500}, "with truncations": {cut, 800}} {
		s := c.s
		s.Grammar, s.Options.Seed = g, 58
		chooser, err := engine.NewChooser(x, s)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{}
		before, after := chain(s, func(int) bool { return true }), chain(s, func(id int) bool { return allowed[id] })
		refused := 0.0
		for id := range all {
			if !allowed[id] {
				refused += before[fmt.Sprint(id)]
			}
		}
		for id := range all {
			if key := fmt.Sprint(id); allowed[id] && before[key]+after[key] > 0 {
				want[key] = before[key] + refused*after[key]
			}
		}
		counts := map[string]int{}
		for range c.n {
			chooser.Begin()
			if chooser.Few() >= 0 {
				t.Fatalf("found %d tokens before the search, expected many", chooser.Few())
			}
			id, _, err := chooser.Next(h, nil)
			if err != nil {
				t.Fatal(err)
			}
			counts[fmt.Sprint(id)]++
		}
		if refused < 0.05 || refused > 0.95 {
			t.Errorf("%s: found a share of %v refused, expected a part", name, refused)
		}
		chiSquare(t, fmt.Sprintf("%s, %.2f refused", name, refused), counts, want)
	}
}
