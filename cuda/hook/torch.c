/*
 * torch.c - PyTorch's caching allocator reports every block it hands out or
 * takes back to c10::reportMemoryUsageToProfiler, an exported function of
 * libc10.so, and we stand in front of that (PyTorch 1.10 and later).
 *
 * It calls under the allocator's lock. So nothing here may take the
 * interpreter's lock, allocate through PyTorch, ask the driver or wait. The lock
 * gives the order too: a block's free is reported before the block can be handed
 * out again.
 */
#include "hook.h"

#include <dlfcn.h>

/* The parameters' types changed over the versions, and with them the mangled
 * names, but not their registers: one function has all the names. c10::Device is
 * two bytes, the type and the index, in one register. */
typedef void report_fn(void *block, int64_t size, uint64_t allocated, uint64_t reserved, uint16_t device);
typedef void oom_fn(int64_t size, uint64_t allocated, uint64_t reserved, uint16_t device);

#define REPORT_2_X "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define REPORT_1_10 "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define OOM_2_X "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#define OOM_1_13 "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"
#define OOM_DEV "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE"

EXPORT report_fn report_2_x __asm__(REPORT_2_X);
EXPORT report_fn report_1_10 __asm__(REPORT_1_10) __attribute__((alias(REPORT_2_X)));
EXPORT oom_fn oom_2_x __asm__(OOM_2_X);
EXPORT oom_fn oom_1_13 __asm__(OOM_1_13) __attribute__((alias(OOM_2_X)));
EXPORT oom_fn oom_dev __asm__(OOM_DEV) __attribute__((alias(OOM_2_X)));

enum { DEVICE_CUDA = 1 };

static void *real_report, *real_oom;
static void find(void **to, void *libc10, const char *const *names)
{
	void *p = NULL;
	for (; p == NULL && *names != NULL; names++)
		p = gpurec_dlsym(libc10, *names);
	if (p != NULL)
		__atomic_store_n(to, p, __ATOMIC_RELEASE);
}

/* Python opens libc10.so without RTLD_GLOBAL, where RTLD_NEXT does not find it;
 * by its name a library that is there already is found wherever it lies. Done at
 * the start and at look-ups, and never in a report: it takes the loader's lock,
 * whose owner may be waiting for PyTorch's. */
void gpurec_torch_find(void)
{
	static const char *const reports[] = {REPORT_2_X, REPORT_1_10, NULL};
	static const char *const ooms[] = {OOM_2_X, OOM_1_13, OOM_DEV, NULL};
	static bool looked; /* and found what there is */
	void *libc10 = __atomic_load_n(&looked, __ATOMIC_ACQUIRE) ? NULL : gpurec_dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
	if (libc10 == NULL)
		return;
	find(&real_report, libc10, reports);
	find(&real_oom, libc10, ooms);
	__atomic_store_n(&looked, true, __ATOMIC_RELEASE);
}

static inline void *real(void **which) { return __atomic_load_n(which, __ATOMIC_ACQUIRE); }

/* Inlined, so that what a kind decides is decided by the compiler. */
static inline __attribute__((always_inline)) void record(unsigned kind, unsigned api, void *block, int64_t size, uint64_t allocated, uint64_t reserved, uint16_t device)
{
	if ((device & 0xff) != DEVICE_CUDA)
		return;
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	bool alloc = kind == GPUREC_KIND_ALLOC;
	int16_t where = gpurec_device(t, (int8_t)(device >> 8), false);
	uint64_t stack = gpurec_stack(t, 0, false);
	struct record *r = gpurec_record(t, 1, alloc);
	r->e = (gpurec_event){
		.kind = (uint8_t)kind,
		.layer = GPUREC_LAYER_POOL,
		.class = GPUREC_CLASS_DEVICE,
		.flags = alloc && gpurec_tls.pool > 0 ? GPUREC_FLAG_NESTED : 0,
		.api = (uint16_t)api,
		.device = where,
		.stack = stack,
		.address = (uintptr_t)block,
		.size = size,
		.a = (int64_t)allocated,
		.b = reserved,
	};
	gpurec_publish(t, r, 1);
	gpurec_leave();
}

void report_2_x(void *block, int64_t size, uint64_t allocated, uint64_t reserved, uint16_t device)
{
	if (size > 0)
		record(GPUREC_KIND_ALLOC, GPUREC_API_TORCH, block, size, allocated, reserved, device);
	else if (size < 0)
		record(GPUREC_KIND_FREE, GPUREC_API_TORCH, block, -1, allocated, reserved, device);
	void *p = real(&real_report);
	report_fn *f;
	memcpy(&f, &p, sizeof p);
	if (f)
		f(block, size, allocated, reserved, device);
}

void oom_2_x(int64_t size, uint64_t allocated, uint64_t reserved, uint16_t device)
{
	record(GPUREC_KIND_ALLOC_FAILED, GPUREC_API_TORCH_OOM, NULL, size, allocated, reserved, device);
	void *p = real(&real_oom);
	oom_fn *f;
	memcpy(&f, &p, sizeof p);
	if (f)
		f(size, allocated, reserved, device);
}
