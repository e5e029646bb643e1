// The functions of l2s.h. They guard Go's runtime: no call reaches it in the child of a fork, where it
// does not run, and its threads get no signal of the host.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

// After front.h: the prototypes of the Go functions.
#include "_cgo_export.h"

// Few bytes belong to each thread: the library is loaded late, when the system has little room left for
// them (Go's own must be in the block that is made at the start).
static _Thread_local l2s_failure *own; // the last error, NULL before the first one
static _Thread_local l2s_layer *working; // whose progress function this thread runs

static pthread_key_t key; // frees own at the end of a thread
static int has_key;

static void end_of_thread(void *memory)
{
	free(memory);
	own = NULL;
}

__attribute__((constructor)) static void make_key(void) { has_key = pthread_key_create(&key, end_of_thread) == 0; }

// mine returns the memory of this thread's error. Threads share one if there is no memory.
static l2s_failure *mine(void)
{
	static l2s_failure last_resort;
	if (own == NULL && has_key) {
		own = calloc(1, sizeof *own);
		if (own != NULL && pthread_setspecific(key, own) != 0) {
			free(own);
			own = NULL;
		}
	}
	return own != NULL ? own : &last_resort;
}

static volatile sig_atomic_t forked;

static void in_child(void) { forked = 1; }

static sigset_t mask;             // of the thread that loads the library
static struct sigaction pipe_was; // of SIGPIPE, before Go

// Before Go's runtime starts: its threads inherit a mask that blocks what is the host's to handle. Go
// itself needs the signals of faults, and SIGURG, by which it interrupts loops.
__attribute__((constructor(101))) static void before_go(void)
{
	sigset_t block;
	sigfillset(&block);
	static const int needed[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGURG};
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		sigdelset(&block, needed[i]);
	sigaction(SIGPIPE, NULL, &pipe_was);
	pthread_sigmask(SIG_BLOCK, &block, &mask);
}

// After Go has created its first thread: the linker places Go's own constructor before this one.
__attribute__((constructor)) static void after_go(void)
{
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	pthread_atfork(NULL, NULL, in_child);
}

// restore gives SIGPIPE back to the host, unless the host has taken it already.
static void restore(void)
{
	struct sigaction now;
	Dl_info of, self;
	l2sgo_start(); // waits for Go's runtime
	if (sigaction(SIGPIPE, NULL, &now) != 0 || !dladdr((void *)restore, &self))
		return;
	if (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN && dladdr((void *)now.sa_handler, &of) && of.dli_fbase == self.dli_fbase)
		sigaction(SIGPIPE, &pipe_was, NULL);
}

static l2s_status fail(l2s_status status, const char *text)
{
	l2s_failure *failure = mine();
	failure->number = 0;
	snprintf(failure->text, sizeof failure->text, "%s", text);
	return status;
}

// usable reports whether this process may call Go.
static inline l2s_status usable(void)
{
	if (forked)
		return fail(L2S_ERR_FORKED, "l2s: found a process that was made by fork(), expected the one that loaded the library: start a new process (exec, or multiprocessing's \"spawn\") and open the layer there");
	return L2S_OK;
}

// started does the same for functions that make handles: without a handle no other one gets far.
static l2s_status started(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	l2s_status status = usable();
	if (status == L2S_OK)
		pthread_once(&once, restore);
	return status;
}

static inline l2s_status done(l2s_status status)
{
	if (status == L2S_ERR_IO)
		errno = mine()->number;
	return status;
}

#define GO(ready, call)                       \
	do {                                  \
		l2s_status unready = ready(); \
		if (unready != L2S_OK)        \
			return unready;       \
		return done(call);            \
	} while (0)
#define H(handle) ((uintptr_t)(handle))

uint32_t l2s_abi(void) { return L2S_ABI; }

static char version[64];

static void ask_version(void) { l2sgo_version(version, sizeof version); }

const char *l2s_version(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (!forked)
		pthread_once(&once, ask_version);
	return version;
}

const char *l2s_error(void) { return own != NULL ? own->text : ""; }

int32_t l2s_report(l2s_progress progress, void *user, const char *stage, double share) { return progress(user, stage, share); }

l2s_status l2s_layer_open(const char *source, const char *bias, int32_t copy, l2s_layer **layer) { GO(started, l2sgo_layer_open((char *)source, (char *)bias, copy, (uintptr_t *)layer, mine())); }

l2s_status l2s_layer_new(const l2s_matrix *weights, const float *bias, double scale, double soft_cap, l2s_layer **layer)
{
	GO(started, l2sgo_layer_new((l2s_matrix *)weights, (float *)bias, scale, soft_cap, (uintptr_t *)layer, mine()));
}

l2s_status l2s_layer_shape(l2s_layer *layer, size_t *labels, size_t *dim) { GO(usable, l2sgo_layer_shape(H(layer), labels, dim, mine())); }

l2s_status l2s_layer_info(l2s_layer *layer, char *buffer, size_t size, size_t *length) { GO(usable, l2sgo_layer_info(H(layer), buffer, size, length, mine())); }

// The calling thread reads the layer while it runs a progress function: it would wait for itself.
static l2s_status itself(l2s_layer *layer)
{
	if (layer != NULL && layer == working)
		return fail(L2S_ERR_ARGUMENT, "l2s: layer: found a progress function that closes or changes the layer of its own work");
	return usable();
}

static l2s_status set_threads(l2s_layer *layer, int32_t n) { GO(usable, l2sgo_layer_set_threads(H(layer), n, mine())); }

l2s_status l2s_layer_set_threads(l2s_layer *layer, int32_t n)
{
	l2s_status status = itself(layer);
	return status != L2S_OK ? status : set_threads(layer, n);
}

static l2s_status layer_close(l2s_layer *layer) { GO(usable, l2sgo_layer_close(H(layer), mine())); }

l2s_status l2s_layer_close(l2s_layer *layer)
{
	l2s_status status = itself(layer);
	return status != L2S_OK ? status : layer_close(layer);
}

l2s_status l2s_preview_make(l2s_layer *layer, const l2s_matrix *states, const l2s_preview_options *options, l2s_progress progress, void *user, l2s_index **index)
{
	l2s_layer *before = working;
	l2s_status status = usable();
	if (status != L2S_OK)
		return status;
	working = layer;
	status = l2sgo_preview_make(H(layer), (l2s_matrix *)states, (l2s_preview_options *)options, progress, user, (uintptr_t *)index, mine());
	working = before;
	return done(status);
}

l2s_status l2s_screen_train(l2s_layer *layer, const l2s_matrix *states, const l2s_screen_options *options, l2s_progress progress, void *user, l2s_index **index)
{
	l2s_layer *before = working;
	l2s_status status = usable();
	if (status != L2S_OK)
		return status;
	working = layer;
	status = l2sgo_screen_train(H(layer), (l2s_matrix *)states, (l2s_screen_options *)options, progress, user, (uintptr_t *)index, mine());
	working = before;
	return done(status);
}

l2s_status l2s_index_load(const char *path, l2s_index **index) { GO(started, l2sgo_index_load((char *)path, (uintptr_t *)index, mine())); }

l2s_status l2s_index_save(l2s_index *index, const char *path) { GO(usable, l2sgo_index_save(H(index), (char *)path, mine())); }

l2s_status l2s_index_info(l2s_index *index, char *buffer, size_t size, size_t *length) { GO(usable, l2sgo_index_info(H(index), buffer, size, length, mine())); }

l2s_status l2s_index_steps(l2s_index *index, l2s_step *steps, size_t n, size_t *total, size_t *normal) { GO(usable, l2sgo_index_steps(H(index), steps, n, total, normal, mine())); }

l2s_status l2s_index_close(l2s_index *index) { GO(usable, l2sgo_index_close(H(index), mine())); }

l2s_status l2s_pool_new(l2s_layer *layer, l2s_index *index, const l2s_pool_options *options, l2s_pool **pool)
{
	GO(started, l2sgo_pool_new(H(layer), H(index), (l2s_pool_options *)options, (uintptr_t *)pool, mine()));
}

l2s_status l2s_pool_swap(l2s_pool *pool, l2s_layer *layer, l2s_index *index) { GO(usable, l2sgo_pool_swap(H(pool), H(layer), H(index), mine())); }

l2s_status l2s_topk(l2s_pool *pool, const float *context, size_t k, int64_t *ids, double *logits) { GO(usable, l2sgo_topk(H(pool), (float *)context, k, ids, logits, mine())); }

l2s_status l2s_search(l2s_pool *pool, const l2s_matrix *contexts, size_t k, const l2s_request *request, int64_t *ids, double *logits, l2s_answer *answers)
{
	GO(usable, l2sgo_search(H(pool), (l2s_matrix *)contexts, k, (l2s_request *)request, ids, logits, answers, mine()));
}

l2s_status l2s_logits(l2s_pool *pool, const l2s_matrix *contexts, const int64_t *ids, size_t count, double *logits)
{
	GO(usable, l2sgo_logits(H(pool), (l2s_matrix *)contexts, (int64_t *)ids, count, logits, mine()));
}

l2s_status l2s_log_probs(l2s_pool *pool, const l2s_matrix *contexts, const int64_t *ids, double temperature, double *log_probs)
{
	GO(usable, l2sgo_log_probs(H(pool), (l2s_matrix *)contexts, (int64_t *)ids, temperature, log_probs, mine()));
}

l2s_status l2s_log_sums(l2s_pool *pool, const l2s_matrix *contexts, double temperature, double confidence, double *log_sums, double *low, double *high)
{
	GO(usable, l2sgo_log_sums(H(pool), (l2s_matrix *)contexts, temperature, confidence, log_sums, low, high, mine()));
}

l2s_status l2s_pool_stats(l2s_pool *pool, l2s_stats *stats) { GO(usable, l2sgo_pool_stats(H(pool), stats, mine())); }

l2s_status l2s_pool_close(l2s_pool *pool) { GO(usable, l2sgo_pool_close(H(pool), mine())); }
