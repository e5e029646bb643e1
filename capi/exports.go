// Command capi is libl2s.so: package l2s for programs in other languages, through the functions of
// l2s.h. front.c has those, and calls the functions here. docs/c.md and docs/python.md describe its use.
package main

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -fvisibility=hidden
#cgo linux LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "front.h"
*/
import "C"

import (
	"runtime/debug"
	"unsafe"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/preview"
)

func main() {}

var table = newHandles()

// The layouts that pool.go and l2s.h share.
var (
	_ [unsafe.Sizeof(answer{}) - C.sizeof_l2s_answer]struct{}
	_ [C.sizeof_l2s_answer - unsafe.Sizeof(answer{})]struct{}
)

// call runs the work of an entry. A panic, and a fault at an address of the caller, become an error.
func call(failed *C.l2s_failure, f func() error) (status C.l2s_status) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	if err := guarded(f); err != nil {
		return tell(failed, err)
	}
	return C.L2S_OK
}

// tell writes an error to the memory of the front.
func tell(failed *C.l2s_failure, err error) C.l2s_status {
	status, number := statusOf(err)
	failed.number = C.int32_t(number)
	text := unsafe.Slice((*byte)(unsafe.Pointer(&failed.text)), len(failed.text))
	n := copy(text[:len(text)-1], err.Error())
	text[n] = 0
	return C.l2s_status(status)
}

func str(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// out writes the handle of a value.
func out[T any](to *C.uintptr_t, x *T, err error) error {
	if err != nil {
		return err
	}
	h, err := table.add(x)
	if err == nil {
		*to = C.uintptr_t(h)
	}
	return err
}

func target(to *C.uintptr_t) error {
	if to == nil {
		return invalid("result: found NULL, expected the address of a handle")
	}
	*to = 0
	return nil
}

func layerAt(h C.uintptr_t) (*layer, error) { return get[layer](table, uint64(h), "a layer") }
func indexAt(h C.uintptr_t) (*index, error) { return get[index](table, uint64(h), "an index") }
func poolAt(h C.uintptr_t) (*pool, error)   { return get[pool](table, uint64(h), "a pool") }

// orNone is indexAt for an index that may be NULL.
func orNone(h C.uintptr_t) (*index, error) {
	if h == 0 {
		return nil, nil
	}
	return indexAt(h)
}

func matrixOf(what string, m *C.l2s_matrix) (x matrix, err error) {
	if m == nil {
		return x, invalid("%s: found NULL", what)
	}
	x = matrix{data: m.data, stride: int(m.stride), kind: int32(m._type)}
	if x.rows, err = isSize(what+": rows", uint64(m.rows)); err != nil {
		return x, err
	}
	x.dim, err = isSize(what+": dim", uint64(m.dim))
	return x, err
}

// orNoMatrix is matrixOf for a matrix that may be NULL.
func orNoMatrix(what string, m *C.l2s_matrix) (*matrix, error) {
	if m == nil {
		return nil, nil
	}
	x, err := matrixOf(what, m)
	return &x, err
}

// asked returns the pool and the contexts of a question.
func asked(h C.uintptr_t, contexts *C.l2s_matrix) (p *pool, c matrix, err error) {
	if p, err = poolAt(h); err == nil {
		c, err = matrixOf("contexts", contexts)
	}
	return p, c, err
}

// slice returns n elements of the caller's memory.
func slice[To, From any](what string, p *From, n int) ([]To, error) {
	var x To
	switch {
	case n == 0:
		return []To{}, nil
	case p == nil:
		return nil, invalid("%s: found NULL, expected %d elements", what, n)
	case n > most/int(unsafe.Sizeof(x)):
		return nil, invalid("%s: found %d elements, which no memory has", what, n)
	case uintptr(unsafe.Pointer(p))%unsafe.Alignof(x) != 0:
		return nil, invalid("%s: found the address %p, expected a multiple of %d", what, p, unsafe.Alignof(x))
	}
	return unsafe.Slice((*To)(unsafe.Pointer(p)), n), nil
}

// times returns a size, and its product with a number of contexts.
func times(what string, contexts int, n C.size_t) (each, all int, err error) {
	if each, err = isSize(what, uint64(n)); err == nil && each > 0 && contexts > most/each {
		err = invalid("%s: found %d for each of %d contexts, which no memory has", what, each, contexts)
	}
	return each, contexts * each, err
}

func isVersion(what string, found C.size_t, want uintptr) error {
	if uintptr(found) != want {
		return invalid("%s: size: found %d, expected %d: its initialiser sets it, and the l2s.h that the program was compiled with has to be the library's", what, found, want)
	}
	return nil
}

//export l2sgo_start
func l2sgo_start() {}

//export l2sgo_version
func l2sgo_version(text *C.char, size C.size_t) {
	to := unsafe.Slice((*byte)(unsafe.Pointer(text)), int(size))
	to[copy(to[:size-1], cmdline.VersionOf().Version)] = 0
}

//export l2sgo_layer_open
func l2sgo_layer_open(source, bias *C.char, copied C.int32_t, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		if source == nil {
			return invalid("source: found NULL")
		}
		l, err := openLayer(str(source), str(bias), copied != 0)
		return out(to, l, err)
	})
}

//export l2sgo_layer_new
func l2sgo_layer_new(weights *C.l2s_matrix, bias *C.float, scale, softCap C.double, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		w, err := matrixOf("weights", weights)
		if err != nil {
			return err
		}
		l, err := newLayer(&w, (*float32)(bias), float64(scale), float64(softCap))
		return out(to, l, err)
	})
}

//export l2sgo_layer_shape
func l2sgo_layer_shape(h C.uintptr_t, labels, dim *C.size_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		l, err := layerAt(h)
		if err != nil {
			return err
		}
		if labels == nil || dim == nil {
			return invalid("labels or dim: found NULL")
		}
		*labels, *dim = C.size_t(l.Labels()), C.size_t(l.Dim())
		return nil
	})
}

// object writes JSON into a buffer of the caller.
func object(text []byte, buffer *C.char, size C.size_t, length *C.size_t) error {
	if length == nil || buffer == nil && size > 0 {
		return invalid("buffer or length: found NULL")
	}
	*length = C.size_t(len(text))
	if size > 0 {
		to := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), int(min(size, C.size_t(len(text)+1))))
		to[copy(to[:len(to)-1], text)] = 0
	}
	return nil
}

//export l2sgo_layer_info
func l2sgo_layer_info(h C.uintptr_t, buffer *C.char, size C.size_t, length *C.size_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		l, err := layerAt(h)
		if err != nil {
			return err
		}
		text, err := l.info()
		if err != nil {
			return err
		}
		return object(text, buffer, size, length)
	})
}

//export l2sgo_layer_set_threads
func l2sgo_layer_set_threads(h C.uintptr_t, n C.int32_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		l, err := layerAt(h)
		if err != nil {
			return err
		}
		return l.setThreads(int(n))
	})
}

//export l2sgo_layer_close
func l2sgo_layer_close(h C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		l, err := remove[layer](table, uint64(h), "a layer")
		if err != nil {
			return err
		}
		return l.close()
	})
}

// reporter returns the progress function of the host, nil for none.
func reporter(progress C.l2s_progress, user unsafe.Pointer) func(state) bool {
	if progress == nil {
		return nil
	}
	return func(s state) bool {
		stage := C.CString(s.stage)
		defer C.free(unsafe.Pointer(stage))
		return C.l2s_report(progress, user, stage, C.double(s.done)) != 0
	}
}

//export l2sgo_preview_make
func l2sgo_preview_make(h C.uintptr_t, states *C.l2s_matrix, o *C.l2s_preview_options, progress C.l2s_progress, user unsafe.Pointer, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		l, err := layerAt(h)
		if err != nil {
			return err
		}
		s, err := matrixOf("states", states)
		if err != nil {
			return err
		}
		var opt preview.Options
		var heldOut *matrix
		if o != nil {
			if err := isVersion("l2s_preview_options", o.size, C.sizeof_l2s_preview_options); err != nil {
				return err
			}
			opt = preview.Options{Coordinates: int(o.coordinates), K: int(o.k), Precision1: float64(o.precision_1), PrecisionK: float64(o.precision_k), LeastOwn: float64(o.least_own), Threads: int(o.threads)}
			if heldOut, err = orNoMatrix("held_out", o.held_out); err != nil {
				return err
			}
		}
		x, err := makePreview(l, &s, heldOut, opt, reporter(progress, user))
		return out(to, x, err)
	})
}

//export l2sgo_screen_train
func l2sgo_screen_train(h C.uintptr_t, states *C.l2s_matrix, o *C.l2s_screen_options, progress C.l2s_progress, user unsafe.Pointer, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		l, err := layerAt(h)
		if err != nil {
			return err
		}
		s, err := matrixOf("states", states)
		if err != nil {
			return err
		}
		var opt screenOptions
		var validation *matrix
		if o != nil {
			if err := isVersion("l2s_screen_options", o.size, C.sizeof_l2s_screen_options); err != nil {
				return err
			}
			opt = screenOptions{str(o.json), str(o.checkpoint), int(o.threads), o.any_precision != 0}
			if validation, err = orNoMatrix("validation", o.validation); err != nil {
				return err
			}
		}
		x, err := trainScreen(l, &s, validation, opt, reporter(progress, user))
		return out(to, x, err)
	})
}

//export l2sgo_index_load
func l2sgo_index_load(path *C.char, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		if path == nil {
			return invalid("path: found NULL")
		}
		x, err := l2s.Load(str(path))
		return out(to, &index{x}, inFile(err))
	})
}

//export l2sgo_index_save
func l2sgo_index_save(h C.uintptr_t, path *C.char, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		x, err := indexAt(h)
		if err != nil {
			return err
		}
		if path == nil {
			return invalid("path: found NULL")
		}
		return x.Save(str(path))
	})
}

//export l2sgo_index_info
func l2sgo_index_info(h C.uintptr_t, buffer *C.char, size C.size_t, length *C.size_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		x, err := indexAt(h)
		if err != nil {
			return err
		}
		text, err := x.info()
		if err != nil {
			return err
		}
		return object(text, buffer, size, length)
	})
}

func estimate(e l2s.Estimate) C.l2s_estimate {
	return C.l2s_estimate{C.double(e.Value), C.double(e.Low), C.double(e.High)}
}

//export l2sgo_index_steps
func l2sgo_index_steps(h C.uintptr_t, to *C.l2s_step, n C.size_t, total, normal *C.size_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		x, err := indexAt(h)
		if err != nil {
			return err
		}
		if total == nil || normal == nil {
			return invalid("total or normal: found NULL")
		}
		steps, usual := x.Steps()
		*total, *normal = C.size_t(len(steps)), C.size_t(usual)
		written, err := slice[C.l2s_step]("steps", to, int(min(n, *total)))
		for i := range written {
			s := steps[i]
			written[i] = C.l2s_step{C.double(s.Budget), C.double(s.MeanScored), estimate(s.Precision1), estimate(s.PrecisionK), estimate(s.Own)}
		}
		return err
	})
}

//export l2sgo_index_close
func l2sgo_index_close(h C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		_, err := remove[index](table, uint64(h), "an index")
		return err
	})
}

//export l2sgo_pool_new
func l2sgo_pool_new(layer, of C.uintptr_t, o *C.l2s_pool_options, to *C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		if err := target(to); err != nil {
			return err
		}
		l, err := layerAt(layer)
		if err != nil {
			return err
		}
		x, err := orNone(of)
		if err != nil {
			return err
		}
		var opt l2s.Options
		if o != nil {
			if err := isVersion("l2s_pool_options", o.size, C.sizeof_l2s_pool_options); err != nil {
				return err
			}
			opt = l2s.Options{Budget: float64(o.budget), OverTail: o.over_tail != 0, Copies: l2s.CopyLimit(o.copies)}
		}
		p, err := newPool(l, x, opt)
		return out(to, p, err)
	})
}

//export l2sgo_pool_swap
func l2sgo_pool_swap(h, layer, of C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, err := poolAt(h)
		if err != nil {
			return err
		}
		l, err := layerAt(layer)
		if err != nil {
			return err
		}
		x, err := orNone(of)
		if err != nil {
			return err
		}
		return p.swap(l, x)
	})
}

//export l2sgo_topk
func l2sgo_topk(h C.uintptr_t, context *C.float, k C.size_t, ids *C.int64_t, logits *C.double, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, err := poolAt(h)
		if err != nil {
			return err
		}
		n, err := isSize("k", uint64(k))
		if err != nil {
			return err
		}
		l := p.serving.Load().layers[0]
		if n > l.Labels() {
			return wrongRequest("k: found %d, expected at most %d, the labels", n, l.Labels())
		}
		c, err := slice[float32]("context", context, l.Dim())
		if err != nil {
			return err
		}
		toIDs, err := slice[int64]("ids", ids, n)
		if err != nil {
			return err
		}
		toLogits, err := slice[float64]("logits", logits, n)
		if err != nil {
			return err
		}
		return p.topK(c, toIDs, toLogits)
	})
}

func labelsOf(what string, x *C.l2s_labels) (of labels, err error) {
	n, err := isSize(what+": count", uint64(x.count))
	switch {
	case err != nil:
	case x.ids != nil && x.bits != nil:
		err = invalid("%s: found ids and bits, expected one of them", what)
	case x.ids != nil:
		of.ids, err = slice[int64](what, x.ids, n)
	case x.bits != nil:
		of.bits, err = slice[byte](what, x.bits, n)
	case n != 0:
		err = invalid("%s: found NULL, expected %d ids or bytes", what, n)
	}
	return of, err
}

func requestOf(o *C.l2s_request) (r request, err error) {
	if o == nil {
		return r, nil
	}
	if err := isVersion("l2s_request", o.size, C.sizeof_l2s_request); err != nil {
		return r, err
	}
	r.plain = l2s.Request{
		Budget: float64(o.budget), Within: float64(o.within), Temperature: float64(o.temperature),
		Exact: o.exact != 0, LogSum: o.log_sum != 0, ExactSum: o.exact_sum != 0,
	}
	if r.among, err = labelsOf("among", &o.among); err != nil {
		return r, err
	}
	if r.also, err = labelsOf("also", &o.also); err != nil {
		return r, err
	}
	if r.allowed, err = labelsOf("allowed", &o.allowed); err != nil {
		return r, err
	}
	if r.banned, err = labelsOf("banned", &o.banned); err != nil {
		return r, err
	}
	n, err := isSize("bias_count", uint64(o.bias_count))
	if err != nil {
		return r, err
	}
	if r.biasIDs, err = slice[int64]("bias_ids", o.bias_ids, n); err != nil {
		return r, err
	}
	r.biases, err = slice[float32]("biases", o.biases, n)
	return r, err
}

//export l2sgo_search
func l2sgo_search(h C.uintptr_t, contexts *C.l2s_matrix, k C.size_t, o *C.l2s_request, ids *C.int64_t, logits *C.double, answers *C.l2s_answer, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, c, err := asked(h, contexts)
		if err != nil {
			return err
		}
		r, err := requestOf(o)
		if err != nil {
			return err
		}
		each, n, err := times("k", c.rows, k)
		if err != nil {
			return err
		}
		toIDs, err := slice[int64]("ids", ids, n)
		if err != nil {
			return err
		}
		toLogits, err := slice[float64]("logits", logits, n)
		if err != nil {
			return err
		}
		var toAnswers []answer
		if answers != nil {
			if toAnswers, err = slice[answer]("answers", answers, c.rows); err != nil {
				return err
			}
		}
		return p.search(&c, each, &r, toIDs, toLogits, toAnswers)
	})
}

//export l2sgo_logits
func l2sgo_logits(h C.uintptr_t, contexts *C.l2s_matrix, ids *C.int64_t, count C.size_t, logits *C.double, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, c, err := asked(h, contexts)
		if err != nil {
			return err
		}
		each, n, err := times("count", c.rows, count)
		if err != nil {
			return err
		}
		of, err := slice[int64]("ids", ids, each)
		if err != nil {
			return err
		}
		to, err := slice[float64]("logits", logits, n)
		if err != nil {
			return err
		}
		return p.logits(&c, of, to)
	})
}

//export l2sgo_log_probs
func l2sgo_log_probs(h C.uintptr_t, contexts *C.l2s_matrix, ids *C.int64_t, temperature C.double, logProbs *C.double, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, c, err := asked(h, contexts)
		if err != nil {
			return err
		}
		of, err := slice[int64]("ids", ids, c.rows)
		if err != nil {
			return err
		}
		to, err := slice[float64]("log_probs", logProbs, c.rows)
		if err != nil {
			return err
		}
		return p.logProbs(&c, of, float64(temperature), to)
	})
}

//export l2sgo_log_sums
func l2sgo_log_sums(h C.uintptr_t, contexts *C.l2s_matrix, temperature, confidence C.double, logSums, low, high *C.double, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, c, err := asked(h, contexts)
		if err != nil {
			return err
		}
		to, err := slice[float64]("log_sums", logSums, c.rows)
		if err != nil {
			return err
		}
		var ends [2][]float64
		for i, p := range []*C.double{low, high} {
			if p == nil {
				continue
			}
			if ends[i], err = slice[float64]("low, high", p, c.rows); err != nil {
				return err
			}
		}
		return p.logSums(&c, float64(temperature), float64(confidence), to, ends[0], ends[1])
	})
}

//export l2sgo_pool_stats
func l2sgo_pool_stats(h C.uintptr_t, to *C.l2s_stats, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		p, err := poolAt(h)
		if err != nil {
			return err
		}
		if to == nil {
			return invalid("stats: found NULL")
		}
		s := p.Stats()
		*to = C.l2s_stats{C.uint64_t(s.Queries), C.uint64_t(s.Looked), C.uint64_t(s.Scored), C.uint64_t(s.Exact), C.uint64_t(s.Fallback), C.uint64_t(s.Far)}
		return nil
	})
}

//export l2sgo_pool_close
func l2sgo_pool_close(h C.uintptr_t, failed *C.l2s_failure) C.l2s_status {
	return call(failed, func() error {
		_, err := remove[pool](table, uint64(h), "a pool")
		return err
	})
}
