/* Tests of libl2s.so as a C program sees it: test [NAME], all of them without a name; test fuzz CALLS, random
 * calls; test soak, threads and random calls until SIGTERM; test bench, for bench/main.go.
 * Answers are compared with plain loops here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "l2s.h"

static const char *test_name = "";
static int failed;

#define CHECK(ok, ...) \
	do { \
		if (!(ok)) { \
			failed++; \
			fprintf(stderr, "%s: line %d: %s: ", test_name, __LINE__, #ok); \
			fprintf(stderr, __VA_ARGS__); \
			fprintf(stderr, "; l2s_error: %s\n", l2s_error()); \
		} \
	} while (0)
#define OK(call) \
	do { \
		l2s_status status_ = (call); \
		CHECK(status_ == L2S_OK, "found status %d", status_); \
	} while (0)
/* REFUSED: the call returns the status, and a text that has a part. */
#define REFUSED(status, part, call) \
	do { \
		l2s_status status_ = (call); \
		CHECK(status_ == (status), "found status %d", status_); \
		CHECK(strstr(l2s_error(), part), "found another text, expected %s", part); \
	} while (0)

enum { LABELS = 8000, DIM = 32, STATES = 4000, K = 5 };

static float *weights, *bias, *states;

static _Thread_local uint64_t seed = 1;

static uint64_t next(void)
{
	seed += 0x9e3779b97f4a7c15;
	uint64_t z = seed;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static float normal(void)
{
	double u = (next() >> 11) * 0x1p-53 + 0x1p-54, v = (next() >> 11) * 0x1p-53;
	return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void make_data(void)
{
	if (weights)
		return;
	weights = malloc(sizeof(float) * LABELS * DIM);
	bias = malloc(sizeof(float) * LABELS);
	states = malloc(sizeof(float) * STATES * DIM);
	for (int i = 0; i < LABELS * DIM; i++)
		weights[i] = normal();
	for (int i = 0; i < LABELS; i++)
		bias[i] = normal();
	/* A state is near the row of one of the labels, so that some label leads, as in a model. */
	for (int i = 0; i < STATES; i++) {
		const float *row = weights + next() % LABELS * DIM;
		for (int j = 0; j < DIM; j++)
			states[i * DIM + j] = row[j] + .3f * normal();
	}
}

static l2s_matrix matrix(const float *data, size_t rows)
{
	return (l2s_matrix){data, rows, DIM, 0, L2S_FLOAT32};
}

static l2s_layer *make_layer(void)
{
	make_data();
	l2s_matrix w = matrix(weights, LABELS);
	l2s_layer *layer = NULL;
	OK(l2s_layer_new(&w, bias, 1, 0, &layer));
	return layer;
}

/* A name for mkstemp and mkdtemp, in the folder of temporary files, or the working one. */
static void temporary(char *path, size_t size)
{
	const char *folder = getenv("TMPDIR");
	snprintf(path, size, "%s/l2s-test-XXXXXX", folder && *folder ? folder : ".");
}

static l2s_pool *make_pool(l2s_layer *layer, l2s_index *index)
{
	l2s_pool *pool = NULL;
	OK(l2s_pool_new(layer, index, NULL, &pool));
	return pool;
}

static l2s_index *make_preview(l2s_layer *layer)
{
	l2s_index *index = NULL;
	l2s_matrix x = matrix(states, STATES);
	OK(l2s_preview_make(layer, &x, NULL, NULL, NULL, &index));
	return index;
}

static double logit(const float *h, int label)
{
	double sum = 0;
	for (int j = 0; j < DIM; j++)
		sum += (double)weights[label * DIM + j] * h[j];
	return sum + bias[label];
}

/* best writes the labels of the k largest of the logits that allowed has, NULL for all. */
static void best(const float *h, int k, const uint8_t *allowed, int64_t *ids, double *logits)
{
	for (int i = 0; i < k; i++)
		ids[i] = -1, logits[i] = -INFINITY;
	for (int s = 0; s < LABELS; s++) {
		double x = logit(h, s);
		if ((allowed && !(allowed[s / 8] >> s % 8 & 1)) || !(x > logits[k - 1]))
			continue;
		int at = k - 1;
		for (; at > 0 && x > logits[at - 1]; at--)
			ids[at] = ids[at - 1], logits[at] = logits[at - 1];
		ids[at] = s, logits[at] = x;
	}
}

static void check_answer(const int64_t *ids, const double *logits, const int64_t *want, const double *numbers, int k)
{
	for (int i = 0; i < k; i++)
		CHECK(ids[i] == want[i] && (ids[i] < 0 || fabs(logits[i] - numbers[i]) < 1e-9), "place %d: found label %ld with %.17g, expected %ld with %.17g", i, (long)ids[i], logits[i], (long)want[i], numbers[i]);
}

/* ---- answers ---- */

static void test_versions(void)
{
	CHECK(l2s_abi() == L2S_ABI, "found %u", l2s_abi());
	CHECK(l2s_version()[0] == 'v', "found %s", l2s_version());
}

static void test_exact(void)
{
	l2s_layer *layer = make_layer();
	l2s_pool *pool = make_pool(layer, NULL);
	size_t labels, dim;
	OK(l2s_layer_shape(layer, &labels, &dim));
	CHECK(labels == LABELS && dim == DIM, "found %zu x %zu", labels, dim);
	int64_t ids[K], want[K];
	double logits[K], numbers[K];
	for (int i = 0; i < 20; i++) {
		best(states + i * DIM, K, NULL, want, numbers);
		OK(l2s_topk(pool, states + i * DIM, K, ids, logits));
		check_answer(ids, logits, want, numbers, K);
	}
	OK(l2s_layer_set_threads(layer, 2));
	OK(l2s_topk(pool, states + 19 * DIM, K, ids, logits));
	check_answer(ids, logits, want, numbers, K);
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

static void test_batches(void)
{
	l2s_layer *layer = make_layer();
	l2s_pool *pool = make_pool(layer, NULL);
	enum { N = 37 };
	int64_t one[N * K], all[N * K];
	double a[N * K], b[N * K];
	l2s_answer answers[N];
	for (int i = 0; i < N; i++)
		OK(l2s_topk(pool, states + i * DIM, K, one + i * K, a + i * K));
	l2s_matrix x = matrix(states, N);
	OK(l2s_search(pool, &x, K, NULL, all, b, answers));
	CHECK(!memcmp(one, all, sizeof one) && !memcmp(a, b, sizeof a), "found other answers in a batch");
	for (int i = 0; i < N; i++)
		CHECK(answers[i].count == K && answers[i].exact == 1 && isinf(answers[i].log_sum), "context %d: found %zu, %d, %g", i, answers[i].count, answers[i].exact, answers[i].log_sum);
	/* The last context first, by a negative stride; and every second number of a wider matrix. */
	x = (l2s_matrix){states + (N - 1) * DIM, N, DIM, -(ptrdiff_t)sizeof(float) * DIM, L2S_FLOAT32};
	OK(l2s_search(pool, &x, K, NULL, all, b, NULL));
	for (int i = 0; i < N; i++)
		CHECK(!memcmp(all + i * K, one + (N - 1 - i) * K, K * sizeof *all), "context %d: found other labels by a stride", i);
	x = (l2s_matrix){states, N / 2, DIM, 2 * sizeof(float) * DIM, L2S_FLOAT32};
	OK(l2s_search(pool, &x, K, NULL, all, b, NULL));
	for (int i = 0; i < N / 2; i++)
		CHECK(!memcmp(all + i * K, one + 2 * i * K, K * sizeof *all), "context %d: found other labels by a stride", i);
	OK(l2s_search(pool, &(l2s_matrix){NULL, 0, DIM, 0, L2S_FLOAT32}, K, NULL, NULL, NULL, NULL)); /* no context */
	/* bfloat16 contexts are their float32 numbers. */
	uint16_t half[DIM];
	float wide[DIM];
	for (int j = 0; j < DIM; j++) {
		uint32_t bits;
		memcpy(&bits, states + j, 4);
		half[j] = bits >> 16;
		bits = (uint32_t)half[j] << 16;
		memcpy(wide + j, &bits, 4);
	}
	OK(l2s_topk(pool, wide, K, one, a));
	OK(l2s_search(pool, &(l2s_matrix){half, 1, DIM, 0, L2S_BFLOAT16}, K, NULL, all, b, NULL));
	CHECK(!memcmp(one, all, K * sizeof *one) && !memcmp(a, b, K * sizeof *a), "found another answer to bfloat16");
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

static void test_requests(void)
{
	l2s_layer *layer = make_layer();
	l2s_pool *pool = make_pool(layer, NULL);
	const float *h = states;
	l2s_matrix x = matrix(h, 1);
	int64_t ids[K], want[K], again[K];
	double logits[K], numbers[K], more[K];
	uint8_t bits[(LABELS + 7) / 8];
	l2s_answer answer;
	int64_t top[3 * K];
	double tops[3 * K];
	best(h, 3 * K, NULL, top, tops);

	l2s_request r = L2S_REQUEST; /* banned, as ids and as bits */
	r.banned.ids = top, r.banned.count = 3;
	OK(l2s_search(pool, &x, K, &r, ids, logits, &answer));
	check_answer(ids, logits, top + 3, tops + 3, K);
	memset(bits, 0, sizeof bits);
	for (int i = 0; i < 3; i++)
		bits[top[i] / 8] |= 1 << top[i] % 8;
	r = (l2s_request)L2S_REQUEST;
	r.banned.bits = bits, r.banned.count = sizeof bits;
	OK(l2s_search(pool, &x, K, &r, again, more, NULL));
	CHECK(!memcmp(ids, again, sizeof ids) && !memcmp(logits, more, sizeof more), "found another answer by bits");

	for (size_t i = 0; i < sizeof bits; i++) /* allowed */
		bits[i] = next();
	best(h, K, bits, want, numbers);
	r = (l2s_request)L2S_REQUEST;
	r.allowed.bits = bits, r.allowed.count = sizeof bits;
	OK(l2s_search(pool, &x, K, &r, ids, logits, NULL));
	check_answer(ids, logits, want, numbers, K);
	int64_t few[] = {7, 3, 7999};
	r = (l2s_request)L2S_REQUEST;
	r.allowed.ids = few, r.allowed.count = 3;
	OK(l2s_search(pool, &x, K, &r, ids, logits, &answer));
	CHECK(answer.count == 3 && ids[3] == -1 && ids[4] == -1 && isinf(logits[4]), "found %zu labels, %ld, %g behind", answer.count, (long)ids[3], logits[4]);
	r = (l2s_request)L2S_REQUEST; /* among: the same */
	r.among.ids = few, r.among.count = 3;
	OK(l2s_search(pool, &x, K, &r, again, more, &answer));
	CHECK(!memcmp(ids, again, sizeof ids) && answer.exact, "found another answer among ids");
	r = (l2s_request)L2S_REQUEST; /* also changes no answer without a miss */
	r.also.ids = few, r.also.count = 3;
	best(h, K, NULL, want, numbers);
	OK(l2s_search(pool, &x, K, &r, again, more, &answer));
	check_answer(again, more, want, numbers, K);
	r = (l2s_request)L2S_REQUEST;
	r.among.ids = few;
	r.among.count = 0; /* the empty set */
	OK(l2s_search(pool, &x, K, &r, ids, logits, &answer));
	CHECK(answer.count == 0 && ids[0] == -1, "found %zu labels among none", answer.count);

	int64_t biased[] = {5, 11}; /* biases */
	float add[] = {1000, -1};
	r = (l2s_request)L2S_REQUEST;
	r.bias_ids = biased, r.biases = add, r.bias_count = 2;
	OK(l2s_search(pool, &x, K, &r, ids, logits, NULL));
	CHECK(ids[0] == 5 && fabs(logits[0] - logit(h, 5) - 1000) < 1e-9, "found label %ld with %g", (long)ids[0], logits[0]);

	r = (l2s_request)L2S_REQUEST; /* within */
	r.within = tops[0] - tops[2] + 1e-6;
	OK(l2s_search(pool, &x, K, &r, ids, logits, &answer));
	CHECK(answer.count == 3, "found %zu labels within %g", answer.count, r.within);

	r = (l2s_request)L2S_REQUEST; /* sums */
	r.log_sum = r.exact_sum = 1, r.temperature = 2;
	OK(l2s_search(pool, &x, 0, &r, NULL, NULL, &answer));
	double sum = 0;
	for (int s = 0; s < LABELS; s++)
		sum += exp(logit(h, s) / 2);
	CHECK(fabs(answer.log_sum - log(sum)) < 1e-9, "found the log-sum %.17g, expected %.17g", answer.log_sum, log(sum));
	double log_sum, low, high, log_prob;
	OK(l2s_log_sums(pool, &x, 2, .9, &log_sum, &low, &high));
	CHECK(fabs(log_sum - log(sum)) < 1e-9 && low == log_sum && high == log_sum, "found %g, %g to %g", log_sum, low, high);
	OK(l2s_log_probs(pool, &x, top, 2, &log_prob));
	CHECK(fabs(log_prob - (tops[0] / 2 - log(sum))) < 1e-9, "found the log-probability %g", log_prob);
	OK(l2s_logits(pool, &x, few, 3, logits));
	for (int i = 0; i < 3; i++)
		CHECK(fabs(logits[i] - logit(h, few[i])) < 1e-9, "found the logit %g", logits[i]);
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

static int reports;
static double last_done;

static int32_t count(void *user, const char *stage, double done)
{
	CHECK(user == &reports && stage && done >= 0 && done <= 1, "found %s, %g", stage, done);
	reports++, last_done = done;
	return 0;
}

static void test_preview(void)
{
	l2s_layer *layer = make_layer();
	l2s_matrix x = matrix(states, STATES);
	l2s_preview_options o = L2S_PREVIEW_OPTIONS;
	l2s_index *index = NULL, *loaded = NULL;
	OK(l2s_preview_make(layer, &x, &o, count, &reports, &index));
	CHECK(reports > 0 && last_done == 1, "found %d reports, the last of %g", reports, last_done);
	size_t total, normal, length;
	OK(l2s_index_steps(index, NULL, 0, &total, &normal));
	l2s_step steps[64];
	OK(l2s_index_steps(index, steps, 64, &total, &normal));
	CHECK(total >= 1 && total < 64 && normal < total && steps[normal].precision_1.value > .99, "found %zu steps, P@1 %g", total, steps[normal].precision_1.value);
	char text[4096], part[8];
	OK(l2s_index_info(index, text, sizeof text, &length));
	CHECK(length == strlen(text) && strstr(text, "\"kind\":\"preview\"") && strstr(text, "\"labels\":8000"), "found %s", text);
	OK(l2s_index_info(index, part, sizeof part, &length));
	CHECK(!strncmp(part, text, 7) && part[7] == 0, "found %s", part);
	OK(l2s_layer_info(layer, text, sizeof text, &length));
	CHECK(strstr(text, "8000 x 32 float32"), "found %s", text);

	char path[256];
	temporary(path, sizeof path);
	close(mkstemp(path));
	OK(l2s_index_save(index, path));
	OK(l2s_index_load(path, &loaded));
	unlink(path);
	l2s_pool *a = make_pool(layer, index), *b = make_pool(layer, loaded), *exactly = make_pool(layer, NULL);
	OK(l2s_index_close(index)); /* pools go on */
	OK(l2s_index_close(loaded));
	int found = 0, n = 500;
	int64_t i1[K], i2[K], want[K];
	double l1[K], l2[K], numbers[K];
	for (int i = 0; i < n; i++) {
		OK(l2s_topk(a, states + i * DIM, K, i1, l1));
		OK(l2s_topk(b, states + i * DIM, K, i2, l2));
		CHECK(!memcmp(i1, i2, sizeof i1) && !memcmp(l1, l2, sizeof l1), "found another answer by the file");
		OK(l2s_topk(exactly, states + i * DIM, K, want, numbers));
		found += i1[0] == want[0];
	}
	CHECK(found > .99 * n, "found %d of %d", found, n);
	l2s_stats stats;
	OK(l2s_pool_stats(a, &stats));
	CHECK(stats.queries == (uint64_t)n, "found %lu queries", (unsigned long)stats.queries);
	OK(l2s_pool_swap(a, layer, NULL));
	OK(l2s_topk(a, states, K, i1, l1));
	OK(l2s_topk(exactly, states, K, want, numbers));
	CHECK(!memcmp(i1, want, sizeof i1), "found another answer after a swap");
	OK(l2s_pool_close(a));
	OK(l2s_pool_close(b));
	OK(l2s_pool_close(exactly));
	OK(l2s_layer_close(layer));
}

static int32_t stop(void *user, const char *stage, double done)
{
	(void)stage, (void)done;
	l2s_layer *layer = user;
	REFUSED(L2S_ERR_ARGUMENT, "its own work", l2s_layer_close(layer));
	REFUSED(L2S_ERR_ARGUMENT, "its own work", l2s_layer_set_threads(layer, 2));
	return 1;
}

static void test_cancel(void)
{
	make_data();
	enum { MORE = 120000 }; /* long enough for a report */
	float *w = malloc(sizeof(float) * MORE * DIM);
	for (int i = 0; i < MORE * DIM; i++)
		w[i] = normal();
	l2s_matrix m = matrix(w, MORE), x = matrix(states, STATES);
	l2s_layer *layer;
	OK(l2s_layer_new(&m, NULL, 1, 0, &layer));
	l2s_index *index;
	REFUSED(L2S_ERR_CANCELLED, "cancel", l2s_preview_make(layer, &x, NULL, stop, layer, &index));
	CHECK(index == NULL, "found an index of a cancelled work");
	REFUSED(L2S_ERR_CANCELLED, "cancel", l2s_screen_train(layer, &x, NULL, stop, layer, &index));
	OK(l2s_layer_close(layer));
	free(w);
}

static void test_screen(void)
{
	l2s_layer *layer = make_layer();
	l2s_matrix x = matrix(states, STATES);
	l2s_screen_options o = L2S_SCREEN_OPTIONS;
	o.json = "{\"clusters\": 20, \"budget\": 2000}";
	l2s_index *index;
	OK(l2s_screen_train(layer, &x, &o, NULL, NULL, &index));
	char text[65536];
	size_t length;
	OK(l2s_index_info(index, text, sizeof text, &length));
	CHECK(strstr(text, "\"kind\":\"screen\"") && strstr(text, "\"has_tail\":true") && strstr(text, "\"clusters\":20"), "found %s", text);
	size_t total, normal;
	l2s_step steps[64];
	OK(l2s_index_steps(index, steps, 64, &total, &normal));
	CHECK(total > 1 && total < 64 && normal < total, "found %zu steps", total);
	for (size_t i = 1; i < total && i < 64; i++)
		CHECK(steps[i].budget > steps[i - 1].budget, "found the budget %g after %g", steps[i].budget, steps[i - 1].budget);
	l2s_pool_options p = L2S_POOL_OPTIONS;
	p.over_tail = 1;
	l2s_pool *pool;
	OK(l2s_pool_new(layer, index, &p, &pool));
	int64_t ids[K];
	double logits[K], log_sum, low, high;
	OK(l2s_topk(pool, states, K, ids, logits));
	OK(l2s_log_sums(pool, &(l2s_matrix){states, 1, DIM, 0, L2S_FLOAT32}, 1, .9, &log_sum, &low, &high));
	CHECK(low <= log_sum && log_sum <= high, "found %g, %g to %g", log_sum, low, high);
	OK(l2s_index_close(index));
	o.json = "{\"clusters\": 20, \"budget\": 2000, \"tail\": null}";
	OK(l2s_screen_train(layer, &x, &o, NULL, NULL, &index));
	REFUSED(L2S_ERR_NO_TAIL, "tail", l2s_pool_swap(pool, layer, index)); /* whose sums are over the tail */
	OK(l2s_topk(pool, states, K, ids, logits)); /* by the screen before */
	OK(l2s_pool_close(pool));
	pool = make_pool(layer, index);
	REFUSED(L2S_ERR_NO_TAIL, "tail", l2s_log_sums(pool, &(l2s_matrix){states, 1, DIM, 0, L2S_FLOAT32}, 1, .9, &log_sum, NULL, NULL));
	OK(l2s_index_close(index));
	o.json = "{\"cluster\": 20}";
	REFUSED(L2S_ERR_ARGUMENT, "cluster", l2s_screen_train(layer, &x, &o, NULL, NULL, &index));
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

/* ---- errors ---- */

static void test_errors(void)
{
	l2s_layer *layer = make_layer(), *other = NULL;
	l2s_index *index = make_preview(layer), *none = NULL;
	l2s_pool *pool = make_pool(layer, index), *no_pool = NULL;
	l2s_matrix x = matrix(states, 2), m;
	int64_t ids[2 * K];
	double logits[2 * K];
	float h[DIM];
	memcpy(h, states, sizeof h);

	REFUSED(L2S_ERR_IO, "no/such/file", l2s_layer_open("/no/such/file.npy", NULL, 0, &other));
	CHECK(errno == ENOENT, "found errno %d", errno);
	REFUSED(L2S_ERR_IO, "no/such/file", l2s_index_load("/no/such/file.l2p", &none));
	REFUSED(L2S_ERR_FORMAT, "magic", l2s_index_load("/proc/self/exe", &none));
	REFUSED(L2S_ERR_FORMAT, "", l2s_layer_open("/proc/self/exe", NULL, 0, &other));
	REFUSED(L2S_ERR_IO, "", l2s_index_save(index, "/no/such/folder/m.l2p"));
	REFUSED(L2S_ERR_ARGUMENT, "source: found NULL", l2s_layer_open(NULL, NULL, 0, &other));
	REFUSED(L2S_ERR_ARGUMENT, "NULL", l2s_layer_open("x", NULL, 0, NULL));
	REFUSED(L2S_ERR_ARGUMENT, "weights: found NULL", l2s_layer_new(NULL, NULL, 1, 0, &other));
	m = matrix(NULL, 3);
	REFUSED(L2S_ERR_ARGUMENT, "data: found NULL", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, 0);
	REFUSED(L2S_ERR_ARGUMENT, "rows: found none", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, 10);
	m.stride = 2 * DIM * sizeof(float);
	REFUSED(L2S_ERR_ARGUMENT, "stride: found 256 bytes, expected the 128 of a row", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix((float *)((char *)weights + 1), 10);
	REFUSED(L2S_ERR_ARGUMENT, "expected a multiple of 4", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, 10), m.type = 99;
	REFUSED(L2S_ERR_ARGUMENT, "type: found 99", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, SIZE_MAX);
	REFUSED(L2S_ERR_ARGUMENT, "rows", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, 10), m.dim = SIZE_MAX / 4;
	REFUSED(L2S_ERR_ARGUMENT, "dim", l2s_layer_new(&m, NULL, 1, 0, &other));
	m = matrix(weights, 10);
	REFUSED(L2S_ERR_FORMAT, "scale", l2s_layer_new(&m, NULL, 0, 0, &other));
	float bad[DIM] = {NAN};
	m = matrix(bad, 1);
	REFUSED(L2S_ERR_FORMAT, "NaN", l2s_layer_new(&m, NULL, 1, 0, &other));
	CHECK(other == NULL && none == NULL, "found a handle after an error");

	OK(l2s_topk(pool, h, K, ids, logits));
	h[3] = INFINITY;
	REFUSED(L2S_ERR_CONTEXT, "Inf", l2s_topk(pool, h, K, ids, logits));
	REFUSED(L2S_ERR_ARGUMENT, "context: found NULL", l2s_topk(pool, NULL, K, ids, logits));
	REFUSED(L2S_ERR_ARGUMENT, "ids: found NULL", l2s_topk(pool, states, K, NULL, logits));
	REFUSED(L2S_ERR_ARGUMENT, "logits: found NULL", l2s_topk(pool, states, K, ids, NULL));
	REFUSED(L2S_ERR_REQUEST, "k: found 8001, expected at most 8000", l2s_topk(pool, states, LABELS + 1, ids, logits));
	REFUSED(L2S_ERR_ARGUMENT, "k", l2s_topk(pool, states, SIZE_MAX, ids, logits));
	REFUSED(L2S_ERR_ARGUMENT, "k", l2s_search(pool, &x, SIZE_MAX / 64, NULL, ids, logits, NULL));
	REFUSED(L2S_ERR_REQUEST, "k", l2s_search(pool, &x, LABELS + 1, NULL, ids, logits, NULL));
	x.dim = DIM - 1;
	REFUSED(L2S_ERR_CONTEXT, "dimension 31, expected 32", l2s_search(pool, &x, K, NULL, ids, logits, NULL));
	x = matrix(states, 2), x.type = L2S_Q8_0;
	REFUSED(L2S_ERR_ARGUMENT, "quantised", l2s_search(pool, &x, K, NULL, ids, logits, NULL));
	x = matrix(states, 2);
	l2s_request r = {0};
	REFUSED(L2S_ERR_ARGUMENT, "l2s_request: size: found 0", l2s_search(pool, &x, K, &r, ids, logits, NULL));
	int64_t wrong[] = {3, -1}, big[] = {LABELS};
#define REQUEST(part, set) \
	do { \
		l2s_request r = L2S_REQUEST; \
		set; \
		REFUSED(L2S_ERR_REQUEST, part, l2s_search(pool, &x, K, &r, ids, logits, NULL)); \
	} while (0)
	REQUEST("allowed[1]: found -1", (r.allowed.ids = wrong, r.allowed.count = 2));
	REQUEST("banned[0]: found 8000", (r.banned.ids = big, r.banned.count = 1));
	REQUEST("among[1]: found -1", (r.among.ids = wrong, r.among.count = 2));
	REQUEST("also[1]: found -1", (r.also.ids = wrong, r.also.count = 2));
	REQUEST("also: found bits", (r.also.bits = (uint8_t *)wrong, r.also.count = 3));
	REQUEST("", (r.among.ids = big, r.among.count = 1));
	REQUEST("allowed: found 3 bytes", (r.allowed.bits = (uint8_t *)wrong, r.allowed.count = 3));
	REQUEST("among: found bits", (r.among.bits = (uint8_t *)wrong, r.among.count = 3));
	REQUEST("", (r.bias_ids = (int64_t[]){5, 4}, r.biases = (float[]){1, 1}, r.bias_count = 2));
	REQUEST("", (r.bias_ids = wrong, r.biases = (float[]){1, 1}, r.bias_count = 2));
	REQUEST("", (r.bias_ids = wrong, r.biases = (float[]){NAN}, r.bias_count = 1));
	REQUEST("", r.budget = -1);
	REQUEST("", r.within = NAN);
	REQUEST("", (r.log_sum = 1, r.temperature = -1));
	r = (l2s_request)L2S_REQUEST;
	r.allowed.ids = wrong, r.allowed.bits = (uint8_t *)wrong;
	REFUSED(L2S_ERR_ARGUMENT, "one of them", l2s_search(pool, &x, K, &r, ids, logits, NULL));
	r = (l2s_request)L2S_REQUEST;
	r.bias_count = 2;
	REFUSED(L2S_ERR_ARGUMENT, "bias_ids: found NULL", l2s_search(pool, &x, K, &r, ids, logits, NULL));
	REFUSED(L2S_ERR_REQUEST, "", l2s_logits(pool, &x, big, 1, logits));
	REFUSED(L2S_ERR_REQUEST, "", l2s_log_probs(pool, &x, (int64_t[]){1, LABELS}, 1, logits));
	REFUSED(L2S_ERR_REQUEST, "", l2s_log_sums(pool, &x, 0, .9, logits, NULL, NULL));
	REFUSED(L2S_ERR_ARGUMENT, "threads", l2s_layer_set_threads(layer, 0));

	/* An address that nobody can read is an error, not the end of the process. */
	void *nothing = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REFUSED(L2S_ERR_INTERNAL, "", l2s_topk(pool, nothing, K, ids, logits));
	REFUSED(L2S_ERR_INTERNAL, "", l2s_topk(pool, states, K, nothing, logits));
	OK(l2s_topk(pool, states, K, ids, logits));
	munmap(nothing, 1 << 16);

	l2s_matrix half = matrix(weights, LABELS / 2); /* an index of another layer */
	OK(l2s_layer_new(&half, NULL, 1, 0, &other));
	REFUSED(L2S_ERR_LAYER, "", l2s_pool_new(other, index, NULL, &no_pool));
	REFUSED(L2S_ERR_LAYER, "", l2s_pool_swap(pool, other, index));
	OK(l2s_topk(pool, states, K, ids, logits));
	x = matrix(states, 10);
	REFUSED(L2S_ERR_FORMAT, "64", l2s_preview_make(layer, &x, NULL, NULL, NULL, &none));
	x = matrix(states, STATES), x.dim = 16;
	REFUSED(L2S_ERR_CONTEXT, "dimension 16, expected 32", l2s_preview_make(layer, &x, NULL, NULL, NULL, &none));

	/* handles */
	REFUSED(L2S_ERR_HANDLE, "a pool: found NULL", l2s_topk(NULL, states, K, ids, logits));
	REFUSED(L2S_ERR_HANDLE, "a pool: found a layer", l2s_topk((l2s_pool *)layer, states, K, ids, logits));
	REFUSED(L2S_ERR_HANDLE, "a layer: found an index", l2s_layer_close((l2s_layer *)index));
	REFUSED(L2S_ERR_HANDLE, "an index: found a pool", l2s_index_close((l2s_index *)pool));
	REFUSED(L2S_ERR_HANDLE, "has not made", l2s_pool_close((l2s_pool *)&pool));
	REFUSED(L2S_ERR_HANDLE, "has not made", l2s_pool_close((l2s_pool *)((uintptr_t)pool ^ (uintptr_t)1 << 60)));
	OK(l2s_layer_close(layer));
	REFUSED(L2S_ERR_HANDLE, "a layer: found one that was closed", l2s_layer_close(layer));
	REFUSED(L2S_ERR_HANDLE, "closed", l2s_topk(pool, states, K, ids, logits)); /* over a closed layer */
	OK(l2s_pool_swap(pool, other, NULL));
	OK(l2s_topk(pool, states, K, ids, logits));
	OK(l2s_pool_close(pool));
	REFUSED(L2S_ERR_HANDLE, "a pool: found one that was closed", l2s_topk(pool, states, K, ids, logits));
	OK(l2s_index_close(index));
	OK(l2s_layer_close(other));
}

/* The error of one thread is not another's. */
static void *other_thread(void *unused)
{
	(void)unused;
	CHECK(l2s_error()[0] == 0, "found an error in a new thread");
	l2s_topk((l2s_pool *)1, NULL, 0, NULL, NULL);
	return NULL;
}

static void test_errors_of_threads(void)
{
	pthread_t thread;
	l2s_pool_close(NULL);
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	CHECK(strstr(l2s_error(), "NULL"), "found the error of another thread");
}

/* ---- threads ---- */

enum { THREADS = 8 };

static struct {
	l2s_layer *layers[2];
	l2s_pool *pool;
	int64_t ids[2][64][K]; /* of the exact search, and of a preview */
	double logits[2][64][K];
	volatile int done;
	volatile long answers;
} shared;

static void *searcher(void *number)
{
	uint64_t z = (uintptr_t)number * 7919;
	int64_t ids[2 * K];
	double logits[2 * K];
	for (long n = 0; !shared.done; n++) {
		int i = (z = z * 6364136223846793005 + 1442695040888963407) >> 40 & 62;
		if (n % 3) {
			OK(l2s_topk(shared.pool, states + i * DIM, K, ids, logits));
			int right = 0;
			for (int by = 0; by < 2; by++)
				right |= !memcmp(ids, shared.ids[by][i], sizeof shared.ids[by][i]) && !memcmp(logits, shared.logits[by][i], sizeof shared.logits[by][i]);
			CHECK(right, "found another answer to context %d", i);
		} else {
			l2s_matrix x = matrix(states + i * DIM, 2);
			l2s_request r = L2S_REQUEST;
			r.exact = 1;
			OK(l2s_search(shared.pool, &x, K, &r, ids, logits, NULL));
			CHECK(!memcmp(ids, shared.ids[0][i], sizeof ids), "found another answer to contexts %d", i);
		}
		__atomic_add_fetch(&shared.answers, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void write_npy(const char *path, const float *data, int rows, int columns)
{
	char header[128];
	memset(header, ' ', sizeof header);
	memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
	int n = columns ? snprintf(header + 10, 100, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)}", rows, columns)
			: snprintf(header + 10, 100, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,)}", rows);
	header[10 + n] = ' ', header[127] = '\n';
	FILE *f = fopen(path, "wb");
	size_t count = (size_t)rows * (columns ? columns : 1);
	CHECK(f && fwrite(header, sizeof header, 1, f) == 1 && fwrite(data, 4, count, f) == count && fclose(f) == 0, "found no room for %s", path);
}

/* A layer in files, an index of it, and a file without content. */
typedef struct {
	char folder[256], w[300], b[300], index[300], empty[300];
} files;

static files make_files(void)
{
	files f;
	make_data();
	temporary(f.folder, sizeof f.folder);
	CHECK(mkdtemp(f.folder), "found no folder");
	snprintf(f.w, sizeof f.w, "%s/W.npy", f.folder);
	snprintf(f.b, sizeof f.b, "%s/b.npy", f.folder);
	snprintf(f.index, sizeof f.index, "%s/m.l2p", f.folder);
	snprintf(f.empty, sizeof f.empty, "%s/empty", f.folder);
	write_npy(f.w, weights, LABELS, DIM);
	write_npy(f.b, bias, LABELS, 0);
	fclose(fopen(f.empty, "wb"));
	l2s_layer *layer = make_layer();
	l2s_index *index = make_preview(layer);
	OK(l2s_index_save(index, f.index));
	OK(l2s_index_close(index));
	OK(l2s_layer_close(layer));
	return f;
}

static void remove_files(const files *f)
{
	unlink(f->w), unlink(f->b), unlink(f->index), unlink(f->empty), rmdir(f->folder);
}

/* Threads search while another one swaps layers and indexes and closes the old ones: layers in memory that is
 * freed at once, with the exact search, and layers in a file, with a preview in a file. */
static void threads(double seconds)
{
	const files f = make_files();
	float *rows = malloc(sizeof(float) * LABELS * DIM);
	memcpy(rows, weights, sizeof(float) * LABELS * DIM);
	l2s_matrix w = matrix(rows, LABELS);
	l2s_layer *layer, *old;
	l2s_index *index;
	OK(l2s_layer_new(&w, bias, 1, 0, &layer));
	OK(l2s_index_load(f.index, &index));
	shared.done = 0, shared.answers = 0;
	for (int by = 0; by < 2; by++) {
		l2s_pool *pool = make_pool(layer, by ? index : NULL);
		for (int i = 0; i < 64; i++)
			OK(l2s_topk(pool, states + i * DIM, K, shared.ids[by][i], shared.logits[by][i]));
		OK(l2s_pool_close(pool));
	}
	OK(l2s_index_close(index));
	shared.pool = make_pool(layer, NULL);
	pthread_t thread[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, searcher, (void *)(i + 1));
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	int swaps = 0;
	do {
		old = layer;
		if (++swaps % 2) {
			OK(l2s_layer_open(f.w, f.b, swaps % 4 == 1, &layer));
			OK(l2s_index_load(f.index, &index));
			OK(l2s_pool_swap(shared.pool, layer, index));
			OK(l2s_index_close(index));
			OK(l2s_layer_close(old));
			memset(rows, 0xff, sizeof(float) * LABELS * DIM); /* NaN: a search that read on would fail */
			free(rows);
		} else {
			rows = malloc(sizeof(float) * LABELS * DIM);
			memcpy(rows, weights, sizeof(float) * LABELS * DIM);
			w = matrix(rows, LABELS);
			OK(l2s_layer_new(&w, bias, 1, 0, &layer));
			OK(l2s_pool_swap(shared.pool, layer, NULL));
			OK(l2s_layer_close(old));
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((swaps % 2 || swaps < 4 || shared.answers < 1000 || now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) * 1e-9 < seconds) && !failed);
	shared.done = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	OK(l2s_pool_close(shared.pool));
	OK(l2s_layer_close(layer));
	if (swaps % 2 == 0)
		free(rows);
	remove_files(&f);
	printf("threads: %ld answers, %d swaps\n", shared.answers, swaps);
	fflush(stdout);
}

static void test_threads(void) { threads(.5); }

/* ---- fork, signals, loading ---- */

static void test_fork(void)
{
	l2s_layer *layer = make_layer(), *more;
	l2s_pool *pool = make_pool(layer, NULL);
	int64_t ids[K];
	double logits[K];
	OK(l2s_topk(pool, states, K, ids, logits));
	pid_t child = fork();
	if (child == 0) {
		alarm(20); /* a child that waits for Go would wait for ever */
		failed = 0;
		l2s_matrix w = matrix(weights, LABELS);
		REFUSED(L2S_ERR_FORKED, "fork", l2s_topk(pool, states, K, ids, logits));
		REFUSED(L2S_ERR_FORKED, "fork", l2s_layer_new(&w, NULL, 1, 0, &more));
		REFUSED(L2S_ERR_FORKED, "fork", l2s_layer_close(layer));
		REFUSED(L2S_ERR_FORKED, "fork", l2s_pool_close(pool));
		CHECK(l2s_abi() == L2S_ABI && l2s_version()[0] == 'v', "found %u, %s", l2s_abi(), l2s_version());
		_exit(failed != 0);
	}
	int status;
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "found the status %#x of the child", status);
	OK(l2s_topk(pool, states, K, ids, logits)); /* the parent goes on */
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

static volatile sig_atomic_t got, on_stack;
static char alternative[1 << 16];

static void note(int number)
{
	char here;
	got = number;
	on_stack = &here >= alternative && &here < alternative + sizeof alternative;
}

/* The host's handlers get its signals, in the host's threads, while l2s works; and l2s leaves SIGPIPE
 * alone. */
static void test_signals(void)
{
	l2s_layer *layer = make_layer();
	struct sigaction pipe_is;
	sigaction(SIGPIPE, NULL, &pipe_is);
	CHECK(pipe_is.sa_handler == SIG_DFL, "found a handler of SIGPIPE");
	/* In the threads of Go SIGUSR1 is blocked. Here it is blocked, too: so it waits for sigwait, where an
	 * open thread would end the process. */
	sigset_t usr, before;
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr, &before);
	kill(getpid(), SIGUSR1);
	struct timespec second = {1, 0};
	CHECK(sigtimedwait(&usr, NULL, &second) == SIGUSR1, "found no signal that waits");
	pthread_sigmask(SIG_SETMASK, &before, NULL);

	stack_t stack = {.ss_sp = alternative, .ss_size = sizeof alternative};
	sigaltstack(&stack, NULL);
	struct sigaction sa = {.sa_handler = note, .sa_flags = SA_ONSTACK | SA_RESTART}, was;
	sigaction(SIGALRM, &sa, &was);
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &(struct itimerspec){{0, 3000000}, {0, 3000000}}, NULL);
	l2s_index *index = make_preview(layer);
	CHECK(got == SIGALRM, "found no signal while a preview was made");
	l2s_pool *pool = make_pool(layer, index);
	int64_t ids[K];
	double logits[K];
	for (int i = 0; i < 5000; i++)
		OK(l2s_topk(pool, states + i % STATES * DIM, K, ids, logits));
	timer_delete(timer);
	sigaction(SIGALRM, &was, NULL);
	CHECK(on_stack, "found the handler on another stack than its own");
	OK(l2s_pool_close(pool));
	OK(l2s_index_close(index));
	OK(l2s_layer_close(layer));

	/* A fault of the host is the host's: its process ends by the signal. */
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		*(volatile int *)8 = 1;
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
#ifndef __SANITIZE_ADDRESS__
	CHECK(WIFSIGNALED(status), "found the status %#x of a child with a fault", status);
#endif
}

static void copy_file(const char *from, const char *to)
{
	char part[1 << 16];
	size_t n;
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	CHECK(in && out, "found no %s or no room for %s", from, to);
	while ((n = fread(part, 1, sizeof part, in)) > 0)
		CHECK(fwrite(part, 1, n, out) == n, "found no room for %s", to);
	fclose(in), fclose(out);
}

/* The library cannot leave the process, as its threads cannot: dlclose does nothing, and dlopen finds
 * the same library. A copy of its file is another library, with a runtime of its own. */
static void test_loading(void)
{
	Dl_info of;
	CHECK(dladdr((void *)l2s_abi, &of), "found no file of the library");
	l2s_layer *layer = make_layer();
	void *again = dlopen(of.dli_fname, RTLD_NOW | RTLD_LOCAL);
	CHECK(again && dlsym(again, "l2s_abi") == (void *)l2s_abi, "found another copy");
	dlclose(again);
	dlclose(dlopen(of.dli_fname, RTLD_NOW));
	size_t labels, dim;
	OK(l2s_layer_shape(layer, &labels, &dim));

	char path[256];
	temporary(path, sizeof path);
	close(mkstemp(path));
	copy_file(of.dli_fname, path);
	void *copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	unlink(path);
	CHECK(copy, "%s", dlerror());
	if (!copy)
		return;
#define OF_COPY(name) __typeof__(&name) copy_##name = (__typeof__(&name))dlsym(copy, #name)
	OF_COPY(l2s_layer_new);
	OF_COPY(l2s_layer_shape);
	OF_COPY(l2s_layer_close);
	OF_COPY(l2s_pool_new);
	OF_COPY(l2s_pool_close);
	OF_COPY(l2s_topk);
	OF_COPY(l2s_error);
	l2s_matrix w = matrix(weights, LABELS);
	l2s_layer *other;
	l2s_pool *pool = make_pool(layer, NULL), *other_pool;
	CHECK(copy_l2s_layer_new != l2s_layer_new && copy_l2s_layer_new(&w, bias, 1, 0, &other) == L2S_OK, "found %s", copy_l2s_error());
	CHECK(copy_l2s_layer_shape(layer, &labels, &dim) == L2S_ERR_HANDLE && strstr(copy_l2s_error(), "has not made"), "found %s", copy_l2s_error());
	REFUSED(L2S_ERR_HANDLE, "has not made", l2s_layer_shape(other, &labels, &dim));
	CHECK(copy_l2s_pool_new(other, NULL, NULL, &other_pool) == L2S_OK, "found %s", copy_l2s_error());
	int64_t ids[K], others[K];
	double logits[K], numbers[K];
	for (int i = 0; i < 200; i++) {
		OK(l2s_topk(pool, states + i * DIM, K, ids, logits));
		CHECK(copy_l2s_topk(other_pool, states + i * DIM, K, others, numbers) == L2S_OK, "found %s", copy_l2s_error());
		CHECK(!memcmp(ids, others, sizeof ids) && !memcmp(logits, numbers, sizeof logits), "found another answer of the copy");
	}
	void *nothing = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* faults find the runtime that has them */
	REFUSED(L2S_ERR_INTERNAL, "", l2s_topk(pool, nothing, K, ids, logits));
	CHECK(copy_l2s_topk(other_pool, nothing, K, others, numbers) == L2S_ERR_INTERNAL, "found %s", copy_l2s_error());
	munmap(nothing, 1 << 16);
	CHECK(copy_l2s_pool_close(other_pool) == L2S_OK && copy_l2s_layer_close(other) == L2S_OK, "found %s", copy_l2s_error());
	OK(l2s_pool_close(pool));
	OK(l2s_layer_close(layer));
}

/* ---- random calls ---- */

enum { A_LAYER, AN_INDEX, A_POOL, TYPES, HANDLES = 4, KINDS = 23 };

/* Of all threads that make random calls. */
static struct {
	files files;
	uintptr_t handles[TYPES][HANDLES];
	long succeeded[KINDS];
	int calls;
} fuzzed;

/* Mostly of this type, and mostly one that was made. */
static uintptr_t any_handle(int type)
{
	uintptr_t h = __atomic_load_n(&fuzzed.handles[next() % 8 ? type : (int)(next() % TYPES)][next() % HANDLES], __ATOMIC_RELAXED);
	if (next() % 32 == 0)
		h = next();
	if (next() % 32 == 0)
		h ^= (uintptr_t)1 << next() % 64;
	return h;
}

static void close_any(uintptr_t h)
{
	l2s_layer_close((l2s_layer *)h), l2s_index_close((l2s_index *)h), l2s_pool_close((l2s_pool *)h);
}

#define LAYER ((l2s_layer *)any_handle(A_LAYER))
#define INDEX ((l2s_index *)any_handle(AN_INDEX))
#define POOL ((l2s_pool *)any_handle(A_POOL))

static void random_call(void)
{
	int64_t ids[64];
	double numbers[64];
	char text[256];
	l2s_step steps[4];
	l2s_stats stats;
	size_t k = next() % 8, length, labels, dim;
	l2s_matrix x = matrix(states + next() % 1000 * DIM, next() % 8);
	switch (next() % 16) {
	case 0: x.dim = next() % 40; break;
	case 1: x.type = next() % 20; x.rows = 1; break;
	case 2: x.rows = next() % 2 ? 0 : next(); k = next(); break;
	case 3: x.stride = (ptrdiff_t)(next() % 5) * 4 * DIM; break;
	}
	/* What could be true must be true: no size is above the memory. */
	int huge = x.rows > 8 || k > 8;
	l2s_request r = L2S_REQUEST;
	int64_t some[8];
	for (int j = 0; j < 8; j++)
		some[j] = next() % 32 ? (int64_t)(next() % 200) : (int64_t)next();
	if (next() % 4 == 0)
		r.allowed.ids = some, r.allowed.count = next() % 9;
	if (next() % 4 == 0)
		r.banned.ids = some, r.banned.count = next() % 9;
	if (next() % 8 == 0)
		r.among.ids = some, r.among.count = next() % 9;
	if (next() % 8 == 0)
		r.also.ids = some, r.also.count = next() % 9;
	r.log_sum = next() % 2, r.exact = next() % 2;
	if (next() % 8 == 0)
		r.within = (double)(int64_t)next(), r.budget = (double)(int64_t)next();
	const files *f = &fuzzed.files;
	const char *any_file = next() % 4 ? f->index : next() % 2 ? f->w : f->empty;
	uintptr_t made = 0;
	int kind = next() % KINDS, type = A_LAYER; /* of what is made */
	l2s_status status = L2S_ERR_ARGUMENT;
	switch (kind) {
	case 0: { l2s_matrix w = matrix(weights, next() % 4 ? 1 + next() % 2000 : LABELS); status = l2s_layer_new(&w, next() % 8 ? bias : NULL, 1, 0, (l2s_layer **)&made); break; }
	case 1: if (!huge) status = l2s_layer_new(&x, NULL, (double)(next() % 3), (double)(next() % 3), (l2s_layer **)&made); break;
	case 2: status = l2s_layer_open(next() % 4 ? f->w : any_file, next() % 8 ? f->b : NULL, next() % 2, (l2s_layer **)&made); break;
	case 3: type = AN_INDEX, status = l2s_index_load(any_file, (l2s_index **)&made); break;
	case 4: type = A_POOL, status = l2s_pool_new(LAYER, next() % 2 ? INDEX : NULL, NULL, (l2s_pool **)&made); break;
	case 5: status = l2s_pool_swap(POOL, LAYER, next() % 2 ? INDEX : NULL); break;
	case 6: if (next() % 4 == 0) status = l2s_layer_close(LAYER); break;
	case 7: status = l2s_index_close(INDEX); break;
	case 8: status = l2s_pool_close(POOL); break;
	case 9: case 10:
		if (k <= 8) status = l2s_topk(POOL, states, k, ids, numbers);
		else CHECK(l2s_topk(POOL, states, k | LABELS << 1, ids, numbers) != L2S_OK, "found an answer of %zu labels", k);
		break;
	case 11: case 12:
		if (!huge) status = l2s_search(POOL, &x, k, &r, ids, numbers, NULL);
		else { x.rows |= (size_t)1 << 62; CHECK(l2s_search(POOL, &x, k, &r, ids, numbers, NULL) != L2S_OK, "found answers to %zu contexts", x.rows); }
		break;
	case 13: if (!huge) status = l2s_logits(POOL, &x, some, k, numbers); break;
	case 14: if (!huge) status = l2s_log_probs(POOL, &x, some, 1, numbers); break;
	case 15: if (!huge) status = l2s_log_sums(POOL, &x, next() % 3, .5, numbers, NULL, NULL); break;
	case 16: status = l2s_layer_shape(LAYER, &labels, &dim); break;
	case 17: status = l2s_layer_info(LAYER, text, next() % sizeof text, &length); break;
	case 18: status = l2s_layer_set_threads(LAYER, next() % 4); break;
	case 19:
		if (huge || next() % 8) status = l2s_index_save(INDEX, f->empty);
		else if (next() % 2) type = AN_INDEX, status = l2s_preview_make(LAYER, &x, NULL, NULL, NULL, (l2s_index **)&made);
		else type = AN_INDEX, status = l2s_screen_train(LAYER, &x, NULL, NULL, NULL, (l2s_index **)&made);
		break;
	case 20: status = l2s_index_info(INDEX, text, next() % sizeof text, &length); break;
	case 21: status = l2s_index_steps(INDEX, steps, next() % 4, &labels, &dim); break;
	case 22: status = l2s_pool_stats(POOL, &stats); break;
	}
	if (status == L2S_OK)
		__atomic_add_fetch(&fuzzed.succeeded[kind], 1, __ATOMIC_RELAXED);
	if (made)
		close_any(__atomic_exchange_n(&fuzzed.handles[type][next() % HANDLES], made, __ATOMIC_RELAXED));
}

static void *random_calls(void *number)
{
	seed += (uintptr_t)number << 32;
	for (int i = 0; i < fuzzed.calls; i++)
		random_call();
	return NULL;
}

/* Functions in random order with random arguments, on handles that several threads make and close. */
static void fuzz(int calls, int of_threads)
{
	pthread_t thread[THREADS];
	fuzzed.files = make_files();
	fuzzed.calls = calls / of_threads;
	memset(fuzzed.succeeded, 0, sizeof fuzzed.succeeded);
	for (uintptr_t i = 1; i < (uintptr_t)of_threads; i++)
		pthread_create(&thread[i], NULL, random_calls, (void *)(seed + i));
	random_calls((void *)seed);
	for (int i = 1; i < of_threads; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < TYPES * HANDLES; i++)
		close_any(fuzzed.handles[i / HANDLES][i % HANDLES]), fuzzed.handles[i / HANDLES][i % HANDLES] = 0;
	for (int i = 0; i < KINDS; i++) /* a call that always fails tests nothing */
		CHECK(fuzzed.succeeded[i] > 0 || calls < 5000, "found no call of kind %d that succeeded among %d calls", i, calls);
	remove_files(&fuzzed.files);
}

static void test_random_calls(void) { fuzz(6000, 1); }

static void test_random_calls_of_threads(void) { fuzz(6000, 4); }

/* ---- measurements ---- */

static double now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static struct {
	l2s_pool *pool;
	float *contexts;
	size_t n, dim, k;
} asked;

enum { BATCH = 64 };

static void *ask_ones(void *answers)
{
	int64_t *ids = answers;
	double *logits = (double *)(ids + asked.n * asked.k);
	for (size_t i = 0; i < asked.n; i++)
		OK(l2s_topk(asked.pool, asked.contexts + i * asked.dim, asked.k, ids + i * asked.k, logits + i * asked.k));
	return NULL;
}

static void *ask_batches(void *answers)
{
	int64_t *ids = answers;
	double *logits = (double *)(ids + asked.n * asked.k);
	for (size_t i = 0; i < asked.n; i += BATCH) {
		l2s_matrix x = {asked.contexts + i * asked.dim, BATCH, asked.dim, 0, L2S_FLOAT32};
		OK(l2s_search(asked.pool, &x, asked.k, NULL, ids + i * asked.k, logits + i * asked.k, NULL));
	}
	return NULL;
}

/* The part of C in the measurement of bench/main.go: it answers commands of the standard input. */
static void bench(const char *source, const char *index_path, const char *contexts, const char *dim, const char *k)
{
	l2s_layer *layer = NULL;
	l2s_index *index = NULL;
	OK(l2s_layer_open(source, NULL, 0, &layer));
	if (*index_path)
		OK(l2s_index_load(index_path, &index));
	OK(l2s_pool_new(layer, index, NULL, &asked.pool));
	asked.dim = strtoul(dim, NULL, 10), asked.k = strtoul(k, NULL, 10);
	FILE *f = fopen(contexts, "rb");
	if (failed || !f || fseek(f, 0, SEEK_END))
		exit(1);
	asked.n = ftell(f) / (sizeof(float) * asked.dim);
	asked.contexts = malloc(asked.n * asked.dim * sizeof(float));
	rewind(f);
	if (fread(asked.contexts, sizeof(float) * asked.dim, asked.n, f) != asked.n)
		exit(1);
	fclose(f);
	size_t count = asked.n * asked.k;
	int64_t *ids = malloc(2 * 8 * count), *others = malloc(2 * 8 * count);
	char command[64];
	while (fgets(command, sizeof command, stdin)) {
		unsigned long answer = 0xcbf29ce484222325; /* FNV-1a */
		clockid_t clock = strncmp(command, "threads", 7) ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
		double begin = now(clock);
		if (!strcmp(command, "one\n"))
			ask_ones(ids);
		else if (!strcmp(command, "batches\n"))
			ask_batches(ids);
		else if (!strncmp(command, "threads ", 8)) {
			pthread_t thread;
			if (command[8] == '2')
				pthread_create(&thread, NULL, ask_ones, others);
			ask_ones(ids);
			if (command[8] == '2')
				pthread_join(thread, NULL);
		}
		double took = now(clock) - begin;
		if (!strcmp(command, "sum\n"))
			for (int by = 0; by < 2; by++) {
				by ? ask_batches(ids) : ask_ones(ids);
				for (size_t i = 0; i < count; i++)
					for (int j = 0; j < 16; j++)
						answer = (answer ^ ((uint8_t *)(ids + i + j / 8 * count))[j % 8]) * 0x100000001b3;
			}
		else
			answer = took;
		printf("%lu\n", answer);
		fflush(stdout);
	}
	free(ids), free(others), free(asked.contexts);
	OK(l2s_pool_close(asked.pool));
	if (index)
		OK(l2s_index_close(index));
	OK(l2s_layer_close(layer));
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"versions", test_versions}, {"exact", test_exact}, {"batches", test_batches}, {"requests", test_requests}, {"preview", test_preview},
	{"cancel", test_cancel}, {"screen", test_screen}, {"errors", test_errors}, {"errors_of_threads", test_errors_of_threads},
	{"threads", test_threads}, {"fork", test_fork}, {"signals", test_signals}, {"loading", test_loading}, {"random_calls", test_random_calls},
	{"random_calls_of_threads", test_random_calls_of_threads},
};

int main(int argc, char **argv)
{
	test_name = argc > 1 ? argv[1] : "";
	if (argc > 1 && !strcmp(argv[1], "soak")) { /* until SIGTERM */
		seed = time(NULL);
		printf("seed %lu\n", (unsigned long)seed);
		sigset_t term;
		sigemptyset(&term);
		sigaddset(&term, SIGTERM);
		pthread_sigmask(SIG_BLOCK, &term, NULL);
		do {
			threads(5);
			fuzz(6000, 1 + next() % THREADS);
		} while (!failed && sigtimedwait(&term, NULL, &(struct timespec){0, 0}) != SIGTERM);
	} else if (argc > 2 && !strcmp(argv[1], "fuzz")) {
		seed = time(NULL);
		printf("seed %lu\n", (unsigned long)seed);
		fuzz(atoi(argv[2]), 1);
	} else if (argc > 6 && !strcmp(argv[1], "bench")) {
		bench(argv[2], argv[3], argv[4], argv[5], argv[6]);
	} else {
		int ran = 0;
		for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
			if (argc < 2 || !strcmp(argv[1], tests[i].name)) {
				int before = failed;
				test_name = tests[i].name;
				tests[i].run();
				printf("%s %s\n", failed == before ? "ok  " : "FAIL", tests[i].name);
				fflush(stdout);
				ran++;
			}
		if (ran == 0) {
			fprintf(stderr, "found no test %s\n", argv[1]);
			return 2;
		}
	}
	return failed != 0;
}
