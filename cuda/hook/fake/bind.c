/*
 * What handles of the simulated driver are bound to besides addresses: multicast
 * objects and sparse arrays. A binding holds its handle as a mapping does.
 */
#define _GNU_SOURCE
#include "vmm.h"

#include <string.h>

/* ---- multicast objects ---- */

/* One is a handle without memory; what is bound to it is held by it. */
static struct bound {
	CUhandle object, handle;
	int dev;
	uint64_t at, size; /* size 0: free */
} bounds[256];

API(cuMulticastCreate, (CUhandle *out, const CUmulticastObjectProp *prop))
{
	ENTER();
	void *handle;

	if (!out || !prop || prop->devices == 0 || prop->size == 0 || prop->size % SIM_UNIT || prop->flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct handle *h = table_take(&driver.handles, sizeof *h, &handle);
	if (h) {
		h->dev = HOST_MEMORY;
		h->multicast = true;
		h->size = prop->size;
		h->refs = 1;
		*out = (uintptr_t)handle;
	}
	pthread_mutex_unlock(&driver.lock);
	return h ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMulticastAddDevice, (CUhandle object, CUdevice d))
{
	ENTER();
	struct handle *h = handle_get(object);

	if (!h || !h->multicast)
		return CUDA_ERROR_INVALID_VALUE;
	return d < 0 || d >= driver.devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* bind wants driver.lock. */
static CUresult bind(CUhandle object, int dev, size_t at, CUhandle handle, size_t size)
{
	struct handle *o = handle_get(object), *h = handle_get(handle);

	if (!o || !o->multicast || !h || h->multicast || size == 0 || at % SIM_UNIT || size % SIM_UNIT || at > o->size ||
	    size > o->size - at || size > h->size)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		if (bounds[i].size)
			continue;
		bounds[i] = (struct bound){object, handle, dev < 0 ? h->dev : dev, at, size};
		h->maps++;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult bind_mem(CUhandle object, int dev, size_t at, CUhandle handle, size_t size)
{
	pthread_mutex_lock(&driver.lock);
	CUresult res = bind(object, dev, at, handle, size);
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult bind_addr(CUhandle object, int dev, size_t at, CUdeviceptr p, size_t size)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	CUhandle handle = handle_at(p);
	if (handle)
		res = bind(object, dev, at, handle, size);
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuMulticastBindMem, (CUhandle object, size_t at, CUhandle handle, size_t offset, size_t size, unsigned long long flags))
{
	ENTER();
	return offset || flags ? CUDA_ERROR_INVALID_VALUE : bind_mem(object, -1, at, handle, size);
}

API(cuMulticastBindMem_v2, (CUhandle object, CUdevice d, size_t at, CUhandle handle, size_t offset, size_t size, unsigned long long flags))
{
	ENTER();
	return offset || flags || d < 0 ? CUDA_ERROR_INVALID_VALUE : bind_mem(object, d, at, handle, size);
}

API(cuMulticastBindAddr, (CUhandle object, size_t at, CUdeviceptr p, size_t size, unsigned long long flags))
{
	ENTER();
	return flags ? CUDA_ERROR_INVALID_VALUE : bind_addr(object, -1, at, p, size);
}

API(cuMulticastBindAddr_v2, (CUhandle object, CUdevice d, size_t at, CUdeviceptr p, size_t size, unsigned long long flags))
{
	ENTER();
	return flags || d < 0 ? CUDA_ERROR_INVALID_VALUE : bind_addr(object, d, at, p, size);
}

API(cuMulticastUnbind, (CUhandle object, CUdevice d, size_t at, size_t size))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	for (unsigned i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		struct bound *b = &bounds[i];

		if (!b->size || b->object != object || b->dev != d || b->at < at || b->at + b->size > at + size)
			continue;
		struct handle *h = handle_get(b->handle);
		b->size = 0;
		h->maps--;
		handle_settle(b->handle, h);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* ---- sparse arrays ---- */

static struct tile {
	void *array;
	uint64_t part[4];
	CUhandle handle; /* 0: free */
} tiles[256];

/* tile_switch wants driver.lock. */
static CUresult tile_switch(const CUarrayMapInfo *m)
{
	struct handle *h = m->operation == 1 ? handle_get(m->handle) : NULL;

	if (!array_known(m->array) || (m->operation == 1 && (!h || !h->refs)) || m->operation < 1 || m->operation > 2)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < sizeof tiles / sizeof *tiles; i++) {
		struct tile *t = &tiles[i];

		if (m->operation == 1 && !t->handle) {
			t->array = m->array;
			memcpy(t->part, m->part, sizeof t->part);
			t->handle = m->handle;
			h->maps++;
			return CUDA_SUCCESS;
		}
		if (m->operation == 2 && t->handle && t->array == m->array && memcmp(t->part, m->part, sizeof t->part) == 0) {
			CUhandle was = t->handle;

			t->handle = 0;
			h = handle_get(was);
			h->maps--;
			handle_settle(was, h);
			return CUDA_SUCCESS;
		}
	}
	return m->operation == 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static CUresult do_cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
	struct stream *s;
	int d;
	CUresult res = CUDA_SUCCESS;

	TRY(stream_resolve(stream, &s, &d));
	if (!list || !count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	for (unsigned i = 0; i < count && !res; i++)
		res = tile_switch(&list[i]);
	pthread_mutex_unlock(&driver.lock);
	return res;
}
TWINS(cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo *list, unsigned count, CUstream stream), (list, count, stream))
