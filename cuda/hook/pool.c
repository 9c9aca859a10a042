/*
 * pool.c - the wrappers of stream-ordered memory, what is known of its pools,
 * and reserves.
 *
 * A pool hands out blocks (layer pool) of what it keeps (its reserve, layer
 * driver). The reserve grows in calls that we see and shrinks mostly in others,
 * at a synchronisation. So it is asked: after an alloc, a trim, and after a
 * synchronisation that follows a free, there only of the devices' own pools,
 * which cannot be destroyed meanwhile.
 *
 * cuMemPoolGetAttribute invalidates a capture, whoever asks (tried on an H200).
 * Two things keep it from that: it is not asked while a capture may be open that
 * began through us, and the thread that asks has by then told the driver that it
 * means no capture harm (cuThreadExchangeStreamCaptureMode), which covers one
 * that begins just then.
 */
#include "call.h"

enum { RELAXED = 2 };
enum { POOL_RESERVED_CURRENT = 5, GRAPH_RESERVED_CURRENT = 2 };
enum { POINTER_MEMORY_TYPE = 2, POINTER_IS_MANAGED = 8, POINTER_ORDINAL = 9, POINTER_POOL = 17 };
enum { MEMORY_HOST = 1 };
enum { TYPE_MANAGED = 2, LOCATION_DEVICE = 1 };

/* ---- whether anything may be asked --------------------------------------------------- */

static int captures; /* streams that may capture now */

void call_capture(int by)
{
	if (__atomic_add_fetch(&captures, by, __ATOMIC_SEQ_CST) < 0)
		__atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST); /* ended without a begin of ours */
}

bool call_may_ask(void) { return __atomic_load_n(&captures, __ATOMIC_SEQ_CST) <= 0; }

/* ---- reserves ---------------------------------------------------------------------------- */

/*
 * A reserve in pieces, for the trace has Allocs and Frees and no "is now". It
 * shrinks from its youngest piece on. Whoever finds it taken leaves it: the next
 * one asks again.
 */
enum { PIECES = 32 };
struct reserve {
	uint8_t taken;
	uint64_t bytes;
	unsigned n;
	struct {
		uint64_t id, bytes, stack;
	} piece[PIECES];
};

static bool reserve_take(struct reserve *r) { return __atomic_exchange_n(&r->taken, 1, __ATOMIC_ACQUIRE) == 0; }
static void reserve_leave(struct reserve *r) { __atomic_store_n(&r->taken, 0, __ATOMIC_RELEASE); }

/* How a reserve's events look; the rest is its call's. */
struct what {
	uint16_t api;
	uint8_t class;
	int16_t device;
	uint64_t pool;
};

static bool piece_tell(struct call *c, const struct what *w, unsigned kind, uint64_t id, int64_t size, uint64_t stack)
{
	struct record r;
	memset(&r, 0, sizeof r);
	r.e.kind = (uint8_t)kind;
	r.e.layer = GPUREC_LAYER_DRIVER;
	r.e.class = w->class;
	r.e.api = w->api;
	r.e.device = w->device;
	r.e.stack = stack;
	r.e.size = r.e.a = size;
	r.e.b = id;
	r.c.duration = r.c.free = -1;
	r.c.pool = w->pool;
	return gpurec_publish_copy(c->t, &r, 2, 0);
}

static void grow(struct call *c, struct reserve *r, const struct what *w, uint64_t by, uint64_t stack)
{
	if (r->n == PIECES) { /* the youngest grows instead */
		if (!piece_tell(c, w, GPUREC_KIND_FREE, r->piece[r->n - 1].id, -1, c->r.e.stack))
			return;
		r->n--;
		r->bytes -= r->piece[r->n].bytes;
		by += r->piece[r->n].bytes;
	}
	uint64_t id = gpurec_unique();
	if (!piece_tell(c, w, GPUREC_KIND_ALLOC, id, (int64_t)by, stack))
		return; /* lost and counted; the next one says it */
	r->piece[r->n].id = id;
	r->piece[r->n].bytes = by;
	r->piece[r->n].stack = stack;
	r->n++;
	r->bytes += by;
}

/* Says by how much a reserve has changed. */
static void reserve_is(struct call *c, struct reserve *r, const struct what *w, uint64_t bytes)
{
	if (bytes > r->bytes)
		grow(c, r, w, bytes - r->bytes, c->r.e.stack);
	while (r->bytes > bytes && r->n > 0) {
		uint64_t had = r->piece[r->n - 1].bytes, stack = r->piece[r->n - 1].stack;
		if (!piece_tell(c, w, GPUREC_KIND_FREE, r->piece[r->n - 1].id, -1, c->r.e.stack))
			return;
		r->n--;
		r->bytes -= had;
		if (r->bytes < bytes) { /* a part of it stays, with whom it came by */
			grow(c, r, w, bytes - r->bytes, stack);
			return;
		}
	}
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* What is known of a pool. Its place is written before its handle, and stays. */
struct pool {
	uint64_t handle; /* 0: a free row */
	uint8_t layer, class;
	uint8_t own; /* OWN, OTHER, or not asked yet */
	int16_t ordinal;
	struct reserve reserve;
};
enum { OTHER = 1, OWN = 2 };
enum { POOLS = 64 };
static struct pool pools[POOLS];
static uint8_t pools_taken;
static uint8_t freed; /* something was freed since the last question */

void call_freed(void)
{
	if (!__atomic_load_n(&freed, __ATOMIC_RELAXED))
		__atomic_store_n(&freed, 1, __ATOMIC_RELAXED);
}

static struct pool *pool_find(uint64_t handle)
{
	for (unsigned i = 0; handle != 0 && i < POOLS; i++)
		if (__atomic_load_n(&pools[i].handle, __ATOMIC_ACQUIRE) == handle)
			return &pools[i];
	return NULL;
}

/* Writes a pool's row; where there is no room, or somebody writes one now, it goes without. */
static void pool_learn(uint64_t handle, uint8_t layer, uint8_t class, int ordinal)
{
	if (handle == 0 || __atomic_exchange_n(&pools_taken, 1, __ATOMIC_ACQUIRE) != 0)
		return;
	struct pool *p = pool_find(handle);
	for (unsigned i = 0; p == NULL && i < POOLS; i++) {
		if (pools[i].handle != 0 || !reserve_take(&pools[i].reserve))
			continue;
		p = &pools[i];
		p->layer = layer;
		p->class = class;
		p->ordinal = (int16_t)ordinal;
		p->own = ordinal < 0 ? OTHER : 0;
		p->reserve.n = 0;
		p->reserve.bytes = 0;
		__atomic_store_n(&p->handle, handle, __ATOMIC_RELEASE);
		reserve_leave(&p->reserve);
	}
	__atomic_store_n(&pools_taken, 0, __ATOMIC_RELEASE);
}

/* Whether it is the pool that its device has always: it cannot be destroyed. */
static bool pool_own(struct pool *p)
{
	void *own = NULL;
	if (p->own == 0 && call_may_ask() && gpurec_asked.cuDeviceGetDefaultMemPool &&
	    gpurec_asked.cuDeviceGetDefaultMemPool(&own, p->ordinal) == SUCCESS)
		p->own = (uintptr_t)own == p->handle ? OWN : OTHER;
	return p->own == OWN;
}

static struct what pool_what(struct call *c, const struct pool *p)
{
	return (struct what){GPUREC_API_POOL_RESERVE, GPUREC_CLASS_DEVICE, gpurec_device(c->t, p->ordinal, true), p->handle};
}

/* Asks what a pool of device memory keeps, and says what has changed. */
static void pool_ask(struct call *c, struct pool *p)
{
	if (p->class != GPUREC_CLASS_DEVICE || !gpurec_asked.cuMemPoolGetAttribute || !gpurec_asked.cuThreadExchangeStreamCaptureMode ||
	    !call_may_ask() || !gpurec_still(c->t) || !reserve_take(&p->reserve))
		return;
	int mode = RELAXED;
	uint64_t bytes = 0;
	if (gpurec_asked.cuThreadExchangeStreamCaptureMode(&mode) == SUCCESS) {
		CUresult status = gpurec_asked.cuMemPoolGetAttribute((void *)(uintptr_t)p->handle, POOL_RESERVED_CURRENT, &bytes);
		gpurec_asked.cuThreadExchangeStreamCaptureMode(&mode);
		struct what w = pool_what(c, p);
		if (status == SUCCESS)
			reserve_is(c, &p->reserve, &w, bytes);
	}
	reserve_leave(&p->reserve);
}

/* Where the block that was just taken lies: what its pool is of, asked of the
 * first block of each. cuPointerGetAttribute is legal in a capture. */
static struct pool *placed(struct call *c, CUdeviceptr p)
{
	CUresult (*ask)(void *, int, uint64_t) = gpurec_asked.cuPointerGetAttribute;
	if (ask == NULL || p == 0) /* a request for 0 bytes succeeds, with null */
		return pool_find(c->r.c.pool);
	if (c->r.c.pool == 0) {
		void *pool = NULL;
		if (ask(&pool, POINTER_POOL, p) == SUCCESS)
			c->r.c.pool = (uintptr_t)pool;
	}
	struct pool *known = pool_find(c->r.c.pool);
	if (known == NULL) {
		unsigned type = 0, managed = 0;
		int ordinal = -1;
		ask(&type, POINTER_MEMORY_TYPE, p);
		ask(&managed, POINTER_IS_MANAGED, p);
		if (ask(&ordinal, POINTER_ORDINAL, p) != SUCCESS)
			ordinal = -1;
		managed &= 1; /* it writes a byte, or four */
		bool host = type == MEMORY_HOST && !managed;
		uint8_t layer = host ? GPUREC_LAYER_HOST : GPUREC_LAYER_POOL;
		uint8_t class = managed ? GPUREC_CLASS_MANAGED : host ? GPUREC_CLASS_PINNED : GPUREC_CLASS_DEVICE;
		pool_learn(c->r.c.pool, layer, class, host ? -1 : ordinal);
		known = pool_find(c->r.c.pool);
		if (known == NULL) {
			c->r.e.layer = layer;
			c->r.e.class = class;
			c->r.e.device = gpurec_device(c->t, host ? -1 : ordinal, true);
		}
	}
	return known;
}

static void place(struct call *c, const struct pool *p)
{
	c->r.e.layer = p->layer;
	c->r.e.class = p->class;
	if (p->ordinal >= 0)
		c->r.e.device = gpurec_device(c->t, p->ordinal, true);
}

/* After the real call. */
static CUresult took_block(struct call *c, CUresult status, const CUdeviceptr *out)
{
	struct pool *p = NULL;
	if (!call_back(c))
		return status;
	c->r.e.address = status == SUCCESS ? *out : 0;
	bool captured = c->r.e.flags & GPUREC_FLAG_CAPTURED;
	if (status == SUCCESS && !captured && (p = placed(c, *out)) != NULL)
		place(c, p);
	if (p)
		pool_ask(c, p); /* first the reserve has grown, then the block was cut from it */
	call_tell(c, status);
	if (captured && status == SUCCESS)
		call_graph_memory(c->r.e.device);
	call_end(c);
	return status;
}

static bool per_thread(unsigned api)
{
	return api == API(cuMemAllocAsync_ptsz) || api == API(cuMemAllocFromPoolAsync_ptsz) || api == API(cuMemFreeAsync_ptsz);
}

static CUresult alloc_async(unsigned api, CUresult (*real)(CUdeviceptr *, size_t, void *), CUdeviceptr *out, size_t size, void *stream)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size, stream);
	call_captured(&c, stream, per_thread(api));
	call_go(&c);
	return took_block(&c, real(out, size, stream), out);
}
WRAP(cuMemAllocAsync, (CUdeviceptr * out, size_t size, void *stream), alloc_async, out, size, stream)
WRAP(cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t size, void *stream), alloc_async, out, size, stream)

static CUresult alloc_from_pool(unsigned api, CUresult (*real)(CUdeviceptr *, size_t, void *, void *), CUdeviceptr *out, size_t size,
                                void *pool, void *stream)
{
	struct call c;
	if (!call_begin(&c, api, 0, (int64_t)size))
		return real(out, size, pool, stream);
	c.r.c.pool = (uintptr_t)pool;
	struct pool *known = pool_find(c.r.c.pool);
	if (known) /* a refused request was for this kind of memory too */
		place(&c, known);
	call_captured(&c, stream, per_thread(api));
	call_go(&c);
	return took_block(&c, real(out, size, pool, stream), out);
}
WRAP(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t size, void *pool, void *stream), alloc_from_pool, out, size, pool, stream)
WRAP(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * out, size_t size, void *pool, void *stream), alloc_from_pool, out, size, pool, stream)

static CUresult free_async(unsigned api, CUresult (*real)(CUdeviceptr, void *), CUdeviceptr p, void *stream)
{
	struct call c;
	if (p == 0 || !call_begin(&c, api, p, -1))
		return real(p, stream);
	call_captured(&c, stream, per_thread(api));
	call_freed();
	call_give(&c);
	CUresult status = real(p, stream);
	call_gave(&c, status);
	return status;
}
WRAP(cuMemFreeAsync, (CUdeviceptr p, void *stream), free_async, p, stream)
WRAP(cuMemFreeAsync_ptsz, (CUdeviceptr p, void *stream), free_async, p, stream)

/* ---- pools' own functions ------------------------------------------------------------------------ */

/* CUmemPoolProps, as far as it matters. */
struct pool_props {
	int32_t type, handle_types, location_type, location_id;
};

static CUresult pool_create(unsigned api, CUresult (*real)(void **, const struct pool_props *), void **out, const struct pool_props *props)
{
	(void)api;
	CUresult status = real(out, props);
	if (status == SUCCESS) {
		bool device = props->location_type == LOCATION_DEVICE, managed = props->type == TYPE_MANAGED;
		int err = errno;
		pool_learn((uintptr_t)*out, device || managed ? GPUREC_LAYER_POOL : GPUREC_LAYER_HOST,
		           managed ? GPUREC_CLASS_MANAGED : device ? GPUREC_CLASS_DEVICE : GPUREC_CLASS_PINNED, device ? props->location_id : -1);
		errno = err;
	}
	return status;
}
WRAP(cuMemPoolCreate, (void **out, const struct pool_props *props), pool_create, out, props)

static CUresult pool_trim(unsigned api, CUresult (*real)(void *, size_t), void *pool, size_t keep)
{
	struct call c;
	CUresult status = real(pool, keep);
	struct pool *p = status == SUCCESS ? pool_find((uintptr_t)pool) : NULL;
	if (p == NULL || !call_begin(&c, api, 0, -1))
		return status;
	pool_ask(&c, p);
	call_end(&c);
	return status;
}
WRAP(cuMemPoolTrimTo, (void *pool, size_t keep), pool_trim, pool, keep)

/* The reserve ends with its pool. (What blocks still hold of it, the driver keeps
 * for them: as layer pool they are there still.) The row is given up before the
 * call, for a pool made meanwhile may get the same handle. */
static CUresult pool_destroy(unsigned api, CUresult (*real)(void *), void *pool)
{
	struct call c;
	struct pool *p = pool_find((uintptr_t)pool);
	if (p == NULL || pool_own(p))
		return real(pool);
	bool taken = reserve_take(&p->reserve);
	__atomic_store_n(&p->handle, 0, __ATOMIC_RELEASE);
	CUresult status = real(pool);
	if (!taken)
		return status;
	if (status == SUCCESS && p->reserve.bytes > 0 && call_begin(&c, api, 0, -1)) {
		struct what w = {GPUREC_API_POOL_RESERVE, GPUREC_CLASS_DEVICE, gpurec_device(c.t, p->ordinal, true), (uintptr_t)pool};
		reserve_is(&c, &p->reserve, &w, 0);
		call_end(&c);
	}
	if (status != SUCCESS)
		__atomic_store_n(&p->handle, (uintptr_t)pool, __ATOMIC_RELEASE);
	reserve_leave(&p->reserve);
	return status;
}
WRAP(cuMemPoolDestroy, (void *pool), pool_destroy, pool)

/* ---- synchronisations ------------------------------------------------------------------------------ */

static bool own_reserve(struct pool *p)
{
	return __atomic_load_n(&p->handle, __ATOMIC_ACQUIRE) != 0 && p->reserve.bytes > 0 && p->class == GPUREC_CLASS_DEVICE && pool_own(p);
}

/* After a call that has synchronised, all or only with what it frees: what was
 * freed before it may have left a pool's reserve. */
CUresult call_synchronised(unsigned api, CUresult status, bool all)
{
	struct call c;
	struct pool *any = NULL;
	if (status != SUCCESS || !__atomic_load_n(&freed, __ATOMIC_RELAXED) || !call_may_ask())
		return status;
	int err = errno;
	for (unsigned i = 0; i < POOLS && any == NULL; i++)
		if (own_reserve(&pools[i]))
			any = &pools[i];
	errno = err;
	if (all)
		__atomic_store_n(&freed, 0, __ATOMIC_RELAXED);
	if (any == NULL || !call_begin(&c, api, 0, -1))
		return status;
	for (struct pool *p = any; p < pools + POOLS; p++)
		if (own_reserve(p))
			pool_ask(&c, p);
	call_end(&c);
	return status;
}

static CUresult synchronise(unsigned api, CUresult (*real)(void *), void *what) { return call_synchronised(api, real(what), true); }
WRAP(cuStreamSynchronize, (void *stream), synchronise, stream)
WRAP(cuStreamSynchronize_ptsz, (void *stream), synchronise, stream)
WRAP(cuEventSynchronize, (void *event), synchronise, event)

static CUresult ctx_synchronise(unsigned api, CUresult (*real)(void)) { return call_synchronised(api, real(), true); }
WRAP(cuCtxSynchronize, (void), ctx_synchronise)

/* ---- graphs' memory ---------------------------------------------------------------------------------- */

static uint64_t graph_devices; /* those on which a graph has memory */
static struct reserve graph_reserves[64];

void call_graph_memory(int device)
{
	if (device >= 0 && device < 64)
		__atomic_fetch_or(&graph_devices, 1ull << device, __ATOMIC_RELAXED);
}

bool call_graphs_hold(void) { return __atomic_load_n(&graph_devices, __ATOMIC_RELAXED) != 0; }

void call_graph_reserves(struct call *c)
{
	uint64_t devices = __atomic_load_n(&graph_devices, __ATOMIC_RELAXED);
	if (!gpurec_asked.cuDeviceGetGraphMemAttribute || !gpurec_asked.cuThreadExchangeStreamCaptureMode)
		return;
	for (int d = 0; d < 64 && call_may_ask() && gpurec_still(c->t); d++) {
		struct reserve *r = &graph_reserves[d];
		if (!(devices >> d & 1) || !reserve_take(r))
			continue;
		int mode = RELAXED;
		uint64_t bytes = 0;
		if (gpurec_asked.cuThreadExchangeStreamCaptureMode(&mode) == SUCCESS) {
			CUresult status = gpurec_asked.cuDeviceGetGraphMemAttribute(d, GRAPH_RESERVED_CURRENT, &bytes);
			gpurec_asked.cuThreadExchangeStreamCaptureMode(&mode);
			struct what w = {GPUREC_API_GRAPH_RESERVE, GPUREC_CLASS_GRAPH, gpurec_device(c->t, d, true), 0};
			if (status == SUCCESS)
				reserve_is(c, r, &w, bytes);
		}
		reserve_leave(r);
	}
}

/* ---- a device's end ------------------------------------------------------------------------------------ */

/* Its Reset says so of all its reserves. */
static void forget(struct reserve *r)
{
	if (!reserve_take(r))
		return;
	r->n = 0;
	r->bytes = 0;
	reserve_leave(r);
}

void call_reserves_end(int device)
{
	for (unsigned i = 0; i < POOLS; i++)
		if (__atomic_load_n(&pools[i].handle, __ATOMIC_ACQUIRE) != 0 && pools[i].ordinal == device)
			forget(&pools[i].reserve);
	if (device >= 0 && device < 64)
		forget(&graph_reserves[device]);
}
