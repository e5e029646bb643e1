package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
)

// stepTime is the time of one step of a query: the time of queries that end after it, less the time
// of queries that end before it, by timing.Parts. So the steps of a search sum to the time of a query,
// and a step that takes less than the noise may come out below 0.
type stepTime struct {
	Search string  `json:"search"` // exact, screen or preview
	Step   string  `json:"step"`
	Micros float64 `json:"us"`
	Share  float64 `json:"share"` // of the query's time
}

// stepRounds is the number of rounds of each search.
const stepRounds = 15

// kindExact is the search of the exact layer among the steps.
const kindExact = "exact"

// benchSteps measures the steps of queries by the exact layer, and by the screen or the preview. It
// is a pass of its own, after the others.
func benchSteps(ctx context.Context, in *inputs, rows [][]float32, k int, budget float64, p *progress.Printer, opts l2s.Options) ([]stepTime, error) {
	s, err := l2s.NewSearcher(in.layer.Layer, in.index, opts)
	if err != nil {
		return nil, err
	}
	type search struct {
		name  string
		steps []exact.Step
	}
	searches := []search{{kindExact, in.layer.exact().Steps(k)}, {name: in.index.Kind()}}
	if by := (*engine.Searcher)(s); by.Screened() != nil {
		if searches[1].steps, err = by.Screened().Steps(k, budget); err != nil {
			return nil, err
		}
	} else {
		searches[1].steps = by.Previewed().Steps(k, budget)
	}
	var list []stepTime
	for _, x := range searches {
		queries := []func(i int){func(int) {}} // reads the clock, as each of the others does
		for _, step := range x.steps {
			queries = append(queries, func(i int) { must(step.Run(rows[i])) })
		}
		p.Start("bench, steps by "+x.name, "rounds", stepRounds)
		times, err := timing.Parts(ctx, len(rows), queries, timing.Options{
			Rounds: stepRounds, Block: benchBlock, Progress: func(round, _ int) { p.Set(round) },
		})
		if err != nil {
			return nil, err
		}
		p.EndWith(fmt.Sprintf("%d rounds", stepRounds))
		for i := len(times) - 2; i >= 0; i-- { // a part of a search takes no longer than the whole, but for noise
			times[i] = min(times[i], times[i+1])
		}
		whole := max(times[len(times)-1]-times[0], 1)
		for i, step := range x.steps {
			took := times[i+1] - times[i]
			list = append(list, stepTime{x.name, step.Name, micros(took), round(float64(took) / float64(whole))})
		}
	}
	return list, nil
}

// writeSteps writes the steps as a table.
func writeSteps(b *strings.Builder, steps []stepTime) {
	for i, x := range steps {
		name := ""
		if i == 0 || steps[i-1].Search != x.Search {
			name = x.Search
			if name == kindExact {
				name = "exact layer"
			}
		}
		if i == 0 {
			b.WriteString("\nSteps of a query          mean        share\n")
		}
		fmt.Fprintf(b, "%-11s %-14s %8.2f us %8.1f%%\n", name, x.Step, x.Micros, 100*x.Share)
	}
}
