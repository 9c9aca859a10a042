/*
 * driver.c - the wrappers of what takes and gives back linear memory: device,
 * managed, pinned, stream-ordered, and virtual memory management.
 */
#include "call.h"

/* ---- device and managed memory ---------------------------------------------------- */

static CUresult alloc(unsigned api, CUresult (*real)(CUdeviceptr *, size_t), CUdeviceptr *out, size_t size)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size);
	call_go(&c);
	CUresult status = real(out, size);
	c.r.e.address = status == SUCCESS ? *out : 0;
	call_took(&c, status);
	return status;
}
WRAP(cuMemAlloc_v2, (CUdeviceptr * out, size_t size), alloc, out, size)

/* Before CUDA 3.2 device pointers and sizes had 32 bits; the old functions are there still. */
static CUresult alloc_v1(unsigned api, CUresult (*real)(uint32_t *, unsigned), uint32_t *out, unsigned size)
{
	struct call c;
	if (!call_begin(&c, api, 0, size))
		return real(out, size);
	call_go(&c);
	CUresult status = real(out, size);
	c.r.e.address = status == SUCCESS ? *out : 0;
	call_took(&c, status);
	return status;
}
WRAP(cuMemAlloc, (uint32_t * out, unsigned size), alloc_v1, out, size)

static CUresult alloc_pitch(unsigned api, CUresult (*real)(CUdeviceptr *, size_t *, size_t, size_t, unsigned),
                            CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)(width * height)))
		return real(out, pitch, width, height, element);
	call_go(&c);
	CUresult status = real(out, pitch, width, height, element);
	if (status == SUCCESS) {
		c.r.e.address = *out;
		c.r.e.size = (int64_t)(*pitch * height);
	}
	call_took(&c, status);
	return status;
}
WRAP(cuMemAllocPitch_v2, (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned element), alloc_pitch, out,
     pitch, width, height, element)

static CUresult alloc_flags(unsigned api, CUresult (*real)(void *, size_t, unsigned), void *out, size_t size, unsigned flags)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size, flags);
	call_go(&c);
	CUresult status = real(out, size, flags);
	if (status == SUCCESS)
		memcpy(&c.r.e.address, out, sizeof c.r.e.address);
	call_took(&c, status);
	return status;
}
WRAP(cuMemAllocManaged, (void *out, size_t size, unsigned flags), alloc_flags, out, size, flags)
WRAP(cuMemHostAlloc, (void *out, size_t size, unsigned flags), alloc_flags, out, size, flags)

static CUresult free_address(unsigned api, CUresult (*real)(CUdeviceptr), CUdeviceptr p)
{
	struct call c;
	if (p == 0 || !call_begin(&c, api, p, -1)) /* free(0) frees nothing */
		return real(p);
	call_give(&c);
	CUresult status = real(p);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemFree_v2, (CUdeviceptr p), free_address, p)

static CUresult free_v1(unsigned api, CUresult (*real)(uint32_t), uint32_t p)
{
	struct call c;
	if (p == 0 || !call_begin(&c, api, p, -1))
		return real(p);
	call_give(&c);
	CUresult status = real(p);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemFree, (uint32_t p), free_v1, p)

/* ---- host memory --------------------------------------------------------------------- */

WRAP(cuMemAllocHost_v2, (CUdeviceptr * out, size_t size), alloc, out, size)

/* Host pointers, arrays and contexts are pointers; here they are their number. */
static CUresult free_pointer(unsigned api, CUresult (*real)(void *), void *p)
{
	struct call c;
	if (p == NULL || !call_begin(&c, api, (uintptr_t)p, -1))
		return real(p);
	call_give(&c);
	CUresult status = real(p);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemFreeHost, (void *p), free_pointer, p)
WRAP(cuMemHostUnregister, (void *p), free_pointer, p)

static CUresult host_register(unsigned api, CUresult (*real)(void *, size_t, unsigned), void *p, size_t size, unsigned flags)
{
	struct call c;
	if (!call_begin(&c, api, (uintptr_t)p, (int64_t)size))
		return real(p, size, flags);
	call_go(&c);
	CUresult status = real(p, size, flags);
	call_took(&c, status);
	return status;
}
WRAP(cuMemHostRegister_v2, (void *p, size_t size, unsigned flags), host_register, p, size, flags)

/* ---- stream-ordered ---------------------------------------------------------------------- */

static bool per_thread(unsigned api)
{
	return api == API(cuMemAllocAsync_ptsz) || api == API(cuMemAllocFromPoolAsync_ptsz) || api == API(cuMemFreeAsync_ptsz);
}

static CUresult alloc_async(unsigned api, CUresult (*real)(CUdeviceptr *, size_t, void *), CUdeviceptr *out, size_t size, void *stream)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size, stream);
	call_captured(&c, stream, per_thread(api));
	call_go(&c);
	CUresult status = real(out, size, stream);
	c.r.e.address = status == SUCCESS ? *out : 0;
	call_took(&c, status);
	return status;
}
WRAP(cuMemAllocAsync, (CUdeviceptr * out, size_t size, void *stream), alloc_async, out, size, stream)
WRAP(cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t size, void *stream), alloc_async, out, size, stream)

static CUresult alloc_from_pool(unsigned api, CUresult (*real)(CUdeviceptr *, size_t, void *, void *), CUdeviceptr *out, size_t size,
                                void *pool, void *stream)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size, pool, stream);
	call_captured(&c, stream, per_thread(api));
	c.r.c.pool = (uintptr_t)pool;
	call_go(&c);
	CUresult status = real(out, size, pool, stream);
	c.r.e.address = status == SUCCESS ? *out : 0;
	call_took(&c, status);
	return status;
}
WRAP(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t size, void *pool, void *stream), alloc_from_pool, out, size, pool, stream)
WRAP(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * out, size_t size, void *pool, void *stream), alloc_from_pool, out, size, pool, stream)

static CUresult free_async(unsigned api, CUresult (*real)(CUdeviceptr, void *), CUdeviceptr p, void *stream)
{
	struct call c;
	if (p == 0 || !call_begin(&c, api, p, -1))
		return real(p, stream);
	call_captured(&c, stream, per_thread(api));
	call_give(&c);
	CUresult status = real(p, stream);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemFreeAsync, (CUdeviceptr p, void *stream), free_async, p, stream)
WRAP(cuMemFreeAsync_ptsz, (CUdeviceptr p, void *stream), free_async, p, stream)

/* ---- virtual memory management -------------------------------------------------------------- */

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

/* Map and Retain refer to memory that is counted already: refused, they are no event. */
static void refer(struct call *c, CUresult status)
{
	if (status == SUCCESS)
		call_took(c, status);
	else {
		c->err = errno;
		call_end(c);
	}
}

static CUresult map(unsigned api, CUresult (*real)(CUdeviceptr, size_t, size_t, uint64_t, uint64_t), CUdeviceptr p, size_t size,
                    size_t offset, uint64_t handle, uint64_t flags)
{
	struct call c;
	if (!call_begin(&c, api, p, (int64_t)size))
		return real(p, size, offset, handle, flags);
	c.r.e.b = handle;
	call_go(&c);
	CUresult status = real(p, size, offset, handle, flags);
	refer(&c, status);
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
	refer(&c, status);
	return status;
}
WRAP(cuMemRetainAllocationHandle, (uint64_t * handle, void *p), retain, handle, p)
