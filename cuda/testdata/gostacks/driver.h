/*
 * driver.h - C for gostacks: it takes memory, and calls back into Go. What Go's
 * program calls by name has a frame of its own.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#define NOINLINE __attribute__((noinline, noclone, unused))

extern void called(uint64_t);

static int (*mem_alloc)(uint64_t *, uint64_t), (*mem_free)(uint64_t), (*set_current)(void *);
static void *ctx;
static volatile int sink; /* what keeps a call from being the last */

static NOINLINE int open_driver(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (lib == NULL)
		return 1;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	set_current = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	mem_alloc = (int (*)(uint64_t *, uint64_t))dlsym(lib, "cuMemAlloc_v2");
	mem_free = (int (*)(uint64_t))dlsym(lib, "cuMemFree_v2");
	return init(0) || retain(&ctx, 0);
}

/* The address of some memory; 0: there was none. */
static NOINLINE uint64_t take(uint64_t bytes)
{
	uint64_t address = 0;
	set_current(ctx);
	int failed = mem_alloc(&address, bytes);
	sink = 1;
	return failed ? 0 : address;
}

static NOINLINE void give(uint64_t address)
{
	mem_free(address);
	sink = 1;
}

/* Into Go, straight and from a frame that uses every register. */
static NOINLINE void back(uint64_t what)
{
	called(what);
	sink = 1;
}

static NOINLINE uint64_t crowded(uint64_t what)
{
	uint64_t a[8] = {what, what + 1, what + 2, what + 3, what + 4, what + 5, what + 6, what + 7};
	uint64_t b = a[1] * a[2], c = a[3] ^ a[4], d = a[5] - a[6], e = a[7] / 3;
	for (int i = 0; i < sink + 1; i++)
		a[i & 7] += b * c, b += a[(i + 1) & 7], c ^= d, d += e, e ^= b;
	called(what);
	sink = 1;
	return a[sink] + b + c + d + e;
}

static void *thread(void *what)
{
	back((uint64_t)(uintptr_t)what);
	sink = 1;
	return NULL;
}

/* Into Go from a thread that Go did not make. */
static NOINLINE void elsewhere(uint64_t what)
{
	pthread_t t;
	if (pthread_create(&t, NULL, thread, (void *)(uintptr_t)what) == 0)
		pthread_join(t, NULL);
}

#endif
