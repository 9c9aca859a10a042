/*
 * api.c - gpurec.h: what a program says itself.
 */
#include "hook.h"

EXPORT int gpurec_active(void) { return gpurec_config.on && !__atomic_load_n(&gpurec_off, __ATOMIC_RELAXED); }

static struct thread *begin(int *err)
{
	*err = errno;
	struct thread *t = gpurec_enter();
	if (t)
		t->ndefs = 0;
	return t;
}

static void scope(unsigned kind, uint64_t id, const char *name, const char *domain)
{
	int err;
	struct thread *t = begin(&err);
	if (t == NULL)
		return;
	struct record r;
	memset(&r, 0, sizeof r);
	r.s.kind = (uint8_t)kind;
	r.s.api = GPUREC_API_SCOPE;
	r.s.device = -1;
	r.s.name = gpurec_def_name(t, name);
	r.s.domain = gpurec_def_name(t, domain);
	r.s.depth = -1;
	r.s.range = id;
	gpurec_publish(t, &r, 1, 0);
	gpurec_leave();
	errno = err;
}

EXPORT uint64_t gpurec_scope_begin(const char *name, const char *domain)
{
	if (!gpurec_active())
		return 0;
	uint64_t id = gpurec_unique();
	scope(GPUREC_KIND_SCOPE_BEGIN, id, name ? name : "", domain);
	return id;
}

EXPORT void gpurec_scope_end(uint64_t id)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_END, id, NULL, NULL);
}

EXPORT void gpurec_scope_reset(uint64_t id)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_RESET, id, NULL, NULL);
}

EXPORT void gpurec_scope_report(uint64_t id, const char *subcontext)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_REPORT, id, subcontext, NULL);
}

EXPORT void gpurec_mark(const char *text) { scope(GPUREC_KIND_MARK, 0, text ? text : "", NULL); }

EXPORT void gpurec_pool_enter(void) { gpurec_tls.pool++; }

EXPORT void gpurec_pool_leave(void)
{
	if (gpurec_tls.pool > 0)
		gpurec_tls.pool--;
}

static void pool(struct record *r, uint32_t api, int32_t device, int32_t skip)
{
	int err;
	struct thread *t = begin(&err);
	if (t == NULL)
		return;
	bool driver = api == GPUREC_API_CUPY_ALLOC || api == GPUREC_API_GO_ALLOC || api == GPUREC_API_GO_FREE;
	r->e.layer = driver ? GPUREC_LAYER_DRIVER : GPUREC_LAYER_POOL;
	r->e.class = GPUREC_CLASS_DEVICE;
	r->e.api = (uint16_t)api;
	r->e.device = gpurec_def_device(t, device, false);
	r->e.stack = gpurec_def_stack(t, skip);
	r->c.free = -1;
	gpurec_publish(t, r, 2, 0);
	gpurec_leave();
	errno = err;
}

EXPORT void gpurec_pool_alloc(uint32_t api, int32_t device, uint64_t address, uint64_t object, int64_t requested, int64_t size,
                              int64_t duration_ns, int32_t status, uint32_t flags, int32_t skip_frames)
{
	struct record r;
	memset(&r, 0, sizeof r);
	r.e.kind = status == 0 ? GPUREC_KIND_ALLOC : GPUREC_KIND_ALLOC_FAILED;
	if (gpurec_tls.pool > 0)
		flags |= api == GPUREC_API_CUPY_ALLOC ? GPUREC_FLAG_INPOOL : GPUREC_FLAG_NESTED;
	if (api == GPUREC_API_CUPY_ALLOC)
		flags |= GPUREC_FLAG_ECHO;
	r.e.flags = (uint16_t)flags;
	r.e.address = address;
	r.e.size = size;
	r.e.a = requested;
	r.e.b = object;
	r.c.duration = duration_ns;
	r.c.status = status;
	pool(&r, api, device, skip_frames);
}

EXPORT void gpurec_pool_free(uint32_t api, int32_t device, uint64_t address, uint64_t object, int32_t skip_frames)
{
	struct record r;
	memset(&r, 0, sizeof r);
	r.e.kind = GPUREC_KIND_FREE;
	r.e.address = address;
	r.e.size = r.e.a = -1;
	r.e.b = object;
	r.c.duration = -1;
	pool(&r, api, device, skip_frames);
}
