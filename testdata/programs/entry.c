/*
 * entry.c - every function of the driver that the recorder wraps, called with
 * success, with failure and with odd arguments (NULL, 0, huge), and every free
 * across the families of functions.
 *
 * Shows: that what a call returns is what it returns without the recorder, and
 * which events it makes: each call is preceded by a mark of its number in the
 * trace. One line a call, columns separated by tabs:
 *
 *   number  function  case  call  status  taken  reserved  graph  own-before  own
 *
 * taken is by how much cuMemGetInfo's free bytes fell in this call; reserved what
 * the device's own pool keeps (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), graph what is
 * kept for graphs (CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), both after the call, own
 * what the program's pool keeps, before and after it; each call ends with a mark too, "#"; "-" where nothing may be asked, as in a capture. A case that is
 * not for this driver is a line with "skipped" and the reason in place of a status.
 *
 * Build: cc -O2 -o entry entry.c -ldl
 * Run:   ./entry          on the simulated driver: all
 *        ./entry --gpu    on a real one: what can do no harm there
 *
 * A call that prepares others and fails is a line too, "differs: needs 0, got N" in
 * place of a status, and the rest of its case is left out.
 *
 * Exit: 0; 1 if nothing can be asked at all, or the other process failed.
 */
#define _GNU_SOURCE
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

/* ---- linear memory ---- */

static void device(void)
{
	ptr p = 0;
	size_t pitch;
	uint32_t low, low_pitch;

	CASE(MemAlloc_v2, success, ANYWHERE) { NEED(STEP(MemAlloc_v2(&p, 4 * MIB))); NEED(MemFree_v2(p)); }
	CASE(MemAlloc_v2, failure, ANYWHERE) { STEP(MemAlloc_v2(&p, HUGE)); }
	CASE(MemAlloc_v2, odd, ANYWHERE) { STEP(MemAlloc_v2(&p, 0)); }
	CASE(MemAlloc_v2, odd, NULL_OUT) { STEP(MemAlloc_v2(NULL, 1)); }
	CASE(MemAlloc, success, OLD) { NEED(STEP(MemAlloc(&low, 4 * MIB))); NEED(MemFree(low)); }
	CASE(MemAlloc, failure, OLD) { STEP(MemAlloc(&low, 0xfffffff0u)); }
	CASE(MemAlloc, odd, OLD) { STEP(MemAlloc(&low, 0)); STEP(MemAlloc(NULL, 1)); }
	CASE(MemAllocPitch_v2, success, ANYWHERE) { NEED(STEP(MemAllocPitch_v2(&p, &pitch, 4096, 1024, 4))); NEED(MemFree_v2(p)); }
	CASE(MemAllocPitch_v2, failure, OTHERS_HUGE) { STEP(MemAllocPitch_v2(&p, &pitch, MIB, 1ull << 40, 4)); }
	CASE(MemAllocPitch_v2, odd, ANYWHERE) { STEP(MemAllocPitch_v2(&p, &pitch, 4096, 1024, 3)); STEP(MemAllocPitch_v2(&p, &pitch, 0, 0, 4)); }
	CASE(MemAllocPitch_v2, odd, NULL_OUT) { STEP(MemAllocPitch_v2(NULL, NULL, 4096, 1024, 4)); }
	CASE(MemAllocPitch, success, OLD) { NEED(STEP(MemAllocPitch(&low, &low_pitch, 4096, 1024, 4))); NEED(MemFree(low)); }
	CASE(MemAllocPitch, failure, OLD) { STEP(MemAllocPitch(&low, &low_pitch, 1 << 16, 1 << 16, 4)); }
	CASE(MemAllocPitch, odd, OLD) { STEP(MemAllocPitch(&low, &low_pitch, 0, 0, 0)); STEP(MemAllocPitch(NULL, NULL, 4096, 4, 4)); }
	CASE(MemAllocManaged, success, ANYWHERE) { NEED(STEP(MemAllocManaged(&p, 4 * MIB, 1))); NEED(MemFree_v2(p)); }
	CASE(MemAllocManaged, failure, OTHERS_HUGE) { STEP(MemAllocManaged(&p, HUGE, 1)); }
	CASE(MemAllocManaged, odd, ANYWHERE) { STEP(MemAllocManaged(&p, 0, 1)); STEP(MemAllocManaged(&p, 4 * MIB, 99)); }
	CASE(MemAllocManaged, odd, NULL_OUT) { STEP(MemAllocManaged(NULL, 1, 1)); }
	CASE(MemFree_v2, success, ANYWHERE) { NEED(MemAlloc_v2(&p, 4 * MIB)); NEED(STEP(MemFree_v2(p))); }
	CASE(MemFree_v2, failure, ANYWHERE) { STEP(MemFree_v2(p)); }
	CASE(MemFree_v2, odd, ANYWHERE) { STEP(MemFree_v2(0)); STEP(MemFree_v2(HUGE)); }
	CASE(MemFree, success, OLD) { NEED(MemAlloc(&low, 4 * MIB)); NEED(STEP(MemFree(low))); }
	CASE(MemFree, failure, OLD) { STEP(MemFree(low)); }
	CASE(MemFree, odd, OLD) { STEP(MemFree(0)); STEP(MemFree(0xffffffffu)); }
}

static void host(void)
{
	void *p = NULL, *own = aligned_alloc(4096, MIB);

	CASE(MemAllocHost_v2, success, ANYWHERE) { NEED(STEP(MemAllocHost_v2(&p, MIB))); NEED(MemFreeHost(p)); }
	CASE(MemAllocHost_v2, failure, OTHERS_HUGE) { STEP(MemAllocHost_v2(&p, HUGE)); }
	CASE(MemAllocHost_v2, odd, ANYWHERE) { STEP(MemAllocHost_v2(&p, 0)); }
	CASE(MemAllocHost_v2, odd, NULL_OUT) { STEP(MemAllocHost_v2(NULL, 1)); }
	CASE(MemAllocHost, success, OLD) { NEED(STEP(MemAllocHost(&p, MIB))); NEED(MemFreeHost(p)); }
	CASE(MemAllocHost, failure, OLD) { STEP(MemAllocHost(NULL, MIB)); }
	CASE(MemAllocHost, odd, OLD) { STEP(MemAllocHost(&p, 0)); }
	CASE(MemHostAlloc, success, ANYWHERE) { NEED(STEP(MemHostAlloc(&p, MIB, 3))); NEED(MemFreeHost(p)); }
	CASE(MemHostAlloc, failure, ANYWHERE) { STEP(MemHostAlloc(&p, MIB, 0x4000)); }
	CASE(MemHostAlloc, odd, ANYWHERE) { STEP(MemHostAlloc(&p, 0, 0)); }
	CASE(MemHostAlloc, odd, NULL_OUT) { STEP(MemHostAlloc(NULL, 1, 0)); STEP(MemHostAlloc(&p, HUGE, 0)); }
	CASE(MemFreeHost, success, ANYWHERE) { NEED(MemHostAlloc(&p, MIB, 0)); NEED(STEP(MemFreeHost(p))); }
	CASE(MemFreeHost, failure, ANYWHERE) { STEP(MemFreeHost(own)); }
	CASE(MemFreeHost, odd, ANYWHERE) { STEP(MemFreeHost(NULL)); }
	CASE(MemHostRegister_v2, success, ANYWHERE) { NEED(STEP(MemHostRegister_v2(own, MIB, 0))); }
	CASE(MemHostRegister_v2, failure, ANYWHERE) { STEP(MemHostRegister_v2(own, MIB, 0)); }
	CASE(MemHostRegister_v2, odd, ANYWHERE) { STEP(MemHostRegister_v2(NULL, MIB, 0)); STEP(MemHostRegister_v2(own, 0, 0)); }
	CASE(MemHostUnregister, success, ANYWHERE) { NEED(STEP(MemHostUnregister(own))); }
	CASE(MemHostUnregister, failure, ANYWHERE) { STEP(MemHostUnregister(own)); }
	CASE(MemHostUnregister, odd, ANYWHERE) { STEP(MemHostUnregister(NULL)); }
	CASE(MemHostRegister, success, OLD) { NEED(STEP(MemHostRegister(own, MIB, 0))); }
	CASE(MemHostRegister, failure, OLD) { STEP(MemHostRegister(own, MIB, 0)); NEED(MemHostUnregister(own)); }
	CASE(MemHostRegister, odd, OLD) { STEP(MemHostRegister(NULL, 0, 0)); }
	free(own);
}

/* ---- stream-ordered ---- */

static void pools(void)
{
	pool_props props = {.type = 1, .at = {1, 0}}, on_host = {.type = 1, .at = {2, 0}}, managed = {.type = 2, .at = {1, 0}}, bad = {.type = 99};
	void *other, *none = NULL;
	ptr p = 0, q;

	CASE(MemPoolCreate, success, ANYWHERE) { NEED(STEP(MemPoolCreate(&pool, &props))); }
	CASE(MemPoolCreate, failure, ANYWHERE) { STEP(MemPoolCreate(&other, &bad)); }
	CASE(MemPoolCreate, odd, NULL_OUT) { STEP(MemPoolCreate(NULL, NULL)); }
	CASE(MemAllocAsync, success, ANYWHERE) { NEED(STEP(MemAllocAsync(&p, 4 * MIB, stream))); NEED(MemFreeAsync(p, stream)); NEED(STEP(StreamSynchronize(stream))); }
	CASE(MemAllocAsync, failure, ANYWHERE) { STEP(MemAllocAsync(&p, HUGE, stream)); }
	CASE(MemAllocAsync, odd, ANYWHERE) { STEP(MemAllocAsync(&p, 0, stream)); }
	CASE(MemAllocAsync, odd, NULL_OUT) { STEP(MemAllocAsync(NULL, 1, stream)); }
	CASE(MemAllocAsync_ptsz, success, ANYWHERE) { NEED(STEP(MemAllocAsync_ptsz(&p, 4 * MIB, NULL))); NEED(STEP(MemFreeAsync_ptsz(p, NULL))); NEED(STEP(StreamSynchronize_ptsz(NULL))); }
	CASE(MemAllocAsync_ptsz, failure, ANYWHERE) { STEP(MemAllocAsync_ptsz(&p, HUGE, NULL)); }
	CASE(MemAllocAsync_ptsz, odd, ANYWHERE) { STEP(MemAllocAsync_ptsz(&p, 0, NULL)); }
	CASE(MemAllocFromPoolAsync, success, ANYWHERE) { NEED(STEP(MemAllocFromPoolAsync(&p, 40 * MIB, pool, stream))); NEED(STEP(MemFreeAsync(p, stream))); NEED(StreamSynchronize(stream)); }
	CASE(MemAllocFromPoolAsync, failure, OTHERS_HUGE) { STEP(MemAllocFromPoolAsync(&p, HUGE, pool, stream)); }
	CASE(MemAllocFromPoolAsync, odd, ANYWHERE) { STEP(MemAllocFromPoolAsync(&p, 0, pool, stream)); }
	CASE(MemAllocFromPoolAsync, odd, BOGUS) { STEP(MemAllocFromPoolAsync(&p, MIB, NULL, stream)); }
	CASE(MemAllocFromPoolAsync_ptsz, success, ANYWHERE) { NEED(STEP(MemAllocFromPoolAsync_ptsz(&p, 8 * MIB, pool, NULL))); NEED(MemFreeAsync_ptsz(p, NULL)); NEED(StreamSynchronize_ptsz(NULL)); }
	CASE(MemAllocFromPoolAsync_ptsz, failure, OTHERS_HUGE) { STEP(MemAllocFromPoolAsync_ptsz(&p, HUGE, pool, NULL)); }
	CASE(MemAllocFromPoolAsync_ptsz, odd, ANYWHERE) { STEP(MemAllocFromPoolAsync_ptsz(&p, 0, pool, NULL)); }
	CASE(MemPoolTrimTo, success, ANYWHERE) { NEED(MemAllocFromPoolAsync(&p, 40 * MIB, pool, stream)); NEED(MemFreeAsync(p, stream)); NEED(StreamSynchronize(stream)); NEED(STEP(MemPoolTrimTo(pool, 0))); }
	CASE(MemPoolTrimTo, failure, BOGUS) { STEP(MemPoolTrimTo(&none, 0)); }
	CASE(MemPoolTrimTo, odd, ANYWHERE) { STEP(MemPoolTrimTo(pool, HUGE)); }
	CASE(MemPoolTrimTo, odd, BOGUS) { STEP(MemPoolTrimTo(NULL, 0)); }
	CASE(MemFreeAsync, success, ANYWHERE) { NEED(MemAllocAsync(&p, 4 * MIB, stream)); NEED(STEP(MemFreeAsync(p, stream))); NEED(STEP(CtxSynchronize())); }
	CASE(MemFreeAsync, failure, UNSURE) { STEP(MemFreeAsync(p, stream)); }
	CASE(MemFreeAsync, odd, UNSURE) { STEP(MemFreeAsync(0, stream)); STEP(MemFreeAsync(HUGE, stream)); }
	CASE(MemFreeAsync_ptsz, success, ANYWHERE) { NEED(MemAllocAsync(&p, 4 * MIB, stream)); NEED(STEP(MemFreeAsync_ptsz(p, stream))); NEED(CtxSynchronize()); }
	CASE(MemFreeAsync_ptsz, failure, UNSURE) { STEP(MemFreeAsync_ptsz(p, NULL)); }
	CASE(MemFreeAsync_ptsz, odd, UNSURE) { STEP(MemFreeAsync_ptsz(0, NULL)); }

	/* A pool of host memory takes none of the device; a managed one's is a class of its own. */
	CASE(MemAllocFromPoolAsync, across, UNSURE) {
		NEED(MemPoolCreate(&other, &on_host)); NEED(STEP(MemAllocFromPoolAsync(&p, 4 * MIB, other, stream))); NEED(STEP(MemFreeAsync(p, stream)));
		NEED(StreamSynchronize(stream)); NEED(MemPoolDestroy(other));
		NEED(MemPoolCreate(&other, &managed)); NEED(STEP(MemAllocFromPoolAsync(&p, 4 * MIB, other, stream))); NEED(STEP(MemFree_v2(p))); NEED(MemPoolDestroy(other));
	}
	/* What one family took another gives back. */
	CASE(MemFree_v2, across, ANYWHERE) { NEED(STEP(MemAllocAsync(&p, 4 * MIB, stream))); NEED(STEP(MemFree_v2(p))); NEED(STEP(CtxSynchronize())); }
	CASE(MemFree_v2, across, ANYWHERE) { NEED(STEP(MemAllocFromPoolAsync(&p, 4 * MIB, pool, stream))); NEED(STEP(MemFree_v2(p))); }
	CASE(MemFreeAsync, across, ANYWHERE) { NEED(STEP(MemAlloc_v2(&p, 4 * MIB))); NEED(STEP(MemFreeAsync(p, stream))); NEED(STEP(CtxSynchronize())); }
	CASE(MemFreeAsync_ptsz, across, ANYWHERE) { NEED(STEP(MemAllocFromPoolAsync(&p, 4 * MIB, pool, stream))); NEED(STEP(MemFreeAsync_ptsz(p, stream))); NEED(STEP(CtxSynchronize())); }
	CASE(MemFree_v2, across, ANYWHERE) { NEED(STEP(MemAllocManaged(&p, 4 * MIB, 1))); NEED(STEP(MemFree_v2(p))); }
	CASE(MemFree_v2, across, UNSURE) { NEED(MemHostAlloc((void **)&q, MIB, 0)); STEP(MemFree_v2(q)); STEP(MemFreeAsync(q, stream)); NEED(STEP(MemFreeHost((void *)q))); }
	CASE(MemFreeHost, across, UNSURE) { NEED(MemAlloc_v2(&p, 4 * MIB)); STEP(MemFreeHost((void *)p)); STEP(MemHostUnregister((void *)p)); STEP(IpcCloseMemHandle(p)); NEED(STEP(MemFree_v2(p))); }

	CASE(MemPoolDestroy, success, ANYWHERE) {
		NEED(MemAllocFromPoolAsync(&p, 40 * MIB, pool, stream));
		NEED(MemFreeAsync(p, stream));
		NEED(StreamSynchronize(stream));
		void *dies = pool;
		pool = NULL;
		NEED(STEP(MemPoolDestroy(dies)));
	}
	CASE(MemPoolDestroy, failure, UNSURE) { NEED(DeviceGetDefaultMemPool(&other, 0)); STEP(MemPoolDestroy(other)); }
	CASE(MemPoolDestroy, odd, BOGUS) { STEP(MemPoolDestroy(NULL)); }
}

/* ---- virtual memory management ---- */

static int mappings(void)
{
	alloc_prop prop = {.type = 1, .handle_types = 1, .at = {1, 0}}, on_host = {.type = 1, .at = {3, 0}};
	access_desc access = {{1, 0}, 3};
	uint64_t h = 0, again_ = 0;
	ptr va;
	int fd = -1;

	function = "MemMap";
	kind = "the addresses";
	MUST(MemAddressReserve(&va, 64 * MIB, 0, 0, 0));
	CASE(MemCreate, success, ANYWHERE) { NEED(STEP(MemCreate(&h, 4 * MIB, &prop, 0))); }
	CASE(MemCreate, success, UNSURE) { NEED(STEP(MemCreate(&again_, 4 * MIB, &on_host, 0))); NEED(STEP(MemRelease(again_))); }
	CASE(MemCreate, failure, ANYWHERE) { STEP(MemCreate(&again_, HUGE, &prop, 0)); }
	CASE(MemCreate, odd, ANYWHERE) { STEP(MemCreate(&again_, 0, &prop, 0)); STEP(MemCreate(&again_, 12345, &prop, 0)); }
	CASE(MemCreate, odd, NULL_OUT) { STEP(MemCreate(NULL, 4 * MIB, NULL, 0)); }
	CASE(MemMap, success, ANYWHERE) { NEED(STEP(MemMap(va, 4 * MIB, 0, h, 0))); NEED(MemSetAccess(va, 4 * MIB, &access, 1)); }
	CASE(MemMap, failure, ANYWHERE) { STEP(MemMap(va, 4 * MIB, 0, h, 0)); }
	CASE(MemMap, odd, ANYWHERE) { STEP(MemMap(va + 32 * MIB, 0, 0, h, 0)); STEP(MemMap(0, 4 * MIB, 0, h, 0)); }
	CASE(MemMap, odd, BOGUS) { STEP(MemMap(va + 32 * MIB, 4 * MIB, 0, 0, 0)); }
	CASE(MemRetainAllocationHandle, success, ANYWHERE) { NEED(STEP(MemRetainAllocationHandle(&again_, (void *)va))); NEED(STEP(MemRelease(again_))); }
	CASE(MemRetainAllocationHandle, failure, ANYWHERE) { STEP(MemRetainAllocationHandle(&again_, (void *)(va + 32 * MIB))); }
	CASE(MemRetainAllocationHandle, odd, NULL_OUT) { STEP(MemRetainAllocationHandle(NULL, NULL)); }
	CASE(MemImportFromShareableHandle, success, ANYWHERE) {
		NEED(MemExportToShareableHandle(&fd, h, 1, 0));
		NEED(STEP(MemImportFromShareableHandle(&again_, (void *)(intptr_t)fd, 1)));
		NEED(STEP(MemRelease(again_)));
		close(fd);
	}
	CASE(MemImportFromShareableHandle, failure, ANYWHERE) { STEP(MemImportFromShareableHandle(&again_, (void *)(intptr_t)0, 1)); }
	CASE(MemImportFromShareableHandle, odd, NULL_OUT) { STEP(MemImportFromShareableHandle(NULL, (void *)-1, 0)); }
	CASE(MemRelease, success, ANYWHERE) { NEED(STEP(MemRelease(h))); }
	CASE(MemRelease, failure, BOGUS) { STEP(MemRelease(12345)); }
	CASE(MemRelease, odd, BOGUS) { STEP(MemRelease(0)); }
	CASE(MemUnmap, success, ANYWHERE) { NEED(STEP(MemUnmap(va, 4 * MIB))); }
	CASE(MemUnmap, failure, ANYWHERE) { STEP(MemUnmap(va, 0)); }
	/* Where addresses are reserved and nothing is mapped there is nothing to refuse. */
	CASE(MemUnmap, odd, ANYWHERE) { STEP(MemUnmap(va, 4 * MIB)); STEP(MemUnmap(0, 4 * MIB)); }

	uint64_t mc = 0;
	multicast_prop mp = {.devices = 2, .size = 64 * MIB};
	CASE(MulticastCreate, success, MULTICAST) { NEED(STEP(MulticastCreate(&mc, &mp))); NEED(MulticastAddDevice(mc, 0)); }
	CASE(MulticastCreate, failure, MULTICAST) { mp.size = 1; STEP(MulticastCreate(&again_, &mp)); }
	CASE(MulticastCreate, odd, MULTICAST) { STEP(MulticastCreate(NULL, NULL)); }
	CASE(MulticastBindMem, success, MULTICAST) { NEED(MemCreate(&h, 4 * MIB, &prop, 0)); NEED(STEP(MulticastBindMem(mc, 0, h, 0, 4 * MIB, 0))); }
	CASE(MulticastBindMem, failure, MULTICAST) { STEP(MulticastBindMem(mc, 62 * MIB, h, 0, 4 * MIB, 0)); }
	CASE(MulticastBindMem, odd, MULTICAST) { STEP(MulticastBindMem(0, 0, 0, 0, 0, 0)); }
	CASE(MulticastBindMem_v2, success, MULTICAST) { NEED(STEP(MulticastBindMem_v2(mc, 1, 0, h, 0, 4 * MIB, 0))); }
	CASE(MulticastBindMem_v2, failure, MULTICAST) { STEP(MulticastBindMem_v2(mc, 1, HUGE, h, 0, 4 * MIB, 0)); }
	CASE(MulticastBindMem_v2, odd, MULTICAST) { STEP(MulticastBindMem_v2(0, -1, 0, 0, 0, 0, 0)); }
	CASE(MulticastBindAddr, success, MULTICAST) { NEED(MemMap(va, 4 * MIB, 0, h, 0)); NEED(STEP(MulticastBindAddr(mc, 8 * MIB, va, 4 * MIB, 0))); }
	CASE(MulticastBindAddr, failure, MULTICAST) { STEP(MulticastBindAddr(mc, 8 * MIB, va + 32 * MIB, 4 * MIB, 0)); }
	CASE(MulticastBindAddr, odd, MULTICAST) { STEP(MulticastBindAddr(mc, 0, 0, 0, 0)); }
	CASE(MulticastBindAddr_v2, success, MULTICAST) { NEED(STEP(MulticastBindAddr_v2(mc, 1, 8 * MIB, va, 4 * MIB, 0))); }
	CASE(MulticastBindAddr_v2, failure, MULTICAST) { STEP(MulticastBindAddr_v2(mc, 1, 8 * MIB, va + 32 * MIB, 4 * MIB, 0)); }
	CASE(MulticastBindAddr_v2, odd, MULTICAST) { STEP(MulticastBindAddr_v2(mc, -1, 0, 0, 0, 0)); }
	CASE(MulticastUnbind, success, MULTICAST) { NEED(STEP(MulticastUnbind(mc, 0, 0, 64 * MIB))); NEED(STEP(MulticastUnbind(mc, 1, 0, 64 * MIB))); }
	CASE(MulticastUnbind, failure, MULTICAST) { STEP(MulticastUnbind(mc, 0, 0, 64 * MIB)); }
	CASE(MulticastUnbind, odd, MULTICAST) { STEP(MulticastUnbind(0, 0, 0, 0)); NEED(MemUnmap(va, 4 * MIB)); NEED(MemRelease(h)); NEED(MemRelease(mc)); }

	kind = "the addresses";
	MUST(MemAddressFree(va, 64 * MIB));
	return 0;
}

static void arrays(void)
{
	array2 flat = {1024, 1024, 0x20, 1}, wide = {1ull << 40, 1ull << 20, 0x20, 1};
	array3 deep = {256, 128, 32, 0x20, 2, 0}, mip = {1024, 1024, 0, 0x20, 1, 0}, none = mip, sparse = {1024, 1024, 0, 0x20, 1, 0x40};
	array2_v1 old = {1024, 1024, 0x20, 1};
	array3_v1 old3 = {256, 128, 32, 0x20, 2, 0};
	void *a = NULL, *s = NULL;
	uint64_t h = 0;
	alloc_prop prop = {.type = 1, .at = {1, 0}};

	CASE(ArrayCreate_v2, success, ANYWHERE) { NEED(STEP(ArrayCreate_v2(&a, &flat))); NEED(STEP(ArrayDestroy(a))); }
	CASE(ArrayCreate_v2, failure, OTHERS_HUGE) { STEP(ArrayCreate_v2(&a, &wide)); }
	CASE(ArrayCreate_v2, odd, NULL_OUT) { STEP(ArrayCreate_v2(NULL, NULL)); }
	CASE(ArrayCreate, success, OLD) { NEED(STEP(ArrayCreate(&a, &old))); NEED(ArrayDestroy(a)); }
	CASE(ArrayCreate, failure, OLD) { old.width = 0; STEP(ArrayCreate(&a, &old)); }
	CASE(ArrayCreate, odd, OLD) { STEP(ArrayCreate(NULL, NULL)); }
	CASE(Array3DCreate_v2, success, ANYWHERE) { NEED(STEP(Array3DCreate_v2(&a, &deep))); NEED(STEP(ArrayDestroy(a))); }
	CASE(Array3DCreate_v2, failure, ANYWHERE) { deep.width = 0; STEP(Array3DCreate_v2(&a, &deep)); }
	CASE(Array3DCreate_v2, odd, NULL_OUT) { STEP(Array3DCreate_v2(NULL, NULL)); }
	CASE(Array3DCreate, success, OLD) { NEED(STEP(Array3DCreate(&a, &old3))); NEED(ArrayDestroy(a)); }
	CASE(Array3DCreate, failure, OLD) { old3.channels = 7; STEP(Array3DCreate(&a, &old3)); }
	CASE(Array3DCreate, odd, OLD) { STEP(Array3DCreate(NULL, NULL)); }
	CASE(ArrayDestroy, success, ANYWHERE) { NEED(ArrayCreate_v2(&a, &flat)); NEED(STEP(ArrayDestroy(a))); }
	CASE(ArrayDestroy, failure, BOGUS) { STEP(ArrayDestroy(a)); }
	CASE(ArrayDestroy, odd, BOGUS) { STEP(ArrayDestroy(NULL)); }
	CASE(MipmappedArrayCreate, success, ANYWHERE) { NEED(STEP(MipmappedArrayCreate(&a, &mip, 1))); }
	CASE(MipmappedArrayCreate, failure, ANYWHERE) { none.width = 0; STEP(MipmappedArrayCreate(&s, &none, 1)); }
	/* The number of levels is clamped to what there can be: one at least. */
	CASE(MipmappedArrayCreate, odd, ANYWHERE) { NEED(STEP(MipmappedArrayCreate(&s, &mip, 0))); NEED(STEP(MipmappedArrayDestroy(s))); }
	/* All of them: texels are recorded, which the driver rounds up. */
	CASE(MipmappedArrayCreate, odd, ANYWHERE) { capturing = 1; NEED(STEP(MipmappedArrayCreate(&s, &mip, 99))); NEED(STEP(MipmappedArrayDestroy(s))); capturing = 0; }
	CASE(MipmappedArrayCreate, odd, NULL_OUT) { STEP(MipmappedArrayCreate(NULL, NULL, 0)); }
	CASE(MipmappedArrayDestroy, success, ANYWHERE) { NEED(STEP(MipmappedArrayDestroy(a))); }
	CASE(MipmappedArrayDestroy, failure, BOGUS) { STEP(MipmappedArrayDestroy(a)); }
	CASE(MipmappedArrayDestroy, odd, BOGUS) { STEP(MipmappedArrayDestroy(NULL)); }

	/* Memory of a handle that a sparse array's tile holds. */
	map_info m = {.part = {0, 0, 128ull << 32 | 0, 1ull << 32 | 128}, .operation = 1};
	CASE(MemMapArrayAsync, success, UNSURE) {
		NEED(STEP(Array3DCreate_v2(&s, &sparse)));
		NEED(MemCreate(&h, 2 * MIB, &prop, 0));
		m.array = s;
		m.handle = h;
		NEED(STEP(MemMapArrayAsync(&m, 1, stream)));
		NEED(STEP(MemRelease(h)));
		m.operation = 2;
		NEED(STEP(MemMapArrayAsync(&m, 1, stream)));
	}
	CASE(MemMapArrayAsync, failure, UNSURE) { STEP(MemMapArrayAsync(&m, 1, stream)); }
	CASE(MemMapArrayAsync, odd, UNSURE) { STEP(MemMapArrayAsync(NULL, 0, stream)); }
	CASE(MemMapArrayAsync_ptsz, success, UNSURE) {
		NEED(MemCreate(&h, 2 * MIB, &prop, 0));
		m.handle = h;
		m.operation = 1;
		NEED(STEP(MemMapArrayAsync_ptsz(&m, 1, NULL)));
		m.operation = 2;
		NEED(STEP(MemMapArrayAsync_ptsz(&m, 1, NULL)));
		NEED(MemRelease(h));
		NEED(ArrayDestroy(s));
	}
	CASE(MemMapArrayAsync_ptsz, failure, UNSURE) { STEP(MemMapArrayAsync_ptsz(&m, 1, NULL)); }
	CASE(MemMapArrayAsync_ptsz, odd, UNSURE) { STEP(MemMapArrayAsync_ptsz(NULL, 1, NULL)); }
}

/* ---- memory of others ---- */

/* What another process has exported: it holds the memory until the socket is closed. */
struct offer {
	ipc memory;
	unsigned char pointer[64];
	int fds[2]; /* of the pool, of a handle */
};

static int offer(int to)
{
	struct offer o = {.fds = {-1, -1}};
	pool_props props = {.type = 1, .handle_types = 1, .at = {1, 0}};
	alloc_prop prop = {.type = 1, .handle_types = 1, .at = {1, 0}};
	void *c, *from;
	uint64_t h;
	ptr p, q;

	function = "IpcGetMemHandle";
	kind = "the other process";
	MUST(Init(0));
	MUST(DevicePrimaryCtxRetain(&c, 0));
	MUST(CtxSetCurrent(c));
	MUST(MemAlloc_v2(&p, 4 * MIB));
	MUST(IpcGetMemHandle(&o.memory, p));
	MUST(MemPoolCreate(&from, &props));
	MUST(MemAllocFromPoolAsync(&q, 4 * MIB, from, NULL));
	MUST(CtxSynchronize());
	MUST(MemPoolExportToShareableHandle(&o.fds[0], from, 1, 0));
	MUST(MemPoolExportPointer(o.pointer, q));
	MUST(MemCreate(&h, 4 * MIB, &prop, 0));
	MUST(MemExportToShareableHandle(&o.fds[1], h, 1, 0));

	char control[CMSG_SPACE(sizeof o.fds)] = {0};
	struct iovec part = {&o, sizeof o};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof o.fds);
	memcpy(CMSG_DATA(head), o.fds, sizeof o.fds);
	char end;
	return sendmsg(to, &message, 0) != (ssize_t)sizeof o || read(to, &end, 1) != 0;
}

static int offered(int from, struct offer *o)
{
	char control[CMSG_SPACE(sizeof o->fds)];
	struct iovec part = {o, sizeof *o};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};

	function = "IpcOpenMemHandle_v2";
	kind = "the other process";
	MUST(recvmsg(from, &message, 0) != (ssize_t)sizeof *o);
	memcpy(o->fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof o->fds);
	return 0;
}

static void others(struct offer o)
{
	ipc none = {{0}};
	ptr p = 0, q = 0;
	void *x = NULL, *m = NULL, *imported = NULL, *r[2] = {NULL, NULL};
	uint64_t h;

	CASE(IpcOpenMemHandle_v2, success, ANYWHERE) { NEED(STEP(IpcOpenMemHandle_v2(&p, o.memory, 1))); NEED(STEP(IpcOpenMemHandle_v2(&q, o.memory, 1))); }
	CASE(IpcOpenMemHandle_v2, failure, UNSURE) { STEP(IpcOpenMemHandle_v2(&q, none, 1)); }
	CASE(IpcOpenMemHandle_v2, odd, NULL_OUT) { STEP(IpcOpenMemHandle_v2(NULL, o.memory, 99)); }
	CASE(IpcCloseMemHandle, success, ANYWHERE) { NEED(STEP(IpcCloseMemHandle(p))); NEED(STEP(IpcCloseMemHandle(p))); }
	CASE(IpcCloseMemHandle, failure, UNSURE) { STEP(IpcCloseMemHandle(p)); }
	CASE(IpcCloseMemHandle, odd, UNSURE) { STEP(IpcCloseMemHandle(0)); }
	CASE(IpcOpenMemHandle, success, OLD) { NEED(STEP(IpcOpenMemHandle(&p, o.memory, 1))); NEED(STEP(IpcCloseMemHandle(p))); }
	CASE(IpcOpenMemHandle, failure, OLD) { STEP(IpcOpenMemHandle(&p, none, 1)); }
	CASE(IpcOpenMemHandle, odd, OLD) { STEP(IpcOpenMemHandle(NULL, none, 0)); }
	CASE(MemPoolImportPointer, success, ANYWHERE) {
		NEED(MemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)o.fds[0], 1, 0));
		NEED(STEP(MemPoolImportPointer(&p, imported, o.pointer)));
		NEED(STEP(MemFreeAsync(p, stream)));
		NEED(CtxSynchronize());
	}
	CASE(MemPoolImportPointer, failure, UNSURE) { STEP(MemPoolImportPointer(&p, imported, &none)); }
	CASE(MemPoolImportPointer, odd, NULL_OUT) { STEP(MemPoolImportPointer(NULL, NULL, NULL)); }
	CASE(MemImportFromShareableHandle, across, ANYWHERE) { NEED(STEP(MemImportFromShareableHandle(&h, (void *)(intptr_t)o.fds[1], 1))); NEED(STEP(MemRelease(h))); }

	external_desc d = {.type = 1, .size = 16 * MIB}, bad = {.type = 99};
	buffer_desc b = {.size = 4 * MIB}, beyond = {.offset = 14 * MIB, .size = 4 * MIB};
	mipmapped_desc md = {.array = {1024, 1024, 0, 0x20, 1, 0}, .levels = 1};
	CASE(ImportExternalMemory, success, VULKAN) { NEED(STEP(ImportExternalMemory(&x, &d))); }
	CASE(ImportExternalMemory, failure, VULKAN) { STEP(ImportExternalMemory(&m, &bad)); }
	CASE(ImportExternalMemory, odd, NULL_OUT) { STEP(ImportExternalMemory(NULL, NULL)); }
	CASE(ExternalMemoryGetMappedBuffer, success, VULKAN) { NEED(STEP(ExternalMemoryGetMappedBuffer(&p, x, &b))); NEED(STEP(MemFree_v2(p))); }
	CASE(ExternalMemoryGetMappedBuffer, failure, VULKAN) { STEP(ExternalMemoryGetMappedBuffer(&p, x, &beyond)); }
	CASE(ExternalMemoryGetMappedBuffer, odd, NULL_OUT) { STEP(ExternalMemoryGetMappedBuffer(NULL, NULL, NULL)); }
	CASE(ExternalMemoryGetMappedMipmappedArray, success, VULKAN) { NEED(STEP(ExternalMemoryGetMappedMipmappedArray(&m, x, &md))); NEED(STEP(MipmappedArrayDestroy(m))); }
	CASE(ExternalMemoryGetMappedMipmappedArray, failure, VULKAN) { md.levels = 0; STEP(ExternalMemoryGetMappedMipmappedArray(&m, x, &md)); }
	CASE(ExternalMemoryGetMappedMipmappedArray, odd, NULL_OUT) { STEP(ExternalMemoryGetMappedMipmappedArray(NULL, NULL, NULL)); }
	CASE(DestroyExternalMemory, success, VULKAN) { NEED(STEP(DestroyExternalMemory(x))); }
	CASE(DestroyExternalMemory, failure, VULKAN) { STEP(DestroyExternalMemory(x)); }
	CASE(DestroyExternalMemory, odd, VULKAN) { STEP(DestroyExternalMemory(NULL)); }

	CASE(GraphicsMapResources, success, GRAPHICS) {
		NEED(GraphicsGLRegisterBuffer(&r[0], 7, 0));
		NEED(GraphicsGLRegisterBuffer(&r[1], 8, 0));
		NEED(STEP(GraphicsMapResources(2, r, stream)));
	}
	CASE(GraphicsMapResources, failure, GRAPHICS) { STEP(GraphicsMapResources(2, r, stream)); }
	CASE(GraphicsMapResources, odd, GRAPHICS) { STEP(GraphicsMapResources(0, NULL, stream)); STEP(GraphicsMapResources(2, NULL, stream)); }
	CASE(GraphicsUnmapResources, success, GRAPHICS) { NEED(STEP(GraphicsUnmapResources(2, r, stream))); }
	CASE(GraphicsUnmapResources, failure, GRAPHICS) { STEP(GraphicsUnmapResources(2, r, stream)); }
	CASE(GraphicsUnmapResources, odd, GRAPHICS) { STEP(GraphicsUnmapResources(0, NULL, stream)); }
	CASE(GraphicsMapResources_ptsz, success, GRAPHICS) { NEED(STEP(GraphicsMapResources_ptsz(1, r, NULL))); }
	CASE(GraphicsMapResources_ptsz, failure, GRAPHICS) { STEP(GraphicsMapResources_ptsz(1, r, NULL)); }
	CASE(GraphicsMapResources_ptsz, odd, GRAPHICS) { STEP(GraphicsMapResources_ptsz(1, NULL, NULL)); }
	CASE(GraphicsUnmapResources_ptsz, success, GRAPHICS) { NEED(STEP(GraphicsUnmapResources_ptsz(1, r, NULL))); }
	CASE(GraphicsUnmapResources_ptsz, failure, GRAPHICS) { STEP(GraphicsUnmapResources_ptsz(1, r, NULL)); }
	CASE(GraphicsUnmapResources_ptsz, odd, GRAPHICS) { STEP(GraphicsUnmapResources_ptsz(1, NULL, NULL)); }
}

/* ---- graphs and captures ---- */

/* Runs what has been put together, twice, with what can be asked asked in between. */
static int run_graph(void *graph)
{
	void *exec;

	MUST(GraphInstantiateWithFlags(&exec, graph, 0));
	MUST(STEP(GraphUpload(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(STEP(GraphLaunch(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(STEP(GraphLaunch_ptsz(exec, stream)));
	MUST(StreamSynchronize(stream));
	MUST(GraphExecDestroy(exec));
	MUST(GraphDestroy(graph));
	MUST(STEP(DeviceGraphMemTrim(0)));
	return 0;
}

static void graphs(void)
{
	access_desc access = {{1, 0}, 3};
	alloc_node a = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 64 * MIB}, bad = {.size = 0};
	node_params alloc = {.type = 10, .alloc = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 64 * MIB}}, release = {.type = 11}, empty = {.type = 5};
	void *graph, *first, *second, *none = NULL;

	CASE(GraphAddMemAllocNode, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &a)));
		NEED(STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p)));
		if (run_graph(graph)) break;
	}
	CASE(GraphAddMemAllocNode, failure, ANYWHERE) { NEED(GraphCreate(&graph, 0)); STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &bad)); }
	CASE(GraphAddMemAllocNode, odd, NULL_OUT) { STEP(GraphAddMemAllocNode(NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphAddMemFreeNode, success, ANYWHERE) { NEED(STEP(GraphAddMemAllocNode(&first, graph, NULL, 0, &a))); NEED(STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p))); }
	CASE(GraphAddMemFreeNode, failure, ANYWHERE) { STEP(GraphAddMemFreeNode(&second, graph, &first, 1, a.p)); NEED(GraphDestroy(graph)); }
	CASE(GraphAddMemFreeNode, odd, NULL_OUT) { STEP(GraphAddMemFreeNode(NULL, NULL, NULL, 0, 0)); }
	CASE(GraphAddNode, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddNode(&first, graph, NULL, 0, &alloc)));
		release.free = alloc.alloc.p;
		NEED(STEP(GraphAddNode(&second, graph, &first, 1, &release)));
		NEED(STEP(GraphAddNode(&first, graph, NULL, 0, &empty)));
	}
	CASE(GraphAddNode, failure, ANYWHERE) { release.free = 0; STEP(GraphAddNode(&second, graph, NULL, 0, &release)); NEED(GraphDestroy(graph)); }
	CASE(GraphAddNode, odd, NULL_OUT) { STEP(GraphAddNode(NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphAddNode_v2, success, ANYWHERE) {
		NEED(GraphCreate(&graph, 0));
		NEED(STEP(GraphAddNode_v2(&first, graph, NULL, NULL, 0, &alloc)));
		release.free = alloc.alloc.p;
		NEED(STEP(GraphAddNode_v2(&second, graph, &first, NULL, 1, &release)));
		if (run_graph(graph)) break;
	}
	CASE(GraphAddNode_v2, failure, NULL_OUT) { alloc.alloc.size = 0; STEP(GraphAddNode_v2(NULL, NULL, NULL, NULL, 0, &alloc)); }
	CASE(GraphAddNode_v2, odd, NULL_OUT) { STEP(GraphAddNode_v2(NULL, NULL, NULL, NULL, 0, NULL)); }
	CASE(GraphUpload, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphUpload, failure, BOGUS) { STEP(GraphUpload(&none, stream)); }
	CASE(GraphUpload, odd, BOGUS) { STEP(GraphUpload(NULL, NULL)); }
	CASE(GraphUpload_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); NEED(GraphInstantiateWithFlags(&first, graph, 0)); NEED(STEP(GraphUpload_ptsz(first, stream))); NEED(StreamSynchronize(stream)); NEED(GraphExecDestroy(first)); NEED(GraphDestroy(graph)); }
	CASE(GraphUpload_ptsz, failure, BOGUS) { STEP(GraphUpload_ptsz(&none, stream)); }
	CASE(GraphUpload_ptsz, odd, BOGUS) { STEP(GraphUpload_ptsz(NULL, NULL)); }
	CASE(GraphLaunch, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphLaunch, failure, BOGUS) { STEP(GraphLaunch(&none, stream)); }
	CASE(GraphLaunch, odd, BOGUS) { STEP(GraphLaunch(NULL, NULL)); }
	CASE(GraphLaunch_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); if (run_graph(graph)) break; }
	CASE(GraphLaunch_ptsz, failure, BOGUS) { STEP(GraphLaunch_ptsz(&none, stream)); }
	CASE(GraphLaunch_ptsz, odd, BOGUS) { STEP(GraphLaunch_ptsz(NULL, NULL)); }
	CASE(DeviceGraphMemTrim, success, ANYWHERE) { NEED(STEP(DeviceGraphMemTrim(0))); }
	CASE(DeviceGraphMemTrim, failure, ANYWHERE) { STEP(DeviceGraphMemTrim(77)); }
	CASE(DeviceGraphMemTrim, odd, ANYWHERE) { STEP(DeviceGraphMemTrim(-1)); }
}

/* What is asked of a stream that is being captured goes into its graph, and the
 * capture stays valid. One that began elsewhere keeps the recorder from asking. */
static int capture_into(void *graph)
{
	ptr p;

	MUST(STEP(MemAllocAsync(&p, 8 * MIB, stream)));
	MUST(STEP(MemFreeAsync(p, stream)));
	/* On a stream that is not captured, while another is. The real driver's answer to
	 * it on a thread's own stream is 900, not permitted. */
	if (!gpu) {
		MUST(STEP(MemAllocAsync_ptsz(&p, 4 * MIB, NULL)));
		MUST(STEP(MemFreeAsync_ptsz(p, NULL)));
	}
	MUST(STEP(StreamEndCapture(stream, &graph)));
	capturing = 0;
	MUST(graph == NULL);
	MUST(CtxSynchronize());
	return 0;
}

static void captures(void)
{
	void *graph = NULL, *event;

	CASE(StreamBeginCapture_v2, success, ANYWHERE) { capturing = 1; NEED(STEP(StreamBeginCapture_v2(stream, 0))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_v2, failure, ANYWHERE) { STEP(StreamBeginCapture_v2((void *)1, 0)); }
	CASE(StreamBeginCapture_v2, odd, ANYWHERE) { STEP(StreamBeginCapture_v2(stream, 99)); }
	CASE(StreamBeginCapture_v2_ptsz, success, ANYWHERE) { capturing = 1; NEED(STEP(StreamBeginCapture_v2_ptsz(stream, 1))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_v2_ptsz, failure, ANYWHERE) { STEP(StreamBeginCapture_v2_ptsz((void *)1, 0)); }
	CASE(StreamBeginCapture_v2_ptsz, odd, ANYWHERE) { STEP(StreamBeginCapture_v2_ptsz(stream, 99)); }
	CASE(StreamBeginCapture, success, OLD) { capturing = 1; NEED(STEP(StreamBeginCapture(stream))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture, failure, OLD) { STEP(StreamBeginCapture((void *)1)); }
	CASE(StreamBeginCapture, odd, OLD) { STEP(StreamBeginCapture(NULL)); }
	CASE(StreamBeginCapture_ptsz, success, OLD) { capturing = 1; NEED(STEP(StreamBeginCapture_ptsz(stream))); if (capture_into(graph)) break; }
	CASE(StreamBeginCapture_ptsz, failure, OLD) { STEP(StreamBeginCapture_ptsz((void *)1)); }
	CASE(StreamBeginCapture_ptsz, odd, OLD) { STEP(StreamBeginCapture_ptsz((void *)1)); }
	CASE(StreamBeginCaptureToGraph, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); capturing = 1; NEED(STEP(StreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, 2))); if (capture_into(graph)) break; }
	CASE(StreamBeginCaptureToGraph, failure, BOGUS) { STEP(StreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, 0)); }
	CASE(StreamBeginCaptureToGraph, odd, BOGUS) { STEP(StreamBeginCaptureToGraph(NULL, NULL, NULL, NULL, 1, 99)); }
	CASE(StreamBeginCaptureToGraph_ptsz, success, ANYWHERE) { NEED(GraphCreate(&graph, 0)); capturing = 1; NEED(STEP(StreamBeginCaptureToGraph_ptsz(stream, graph, NULL, NULL, 0, 0))); if (capture_into(graph)) break; }
	CASE(StreamBeginCaptureToGraph_ptsz, failure, BOGUS) { STEP(StreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, 0)); }
	CASE(StreamBeginCaptureToGraph_ptsz, odd, BOGUS) { STEP(StreamBeginCaptureToGraph_ptsz(NULL, NULL, NULL, NULL, 1, 99)); }
	CASE(StreamEndCapture, success, ANYWHERE) { NEED(StreamBeginCapture_v2(stream, 0)); capturing = 1; NEED(STEP(StreamEndCapture(stream, &graph))); capturing = 0; }
	CASE(StreamEndCapture, failure, ANYWHERE) { STEP(StreamEndCapture(stream, &graph)); }
	CASE(StreamEndCapture, odd, NULL_OUT) { STEP(StreamEndCapture(NULL, NULL)); }
	CASE(StreamEndCapture_ptsz, success, ANYWHERE) { NEED(StreamBeginCapture_v2(stream, 0)); capturing = 1; NEED(STEP(StreamEndCapture_ptsz(stream, &graph))); capturing = 0; }
	CASE(StreamEndCapture_ptsz, failure, ANYWHERE) { STEP(StreamEndCapture_ptsz(stream, &graph)); }
	CASE(StreamEndCapture_ptsz, odd, NULL_OUT) { STEP(StreamEndCapture_ptsz(NULL, NULL)); }

	CASE(StreamSynchronize, success, ANYWHERE) { NEED(STEP(StreamSynchronize(stream))); }
	CASE(StreamSynchronize, failure, BOGUS) { STEP(StreamSynchronize(&graph)); }
	CASE(StreamSynchronize, odd, ANYWHERE) { STEP(StreamSynchronize(NULL)); }
	CASE(StreamSynchronize_ptsz, success, ANYWHERE) { NEED(STEP(StreamSynchronize_ptsz(NULL))); }
	CASE(StreamSynchronize_ptsz, failure, BOGUS) { STEP(StreamSynchronize_ptsz(&graph)); }
	CASE(StreamSynchronize_ptsz, odd, ANYWHERE) { STEP(StreamSynchronize_ptsz((void *)2)); }
	CASE(EventSynchronize, success, ANYWHERE) { NEED(EventCreate(&event, 0)); NEED(STEP(EventSynchronize(event))); }
	CASE(EventSynchronize, failure, BOGUS) { STEP(EventSynchronize(&graph)); }
	CASE(EventSynchronize, odd, BOGUS) { STEP(EventSynchronize(NULL)); }
	CASE(CtxSynchronize, success, ANYWHERE) { NEED(STEP(CtxSynchronize())); }
	CASE(CtxSynchronize, failure, ANYWHERE) { NEED(CtxSetCurrent(NULL)); capturing = 1; STEP(CtxSynchronize()); capturing = 0; NEED(CtxSetCurrent(ctx)); }
	CASE(CtxSynchronize, odd, ANYWHERE) { STEP(CtxSynchronize()); }
}

/* ---- contexts ---- */

/* A block that the end of its context ends too. */
static int left(void)
{
	ptr p;

	MUST(MemAlloc_v2(&p, MIB)); /* a CUcontext's first takes some for itself */
	MUST(MemFree_v2(p));
	MUST(STEP(MemAlloc_v2(&p, 4 * MIB)));
	return 0;
}

/* With a CUcontext ends what a real driver took for it, too, so that its end's bytes
 * are not asked there. */
static int contexts(void)
{
	void *own = NULL;

	CASE(CtxDestroy_v2, success, ANYWHERE) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; capturing = gpu; NEED(STEP(CtxDestroy_v2(own))); capturing = 0; NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDestroy_v2, failure, BOGUS) { STEP(CtxDestroy_v2(own)); }
	CASE(CtxDestroy_v2, odd, BOGUS) { STEP(CtxDestroy_v2(NULL)); }
	CASE(CtxDestroy, success, OLD) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; NEED(STEP(CtxDestroy(own))); NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDestroy, failure, OLD) { STEP(CtxDestroy(own)); }
	CASE(CtxDestroy, odd, OLD) { STEP(CtxDestroy(NULL)); }
	CASE(CtxDetach, success, OLD) { NEED(CtxCreate_v2(&own, 0, 0)); if (left()) break; NEED(STEP(CtxDetach(own))); NEED(CtxSetCurrent(ctx)); }
	CASE(CtxDetach, failure, OLD) { STEP(CtxDetach(own)); }
	CASE(CtxDetach, odd, OLD) { STEP(CtxDetach(NULL)); }
	CASE(CheckpointProcessCheckpoint, success, CHECKPOINT) { NEED(STEP(CheckpointProcessCheckpoint(1, NULL))); }
	CASE(CheckpointProcessCheckpoint, failure, CHECKPOINT) { STEP(CheckpointProcessCheckpoint(0x7fffffff, NULL)); }
	CASE(CheckpointProcessCheckpoint, odd, CHECKPOINT) { STEP(CheckpointProcessCheckpoint(-1, NULL)); }
	CASE(CheckpointProcessRestore, success, CHECKPOINT) { NEED(STEP(CheckpointProcessRestore(1, NULL))); }
	CASE(CheckpointProcessRestore, failure, CHECKPOINT) { STEP(CheckpointProcessRestore(0x7fffffff, NULL)); }
	CASE(CheckpointProcessRestore, odd, CHECKPOINT) { STEP(CheckpointProcessRestore(0, NULL)); }

	/* From here on each ends the device's primary context, and what is in it. */
	MUST(StreamDestroy_v2(stream));
	stream = NULL;
	CASE(GreenCtxDestroy, success, UNSURE) {
		if (left()) break;
		NEED(GreenCtxCreate(&own, NULL, 0, 1));
		NEED(DevicePrimaryCtxRelease_v2(0));
		capturing = 1;
		NEED(STEP(GreenCtxDestroy(own)));
		capturing = 0;
		if (again()) break;
	}
	CASE(GreenCtxDestroy, failure, BOGUS) { STEP(GreenCtxDestroy(&own)); }
	CASE(GreenCtxDestroy, odd, BOGUS) { STEP(GreenCtxDestroy(NULL)); }
	CASE(DevicePrimaryCtxRelease_v2, success, ANYWHERE) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxRelease_v2(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxRelease_v2, failure, ANYWHERE) { STEP(DevicePrimaryCtxRelease_v2(77)); }
	CASE(DevicePrimaryCtxRelease_v2, odd, ANYWHERE) { STEP(DevicePrimaryCtxRelease_v2(-1)); }
	CASE(DevicePrimaryCtxRelease, success, OLD) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxRelease(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxRelease, failure, OLD) { STEP(DevicePrimaryCtxRelease(77)); }
	CASE(DevicePrimaryCtxRelease, odd, OLD) { STEP(DevicePrimaryCtxRelease(-1)); }
	CASE(DevicePrimaryCtxReset, success, OLD) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxReset(0))); capturing = 0; if (again()) break; }
	CASE(DevicePrimaryCtxReset, failure, OLD) { STEP(DevicePrimaryCtxReset(77)); }
	CASE(DevicePrimaryCtxReset, odd, OLD) { STEP(DevicePrimaryCtxReset(-1)); }
	CASE(DevicePrimaryCtxReset_v2, failure, ANYWHERE) { STEP(DevicePrimaryCtxReset_v2(77)); }
	CASE(DevicePrimaryCtxReset_v2, odd, ANYWHERE) { STEP(DevicePrimaryCtxReset_v2(-1)); }
	CASE(DevicePrimaryCtxReset_v2, success, ANYWHERE) { if (left()) break; capturing = 1; NEED(STEP(DevicePrimaryCtxReset_v2(0))); capturing = 0; }
	return 0;
}

/* A driver's first use of a kind of memory takes some for itself: not in the rows. */
static int warm(void)
{
	access_desc access = {{1, 0}, 3};
	alloc_node a = {.props = {.type = 1, .at = {1, 0}}, .access = &access, .count = 1, .size = 4 * MIB};
	array2 flat = {64, 64, 0x20, 1};
	void *graph, *exec, *first, *second, *array;
	ptr p;

	function = "warm";
	kind = "up";
	MUST(MemAlloc_v2(&p, MIB));
	MUST(MemFree_v2(p));
	MUST(MemAllocAsync(&p, MIB, stream));
	MUST(MemFreeAsync(p, stream));
	MUST(MemAllocAsync_ptsz(&p, MIB, NULL)); /* the thread's own stream is made then */
	MUST(MemFreeAsync_ptsz(p, NULL));
	MUST(CtxSynchronize());
	MUST(ArrayCreate_v2(&array, &flat));
	MUST(ArrayDestroy(array));
	MUST(GraphCreate(&graph, 0));
	MUST(GraphAddMemAllocNode(&first, graph, NULL, 0, &a));
	MUST(GraphAddMemFreeNode(&second, graph, &first, 1, a.p));
	MUST(GraphInstantiateWithFlags(&exec, graph, 0));
	MUST(GraphLaunch(exec, stream));
	MUST(CtxSynchronize());
	MUST(GraphExecDestroy(exec));
	MUST(GraphDestroy(graph));
	MUST(DeviceGraphMemTrim(0));
	return 0;
}

static int run(int from)
{
	struct offer o;

	function = kind = "main";
	MUST(Init(0));
	if (again())
		return 1;
	MUST(StreamCreate(&stream, 1));
	if (offered(from, &o) || warm()) /* from now on the other process takes nothing */
		return 1;
	device();
	host();
	pools();
	mappings();
	arrays();
	others(o);
	graphs();
	captures();
	return contexts();
}

int main(int argc, char **argv)
{
	int pair[2], status;

	gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	load();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		return 1;
	pid_t other = fork(); /* before CUDA begins in either */
	if (other == 0) {
		close(pair[0]);
		exit(offer(pair[1]) != 0);
	}
	close(pair[1]);
	int failed = run(pair[0]) != 0;
	close(pair[0]);
	return waitpid(other, &status, 0) != other || status != 0 || failed;
}
