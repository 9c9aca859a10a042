/*
 * call.c - the life of one recorded call of the driver, and the table of the
 * functions that are wrapped.
 */
#include "call.h"

#define FREE_DONE_NS 10000 /* a shorter free is not worth a record */

bool call_begin(struct call *c, unsigned api, uint64_t address, int64_t size)
{
	int err = errno;
	struct thread *t = gpurec_tls.depth > 0 && !gpurec_jumped(c) ? NULL : gpurec_enter(); /* the driver's own call inside another is no event */
	if (t == NULL)
		return false;
	const struct hooked *h = &gpurec_hooked[api];
	c->t = t;
	c->err = err;
	c->api = api;
	memset(&c->r, 0, sizeof c->r);
	c->r.e.layer = h->layer;
	c->r.e.class = h->class;
	c->r.e.kind = h->kind;
	c->r.e.api = h->number;
	c->r.e.device = -1;
	c->r.e.address = address;
	c->r.e.size = size;
	c->r.e.a = size;
	c->r.c.duration = -1;
	c->r.c.free = -1;
	if (gpurec_tls.pool > 0) /* a driver's own pool inside another pool's alloc is that pool's segment */
		c->r.e.flags = GPUREC_FLAG_INPOOL | (h->layer == GPUREC_LAYER_POOL ? GPUREC_FLAG_NESTED : 0);
	if (unlikely(gpurec_python == 0 && (t->seq & (t->seq - 1)) == 0))
		gpurec_python_find(); /* a program may start an interpreter late; ever more seldom looked for */
	c->r.e.stack = gpurec_stack(t, 0, true);

	gpurec_call_slot *slot = &t->lane->call;
	slot->api = h->number;
	slot->tid = t->tid;
	slot->device = -1;
	slot->address = address;
	slot->size = size;
	slot->stack = c->r.e.stack;
	return true;
}

/* The last before the real call: with a time, the lane's call slot counts. */
static void starts(struct call *c, uint64_t now)
{
	c->start = now;
	__atomic_store_n(&c->t->lane->call.since, now, __ATOMIC_RELEASE);
	errno = c->err;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	gpurec_tls.flight = (uintptr_t)c;
}

bool call_back(struct call *c)
{
	bool mine = gpurec_tls.flight == (uintptr_t)c;
	if (likely(mine))
		gpurec_tls.flight = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	c->err = errno;
	return mine;
}

/* Just before a real call that takes memory. */
void call_go(struct call *c)
{
	if (c->t->ndefs > 0)
		gpurec_publish_defs(c->t);
	starts(c, gpurec_now());
}

void call_end(struct call *c)
{
	if (gpurec_still(c->t))
		__atomic_store_n(&c->t->lane->call.since, 0, __ATOMIC_RELAXED);
	gpurec_leave();
	errno = c->err;
}

/* Whose context is current, now that the call has succeeded with it. */
void call_where(struct call *c)
{
	void *ctx = NULL;
	CUdevice device = -1;
	if (gpurec_asked.cuCtxGetCurrent && gpurec_asked.cuCtxGetCurrent(&ctx) == SUCCESS)
		c->r.c.cuctx = (uintptr_t)ctx;
	if (c->r.e.device < 0 && ctx != NULL && gpurec_asked.cuCtxGetDevice && gpurec_asked.cuCtxGetDevice(&device) == SUCCESS)
		c->r.e.device = gpurec_device(c->t, device, true);
}

/* After a real call that takes memory: r.e.address, object and size are set. */
void call_tell(struct call *c, CUresult status)
{
	if (gpurec_still(c->t)) {
		if (status != SUCCESS) {
			c->r.e.kind = GPUREC_KIND_ALLOC_FAILED;
			c->r.e.address = c->r.e.b = 0;
			c->r.e.flags &= (uint16_t)~GPUREC_FLAG_ESTIMATE;
		}
		c->r.c.status = status;
		call_where(c);
		gpurec_publish_copy(c->t, &c->r, 2, c->start);
	}
}

void call_took(struct call *c, CUresult status)
{
	if (!call_back(c))
		return;
	call_tell(c, status);
	call_end(c);
}

void call_refer(struct call *c, CUresult status)
{
	if (!call_back(c))
		return;
	if (status == SUCCESS)
		call_tell(c, status);
	call_end(c);
}

/* Before a real call that gives memory back. */
void call_give(struct call *c)
{
	c->r.e.size = c->r.e.kind == GPUREC_KIND_UNMAP ? c->r.e.size : -1; /* replay knows what the address holds */
	c->r.e.a = -1;
	starts(c, gpurec_publish_copy(c->t, &c->r, 2, 0) ? c->r.e.time : gpurec_now());
}

/* After it. At exit the driver is gone before PyTorch frees: nothing is live then. */
void call_gave(struct call *c, CUresult status)
{
	if (!call_back(c))
		return;
	uint64_t duration = gpurec_now() - c->start;
	bool failed = status != SUCCESS && status != DEINITIALIZED;
	if ((failed || duration > FREE_DONE_NS) && gpurec_still(c->t)) {
		c->r.e.kind = failed ? GPUREC_KIND_FREE_FAILED : GPUREC_KIND_FREE_DONE;
		c->r.c.duration = (int64_t)duration;
		c->r.c.status = status;
		gpurec_publish_copy(c->t, &c->r, 2, 0);
	}
	call_end(c);
}

/* Whether what is now asked of this stream is only written down in a graph.
 * Not asked of the legacy stream, where the question itself may be an error. */
void call_captured(struct call *c, void *stream, bool per_thread)
{
	enum { LEGACY = 1, PER_THREAD = 2 };
	int status = 0;
	c->r.c.stream = (uintptr_t)stream;
	if (stream == NULL && per_thread)
		stream = (void *)PER_THREAD;
	if (stream == NULL || stream == (void *)LEGACY || gpurec_asked.cuStreamIsCapturing == NULL)
		return;
	if (gpurec_asked.cuStreamIsCapturing(stream, &status) == SUCCESS && status != 0)
		call_written_down(c);
}

/* What a graph takes when it runs is a graph's memory, and nobody's before. */
void call_written_down(struct call *c)
{
	c->r.e.flags |= GPUREC_FLAG_CAPTURED;
	c->r.e.class = GPUREC_CLASS_GRAPH;
}

/* ---- the table ------------------------------------------------------------------------------------------ */

/* A row without a wrapper does not link. */
#define FRONT(index, number, symbol, layer, class, kind) extern void *const gpurec_front_##symbol[2];
GPUREC_HOOKED(FRONT)
#undef FRONT

const struct hooked gpurec_hooked[HOOKED + 1] = {
#define ROW(index, number, symbol, layer, class, kind) [index] = {#symbol, gpurec_front_##symbol, number, layer, class, kind},
	GPUREC_HOOKED(ROW)
#undef ROW
};
