package main

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/gbnf"
	"github.com/learning-to-screen/l2s/sample"
)

// benchSchema is the schema of the task json: ten fields.
const benchSchema = `{"type":"object","additionalProperties":false,
"required":["name","kind","state","port","weight","secure","protocols","regions","owner","limits"],
"properties":{
	"name":{"type":"string","maxLength":24},
	"kind":{"enum":["server","proxy","database","queue"]},
	"state":{"enum":["running","stopped","restarting"]},
	"port":{"type":"integer","minimum":1,"maximum":65535},
	"weight":{"type":"number","minimum":0,"maximum":100},
	"secure":{"type":"boolean"},
	"protocols":{"type":"array","items":{"enum":["http","https","grpc","tcp"]},"minItems":1,"maxItems":4},
	"regions":{"type":"array","items":{"type":"string","maxLength":12},"maxItems":3},
	"owner":{"type":["string","null"],"maxLength":24},
	"limits":{"type":"object","additionalProperties":false,"required":["memory","unit"],"properties":{"memory":{"type":"integer","minimum":1,"maximum":1024},"unit":{"enum":["MB","GB"]}}}}}`

// json: texts by a schema, one after the other, the best allowed token each time.
func (l *lineup) json() error {
	g := gbnf.New()
	rule, err := g.Schema([]byte(benchSchema))
	if err != nil {
		return err
	}
	g.Rule("root", rule)
	between := l.b.m.Tokens("\n", false)[0] // after the end of a text
	grammar, err := engine.NewVocabulary(l.b.m).Grammar(g.String(), "")
	if err != nil {
		return err
	}
	own, err := newJudged(l.b, g.String())
	if err != nil {
		return err
	}
	l.add("json", "llama.cpp", false, func(id uint32) (uint32, error) {
		id, err := own.step(id)
		if err == nil && l.b.m.Ends(id) {
			llama.SamplerReset(own.grammar)
			return between, nil
		} else if err == nil {
			llama.SamplerAccept(own.grammar, llama.Token(id))
		}
		return id, err
	})
	l.list[len(l.list)-1].begin = func() { llama.SamplerReset(own.grammar) }
	for _, h := range l.heads {
		s := engine.Sampling{Options: sample.DefaultOptions(), Grammar: grammar}
		s.Options.Temperature = 0
		c, err := engine.NewChooser(h.x, s)
		if err != nil {
			return err
		}
		var ids []uint32 // that are not read
		l.add("json", h.name, true, func(id uint32) (uint32, error) {
			ids = append(ids, id)
			next, only := c.Forced()
			if !only {
				start := time.Now()
				state, err := l.b.m.Feed(context.Background(), 0, ids...)
				if l.b.model += time.Since(start); err != nil {
					return 0, err
				}
				ids = ids[:0]
				c.Begin()
				if next, _, err = c.Next(state, nil); err != nil {
					return 0, err
				}
			}
			if l.b.m.Ends(next) {
				c.Restart()
				return between, nil
			}
			c.Accept(next)
			return next, nil
		})
		l.list[len(l.list)-1].begin = func() { c.Restart(); ids = ids[:0] }
	}
	return nil
}

// judged is llama.cpp with its grammar sampler, as its server uses it: the token that its samplers
// choose among all is judged alone, and all tokens are only if it is refused.
type judged struct {
	b              *bench
	chain, grammar llama.Sampler
	tokens         []llama.TokenData
}

func newJudged(b *bench, grammar string) (*judged, error) {
	j := &judged{b: b, tokens: make([]llama.TokenData, b.own.labels)}
	j.chain = llama.SamplerChainInit(llama.SamplerChainDefaultParams())
	llama.SamplerChainAdd(j.chain, llama.SamplerInitGreedy())
	j.grammar = llama.SamplerInitGrammar(llama.ModelGetVocab(b.m.Llama()), grammar, "root")
	runtime.AddCleanup(j, func(list []llama.Sampler) {
		for _, s := range list {
			llama.SamplerFree(s)
		}
	}, []llama.Sampler{j.chain, j.grammar})
	return j, nil
}

func (j *judged) step(id uint32) (uint32, error) {
	if err := j.b.own.feed(1, id); err != nil {
		return 0, err
	}
	first := llama.SamplerSample(j.chain, j.b.own.ctx, -1)
	j.tokens = append(j.tokens[:0], llama.TokenData{Id: first})
	one := llama.TokenDataArray{Data: &j.tokens[0], Size: 1, Selected: -1}
	if llama.SamplerApply(j.grammar, &one); !math.IsInf(float64(j.tokens[0].Logit), -1) {
		return uint32(first), nil
	}
	logits, err := j.b.own.logits(-1)
	if err != nil {
		return 0, err
	}
	j.tokens = j.tokens[:0]
	for i, x := range logits {
		j.tokens = append(j.tokens, llama.TokenData{Id: llama.Token(i), Logit: x})
	}
	all := llama.TokenDataArray{Data: &j.tokens[0], Size: uint64(len(j.tokens)), Selected: -1}
	llama.SamplerApply(j.grammar, &all)
	llama.SamplerApply(j.chain, &all)
	return uint32(j.tokens[all.Selected].Id), nil
}
