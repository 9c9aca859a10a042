/* Pools, handles and their mappings: rows of fake_test.h. */
#include "fake_test.h"

static uint64_t attribute(CUmemoryPool pool, int attr)
{
	uint64_t v = 0;

	OK(cuMemPoolGetAttribute(pool, attr, &v));
	return v;
}

static void pools(void)
{
	CUmemPoolProps props = {.alloc_type = 1, .location = {CU_LOCATION_DEVICE, 0}};
	CUmemoryPool pool, mine, got;
	CUdeviceptr a, b, c;
	uint64_t keep = 64 * MIB, zero = 0;

	begin(0);
	long long full = free_now();
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&a, 0, NULL));
	EQUAL(a, 0);
	OK(cuMemAllocAsync(&a, 5 * MIB, NULL));
	EQUAL(full - free_now(), 32 * MIB);
	OK(cuMemAllocAsync_ptsz(&b, 6 * MIB, NULL));
	EQUAL(full - free_now(), 32 * MIB);
	EQUAL(attribute(pool, CU_POOL_USED_CURRENT), 11 * MIB);
	EQUAL(attribute(pool, CU_POOL_RESERVED_CURRENT), 32 * MIB);
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemFree_v2(b));
	EQUAL(cuMemFreeAsync(a, NULL), 1);
	EQUAL(full - free_now(), 32 * MIB);
	EQUAL(attribute(pool, CU_POOL_USED_CURRENT), 0);
	EQUAL(attribute(pool, CU_POOL_USED_HIGH), 11 * MIB);
	OK(cuStreamSynchronize(NULL));
	EQUAL(free_now(), full);
	EQUAL(attribute(pool, CU_POOL_RESERVED_CURRENT), 0);
	EQUAL(attribute(pool, CU_POOL_RESERVED_HIGH), 32 * MIB);
	OK(cuMemPoolSetAttribute(pool, CU_POOL_USED_HIGH, &zero));
	EQUAL(attribute(pool, CU_POOL_USED_HIGH), 0);
	EQUAL(cuMemPoolSetAttribute(pool, CU_POOL_USED_HIGH, &keep), 1);
	EQUAL(cuMemPoolSetAttribute(pool, CU_POOL_USED_CURRENT, &zero), 1);

	/* Up to the threshold the reserve stays. */
	OK(cuMemPoolSetAttribute(pool, CU_POOL_RELEASE_THRESHOLD, &keep));
	OK(cuMemAllocAsync(&a, 40 * MIB, NULL));
	OK(cuMemAllocAsync(&b, 50 * MIB, NULL));
	EQUAL(full - free_now(), 128 * MIB);
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemFreeAsync(b, NULL));
	OK(cuCtxSynchronize());
	EQUAL(full - free_now(), 64 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	EQUAL(free_now(), full);

	/* A pool of one's own, destroyed while a block is out. */
	OK(cuMemPoolCreate(&mine, &props));
	OK(cuDeviceSetMemPool(0, mine));
	EQUAL(cuDeviceSetMemPool(1, mine), 1);
	OK(cuMemAllocAsync(&a, MIB, NULL));
	OK(cuMemAllocFromPoolAsync(&b, MIB, mine, NULL));
	EQUAL(attribute(mine, CU_POOL_USED_CURRENT), 2 * MIB);
	OK(cuPointerGetAttribute(&got, 17, a));
	CHECK(got == mine);
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemPoolDestroy(mine));
	EQUAL(cuMemPoolDestroy(mine), 1);
	EQUAL(cuMemPoolDestroy(pool), 1);
	EQUAL(cuMemAllocFromPoolAsync(&c, MIB, mine, NULL), 1);
	OK(cuDeviceGetMemPool(&got, 0));
	CHECK(got == pool);
	EQUAL(full - free_now(), 32 * MIB);
	OK(cuMemFreeAsync(b, NULL));
	EQUAL(free_now(), full);

	/* A limit holds. */
	props.max_size = 32 * MIB;
	OK(cuMemPoolCreate(&mine, &props));
	OK(cuMemAllocFromPoolAsync(&a, 20 * MIB, mine, NULL));
	EQUAL(cuMemAllocFromPoolAsync(&b, 20 * MIB, mine, NULL), 2);
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemAllocFromPoolAsync(&b, 32 * MIB, mine, NULL));

	/* Unused reserve is taken back before a call is refused. */
	OK(cuMemAllocAsync(&a, 400 * MIB, NULL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemAlloc_v2(&a, 700 * MIB));

	props.location.type = 5; /* invisible */
	EQUAL(cuMemPoolCreate(&mine, &props), 801);
	/* A pool of host memory takes none of the device. */
	long long before = free_now();
	props.location.type = CU_LOCATION_HOST;
	props.max_size = 0;
	OK(cuMemPoolCreate(&mine, &props));
	OK(cuMemAllocFromPoolAsync(&a, 20 * MIB, mine, NULL));
	EQUAL(before - free_now(), 0);
	OK(cuMemFree_v2(a));
}

static void virtual_memory(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_LOCATION_DEVICE, 0}, 3};
	CUdeviceptr va, other;
	CUhandle h, again, k;

	begin(0);
	long long full = free_now();
	OK(cuMemAddressReserve(&va, 40 * MIB, 0, 0, 0));
	EQUAL(cuMemAddressReserve(&other, MIB, 0, 0, 0), 1);
	OK(cuMemAddressReserve(&other, 2 * MIB, 1ull << 30, 0, 0));
	EQUAL(other % (1ull << 30), 0);
	OK(cuMemAddressFree(other, 2 * MIB));
	EQUAL(cuMemCreate(&h, 3 * MIB, &prop, 0), 1);
	OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
	EQUAL(full - free_now(), 4 * MIB);
	EQUAL(cuMemMap(va + 38 * MIB, 4 * MIB, 0, h, 0), 1);
	EQUAL(cuMemMap(va, 6 * MIB, 0, h, 0), 1);
	OK(cuMemMap(va, 4 * MIB, 0, h, 0));
	EQUAL(cuMemMap(va + 2 * MIB, 2 * MIB, 0, h, 0), 1);
	EQUAL(cuMemsetD8_v2(va, 0, 1), 1);
	EQUAL(cuMemSetAccess(va, 6 * MIB, &access, 1), 1);
	OK(cuMemSetAccess(va, 4 * MIB, &access, 1));
	OK(cuMemsetD8_v2(va, 0, 4 * MIB));
	EQUAL(cuMemsetD8_v2(va, 0, 4 * MIB + 1), 1);
	EQUAL(cuMemFree_v2(va), 1);

	/* Gone when the last reference and the last mapping are. */
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + MIB)));
	CHECK(again == h);
	OK(cuMemRelease(h));
	OK(cuMemRelease(h));
	EQUAL(cuMemRelease(h), 1);
	EQUAL(full - free_now(), 4 * MIB);
	OK(cuMemCreate(&k, 2 * MIB, &prop, 0));
	CHECK(k != h);
	OK(cuMemMap(va + 4 * MIB, 2 * MIB, 0, k, 0));
	EQUAL(cuMemUnmap(va, 2 * MIB), 1);
	EQUAL(cuMemUnmap(va + 2 * MIB, 4 * MIB), 1);
	EQUAL(cuMemAddressFree(va, 40 * MIB), 1);
	OK(cuMemUnmap(va, 6 * MIB)); /* two mappings at once */
	EQUAL(full - free_now(), 2 * MIB);
	OK(cuMemUnmap(va, 6 * MIB)); /* nothing is mapped there: the real driver finds no fault */
	OK(cuMemRelease(k));
	EQUAL(free_now(), full);
	EQUAL(cuMemAddressFree(va, 38 * MIB), 1);
	OK(cuMemAddressFree(va, 40 * MIB));
	EQUAL(cuMemAddressFree(va, 40 * MIB), 1);

	/* A dead handle's number comes back. */
	OK(cuMemCreate(&h, 2 * MIB, &prop, 0));
	CHECK(h == k);
	prop.location.type = CU_LOCATION_HOST;
	OK(cuMemCreate(&k, 2 * MIB, &prop, 0));
	EQUAL(full - free_now(), 2 * MIB);
	prop.location.type = 5;
	EQUAL(cuMemCreate(&k, 2 * MIB, &prop, 0), 1);
	prop.location = (CUmemLocation){CU_LOCATION_DEVICE, 2};
	EQUAL(cuMemCreate(&k, 2 * MIB, &prop, 0), 101);
	prop.location.id = 0;
	EQUAL(cuMemCreate(&k, 1ull << 50, &prop, 0), 2);
	OK(cuDevicePrimaryCtxReset_v2(0));
	begin(0);
	EQUAL(free_now(), full);
}

const struct row reserve_rows[] = {
	{"pools", "GPUREC_SIM_MEMORY=1GiB GPUREC_SIM_CONTEXT_BYTES=100MiB", pools},
	{"virtual-memory", "", virtual_memory},
	{0},
};
