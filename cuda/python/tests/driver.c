/* The driver functions that the demo calls, over counters: DRIVER_DEVICES
 * devices (1), and out of memory above DRIVER_LIMIT bytes (none). At exit the
 * bytes still live and the largest are written to the file DRIVER_LOG. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX 4096

static long long live, peak;
static size_t sizes[MAX];

static long number(const char *name, long otherwise)
{
	const char *s = getenv(name);
	return s ? atol(s) : otherwise;
}

static void __attribute__((destructor)) end(void)
{
	const char *path = getenv("DRIVER_LOG");
	FILE *f = path ? fopen(path, "w") : NULL;
	if (f) {
		fprintf(f, "%lld %lld\n", live, peak);
		fclose(f);
	}
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int *n) { return *n = (int)number("DRIVER_DEVICES", 1), 0; }
int cuDeviceGet(int *d, int ordinal) { return *d = ordinal, 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = (void *)(intptr_t)(d + 1), 0; }
int cuCtxSetCurrent(void *c) { return c == NULL; }

int cuMemAlloc_v2(uint64_t *p, size_t size)
{
	for (int i = 1; i < MAX; i++)
		if (!__atomic_load_n(&sizes[i], __ATOMIC_RELAXED)) {
			if (live + (long long)size > number("DRIVER_LIMIT", 1L << 40))
				return 2;
			sizes[i] = size;
			live += (long long)size;
			if (live > peak)
				peak = live;
			*p = (uint64_t)i;
			return 0;
		}
	return 2;
}

int cuMemFree_v2(uint64_t p)
{
	if (p >= MAX || !sizes[p])
		return 1;
	live -= (long long)sizes[p];
	sizes[p] = 0;
	return 0;
}
