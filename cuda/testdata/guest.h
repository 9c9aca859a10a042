/* guest.h - the driver and the hook's functions, as guest.c has them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"
#include "gpurec.h"

/* The hook is preloaded, not linked: its functions are looked up as a program
 * that can do without them does it. */
#define PUBLIC(X) \
	X(active) X(scope_begin) X(scope_begin_on) X(scope_ask) X(scope_end) X(scope_reset) X(scope_report) X(mark) X(pool_alloc) X(pool_free) X(pool_enter) X(pool_leave)
#define POINTER(name) static __typeof__(gpurec_##name) *name##_;
PUBLIC(POINTER)

typedef uint64_t ptr;
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(ptr *, size_t), (*cuMemFree)(ptr), (*proc)(const char *, void **, int, uint64_t, int *);
static void *context;

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "guest.c:%d: %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static void *sym(void *lib, const char *name)
{
	void *p = dlsym(lib, name);
	CHECK(p != NULL);
	return p;
}

static void start(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib != NULL);
	cuInit = (int (*)(unsigned))sym(lib, "cuInit");
	cuDevicePrimaryCtxRetain = (int (*)(void **, int))sym(lib, "cuDevicePrimaryCtxRetain");
	cuCtxSetCurrent = (int (*)(void *))sym(lib, "cuCtxSetCurrent");
	cuMemAlloc = (int (*)(ptr *, size_t))sym(lib, "cuMemAlloc_v2");
	cuMemFree = (int (*)(ptr))sym(lib, "cuMemFree_v2");
	proc = (int (*)(const char *, void **, int, uint64_t, int *))sym(lib, "cuGetProcAddress_v2");
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
}

static void pair(void)
{
	ptr p;
	CHECK(cuMemAlloc(&p, 4096) == 0 && cuMemFree(p) == 0);
}

static int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}
