/* A libcuda.so.1 of the kinds not met so far: one whose cuGetProcAddress answers
 * with functions that it does not export, and whose cuMemAlloc never returns
 * when it is asked for 4711 bytes. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static uint64_t next = 0x7f0000000000;

static int alloc(uint64_t *out, size_t size)
{
	if (size == 4711)
		for (;;)
			pause();
	*out = next;
	next += 4096;
	return 0;
}

static int exact_free(uint64_t p) { return p >= 0x7f0000000000 ? 0 : 1; }

EXPORT int cuInit(unsigned flags);
EXPORT int cuDevicePrimaryCtxRetain(void **ctx, int device);
EXPORT int cuCtxSetCurrent(void *ctx);
EXPORT int cuMemAlloc_v2(uint64_t *out, size_t size);
EXPORT int cuMemFree_v2(uint64_t p);
EXPORT int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);

int cuInit(unsigned flags) { return (int)flags; }
int cuDevicePrimaryCtxRetain(void **ctx, int device)
{
	*ctx = &next;
	return device;
}
int cuCtxSetCurrent(void *ctx) { return ctx == NULL; }
int cuMemAlloc_v2(uint64_t *out, size_t size) { return alloc(out, size); }
int cuMemFree_v2(uint64_t p) { return exact_free(p); }
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	(void)flags;
	*out = strcmp(name, "cuMemAlloc") == 0 && version >= 3020 ? (void *)alloc : strcmp(name, "cuMemFree") == 0 ? (void *)exact_free : NULL;
	if (status)
		*status = *out == NULL;
	return *out == NULL ? 500 : 0;
}
