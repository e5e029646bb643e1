package main

import (
	"encoding/hex"
	"encoding/json"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/learning-to-screen/l2s"
)

// layer is a layer whose rows may be in the caller's memory: all that reads them is between enter and
// leave, so that close can wait for it.
type layer struct {
	*l2s.Layer
	state atomic.Int64  // the number of readers, with the bits below
	left  chan struct{} // may have an element if no reader is left of a closed layer
}

const (
	closedBit = 1 << 62
	pausedBit = 1 << 61
)

var errClosed = errHandle{"l2s: layer: found it closed, expected it open as long as a pool answers over it"}

func layerOf(l *l2s.Layer) *layer { return &layer{Layer: l, left: make(chan struct{}, 1)} }

// enter begins reads of the rows. It waits for setThreads, which takes little time.
func (l *layer) enter() error {
	for {
		switch n := l.state.Add(1); {
		case n&closedBit != 0:
			l.leave()
			return errClosed
		case n&pausedBit == 0:
			return nil
		}
		l.leave()
		runtime.Gosched()
	}
}

func (l *layer) leave() { l.release(1) }

// release takes n, a reader or a bit, from the state.
func (l *layer) release(n int64) {
	if l.state.Add(-n) == closedBit {
		select {
		case l.left <- struct{}{}:
		default:
		}
	}
}

// close closes the layer for new readers at once, and returns when the last one has left.
func (l *layer) close() error {
	l.state.Or(closedBit)
	for l.state.Load() != closedBit {
		<-l.left
	}
	return l.Close()
}

func (l *layer) setThreads(n int) error {
	if n < 1 || n > 256 {
		return invalid("threads: found %d, expected 1 to 256", n)
	}
	if !l.state.CompareAndSwap(0, pausedBit) {
		if l.state.Load()&closedBit != 0 {
			return errClosed
		}
		return invalid("threads: found a call under way that reads the layer, expected none")
	}
	defer l.release(pausedBit)
	l.SetThreads(n)
	return nil
}

func openLayer(source, bias string, copied bool) (*layer, error) {
	l, err := l2s.Open(source, l2s.OpenOptions{Bias: bias, Copy: copied})
	if err != nil {
		return nil, inFile(err)
	}
	return layerOf(l), nil
}

func newLayer(w *matrix, bias *float32, scale, softCap float64) (*layer, error) {
	m, err := w.inPlace("weights")
	if err != nil {
		return nil, err
	}
	var b []float32
	if bias != nil {
		if uintptr(unsafe.Pointer(bias))%4 != 0 {
			return nil, invalid("bias: found the address %p, expected a multiple of 4", bias)
		}
		b = unsafe.Slice(bias, w.rows)
	}
	l, err := l2s.New(m, b)
	if err == nil && (scale != 1 || softCap != 0) {
		l, err = l.Scaled(scale, softCap)
	}
	if err != nil {
		return nil, wrongContent{err}
	}
	return layerOf(l), nil
}

// info is the JSON of l2s_layer_info.
func (l *layer) info() ([]byte, error) {
	type described struct {
		Text       string   `json:"text"`
		Labels     int      `json:"labels"`
		Dim        int      `json:"dim"`
		Type       string   `json:"type"`
		File       string   `json:"file,omitempty"`
		Tensor     string   `json:"tensor,omitempty"`
		Bias       string   `json:"bias,omitempty"`
		Padding    int      `json:"padding"`
		Mapped     bool     `json:"mapped"`
		Tied       bool     `json:"tied"`
		Why        string   `json:"why,omitempty"`
		State      string   `json:"state,omitempty"`
		Notes      []string `json:"notes,omitempty"`
		Scale      float64  `json:"scale"`
		SoftCap    float64  `json:"soft_cap"`
		StateScale float64  `json:"state_scale"`
		Suppressed []uint32 `json:"suppressed,omitempty"`
	}
	i := l.Info()
	return json.Marshal(described{l.String(), l.Labels(), l.Dim(), i.Type, i.File, i.Tensor, i.Bias, i.Padding, i.Mapped, i.Tied, i.Why, i.State, i.Notes, i.Scale, i.Cap, i.StateScale, i.Suppressed})
}

// index is an index. A handle has an address of its own even for the same index.
type index struct{ *l2s.Index }

// info is the JSON of l2s_index_info.
func (x *index) info() ([]byte, error) {
	type described struct {
		Kind        string          `json:"kind"`
		Labels      int             `json:"labels"`
		Dim         int             `json:"dim"`
		K           int             `json:"k"`
		HeldOut     int             `json:"held_out"`
		HasTail     bool            `json:"has_tail"`
		Fingerprint string          `json:"fingerprint"`
		Record      json.RawMessage `json:"record"`
	}
	k, heldOut := x.Measured()
	print := x.Fingerprint()
	return json.Marshal(described{x.Kind(), x.Labels(), x.Dim(), k, heldOut, x.HasTail(), hex.EncodeToString(print[:]), x.Record()})
}
