/*
 * driver.c - the wrappers of what takes and gives back linear memory: device,
 * managed, pinned and registered.
 */
#include "call.h"

/* ---- what takes memory ----------------------------------------------------------- */

/* Before CUDA 3.2 device pointers and sizes had 32 bits; the old functions are
 * there still, so that each of these stands for several types. */
#define ALLOC(name, pointer, length) \
	static CUresult name(unsigned api, CUresult (*real)(pointer *, length), pointer *out, length size) \
	{ \
		struct call c; \
		if (!call_begin(&c, api, 0, (int64_t)size)) \
			return real(out, size); \
		call_go(&c); \
		CUresult status = real(out, size); \
		c.r.e.address = status == SUCCESS ? *out : 0; \
		call_took(&c, status); \
		return status; \
	}
ALLOC(alloc, CUdeviceptr, size_t)
ALLOC(alloc_v1, uint32_t, unsigned)
ALLOC(alloc_host_v1, CUdeviceptr, unsigned)
WRAP(cuMemAlloc_v2, (CUdeviceptr * out, size_t size), alloc, out, size)
WRAP(cuMemAlloc, (uint32_t * out, unsigned size), alloc_v1, out, size)
WRAP(cuMemAllocHost_v2, (CUdeviceptr * out, size_t size), alloc, out, size)
WRAP(cuMemAllocHost, (CUdeviceptr * out, unsigned size), alloc_host_v1, out, size)

#define ALLOC_PITCH(name, pointer, length) \
	static CUresult name(unsigned api, CUresult (*real)(pointer *, length *, length, length, unsigned), pointer *out, length *pitch, length width, \
	                     length height, unsigned element) \
	{ \
		struct call c; \
		if (!call_begin(&c, api, 0, (int64_t)((size_t)width * height))) \
			return real(out, pitch, width, height, element); \
		call_go(&c); \
		CUresult status = real(out, pitch, width, height, element); \
		if (status == SUCCESS) { \
			c.r.e.address = *out; \
			c.r.e.size = (int64_t)((size_t)*pitch * height); \
		} \
		call_took(&c, status); \
		return status; \
	}
ALLOC_PITCH(alloc_pitch, CUdeviceptr, size_t)
ALLOC_PITCH(alloc_pitch_v1, uint32_t, unsigned)
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

/* ---- host memory: given back, and registered ------------------------------------------ */

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
