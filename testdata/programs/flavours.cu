// Every flavour of cudaMalloc and its free, and what each takes from the device.
//
// Build twice, and run each under gpurec:
//     nvcc -cudart static -o flavours-static flavours.cu -lcuda
//     nvcc -cudart shared -o flavours-shared flavours.cu -lcuda
//     gpurec run -o flavours-static.gpurec -- ./flavours-static >flavours-static.jsonl
//
// The runtime reaches the driver through cuGetProcAddress; the VMM steps call
// the driver's exported symbols. After each step the program prints a line of
// JSON: the call, the bytes asked, its result, the pointer or handle, the change
// of cudaMemGetInfo's free bytes (positive: taken) and of the bytes that the
// pools reserve; the NVTX mark "step:N" ends the step's events in the trace.
//
// The device is warm before step 0, so that a step shows its own memory and not
// the context's.

#include <cuda.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MiB = 1 << 20;
static size_t free_before, reserved_before;
static cudaMemPool_t pools[2]; // the device's own, and one of ours
static int step;

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "flavours: %s: %s\n", what, cudaGetErrorString(e));
		exit(1);
	}
}
#define CHECK(call) check(call, #call)

static size_t free_now()
{
	size_t free = 0, total = 0;
	CHECK(cudaMemGetInfo(&free, &total));
	return free;
}

static size_t reserved_now()
{
	size_t sum = 0;
	for (cudaMemPool_t pool : pools) {
		unsigned long long bytes = 0;
		if (pool)
			CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
		sum += bytes;
	}
	return sum;
}

static void mark(const char *what, int n)
{
	char text[32];
	snprintf(text, sizeof text, "%s:%d", what, n);
	nvtxMarkA(text);
}

// Ends a step: what it called, how many bytes it asked for (of a free: 0), the
// class its event must have, and what the call returned.
static void end(const char *call, size_t asked, const char *expected, int status, const void *address)
{
	mark("step", step);
	size_t free = free_now(), reserved = reserved_now();
	printf("{\"step\":%d,\"call\":\"%s\",\"asked\":%zu,\"class\":\"%s\",\"status\":%d,\"address\":%llu,"
	       "\"taken\":%lld,\"pool_reserved\":%lld}\n",
	       step, call, asked, expected, status, (unsigned long long)(size_t)address,
	       (long long)free_before - (long long)free, (long long)reserved - (long long)reserved_before);
	fflush(stdout);
	free_before = free, reserved_before = reserved;
	step++;
}

// A step that must succeed.
#define STEP(call, asked, expected, address) \
	do { \
		CHECK(call); \
		end(name_of(#call), asked, expected, 0, (const void *)(size_t)(address)); \
	} while (0)

// The function's name of "name(arguments)".
static const char *name_of(const char *call)
{
	static char name[64];
	size_t n = strcspn(call, "(");
	snprintf(name, sizeof name, "%.*s", (int)n, call);
	return name;
}

static void linear()
{
	void *p[4];
	STEP(cudaMalloc(&p[0], 3 * MiB), 3 * MiB, "device", p[0]);
	STEP(cudaMalloc(&p[1], 1000), 1000, "device", p[1]);
	STEP(cudaMalloc(&p[2], 1000), 1000, "device", p[2]);
	STEP(cudaMalloc(&p[3], 64 * MiB), 64 * MiB, "device", p[3]);
	for (int i = 3; i >= 0; i--)
		STEP(cudaFree(p[i]), 0, "device", p[i]);
	STEP(cudaFree(NULL), 0, "none", NULL);

	size_t pitch;
	STEP(cudaMallocPitch(&p[0], &pitch, 1000, 1000), pitch * 1000, "device", p[0]);
	cudaPitchedPtr box;
	STEP(cudaMalloc3D(&box, make_cudaExtent(1000, 100, 10)), box.pitch * 100 * 10, "device", box.ptr);
	STEP(cudaFree(p[0]), 0, "device", p[0]);
	STEP(cudaFree(box.ptr), 0, "device", box.ptr);

	cudaError_t failed = cudaMalloc(&p[0], (size_t)1 << 50);
	cudaGetLastError();
	end("cudaMalloc", (size_t)1 << 50, "device", failed, NULL);
}

static void arrays()
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaArray_t flat, deep;
	cudaMipmappedArray_t levels;
	STEP(cudaMallocArray(&flat, &format, 1024, 1024), 4 * MiB, "array", flat);
	STEP(cudaMalloc3DArray(&deep, &format, make_cudaExtent(128, 128, 64)), 4 * MiB, "array", deep);
	STEP(cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(512, 512, 0), 4), 0, "array", levels);
	STEP(cudaFreeArray(flat), 0, "array", flat);
	STEP(cudaFreeArray(deep), 0, "array", deep);
	STEP(cudaFreeMipmappedArray(levels), 0, "array", levels);
}

static void host()
{
	void *p;
	STEP(cudaMallocManaged(&p, 8 * MiB), 8 * MiB, "managed", p);
	STEP(cudaFree(p), 0, "managed", p);
	STEP(cudaMallocHost(&p, 5 * MiB), 5 * MiB, "pinned", p);
	STEP(cudaFreeHost(p), 0, "pinned", p);
	STEP(cudaHostAlloc(&p, 6 * MiB, cudaHostAllocMapped), 6 * MiB, "pinned", p);
	STEP(cudaFreeHost(p), 0, "pinned", p);
	if (posix_memalign(&p, 4096, 2 * MiB))
		exit(1);
	memset(p, 0, 2 * MiB);
	STEP(cudaHostRegister(p, 2 * MiB, cudaHostRegisterDefault), 2 * MiB, "registered", p);
	STEP(cudaHostUnregister(p), 0, "registered", p);
	free(p);
}

static void ordered()
{
	cudaStream_t stream;
	void *p[3];
	CHECK(cudaStreamCreate(&stream));
	mark("step-between", step); // a stream may take memory of its own
	free_before = free_now();
	STEP(cudaMallocAsync(&p[0], 5 * MiB, stream), 5 * MiB, "device", p[0]);
	STEP(cudaMallocAsync(&p[1], 6 * MiB, stream), 6 * MiB, "device", p[1]);
	STEP(cudaMallocFromPoolAsync(&p[2], 7 * MiB, pools[1], stream), 7 * MiB, "device", p[2]);
	STEP(cudaFreeAsync(p[0], stream), 0, "device", p[0]);
	STEP(cudaFree(p[1]), 0, "device", p[1]); // the synchronous free of a stream-ordered block
	STEP(cudaFreeAsync(p[2], stream), 0, "device", p[2]);
	STEP(cudaStreamSynchronize(stream), 0, "none", NULL);
	STEP(cudaMemPoolTrimTo(pools[0], 0), 0, "none", NULL);
	STEP(cudaMemPoolTrimTo(pools[1], 0), 0, "none", NULL);
	CHECK(cudaStreamDestroy(stream));
	free_before = free_now();
}

// The driver's virtual memory management, through its exported symbols.
static void mapped()
{
	CUmemAllocationProp prop = {};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	const size_t size = 20 * MiB;
#define DRIVER(call) ((call) == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown)
#define VMM(call, asked, expected, address) \
	do { \
		check(DRIVER(call), #call); \
		end(name_of(#call), asked, expected, 0, (const void *)(size_t)(address)); \
	} while (0)
	VMM(cuMemAddressReserve(&at, size, 0, 0, 0), 0, "none", at);
	VMM(cuMemCreate(&handle, size, &prop, 0), size, "device", handle);
	VMM(cuMemMap(at, size, 0, handle, 0), 0, "device", at);
	VMM(cuMemRelease(handle), 0, "device", handle); // still mapped: nothing comes back
	VMM(cuMemUnmap(at, size), 0, "device", at);
	VMM(cuMemAddressFree(at, size), 0, "none", at);
}

int main()
{
	void *warm, *left;
	CHECK(cudaFree(0));
	CHECK(cudaDeviceGetDefaultMemPool(&pools[0], 0));
	cudaMemPoolProps props = {};
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	CHECK(cudaMemPoolCreate(&pools[1], &props));
	CHECK(cudaMalloc(&warm, 1));
	CHECK(cudaFree(warm));
	CHECK(cudaDeviceSynchronize());
	free_before = free_now(), reserved_before = reserved_now();
	mark("start", 0);

	linear();
	arrays();
	host();
	ordered();
	mapped();

	// A reset takes everything back, also what was never freed. The context
	// that the next question makes is a new one.
	STEP(cudaMalloc(&left, 32 * MiB), 32 * MiB, "device", left);
	pools[0] = pools[1] = NULL;
	reserved_before = 0;
	STEP(cudaDeviceReset(), 0, "reset", NULL);
	return 0;
}
