/*
 * array.c - the wrappers of CUDA arrays.
 */
#include "call.h"

/* ---- arrays ------------------------------------------------------------------------------------ */

struct array2 {
	size_t width, height;
	int32_t format;
	uint32_t channels;
};
/* Before CUDA 3.2 sizes had 32 bits. */
struct array2_v1 {
	uint32_t width, height;
	int32_t format;
	uint32_t channels;
};
struct array3_v1 {
	uint32_t width, height, depth;
	int32_t format;
	uint32_t channels, flags;
};
#define NONE ((struct array3){0}) /* of a call without a description, which the driver refuses */
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

/* What the texels take. The driver pads more. */
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

/* At least one level, whatever is asked for, and none below a single texel. */
int64_t call_array_size(const struct array3 *a, unsigned levels)
{
	size_t sum = 0, longest = a->width > a->height ? a->width : a->height;
	if (a->flags & (SPARSE | DEFERRED)) /* memory comes later, mapped */
		return 0;
	if (!(a->flags & (LAYERED | CUBEMAP)) && a->depth > longest)
		longest = a->depth;
	unsigned i = 0;
	do
		sum += texels(a, i++);
	while (i < levels && longest >> i);
	return (int64_t)sum;
}

/* CUDA_ARRAY_MEMORY_REQUIREMENTS. */
struct requirements {
	size_t size, alignment;
	uint32_t reserved[4];
};

static bool array_begin(struct call *c, unsigned api, struct array3 a, unsigned levels)
{
	if (!call_begin(c, api, 0, call_array_size(&a, levels)))
		return false;
	call_go(c);
	return true;
}

/* The array's true size, where the driver says it; by its documentation it does
 * of deferred arrays only, and those take nothing yet. Else the estimate stands. */
static CUresult array_took(struct call *c, CUresult status, void *const *out, bool mipmapped)
{
	if (!call_back(c))
		return status;
	if (status == SUCCESS)
		c->r.e.b = (uintptr_t)*out;
	if (status == SUCCESS && c->r.e.size > 0) {
		CUresult (*ask)(void *, void *, CUdevice) =
			mipmapped ? gpurec_asked.cuMipmappedArrayGetMemoryRequirements : gpurec_asked.cuArrayGetMemoryRequirements;
		struct requirements r = {0};
		CUdevice device;
		if (ask && call_may_ask() && gpurec_asked.cuCtxGetDevice && gpurec_asked.cuCtxGetDevice(&device) == SUCCESS &&
		    ask(&r, *out, device) == SUCCESS && r.size > 0)
			c->r.e.size = (int64_t)r.size;
		else
			c->r.e.flags |= GPUREC_FLAG_ESTIMATE;
	}
	call_tell(c, status);
	call_end(c);
	return status;
}

static CUresult array_create(unsigned api, CUresult (*real)(void **, const struct array2 *), void **out, const struct array2 *d)
{
	struct call c;
	if (!array_begin(&c, api, d ? (struct array3){d->width, d->height, 0, d->format, d->channels, 0} : NONE, 1))
		return real(out, d);
	return array_took(&c, real(out, d), out, false);
}
WRAP(cuArrayCreate_v2, (void **out, const struct array2 *d), array_create, out, d)

static CUresult array3_create(unsigned api, CUresult (*real)(void **, const struct array3 *), void **out, const struct array3 *d)
{
	struct call c;
	if (!array_begin(&c, api, d ? *d : NONE, 1))
		return real(out, d);
	return array_took(&c, real(out, d), out, false);
}
WRAP(cuArray3DCreate_v2, (void **out, const struct array3 *d), array3_create, out, d)

static CUresult array_create_v1(unsigned api, CUresult (*real)(void **, const struct array2_v1 *), void **out, const struct array2_v1 *d)
{
	struct call c;
	if (!array_begin(&c, api, d ? (struct array3){d->width, d->height, 0, d->format, d->channels, 0} : NONE, 1))
		return real(out, d);
	return array_took(&c, real(out, d), out, false);
}
WRAP(cuArrayCreate, (void **out, const struct array2_v1 *d), array_create_v1, out, d)

static CUresult array3_create_v1(unsigned api, CUresult (*real)(void **, const struct array3_v1 *), void **out, const struct array3_v1 *d)
{
	struct call c;
	if (!array_begin(&c, api, d ? (struct array3){d->width, d->height, d->depth, d->format, d->channels, d->flags} : NONE, 1))
		return real(out, d);
	return array_took(&c, real(out, d), out, false);
}
WRAP(cuArray3DCreate, (void **out, const struct array3_v1 *d), array3_create_v1, out, d)

static CUresult mipmapped_create(unsigned api, CUresult (*real)(void **, const struct array3 *, unsigned), void **out,
                                 const struct array3 *d, unsigned levels)
{
	struct call c;
	if (!array_begin(&c, api, d ? *d : NONE, levels))
		return real(out, d, levels);
	return array_took(&c, real(out, d, levels), out, true);
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
