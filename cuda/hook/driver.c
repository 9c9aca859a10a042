/*
 * driver.c - the wrappers of what takes and gives back linear memory: device,
 * managed, pinned and registered.
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
static CUresult alloc_pitch_v1(unsigned api, CUresult (*real)(uint32_t *, unsigned *, unsigned, unsigned, unsigned),
                               uint32_t *out, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)width * height))
		return real(out, pitch, width, height, element);
	call_go(&c);
	CUresult status = real(out, pitch, width, height, element);
	if (status == SUCCESS) {
		c.r.e.address = *out;
		c.r.e.size = (int64_t)*pitch * height;
	}
	call_took(&c, status);
	return status;
}
WRAP(cuMemAllocPitch, (uint32_t * out, unsigned *pitch, unsigned width, unsigned height, unsigned element), alloc_pitch_v1, out,
     pitch, width, height, element)
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
	call_freed();
	call_give(&c);
	CUresult status = real(p);
	call_gave(&c, status);
	return call_synchronised(api, status, false);
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

static CUresult alloc_host_v1(unsigned api, CUresult (*real)(CUdeviceptr *, unsigned), CUdeviceptr *out, unsigned size)
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
WRAP(cuMemAllocHost, (CUdeviceptr * out, unsigned size), alloc_host_v1, out, size)

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
WRAP(cuMemHostRegister, (void *p, size_t size, unsigned flags), host_register, p, size, flags)
