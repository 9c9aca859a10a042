/*
 * flavours.c - every entry point of the driver that takes or gives back memory,
 * called once or twice with sizes that tell, through one of the three doors.
 *
 * Shows: that each call is recorded with its size and class, and that the bytes
 * recorded reconcile with what the device says it has left. One line a call,
 * columns separated by tabs:
 *
 *   step  call  asked  pointer  class  taken
 *
 * asked is the size in bytes, for a give-back that of what is given back;
 * pointer the address, the handle or the array; class what the call's memory is
 * ("pool" for memory from a stream-ordered pool, "-" for calls that only refer to
 * memory or addresses); taken by how much cuMemGetInfo's free bytes fell in this
 * step. The last line says how many calls took memory and how many gave back.
 *
 * Build: cc -O2 -o flavours flavours.c -ldl
 *        cc -O2 -DLINKED -o flavours-linked flavours.c -ldl -l:libcuda.so.1
 * Run:   ./flavours --door procaddress|dlsym [--per-thread]
 *        ./flavours-linked --door linked
 *
 * Runs on the simulated driver and on a real one. Exit: 0; 1 if a call fails.
 */
#define _GNU_SOURCE
#include "door.h"

#define MIB (1ull << 20)

static size_t free_before;
static int step_no, takes, gives;

/* at is where the call has put its pointer or handle, or where its argument
 * stands: read here, after the call. */
static void row(const char *call, uint64_t asked, const void *at, const char *class)
{
	size_t now, total;
	uint64_t pointer = 0;

	if (at)
		memcpy(&pointer, at, sizeof pointer);

	need("cuMemGetInfo", cu.MemGetInfo(&now, &total));
	printf("%d\t%s\t%llu\t0x%llx\t%s\t%lld\n", ++step_no, call, (unsigned long long)asked,
	       (unsigned long long)pointer, class, (long long)free_before - (long long)now);
	free_before = now;
}

static void took(const char *call, int res, uint64_t asked, const void *at, const char *class)
{
	need(call, res);
	takes++;
	row(call, asked, at, class);
}

static void gave(const char *call, int res, uint64_t asked, const void *at, const char *class)
{
	need(call, res);
	gives++;
	row(call, asked, at, class);
}

static void only(const char *call, int res, uint64_t asked, const void *at)
{
	need(call, res);
	row(call, asked, at, "-");
}

static void device_memory(void)
{
	CUdeviceptr a, b, m;
	size_t pitch;

	took("cuMemAlloc", cu.MemAlloc(&a, 3 * MIB), 3 * MIB, &a, "device");
	int res = cu.MemAllocPitch(&b, &pitch, 1000, 1000, 4);
	took("cuMemAllocPitch", res, pitch * 1000, &b, "device");
	took("cuMemAllocManaged", cu.MemAllocManaged(&m, 5 * MIB, 1), 5 * MIB, &m, "managed");
	gave("cuMemFree", cu.MemFree(a), 3 * MIB, &a, "device");
	gave("cuMemFree", cu.MemFree(b), pitch * 1000, &b, "device");
	gave("cuMemFree", cu.MemFree(m), 5 * MIB, &m, "managed");
	only("cuMemFree", cu.MemFree(0), 0, NULL);
}

static void host_memory(void)
{
	void *a, *b, *own = aligned_alloc(4096, MIB);

	need("aligned_alloc", own == NULL);
	took("cuMemAllocHost", cu.MemAllocHost(&a, 7 * MIB), 7 * MIB, &a, "pinned");
	took("cuMemHostAlloc", cu.MemHostAlloc(&b, 64 << 10, 1), 64 << 10, &b, "pinned");
	memset(a, 1, 7 * MIB);
	memset(b, 2, 64 << 10);
	took("cuMemHostRegister", cu.MemHostRegister(own, MIB, 0), MIB, &own, "registered");
	gave("cuMemHostUnregister", cu.MemHostUnregister(own), MIB, &own, "registered");
	gave("cuMemFreeHost", cu.MemFreeHost(a), 7 * MIB, &a, "pinned");
	gave("cuMemFreeHost", cu.MemFreeHost(b), 64 << 10, &b, "pinned");
	free(own);
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, FORMAT_FLOAT, 1};
	CUDA_ARRAY3D_DESCRIPTOR deep = {256, 128, 32, FORMAT_FLOAT, 2, 0}, mip = {512, 512, 0, FORMAT_FLOAT, 4, 0};
	const uint64_t mip_bytes = 16 * (512 * 512 + 256 * 256 + 128 * 128);
	void *a, *b, *m;

	took("cuArrayCreate", cu.ArrayCreate(&a, &flat), 4 * MIB, &a, "array");
	took("cuArray3DCreate", cu.Array3DCreate(&b, &deep), 8 * MIB, &b, "array");
	took("cuMipmappedArrayCreate", cu.MipmappedArrayCreate(&m, &mip, 3), mip_bytes, &m, "array");
	gave("cuArrayDestroy", cu.ArrayDestroy(a), 4 * MIB, &a, "array");
	gave("cuArrayDestroy", cu.ArrayDestroy(b), 8 * MIB, &b, "array");
	gave("cuMipmappedArrayDestroy", cu.MipmappedArrayDestroy(m), mip_bytes, &m, "array");
}

static void stream_ordered(void)
{
	CUmemPoolProps props = {.type = 1, .location = {1, 0}};
	CUdeviceptr a, b, c, d;
	void *pool;

	took("cuMemAllocAsync", cu.MemAllocAsync(&a, 5 * MIB, NULL), 5 * MIB, &a, "pool");
	took("cuMemAllocAsync", cu.MemAllocAsync(&b, 6 * MIB, NULL), 6 * MIB, &b, "pool");
	only("cuMemPoolCreate", cu.MemPoolCreate(&pool, &props), 0, &pool);
	took("cuMemAllocFromPoolAsync", cu.MemAllocFromPoolAsync(&c, 40 * MIB, pool, NULL), 40 * MIB, &c, "pool");
	gave("cuMemFreeAsync", cu.MemFreeAsync(a, NULL), 5 * MIB, &a, "pool");
	gave("cuMemFree", cu.MemFree(b), 6 * MIB, &b, "pool");
	only("cuCtxSynchronize", cu.CtxSynchronize(), 0, NULL);
	gave("cuMemFreeAsync", cu.MemFreeAsync(c, NULL), 40 * MIB, &c, "pool");
	only("cuMemPoolTrimTo", cu.MemPoolTrimTo(pool, 0), 0, &pool);
	only("cuCtxSynchronize", cu.CtxSynchronize(), 0, NULL);
	only("cuMemPoolDestroy", cu.MemPoolDestroy(pool), 0, &pool);
	took("cuMemAlloc", cu.MemAlloc(&d, 2 * MIB), 2 * MIB, &d, "device");
	gave("cuMemFreeAsync", cu.MemFreeAsync(d, NULL), 2 * MIB, &d, "device");
	only("cuCtxSynchronize", cu.CtxSynchronize(), 0, NULL);
}

/* The physical memory of a handle ends with its last reference or mapping,
 * whichever comes later. */
static void virtual_memory(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
	CUmemAccessDesc access = {{1, 0}, 3};
	uint64_t first, second, again;
	CUdeviceptr va, high;

	only("cuMemAddressReserve", cu.MemAddressReserve(&va, 64 * MIB, 0, 0, 0), 64 * MIB, &va);
	high = va + 20 * MIB;
	took("cuMemCreate", cu.MemCreate(&first, 20 * MIB, &prop, 0), 20 * MIB, &first, "device");
	took("cuMemCreate", cu.MemCreate(&second, 2 * MIB, &prop, 0), 2 * MIB, &second, "device");
	only("cuMemMap", cu.MemMap(va, 20 * MIB, 0, first, 0), 20 * MIB, &va);
	only("cuMemMap", cu.MemMap(high, 2 * MIB, 0, second, 0), 2 * MIB, &high);
	only("cuMemSetAccess", cu.MemSetAccess(va, 22 * MIB, &access, 1), 22 * MIB, &va);
	only("cuMemRelease", cu.MemRelease(first), 20 * MIB, &first);
	int res = cu.MemRetain(&again, (void *)(uintptr_t)high);
	only("cuMemRetainAllocationHandle", res, 2 * MIB, &again);
	only("cuMemRelease", cu.MemRelease(second), 2 * MIB, &second);
	gave("cuMemUnmap", cu.MemUnmap(va, 22 * MIB), 20 * MIB, &va, "device");
	gave("cuMemRelease", cu.MemRelease(again), 2 * MIB, &again, "device");
	only("cuMemAddressFree", cu.MemAddressFree(va, 64 * MIB), 64 * MIB, &va);
}

int main(int argc, char **argv)
{
	const char *door = "procaddress";
	int per_thread = 0, res;
	CUdeviceptr left;
	size_t total;
	void *ctx;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--door") == 0 && i + 1 < argc) {
			door = argv[++i];
		} else if (strcmp(argv[i], "--per-thread") == 0) {
			per_thread = 1;
		} else {
			fprintf(stderr, "usage: flavours [--door linked|dlsym|procaddress] [--per-thread]\n");
			return 2;
		}
	}
	if (door_open(door, per_thread))
		return 1;
	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&ctx, 0));
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	need("cuMemGetInfo", cu.MemGetInfo(&free_before, &total));
	printf("step\tcall\tasked\tpointer\tclass\ttaken\n");

	device_memory();
	host_memory();
	arrays();
	stream_ordered();
	virtual_memory();

	/* A reset ends what is live; the context must be taken anew to look. */
	took("cuMemAlloc", cu.MemAlloc(&left, 9 * MIB), 9 * MIB, &left, "device");
	took("cuMemAllocAsync", cu.MemAllocAsync(&left, MIB, NULL), MIB, &left, "pool");
	res = cu.PrimaryCtxReset(0);
	if (!res)
		res = cu.PrimaryCtxRetain(&ctx, 0);
	if (!res)
		res = cu.CtxSetCurrent(ctx);
	only("cuDevicePrimaryCtxReset", res, 0, NULL);
	need("cuDevicePrimaryCtxRelease", cu.PrimaryCtxRelease(0));
	printf("flavours: door %s, %d calls took memory, %d gave it back\n", door, takes, gives);
	return 0;
}
