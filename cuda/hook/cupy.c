/* CuPy's pool: what CuPy tells a MemoryHook, in the words of gpurec.h.
 *
 * cuda/python/gpurec/_cupy.py registers these functions as the callbacks of a
 * hook of CuPy's, so they run inside the allocation, on its thread, with the
 * interpreter's lock held. CuPy gives no status: an address or an id of 0 says
 * that it failed, and the driver's own events say why.
 *
 * Built on the public API alone. */

#include <stdint.h>
#include <time.h>

#include "gpurec.h"
#include "wire.h"

#define EXPORT __attribute__((visibility("default")))
#define OPEN_MAX 4 /* a pool over a pool is 2 */
#define STATUS_UNKNOWN (-1)

/* The mallocs this thread is in. CuPy calls no end for a malloc at whose begin
 * another hook raised, so an entry can be left behind. It is known by where on
 * the stack it was made: a malloc inside another is always further down. */
static __thread struct {
	uint32_t depth;
	struct {
		const char *frame;
		int64_t since;
	} open[OPEN_MAX];
} cupy __attribute__((tls_model("initial-exec")));

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

EXPORT void gpurec_cupy_malloc_begin(int32_t device, int64_t size, int64_t rounded, int32_t skip)
{
	const char *here = __builtin_frame_address(0);
	(void)device, (void)size, (void)rounded, (void)skip;

	while (cupy.depth && cupy.depth <= OPEN_MAX && cupy.open[cupy.depth - 1].frame <= here) {
		cupy.depth--;
		gpurec_pool_leave();
	}
	if (cupy.depth < OPEN_MAX) {
		cupy.open[cupy.depth].frame = here;
		cupy.open[cupy.depth].since = now();
	}
	cupy.depth++;
	gpurec_pool_enter();
}

EXPORT void gpurec_cupy_malloc(int32_t device, int64_t size, int64_t rounded, uint64_t address, uint64_t object,
                                   int32_t skip)
{
	int64_t duration = -1;
	uint32_t flags = 0;

	if (cupy.depth) { /* 0 when the hook was registered inside this malloc */
		cupy.depth--;
		if (cupy.depth < OPEN_MAX)
			duration = now() - cupy.open[cupy.depth].since;
		if (cupy.depth)
			flags |= GPUREC_FLAG_NESTED;
		gpurec_pool_leave();
	}
	/* A malloc of 0 bytes that succeeded has an id and no address. */
	gpurec_pool_alloc(GPUREC_API_CUPY, device, address, object, size, rounded, duration, object ? 0 : STATUS_UNKNOWN,
	                  flags, skip);
}

EXPORT void gpurec_cupy_alloc(int32_t device, int64_t rounded, uint64_t address, int32_t skip)
{
	gpurec_pool_alloc(GPUREC_API_CUPY_ALLOC, device, address, 0, rounded, rounded, -1, address ? 0 : STATUS_UNKNOWN,
	                  GPUREC_FLAG_ECHO, skip);
}

EXPORT void gpurec_cupy_free(int32_t device, int64_t rounded, uint64_t address, uint64_t object, int32_t skip)
{
	(void)rounded; /* the allocation's own, in replay */
	gpurec_pool_free(GPUREC_API_CUPY, device, address, object, skip);
}
