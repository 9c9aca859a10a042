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

/* Inlined into both: a record handed on by value would be copied, see gpurec_record. */
static inline __attribute__((always_inline)) void pool(unsigned kind, uint32_t flags, uint32_t api, int32_t device, uint64_t address,
                                                       uint64_t object, int64_t requested, int64_t size, int64_t duration, int32_t status,
                                                       int32_t skip)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	bool driver = api == GPUREC_API_CUPY_ALLOC || api == GPUREC_API_GO_ALLOC || api == GPUREC_API_GO_FREE;
	int16_t where = gpurec_device(t, device, false);
	uint64_t stack = gpurec_stack(t, skip);
	struct record *r = gpurec_record(t, 2, kind == GPUREC_KIND_ALLOC);
	r->e = (gpurec_event){
		.kind = (uint8_t)kind,
		.layer = driver ? GPUREC_LAYER_DRIVER : GPUREC_LAYER_POOL,
		.class = GPUREC_CLASS_DEVICE,
		.flags = (uint16_t)flags,
		.api = (uint16_t)api,
		.device = where,
		.stack = stack,
		.address = address,
		.size = size,
		.a = requested,
		.b = object,
	};
	r->c = (gpurec_call){.duration = duration, .free = -1, .status = status};
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
	if (status == 0 && size < 0)
		size = 0; /* the reader closes a lane that says so; a program may say anything */
	pool(status == 0 ? GPUREC_KIND_ALLOC : GPUREC_KIND_ALLOC_FAILED, flags, api, device, address, object, requested, size, duration_ns, status,
	     skip_frames);
}

EXPORT void gpurec_pool_free(uint32_t api, int32_t device, uint64_t address, uint64_t object, int32_t skip_frames)
{
	pool(GPUREC_KIND_FREE, 0, api, device, address, object, -1, -1, -1, 0, skip_frames);
}
