/* l2s: the k largest logits W h + b of a large softmax layer, fast, on a CPU.
 *
 * Link with -ll2s (libl2s.so). docs/c.md has an example, and what a program must know about signals
 * and fork.
 *
 * A layer has the weights W, one row a label, and the bias b. A preview or a screen, both called an
 * index, makes searches over a layer faster. A pool answers: over a layer, with an index or, exactly,
 * without one.
 *
 * Errors. Every function that can fail returns an l2s_status: L2S_OK is 0, and l2s_error() is the
 * text of the last error of the calling thread. After an error, results that a function would have
 * written have no use. No function ends the process or panics.
 *
 * Threads. All functions may be called from any thread, with the same handles at the same time. The
 * exceptions have a word about it.
 *
 * Memory. What a function returns is in the caller's memory. Weights and biases are not copied: they
 * must stay, unchanged, until l2s_layer_close has returned. Everything else that a caller passes is
 * read, and written, during the call alone. Pointers must be valid: l2s cannot tell.
 *
 * Handles. A layer, an index and a pool are handles, and their bits are no address. A function refuses
 * NULL, a handle that was closed, one of another kind, and one of another copy of the library, with
 * L2S_ERR_HANDLE. Close each one once, in any order.
 */
#ifndef L2S_H
#define L2S_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface. It changes with every change after which a program must be compiled
 * anew, and is the version of libl2s.so.1. A program that loads the library by itself compares
 * l2s_abi() with it first. */
#define L2S_ABI 1

#if defined(__GNUC__)
#define L2S_API __attribute__((visibility("default")))
#else
#define L2S_API
#endif

typedef int32_t l2s_status;
enum {
	L2S_OK = 0,
	L2S_ERR_ARGUMENT = 1,  /* NULL, a number out of its range, or a struct of another version */
	L2S_ERR_HANDLE = 2,    /* a handle that is NULL, closed, of another kind, or of another library */
	L2S_ERR_CONTEXT = 3,   /* a context of another dimension than the layer's, or not finite */
	L2S_ERR_REQUEST = 4,   /* a request that does not fit the layer, such as a k above its labels */
	L2S_ERR_LAYER = 5,     /* an index that was made for another layer */
	L2S_ERR_NO_TAIL = 6,   /* a screen without a tail was asked for a probability over all labels */
	L2S_ERR_TARGET = 7,    /* an index that was made, and misses far too many labels */
	L2S_ERR_IO = 8,        /* the system's: errno has its number */
	L2S_ERR_FORMAT = 9,    /* a file, or a layer, whose content is wrong, or a file that was cut off */
	L2S_ERR_CANCELLED = 10,/* a progress function has ended the work */
	L2S_ERR_FORKED = 11,   /* the process is a child by fork() of the one that loaded the library */
	L2S_ERR_INTERNAL = 12  /* a fault of the library, or an address that cannot be read or written */
};

/* L2S_ABI of the library. */
L2S_API uint32_t l2s_abi(void);
/* The version of the library, such as "v0.9.0+devel". */
L2S_API const char *l2s_version(void);
/* The text of the last error of this thread, "" if there was none: valid until the thread's next
 * error. */
L2S_API const char *l2s_error(void);

/* ---- Matrices: weights, contexts, states ---- */

typedef int32_t l2s_type;
enum {
	L2S_FLOAT32 = 0, L2S_FLOAT16 = 1, L2S_BFLOAT16 = 2,
	/* ggml's quantised types, for weights alone */
	L2S_Q4_0 = 8, L2S_Q4_1 = 9, L2S_Q5_0 = 10, L2S_Q5_1 = 11, L2S_Q8_0 = 12,
	L2S_Q4_K = 13, L2S_Q5_K = 14, L2S_Q6_K = 15
};

/* Rows of dim elements each. stride is the distance of two rows in bytes, which may be negative; 0: the
 * rows follow each other. Weights have no other stride. Elements of a row follow each other, at an
 * address that is a multiple of their size. */
typedef struct l2s_matrix {
	const void *data;
	size_t rows, dim;
	ptrdiff_t stride;
	l2s_type type;
} l2s_matrix;

/* ---- Layers ---- */

typedef struct l2s_layer l2s_layer;

/* Opens the head of a language model, or a matrix: a folder of Hugging Face, a GGUF file, or
 * FILE.safetensors:name, FILE.npy, FILE.npz:name. Rows of a type above stay in the file, which is mapped
 * into memory and must stay as it is. bias is its source, "none", or NULL for the one of the model.
 * copy, unless 0, copies the rows into memory. */
L2S_API l2s_status l2s_layer_open(const char *source, const char *bias, int32_t copy, l2s_layer **layer);

/* A layer over rows in the caller's memory, which is not copied. bias has one number a row; NULL is no
 * bias. Logits are multiplied by scale, 1 for none, and x becomes c tanh(x/c) by a soft cap c, unless
 * that is 0. It reads the weights once, on all cores. */
L2S_API l2s_status l2s_layer_new(const l2s_matrix *weights, const float *bias, double scale, double soft_cap, l2s_layer **layer);

L2S_API l2s_status l2s_layer_shape(l2s_layer *layer, size_t *labels, size_t *dim);

/* Writes a JSON object about the layer, as text that ends in a 0 byte, into a buffer of size bytes, and
 * its length without that byte to *length. A buffer that is too small gets the beginning; it may be
 * NULL if size is 0. */
L2S_API l2s_status l2s_layer_info(l2s_layer *layer, char *buffer, size_t size, size_t *length);

/* Lets exact searches run on up to n threads, 1 to 256: one before. Answers are the same. It
 * returns L2S_ERR_ARGUMENT while a call that reads the layer is under way. */
L2S_API l2s_status l2s_layer_set_threads(l2s_layer *layer, int32_t n);

/* Closes the layer, after the calls under way that read it: then the library reads the weights no more,
 * and searches by pools over the layer return L2S_ERR_HANDLE. */
L2S_API l2s_status l2s_layer_close(l2s_layer *layer);

/* ---- Indexes: previews and screens ---- */

typedef struct l2s_index l2s_index;

/* Progress of a long work: its stage, and the finished share of it, 0 to 1. It is called some ten times
 * a second by the thread that called l2s, which cancels the work if the result is not 0. It must not
 * jump out, and must not close the layer, or change its threads. */
typedef int32_t (*l2s_progress)(void *user, const char *stage, double done);

typedef struct l2s_preview_options {
	size_t size;             /* of the struct: L2S_PREVIEW_OPTIONS sets it, and 0 to all else */
	int32_t coordinates;     /* 0: 384 */
	int32_t k;               /* of the second precision; 0: 5 */
	double precision_1, precision_k; /* the least of the normal step; 0: .9995 and .998 */
	double least_own;        /* the least found share of own states; 0: .9 */
	int32_t threads;         /* 0: all CPUs */
	const l2s_matrix *held_out; /* states that measure; NULL: a quarter of the states */
} l2s_preview_options;
#define L2S_PREVIEW_OPTIONS {sizeof(l2s_preview_options), 0, 0, 0, 0, 0, 0, NULL}

/* Makes a preview of a layer from states, contexts of the text to come: 4,000 or more. options and
 * progress may be NULL. */
L2S_API l2s_status l2s_preview_make(l2s_layer *layer, const l2s_matrix *states, const l2s_preview_options *options,
	l2s_progress progress, void *user, l2s_index **index);

typedef struct l2s_screen_options {
	size_t size;             /* of the struct: L2S_SCREEN_OPTIONS sets it, and 0 to all else */
	const char *json;        /* a JSON object of fields of train.Options, by their JSON names; NULL: the defaults, with a tail */
	const l2s_matrix *validation; /* states that measure; NULL: some of the states */
	const char *checkpoint;  /* a file that keeps the state of the run; NULL for none */
	int32_t threads;         /* 0: all CPUs */
	int32_t any_precision;   /* unless 0, accepts a screen that misses its target */
} l2s_screen_options;
#define L2S_SCREEN_OPTIONS {sizeof(l2s_screen_options), NULL, NULL, NULL, 0, 0}

/* Trains a screen for a layer from states in the order of their text: 100,000 or more. options and
 * progress may be NULL. */
L2S_API l2s_status l2s_screen_train(l2s_layer *layer, const l2s_matrix *states, const l2s_screen_options *options,
	l2s_progress progress, void *user, l2s_index **index);

/* A preview or a screen in a file, and into one, which appears when it is complete. */
L2S_API l2s_status l2s_index_load(const char *path, l2s_index **index);
L2S_API l2s_status l2s_index_save(l2s_index *index, const char *path);

/* A JSON object about the index: as l2s_layer_info. */
L2S_API l2s_status l2s_index_info(l2s_index *index, char *buffer, size_t size, size_t *length);

/* An estimate with its 95% interval. */
typedef struct l2s_estimate {
	double value, low, high;
} l2s_estimate;

/* A budget that the index knows, with its precision on contexts that the index was not made from: all
 * 0 if there were none. */
typedef struct l2s_step {
	double budget;
	double mean_scored;      /* the mean number of labels that a query scores in full */
	l2s_estimate precision_1, precision_k; /* P@1, P@k */
	l2s_estimate own;        /* the found share of own states, of a preview */
} l2s_step;

/* Writes the first of the steps, ascending, at most n, and the number of all to *total. *normal is the
 * step of requests that name no budget. steps may be NULL if n is 0. */
L2S_API l2s_status l2s_index_steps(l2s_index *index, l2s_step *steps, size_t n, size_t *total, size_t *normal);

/* Closes the index. Pools with it go on. */
L2S_API l2s_status l2s_index_close(l2s_index *index);

/* ---- Pools: searches ---- */

typedef struct l2s_pool l2s_pool;

typedef struct l2s_pool_options {
	size_t size;             /* of the struct: L2S_POOL_OPTIONS sets it, and 0 to all else */
	double budget;           /* of requests that name none; 0: the normal step of the index */
	int32_t over_tail;       /* unless 0, log-sums of a screen are sums over all labels, by its tail */
	int64_t copies;          /* the most bytes of copied codes of a screen; 0: 256 MiB, -1: none */
} l2s_pool_options;
#define L2S_POOL_OPTIONS {sizeof(l2s_pool_options), 0, 0, 0}

/* Searches over a layer with an index, NULL for the exact search, by any number of threads at the same
 * time. The layer must stay open. options may be NULL. */
L2S_API l2s_status l2s_pool_new(l2s_layer *layer, l2s_index *index, const l2s_pool_options *options, l2s_pool **pool);

/* Makes a layer and an index those of all searches that begin after it has returned. Searches under way
 * end with the old ones: l2s_layer_close of the old layer waits for them. */
L2S_API l2s_status l2s_pool_swap(l2s_pool *pool, l2s_layer *layer, l2s_index *index);

/* Writes the labels of the k largest logits of one context of float32, best first; of equal logits the
 * lower label is first. ids and logits have k elements. */
L2S_API l2s_status l2s_topk(l2s_pool *pool, const float *context, size_t k, int64_t *ids, double *logits);

/* A set of labels: a list of ids, in any order, or, if bits is not NULL, one bit a label, of label i the
 * bit i%8, from the lowest, of bits[i/8]. A set with ids and bits NULL is none: nothing is asked. */
typedef struct l2s_labels {
	const int64_t *ids;
	size_t count;            /* of ids, or of bytes of bits: the labels / 8, rounded up */
	const uint8_t *bits;
} l2s_labels;

/* A question about contexts. All 0 but for the size asks for the best labels, as the index finds them. */
typedef struct l2s_request {
	size_t size;             /* of the struct: L2S_REQUEST sets it, and 0 to all else */
	double budget;           /* the mean number of labels to score in full; 0: of the pool */
	double within;           /* leaves out labels farther below the largest logit; 0: none */
	double temperature;      /* T of the log-sum of e^(x/T); 0: 1 */
	int32_t exact;           /* unless 0, no label is missed */
	int32_t log_sum;         /* unless 0, asks for the log-sum */
	int32_t exact_sum;       /* unless 0, by the definition of logits, which takes a pass over all weights */
	l2s_labels among;        /* the only labels to choose among, distinct ids; answered exactly */
	l2s_labels also;         /* ids of labels that an index looks at besides those that it finds */
	l2s_labels allowed;      /* the labels that may be answered */
	l2s_labels banned;       /* the labels that may not */
	const int64_t *bias_ids; /* labels whose logits get biases added, ascending */
	const float *biases;
	size_t bias_count;
} l2s_request;
#define L2S_REQUEST {sizeof(l2s_request), 0, 0, 0, 0, 0, 0, {NULL, 0, NULL}, {NULL, 0, NULL}, {NULL, 0, NULL}, {NULL, 0, NULL}, NULL, NULL, 0}

typedef struct l2s_answer {
	size_t count;            /* of labels written: k, or fewer if fewer may be answered */
	double log_sum;          /* -infinity unless it was asked for */
	int32_t exact;           /* 1 if the answer was chosen among all labels: none is missed */
} l2s_answer;

/* Answers the same request about n contexts, n = contexts->rows. ids and logits have n x k elements,
 * row-major; those of a row behind its answer are -1 and -infinity. k may be 0 for a log-sum alone: then
 * ids and logits may be NULL. answers has n elements, or is NULL. request may be NULL. */
L2S_API l2s_status l2s_search(l2s_pool *pool, const l2s_matrix *contexts, size_t k, const l2s_request *request,
	int64_t *ids, double *logits, l2s_answer *answers);

/* Writes the logits of labels for each context, exactly, n x count, in the order of ids. */
L2S_API l2s_status l2s_logits(l2s_pool *pool, const l2s_matrix *contexts, const int64_t *ids, size_t count, double *logits);

/* Writes the log-probability of one label for each context, ids[i] for context i, at a temperature above
 * 0, over all labels: n numbers. A screen without a tail returns L2S_ERR_NO_TAIL. */
L2S_API l2s_status l2s_log_probs(l2s_pool *pool, const l2s_matrix *contexts, const int64_t *ids, double temperature, double *log_probs);

/* Writes the log of the sum of e^(x/T) over all labels for each context: n numbers. low and high, unless
 * they are NULL, get the ends of intervals that contain it with the confidence, at least 0 and below 1;
 * infinite where nothing is known. */
L2S_API l2s_status l2s_log_sums(l2s_pool *pool, const l2s_matrix *contexts, double temperature, double confidence,
	double *log_sums, double *low, double *high);

/* Counts of l2s_topk and l2s_search since l2s_pool_new, over all swaps. */
typedef struct l2s_stats {
	uint64_t queries;        /* contexts answered */
	uint64_t looked;         /* cheap looks by codes */
	uint64_t scored;         /* labels that answers were chosen among */
	uint64_t exact;          /* contexts that were answered exactly */
	uint64_t fallback;       /* of those, the ones that the request does not explain */
	uint64_t far;            /* contexts unlike those that a preview was made from */
} l2s_stats;
L2S_API l2s_status l2s_pool_stats(l2s_pool *pool, l2s_stats *stats);

/* Closes the pool. Searches under way end as if it were open. */
L2S_API l2s_status l2s_pool_close(l2s_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
