/*
 * context.c - the wrappers of what destroys a CUcontext with all that is in it,
 * and of checkpoints.
 */
#include "call.h"

static CUresult primary_reset(unsigned api, CUresult (*real)(CUdevice), CUdevice device)
{
	struct call c;
	unsigned flags;
	int is;
	if (gpurec_asked.cuDevicePrimaryCtxGetState && gpurec_asked.cuDevicePrimaryCtxGetState(device, &flags, &is) != SUCCESS)
		return real(device); /* there is no such device */
	if (!call_begin(&c, api, 0, -1))
		return real(device);
	c.r.e.device = gpurec_device(c.t, device, true);
	call_give(&c);
	CUresult status = real(device);
	if (status == SUCCESS)
		call_reserves_end(device);
	call_gave(&c, status);
	return status;
}
WRAP(cuDevicePrimaryCtxReset, (CUdevice device), primary_reset, device)
WRAP(cuDevicePrimaryCtxReset_v2, (CUdevice device), primary_reset, device)

/* Whether the primary CUcontext of a device is there. */
static bool active(CUdevice device)
{
	unsigned flags = 0;
	int is = 1;
	return gpurec_asked.cuDevicePrimaryCtxGetState == NULL ||
	       gpurec_asked.cuDevicePrimaryCtxGetState(device, &flags, &is) != SUCCESS || is != 0;
}

static void reset(struct call *c, CUdevice device)
{
	call_reserves_end(device);
	c->r.e.device = gpurec_device(c->t, device, true);
	c->r.e.a = -1;
	gpurec_publish_copy(c->t, &c->r, 2, 0);
}

/* Only the last release destroys the CUcontext and its memory, and only afterwards
 * does the driver say whether it was the last. So this one Reset is published after
 * its call; a wrong one before it would end allocations that live on. */
static CUresult primary_release(unsigned api, CUresult (*real)(CUdevice), CUdevice device)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(device);
	call_go(&c);
	CUresult status = real(device);
	if (!call_back(&c))
		return status;
	if (status == SUCCESS && gpurec_still(c.t) && !active(device))
		reset(&c, device);
	call_end(&c);
	return status;
}
WRAP(cuDevicePrimaryCtxRelease, (CUdevice device), primary_release, device)
WRAP(cuDevicePrimaryCtxRelease_v2, (CUdevice device), primary_release, device)

/* A green CUcontext holds a reference to the primary one of its device, whose
 * memory it uses. Which device that is nothing says: so it is seen by what ends. */
static CUresult green_destroy(unsigned api, CUresult (*real)(void *), void *green)
{
	struct call c;
	uint64_t before = 0;
	if (!call_begin(&c, api, 0, -1))
		return real(green);
	for (unsigned d = 0; d < 64; d++)
		if (c.t->devices >> d & 1 && active((CUdevice)d))
			before |= 1ull << d;
	call_go(&c);
	CUresult status = real(green);
	if (!call_back(&c))
		return status;
	for (unsigned d = 0; d < 64 && status == SUCCESS && gpurec_still(c.t); d++)
		if (before >> d & 1 && !active((CUdevice)d))
			reset(&c, (CUdevice)d);
	call_end(&c);
	return status;
}
WRAP(cuGreenCtxDestroy, (void *green), green_destroy, green)

static CUresult ctx_destroy(unsigned api, CUresult (*real)(void *), void *ctx)
{
	struct call c;
	if (ctx == NULL || !call_begin(&c, api, 0, -1))
		return real(ctx);
	call_where(&c); /* its device, where it is the current one */
	if (c.r.c.cuctx != (uintptr_t)ctx)
		c.r.e.device = -1;
	c.r.c.cuctx = (uintptr_t)ctx;
	call_give(&c);
	CUresult status = real(ctx);
	call_gave(&c, status);
	return status;
}
WRAP(cuCtxDestroy_v2, (void *ctx), ctx_destroy, ctx)
WRAP(cuCtxDestroy, (void *ctx), ctx_destroy, ctx)

/* The last use of a CUcontext destroys it, and then it is no more the current one. */
static CUresult ctx_detach(unsigned api, CUresult (*real)(void *), void *ctx)
{
	struct call c;
	void *current = ctx;
	if (ctx == NULL || !call_begin(&c, api, 0, -1))
		return real(ctx);
	call_where(&c);
	call_go(&c);
	CUresult status = real(ctx);
	if (!call_back(&c))
		return status;
	if (status == SUCCESS && gpurec_still(c.t) && c.r.c.cuctx == (uintptr_t)ctx && gpurec_asked.cuCtxGetCurrent &&
	    gpurec_asked.cuCtxGetCurrent(&current) == SUCCESS && current != ctx) {
		c.r.e.a = -1;
		gpurec_publish_copy(c.t, &c.r, 2, 0);
	}
	call_end(&c);
	return status;
}
WRAP(cuCtxDetach, (void *ctx), ctx_detach, ctx)

/* ---- checkpoints ------------------------------------------------------------------------------------- */

/* Moves all device memory of a process to the host, or back. What it moves is
 * live all the while, so that it is a Mark, of the process that asks. */
static CUresult checkpoint(unsigned api, CUresult (*real)(int, void *), int pid, void *args)
{
	CUresult status = real(pid, args);
	int err = errno;
	struct thread *t = status == SUCCESS && gpurec_tls.depth == 0 ? gpurec_enter() : NULL;
	if (t != NULL) {
		char text[64], digits[12];
		size_t n = strlen(gpurec_hooked[api].symbol), k = 0;
		memcpy(text, gpurec_hooked[api].symbol, n);
		memcpy(text + n, " of pid ", 8);
		n += 8;
		unsigned u = pid < 0 ? 0 : (unsigned)pid;
		do
			digits[k++] = (char)('0' + u % 10);
		while (u /= 10);
		while (k > 0)
			text[n++] = digits[--k];
		uint64_t name = gpurec_def_text(t, text, n, 0);
		struct record *r = gpurec_record(t, 1, false);
		r->s = (gpurec_scope){.kind = GPUREC_KIND_MARK, .device = -1, .name = name, .depth = -1};
		gpurec_publish(t, r, 1);
		gpurec_leave();
	}
	errno = err;
	return status;
}
WRAP(cuCheckpointProcessCheckpoint, (int pid, void *args), checkpoint, pid, args)
WRAP(cuCheckpointProcessRestore, (int pid, void *args), checkpoint, pid, args)
