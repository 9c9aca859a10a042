/* Device and managed memory of the simulated driver: see driver.h. */
#include "driver.h"

#define PITCH_ALIGN 512

struct heap *heap_of(uint64_t addr)
{
	for (int d = 0; d < driver.devices; d++)
		if (heap_holds(&driver.dev[d].heap, addr))
			return &driver.dev[d].heap;
	if (heap_holds(&driver.host, addr))
		return &driver.host;
	if (heap_holds(&driver.va, addr))
		return &driver.va;
	if (heap_holds(&driver.low, addr))
		return &driver.low;
	return NULL;
}

struct block *device_alloc(struct device *dev, uint64_t size, enum kind kind)
{
	struct block *b = heap_alloc(&dev->heap, size, kind, 1);

	if (!b) {
		pools_trim(dev, true);
		b = heap_alloc(&dev->heap, size, kind, 1);
	}
	return b;
}

CUresult take(struct heap *host, uint64_t size, enum kind kind, CUdeviceptr *out)
{
	CUcontext handle;
	struct context *c;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	TRY(current_context(&handle, &c));
	TRY(capture_unsafe());
	if (!out || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *dev = &driver.dev[c->dev];
	struct heap *h = host ? host : &dev->heap;

	pthread_mutex_lock(&h->lock);
	struct block *b = host ? heap_alloc(h, size, kind, 1) : device_alloc(dev, size, kind);
	if (b) {
		b->ctx = handle;
		b->dev = (uint8_t)c->dev;
		*out = b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&h->lock);
	return res;
}

/* freeable says what cuMemFree takes. */
static bool freeable(enum kind kind)
{
	return kind == KIND_DEVICE || kind == KIND_PITCH || kind == KIND_MANAGED || kind == KIND_ASYNC ||
	       kind == KIND_GRAPH || kind == KIND_IMPORT || kind == KIND_POOL_HOST || kind == KIND_POOL_MANAGED;
}

static void block_free(struct heap *h, struct block *b)
{
	if (b->kind == KIND_ASYNC)
		pool_free(&driver.dev[b->dev], b);
	else
		heap_free(h, b);
}

CUresult free_any(CUdeviceptr p)
{
	struct heap *h = heap_of(p);
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (!h || h == &driver.low)
		return res;
	pthread_mutex_lock(&h->lock);
	struct block *b = heap_find(h, p);
	if (b && b->addr == p && freeable(b->kind)) {
		block_free(h, b);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&h->lock);
	return res;
}

/* drop_in frees the blocks of a context in one heap. Wants driver.lock. */
static void drop_in(struct heap *h, CUcontext ctx)
{
	if (!h->base)
		return;
	pthread_mutex_lock(&h->lock);
	for (uint32_t i = 1; i < h->nblock; i++) {
		struct block *b = &h->block[i];

		if (b->kind == KIND_NONE || b->kind == KIND_SPAN || b->ctx != ctx)
			continue;
		if (b->kind == KIND_ARRAY)
			table_give(&driver.arrays, b->owner);
		if (h == &driver.low)
			device_charge(&driver.dev[b->dev], -(int64_t)b->bytes);
		heap_free(h, b);
	}
	pthread_mutex_unlock(&h->lock);
}

void context_drop(CUcontext ctx)
{
	for (int d = 0; d < driver.devices; d++)
		drop_in(&driver.dev[d].heap, ctx);
	drop_in(&driver.host, ctx);
	drop_in(&driver.low, ctx);
	host_unregister_all(ctx);
}

/* ---- memory of the device ---- */

API(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	struct device *dev = &driver.dev[c->dev];
	uint64_t used = sim_used(driver.state, dev->index, false);
	/* Either may be NULL: programs do that. */
	if (free_bytes)
		*free_bytes = used < dev->capacity ? dev->capacity - used : 0;
	if (total)
		*total = dev->capacity;
	return CUDA_SUCCESS;
}

API(cuMemAlloc_v2, (CUdeviceptr *out, size_t size))
{
	ENTER();
	return take(NULL, size, KIND_DEVICE, out);
}

API(cuMemAllocPitch_v2, (CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned elem))
{
	ENTER();
	uint64_t size, row;

	if (!pitch || (elem != 4 && elem != 8 && elem != 16) || width == 0 || width > SIZE_MAX - PITCH_ALIGN)
		return CUDA_ERROR_INVALID_VALUE;
	row = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
	if (__builtin_mul_overflow(row, height, &size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(take(NULL, size, KIND_PITCH, out));
	*pitch = row;
	return CUDA_SUCCESS;
}

API(cuMemAllocManaged, (CUdeviceptr *out, size_t size, unsigned flags))
{
	ENTER();
	if (flags != 1 && flags != 2) /* attach global, attach host */
		return CUDA_ERROR_INVALID_VALUE;
	return take(&driver.host, size, KIND_MANAGED, out);
}

API(cuMemFree_v2, (CUdeviceptr p))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	TRY(capture_unsafe());
	return p ? free_any(p) : CUDA_SUCCESS;
}

/* The entry points from before CUDA 3.2, whose pointers and sizes have 32
 * bits. Their addresses come from an arena of their own, in whole units. */
API(cuMemAlloc, (uint32_t *out, unsigned size))
{
	ENTER();
	CUcontext handle;
	struct context *c;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	TRY(current_context(&handle, &c));
	TRY(capture_unsafe());
	if (!out || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!driver.low.base)
		return CUDA_ERROR_OUT_OF_MEMORY;

	int64_t bytes = (int64_t)((size + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT);
	if (!device_charge(&driver.dev[c->dev], bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&driver.low.lock);
	struct block *b = heap_alloc(&driver.low, (uint64_t)bytes, KIND_DEVICE, 1);
	if (b) {
		b->size = size;
		b->ctx = handle;
		b->dev = (uint8_t)c->dev;
		*out = (uint32_t)b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.low.lock);
	if (res)
		device_charge(&driver.dev[c->dev], -bytes);
	return res;
}

API(cuMemAllocPitch, (uint32_t *out, unsigned *pitch, unsigned width, unsigned height, unsigned elem))
{
	ENTER();
	if (!pitch || (elem != 4 && elem != 8 && elem != 16) || width == 0 || width > UINT32_MAX - PITCH_ALIGN)
		return CUDA_ERROR_INVALID_VALUE;
	unsigned row = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
	if ((uint64_t)row * height > UINT32_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(own_cuMemAlloc(out, row * height));
	*pitch = row;
	return CUDA_SUCCESS;
}

API(cuMemFree, (uint32_t p))
{
	ENTER();
	struct context *c;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	TRY(current_context(NULL, &c));
	TRY(capture_unsafe());
	if (!p)
		return CUDA_SUCCESS;
	if (!heap_holds(&driver.low, p))
		return res;
	pthread_mutex_lock(&driver.low.lock);
	struct block *b = heap_find(&driver.low, p);
	if (b && b->addr == p) {
		device_charge(&driver.dev[b->dev], -(int64_t)b->bytes);
		heap_free(&driver.low, b);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.low.lock);
	return res;
}

bool look(CUdeviceptr p, struct block *out)
{
	struct heap *h = heap_of(p);
	bool found = false;

	if (!h)
		return false;
	pthread_mutex_lock(&h->lock);
	struct block *b = heap_find(h, p);
	if (b && b->kind != KIND_ARRAY && b->kind != KIND_RESERVED && p < b->addr + b->size) {
		*out = *b;
		found = true;
	}
	pthread_mutex_unlock(&h->lock);
	return found;
}

API(cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *size, CUdeviceptr p))
{
	ENTER();
	struct block b;

	if (!look(p, &b) || b.kind == KIND_HOST)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = b.addr;
	if (size)
		*size = b.size;
	return CUDA_SUCCESS;
}

/* Copies move nothing, but a pointer that the real driver would refuse is refused. */
static CUresult check_range(CUdeviceptr p, size_t n)
{
	struct context *c;
	struct block b;

	TRY(current_context(NULL, &c));
	if (n == 0)
		return CUDA_SUCCESS;
	if (look(p, &b) ? n <= b.size - (p - b.addr) : vmm_accessible(p, n))
		return CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult do_cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n)
{
	return src || !n ? check_range(dst, n) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult do_cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n)
{
	return dst || !n ? check_range(src, n) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult do_cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
	(void)value;
	return check_range(dst, n);
}

TWINS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t n), (dst, src, n))
TWINS(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t n), (dst, src, n))
TWINS(cuMemsetD8_v2, _ptds, (CUdeviceptr dst, unsigned char value, size_t n), (dst, value, n))
