/*
 * api.c - gpurec.h: what a program says itself.
 */
#include "hook.h"

EXPORT int gpurec_active(void) { return gpurec_config.on && !__atomic_load_n(&gpurec_off, __ATOMIC_RELAXED); }

static void scope(unsigned kind, uint64_t id, const char *name, const char *domain)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	uint64_t text = gpurec_def_name(t, name), of = gpurec_def_name(t, domain);
	struct record *r = gpurec_record(t, 1, false);
	r->s = (gpurec_scope){
		.kind = (uint8_t)kind,
		.api = GPUREC_API_SCOPE,
		.device = -1,
		.name = text,
		.domain = of,
		.depth = -1,
		.range = id,
	};
	gpurec_publish(t, r, 1);
	gpurec_leave();
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

/* What an alloc and a free say alike: e and c have the rest. */
static void pool(gpurec_event e, gpurec_call c, int32_t device, int32_t skip)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	bool driver = e.api == GPUREC_API_CUPY_ALLOC || e.api == GPUREC_API_GO_ALLOC || e.api == GPUREC_API_GO_FREE;
	e.layer = driver ? GPUREC_LAYER_DRIVER : GPUREC_LAYER_POOL;
	e.class = GPUREC_CLASS_DEVICE;
	e.device = gpurec_device(t, device, false);
	e.stack = gpurec_stack(t, skip);
	struct record *r = gpurec_record(t, 2, e.kind == GPUREC_KIND_ALLOC);
	r->e = e;
	r->c = c;
	gpurec_publish(t, r, 2);
	gpurec_leave();
}

EXPORT void gpurec_pool_alloc(uint32_t api, int32_t device, uint64_t address, uint64_t object, int64_t requested, int64_t size,
                              int64_t duration_ns, int32_t status, uint32_t flags, int32_t skip_frames)
{
	if (gpurec_tls.pool > 0)
		flags |= api == GPUREC_API_CUPY_ALLOC ? GPUREC_FLAG_INPOOL : GPUREC_FLAG_NESTED;
	if (api == GPUREC_API_CUPY_ALLOC)
		flags |= GPUREC_FLAG_ECHO;
	gpurec_event e = {
		.kind = status == 0 ? GPUREC_KIND_ALLOC : GPUREC_KIND_ALLOC_FAILED,
		.flags = (uint16_t)flags,
		.api = (uint16_t)api,
		.address = address,
		.size = size > 0 || status != 0 ? size : 0, /* the reader closes a lane with less; a program may say anything */
		.a = requested,
		.b = object,
	};
	pool(e, (gpurec_call){.duration = duration_ns, .free = -1, .status = status}, device, skip_frames);
}

EXPORT void gpurec_pool_free(uint32_t api, int32_t device, uint64_t address, uint64_t object, int32_t skip_frames)
{
	gpurec_event e = {.kind = GPUREC_KIND_FREE, .api = (uint16_t)api, .address = address, .size = -1, .a = -1, .b = object};
	pool(e, (gpurec_call){.duration = -1, .free = -1}, device, skip_frames);
}
