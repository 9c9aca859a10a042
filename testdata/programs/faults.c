/*
 * faults.c - frees that a recorder gets wrong: refused ones, ones through
 * another family of functions, from another thread, or while another device is
 * current.
 *
 * Shows: a refused free leaves the block live (case A9 of the cases), a free
 * is matched to its allocation across families (A5), and its device is that of
 * the allocation, not the current one (A4).
 *
 * Build: cc -O2 -o faults faults.c -lpthread -ldl
 * Run:   ./faults       with two devices, the second is used as well
 *
 * Prints one line a step: what was done, the status, the one expected. Exit: 0;
 * 1 if one differs. At the end 3 MiB are still allocated on device 0, one block.
 */
#define _GNU_SOURCE
#include "door.h"

#include <pthread.h>

#define MIB (1ull << 20)

static void *context[2];
static int wrong;

static void step(const char *what, int got, int expected)
{
	printf("%s\t%d\t%d\n", what, got, expected);
	wrong |= got != expected;
}

struct handed {
	CUdeviceptr p;
	int status;
};

static void *free_there(void *arg)
{
	struct handed *h = arg;

	h->status = cu.CtxSetCurrent(context[0]);
	if (!h->status)
		h->status = cu.MemFree(h->p);
	return NULL;
}

/* A9. The driver refuses; what was live stays live. */
static void refused(void)
{
	CUdeviceptr p, kept;

	step("cuMemAlloc 1 MiB", cu.MemAlloc(&p, MIB), 0);
	step("cuMemAlloc 3 MiB, kept", cu.MemAlloc(&kept, 3 * MIB), 0);
	step("cuMemFree", cu.MemFree(p), 0);
	step("cuMemFree again", cu.MemFree(p), 1);
	step("cuMemFree of an address never seen", cu.MemFree(0x1000), 1);
	step("cuMemFree inside a block", cu.MemFree(kept + MIB), 1);
	step("cuMemFreeHost of a device block", cu.MemFreeHost((void *)(uintptr_t)kept), 1);
}

/* A5. */
static void across_families(void)
{
	CUdeviceptr p;
	void *host;

	step("cuMemAllocAsync 5 MiB", cu.MemAllocAsync(&p, 5 * MIB, NULL), 0);
	step("cuMemFree of it", cu.MemFree(p), 0);
	step("cuMemAlloc 2 MiB", cu.MemAlloc(&p, 2 * MIB), 0);
	step("cuMemFreeAsync of it", cu.MemFreeAsync(p, NULL), 0);
	step("cuMemFreeAsync of it again", cu.MemFreeAsync(p, NULL), 1);
	step("cuMemHostAlloc 1 MiB", cu.MemHostAlloc(&host, MIB, 0), 0);
	step("cuMemFree of it", cu.MemFree((uintptr_t)host), 1);
	step("cuMemFreeHost of it", cu.MemFreeHost(host), 0);
	step("cuCtxSynchronize", cu.CtxSynchronize(), 0);
}

static void other_thread(void)
{
	struct handed h;
	pthread_t t;

	step("cuMemAlloc 4 MiB", cu.MemAlloc(&h.p, 4 * MIB), 0);
	step("pthread_create", pthread_create(&t, NULL, free_there, &h), 0);
	pthread_join(t, NULL);
	step("cuMemFree on another thread", h.status, 0);
	step("cuMemFree again on this one", cu.MemFree(h.p), 1);
}

/* A4. */
static void other_device(void)
{
	CUdeviceptr p, q;

	step("cuMemAllocAsync 8 MiB on device 0", cu.MemAllocAsync(&p, 8 * MIB, NULL), 0);
	step("cuMemAlloc 6 MiB on device 0", cu.MemAlloc(&q, 6 * MIB), 0);
	step("cuCtxSetCurrent to device 1", cu.CtxSetCurrent(context[1]), 0);
	step("cuMemFreeAsync of device 0's", cu.MemFreeAsync(p, NULL), 0);
	step("cuMemFree of device 0's", cu.MemFree(q), 0);
	step("cuMemAlloc 1 MiB on device 1", cu.MemAlloc(&p, MIB), 0);
	step("cuCtxSetCurrent to device 0", cu.CtxSetCurrent(context[0]), 0);
	step("cuMemFree of device 1's", cu.MemFree(p), 0);
	step("cuCtxSynchronize", cu.CtxSynchronize(), 0);
}

int main(void)
{
	int devices;

	if (door_open("procaddress", 0))
		return 1;
	need("cuInit", cu.Init(0));
	need("cuDeviceGetCount", cu.DeviceGetCount(&devices));
	for (int d = 0; d < devices && d < 2; d++)
		need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&context[d], d));
	step("cuMemFree without a context", cu.MemFree(0x1000), 201);
	need("cuCtxSetCurrent", cu.CtxSetCurrent(context[0]));
	refused();
	across_families();
	other_thread();
	if (devices > 1)
		other_device();
	if (wrong)
		fprintf(stderr, "faults: a status differs from the one expected\n");
	return wrong;
}
