/*
 * vmm.c - the wrappers of virtual memory management: handles of physical memory,
 * and what they are mapped into: addresses, sparse arrays, multicast objects.
 */
#include "call.h"

/* The head of CUmemAllocationProp. */
struct prop {
	int32_t type, handle_types, location_type, location_id;
};
enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_HOST_NUMA = 3, LOCATION_HOST_NUMA_CURRENT = 4 };

static CUresult create(unsigned api, CUresult (*real)(uint64_t *, size_t, const void *, uint64_t), uint64_t *handle, size_t size,
                       const void *prop, uint64_t flags)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(handle, size, prop, flags);
	struct prop at = {0, 0, 0, -1};
	if (prop)
		memcpy(&at, prop, sizeof at);
	call_go(&c);
	CUresult status = real(handle, size, prop, flags);
	if (status == SUCCESS)
		c.r.e.b = *handle;
	if (at.location_type == LOCATION_DEVICE) {
		c.r.e.device = gpurec_device(c.t, at.location_id, true);
	} else if (at.location_type >= LOCATION_HOST && at.location_type <= LOCATION_HOST_NUMA_CURRENT) {
		c.r.e.layer = GPUREC_LAYER_HOST;
		c.r.e.class = GPUREC_CLASS_PINNED;
	}
	call_took(&c, status);
	return status;
}
WRAP(cuMemCreate, (uint64_t * handle, size_t size, const void *prop, uint64_t flags), create, handle, size, prop, flags)

static CUresult release(unsigned api, CUresult (*real)(uint64_t), uint64_t handle)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(handle);
	c.r.e.b = handle;
	call_give(&c);
	CUresult status = real(handle);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemRelease, (uint64_t handle), release, handle)

static CUresult map(unsigned api, CUresult (*real)(CUdeviceptr, size_t, size_t, uint64_t, uint64_t), CUdeviceptr p, size_t size,
                    size_t offset, uint64_t handle, uint64_t flags)
{
	struct call c;
	if (!call_begin(&c, api, p, (int64_t)size))
		return real(p, size, offset, handle, flags);
	c.r.e.b = handle;
	call_go(&c);
	CUresult status = real(p, size, offset, handle, flags);
	call_refer(&c, status);
	return status;
}
WRAP(cuMemMap, (CUdeviceptr p, size_t size, size_t offset, uint64_t handle, uint64_t flags), map, p, size, offset, handle, flags)

static CUresult unmap(unsigned api, CUresult (*real)(CUdeviceptr, size_t), CUdeviceptr p, size_t size)
{
	struct call c;
	if (!call_begin(&c, api, p, (int64_t)size))
		return real(p, size);
	call_give(&c);
	CUresult status = real(p, size);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemUnmap, (CUdeviceptr p, size_t size), unmap, p, size)

static CUresult retain(unsigned api, CUresult (*real)(uint64_t *, void *), uint64_t *handle, void *p)
{
	struct call c;
	if (!call_begin(&c, api, (uintptr_t)p, -1))
		return real(handle, p);
	call_go(&c);
	CUresult status = real(handle, p);
	if (status == SUCCESS)
		c.r.e.b = *handle;
	call_refer(&c, status);
	return status;
}
WRAP(cuMemRetainAllocationHandle, (uint64_t * handle, void *p), retain, handle, p)

/* ---- handles of other processes, and multicast objects --------------------------------------------- */

/* Exporting a handle changes no count that this process can see: the exported
 * reference ends where a descriptor is closed. */
static CUresult import(unsigned api, CUresult (*real)(uint64_t *, void *, int), uint64_t *handle, void *os, int type)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(handle, os, type);
	call_go(&c);
	CUresult status = real(handle, os, type);
	if (status == SUCCESS)
		c.r.e.b = *handle;
	call_refer(&c, status);
	return status;
}
WRAP(cuMemImportFromShareableHandle, (uint64_t * handle, void *os, int type), import, handle, os, type)

/* CUmulticastObjectProp. Such an object is no memory: it reaches what is bound to it. */
struct multicast_prop {
	uint32_t devices;
	size_t size;
	uint64_t handle_types, flags;
};

static CUresult multicast_create(unsigned api, CUresult (*real)(uint64_t *, const struct multicast_prop *), uint64_t *handle,
                                 const struct multicast_prop *prop)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(handle, prop);
	call_go(&c);
	CUresult status = real(handle, prop);
	if (status == SUCCESS) {
		c.r.e.b = *handle;
		c.r.e.size = (int64_t)prop->size;
	}
	call_refer(&c, status);
	return status;
}
WRAP(cuMulticastCreate, (uint64_t * handle, const struct multicast_prop *prop), multicast_create, handle, prop)

/* A Map into an object: pool is the object, address the place in it. The handle
 * of what is bound by its address is not known. */
static bool bind_begin(struct call *c, unsigned api, uint64_t object, size_t at, uint64_t handle, size_t size, CUdevice device)
{
	if (!call_begin(c, api, at, (int64_t)size))
		return false;
	c->r.e.b = handle;
	c->r.c.pool = object;
	if (device >= 0)
		c->r.e.device = gpurec_device(c->t, device, true);
	return true;
}

static CUresult bind_mem(unsigned api, CUresult (*real)(uint64_t, size_t, uint64_t, size_t, size_t, uint64_t), uint64_t object, size_t at,
                         uint64_t handle, size_t offset, size_t size, uint64_t flags)
{
	struct call c;
	if (!bind_begin(&c, api, object, at, handle, size, -1))
		return real(object, at, handle, offset, size, flags);
	call_go(&c);
	CUresult status = real(object, at, handle, offset, size, flags);
	call_refer(&c, status);
	return status;
}
WRAP(cuMulticastBindMem, (uint64_t object, size_t at, uint64_t handle, size_t offset, size_t size, uint64_t flags), bind_mem, object, at,
     handle, offset, size, flags)

static CUresult bind_mem_of(unsigned api, CUresult (*real)(uint64_t, CUdevice, size_t, uint64_t, size_t, size_t, uint64_t), uint64_t object,
                            CUdevice device, size_t at, uint64_t handle, size_t offset, size_t size, uint64_t flags)
{
	struct call c;
	if (!bind_begin(&c, api, object, at, handle, size, device))
		return real(object, device, at, handle, offset, size, flags);
	call_go(&c);
	CUresult status = real(object, device, at, handle, offset, size, flags);
	call_refer(&c, status);
	return status;
}
WRAP(cuMulticastBindMem_v2, (uint64_t object, CUdevice device, size_t at, uint64_t handle, size_t offset, size_t size, uint64_t flags),
     bind_mem_of, object, device, at, handle, offset, size, flags)

static CUresult bind_addr(unsigned api, CUresult (*real)(uint64_t, size_t, CUdeviceptr, size_t, uint64_t), uint64_t object, size_t at,
                          CUdeviceptr p, size_t size, uint64_t flags)
{
	struct call c;
	if (!bind_begin(&c, api, object, at, 0, size, -1))
		return real(object, at, p, size, flags);
	call_go(&c);
	CUresult status = real(object, at, p, size, flags);
	call_refer(&c, status);
	return status;
}
WRAP(cuMulticastBindAddr, (uint64_t object, size_t at, CUdeviceptr p, size_t size, uint64_t flags), bind_addr, object, at, p, size, flags)

static CUresult bind_addr_of(unsigned api, CUresult (*real)(uint64_t, CUdevice, size_t, CUdeviceptr, size_t, uint64_t), uint64_t object,
                             CUdevice device, size_t at, CUdeviceptr p, size_t size, uint64_t flags)
{
	struct call c;
	if (!bind_begin(&c, api, object, at, 0, size, device))
		return real(object, device, at, p, size, flags);
	call_go(&c);
	CUresult status = real(object, device, at, p, size, flags);
	call_refer(&c, status);
	return status;
}
WRAP(cuMulticastBindAddr_v2, (uint64_t object, CUdevice device, size_t at, CUdeviceptr p, size_t size, uint64_t flags), bind_addr_of, object,
     device, at, p, size, flags)

static CUresult unbind(unsigned api, CUresult (*real)(uint64_t, CUdevice, size_t, size_t), uint64_t object, CUdevice device, size_t at,
                       size_t size)
{
	struct call c;
	if (!bind_begin(&c, api, object, at, 0, size, device))
		return real(object, device, at, size);
	call_give(&c);
	CUresult status = real(object, device, at, size);
	call_gave(&c, status);
	return status;
}
WRAP(cuMulticastUnbind, (uint64_t object, CUdevice device, size_t at, size_t size), unbind, object, device, at, size)

/* ---- sparse arrays --------------------------------------------------------------------------------- */

/* CUarrayMapInfo. */
struct map_info {
	uint32_t resource_type;
	uint64_t array;
	uint32_t part_type;
	uint64_t part[4]; /* a level's extent, or a piece of the mip tail */
	uint32_t operation, handle_type;
	uint64_t handle, offset;
	uint32_t devices, flags, reserved[2];
};
_Static_assert(sizeof(struct map_info) == 96 && offsetof(struct map_info, part) == 24 && offsetof(struct map_info, handle) == 64, "CUarrayMapInfo");
enum { OPERATION_MAP = 1, OPERATION_UNMAP = 2 };

/* Told afterwards: whether the list is right is the driver's to say, and the
 * stream does it later than either. */
static CUresult map_array(unsigned api, CUresult (*real)(struct map_info *, unsigned, void *), struct map_info *list, unsigned count,
                          void *stream)
{
	struct call c;
	if (list == NULL || count == 0 || !call_begin(&c, api, 0, -1))
		return real(list, count, stream);
	call_go(&c);
	CUresult status = real(list, count, stream);
	if (!call_back(&c))
		return status;
	c.r.c.stream = (uintptr_t)stream;
	for (unsigned i = 0; status == SUCCESS && i < count; i++) {
		uint64_t place = gpurec_text_hash(list[i].part, sizeof list[i].part, list[i].part_type) >> 1;
		c.r.e.address = place; /* which extent or piece it is: a number that stands for it */
		c.r.c.pool = list[i].array;
		c.r.e.b = list[i].operation == OPERATION_MAP ? list[i].handle : 0;
		c.r.e.kind = list[i].operation == OPERATION_MAP ? GPUREC_KIND_MAP : GPUREC_KIND_UNMAP;
		call_tell(&c, status);
	}
	call_end(&c);
	return status;
}
WRAP(cuMemMapArrayAsync, (struct map_info * list, unsigned count, void *stream), map_array, list, count, stream)
WRAP(cuMemMapArrayAsync_ptsz, (struct map_info * list, unsigned count, void *stream), map_array, list, count, stream)
