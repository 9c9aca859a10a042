/*
 * Virtual memory management of the simulated driver: see driver.h.
 *
 * A handle is physical memory; it ends when its references and its mappings
 * are both gone. Addresses are reserved in an arena of their own, of which
 * each unit knows the mapping that covers it. All under driver.lock. bind.c has
 * what holds handles besides mappings.
 */
#define _GNU_SOURCE
#include "vmm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

struct handle *handle_get(CUhandle h)
{
	return table_get(&driver.handles, (void *)(uintptr_t)h);
}

void handle_settle(CUhandle h, struct handle *p)
{
	if (p->refs || p->maps)
		return;
	if (p->dev != HOST_MEMORY)
		device_charge(&driver.dev[p->dev], -(int64_t)p->size);
	table_give(&driver.handles, (void *)(uintptr_t)h);
}

CUhandle handle_at(CUdeviceptr p)
{
	uint32_t i = covers && heap_holds(&driver.va, p) ? covers[unit_of(p)] : 0;

	return i ? mappings[i].handle : 0;
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
