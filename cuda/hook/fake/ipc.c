/*
 * Memory of others in the simulated driver: IPC, external memory, exported pools
 * and handles, graphics resources. See driver.h.
 *
 * What is exported says who exported it and how much it is; what is imported is
 * an address without memory behind it, for its owner has that.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* reach gives an address range for memory of somebody else. Wants no lock. */
static CUresult reach(size_t size, enum kind kind, void *owner, CUdeviceptr *out)
{
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_alloc(&driver.va, size, kind, 1);
	if (b) {
		b->owner = owner;
		*out = b->addr;
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.va.lock);
	return res;
}

/* ---- IPC ---- */

typedef struct {
	char bytes[64];
} CUipcMemHandle;

struct exported { /* what its bytes are */
	uint64_t magic;
	int64_t pid;
	uint64_t addr, size;
};
#define IPC_MAGIC 0x3143504953505247ull

API(cuIpcGetMemHandle, (CUipcMemHandle *out, CUdeviceptr p))
{
	ENTER();
	struct block b;

	if (!out || !look(p, &b) || (b.kind != KIND_DEVICE && b.kind != KIND_PITCH))
		return CUDA_ERROR_INVALID_VALUE;
	struct exported e = {IPC_MAGIC, getpid(), b.addr, b.size};
	memset(out, 0, sizeof *out);
	memcpy(out->bytes, &e, sizeof e);
	return CUDA_SUCCESS;
}

/* The same handle opened again gives the same address, and counts. */
static struct opened {
	struct exported of;
	CUdeviceptr at;
	uint32_t refs;
} opened[256];

static CUresult ipc_open(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	struct context *c;
	struct exported e;
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	TRY(current_context(NULL, &c));
	memcpy(&e, handle.bytes, sizeof e);
	if (!out || flags > 1 || e.magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (e.pid == getpid()) /* one's own memory cannot be opened */
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&driver.lock);
	struct opened *at = NULL;
	for (unsigned i = 0; i < sizeof opened / sizeof *opened; i++) {
		if (opened[i].refs && memcmp(&opened[i].of, &e, sizeof e) == 0) {
			at = &opened[i];
			break;
		}
		if (!opened[i].refs && !at)
			at = &opened[i];
	}
	if (at && at->refs)
		res = CUDA_SUCCESS;
	else if (at && (res = reach(e.size, KIND_IPC, NULL, &at->at)) == CUDA_SUCCESS)
		at->of = e;
	if (!res) {
		at->refs++;
		*out = at->at;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

API(cuIpcOpenMemHandle, (CUdeviceptr *out, CUipcMemHandle handle, unsigned flags))
{
	ENTER();
	return ipc_open(out, handle, flags);
}

API(cuIpcOpenMemHandle_v2, (CUdeviceptr *out, CUipcMemHandle handle, unsigned flags))
{
	ENTER();
	return ipc_open(out, handle, flags);
}

/* va_end frees an address range that begins at p, if it is of that kind. */
static bool va_end(CUdeviceptr p, enum kind kind)
{
	pthread_mutex_lock(&driver.va.lock);
	struct block *b = heap_find(&driver.va, p);
	bool found = b && b->addr == p && b->kind == kind;
	if (found)
		heap_free(&driver.va, b);
	pthread_mutex_unlock(&driver.va.lock);
	return found;
}

API(cuIpcCloseMemHandle, (CUdeviceptr p))
{
	ENTER();
	struct context *c;
	CUresult res = CUDA_ERROR_INVALID_VALUE;

	TRY(current_context(NULL, &c));
	pthread_mutex_lock(&driver.lock);
	for (unsigned i = 0; i < sizeof opened / sizeof *opened; i++) {
		if (!opened[i].refs || opened[i].at != p)
			continue;
		if (--opened[i].refs == 0)
			va_end(p, KIND_IPC);
		res = CUDA_SUCCESS;
		break;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* ---- pools of other processes ---- */

typedef struct {
	unsigned char bytes[64];
} CUmemPoolPtrExportData;

API(cuMemPoolExportToShareableHandle, (void *out, CUmemoryPool pool, int type, unsigned long long flags))
{
	ENTER();
	if (!out || type != 1 || flags || !table_get(&driver.pools, pool))
		return CUDA_ERROR_INVALID_VALUE;
	int fd = memfd_create("pool", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

/* An imported pool hands nothing out; its exporter's pointers are opened through it. */
API(cuMemPoolImportFromShareableHandle, (CUmemoryPool *out, void *handle, int type, unsigned long long flags))
{
	ENTER();
	if (!out || type != 1 || flags || (intptr_t)handle < 0 || lseek((int)(intptr_t)handle, 0, SEEK_CUR) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct pool *p = table_take(&driver.pools, sizeof *p, out);
	if (p) {
		p->handle = *out;
		p->imported = true;
	}
	pthread_mutex_unlock(&driver.lock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemPoolExportPointer, (CUmemPoolPtrExportData *out, CUdeviceptr p))
{
	ENTER();
	struct block b;

	if (!out || !look(p, &b) || b.kind != KIND_ASYNC)
		return CUDA_ERROR_INVALID_VALUE;
	struct exported e = {IPC_MAGIC, getpid(), b.addr, b.size};
	memset(out, 0, sizeof *out);
	memcpy(out->bytes, &e, sizeof e);
	return CUDA_SUCCESS;
}

API(cuMemPoolImportPointer, (CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data))
{
	ENTER();
	struct exported e;
	struct pool *p = table_get(&driver.pools, pool);

	if (!out || !data || !p || !p->imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&e, data->bytes, sizeof e);
	if (e.magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	return reach(e.size, KIND_IMPORT, NULL, out);
}

/* ---- external memory ---- */

struct external {
	_Atomic uint32_t live;
	uint64_t size;
};

typedef struct {
	int type;
	uint64_t handle[2], size;
	unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
	uint64_t offset, size;
	unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct {
	uint64_t offset;
	CUDA_ARRAY3D_DESCRIPTOR array;
	unsigned levels, reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88, "CUDA_EXTERNAL_MEMORY_BUFFER_DESC");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) == 120, "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC");

API(cuImportExternalMemory, (void **out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	if (!out || !d || d->type != 1 || d->size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct external *x = table_take(&driver.externals, sizeof *x, out);
	if (x)
		x->size = d->size;
	pthread_mutex_unlock(&driver.lock);
	return x ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *out, void *external, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d))
{
	ENTER();
	struct external *x = table_get(&driver.externals, external);

	if (!x)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !d || d->flags || d->size == 0 || d->offset > x->size || d->size > x->size - d->offset)
		return CUDA_ERROR_INVALID_VALUE;
	return reach(d->size, KIND_IMPORT, NULL, out);
}

API(cuExternalMemoryGetMappedMipmappedArray, (CUmipmappedArray *out, void *external,
					      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *d))
{
	ENTER();
	if (!table_get(&driver.externals, external))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !d || d->levels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return array_over(out, &d->array);
}

API(cuDestroyExternalMemory, (void *external))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&driver.lock);
	if (table_get(&driver.externals, external)) {
		table_give(&driver.externals, external);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* ---- graphics ---- */

struct resource {
	_Atomic uint32_t live;
	bool mapped;
};

API(cuGraphicsGLRegisterBuffer, (void **out, unsigned buffer, unsigned flags))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	if (!out || buffer == 0 || flags > 4)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	struct resource *r = table_take(&driver.resources, sizeof *r, out);
	pthread_mutex_unlock(&driver.lock);
	return r ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuGraphicsUnregisterResource, (void *resource))
{
	ENTER();
	CUresult res = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&driver.lock);
	if (table_get(&driver.resources, resource)) {
		table_give(&driver.resources, resource);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* resources_switch maps or unmaps all of a list, or none. */
static CUresult resources_switch(unsigned count, void **list, bool to)
{
	struct context *c;
	CUresult res = CUDA_SUCCESS;

	TRY(current_context(NULL, &c));
	if (count == 0 || !list)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	for (unsigned i = 0; i < count && !res; i++) {
		struct resource *r = table_get(&driver.resources, list[i]);

		if (!r)
			res = CUDA_ERROR_INVALID_HANDLE;
		else if (r->mapped == to)
			res = to ? CUDA_ERROR_ALREADY_MAPPED : CUDA_ERROR_NOT_MAPPED;
	}
	for (unsigned i = 0; i < count && !res; i++)
		((struct resource *)table_get(&driver.resources, list[i]))->mapped = to;
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult do_cuGraphicsMapResources(unsigned count, void **list, CUstream stream)
{
	(void)stream;
	return resources_switch(count, list, true);
}
TWINS(cuGraphicsMapResources, _ptsz, (unsigned count, void **list, CUstream stream), (count, list, stream))

static CUresult do_cuGraphicsUnmapResources(unsigned count, void **list, CUstream stream)
{
	(void)stream;
	return resources_switch(count, list, false);
}
TWINS(cuGraphicsUnmapResources, _ptsz, (unsigned count, void **list, CUstream stream), (count, list, stream))

/* ---- checkpoints ---- */

/* Nothing is moved: that a process is there is all that is checked. */
static CUresult checkpoint(int pid)
{
	return pid > 0 && sim_owner_alive((uint32_t)pid) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuCheckpointProcessCheckpoint, (int pid, void *args))
{
	ENTER();
	(void)args;
	return checkpoint(pid);
}

API(cuCheckpointProcessRestore, (int pid, void *args))
{
	ENTER();
	(void)args;
	return checkpoint(pid);
}

/* ---- what a newer driver may have ---- */

/* No function of CUDA: it stands for one that the recorder has not heard of. */
API(cuMemAllocUnheard, (CUdeviceptr *out, size_t size))
{
	ENTER();
	return take(NULL, size, KIND_DEVICE, out);
}
