package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

// state is the progress of a work.
type state struct {
	stage string
	done  float64 // 0 to 1
}

// every is the time between two reports. A host that handles a signal in its progress function, as
// Python does, waits for no longer.
const every = 100 * time.Millisecond

// work runs f, which notes its progress. report, unless nil, is called by the goroutine of the caller, and
// so by the host's thread, and ends f by its result.
func work(report func(s state) (stop bool), f func(ctx context.Context, note func(stage string, done float64)) error) error {
	if report == nil {
		return f(context.Background(), func(string, float64) {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var now atomic.Pointer[state]
	now.Store(&state{})
	ended := make(chan error, 1)
	go func() {
		ended <- guarded(func() error {
			debug.SetPanicOnFault(true)
			return f(ctx, func(stage string, done float64) { now.Store(&state{stage, done}) })
		})
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				report(state{now.Load().stage, 1}) // it may not stop what is done
			}
			return err
		case <-tick.C:
			if report(*now.Load()) {
				cancel()
				err := <-ended
				if err == nil { // it was done before it noticed: the host has asked for no result
					err = context.Canceled
				}
				return err
			}
		}
	}
}

// makePreview is l2s_preview_make.
func makePreview(l *layer, states, heldOut *matrix, o preview.Options, report func(state) bool) (x *index, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	rows, err := statesOf("states", states, l)
	if err != nil {
		return nil, err
	}
	if heldOut != nil {
		if o.HeldOut, err = statesOf("held_out", heldOut, l); err != nil {
			return nil, err
		}
	}
	err = work(report, func(ctx context.Context, note func(string, float64)) error {
		o.Progress = note
		made, err := preview.Make(ctx, l.Layer, l2s.Float32(rows, l.Layer.Dim()), o)
		x = &index{made}
		return err
	})
	return x, err
}

func statesOf(what string, m *matrix, l *layer) ([]float32, error) {
	var own []float32
	return m.contexts(what, l.Dim(), &own)
}

// screenOptions are the options of l2s_screen_train.
type screenOptions struct {
	json         string
	checkpoint   string
	threads      int
	anyPrecision bool
}

func (o screenOptions) options() (train.Options, error) {
	opt, tail := train.DefaultOptions(), train.DefaultTailOptions()
	opt.Tail = &tail
	opt.Checkpoint, opt.Threads, opt.AnyPrecision = o.checkpoint, o.threads, o.anyPrecision
	if o.json == "" {
		return opt, nil
	}
	d := json.NewDecoder(strings.NewReader(o.json))
	d.DisallowUnknownFields()
	if err := d.Decode(&opt); err != nil {
		return opt, invalid("json: %v", err)
	}
	if d.More() {
		return opt, invalid("json: found more than one value, expected an object")
	}
	return opt, nil
}

// trainScreen is l2s_screen_train.
func trainScreen(l *layer, states, validation *matrix, o screenOptions, report func(state) bool) (x *index, err error) {
	opt, err := o.options()
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	if states.dim != l.Dim() {
		return nil, wrongContext("states: found the dimension %d, expected %d, the layer's", states.dim, l.Dim())
	}
	rows, err := states.inPlace("states")
	if err != nil { // rows with gaps
		var copied []float32
		if copied, err = statesOf("states", states, l); err != nil {
			return nil, err
		}
		rows = l2s.Float32(copied, l.Dim())
	}
	if validation != nil {
		if opt.Validation, err = statesOf("validation", validation, l); err != nil {
			return nil, err
		}
	}
	err = work(report, func(ctx context.Context, note func(string, float64)) error {
		opt.Progress = func(p train.Progress) {
			stage := p.Stage
			if p.Part != "" {
				stage += ", " + p.Part
			}
			if p.Iteration > 0 {
				stage = fmt.Sprintf("%s %d", stage, p.Iteration)
			}
			if p.Total > 0 {
				note(stage, float64(p.Done)/float64(p.Total))
			}
		}
		made, _, err := train.Run(ctx, l.Layer, rows, opt)
		x = &index{made}
		return err
	})
	return x, err
}

// isSize refuses numbers of a size_t that no int has.
func isSize(what string, n uint64) (int, error) {
	if n > math.MaxInt>>8 {
		return 0, invalid("%s: found %d, which no memory has", what, n)
	}
	return int(n), nil
}
