/* Pinned memory, arrays and pointer queries of the simulated driver: see driver.h. */
#include "driver.h"

#include <stdlib.h>

/* ---- pinned memory ---- */

static CUresult host_alloc(void **out, size_t size)
{
	CUdeviceptr p;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
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

API(cuMemHostRegister_v2, (void *p, size_t size, unsigned flags))
{
	ENTER();
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
	bool host = b.kind == KIND_HOST || b.kind == KIND_MANAGED;
	switch (attr) {
	case ATTR_CONTEXT:
		*(CUcontext *)out = b.ctx;
		return CUDA_SUCCESS;
	case ATTR_TYPE:
		*(unsigned *)out = b.kind == KIND_HOST ? 1 : 2;
		return CUDA_SUCCESS;
	case ATTR_DEVICE_POINTER:
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case ATTR_HOST_POINTER:
		if (!host)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)out = p;
		return CUDA_SUCCESS;
	case ATTR_IS_MANAGED:
		*(unsigned char *)out = b.kind == KIND_MANAGED;
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
		*(CUmemoryPool *)out = b.kind == KIND_ASYNC ? ((struct pool *)b.owner)->handle : NULL;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- arrays ---- */

#define ARRAY_ALIGN 65536
#define SPARSE 0x40
#define DEFERRED_MAPPING 0x80

struct array {
	_Atomic uint32_t live;
	bool mipmapped;
	unsigned flags;
	uint64_t bytes;
	int dev;
	CUdeviceptr addr; /* 0: nothing taken, its memory is mapped later */
};

/* element_bytes of an array format, 0 if it is unknown. */
static unsigned element_bytes(int format)
{
	switch (format) {
	case 0x01: case 0x08: /* 8-bit integers */
		return 1;
	case 0x02: case 0x09: case 0x10: /* 16-bit integers, half */
		return 2;
	case 0x03: case 0x0a: case 0x20: /* 32-bit integers, float */
		return 4;
	}
	return 0;
}

/* array_bytes of one level, 0 if the description is wrong or too large. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
	uint64_t w = d->width >> level, h = d->height >> level, z = d->depth >> level, bytes;
	unsigned elem = element_bytes(d->format);

	if (d->width == 0 || !elem || (d->channels != 1 && d->channels != 2 && d->channels != 4))
		return 0;
	w += w == 0;
	h += h == 0;
	z += z == 0;
	if (__builtin_mul_overflow(w, h, &bytes) || __builtin_mul_overflow(bytes, z, &bytes) ||
	    __builtin_mul_overflow(bytes, elem * d->channels, &bytes))
		return 0;
	return bytes;
}

static CUresult array_create(void **out, uint64_t bytes, unsigned flags, bool mipmapped)
{
	CUcontext handle;
	struct context *c;
	struct block *b = NULL;

	TRY(current_context(&handle, &c));
	TRY(capture_unsafe());
	if (!out || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *dev = &driver.dev[c->dev];
	pthread_mutex_lock(&driver.lock);
	struct array *a = table_take(&driver.arrays, sizeof *a, out);
	if (a) {
		a->mipmapped = mipmapped;
		a->flags = flags;
		a->bytes = bytes;
		a->dev = c->dev;
		if (!(flags & (SPARSE | DEFERRED_MAPPING))) {
			pthread_mutex_lock(&dev->heap.lock);
			b = device_alloc(dev, bytes, KIND_ARRAY);
			if (b) {
				b->ctx = handle;
				b->dev = (uint8_t)c->dev;
				b->owner = *out;
				a->addr = b->addr;
			}
			pthread_mutex_unlock(&dev->heap.lock);
			if (!b) {
				table_give(&driver.arrays, *out);
				a = NULL;
			}
		}
	}
	pthread_mutex_unlock(&driver.lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult array_destroy(void *handle, bool mipmapped)
{
	CUresult res = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&driver.lock);
	struct array *a = table_get(&driver.arrays, handle);
	if (a && a->mipmapped == mipmapped) {
		struct heap *h = &driver.dev[a->dev].heap;

		if (a->addr) {
			pthread_mutex_lock(&h->lock);
			heap_free(h, heap_find(h, a->addr));
			pthread_mutex_unlock(&h->lock);
		}
		table_give(&driver.arrays, handle);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* Only arrays whose memory is mapped later tell what they need, as documented. */
static CUresult array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, void *handle, CUdevice d, bool mipmapped)
{
	struct array *a = table_get(&driver.arrays, handle);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!a || a->mipmapped != mipmapped)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!(a->flags & DEFERRED_MAPPING))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
		.size = (a->bytes + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN,
		.alignment = ARRAY_ALIGN,
	};
	return CUDA_SUCCESS;
}

API(cuArrayCreate_v2, (CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR d3 = {d->width, d->height, 0, d->format, d->channels, 0};
	return array_create(out, array_bytes(&d3, 0), 0, false);
}

API(cuArray3DCreate_v2, (CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	return array_create(out, array_bytes(d, 0), d->flags, false);
}

API(cuArrayDestroy, (CUarray a))
{
	ENTER();
	return array_destroy(a, false);
}

API(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray a, CUdevice d))
{
	ENTER();
	return array_requirements(out, a, d, false);
}

API(cuMipmappedArrayCreate, (CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels))
{
	ENTER();
	uint64_t bytes = 0;

	if (!d || levels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned level = 0; level < levels && level < 32; level++) {
		uint64_t n = array_bytes(d, level);

		if (n == 0 || __builtin_add_overflow(bytes, n, &bytes))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return array_create(out, bytes, d->flags, true);
}

API(cuMipmappedArrayDestroy, (CUmipmappedArray a))
{
	ENTER();
	return array_destroy(a, true);
}

API(cuMipmappedArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray a, CUdevice d))
{
	ENTER();
	return array_requirements(out, a, d, true);
}
