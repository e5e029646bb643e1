// What the front in C and the Go code behind it share. Programs see l2s.h alone.
#ifndef L2S_FRONT_H
#define L2S_FRONT_H

#include "l2s.h"

// The error of a call: the front has one for each thread.
typedef struct l2s_failure {
	int32_t number; // errno, 0 for none
	char text[2048];
} l2s_failure;

// l2s_report calls a progress function for Go.
int32_t l2s_report(l2s_progress progress, void *user, const char *stage, double done);

#endif
