/*
 * count.c - N events without a stack and nothing beside, so that their
 * instructions can be counted from outside.
 *
 *	count gpurec|store N
 */
#include "burst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: count gpurec|store N\n");
		return 2;
	}
	burst_fn *run = strcmp(argv[1], "store") == 0 ? burst_store : burst_gpurec;
	long n = atol(argv[2]);
	for (; n > BURST; n -= BURST)
		run(BURST);
	run((unsigned)n);
	return 0;
}
