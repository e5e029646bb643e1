package kernels

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// The collector stops the world, twice for each collection, while a kernel works on a layer of
// 262,144 x 640, and need not wait for the call to end. TestEveryKernelStopsBetweenItsCalls asserts
// that all kernels stop as this one does.
func TestTheCollectorComesBetween(t *testing.T) {
	if os.Getenv("L2S_LARGE") == "" {
		t.Skip("takes some seconds and 1 GiB of memory: set L2S_LARGE=1, as make check does")
	}
	const n, d, collections = 262144, 640, 4000
	rows, h, dst := Float32Rows(make([]float32, n*d), d), make([]float32, d), make([]float64, n)
	var stop atomic.Bool
	var begun atomic.Int64 // calls
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			begun.Add(1)
			rows.RefScan(dst, nil, h)
		}
	}()
	within := false // a collection began and ended within one call, which takes tens of milliseconds
	for i := 0; i < collections && !within; i++ {
		calls := begun.Load()
		runtime.GC()
		within = calls > 0 && begun.Load() == calls
	}
	stop.Store(true)
	<-done
	if !within {
		t.Errorf("found no collection within one of %d calls, expected one", begun.Load())
	}
}
