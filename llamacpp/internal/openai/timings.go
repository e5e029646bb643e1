package openai

import (
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// milliseconds is a time in answers and in the log.
func milliseconds(t time.Duration) float64 { return float64(t.Microseconds()) / 1e3 }

// timings are the times of a request, by the names of llama-server, and more: how many tokens the exact
// layer answered, the wait for a place, and the times of the model and of the head while tokens were
// written. Answers to one prompt are written at once: their tokens add up, their times do not.
func timings(results ...engine.Result) object {
	t := total(results)
	read := t.Read - t.Cached
	o := object{"cache_n": t.Cached, "prompt_n": read, "prompt_ms": milliseconds(t.Reading), "predicted_n": t.Written, "predicted_ms": milliseconds(t.Time),
		"exact_n": t.Exact, "queue_ms": milliseconds(t.Queue), "model_ms": milliseconds(t.Model), "head_ms": milliseconds(t.Head)}
	for name, x := range map[string]struct {
		n    int
		took time.Duration
	}{"prompt": {read, t.Reading}, "predicted": {t.Written, t.Time}} {
		o[name+"_per_token_ms"], o[name+"_per_second"] = 0.0, 0.0 // JSON has no infinity
		if x.n > 0 && x.took > 0 {
			o[name+"_per_token_ms"] = milliseconds(x.took) / float64(x.n)
			o[name+"_per_second"] = float64(x.n) / x.took.Seconds()
		}
	}
	return o
}

// total is the work of a request for all its answers. The token that ends a text is none that is
// predicted.
func total(results []engine.Result) engine.Result {
	sum := results[0]
	sum.Written, sum.Exact = 0, 0
	for _, r := range results {
		sum.Written += r.Written
		sum.Exact += min(r.Exact, r.Written)
		sum.Time, sum.Model, sum.Head = max(sum.Time, r.Time), max(sum.Model, r.Model), max(sum.Head, r.Head)
	}
	return sum
}
