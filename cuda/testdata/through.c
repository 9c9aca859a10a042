/* through.c - a library that is called and calls back; N makes one of many. */
#include <stddef.h>

#ifndef N
#define N 0
#endif

typedef void report(const char *kind, size_t size);

static __attribute__((noinline)) int inner(report *r, const char *kind, int n)
{
	volatile char room[100 + 16 * N];
	room[n] = 1;
	r(kind, 4096);
	return room[n];
}

volatile int through_sink;

void through(report *r, const char *kind)
{
	through_sink = inner(r, kind, N) + N;
}
