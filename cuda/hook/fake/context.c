/* Contexts of the simulated driver: see driver.h. */
#include "driver.h"

#include <string.h>

#define STACK_DEPTH 64

static __thread struct {
	int n;
	CUcontext ctx[STACK_DEPTH];
} stack;

CUresult current_context(CUcontext *handle, struct context **ctx)
{
	if (stack.n == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUcontext h = stack.ctx[stack.n - 1];
	struct context *c = table_get(&driver.contexts, h);
	if (!c)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (handle)
		*handle = h;
	*ctx = c;
	return CUDA_SUCCESS;
}

static bool ordinal_ok(CUdevice d)
{
	return d >= 0 && d < driver.devices;
}

/* overhead_take pays for the first context of the process on a device,
 * overhead_return gives that back with the last one. Both want driver.lock. */
static CUresult overhead_take(struct device *dev)
{
	int64_t bytes = (int64_t)driver.config.context_bytes;

	if (dev->contexts == 0 && !device_charge(dev, bytes)) {
		pthread_mutex_lock(&dev->heap.lock);
		pools_trim(dev, true);
		pthread_mutex_unlock(&dev->heap.lock);
		if (!device_charge(dev, bytes))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	dev->contexts++;
	return CUDA_SUCCESS;
}

static void overhead_return(struct device *dev)
{
	if (--dev->contexts == 0)
		device_charge(dev, -(int64_t)driver.config.context_bytes);
}

static CUresult open_context(int ordinal, bool primary, CUcontext *out)
{
	TRY(overhead_take(&driver.dev[ordinal]));
	struct context *c = table_take(&driver.contexts, sizeof *c, out);
	if (!c) {
		overhead_return(&driver.dev[ordinal]);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->dev = ordinal;
	c->primary = primary;
	return CUDA_SUCCESS;
}

/* close_context ends a context and all that lives in it. Wants driver.lock. */
static void close_context(CUcontext h, struct context *c)
{
	struct device *dev = &driver.dev[c->dev];

	streams_drop(h);
	context_drop(h);
	if (c->primary) {
		/* Pools and handles belong to the device, not to a context,
		 * but the reset of a device takes them along. */
		pthread_mutex_lock(&dev->heap.lock);
		pools_drop(dev);
		pthread_mutex_unlock(&dev->heap.lock);
		vmm_drop(c->dev);
		graphs_trim(c->dev);
		dev->primary = NULL;
	}
	table_give(&driver.contexts, h);
	overhead_return(dev);
}

/* ---- primary contexts ---- */

API(cuDevicePrimaryCtxRetain, (CUcontext *out, CUdevice d))
{
	ENTER();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	struct device *dev = &driver.dev[d];
	CUresult res = CUDA_SUCCESS;

	pthread_mutex_lock(&driver.lock);
	if (!dev->primary)
		res = open_context(d, true, &dev->primary);
	if (!res) {
		dev->retains++;
		*out = dev->primary;
	}
	pthread_mutex_unlock(&driver.lock);
	return res;
}

static CUresult primary_release(CUdevice d)
{
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	struct device *dev = &driver.dev[d];
	CUresult res = CUDA_SUCCESS;

	pthread_mutex_lock(&driver.lock);
	if (dev->retains == 0)
		res = CUDA_ERROR_INVALID_CONTEXT;
	else if (--dev->retains == 0 && dev->primary)
		close_context(dev->primary, table_get(&driver.contexts, dev->primary));
	pthread_mutex_unlock(&driver.lock);
	return res;
}

/* A reset does not release: who retained the context before must still do so. */
static CUresult primary_reset(CUdevice d)
{
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	struct device *dev = &driver.dev[d];

	pthread_mutex_lock(&driver.lock);
	if (dev->primary)
		close_context(dev->primary, table_get(&driver.contexts, dev->primary));
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxRelease, (CUdevice d))
{
	ENTER();
	return primary_release(d);
}

API(cuDevicePrimaryCtxRelease_v2, (CUdevice d))
{
	ENTER();
	return primary_release(d);
}

API(cuDevicePrimaryCtxReset, (CUdevice d))
{
	ENTER();
	return primary_reset(d);
}

API(cuDevicePrimaryCtxReset_v2, (CUdevice d))
{
	ENTER();
	return primary_reset(d);
}

API(cuDevicePrimaryCtxGetState, (CUdevice d, unsigned *flags, int *active))
{
	ENTER();
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver.lock);
	*flags = 0;
	*active = driver.dev[d].primary != NULL;
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

/* ---- contexts of the program's own ---- */

static CUresult create(CUcontext *out, CUdevice d)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ordinal_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	if (stack.n == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&driver.lock);
	CUresult res = open_context(d, false, out);
	pthread_mutex_unlock(&driver.lock);
	if (!res)
		stack.ctx[stack.n++] = *out;
	return res;
}

API(cuCtxCreate, (CUcontext *out, unsigned flags, CUdevice d))
{
	ENTER();
	(void)flags;
	return create(out, d);
}

API(cuCtxCreate_v2, (CUcontext *out, unsigned flags, CUdevice d))
{
	ENTER();
	(void)flags;
	return create(out, d);
}

API(cuCtxCreate_v3, (CUcontext *out, void *params, int n, unsigned flags, CUdevice d))
{
	ENTER();
	(void)flags;
	if ((params == NULL) != (n == 0))
		return CUDA_ERROR_INVALID_VALUE;
	return create(out, d);
}

API(cuCtxCreate_v4, (CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice d))
{
	ENTER();
	(void)flags;
	if (params && (params->affinity == NULL) != (params->count == 0))
		return CUDA_ERROR_INVALID_VALUE;
	return create(out, d);
}

static CUresult destroy(CUcontext h)
{
	CUresult res = CUDA_ERROR_INVALID_CONTEXT;

	pthread_mutex_lock(&driver.lock);
	struct context *c = table_get(&driver.contexts, h);
	if (c && !c->primary) {
		close_context(h, c);
		res = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver.lock);
	/* Current on this thread: it is popped. On another: 709 from then on. */
	if (!res && stack.n && stack.ctx[stack.n - 1] == h)
		stack.n--;
	return res;
}

API(cuCtxDestroy, (CUcontext h))
{
	ENTER();
	return destroy(h);
}

API(cuCtxDestroy_v2, (CUcontext h))
{
	ENTER();
	return destroy(h);
}

/* Attached once, by its creation: the first detach destroys it. */
API(cuCtxDetach, (CUcontext h))
{
	ENTER();
	if (!h || !stack.n || stack.ctx[stack.n - 1] != h)
		return CUDA_ERROR_INVALID_CONTEXT;
	return destroy(h);
}

/* A green context is a reference to the primary one, whose memory it uses. */
API(cuGreenCtxCreate, (void **out, void *desc, CUdevice d, unsigned flags))
{
	ENTER();
	CUcontext primary;

	if (!out || flags != 1)
		return CUDA_ERROR_INVALID_VALUE;
	(void)desc;
	TRY(own_cuDevicePrimaryCtxRetain(&primary, d));
	*out = (void *)((uintptr_t)primary | 1);
	return CUDA_SUCCESS;
}

API(cuCtxFromGreenCtx, (CUcontext *out, void *green))
{
	ENTER();
	if (!out || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUcontext)((uintptr_t)green & ~(uintptr_t)1);
	return CUDA_SUCCESS;
}

API(cuGreenCtxDestroy, (void *green))
{
	ENTER();
	struct context *c = table_get(&driver.contexts, (void *)((uintptr_t)green & ~(uintptr_t)1));

	return c && (uintptr_t)green & 1 ? primary_release(c->dev) : CUDA_ERROR_INVALID_CONTEXT;
}

API(cuCtxSetCurrent, (CUcontext h))
{
	ENTER();
	if (!h) {
		stack.n -= stack.n > 0;
		return CUDA_SUCCESS;
	}
	if (!table_get(&driver.contexts, h))
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.n += stack.n == 0;
	stack.ctx[stack.n - 1] = h;
	return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (CUcontext *out))
{
	ENTER();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = stack.n ? stack.ctx[stack.n - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext h)
{
	if (!table_get(&driver.contexts, h))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.n == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.ctx[stack.n++] = h;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *out)
{
	if (stack.n == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.n--;
	if (out)
		*out = stack.ctx[stack.n];
	return CUDA_SUCCESS;
}

API(cuCtxPushCurrent, (CUcontext h))
{
	ENTER();
	return push(h);
}

API(cuCtxPushCurrent_v2, (CUcontext h))
{
	ENTER();
	return push(h);
}

API(cuCtxPopCurrent, (CUcontext *out))
{
	ENTER();
	return pop(out);
}

API(cuCtxPopCurrent_v2, (CUcontext *out))
{
	ENTER();
	return pop(out);
}

API(cuCtxGetDevice, (CUdevice *out))
{
	ENTER();
	struct context *c;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(current_context(NULL, &c));
	*out = c->dev;
	return CUDA_SUCCESS;
}

API(cuCtxSynchronize, (void))
{
	ENTER();
	struct context *c;

	TRY(current_context(NULL, &c));
	TRY(capture_unsafe());
	struct heap *heap = &driver.dev[c->dev].heap;
	pthread_mutex_lock(&heap->lock);
	pools_trim(&driver.dev[c->dev], false);
	pthread_mutex_unlock(&heap->lock);
	return CUDA_SUCCESS;
}
