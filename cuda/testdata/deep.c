/* A program (-DMAIN) that opens a library in one of three ways and lets it use
 * the driver; and that library: linked to libcuda (-DLINKED), which it calls by
 * name and by a pointer in its data, or finding all by dlsym (-DBY_NAME) or
 * cuGetProcAddress (-DBY_PROC). Both have a function origin: which of them the
 * library calls tells whether it was bound as it was asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *origin(void);

#ifdef MAIN

const char *origin(void) { return "main"; }

int main(int argc, char **argv)
{
	void *h = NULL;
	if (argc < 3)
		return 2;
	if (strcmp(argv[1], "apart") == 0)
		h = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
	else
		h = dlopen(argv[2], (argc > 3 ? RTLD_LAZY : RTLD_NOW) | (strcmp(argv[1], "deep") == 0 ? RTLD_DEEPBIND : 0));
	if (h == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int (*use)(int) = (int (*)(int))dlsym(h, "use");
	const char *(*from)(void) = (const char *(*)(void))dlsym(h, "from");
	int failed = use(5);
	printf("%s %d\n", from(), failed);
	return failed;
}

#else

typedef int alloc_fn(uint64_t *, size_t);
typedef int free_fn(uint64_t);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
alloc_fn cuMemAlloc_v2;
free_fn cuMemFree_v2;
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

const char *origin(void) { return "library"; }
const char *from(void) { return origin(); }

#ifdef LINKED
struct { alloc_fn *alloc; free_fn *free; } table = {cuMemAlloc_v2, cuMemFree_v2};
#endif

int use(int n)
{
	void *ctx;
	alloc_fn *alloc = NULL;
	free_fn *give = NULL;
#ifdef LINKED
	alloc = table.alloc;
	give = table.free;
#elif defined(BY_PROC)
	if (cuGetProcAddress_v2("cuMemAlloc", (void **)&alloc, 12000, 0, NULL) || cuGetProcAddress_v2("cuMemFree", (void **)&give, 12000, 0, NULL))
		return 3;
#else
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	alloc = (alloc_fn *)dlsym(cuda, "cuMemAlloc_v2");
	give = (free_fn *)dlsym(cuda, "cuMemFree_v2");
#endif
#ifdef BY_NAME
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
	int (*current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
	if (init(0) || retain(&ctx, 0) || current(ctx))
		return 4;
#else
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx))
		return 4;
#endif
	for (int i = 0; i < n; i++) {
		uint64_t p = 0, q = 0;
		if (alloc(&p, 4096) || give(p))
			return 5;
#ifdef LINKED
		if (cuMemAlloc_v2(&q, 4096) || cuMemFree_v2(q))
			return 6;
#else
		if (alloc(&q, 4096) || give(q))
			return 6;
#endif
	}
	return 0;
}

#endif
