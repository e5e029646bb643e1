/* The best labels of contexts: topk HEAD [INDEX] <contexts, one a line, as numbers with spaces between.
 *
 * HEAD is a GGUF file, the folder of a model, or FILE.safetensors:tensor. INDEX is a preview or a screen
 * of it, as l2s train writes them; without one the search is exact. */
#include <stdio.h>
#include <stdlib.h>

#include "l2s.h"

enum { K = 5 };

static void must(l2s_status status)
{
	if (status != L2S_OK) {
		fprintf(stderr, "topk: %s\n", l2s_error());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	l2s_layer *layer;
	l2s_index *index = NULL; /* the exact search */
	l2s_pool *pool;          /* for any number of threads */
	size_t labels, dim;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: topk HEAD [INDEX] <contexts\n");
		return 2;
	}
	if (l2s_abi() != L2S_ABI) {
		fprintf(stderr, "topk: found libl2s with the interface %u, expected %u\n", l2s_abi(), L2S_ABI);
		return 1;
	}
	must(l2s_layer_open(argv[1], NULL, 0, &layer));
	must(l2s_layer_shape(layer, &labels, &dim));
	if (argc == 3)
		must(l2s_index_load(argv[2], &index));
	must(l2s_pool_new(layer, index, NULL, &pool));

	float *context = malloc(dim * sizeof *context);
	for (;;) {
		size_t n = 0;
		while (n < dim && scanf("%f", &context[n]) == 1)
			n++;
		if (n < dim) {
			if (n > 0 || !feof(stdin)) {
				fprintf(stderr, "topk: found %zu numbers, expected %zu for a context\n", n, dim);
				return 1;
			}
			break;
		}
		int64_t ids[K];
		double logits[K];
		must(l2s_topk(pool, context, K, ids, logits));
		for (int i = 0; i < K; i++)
			printf("%lld %.17g%c", (long long)ids[i], logits[i], i == K - 1 ? '\n' : ' ');
	}
	free(context);
	must(l2s_pool_close(pool));
	if (index != NULL)
		must(l2s_index_close(index));
	must(l2s_layer_close(layer));
	return 0;
}
