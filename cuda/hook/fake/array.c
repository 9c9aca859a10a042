/* Arrays of the simulated driver: see driver.h. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_ALIGN 65536
#define SPARSE 0x40
#define DEFERRED_MAPPING 0x80

struct array {
	_Atomic uint32_t live;
	bool mipmapped;
	unsigned flags;
	uint64_t bytes;
	int dev;
	CUdeviceptr addr; /* 0: nothing taken, its memory is mapped later */
};

/* element_bytes of an array format, 0 if it is unknown. */
static unsigned element_bytes(int format)
{
	switch (format) {
	case 0x01: case 0x08: /* 8-bit integers */
		return 1;
	case 0x02: case 0x09: case 0x10: /* 16-bit integers, half */
		return 2;
	case 0x03: case 0x0a: case 0x20: /* 32-bit integers, float */
		return 4;
	}
	return 0;
}

/* array_bytes of one level, 0 if the description is wrong or too large. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
	uint64_t w = d->width >> level, h = d->height >> level, z = d->depth >> level, bytes;
	unsigned elem = element_bytes(d->format);

	if (d->width == 0 || !elem || (d->channels != 1 && d->channels != 2 && d->channels != 4))
		return 0;
	w += w == 0;
	h += h == 0;
	z += z == 0;
	if (__builtin_mul_overflow(w, h, &bytes) || __builtin_mul_overflow(bytes, z, &bytes) ||
	    __builtin_mul_overflow(bytes, elem * d->channels, &bytes))
		return 0;
	return bytes;
}

static CUresult array_create(void **out, uint64_t bytes, unsigned flags, bool mipmapped)
{
	CUcontext handle;
	struct context *c;
	struct block *b = NULL;

	TRY(current_context(&handle, &c));
	TRY(capture_unsafe());
	if (!out || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *dev = &driver.dev[c->dev];
	pthread_mutex_lock(&driver.lock);
	struct array *a = table_take(&driver.arrays, sizeof *a, out);
	if (a) {
		a->mipmapped = mipmapped;
		a->flags = flags;
		a->bytes = bytes;
		a->dev = c->dev;
		if (!(flags & (SPARSE | DEFERRED_MAPPING))) {
			pthread_mutex_lock(&dev->heap.lock);
			b = device_alloc(dev, bytes, KIND_ARRAY);
			if (b) {
				b->ctx = handle;
				b->dev = (uint8_t)c->dev;
				b->owner = *out;
				a->addr = b->addr;
			}
			pthread_mutex_unlock(&dev->heap.lock);
			if (!b) {
				table_give(&driver.arrays, *out);
				a = NULL;
			}
		}
	}
	pthread_mutex_unlock(&driver.lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult array_destroy(void *handle, bool mipmapped)
{
	CUresult res = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&driver.lock);
	struct array *a = table_get(&driver.arrays, handle);
	if (a && a->mipmapped == mipmapped) {
		struct heap *h = &driver.dev[a->dev].heap;

		if (a->addr) {
			pthread_mutex_lock(&h->lock);
			heap_free(h, heap_find(h, a->addr));
			pthread_mutex_unlock(&h->lock);
		}
		table_give(&driver.arrays, handle);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* Only arrays whose memory is mapped later tell what they need, as documented; with
 * GPUREC_SIM_ARRAYS=tell all do, as a driver might. */
static CUresult array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, void *handle, CUdevice d, bool mipmapped)
{
	struct array *a = table_get(&driver.arrays, handle);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (d < 0 || d >= driver.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!a || a->mipmapped != mipmapped)
		return CUDA_ERROR_INVALID_HANDLE;
	const char *tell = getenv("GPUREC_SIM_ARRAYS");
	if (!(a->flags & DEFERRED_MAPPING) && !(tell && strcmp(tell, "tell") == 0))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
		.size = (a->bytes + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN,
		.alignment = ARRAY_ALIGN,
	};
	return CUDA_SUCCESS;
}

API(cuArrayCreate_v2, (CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR d3 = {d->width, d->height, 0, d->format, d->channels, 0};
	return array_create(out, array_bytes(&d3, 0), 0, false);
}

API(cuArrayCreate, (CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR d3 = {d->width, d->height, 0, d->format, d->channels, 0};
	return array_create(out, array_bytes(&d3, 0), 0, false);
}

API(cuArray3DCreate, (CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR d3 = {d->width, d->height, d->depth, d->format, d->channels, d->flags};
	return array_create(out, array_bytes(&d3, 0), d->flags, false);
}

API(cuArray3DCreate_v2, (CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d))
{
	ENTER();
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	return array_create(out, array_bytes(d, 0), d->flags, false);
}

API(cuArrayDestroy, (CUarray a))
{
	ENTER();
	return array_destroy(a, false);
}

API(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray a, CUdevice d))
{
	ENTER();
	return array_requirements(out, a, d, false);
}

API(cuMipmappedArrayCreate, (CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels))
{
	ENTER();
	uint64_t bytes = 0;

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	/* What is asked for is clamped to what there can be. */
	uint64_t longest = d->width > d->height ? d->width : d->height;
	if (d->depth > longest)
		longest = d->depth;
	for (unsigned level = 0; level == 0 || (level < levels && longest >> level); level++) {
		uint64_t n = array_bytes(d, level);

		if (n == 0 || __builtin_add_overflow(bytes, n, &bytes))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return array_create(out, bytes, d->flags, true);
}

API(cuMipmappedArrayDestroy, (CUmipmappedArray a))
{
	ENTER();
	return array_destroy(a, true);
}

API(cuMipmappedArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray a, CUdevice d))
{
	ENTER();
	return array_requirements(out, a, d, true);
}

CUresult array_over(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return array_create(out, array_bytes(d, 0), DEFERRED_MAPPING, true);
}

bool array_known(const void *handle)
{
	return table_get(&driver.arrays, handle) != NULL;
}
