/*
 * entry_memory.h - entry.c's cases of memory: linear, pinned, stream-ordered,
 * mapped, arrays, and that of another process.
 */
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
