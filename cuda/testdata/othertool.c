/* Another tool's preload library: it counts calls of cuMemAlloc and cuMemFree by
 * taking their names, as tools do, and says at the end how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic long allocs, frees;

int cuMemAlloc_v2(uint64_t *p, size_t size)
{
	int (*next)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	allocs++;
	return next(p, size);
}

int cuMemFree_v2(uint64_t p)
{
	int (*next)(uint64_t) = (int (*)(uint64_t))dlsym(RTLD_NEXT, "cuMemFree_v2");
	frees++;
	return next(p);
}

__attribute__((destructor)) static void say(void)
{
	const char *path = getenv("OTHER_TOOL");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (f) {
		fprintf(f, "%ld allocs, %ld frees\n", allocs, frees);
		fclose(f);
	}
}
