/*
 * entry.h - what entry.c calls: the driver's functions, looked up, and how one
 * call is made, measured and told.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define HUGE (1ull << 62)

typedef uint64_t ptr;
typedef struct { char bytes[64]; } ipc;
typedef struct { int type, id; } location;
typedef struct { int type, handle_types; location at; void *win32; unsigned char flags[8]; } alloc_prop;
typedef struct { int type, handle_types; location at; void *win32; size_t max_size; unsigned char reserved[56]; } pool_props;
typedef struct { location at; int flags; } access_desc;
typedef struct { size_t width, height; int format; unsigned channels; } array2;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } array3;
typedef struct { uint32_t width, height; int format; unsigned channels; } array2_v1;
typedef struct { uint32_t width, height, depth; int format; unsigned channels, flags; } array3_v1;
typedef struct { unsigned devices; size_t size; uint64_t handle_types, flags; } multicast_prop;
typedef struct { unsigned resource_type; void *array; unsigned part_type; uint64_t part[4]; unsigned operation, handle_type; uint64_t handle, offset; unsigned devices, flags, reserved[2]; } map_info;
typedef struct { int type; uint64_t handle[2], size; unsigned flags, reserved[16]; } external_desc;
typedef struct { uint64_t offset, size; unsigned flags, reserved[16]; } buffer_desc;
typedef struct { uint64_t offset; array3 array; unsigned levels, reserved[16]; } mipmapped_desc;
typedef struct { pool_props props; const access_desc *access; size_t count, size; ptr p; } alloc_node;
typedef struct { int type, reserved[3]; union { alloc_node alloc; ptr free; uint64_t words[29]; }; uint64_t reserved2; } node_params;

/* F(name, parameters): cuName through dlsym, here as Name. */
#define FUNCTIONS \
	F(Init, (unsigned)) F(DevicePrimaryCtxRetain, (void **, int)) F(CtxSetCurrent, (void *)) F(CtxCreate_v2, (void **, unsigned, int)) \
	F(MemGetInfo_v2, (size_t *, size_t *)) F(StreamCreate, (void **, unsigned)) F(StreamDestroy_v2, (void *)) F(EventCreate, (void **, unsigned)) \
	F(DeviceGetDefaultMemPool, (void **, int)) F(MemPoolGetAttribute, (void *, int, void *)) F(DeviceGetGraphMemAttribute, (int, int, void *)) \
	F(MemAddressReserve, (ptr *, size_t, size_t, ptr, uint64_t)) F(MemAddressFree, (ptr, size_t)) F(MemSetAccess, (ptr, size_t, const access_desc *, size_t)) \
	F(GraphCreate, (void **, unsigned)) F(GraphDestroy, (void *)) F(GraphInstantiateWithFlags, (void **, void *, uint64_t)) F(GraphExecDestroy, (void *)) \
	F(IpcGetMemHandle, (ipc *, ptr)) F(MemPoolExportToShareableHandle, (void *, void *, int, uint64_t)) F(MemPoolExportPointer, (void *, ptr)) \
	F(MemPoolImportFromShareableHandle, (void **, void *, int, uint64_t)) F(MemExportToShareableHandle, (void *, uint64_t, int, uint64_t)) \
	F(MulticastAddDevice, (uint64_t, int)) F(GraphicsGLRegisterBuffer, (void **, unsigned, unsigned)) F(GreenCtxCreate, (void **, void *, int, unsigned)) \
	F(MemAlloc, (uint32_t *, unsigned)) F(MemAlloc_v2, (ptr *, size_t)) F(MemFree, (uint32_t)) F(MemFree_v2, (ptr)) \
	F(MemAllocPitch, (uint32_t *, unsigned *, unsigned, unsigned, unsigned)) F(MemAllocPitch_v2, (ptr *, size_t *, size_t, size_t, unsigned)) \
	F(MemAllocManaged, (ptr *, size_t, unsigned)) F(MemAllocHost, (void **, unsigned)) F(MemAllocHost_v2, (void **, size_t)) \
	F(MemHostAlloc, (void **, size_t, unsigned)) F(MemFreeHost, (void *)) F(MemHostRegister, (void *, size_t, unsigned)) \
	F(MemHostRegister_v2, (void *, size_t, unsigned)) F(MemHostUnregister, (void *)) \
	F(MemAllocAsync, (ptr *, size_t, void *)) F(MemAllocAsync_ptsz, (ptr *, size_t, void *)) F(MemAllocFromPoolAsync, (ptr *, size_t, void *, void *)) \
	F(MemAllocFromPoolAsync_ptsz, (ptr *, size_t, void *, void *)) F(MemFreeAsync, (ptr, void *)) F(MemFreeAsync_ptsz, (ptr, void *)) \
	F(MemPoolCreate, (void **, const pool_props *)) F(MemPoolDestroy, (void *)) F(MemPoolTrimTo, (void *, size_t)) \
	F(MemPoolImportPointer, (ptr *, void *, void *)) \
	F(MemCreate, (uint64_t *, size_t, const alloc_prop *, uint64_t)) F(MemRelease, (uint64_t)) F(MemMap, (ptr, size_t, size_t, uint64_t, uint64_t)) \
	F(MemUnmap, (ptr, size_t)) F(MemRetainAllocationHandle, (uint64_t *, void *)) F(MemImportFromShareableHandle, (uint64_t *, void *, int)) \
	F(MemMapArrayAsync, (map_info *, unsigned, void *)) F(MemMapArrayAsync_ptsz, (map_info *, unsigned, void *)) \
	F(MulticastCreate, (uint64_t *, const multicast_prop *)) F(MulticastBindMem, (uint64_t, size_t, uint64_t, size_t, size_t, uint64_t)) \
	F(MulticastBindMem_v2, (uint64_t, int, size_t, uint64_t, size_t, size_t, uint64_t)) F(MulticastBindAddr, (uint64_t, size_t, ptr, size_t, uint64_t)) \
	F(MulticastBindAddr_v2, (uint64_t, int, size_t, ptr, size_t, uint64_t)) F(MulticastUnbind, (uint64_t, int, size_t, size_t)) \
	F(ArrayCreate, (void **, const array2_v1 *)) F(ArrayCreate_v2, (void **, const array2 *)) F(Array3DCreate, (void **, const array3_v1 *)) \
	F(Array3DCreate_v2, (void **, const array3 *)) F(ArrayDestroy, (void *)) F(MipmappedArrayCreate, (void **, const array3 *, unsigned)) \
	F(MipmappedArrayDestroy, (void *)) \
	F(IpcOpenMemHandle, (ptr *, ipc, unsigned)) F(IpcOpenMemHandle_v2, (ptr *, ipc, unsigned)) F(IpcCloseMemHandle, (ptr)) \
	F(ImportExternalMemory, (void **, const external_desc *)) F(ExternalMemoryGetMappedBuffer, (ptr *, void *, const buffer_desc *)) \
	F(ExternalMemoryGetMappedMipmappedArray, (void **, void *, const mipmapped_desc *)) F(DestroyExternalMemory, (void *)) \
	F(GraphicsMapResources, (unsigned, void **, void *)) F(GraphicsMapResources_ptsz, (unsigned, void **, void *)) \
	F(GraphicsUnmapResources, (unsigned, void **, void *)) F(GraphicsUnmapResources_ptsz, (unsigned, void **, void *)) \
	F(GraphAddMemAllocNode, (void **, void *, const void *, size_t, alloc_node *)) F(GraphAddMemFreeNode, (void **, void *, const void *, size_t, ptr)) \
	F(GraphAddNode, (void **, void *, const void *, size_t, node_params *)) F(GraphAddNode_v2, (void **, void *, const void *, const void *, size_t, node_params *)) \
	F(GraphLaunch, (void *, void *)) F(GraphLaunch_ptsz, (void *, void *)) F(GraphUpload, (void *, void *)) F(GraphUpload_ptsz, (void *, void *)) \
	F(DeviceGraphMemTrim, (int)) \
	F(StreamBeginCapture, (void *)) F(StreamBeginCapture_ptsz, (void *)) F(StreamBeginCapture_v2, (void *, int)) F(StreamBeginCapture_v2_ptsz, (void *, int)) \
	F(StreamBeginCaptureToGraph, (void *, void *, const void *, const void *, size_t, int)) \
	F(StreamBeginCaptureToGraph_ptsz, (void *, void *, const void *, const void *, size_t, int)) F(StreamEndCapture, (void *, void **)) \
	F(StreamEndCapture_ptsz, (void *, void **)) F(StreamSynchronize, (void *)) F(StreamSynchronize_ptsz, (void *)) F(EventSynchronize, (void *)) \
	F(CtxSynchronize, (void)) \
	F(CtxDestroy, (void *)) F(CtxDestroy_v2, (void *)) F(CtxDetach, (void *)) F(GreenCtxDestroy, (void *)) \
	F(DevicePrimaryCtxReset, (int)) F(DevicePrimaryCtxReset_v2, (int)) F(DevicePrimaryCtxRelease, (int)) F(DevicePrimaryCtxRelease_v2, (int)) \
	F(CheckpointProcessCheckpoint, (int, void *)) F(CheckpointProcessRestore, (int, void *))

#define F(name, params) static int (*name) params;
FUNCTIONS
#undef F

static int gpu;
static void (*mark)(const char *);

static void load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	void *p = dlsym(RTLD_DEFAULT, "gpurec_mark");

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	memcpy(&mark, &p, sizeof p);
#define F(name, params) p = dlsym(lib, "cu" #name); memcpy(&name, &p, sizeof p);
	FUNCTIONS
#undef F
}

/* ---- steps ---- */

static const char *function, *kind;
static int number, capturing; /* nothing may be asked, or what is said is not to be compared */
static void *pool; /* the program's own, while there is one */

static size_t free_bytes(void)
{
	size_t free = 0, total;

	if (MemGetInfo_v2(&free, &total))
		return 0;
	return free;
}

static uint64_t reserved(void *of)
{
	uint64_t bytes = 0;

	if (of)
		MemPoolGetAttribute(of, 5, &bytes);
	return bytes;
}

static size_t before;
static uint64_t own_before;

static void say(void)
{
	char text[16];

	snprintf(text, sizeof text, "#%d", ++number);
	if (mark)
		mark(text);
	before = capturing ? 0 : free_bytes();
	own_before = capturing ? 0 : reserved(pool);
}

static int said(const char *call, int status)
{
	uint64_t graph = 0;
	void *builtin = NULL;

	if (mark)
		mark("#"); /* what follows prepares the next call */
	printf("%d\tcu%s\t%s\t%s\t%d", number, function, kind, call, status);
	if (capturing) {
		printf("\t-\t-\t-\t-\t-\n");
		return status;
	}
	size_t now = free_bytes();
	if (DeviceGetGraphMemAttribute)
		DeviceGetGraphMemAttribute(0, 2, &graph);
	DeviceGetDefaultMemPool(&builtin, 0);
	printf("\t%lld\t%llu\t%llu\t%llu\t%llu\n", (long long)before - (long long)now, (unsigned long long)reserved(builtin),
	       (unsigned long long)graph, (unsigned long long)own_before, (unsigned long long)reserved(pool));
	return status;
}

/* A call that is told of. */
#define STEP(call) (say(), said(#call, call))

static void *stream;

/* What is left of a case that ends early: a capture would spoil all that follow. */
static int fails(const char *call, int status)
{
	void *graph;

	if (status == 0)
		return 0;
	if (mark)
		mark("#");
	printf("%d\tcu%s\t%s\t%s\tdiffers: needs 0, got %d\t-\t-\t-\t-\t-\n", ++number, function, kind, call, status);
	if (capturing && stream)
		StreamEndCapture(stream, &graph);
	capturing = 0;
	return status;
}

/* A call that prepares others: where it fails, its case ends. */
#define NEED(call) if (fails(#call, call)) break
/* And in what cases share: who called is told, by the status, and leaves too. */
#define MUST(call)                               \
	do {                                     \
		int must_ = fails(#call, call);  \
		if (must_)                       \
			return must_;            \
	} while (0)

/* Why a case is not for a real driver. */
#define ANYWHERE NULL
#define MULTICAST "cuMulticast: only on the simulated driver"
#define CHECKPOINT "checkpoint and restore: only on the simulated driver"
#define GRAPHICS "graphics interop: only on the simulated driver"
#define NULL_OUT "a NULL out-pointer: only on the simulated driver"
#define BOGUS "a handle that is none, which a driver may follow"
#define OTHERS_HUGE "huge only through cuMemAlloc, cuMemCreate, cuMemAllocAsync"
#define OLD "a form for 32-bit pointers and older programs"
#define VULKAN "needs memory that Vulkan exports"
#define UNSURE "not promised to be harmless: only on the simulated driver"

static int begins(const char *name, const char *what, const char *reason, int there)
{
	function = name;
	kind = what;
	if (gpu && !reason && !there)
		reason = "this driver has no such function";
	if (!gpu || !reason)
		return 1;
	printf("%d\tcu%s\t%s\t\tskipped: %s\t-\t-\t-\t-\t-\n", ++number, name, what, reason);
	return 0;
}
/* CASE(function, success|failure|odd|across, reason) { ... } */
#define CASE(name, what, reason) for (int open_ = begins(#name, #what, reason, name != NULL); open_; open_ = 0)

static void *ctx;

static int again(void)
{
	MUST(DevicePrimaryCtxRetain(&ctx, 0));
	MUST(CtxSetCurrent(ctx));
	return 0;
}
