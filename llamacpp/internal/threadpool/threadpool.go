// Package threadpool has thread pools of llama.cpp, which compute graphs and, between two of them,
// searches.
package threadpool

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"
)

// Pool has the threads of a context of llama.cpp, which computes its graphs on them, and lends them
// between two graphs. Its threads look for work for some milliseconds before they sleep, so that a
// search begins on all of them within microseconds. Goroutines take longer to wake up, and
// llama.cpp without a pool starts new threads for each graph. A graph must be computed under the
// lock, one at a time.
type Pool struct {
	sync.Mutex
	number  uintptr // by which the callback finds it
	joined  []llama.Context
	threads int     // 1: there is no pool of llama.cpp
	pool    uintptr // ggml_threadpool
	backend uintptr // computes the graph on the pool
	memory  uintptr // ggml_context of the graph
	graph   uintptr // one node, which calls work on all threads
	work    func(worker int)
	most    int // numbers of workers are below it
}

// idlePolls is the poll level of a pool: how often its threads check for work before they sleep, in
// units of 2^17. llama.cpp's own programs have 50, which takes a core for a good part of a second.
const idlePolls = 1

// ggml_threadpool_params begins with a mask of 512 CPUs.
const (
	paramsThreads = 512
	paramsPoll    = 520
	paramsBytes   = 1024 // more than it takes
	graphBytes    = 1 << 20
)

// ggmlThreads are functions of ggml for thread pools and graphs. A uintptr is an address of C.
type ggmlThreads struct {
	once sync.Once
	err  error

	paramsInit     func(params *byte, threads int32)
	newPool        func(params *byte) uintptr
	freePool       func(pool uintptr)
	newBackend     func(name string, params uintptr) uintptr
	freeBackend    func(backend uintptr)
	backendThreads func(backend uintptr, threads int32)
	backendPool    func(backend, pool uintptr)
	init           ffi.Fun // ggml_init, whose argument is a structure
	free           func(memory uintptr)
	newTensor      func(memory uintptr, kind int32, n int64) uintptr
	custom         func(memory, tensor, function uintptr, threads int32, user uintptr) uintptr
	newGraph       func(memory uintptr) uintptr
	build          func(graph, tensor uintptr)

	compute  uintptr // ggml_backend_graph_compute, for every search
	callback uintptr // lends, as a ggml_custom1_op_t
}

var (
	ggml     ggmlThreads
	pools    sync.Map // number to *Pool
	lastPool atomic.Uintptr
)

func (g *ggmlThreads) load() error {
	g.once.Do(func() { g.err = g.find() })
	return g.err
}

func (g *ggmlThreads) find() error {
	folder := llama.LibPath()
	var registered func(name string) uintptr
	var inRegistry func(registry uintptr, name string) uintptr
	for _, library := range []struct {
		name      string
		functions map[string]any
	}{
		{"ggml-base", map[string]any{
			"ggml_threadpool_params_init": &g.paramsInit, "ggml_backend_free": &g.freeBackend,
			"ggml_free": &g.free, "ggml_new_tensor_1d": &g.newTensor, "ggml_map_custom1": &g.custom,
			"ggml_new_graph": &g.newGraph, "ggml_build_forward_expand": &g.build,
			"ggml_backend_reg_get_proc_address": &inRegistry, "ggml_backend_graph_compute": &g.compute,
		}},
		{"ggml", map[string]any{
			"ggml_backend_init_by_name": &g.newBackend, "ggml_backend_reg_by_name": &registered,
		}},
	} {
		lib, err := loader.Open(loader.GetLibraryFilename(folder, library.name))
		if err != nil {
			return fmt.Errorf("llamacpp: %w", err)
		}
		for name, f := range library.functions {
			address, err := lib.Get(name)
			if err != nil {
				return fmt.Errorf("llamacpp: %s: %s: found no function %s, expected it: %w", folder, library.name, name, err)
			}
			if at, ok := f.(*uintptr); ok {
				*at = address
			} else {
				purego.RegisterFunc(f, address)
			}
		}
		if library.name == "ggml-base" {
			params := ffi.NewType(&ffi.TypeUint64, &ffi.TypePointer, &ffi.TypeUint8)
			if g.init, err = lib.Prep("ggml_init", &ffi.TypePointer, &params); err != nil {
				return fmt.Errorf("llamacpp: %s: ggml-base: found no function ggml_init, expected it: %w", folder, err)
			}
		}
	}
	registry := registered("CPU")
	if registry == 0 {
		return fmt.Errorf("llamacpp: %s: found no backend of the CPU, expected one", folder)
	}
	for name, f := range map[string]any{
		"ggml_threadpool_new": &g.newPool, "ggml_threadpool_free": &g.freePool,
		"ggml_backend_set_n_threads": &g.backendThreads, "ggml_backend_cpu_set_threadpool": &g.backendPool,
	} {
		address := inRegistry(registry, name)
		if address == 0 {
			return fmt.Errorf("llamacpp: %s: the backend of the CPU: found no function %s, expected it", folder, name)
		}
		purego.RegisterFunc(f, address)
	}
	g.callback = purego.NewCallback(lends)
	return nil
}

// lends is the function of the node: each thread of the pool calls it with its number.
func lends(_, _ uintptr, thread, _ int32, number uintptr) uintptr {
	if x, ok := pools.Load(number); ok {
		if p := x.(*Pool); int(thread) < p.most {
			p.work(int(thread))
		}
	}
	return 0
}

// New returns a pool of one thread, the caller's.
func New() (*Pool, error) {
	if err := ggml.load(); err != nil {
		return nil, err
	}
	p := &Pool{number: lastPool.Add(1), threads: 1}
	pools.Store(p.number, p)
	return p, nil
}

// Close frees the pool, which no context may use any more. Searches of heads continue with one
// thread.
func (p *Pool) Close() {
	p.Lock()
	defer p.Unlock()
	p.stop()
	pools.Delete(p.number)
}

// spare counts the pools with threads, for which Go has spare processors. If all processors are in
// use, as while a search calls Go from two threads of C, the scheduler of Go takes back the ones
// that wait for C, and has a thread wake up each 90 us for the next 4 ms: on two cores each wake-up
// stops a thread that llama.cpp's other threads wait for. With spare ones it sleeps: a token of
// SmolLM2 on two threads took 6.1 ms, not 7.0.
var spare struct {
	sync.Mutex
	pools  int
	before int // the number without pools
}

const spareProcessors = 2

// Processors returns runtime.GOMAXPROCS without the spare ones.
func Processors() int {
	spare.Lock()
	defer spare.Unlock()
	if n := runtime.GOMAXPROCS(0); spare.pools == 0 || n != spare.before+spareProcessors {
		return n
	}
	return spare.before
}

func raise() {
	spare.Lock()
	defer spare.Unlock()
	if spare.pools++; spare.pools == 1 {
		spare.before = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(spare.before + spareProcessors)
	}
}

func lower() {
	spare.Lock()
	defer spare.Unlock()
	// The program may have set another number.
	if spare.pools--; spare.pools == 0 && runtime.GOMAXPROCS(0) == spare.before+spareProcessors {
		runtime.GOMAXPROCS(spare.before)
	}
}

func (p *Pool) stop() {
	if p.pool != 0 {
		lower()
		ggml.free(p.memory)
		ggml.freeBackend(p.backend)
		ggml.freePool(p.pool)
		p.pool, p.threads = 0, 1
	}
}

// Join has one more context compute on the threads, until Leave.
func (p *Pool) Join(ctx llama.Context) {
	p.Lock()
	defer p.Unlock()
	p.joined = append(p.joined, ctx)
	if p.pool != 0 {
		llama.AttachThreadpool(ctx, p.pool, p.pool)
	}
}

// Leave ends Join.
func (p *Pool) Leave(ctx llama.Context) {
	p.Lock()
	defer p.Unlock()
	llama.DetachThreadpool(ctx)
	p.joined = slices.DeleteFunc(p.joined, func(c llama.Context) bool { return c == ctx })
}

// Set changes the number of threads, and has a context, and those that have joined it, compute on
// them.
func (p *Pool) Set(ctx llama.Context, threads int) error {
	p.Lock()
	defer p.Unlock()
	if threads == p.threads {
		return nil
	}
	all := append(p.joined[:len(p.joined):len(p.joined)], ctx)
	for _, c := range all {
		llama.DetachThreadpool(c)
	}
	p.stop()
	if threads < 2 {
		return nil
	}
	var params [paramsBytes]byte
	ggml.paramsInit(&params[0], int32(threads))
	if *(*int32)(unsafe.Pointer(&params[paramsThreads])) == int32(threads) { // as this version has it
		*(*uint32)(unsafe.Pointer(&params[paramsPoll])) = idlePolls
	}
	if p.pool = ggml.newPool(&params[0]); p.pool == 0 {
		return fmt.Errorf("llamacpp: llama.cpp made no pool of %d threads", threads)
	}
	p.backend = ggml.newBackend("CPU", 0)
	ggml.backendThreads(p.backend, int32(threads))
	ggml.backendPool(p.backend, p.pool)
	in := struct {
		bytes   uint64
		memory  uintptr
		noAlloc uint8
	}{bytes: graphBytes}
	ggml.init.Call(unsafe.Pointer(&p.memory), unsafe.Pointer(&in))
	node := ggml.custom(p.memory, ggml.newTensor(p.memory, 0, 1), ggml.callback, -1, p.number)
	p.graph = ggml.newGraph(p.memory)
	ggml.build(p.graph, node)
	p.threads = threads
	raise()
	for _, c := range all {
		llama.AttachThreadpool(c, p.pool, p.pool)
	}
	return nil
}

// Run calls work with the numbers from 0 on, below n, at the same time: on the pool's threads, or
// with 0 alone if they are busy or Go uses one.
func (p *Pool) Run(n int, work func(worker int)) {
	if Processors() < 2 || !p.TryLock() {
		work(0)
		return
	}
	defer p.Unlock()
	if p.pool == 0 {
		work(0)
		return
	}
	p.work, p.most = work, n
	purego.SyscallN(ggml.compute, p.backend, p.graph)
	p.work = nil
}
