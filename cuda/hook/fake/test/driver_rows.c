/* Initialisation, contexts, doors, streams: rows of fake_test.h. */
#include "fake_test.h"

static void before_init(void)
{
	CUdeviceptr p;
	int n = 0;
	void *f;

	EQUAL(cuMemAlloc_v2(&p, 1), 3);
	EQUAL(cuDeviceGetCount(&n), 3);
	EQUAL(cuCtxGetDevice(&n), 3);
	EQUAL(cuMemFree_v2(0), 3);
	OK(cuDriverGetVersion(&n));
	EQUAL(n, 13000);
	OK(cuGetProcAddress("cuMemAlloc", &f, 12000, 0));
	EQUAL(cuInit(1), 1);
	OK(cuInit(0));
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	EQUAL(n, 2);
}

static void without_context(void)
{
	CUdeviceptr p;
	CUdevice d;
	CUcontext ctx;
	void *host;

	OK(cuInit(0));
	EQUAL(cuMemAlloc_v2(&p, 1), 201);
	EQUAL(cuMemFree_v2(0x1000), 201);
	EQUAL(cuMemAllocAsync(&p, 1, NULL), 201);
	EQUAL(cuMemHostAlloc(&host, 1, 0), 201);
	EQUAL(cuMemGetInfo_v2(NULL, NULL), 201);
	EQUAL(cuCtxGetDevice(&d), 201);
	OK(cuCtxGetCurrent(&ctx));
	CHECK(ctx == NULL);
	EQUAL(cuCtxPopCurrent_v2(&ctx), 201);
	begin(1);
	OK(cuCtxGetDevice(&d));
	EQUAL(d, 1);
	OK(cuMemGetInfo_v2(NULL, NULL));
	OK(cuCtxSetCurrent(NULL));
	EQUAL(cuCtxGetDevice(&d), 201);
}

static void contexts(void)
{
	CUcontext primary = begin(0), mine, got;
	CUdeviceptr a, b;
	CUdevice d;
	long long full = free_now(), third;

	OK(cuMemAlloc_v2(&a, 3 * MIB));
	OK(cuCtxCreate_v4(&mine, NULL, 0, 0));
	OK(cuMemAlloc_v2(&b, 5 * MIB));
	/* A second context on a device costs nothing more. */
	EQUAL(full - free_now(), 10 * MIB);
	OK(cuCtxDestroy_v2(mine));
	OK(cuCtxGetCurrent(&got));
	CHECK(got == primary);
	EQUAL(full - free_now(), 4 * MIB);
	EQUAL(cuMemFree_v2(b), 1);
	EQUAL(cuCtxDestroy_v2(mine), 201);
	EQUAL(cuCtxDestroy_v2(primary), 201);

	/* Destroyed while it is below another one on the stack. */
	OK(cuCtxCreate_v2(&mine, 0, 1));
	OK(cuCtxPushCurrent_v2(primary));
	OK(cuCtxDestroy_v2(mine));
	OK(cuCtxPopCurrent_v2(&got));
	EQUAL(cuMemAlloc_v2(&b, 1), 709);
	OK(cuCtxPopCurrent_v2(&got));
	OK(cuCtxGetDevice(&d));
	EQUAL(d, 0);
	third = free_now();
	EQUAL(full - third, 4 * MIB);
}

static void primary_context(void)
{
	CUcontext first = begin(0), second;
	CUdeviceptr p;
	unsigned flags;
	int active;
	long long full = free_now();

	OK(cuDevicePrimaryCtxRetain(&second, 0));
	CHECK(first == second);
	OK(cuMemAlloc_v2(&p, 100 * MIB));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQUAL(full - free_now(), 100 * MIB);
	OK(cuDevicePrimaryCtxReset_v2(0));
	EQUAL(cuMemFree_v2(p), 709);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EQUAL(active, 0);
	begin(0);
	EQUAL(free_now(), full);
	EQUAL(cuMemFree_v2(p), 1);
	OK(cuMemAlloc_v2(&p, 100 * MIB));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQUAL(cuDevicePrimaryCtxRelease_v2(0), 201);
	EQUAL(cuMemFree_v2(p), 709);
}

static void overhead(void)
{
	size_t total, left;
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuDeviceTotalMem_v2(&total, 0));
	EQUAL(total, 1020 * MIB); /* 1 GiB less what NVML calls reserved */
	begin(0);
	OK(cuMemGetInfo_v2(&left, NULL));
	EQUAL(total - left, 100 * MIB);
	EQUAL(cuDevicePrimaryCtxRetain(&ctx, 1), 2); /* 64 MiB device */
}

static void *proc(const char *name, int version, int flags)
{
	void *p = NULL;
	int status = -1;

	OK(cuGetProcAddress_v2(name, &p, version, (uint64_t)flags, &status));
	EQUAL(status, 0);
	return p;
}

static void doors(void)
{
	static const struct {
		const char *name;
		int version, flags;
		const char *exported;
	} rows[] = {
		{"cuMemAlloc", 3019, 0, "cuMemAlloc"},
		{"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
		{"cuMemAlloc", 13000, 1, "cuMemAlloc_v2"},
		{"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
		{"cuMemFree", 12000, 0, "cuMemFree_v2"},
		{"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"},
		{"cuMemAllocAsync", 11020, 1, "cuMemAllocAsync"},
		{"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"},
		{"cuMemFreeAsync", 13000, 2, "cuMemFreeAsync_ptsz"},
		{"cuMemAllocFromPoolAsync", 12000, 2, "cuMemAllocFromPoolAsync_ptsz"},
		{"cuStreamSynchronize", 6000, 2, "cuStreamSynchronize"},
		{"cuStreamSynchronize", 7000, 2, "cuStreamSynchronize_ptsz"},
		{"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
		{"cuCtxCreate", 2000, 0, "cuCtxCreate"},
		{"cuCtxCreate", 11039, 0, "cuCtxCreate_v2"},
		{"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
		{"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
		{"cuDevicePrimaryCtxReset", 10000, 0, "cuDevicePrimaryCtxReset"},
		{"cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2"},
		{"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"},
		{"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
		{"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
	};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *p;
	int status;

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		void *want = dlsym(lib, rows[i].exported);

		if (!want || proc(rows[i].name, rows[i].version, rows[i].flags) != want) {
			fprintf(stderr, "%s %d flags %d is not %s\n", rows[i].name, rows[i].version, rows[i].flags,
				rows[i].exported);
			exit(1);
		}
	}
	CHECK(dlsym(lib, "cuMemAllocAsync") != dlsym(lib, "cuMemAllocAsync_ptsz"));
	EQUAL(cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, &status), 500);
	EQUAL(status, 1);
	CHECK(p == NULL);
	EQUAL(cuGetProcAddress_v2("cuMemAlloc_v2", &p, 13000, 0, &status), 500);
	EQUAL(cuGetProcAddress_v2("cuMemAllocAsync", &p, 11010, 0, &status), 500);
	EQUAL(status, 2);
	EQUAL(cuGetProcAddress("cuMemAllocAsync", &p, 11010, 0), 500);
	EQUAL(cuGetProcAddress_v2("cuMemAlloc", &p, 13001, 0, &status), 1);
	EQUAL(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, 3, &status), 1);
	EQUAL(cuGetProcAddress_v2(NULL, &p, 13000, 0, &status), 1);
	/* Nothing but the interface can be seen. */
	CHECK(dlsym(lib, "heap_alloc") == NULL && dlsym(lib, "driver") == NULL && dlsym(lib, "sim_used") == NULL);
}

/* Exported by this program, and so in front of the library's. */
__attribute__((visibility("default"))) CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	(void)out, (void)p, (void)flags;
	return 12345;
}

static void interposed(void)
{
	CUresult (*real)(CUdeviceptr *, void *, unsigned);
	CUdeviceptr p;
	void *host;

	CHECK(dlsym(RTLD_DEFAULT, "cuMemHostGetDevicePointer_v2") == (void *)cuMemHostGetDevicePointer_v2);
	real = (CUresult(*)(CUdeviceptr *, void *, unsigned))proc("cuMemHostGetDevicePointer", 13000, 0);
	CHECK(real != cuMemHostGetDevicePointer_v2);
	begin(0);
	OK(cuMemAllocHost_v2(&host, 4096));
	OK(real(&p, host, 0));
	CHECK(p == (uintptr_t)host);
}

static void capture(void)
{
	CUcontext ctx = begin(0), got;
	CUstream s, other;
	CUgraph graph;
	CUmemoryPool pool;
	CUdeviceptr p, q;
	CUdevice d;
	uint64_t used;
	int status;
	long long full = free_now();

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuStreamCreate(&s, 1));
	OK(cuStreamCreate(&other, 0));
	OK(cuStreamGetCtx(s, &got));
	CHECK(got == ctx);
	OK(cuStreamGetDevice(s, &d));

	/* What a capture forbids, in GLOBAL mode and of any thread. */
	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL));
	EQUAL(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL), 1);
	OK(cuStreamIsCapturing(s, &status));
	EQUAL(status, 1);
	OK(cuCtxGetDevice(&d));
	EQUAL(cuStreamGetDevice(other, &d), 900);
	OK(cuStreamIsCapturing(s, &status));
	EQUAL(status, 2);
	EQUAL(cuMemAllocAsync(&p, MIB, s), 901);
	EQUAL(cuStreamEndCapture(s, &graph), 901);
	CHECK(graph == NULL);
	OK(cuStreamIsCapturing(s, &status));
	EQUAL(status, 0);

	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL));
	EQUAL(cuMemPoolGetAttribute(pool, CU_POOL_USED_CURRENT, &used), 900);
	EQUAL(cuStreamEndCapture(s, &graph), 901);
	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL));
	EQUAL(cuMemAlloc_v2(&p, MIB), 900);
	EQUAL(cuStreamEndCapture(s, &graph), 901);

	/* What it allows. */
	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_RELAXED));
	OK(cuMemAlloc_v2(&p, MIB));
	OK(cuMemPoolGetAttribute(pool, CU_POOL_USED_CURRENT, &used));
	OK(cuMemFree_v2(p));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphDestroy(graph));

	/* Memory of a graph is an address until it runs. */
	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL));
	OK(cuMemAllocAsync(&p, 100 * MIB, s));
	OK(cuMemAllocAsync(&q, MIB, s));
	EQUAL(free_now(), full);
	OK(cuPointerGetAttribute(&d, 9, p));
	OK(cuMemFreeAsync(p, s));
	EQUAL(cuMemFreeAsync(p, s), 1);
	EQUAL(cuMemFreeAsync(0x1000, s), 1);
	OK(cuStreamEndCapture(s, &graph));
	EQUAL(cuStreamEndCapture(s, &graph), 1);
	OK(cuStreamBeginCapture_v2(s, CU_CAPTURE_GLOBAL));
	OK(cuStreamDestroy_v2(s));
	EQUAL(cuStreamDestroy_v2(s), 400);
	EQUAL(cuMemAllocAsync(&p, MIB, s), 400);
	/* No capture is left that could forbid anything. */
	OK(cuStreamGetDevice(other, &d));
	EQUAL(cuStreamBeginCapture_v2(NULL, CU_CAPTURE_GLOBAL), 900);
}

static void injected_failures(void)
{
	CUdeviceptr p, q;

	begin(0);
	OK(cuMemAlloc_v2(&p, MIB));
	OK(cuMemAlloc_v2(&q, MIB));
	OK(cuMemFree_v2(q));
	long long before = free_now();
	EQUAL(cuMemFree_v2(p), 719);
	EQUAL(free_now(), before);
	OK(cuMemFree_v2(p));
	EQUAL(cuMemAllocManaged(&p, MIB, 1), 2);
	EQUAL(cuMemAllocManaged(&p, MIB, 1), 2);
}

static void slow_calls(void)
{
	CUdeviceptr p;
	struct timespec from, to;

	begin(0);
	OK(cuMemAlloc_v2(&p, MIB));
	clock_gettime(CLOCK_MONOTONIC, &from);
	OK(cuMemFree_v2(p));
	clock_gettime(CLOCK_MONOTONIC, &to);
	CHECK((to.tv_sec - from.tv_sec) * 1000000000ll + to.tv_nsec - from.tv_nsec >= 20000000);
	EQUAL(cuMemFree_v2(p), 1);
}

static void bad_config(void)
{
	EQUAL(cuInit(0), 1);
}

static void error_texts(void)
{
	const char *text;

	OK(cuGetErrorName(2, &text));
	CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	EQUAL(cuGetErrorName(123456, &text), 1);
	CHECK(text == NULL);
}

const struct row driver_rows[] = {
	{"before-init", "", before_init},
	{"without-context", "", without_context},
	{"contexts", "", contexts},
	{"primary-context", "", primary_context},
	{"context-overhead", "GPUREC_SIM_MEMORY=1GiB,64MiB GPUREC_SIM_CONTEXT_BYTES=100MiB", overhead},
	{"doors", "", doors},
	{"interposed", "", interposed},
	{"capture", "", capture},
	{"injected-failures", "GPUREC_SIM_FAIL=cuMemFree_v2:719@2,cuMemAllocManaged:2", injected_failures},
	{"slow-calls", "GPUREC_SIM_FAIL=cuMemFree_v2+20000", slow_calls},
	{"bad-memory-suffix", "GPUREC_SIM_MEMORY=12XB", bad_config},
	{"bad-memory-list", "GPUREC_SIM_MEMORY=1GiB,", bad_config},
	{"bad-memory-surplus", "GPUREC_SIM_DEVICES=1 GPUREC_SIM_MEMORY=1GiB,2GiB", bad_config},
	{"bad-device-count", "GPUREC_SIM_DEVICES=17", bad_config},
	{"bad-context-bytes", "GPUREC_SIM_CONTEXT_BYTES=-1", bad_config},
	{"bad-addresses", "GPUREC_SIM_ADDRESSES=1MiB", bad_config},
	{"error-texts", "", error_texts},
	{0},
};
