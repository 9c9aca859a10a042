/*
 * Stream-ordered pools of the simulated driver: see driver.h.
 *
 * A pool takes 32 MiB from the device at a time and cuts allocations from it.
 * A free takes effect at once for the program's books and for the next
 * allocation from the pool, but gives nothing back to the device: that happens
 * at the next synchronising call, down to the release threshold.
 */
#include "driver.h"

#include <stdlib.h>

#define RESERVE_STEP (32ull << 20)

static uint64_t slab_bytes(const struct slab *slab)
{
	return (uint64_t)slab->count << slab->shift;
}

/* shrink gives empty reserve back until no more than keep is left. */
static void shrink(struct device *dev, struct pool *p, uint64_t keep)
{
	for (uint32_t i = p->slabs.n; i-- > 0 && p->reserved > keep;) {
		struct slab *slab = p->slabs.v[i];

		if (slab->live)
			continue;
		p->reserved -= slab_bytes(slab);
		slab_drop(&dev->heap, &p->slabs, slab);
	}
}

/* pool_at gives the i-th pool if it has, or may have, reserve on the device.
 * A pool whose handle is destroyed keeps its reserve while blocks are out. */
static struct pool *pool_at(struct device *dev, uint32_t i)
{
	struct pool *p = atomic_load(&driver.pools.slot[i]);

	return p && (p->live || p->doomed) && &driver.dev[p->dev] == dev ? p : NULL;
}

void pools_trim(struct device *dev, bool all)
{
	for (uint32_t i = 0, n = driver.pools.n; i < n; i++) {
		struct pool *p = pool_at(dev, i);

		if (p)
			shrink(dev, p, all ? 0 : p->threshold);
	}
}

void pools_drop(struct device *dev)
{
	for (uint32_t i = 1; i < dev->heap.nblock; i++) {
		struct block *b = &dev->heap.block[i];

		if (b->kind == KIND_ASYNC)
			pool_free(dev, b);
	}
	pools_trim(dev, true);
	dev->current = dev->builtin;
}

void pool_free(struct device *dev, struct block *b)
{
	struct pool *p = b->owner;

	p->used -= b->bytes;
	heap_free(&dev->heap, b);
	if (p->doomed)
		shrink(dev, p, 0);
}

/* pool_new wants driver.lock. */
static struct pool *pool_new(int ordinal, uint64_t max_size, CUmemoryPool *handle)
{
	struct pool *p = table_take(&driver.pools, sizeof *p, handle);

	if (!p)
		return NULL;
	p->handle = *handle;
	p->dev = ordinal;
	p->of = KIND_ASYNC;
	p->max_size = max_size;
	p->reuse[CU_POOL_REUSE_FOLLOW_EVENT] = 1;
	p->reuse[CU_POOL_REUSE_OPPORTUNISTIC] = 1;
	p->reuse[CU_POOL_REUSE_INTERNAL] = 1;
	return p;
}

CUresult pools_init(struct device *dev, int ordinal)
{
	struct pool *p = pool_new(ordinal, 0, &dev->builtin);

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->builtin = true;
	dev->current = dev->builtin;
	return CUDA_SUCCESS;
}

/* ---- allocations ---- */

/* reserve_more wants the heap's lock. */
static bool reserve_more(struct device *dev, struct pool *p, uint64_t size)
{
	if (size > UINT64_MAX - RESERVE_STEP)
		return false;
	uint64_t bytes = (size + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;
	struct slab *slab = NULL;

	if (!p->max_size || p->reserved + bytes <= p->max_size)
		slab = slab_new(&dev->heap, &p->slabs, bytes);
	if (!slab) {
		/* What other pools keep unused may be taken, as the driver does;
		 * and this one's own pieces may have been too small. */
		pools_trim(dev, true);
		if (p->max_size && p->reserved + bytes > p->max_size)
			return false;
		slab = slab_new(&dev->heap, &p->slabs, bytes);
	}
	if (!slab)
		return false;
	p->reserved += slab_bytes(slab);
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
	return true;
}

static CUresult host_pool_alloc(struct pool *p, size_t size, CUdeviceptr *out)
{
	pthread_mutex_lock(&driver.host.lock);
	struct block *b = heap_alloc(&driver.host, size, p->of, 1);
	if (b) {
		b->owner = p;
		b->dev = (uint8_t)p->dev;
		*out = b->addr;
	}
	pthread_mutex_unlock(&driver.host.lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_alloc(CUmemoryPool handle, size_t size, CUdeviceptr *out)
{
	struct pool *p = table_get(&driver.pools, handle);
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->imported)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (size == 0) { /* the driver gives null for it, as it does of pinned memory */
		*out = 0;
		return CUDA_SUCCESS;
	}
	if (p->of != KIND_ASYNC) /* it keeps nothing */
		return host_pool_alloc(p, size, out);
	struct device *dev = &driver.dev[p->dev];
	pthread_mutex_lock(&dev->heap.lock);
	struct block *b = slabs_alloc(&dev->heap, &p->slabs, size, KIND_ASYNC);
	if (!b && reserve_more(dev, p, size))
		b = slabs_alloc(&dev->heap, &p->slabs, size, KIND_ASYNC);
	if (b) {
		b->owner = p;
		b->dev = (uint8_t)p->dev;
		p->used += b->bytes;
		if (p->used > p->used_high)
			p->used_high = p->used;
		*out = b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&dev->heap.lock);
	return res;
}

static CUresult do_cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	struct stream *s;
	int d;

	TRY(stream_resolve(stream, &s, &d));
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (s && s->capture != CU_CAPTURE_NONE)
		return graph_alloc(s, size, out);
	pthread_mutex_lock(&driver.dev[d].heap.lock);
	CUmemoryPool pool = driver.dev[d].current;
	pthread_mutex_unlock(&driver.dev[d].heap.lock);
	return pool_alloc(pool, size, out);
}
TWINS(cuMemAllocAsync, _ptsz, (CUdeviceptr *out, size_t size, CUstream stream), (out, size, stream))

static CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
	struct stream *s;
	int d;

	TRY(stream_resolve(stream, &s, &d));
	if (!out || !table_get(&driver.pools, pool))
		return CUDA_ERROR_INVALID_VALUE;
	if (s && s->capture != CU_CAPTURE_NONE)
		return graph_alloc(s, size, out);
	return pool_alloc(pool, size, out);
}
TWINS(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream),
      (out, size, pool, stream))

static CUresult do_cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
	struct stream *s;
	int d;

	TRY(stream_resolve(stream, &s, &d));
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (s && s->capture != CU_CAPTURE_NONE)
		return graph_free(s, p);
	return free_any(p);
}
TWINS(cuMemFreeAsync, _ptsz, (CUdeviceptr p, CUstream stream), (p, stream))

/* ---- pools ---- */

API(cuMemPoolCreate, (CUmemoryPool *out, const CUmemPoolProps *props))
{
	ENTER();
	if (!out || !props || props->alloc_type < 1 || props->alloc_type > 2)
		return CUDA_ERROR_INVALID_VALUE;
	bool device = props->location.type == CU_LOCATION_DEVICE, managed = props->alloc_type == 2;
	if (!device && !managed && props->location.type != CU_LOCATION_HOST && props->location.type != CU_LOCATION_HOST_NUMA)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (device && (props->location.id < 0 || props->location.id >= driver.devices))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct pool *p = pool_new(device ? props->location.id : 0, props->max_size, out);
	if (p && (managed || !device))
		p->of = managed ? KIND_POOL_MANAGED : KIND_POOL_HOST;
	pthread_mutex_unlock(&driver.lock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemPoolDestroy, (CUmemoryPool handle))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	struct pool *p = table_get(&driver.pools, handle);
	if (p && !p->builtin) {
		struct device *dev = &driver.dev[p->dev];

		pthread_mutex_lock(&dev->heap.lock);
		if (dev->current == handle)
			dev->current = dev->builtin;
		shrink(dev, p, 0);
		if (p->slabs.n) {
			/* Blocks are out: the handle ends now, the reserve with
			 * the last of them. The slot is not used again. */
			p->doomed = true;
			p->live = 0;
		} else {
			free(p->slabs.v);
			p->slabs = (struct slabs){0};
			table_give(&driver.pools, handle);
		}
		pthread_mutex_unlock(&dev->heap.lock);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep))
{
	ENTER();
	struct pool *p = table_get(&driver.pools, handle);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *dev = &driver.dev[p->dev];
	pthread_mutex_lock(&dev->heap.lock);
	shrink(dev, p, keep);
	pthread_mutex_unlock(&dev->heap.lock);
	return CUDA_SUCCESS;
}

API(cuMemPoolGetAttribute, (CUmemoryPool handle, int attr, void *value))
{
	ENTER();
	struct pool *p = table_get(&driver.pools, handle);
	CUresult res = CUDA_SUCCESS;

	TRY(capture_unsafe());
	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	struct heap *h = &driver.dev[p->dev].heap;
	pthread_mutex_lock(&h->lock);
	switch (attr) {
	case CU_POOL_REUSE_FOLLOW_EVENT:
	case CU_POOL_REUSE_OPPORTUNISTIC:
	case CU_POOL_REUSE_INTERNAL:
		*(int *)value = p->reuse[attr];
		break;
	case CU_POOL_RELEASE_THRESHOLD:
		*(uint64_t *)value = p->threshold;
		break;
	case CU_POOL_RESERVED_CURRENT:
		*(uint64_t *)value = p->reserved;
		break;
	case CU_POOL_RESERVED_HIGH:
		*(uint64_t *)value = p->reserved_high;
		break;
	case CU_POOL_USED_CURRENT:
		*(uint64_t *)value = p->used;
		break;
	case CU_POOL_USED_HIGH:
		*(uint64_t *)value = p->used_high;
		break;
	default:
		res = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&h->lock);
	return res;
}

API(cuMemPoolSetAttribute, (CUmemoryPool handle, int attr, void *value))
{
	ENTER();
	struct pool *p = table_get(&driver.pools, handle);
	CUresult res = CUDA_SUCCESS;

	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	struct heap *h = &driver.dev[p->dev].heap;
	pthread_mutex_lock(&h->lock);
	switch (attr) {
	case CU_POOL_REUSE_FOLLOW_EVENT:
	case CU_POOL_REUSE_OPPORTUNISTIC:
	case CU_POOL_REUSE_INTERNAL:
		p->reuse[attr] = *(int *)value;
		break;
	case CU_POOL_RELEASE_THRESHOLD:
		p->threshold = *(uint64_t *)value;
		break;
	case CU_POOL_RESERVED_HIGH: /* a high-water mark can be reset, to what is now */
		if (*(uint64_t *)value == 0)
			p->reserved_high = p->reserved;
		else
			res = CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_POOL_USED_HIGH:
		if (*(uint64_t *)value == 0)
			p->used_high = p->used;
		else
			res = CUDA_ERROR_INVALID_VALUE;
		break;
	default:
		res = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&h->lock);
	return res;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice d, bool builtin)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.dev[d].heap.lock);
	*out = builtin ? driver.dev[d].builtin : driver.dev[d].current;
	pthread_mutex_unlock(&driver.dev[d].heap.lock);
	return CUDA_SUCCESS;
}

API(cuDeviceGetDefaultMemPool, (CUmemoryPool *out, CUdevice d))
{
	ENTER();
	return device_pool(out, d, true);
}

API(cuDeviceGetMemPool, (CUmemoryPool *out, CUdevice d))
{
	ENTER();
	return device_pool(out, d, false);
}

API(cuDeviceSetMemPool, (CUdevice d, CUmemoryPool handle))
{
	ENTER();
	struct pool *p = table_get(&driver.pools, handle);

	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!p || p->dev != d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.dev[d].heap.lock);
	driver.dev[d].current = handle;
	pthread_mutex_unlock(&driver.dev[d].heap.lock);
	return CUDA_SUCCESS;
}
