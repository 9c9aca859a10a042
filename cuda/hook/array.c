/*
 * array.c - the wrappers of CUDA arrays, and of what destroys a CUcontext with
 * all that is in it.
 */
#include "call.h"

/* ---- arrays ------------------------------------------------------------------------------------ */

struct array2 {
	size_t width, height;
	int32_t format;
	uint32_t channels;
};
struct array3 {
	size_t width, height, depth;
	int32_t format;
	uint32_t channels, flags;
};
enum { SPARSE = 0x40, DEFERRED = 0x80, LAYERED = 0x1, CUBEMAP = 0x4 };

/* Bytes of 16 texels, to keep whole numbers: CUarray_format says what a channel
 * has, or, in block-compressed formats, what all of them have together. */
static size_t sixteen_texels(int32_t format, size_t channels)
{
	switch (format) {
	case 0x02: case 0x09: case 0x10: /* 16-bit integers, half */
	case 0xc3: case 0xc4: case 0xc5: case 0xc9: case 0xca: case 0xcb: /* normalised ones */
		return 32 * channels;
	case 0x03: case 0x0a: case 0x20: /* 32-bit integers, float */
		return 64 * channels;
	case 0xb0: /* NV12 */
		return 24;
	case 0x91: case 0x92: case 0x97: case 0x98: /* BC1, BC4 */
		return 8;
	}
	return format >= 0x93 && format <= 0x9e ? 16 : 16 * channels;
}

/* What the texels take. The driver pads more than it says: it tells the true
 * size of deferred arrays only (cuArrayGetMemoryRequirements refuses others). */
static size_t texels(const struct array3 *a, unsigned level)
{
	size_t w = a->width >> level, h = a->height >> level, d = a->depth;
	if (!(a->flags & (LAYERED | CUBEMAP)))
		d >>= level;
	w = w ? w : 1;
	h = h ? h : 1;
	d = d ? d : 1;
	return w * h * d * sixteen_texels(a->format, a->channels ? a->channels : 1) / 16;
}

static int64_t array_size(const struct array3 *a, unsigned levels)
{
	size_t sum = 0;
	if (a->flags & (SPARSE | DEFERRED)) /* memory comes later, mapped */
		return 0;
	for (unsigned i = 0; i < levels && i < 64; i++)
		sum += texels(a, i);
	return (int64_t)sum;
}

static void array_took(struct call *c, CUresult status, void *const *out)
{
	c->r.e.flags |= GPUREC_FLAG_ESTIMATE;
	if (status == SUCCESS)
		c->r.e.b = (uintptr_t)*out;
	call_took(c, status);
}

static CUresult array_create(unsigned api, CUresult (*real)(void **, const struct array2 *), void **out, const struct array2 *d)
{
	struct call c;
	struct array3 a = {0};
	if (d)
		a = (struct array3){d->width, d->height, 0, d->format, d->channels, 0};
	if (!call_begin(&c, api, 0, array_size(&a, 1)))
		return real(out, d);
	call_go(&c);
	CUresult status = real(out, d);
	array_took(&c, status, out);
	return status;
}
WRAP(cuArrayCreate_v2, (void **out, const struct array2 *d), array_create, out, d)

static CUresult array3_create(unsigned api, CUresult (*real)(void **, const struct array3 *), void **out, const struct array3 *d)
{
	struct call c;
	struct array3 a = {0};
	if (d)
		a = *d;
	if (!call_begin(&c, api, 0, array_size(&a, 1)))
		return real(out, d);
	call_go(&c);
	CUresult status = real(out, d);
	array_took(&c, status, out);
	return status;
}
WRAP(cuArray3DCreate_v2, (void **out, const struct array3 *d), array3_create, out, d)

static CUresult mipmapped_create(unsigned api, CUresult (*real)(void **, const struct array3 *, unsigned), void **out,
                                 const struct array3 *d, unsigned levels)
{
	struct call c;
	struct array3 a = {0};
	if (d)
		a = *d;
	if (!call_begin(&c, api, 0, array_size(&a, levels)))
		return real(out, d, levels);
	call_go(&c);
	CUresult status = real(out, d, levels);
	array_took(&c, status, out);
	return status;
}
WRAP(cuMipmappedArrayCreate, (void **out, const struct array3 *d, unsigned levels), mipmapped_create, out, d, levels)

static CUresult array_destroy(unsigned api, CUresult (*real)(void *), void *array)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(array);
	c.r.e.b = (uintptr_t)array;
	call_give(&c);
	CUresult status = real(array);
	call_gave(&c, status);
	return status;
}
WRAP(cuArrayDestroy, (void *array), array_destroy, array)
WRAP(cuMipmappedArrayDestroy, (void *array), array_destroy, array)

/* ---- resets ---------------------------------------------------------------------------------------- */

static CUresult primary_reset(unsigned api, CUresult (*real)(CUdevice), CUdevice device)
{
	struct call c;
	if (!call_begin(&c, api, 0, -1))
		return real(device);
	c.r.e.device = gpurec_device(c.t, device, true);
	call_give(&c);
	CUresult status = real(device);
	call_gave(&c, status);
	return status;
}
WRAP(cuDevicePrimaryCtxReset, (CUdevice device), primary_reset, device)
WRAP(cuDevicePrimaryCtxReset_v2, (CUdevice device), primary_reset, device)

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
	c.err = errno;
	unsigned flags = 0;
	int active = 1;
	if (status == SUCCESS && gpurec_still(c.t) && gpurec_asked.cuDevicePrimaryCtxGetState &&
	    gpurec_asked.cuDevicePrimaryCtxGetState(device, &flags, &active) == SUCCESS && active == 0) {
		c.r.e.device = gpurec_device(c.t, device, true);
		c.r.e.a = -1;
		gpurec_publish_copy(c.t, &c.r, 2, 0);
	}
	call_end(&c);
	return status;
}
WRAP(cuDevicePrimaryCtxRelease, (CUdevice device), primary_release, device)
WRAP(cuDevicePrimaryCtxRelease_v2, (CUdevice device), primary_release, device)

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
