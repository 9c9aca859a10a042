/* Addresses, sizes, arrays, host memory: rows of fake_test.h. */
#include "fake_test.h"

/* What each allocation takes from the device, one after the other. */
static void granularity(void)
{
	static const struct {
		uint64_t size;
		long long takes;
	} rows[] = {
		{3 * MIB, 4 * MIB}, {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {1 * MIB + 1, 2 * MIB},
		{1, 2 * MIB}, /* opens a chunk */
		{1000, 0},    {512 * KIB, 0}, {1 * MIB, 0}, {600 * KIB, 2 * MIB}, {300 * KIB, 0},
	};
	enum { N = sizeof rows / sizeof *rows };
	CUdeviceptr p[N];
	begin(0);
	long long full = free_now(), before = full;

	for (int i = 0; i < N; i++) {
		OK(cuMemAlloc_v2(&p[i], rows[i].size));
		EQUAL(before - free_now(), rows[i].takes);
		EQUAL(p[i] % 512, 0);
		before = free_now();
	}
	for (int i = 0; i < N; i++)
		OK(cuMemFree_v2(p[i]));
	EQUAL(free_now(), full);

	size_t pitch;
	OK(cuMemAllocPitch_v2(&p[0], &pitch, 1000, 1000, 4));
	EQUAL(pitch, 1024);
	EQUAL(full - free_now(), 2 * MIB);
	EQUAL(cuMemAllocPitch_v2(&p[1], &pitch, 1000, 1000, 3), 1);
	EQUAL(cuMemAlloc_v2(&p[1], 0), 1);
	EQUAL(cuMemAlloc_v2(NULL, 1), 1);
	EQUAL(cuMemAlloc_v2(&p[1], SIZE_MAX), 2);
	EQUAL(cuMemAllocPitch_v2(&p[1], &pitch, SIZE_MAX / 2, SIZE_MAX / 2, 4), 2);
}

/* What is freed in a full chunk is found again, though a search has failed there. */
static void chunk_refilled(void)
{
	CUdeviceptr p[4], q, r;

	begin(0);
	long long full = free_now();
	for (int i = 0; i < 4; i++)
		OK(cuMemAlloc_v2(&p[i], 512 * KIB));
	OK(cuMemAlloc_v2(&q, 1));
	EQUAL(full - free_now(), 4 * MIB);
	OK(cuMemFree_v2(p[1]));
	OK(cuMemAlloc_v2(&r, 1 * MIB));
	CHECK(r != p[1]);
	OK(cuMemFree_v2(p[2]));
	OK(cuMemFree_v2(r));
	OK(cuMemAlloc_v2(&r, 1 * MIB));
	CHECK(r == p[1]);
	EQUAL(full - free_now(), 4 * MIB);
}

static void *take_one(void *ctx)
{
	CUdeviceptr p = 0;

	if (cuCtxSetCurrent(ctx) || cuMemAlloc_v2(&p, 5 * MIB))
		return NULL;
	return (void *)(uintptr_t)p;
}

/* A freed address comes back at once, on another thread too. */
static void reuse(void)
{
	CUcontext ctx = begin(0);
	CUdeviceptr p, q;
	pthread_t t;
	void *got;

	for (uint64_t size = 1; size <= 64 * MIB; size *= 4) {
		OK(cuMemAlloc_v2(&p, size));
		OK(cuMemFree_v2(p));
		OK(cuMemAlloc_v2(&q, size));
		CHECK(p == q);
		OK(cuMemFree_v2(q));
	}
	OK(cuMemAlloc_v2(&p, 5 * MIB));
	OK(cuMemFree_v2(p));
	OK(pthread_create(&t, NULL, take_one, ctx));
	OK(pthread_join(t, &got));
	CHECK((CUdeviceptr)(uintptr_t)got == p);
	OK(cuMemFree_v2(p));
}

/* Random calls against a list of what must be live: no two blocks overlap, each
 * knows its range from its first byte to its last, and the device gets all back.
 * The device is so small that it is often full. */
static void random_calls(void)
{
	enum { MOST = 400 };
	struct {
		CUdeviceptr p;
		uint64_t size;
	} live[MOST];
	int n = 0, full_times = 0;
	uint64_t rng = 88172645463325252ull;
	CUdeviceptr base;
	size_t size;

	begin(0);
	long long full = free_now();
	for (int i = 0; i < 60000; i++) {
		rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
		if (n < MOST && rng % 16 < 9) {
			CUdeviceptr p;
			uint64_t want = 1 + (rng >> 20) % (1ull << (8 + (rng >> 8) % 17));
			int res = rng % 5 ? cuMemAlloc_v2(&p, want) : cuMemAllocAsync(&p, want, NULL);

			if (res == 2) {
				full_times++;
				continue;
			}
			OK(res);
			for (int k = 0; k < n; k++)
				CHECK(p + want <= live[k].p || live[k].p + live[k].size <= p);
			live[n].p = p;
			live[n++].size = want;
		} else if (n > 0) {
			int k = (int)((rng >> 16) % (uint64_t)n);

			OK(cuMemGetAddressRange_v2(&base, &size, live[k].p + live[k].size - 1));
			CHECK(base == live[k].p && size == live[k].size);
			if (live[k].size > 1)
				EQUAL(cuMemFree_v2(live[k].p + 1), 1);
			OK(rng % 3 ? cuMemFree_v2(live[k].p) : cuMemFreeAsync(live[k].p, NULL));
			EQUAL(cuMemFree_v2(live[k].p), 1);
			EQUAL(cuMemGetAddressRange_v2(&base, &size, live[k].p), 500);
			live[k] = live[--n];
		}
	}
	CHECK(full_times > 100);
	while (n)
		OK(cuMemFree_v2(live[--n].p));
	OK(cuCtxSynchronize());
	EQUAL(free_now(), full);
}

static void until_full(void)
{
	CUdeviceptr p[512];
	int n = 0;

	begin(0);
	long long full = free_now();
	EQUAL(full, 1020 * MIB - 100 * MIB);
	while (cuMemAlloc_v2(&p[n], 2 * MIB) == 0)
		n++;
	EQUAL(n, 460);
	EQUAL(free_now(), 0);
	EQUAL(cuMemAlloc_v2(&p[n], 1), 2);
	EQUAL(cuMemAllocAsync(&p[n], 1, NULL), 2);
	OK(cuMemFree_v2(p[17]));
	EQUAL(cuMemAlloc_v2(&p[n], 2 * MIB + 1), 2);
	OK(cuMemAlloc_v2(&p[n], 1));
	CHECK(p[n] == p[17]);
	/* Memory that costs the device nothing is still there. */
	OK(cuMemAllocManaged(&p[17], 64 * MIB, 1));
}

#define WRITES 20000
static _Atomic int broken;

/* Blocks of real memory hold the name of the thread that owns them: if one were
 * handed out twice, a name would change under its owner. */
static void *scribble(void *arg)
{
	uint64_t name = (uintptr_t)arg, rng = name * 0x9e3779b97f4a7c15ull;
	uint64_t *block[32] = {0}, words[32] = {0};
	CUcontext ctx;

	if (cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx))
		broken = 1;
	for (int i = 0; i < WRITES && !broken; i++) {
		rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
		int k = rng % 32;

		if (block[k]) {
			if (block[k][0] != name || block[k][words[k] - 1] != name || cuMemFreeHost(block[k]))
				broken = 1;
			block[k] = NULL;
		} else {
			words[k] = 1 + (rng >> 32) % 512;
			if (cuMemHostAlloc((void **)&block[k], words[k] * 8, 0)) {
				broken = 1;
				break;
			}
			block[k][0] = block[k][words[k] - 1] = name;
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[4];

	begin(0);
	for (int i = 0; i < 4; i++)
		OK(pthread_create(&t[i], NULL, scribble, (void *)(uintptr_t)(i + 1)));
	for (int i = 0; i < 4; i++)
		OK(pthread_join(t[i], NULL));
	EQUAL(broken, 0);
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, 0x20, 1}, wrong = {16, 16, 0x77, 1};
	CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 64, 0x10, 4, 0}, later = {1000, 10, 0, 0x01, 1, 0x80};
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUarray a, b, c;
	CUmipmappedArray m;

	begin(0);
	long long full = free_now();
	OK(cuArrayCreate_v2(&a, &flat));
	EQUAL(full - free_now(), 4 * MIB);
	EQUAL(cuArrayGetMemoryRequirements(&need, a, 0), 1);
	OK(cuArray3DCreate_v2(&b, &deep));
	EQUAL(full - free_now(), 6 * MIB);
	OK(cuArray3DCreate_v2(&c, &later));
	EQUAL(full - free_now(), 6 * MIB);
	OK(cuArrayGetMemoryRequirements(&need, c, 0));
	EQUAL(need.size, 65536);
	OK(cuMipmappedArrayCreate(&m, &deep, 3));
	EQUAL(full - free_now(), 10 * MIB); /* 64³, 32³ and 16³ of 8 bytes */
	EQUAL(cuArrayDestroy(m), 400);
	OK(cuMipmappedArrayDestroy(m));
	OK(cuMipmappedArrayCreate(&m, &deep, 0)); /* one level at least */
	EQUAL(full - free_now(), 8 * MIB);
	OK(cuMipmappedArrayDestroy(m));
	OK(cuMipmappedArrayCreate(&m, &deep, 99)); /* down to a single texel */
	EQUAL(full - free_now(), 10 * MIB);
	OK(cuMipmappedArrayDestroy(m));
	EQUAL(cuArrayCreate_v2(&m, &wrong), 1);
	OK(cuArrayDestroy(a));
	EQUAL(cuArrayDestroy(a), 400);
	OK(cuArrayDestroy(c));
	EQUAL(full - free_now(), 2 * MIB);
	OK(cuDevicePrimaryCtxReset_v2(0));
	begin(0);
	EQUAL(free_now(), full);
	EQUAL(cuArrayDestroy(b), 400);
}

static void host_memory(void)
{
	unsigned type;
	void *a, *b, *none = &type, *own = aligned_alloc(4096, 65536);
	CUdeviceptr m;
	int ordinal;

	begin(1);
	long long full = free_now();
	OK(cuMemAllocHost_v2(&a, 10 * MIB));
	OK(cuMemHostAlloc(&b, 100, 7));
	EQUAL(cuMemHostAlloc(&b, 100, 8), 1);
	OK(cuMemHostAlloc(&none, 0, 0));
	EQUAL(none == NULL, 1);
	memset(a, 1, 10 * MIB);
	memset(b, 1, 100);
	OK(cuMemAllocManaged(&m, 3 * MIB, 1));
	memset((void *)(uintptr_t)m, 1, 3 * MIB);
	EQUAL(cuMemAllocManaged(&m, MIB, 0), 1);
	EQUAL(free_now(), full);
	OK(cuPointerGetAttribute(&type, 2, (uintptr_t)a + 5));
	EQUAL(type, 1);
	OK(cuPointerGetAttribute(&ordinal, 9, m));
	EQUAL(ordinal, 1);
	EQUAL(cuMemFree_v2((uintptr_t)a), 1);
	EQUAL(cuMemFreeHost((void *)(uintptr_t)m), 1);
	OK(cuMemFreeHost(a));
	EQUAL(cuMemFreeHost(a), 1);
	OK(cuMemFree_v2(m));

	OK(cuMemHostRegister_v2(own, 65536, 0));
	EQUAL(cuMemHostRegister_v2((char *)own + 4096, 4096, 0), 712);
	OK(cuPointerGetAttribute(&ordinal, 9, (uintptr_t)own + 65535));
	EQUAL(ordinal, 1);
	EQUAL(cuPointerGetAttribute(&ordinal, 9, (uintptr_t)own + 65536), 1);
	OK(cuMemHostUnregister(own));
	EQUAL(cuMemHostUnregister(own), 713);
	free(own);
}

/* The interface of before CUDA 3.2, which the real library still exports. */
static void narrow_pointers(void)
{
	CUcontext primary = begin(0), mine;
	uint32_t p, q;
	long long full = free_now();

	OK(cuMemAlloc(&p, 3000000));
	EQUAL(full - free_now(), 4 * MIB);
	EQUAL(cuMemFree_v2(p), 1);
	OK(cuMemFree(p));
	EQUAL(cuMemFree(p), 1);
	EQUAL(free_now(), full);
	OK(cuCtxCreate_v2(&mine, 0, 1));
	OK(cuMemAlloc(&q, 1));
	OK(cuCtxDestroy_v2(mine));
	OK(cuCtxSetCurrent(primary));
	EQUAL(cuMemFree(q), 1);
}

static void checked_copies(void)
{
	CUdeviceptr p;

	begin(0);
	OK(cuMemAlloc_v2(&p, 1000));
	OK(cuMemsetD8_v2(p, 0, 1000));
	OK(cuMemcpyHtoD_v2(p + 999, &p, 1));
	EQUAL(cuMemcpyHtoD_v2(p + 999, &p, 2), 1);
	EQUAL(cuMemcpyHtoD_v2(p, NULL, 2), 1);
	EQUAL(cuMemsetD8_v2(0x1000, 0, 1), 1);
	OK(cuMemFree_v2(p));
	EQUAL(cuMemsetD8_v2(p, 0, 1), 1);
}

const struct row memory_rows[] = {
	{"granularity", "", granularity},
	{"chunk-refilled", "", chunk_refilled},
	{"address-reuse", "", reuse},
	{"random-calls", "GPUREC_SIM_MEMORY=200MiB GPUREC_SIM_CONTEXT_BYTES=10MiB", random_calls},
	{"until-full", "GPUREC_SIM_MEMORY=1GiB GPUREC_SIM_CONTEXT_BYTES=100MiB", until_full},
	{"threads", "", threads},
	{"arrays", "", arrays},
	{"host-memory", "", host_memory},
	{"narrow-pointers", "", narrow_pointers},
	{"checked-copies", "", checked_copies},
	{0},
};
