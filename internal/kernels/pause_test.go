package kernels

import (
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// pauses returns the histogram of the times from a request to stop the world until it has stopped,
// in seconds.
func pauses() metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(sample)
	return *sample[0].Value.Float64Histogram()
}

// between returns the median and the largest pause of the pauses after before, as the upper ends of
// their buckets, and their number.
func between(before, after metrics.Float64Histogram) (median, most time.Duration, n uint64) {
	end := func(i int) time.Duration {
		s := after.Buckets[i+1]
		if math.IsInf(s, 1) {
			s = after.Buckets[i]
		}
		return time.Duration(s * float64(time.Second))
	}
	for i := range after.Counts {
		n += after.Counts[i] - before.Counts[i]
	}
	seen := uint64(0)
	for i := range after.Counts {
		c := after.Counts[i] - before.Counts[i]
		if c == 0 {
			continue
		}
		if seen < (n+1)/2 && seen+c >= (n+1)/2 {
			median = end(i)
		}
		seen += c
		most = end(i)
	}
	return median, most, n
}

// The collector is called while every kernel in turn works on a layer of 262,144 x 640, and need
// not wait for a call to end. TestCallsAreBounded and TestEveryKernelStopsBetweenItsCalls assert
// the bounds of its wait; the times are printed.
func TestTheCollectorComesBetween(t *testing.T) {
	if os.Getenv("L2S_LARGE") == "" {
		t.Skip("takes half a minute and 2 GiB of memory: set L2S_LARGE=1, as make check does")
	}
	const n, d, collections = 262144, 640, 40
	rows := make([]float32, n*d)
	for i := range rows {
		rows[i] = float32(i%251) - 125
	}
	h, scores, lower, upper := make([]float32, d), make([]float32, n), make([]float32, n), make([]float32, n)
	dst64, x := make([]float64, n), make([]float64, n)
	narrow := make([]uint16, n*d)
	ids, all, grad := make([]uint32, n), make([]uint32, n), make([]float64, n)
	for i := range h {
		h[i] = float32(i%7) - 3
	}
	r := newRand(3)
	for i := range all {
		all[i] = uint32(r.IntN(n))
		scores[i], x[i] = float32(r.NormFloat64()), r.NormFloat64()
	}
	bytes := func(stride int) []byte {
		b := alignedBytes(n * stride)
		for i := range b {
			b[i] = byte(i % 13)
		}
		return b
	}
	m := &Int8Rows{codeRows: codeRows{data: bytes(Int8Stride(d)), dim: d, stride: Int8Stride(d), n: n}}
	m4 := &Int4Rows{codeRows: codeRows{data: bytes(Int4Stride(d)), dim: d, stride: Int4Stride(d), n: n}}
	v := NewInt8Vector(d)
	v.Set(h)
	top, vals := make([]uint32, 5), make([]float32, 5)

	for _, c := range []struct {
		name string
		long bool
		call func()
	}{
		{"Scan", true, func() { Scan(lower, rows, scores, h) }},
		{"GatherDot", true, func() { GatherDot(lower, rows, nil, all, h) }},
		{"ArgmaxDot", true, func() { ArgmaxDot(rows, h) }},
		{"RefScan", true, func() { Float32Rows(rows, d).RefScan(dst64, nil, h) }},
		{"RefScan of bfloat16", true, func() { BFloat16Rows(narrow, d).RefScan(dst64, nil, h) }},
		{"NotFinite", false, func() { FirstNotFinite(Float32Rows(rows, d)) }},
		{"Int8 Bounds", false, func() { m.Bounds(lower, upper, v) }},
		{"Int8 GatherBounds", false, func() { m.GatherBounds(lower, upper, all, v) }},
		{"Int4 Bounds", false, func() { m4.Bounds(lower, upper, v) }},
		{"TopK", false, func() { TopK(top, vals, scores) }},
		{"SelectAtLeast", false, func() { SelectAtLeast(ids, scores, 0) }},
		{"Softmax", false, func() { Softmax(dst64, x) }},
		{"LogSumExp", false, func() { LogSumExp(x) }},
		{"SumExpCentres", false, func() { SumExpCentres(scores, scores, 1) }},
		{"Axpy", false, func() { Axpy(grad, 0.5, scores) }},
		{"Set", false, func() { v.Set(h) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stop atomic.Bool
			var begun atomic.Int64 // calls
			done := make(chan struct{})
			go func() {
				defer close(done)
				for !stop.Load() {
					begun.Add(1)
					c.call()
				}
			}()
			runtime.GC()
			before := pauses()
			within := false // a collection began and ended within one call
			collect := func() {
				calls := begun.Load()
				runtime.GC()
				within = within || begun.Load() == calls
			}
			for range collections {
				collect()
			}
			// On a busy machine a collection may take longer than a call.
			for i := 0; c.long && !within && i < 100*collections; i++ {
				collect()
			}
			median, most, count := between(before, pauses())
			stop.Store(true)
			<-done
			// Each collection stops the world twice.
			if count < 2*collections {
				t.Errorf("%d stops, want at least two for each of %d collections", count, collections)
			}
			// If each call had to end before the world stops, a call would end with each of the two
			// stops of a collection. Long calls take tens of milliseconds each.
			if c.long && !within {
				t.Errorf("%d calls began during %d stops, one in each collection, expected that a collection comes within a call", begun.Load(), count)
			}
			t.Logf("%s: %d stops of the world during %d calls: median below %s, all below %s", Level(), count, begun.Load(), median, most)
		})
	}
}
