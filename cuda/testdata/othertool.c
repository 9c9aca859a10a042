/* Another tool's preload library: it counts calls of cuMemAlloc and cuMemFree by
 * taking their names, as tools do, and says at the end how many there were. With
 * -DWRAPS_DLSYM it also stands in front of dlsym and hands out its functions
 * there and by cuGetProcAddress; with -DWRAPS_PROC by cuGetProcAddress alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"

static _Atomic long allocs, frees;

typedef int alloc_fn(uint64_t *, size_t);
typedef int free_fn(uint64_t);
typedef int proc_fn(const char *, void **, int, uint64_t, int *);
alloc_fn cuMemAlloc_v2;
free_fn cuMemFree_v2;
static alloc_fn *next_alloc, counts_alloc;
static free_fn *next_free, counts_free;

static int counts_alloc(uint64_t *p, size_t size)
{
	if (next_alloc == NULL)
		next_alloc = (alloc_fn *)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	allocs++;
	return next_alloc(p, size);
}

static int counts_free(uint64_t p)
{
	if (next_free == NULL)
		next_free = (free_fn *)dlsym(RTLD_NEXT, "cuMemFree_v2");
	frees++;
	return next_free(p);
}

#ifndef WRAPS_PROC
int cuMemAlloc_v2(uint64_t *p, size_t size) { return counts_alloc(p, size); }
int cuMemFree_v2(uint64_t p) { return counts_free(p); }
#endif

#if defined(WRAPS_DLSYM) || defined(WRAPS_PROC)
static proc_fn *next_proc;

static void *exchange(const char *alloc, const char *give, const char *name, void *p)
{
	if (strcmp(name, alloc) == 0) {
		next_alloc = (alloc_fn *)p;
		return (void *)counts_alloc;
	}
	if (strcmp(name, give) == 0) {
		next_free = (free_fn *)p;
		return (void *)counts_free;
	}
	return p;
}

static int counts_proc(const char *name, void **to, int version, uint64_t flags, int *status)
{
	int r = next_proc(name, to, version, flags, status);
	if (r == 0 && to != NULL && *to != NULL && version >= 3020)
		*to = exchange("cuMemAlloc", "cuMemFree", name, *to);
	return r;
}

void *dlsym(void *handle, const char *name)
{
	static void *(*next)(void *, const char *);
	if (next == NULL)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	void *p = next(handle, name);
	if (p == NULL || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
		return p;
	if (strcmp(name, "cuGetProcAddress_v2") == 0) {
		next_proc = (proc_fn *)p;
		return (void *)counts_proc;
	}
#ifdef WRAPS_PROC
	return p;
#else
	return exchange("cuMemAlloc_v2", "cuMemFree_v2", name, p);
#endif
}
#endif

__attribute__((destructor)) static void say(void)
{
	const char *path = getenv("OTHER_TOOL");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (f) {
		fprintf(f, "%ld allocs, %ld frees\n", allocs, frees);
		fclose(f);
	}
}
