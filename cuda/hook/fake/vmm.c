/*
 * Virtual memory management of the simulated driver: see driver.h.
 *
 * A handle is physical memory; it ends when its references and its mappings
 * are both gone. Addresses are reserved in an arena of their own, of which
 * each unit knows the mapping that covers it. All under driver.lock.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST_MEMORY (-1)

struct handle {
	_Atomic uint32_t live;
	int dev; /* or HOST_MEMORY, which costs the device nothing */
	uint64_t size;
	uint32_t refs, maps;
	bool multicast;
};

struct mapping {
	uint64_t addr, size; /* size 0: free */
	CUhandle handle;
	bool access;
};

static struct mapping *mappings; /* [0] is none */
static uint32_t nmappings, capmappings;
static uint32_t *covers; /* mapping per unit of driver.va */

static uint32_t unit_of(CUdeviceptr p)
{
	return (uint32_t)((p - driver.va.base) / SIM_UNIT);
}

static struct handle *handle_get(CUhandle h)
{
	return table_get(&driver.handles, (void *)(uintptr_t)h);
}

/* handle_settle ends a handle that nobody needs. */
static void handle_settle(CUhandle h, struct handle *p)
{
	if (p->refs || p->maps)
		return;
	if (p->dev != HOST_MEMORY)
		device_charge(&driver.dev[p->dev], -(int64_t)p->size);
	table_give(&driver.handles, (void *)(uintptr_t)h);
}

/* ---- addresses ---- */

API(cuMemAddressReserve, (CUdeviceptr *out, size_t size, size_t align, CUdeviceptr hint, unsigned long long flags))
{
	ENTER();
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	(void)hint; /* a hint may be ignored */
	if (!out || size == 0 || size % SIM_UNIT || (align & (align - 1)) || flags || align > 1ull << 40)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.va.lock);
	uint32_t units = align > SIM_UNIT ? (uint32_t)(align / SIM_UNIT) : 1;
	struct block *b = heap_alloc(&driver.va, size, KIND_RESERVED, units);
	if (b) {
		*out = b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.va.lock);
	return res;
}

/* mapped says whether anything is mapped in [p, p+size), which is reserved. */
static bool mapped(CUdeviceptr p, size_t size)
{
	for (uint32_t u = unit_of(p); covers && u < unit_of(p) + size / SIM_UNIT; u++)
		if (covers[u])
			return true;
	return false;
}

API(cuMemAddressFree, (CUdeviceptr p, size_t size))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_find(&driver.va, p);
	if (b && b->kind == KIND_RESERVED && b->addr == p && b->size == size) {
		if (!mapped(p, size)) {
			heap_free(&driver.va, b);
			res = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&driver.va.lock);
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* reserved says whether [p, p+size) is inside one reservation, in whole units. */
static bool reserved(CUdeviceptr p, size_t size)
{
	bool ok = false;

	if (size == 0 || p % SIM_UNIT || size % SIM_UNIT)
		return false;
	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_find(&driver.va, p);
	if (b && b->kind == KIND_RESERVED)
		ok = size <= b->size - (p - b->addr);
	pthread_mutex_unlock(&driver.va.lock);
	return ok;
}

/* ---- handles ---- */

API(cuMemGetAllocationGranularity, (size_t *out, const CUmemAllocationProp *prop, int option))
{
	ENTER();
	if (!out || !prop || option < 0 || option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	*out = SIM_UNIT;
	return CUDA_SUCCESS;
}

static CUresult charge(int dev, size_t size)
{
	struct device *d = &driver.dev[dev];

	if (size > d->capacity)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (device_charge(d, (int64_t)size))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&d->heap.lock);
	pools_trim(d, true);
	pthread_mutex_unlock(&d->heap.lock);
	return device_charge(d, (int64_t)size) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemCreate, (CUhandle *out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags))
{
	ENTER();
	int dev = HOST_MEMORY;
	void *handle;

	if (!out || !prop || size == 0 || size % SIM_UNIT || flags || prop->type != 1)
		return CUDA_ERROR_INVALID_VALUE;
	switch (prop->location.type) {
	case CU_LOCATION_DEVICE:
		dev = prop->location.id;
		if (dev < 0 || dev >= driver.devices)
			return CUDA_ERROR_INVALID_DEVICE;
		TRY(charge(dev, size));
		break;
	case CU_LOCATION_HOST:
	case CU_LOCATION_HOST_NUMA:
	case CU_LOCATION_HOST_NUMA_CURRENT:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&driver.lock);
	struct handle *h = table_take(&driver.handles, sizeof *h, &handle);
	if (h) {
		h->dev = dev;
		h->size = size;
		h->refs = 1;
		*out = (uintptr_t)handle;
	}
	pthread_mutex_unlock(&driver.lock);
	if (h)
		return CUDA_SUCCESS;
	if (dev != HOST_MEMORY)
		device_charge(&driver.dev[dev], -(int64_t)size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemRelease, (CUhandle handle))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&driver.lock);
	struct handle *h = handle_get(handle);
	if (h && h->refs) {
		h->refs--;
		handle_settle(handle, h);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuMemRetainAllocationHandle, (CUhandle *out, void *addr))
{
	ENTER();
	CUdeviceptr p = (uintptr_t)addr;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (!out || !heap_holds(&driver.va, p))
		return res;
	pthread_mutex_lock(&driver.lock);
	uint32_t i = covers ? covers[unit_of(p)] : 0;
	if (i) {
		*out = mappings[i].handle;
		handle_get(*out)->refs++;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* ---- mappings ---- */

static uint32_t mapping_new(void)
{
	uint32_t i = 1;

	if (!covers && !(covers = calloc(driver.va.units, sizeof *covers)))
		return 0;
	while (i < nmappings && mappings[i].size)
		i++;
	if (i >= capmappings) {
		uint32_t cap = capmappings ? capmappings * 2 : 64;
		struct mapping *v = realloc(mappings, cap * sizeof *v);

		if (!v)
			return 0;
		memset(v + capmappings, 0, (cap - capmappings) * sizeof *v);
		mappings = v;
		capmappings = cap;
	}
	if (i >= nmappings)
		nmappings = i + 1;
	return i;
}

static void mapping_end(struct mapping *m)
{
	struct handle *h = handle_get(m->handle);

	memset(&covers[unit_of(m->addr)], 0, m->size / SIM_UNIT * sizeof *covers);
	m->size = 0;
	h->maps--;
	handle_settle(m->handle, h);
}

API(cuMemMap, (CUdeviceptr p, size_t size, size_t offset, CUhandle handle, unsigned long long flags))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (offset || flags || !reserved(p, size))
		return res;
	pthread_mutex_lock(&driver.lock);
	struct handle *h = handle_get(handle);
	bool ok = h && h->refs && size <= h->size;
	for (uint32_t u = 0; ok && covers && u < size / SIM_UNIT; u++)
		ok = covers[unit_of(p) + u] == 0;
	if (ok) {
		uint32_t i = mapping_new();

		res = CUDA_ERROR_OUT_OF_MEMORY;
		if (i) {
			mappings[i] = (struct mapping){.addr = p, .size = size, .handle = handle};
			for (uint32_t u = 0; u < size / SIM_UNIT; u++)
				covers[unit_of(p) + u] = i;
			h->maps++;
			res = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* whole says whether [p, p+size) is covered from the first byte of a mapping to
 * the last of one, without a hole; with part, the ends may lie inside. */
static bool whole(CUdeviceptr p, size_t size, bool part)
{
	CUdeviceptr at = p, end = p + size;

	while (at < end) {
		uint32_t i = covers && heap_holds(&driver.va, at) ? covers[unit_of(at)] : 0;

		if (!i || (!part && (mappings[i].addr != at || mappings[i].size > end - at)))
			return false;
		at = mappings[i].addr + mappings[i].size;
	}
	return true;
}

API(cuMemUnmap, (CUdeviceptr p, size_t size))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (size == 0 || p % SIM_UNIT || size % SIM_UNIT || p + size < p)
		return res;
	pthread_mutex_lock(&driver.lock);
	if (reserved(p, size) && !mapped(p, size)) {
		res = CUDA_SUCCESS; /* the driver has nothing against it */
	} else if (whole(p, size, false)) {
		for (CUdeviceptr at = p; at < p + size;) {
			struct mapping *m = &mappings[covers[unit_of(at)]];

			at += m->size;
			mapping_end(m);
		}
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuMemSetAccess, (CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t count))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	if (!desc || count == 0 || size == 0 || p % SIM_UNIT || size % SIM_UNIT || p + size < p)
		return res;
	pthread_mutex_lock(&driver.lock);
	if (whole(p, size, true)) {
		for (CUdeviceptr at = p; at < p + size;) {
			struct mapping *m = &mappings[covers[unit_of(at)]];

			m->access = desc[0].flags != 0;
			at = m->addr + m->size;
		}
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

bool vmm_accessible(CUdeviceptr p, size_t n)
{
	bool ok = false;

	if (!heap_holds(&driver.va, p) || n == 0 || p + n < p)
		return false;
	pthread_mutex_lock(&driver.lock);
	if (whole(p, n, true)) {
		ok = true;
		for (CUdeviceptr at = p; at < p + n;) {
			struct mapping *m = &mappings[covers[unit_of(at)]];

			ok &= m->access;
			at = m->addr + m->size;
		}
	}
	pthread_mutex_unlock(&driver.lock);
	return ok;
}

/* ---- handles of other processes ---- */

struct shared { /* what is in an exported file */
	int64_t pid;
	uint64_t handle, size;
};

API(cuMemExportToShareableHandle, (void *out, CUhandle handle, int type, unsigned long long flags))
{
	ENTER();
	struct handle *h = handle_get(handle);

	if (!out || type != 1 || flags || !h || !h->refs)
		return CUDA_ERROR_INVALID_VALUE;
	struct shared shared = {getpid(), handle, h->size};
	int fd = memfd_create("handle", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &shared, sizeof shared, 0) != sizeof shared)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

/* One's own handle comes back as it is, with one reference more; another
 * process's is a new one, whose memory that process pays for. */
API(cuMemImportFromShareableHandle, (CUhandle *out, void *os, int type))
{
	ENTER();
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;
	struct shared shared;
	void *handle;

	if (!out || type != 1 || (intptr_t)os < 0 || pread((int)(intptr_t)os, &shared, sizeof shared, 0) != sizeof shared)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct handle *h = shared.pid == getpid() ? handle_get(shared.handle) : NULL;
	if (h) {
		h->refs++;
		*out = shared.handle;
		res = CUDA_SUCCESS;
	} else if ((h = table_take(&driver.handles, sizeof *h, &handle))) {
		h->dev = HOST_MEMORY;
		h->size = shared.size;
		h->refs = 1;
		*out = (uintptr_t)handle;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

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
	uint32_t i = covers && heap_holds(&driver.va, p) ? covers[unit_of(p)] : 0;
	if (i)
		res = bind(object, dev, at, mappings[i].handle, size);
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

void vmm_drop(int ordinal)
{
	for (uint32_t i = 1; i < nmappings; i++) {
		struct handle *h = mappings[i].size ? handle_get(mappings[i].handle) : NULL;

		if (h && h->dev == ordinal)
			mapping_end(&mappings[i]);
	}
	for (uint32_t i = 0; i < driver.handles.n; i++) {
		struct handle *h = atomic_load(&driver.handles.slot[i]);

		if (h && h->live && h->dev == ordinal) {
			h->refs = 0;
			handle_settle(driver.handles.tag + (uint64_t)(i + 1) * 64, h);
		}
	}
}
