package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/train"
)

// learner asks a head that learns, by traffic that changes every few seconds. Logits equal the
// definition, and so do answers of the exact layer. Answers of screens may miss a little, and none
// is for a context outside all trials.
func learner(ctx context.Context, s *soak) error {
	const least = 3000
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Tail, o.Target = topics, 0, nil, 0.98
	var unlearnt, screenedEvents atomic.Int64
	keep := s.path("keep.l2s")
	l, err := learn.New(s.data.Layer, learn.Options{Bytes: 16 << 20, CPU: 0.5, Audit: 0.2, Least: least, Train: &o, Keep: keep, Event: func(e learn.Event) {
		switch e.Kind {
		case "unlearnt":
			unlearnt.Add(1)
		case "screened":
			screenedEvents.Add(1)
		case "failed":
			s.fault("learner: failed: %s", e.Text)
		}
	}})
	if err != nil {
		return err
	}
	defer l.Close()
	exact, err := l2s.NewSearcher(s.data.Layer, nil, l2s.Options{})
	if err != nil {
		return err
	}
	order := rand.Perm(dim)
	repeated := s.h(0)
	var queries, byScreen, missed int
	traffic, until := 0, time.Time{}
	for i := 0; ctx.Err() == nil; i++ {
		if time.Now().After(until) {
			pause := 3 * time.Second
			if s.long {
				pause = 40 * time.Second
			}
			until = time.Now().Add(pause)
			if traffic = []int{0, 0, 1, 0, 2, 3}[rand.IntN(6)]; queries == 0 {
				traffic = 0
			}
			repeated = s.h(rand.IntN(asked))
			if _, err := l2s.Load(keep); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.fault("learner: the file that is kept: %v", err)
			}
			if r := l.Audit().Report(); r.Err != nil {
				s.fault("learner: audit: %v", r.Err)
			}
		}
		h, odd := s.h(i), false
		switch {
		case traffic == 1: // another kind of contexts
			was := slices.Clone(h)
			for a, b := range order {
				h[a] = was[b]
			}
		case traffic == 2 && i%2 == 0: // contexts that cannot be kept
			odd = true
			scale := []float32{0, 1e-38, 1e-8, 1e-6, 1e6, 1e20, 1e37}[rand.IntN(7)]
			for j := range h {
				h[j] *= scale
			}
		case traffic == 3 && i%3 > 0: // one context again and again
			copy(h, repeated)
		}
		k, req := 1+rand.IntN(5), l2s.Request{Budget: []float64{0, 0, 0, 1e-300, 1, 30, 1e9}[rand.IntN(7)], Exact: rand.IntN(8) == 0}
		if rand.IntN(100) == 0 {
			bad := slices.Clone(h)
			bad[rand.IntN(dim)] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[rand.IntN(3)])
			if _, err := l.Search(make([]l2s.Prediction, k), bad, req); !errors.Is(err, l2s.ErrContext) {
				s.fault("learner: a context with %v: found %v, expected a refusal", bad, err)
			}
		}
		got, want := make([]l2s.Prediction, k), make([]l2s.Prediction, k)
		a, err := l.Search(got, h, req)
		if err != nil || a.Count != k {
			s.fault("learner: %+v: found %d labels, %v", req, a.Count, err)
			continue
		}
		if _, err := exact.TopK(want, h); err != nil {
			return err
		}
		switch {
		case a.Exact && !slices.Equal(got, want):
			s.fault("learner: found %v from the layer, expected %v", got, want)
		case !a.Exact && (odd || req.Exact):
			s.fault("learner: found a context times something, or an exact request, answered from a screen: %v", h)
		case !a.Exact:
			ids, logits := make([]uint32, len(got)), make([]float64, len(got))
			for j, p := range got {
				ids[j] = p.ID
			}
			if err := exact.Logits(logits, h, l2s.Only(ids)); err != nil {
				return err
			}
			for j, p := range got {
				if p.Logit != logits[j] {
					s.fault("learner: label %d: found the logit %v, expected %v", p.ID, p.Logit, logits[j])
				}
			}
			if req.Budget == 0 {
				if byScreen++; got[0].ID != want[0].ID {
					missed++
				}
			}
		}
		if queries++; queries%1000 == 0 {
			s.count("queries of a head that learns", 1000)
			time.Sleep(time.Millisecond)
		}
		// The goroutine of the audit tells of an alarm: on a busy machine it has its turn late, and no
		// query comes before.
		for traffic == 1 && queries%25 == 0 && l.Screened() && len(l.Audit().Report().Alarms) > 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	s.count("answers of its screens", byScreen)
	s.count("misses of these", missed)
	s.count("screens that answered", int(screenedEvents.Load()))
	s.count("alarms", int(unlearnt.Load()))
	// Before an alarm there are some tens of samples, one query in eight.
	if most := 20 + byScreen/50 + 300*int(unlearnt.Load()); missed > most {
		s.fault("learner: found %d of %d answers of screens wrong in the best label, expected at most %d: a fiftieth, and 300 before each of %d alarms", missed, byScreen, most, unlearnt.Load())
	}
	// Each wait is twice the previous one, unless a screen has answered 64 times that number of
	// queries.
	if most := 2 + bits.Len64(l.Kept()/least) + byScreen*2/(64*least); int(unlearnt.Load()) > most {
		s.fault("learner: found %d alarms that ended screens in %d contexts, expected at most %d", unlearnt.Load(), l.Kept(), most)
	}
	return nil
}

// tails asks for log-sums and log-probabilities of contexts of all lengths.
func tails(ctx context.Context, s *soak) error {
	m, err := s.load("a.l2s")
	if err != nil {
		return err
	}
	by, err := l2s.NewSearcher(s.data.Layer, m, l2s.Options{OverTail: true})
	if err != nil {
		return err
	}
	exact, err := l2s.NewSearcher(s.data.Layer, nil, l2s.Options{})
	if err != nil {
		return err
	}
	top, one := make([]l2s.Prediction, 5), make([]l2s.Prediction, 1)
	// off returns the largest error of log Z on the three ways to it.
	off := func(h []float32, temperature float64) (float64, error) {
		want, err := exact.Search(one, h, l2s.Request{LogSum: true, ExactSum: true, Temperature: temperature})
		if err != nil {
			return 0, err
		}
		z, err := by.LogSum(h, temperature, 0.9)
		if err != nil {
			return 0, err
		}
		p, err := by.LogProb(h, one[0].ID, temperature)
		if err != nil {
			return 0, err
		}
		a, err := by.Search(top, h, l2s.Request{LogSum: true, Temperature: temperature})
		if err != nil {
			return 0, err
		}
		wantP := one[0].Logit/temperature - want.LogSum
		scale := 1 + 1e-9*math.Abs(want.LogSum) // rounding of large numbers
		return max(math.Abs(z.Log-want.LogSum), math.Abs(a.LogSum-want.LogSum), math.Abs(p-wantP)) / scale, nil
	}
	usual := 0.0
	for i := range asked {
		x, err := off(s.data.Context(trained+i), 1)
		if err != nil {
			return err
		}
		usual = max(usual, x)
	}
	for i := 0; ctx.Err() == nil; i++ {
		h := s.h(i)
		scale := []float32{0.02, 0.5, 2, 5, 20, float32(math.Exp(rand.NormFloat64() * 5)), 1e30, 0}[rand.IntN(8)]
		for j := range h {
			if h[j] *= scale; scale == 0 {
				h[j] = math.MaxFloat32
			}
		}
		x, err := off(h, []float64{0.7, 0.8, 1}[rand.IntN(3)])
		if err != nil {
			return err
		}
		if !(x <= 4*usual+0.05) {
			s.fault("tail: a context times %v: found log Z off by %v, at most %v of usual contexts", scale, x, usual)
		}
		if i%1000 == 999 {
			s.count("log-sums of odd contexts", 1000)
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}
