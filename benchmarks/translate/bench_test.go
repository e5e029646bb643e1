package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/seq2seq"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

var (
	benchModel  = flag.String("model", "../../../shared/data/nmt-multi30k", "`folder` of the translation model of BenchmarkBetweenSteps")
	benchScreen = flag.String("screen", "", "`file` of the screen of BenchmarkBetweenSteps")
)

// timedSearcher is a searcher that takes the time of each of its answers.
type timedSearcher struct {
	beam.Searcher
	times []time.Duration // of a context
}

func (s *timedSearcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	start := time.Now()
	err := s.Searcher.SearchBatch(dst, answers, contexts, req)
	s.times = append(s.times, time.Since(start)/time.Duration(len(answers)))
	return err
}

// BenchmarkBetweenSteps times the softmax layer where it is asked between the steps of a
// real decoder, which translates a sentence of the test after the other. It reports the
// median of the microseconds of a context, the contexts of a step together, and the 99th
// percentile. The methods take turns, a sentence each.
//
//	go test ./translate -run '^$' -bench BetweenSteps -benchtime 100x -args -screen m.l2s
func BenchmarkBetweenSteps(b *testing.B) {
	if *benchScreen == "" {
		b.Skip("no -screen is given")
	}
	m, err := seq2seq.Load(*benchModel, from, to)
	if err != nil {
		b.Fatal(err)
	}
	_, _, pairs, err := (&data{dir: *benchModel, model: m}).pairs("test", 0)
	if err != nil {
		b.Fatal(err)
	}
	l := m.Layer()
	model, err := screen.Load(*benchScreen)
	if err != nil {
		b.Fatal(err)
	}
	for _, width := range []int{1, 5} {
		b.Run(fmt.Sprintf("beam %d", width), func(b *testing.B) {
			screened := func(opts screen.Options) beam.Searcher {
				s, err := screen.NewSearcher(model, l, opts)
				if err != nil {
					b.Fatal(err)
				}
				return s
			}
			methods := []struct {
				name string
				by   *timedSearcher
			}{
				{"screened", &timedSearcher{Searcher: screened(screen.Options{})}},
				{"packed", &timedSearcher{Searcher: screened(screen.Options{Copies: 1 << 40})}},
				{"not-packed", &timedSearcher{Searcher: screened(screen.Options{Copies: -1})}},
				{"exact", &timedSearcher{Searcher: softmax.NewSearcher(l)}},
				{"dense", &timedSearcher{Searcher: newOneScan(l)}},
			}
			c := &decoder{data: &data{model: m}}
			next := 0
			for b.Loop() {
				c.sources = m.Encode([][]uint32{pairs[next%len(pairs)].Source})
				for _, method := range methods {
					d := &computed{c: c, d: m.NewDecoder()}
					d.start([]int{0}, nil)
					s, err := beam.New(d, method.by, beam.Options{Width: width, MaxLen: 60, Start: m.Start(), End: m.End(), Alpha: 1})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := s.Run(context.Background(), 1); err != nil {
						b.Fatal(err)
					}
				}
				next++
			}
			for _, method := range methods {
				times := method.by.times
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2])/1e3, method.name+"-us")
				b.ReportMetric(float64(times[len(times)*99/100])/1e3, method.name+"-p99-us")
			}
			b.ReportMetric(0, "ns/op") // of all methods together, and of no interest
		})
	}
}
