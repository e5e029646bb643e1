//go:build ggml && linux && cgo

package ggml

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The declarations of ggml.h and ggml-cpu.h that are called here.
typedef struct { size_t mem_size; void *mem_buffer; bool no_alloc; } init_params;
enum { TYPE_F32 = 0, TYPE_Q8_0 = 8 };

typedef struct {
	void *(*init)(init_params);
	void *(*new_tensor_1d)(void *, int, int64_t);
	void *(*new_tensor_2d)(void *, int, int64_t, int64_t);
	void *(*mul_mat)(void *, void *, void *);
	void *(*new_graph)(void *);
	void (*build_forward_expand)(void *, void *);
	void *(*get_data)(void *);
	size_t (*row_size)(int, int64_t);
	size_t (*quantize_chunk)(int, const float *, void *, int64_t, int64_t, int64_t, const float *);
	int (*compute)(void *, void *, int);
	void (*cpu_init)(void);
} api;

typedef struct { api f; void *ctx, *w, *h, *product, *graph; size_t row, used; } matrix;

static int find(api *f, void *base, void *cpu) {
	return (f->init = dlsym(base, "ggml_init")) && (f->new_tensor_1d = dlsym(base, "ggml_new_tensor_1d")) &&
		(f->new_tensor_2d = dlsym(base, "ggml_new_tensor_2d")) && (f->mul_mat = dlsym(base, "ggml_mul_mat")) &&
		(f->new_graph = dlsym(base, "ggml_new_graph")) &&
		(f->build_forward_expand = dlsym(base, "ggml_build_forward_expand")) &&
		(f->get_data = dlsym(base, "ggml_get_data")) && (f->row_size = dlsym(base, "ggml_row_size")) &&
		(f->quantize_chunk = dlsym(base, "ggml_quantize_chunk")) &&
		(f->compute = dlsym(cpu, "ggml_graph_compute_with_ctx")) && (f->cpu_init = dlsym(cpu, "ggml_cpu_init"));
}

static int score(void *cpu) {
	int (*f)(void) = dlsym(cpu, "ggml_backend_score");
	return f ? f() : 0;
}

// Each product takes memory of the context for its scratch: room for a few KiB of
// as many as a measurement makes.
static matrix *make(api f, int64_t rows, int64_t dim) {
	matrix *m = calloc(1, sizeof *m);
	m->f = f;
	m->row = f.row_size(TYPE_Q8_0, dim);
	f.cpu_init();
	init_params p = { (size_t)rows * (m->row + 4) + ((size_t)512 << 20), NULL, false };
	m->ctx = f.init(p);
	if (!m->ctx) return m;
	m->w = f.new_tensor_2d(m->ctx, TYPE_Q8_0, dim, rows);
	m->h = f.new_tensor_1d(m->ctx, TYPE_F32, dim);
	m->product = f.mul_mat(m->ctx, m->w, m->h);
	m->graph = f.new_graph(m->ctx);
	f.build_forward_expand(m->graph, m->product);
	return m;
}

static void set_row(matrix *m, int64_t i, const float *row, int64_t dim) {
	m->f.quantize_chunk(TYPE_Q8_0, row, (char *)m->f.get_data(m->w) + i * m->row, 0, 1, dim, NULL);
}

static int mul(matrix *m, float *dst, int64_t rows, const float *h, int64_t dim) {
	memcpy(m->f.get_data(m->h), h, 4 * dim);
	int status = m->f.compute(m->ctx, m->graph, 1);
	memcpy(dst, m->f.get_data(m->product), 4 * rows);
	return status;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/kernels"
)

func init() { Open = open }

type matrix struct {
	m         *C.matrix
	rows, dim int
	library   string
}

func load(path string) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	// Local: the libraries of the levels have the same names for their functions.
	lib := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if lib == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	return lib, nil
}

func open(folder string, rows kernels.Rows) (Product, error) {
	if rows.Dim()%32 != 0 {
		return nil, fmt.Errorf("dimension: found %d, expected a multiple of 32, the block of Q8_0", rows.Dim())
	}
	base, err := load(filepath.Join(folder, "libggml-base.so"))
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(folder, "libggml-cpu-*.so"))
	if err != nil {
		return nil, err
	}
	var best unsafe.Pointer
	var bestScore C.int
	var name string
	for _, path := range paths {
		cpu, err := load(path)
		if err != nil {
			return nil, err
		}
		// Zero is for CPUs that lack the library's instructions.
		if s := C.score(cpu); s > bestScore {
			best, bestScore, name = cpu, s, filepath.Base(path)
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: found no libggml-cpu-*.so for this CPU", folder)
	}
	var f C.api
	if C.find(&f, base, best) == 0 {
		return nil, fmt.Errorf("%s: found a library that lacks a function, expected all functions of ggml.h", folder)
	}
	m := &matrix{C.make(f, C.int64_t(rows.Len()), C.int64_t(rows.Dim())), rows.Len(), rows.Dim(), name}
	if m.m.ctx == nil {
		return nil, errors.New("found no memory for the matrix")
	}
	row := make([]float32, rows.Dim())
	for i := range rows.Len() {
		rows.Widen(row, i)
		C.set_row(m.m, C.int64_t(i), (*C.float)(&row[0]), C.int64_t(len(row)))
	}
	return m, nil
}

func (m *matrix) Library() string { return m.library }

func (m *matrix) Mul(dst, h []float32) {
	if len(dst) != m.rows || len(h) != m.dim {
		panic("ggml: lengths differ from the shape of the matrix")
	}
	if status := C.mul(m.m, (*C.float)(&dst[0]), C.int64_t(m.rows), (*C.float)(&h[0]), C.int64_t(m.dim)); status != 0 {
		panic(fmt.Sprintf("ggml: status %d", status))
	}
}
