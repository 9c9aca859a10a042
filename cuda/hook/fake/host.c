/* Pinned memory and pointer queries of the simulated driver: see driver.h. */
#include "driver.h"

#include <stdlib.h>

/* ---- pinned memory ---- */

static CUresult host_alloc(void **out, size_t size)
{
	CUdeviceptr p;
	struct context *c;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (size == 0) {
		TRY(current_context(NULL, &c));
		*out = NULL; /* nothing, and no error, on the real driver too */
		return CUDA_SUCCESS;
	}
	TRY(take(&driver.host, size, KIND_HOST, &p));
	*out = (void *)(uintptr_t)p;
	return CUDA_SUCCESS;
}

API(cuMemAllocHost_v2, (void **out, size_t size))
{
	ENTER();
	return host_alloc(out, size);
}

API(cuMemHostAlloc, (void **out, size_t size, unsigned flags))
{
	ENTER();
	if (flags & ~7u) /* portable, device map, write combined */
		return CUDA_ERROR_INVALID_VALUE;
	return host_alloc(out, size);
}

API(cuMemAllocHost, (void **out, unsigned size))
{
	ENTER();
	return host_alloc(out, size);
}

API(cuMemFreeHost, (void *p))
{
	ENTER();
	struct context *c;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	TRY(current_context(NULL, &c));
	TRY(capture_unsafe());
	pthread_mutex_lock(&driver.host.lock);
	struct block *b = heap_find(&driver.host, (uintptr_t)p);
	if (b && b->addr == (uintptr_t)p && b->kind == KIND_HOST) {
		heap_free(&driver.host, b);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.host.lock);
	return res;
}

/* Registered ranges are few; they stand under the host heap's lock. */
struct range {
	uint64_t addr, size;
	CUcontext ctx;
};
static struct range *ranges;
static size_t nranges, capranges;

static CUresult host_register(void *p, size_t size, unsigned flags)
{
	CUcontext ctx;
	struct context *c;
	uint64_t addr = (uintptr_t)p;
	CUresult res = CUDA_SUCCESS;

	TRY(current_context(&ctx, &c));
	if (!p || size == 0 || (flags & ~15u) || addr + size < addr)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.host.lock);
	if (heap_find(&driver.host, addr))
		res = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	for (size_t i = 0; i < nranges && !res; i++)
		if (addr < ranges[i].addr + ranges[i].size && ranges[i].addr < addr + size)
			res = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!res && nranges == capranges) {
		size_t cap = capranges ? capranges * 2 : 16;
		struct range *v = realloc(ranges, cap * sizeof *v);

		if (v) {
			ranges = v;
			capranges = cap;
		} else {
			res = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (!res)
		ranges[nranges++] = (struct range){addr, size, ctx};
	pthread_mutex_unlock(&driver.host.lock);
	return res;
}

API(cuMemHostRegister, (void *p, size_t size, unsigned flags))
{
	ENTER();
	return host_register(p, size, flags);
}

API(cuMemHostRegister_v2, (void *p, size_t size, unsigned flags))
{
	ENTER();
	return host_register(p, size, flags);
}

API(cuMemHostUnregister, (void *p))
{
	ENTER();
	struct context *c;
	CUresult res = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

	TRY(current_context(NULL, &c));
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.host.lock);
	for (size_t i = 0; i < nranges; i++) {
		if (ranges[i].addr == (uintptr_t)p) {
			ranges[i] = ranges[--nranges];
			res = CUDA_SUCCESS;
			break;
		}
	}
	pthread_mutex_unlock(&driver.host.lock);
	return res;
}

void host_unregister_all(CUcontext ctx)
{
	pthread_mutex_lock(&driver.host.lock);
	for (size_t i = 0; i < nranges;)
		if (ranges[i].ctx == ctx)
			ranges[i] = ranges[--nranges];
		else
			i++;
	pthread_mutex_unlock(&driver.host.lock);
}

/* registered finds the range that holds an address. */
static bool registered(uint64_t p, struct range *out)
{
	bool found = false;

	pthread_mutex_lock(&driver.host.lock);
	for (size_t i = 0; i < nranges && !found; i++) {
		if (p >= ranges[i].addr && p - ranges[i].addr < ranges[i].size) {
			*out = ranges[i];
			found = true;
		}
	}
	pthread_mutex_unlock(&driver.host.lock);
	return found;
}

API(cuMemHostGetDevicePointer_v2, (CUdeviceptr *out, void *p, unsigned flags))
{
	ENTER();
	struct block b;
	struct range r;
	CUdeviceptr addr = (uintptr_t)p;

	if (!out || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(look(addr, &b) && b.kind == KIND_HOST) && !registered(addr, &r))
		return CUDA_ERROR_INVALID_VALUE;
	*out = addr;
	return CUDA_SUCCESS;
}

/* ---- what a pointer is ---- */

enum { ATTR_CONTEXT = 1, ATTR_TYPE = 2, ATTR_DEVICE_POINTER = 3, ATTR_HOST_POINTER = 4, ATTR_IS_MANAGED = 8,
       ATTR_ORDINAL = 9, ATTR_START = 11, ATTR_SIZE = 12, ATTR_POOL = 17 };

API(cuPointerGetAttribute, (void *out, int attr, CUdeviceptr p))
{
	ENTER();
	struct block b = {0};
	struct range r;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!look(p, &b)) {
		if (!registered(p, &r))
			return CUDA_ERROR_INVALID_VALUE;
		struct context *c = table_get(&driver.contexts, r.ctx);
		b = (struct block){.addr = r.addr, .size = r.size, .ctx = r.ctx, .kind = KIND_HOST};
		b.dev = c ? (uint8_t)c->dev : 0;
	}
	bool managed = b.kind == KIND_MANAGED || b.kind == KIND_POOL_MANAGED;
	bool pinned = b.kind == KIND_HOST || b.kind == KIND_POOL_HOST;
	bool pooled = b.kind == KIND_ASYNC || b.kind == KIND_POOL_HOST || b.kind == KIND_POOL_MANAGED;
	switch (attr) {
	case ATTR_CONTEXT:
		*(CUcontext *)out = b.ctx;
		return CUDA_SUCCESS;
	case ATTR_TYPE:
		*(unsigned *)out = pinned ? 1 : 2;
		return CUDA_SUCCESS;
	case ATTR_DEVICE_POINTER:
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case ATTR_HOST_POINTER:
		if (!pinned && !managed)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case ATTR_IS_MANAGED:
		*(unsigned char *)out = managed;
		return CUDA_SUCCESS;
	case ATTR_ORDINAL:
		*(int *)out = b.dev;
		return CUDA_SUCCESS;
	case ATTR_START:
		*(CUdeviceptr *)out = b.addr;
		return CUDA_SUCCESS;
	case ATTR_SIZE:
		*(size_t *)out = b.size;
		return CUDA_SUCCESS;
	case ATTR_POOL:
		*(CUmemoryPool *)out = pooled ? ((struct pool *)b.owner)->handle : NULL;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}
