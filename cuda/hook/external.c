/*
 * external.c - the wrappers of what makes reachable the memory of another
 * process or library: IPC, external memory, pools' exported pointers, graphics.
 * Such memory is its owner's to count; here it is Import and Release.
 */
#include "call.h"

enum { POINTER_RANGE_SIZE = 12 };

/* How large the allocation at p is, or -1. Legal in a capture. */
static int64_t range_size(CUdeviceptr p)
{
	size_t size = 0;
	if (gpurec_asked.cuPointerGetAttribute && gpurec_asked.cuPointerGetAttribute(&size, POINTER_RANGE_SIZE, p) == SUCCESS)
		return (int64_t)size;
	return -1;
}

/* After the real call: the pointer to it, and how much it is. */
static CUresult refer_pointer(struct call *c, CUresult status, const CUdeviceptr *out)
{
	if (status == SUCCESS) {
		int err = errno;
		c->r.e.address = *out;
		c->r.e.size = range_size(*out);
		errno = err;
	}
	call_refer(c, status);
	return status;
}

/* ---- IPC --------------------------------------------------------------------------------------- */

typedef struct {
	char bytes[64];
} ipc_handle; /* passed by value */

static CUresult ipc_open(unsigned api, CUresult (*real)(CUdeviceptr *, ipc_handle, unsigned), CUdeviceptr *out, ipc_handle handle,
                         unsigned flags)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(out, handle, flags);
	call_go(&c);
	return refer_pointer(&c, real(out, handle, flags), out);
}
WRAP(cuIpcOpenMemHandle, (CUdeviceptr * out, ipc_handle handle, unsigned flags), ipc_open, out, handle, flags)
WRAP(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, ipc_handle handle, unsigned flags), ipc_open, out, handle, flags)

static CUresult ipc_close(unsigned api, CUresult (*real)(CUdeviceptr), CUdeviceptr p)
{
	struct call c;
	if (!call_begin(&c, api, p, -1))
		return real(p);
	call_give(&c);
	CUresult status = real(p);
	call_gave(&c, status);
	return status;
}
WRAP(cuIpcCloseMemHandle, (CUdeviceptr p), ipc_close, p)

static CUresult import_pointer(unsigned api, CUresult (*real)(CUdeviceptr *, void *, void *), CUdeviceptr *out, void *pool, void *data)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(out, pool, data);
	c.r.c.pool = (uintptr_t)pool;
	call_go(&c);
	return refer_pointer(&c, real(out, pool, data), out);
}
WRAP(cuMemPoolImportPointer, (CUdeviceptr * out, void *pool, void *data), import_pointer, out, pool, data)

/* ---- external memory ----------------------------------------------------------------------------- */

/* The head of CUDA_EXTERNAL_MEMORY_HANDLE_DESC, and of that of a buffer. */
struct external_desc {
	int32_t type;
	uint64_t handle[2];
	uint64_t size;
};
struct buffer_desc {
	uint64_t offset, size;
};
_Static_assert(offsetof(struct external_desc, size) == 24, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");

static CUresult import_external(unsigned api, CUresult (*real)(void **, const struct external_desc *), void **out,
                                const struct external_desc *d)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(out, d);
	call_go(&c);
	CUresult status = real(out, d);
	if (status == SUCCESS) {
		c.r.e.b = (uintptr_t)*out;
		c.r.e.size = (int64_t)d->size;
	}
	call_refer(&c, status);
	return status;
}
WRAP(cuImportExternalMemory, (void **out, const struct external_desc *d), import_external, out, d)

static CUresult mapped_buffer(unsigned api, CUresult (*real)(CUdeviceptr *, void *, const struct buffer_desc *), CUdeviceptr *out,
                              void *external, const struct buffer_desc *d)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(out, external, d);
	c.r.e.b = (uintptr_t)external;
	call_go(&c);
	CUresult status = real(out, external, d);
	if (status == SUCCESS) {
		c.r.e.address = *out;
		c.r.e.size = (int64_t)d->size;
	}
	call_refer(&c, status);
	return status;
}
WRAP(cuExternalMemoryGetMappedBuffer, (CUdeviceptr * out, void *external, const struct buffer_desc *d), mapped_buffer, out, external, d)

/* CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC. */
struct mipmapped_desc {
	uint64_t offset;
	struct array3 array;
	uint32_t levels;
};
_Static_assert(offsetof(struct mipmapped_desc, levels) == 48, "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC");

static CUresult mapped_mipmapped(unsigned api, CUresult (*real)(void **, void *, const struct mipmapped_desc *), void **out, void *external,
                                 const struct mipmapped_desc *d)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(out, external, d);
	call_go(&c);
	CUresult status = real(out, external, d);
	if (status == SUCCESS) {
		c.r.e.b = (uintptr_t)*out;
		c.r.e.size = call_array_size(&d->array, d->levels);
		c.r.e.flags |= GPUREC_FLAG_ESTIMATE;
	}
	call_refer(&c, status);
	return status;
}
WRAP(cuExternalMemoryGetMappedMipmappedArray, (void **out, void *external, const struct mipmapped_desc *d), mapped_mipmapped, out, external,
     d)

static CUresult destroy_external(unsigned api, CUresult (*real)(void *), void *external)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(external);
	c.r.e.b = (uintptr_t)external;
	call_give(&c);
	CUresult status = real(external);
	call_gave(&c, status);
	return status;
}
WRAP(cuDestroyExternalMemory, (void *external), destroy_external, external)

/* ---- graphics -------------------------------------------------------------------------------------- */

/* While a resource is mapped its memory is reachable; how much it is nothing
 * tells of all kinds. Both are told afterwards, resource by resource: a list that
 * is wrong is refused as a whole. */
static CUresult graphics(unsigned api, CUresult (*real)(unsigned, void **, void *), unsigned count, void **resources, void *stream)
{
	struct call c;
	if (count == 0 || resources == NULL || !call_begin(&c, api, 0, -1))
		return real(count, resources, stream);
	call_go(&c);
	CUresult status = real(count, resources, stream);
	if (!call_back(&c))
		return status;
	c.r.c.stream = (uintptr_t)stream;
	for (unsigned i = 0; status == SUCCESS && i < count; i++) {
		c.r.e.b = (uintptr_t)resources[i];
		call_tell(&c, status);
	}
	call_end(&c);
	return status;
}
WRAP(cuGraphicsMapResources, (unsigned count, void **resources, void *stream), graphics, count, resources, stream)
WRAP(cuGraphicsMapResources_ptsz, (unsigned count, void **resources, void *stream), graphics, count, resources, stream)

WRAP(cuGraphicsUnmapResources, (unsigned count, void **resources, void *stream), graphics, count, resources, stream)
WRAP(cuGraphicsUnmapResources_ptsz, (unsigned count, void **resources, void *stream), graphics, count, resources, stream)
