/*
 * api.c - gpurec.h: what a program says itself.
 */
#include "hook.h"

#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(gpurec_measures) == sizeof(gpurec_answer) - offsetof(gpurec_answer, known) && offsetof(gpurec_measures, state) == 4 &&
		       offsetof(gpurec_measures, lost) == 8 && offsetof(gpurec_measures, begin) == 16 && offsetof(gpurec_measures, max) == 64,
	       "what a program gets is an answer without its question");

EXPORT int gpurec_active(void) { return gpurec_config.on && !__atomic_load_n(&gpurec_off, __ATOMIC_RELAXED); }

/* Whether the driver can be asked: this thread has a CUcontext. */
static bool initialised(void)
{
	CUdevice device;
	return gpurec_asked.cuCtxGetDevice != NULL && gpurec_asked.cuCtxGetDevice(&device) == 0;
}

/* Publishes one of a scope's records; the time it was stamped with, 0 when it was not. */
static uint64_t publish(struct thread *t, unsigned kind, uint64_t id, const char *name, const char *domain, int32_t device, bool asks)
{
	uint64_t text = gpurec_def_name(t, name), of = gpurec_def_name(t, domain);
	int16_t where = gpurec_device(t, device, device >= 0 && initialised());
	struct record *r = gpurec_record(t, 1, false);
	r->s = (gpurec_scope){
		.kind = (uint8_t)kind,
		.api = GPUREC_API_SCOPE,
		.device = where,
		.asks = asks,
		.name = text,
		.domain = of,
		.depth = -1,
		.range = id,
	};
	if (!gpurec_publish(t, r, 1))
		return 0;
	if (kind == GPUREC_WIRE_ASK)
		t->seq--; /* no event: the next one has its number */
	return r->e.time;
}

static void scope(unsigned kind, uint64_t id, const char *name, const char *domain, int32_t device)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	publish(t, kind, id, name, domain, device, false);
	gpurec_leave();
}

EXPORT uint64_t gpurec_scope_begin_on(const char *name, const char *domain, int32_t device)
{
	if (!gpurec_active())
		return 0;
	uint64_t id = gpurec_unique();
	scope(GPUREC_KIND_SCOPE_BEGIN, id, name, domain, device);
	return id;
}

EXPORT uint64_t gpurec_scope_begin(const char *name, const char *domain) { return gpurec_scope_begin_on(name, domain, -1); }

EXPORT void gpurec_scope_end(uint64_t id)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_END, id, NULL, NULL, -1);
}

EXPORT void gpurec_scope_reset(uint64_t id)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_RESET, id, NULL, NULL, -1);
}

EXPORT void gpurec_scope_report(uint64_t id, const char *subcontext)
{
	if (id)
		scope(GPUREC_KIND_SCOPE_REPORT, id, subcontext, NULL, -1);
}

/*
 * Waits for the answer to the question of a time, at most GPUREC_ANSWER_WAIT. The
 * thread is outside the hook meanwhile, so that a signal's handler may make events;
 * it may fork, too, and a child that returns here has lost the lane.
 */
static int wait_for_answer(struct thread *t, gpurec_lane *lane, uint64_t asked, gpurec_measures *m)
{
	uint64_t *answered = &lane->answer.asked;
	uint32_t generation = gpurec_tls.generation; /* a child's own block may lie where its parent's did */
	for (;;) {
		if (!gpurec_still(t) || gpurec_tls.generation != generation)
			return GPUREC_NO_RECORDER;
		uint64_t latest = __atomic_load_n(answered, __ATOMIC_ACQUIRE); /* pairs with the store in Consumer.Answer */
		if (latest >= asked) {
			memcpy(m, (const char *)&lane->answer + offsetof(gpurec_answer, known), sizeof *m);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (__atomic_load_n(answered, __ATOMIC_RELAXED) != asked)
				return GPUREC_TOO_LATE; /* a handler asked meanwhile and has the answer */
			return m->state == GPUREC_ANSWER_UNKNOWN ? GPUREC_UNKNOWN_SCOPE : GPUREC_ANSWERED;
		}
		uint64_t now = gpurec_now(), beat = __atomic_load_n(&lane->heartbeat, __ATOMIC_RELAXED);
		if (beat != 0 && __atomic_load_n(&lane->wait_budget, __ATOMIC_RELAXED) == 0)
			return GPUREC_NO_RECORDER;
		if (now >= asked + GPUREC_ANSWER_WAIT) {
			if (beat < asked)
				t->in_vain = beat + 1;
			return GPUREC_TOO_LATE;
		}
		if (beat + 1 == t->in_vain)
			return GPUREC_TOO_LATE; /* it has not looked since: it is stopped */
		uint64_t left = asked + GPUREC_ANSWER_WAIT - now;
		struct timespec limit = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
		syscall(SYS_futex, answered, 0 /* FUTEX_WAIT, of its lower half */, (uint32_t)latest, &limit, NULL, 0);
	}
}

EXPORT int gpurec_scope_ask(uint64_t id, int how, const char *subcontext, gpurec_measures *m)
{
	static const uint8_t kinds[] = {GPUREC_WIRE_ASK, GPUREC_KIND_SCOPE_REPORT, GPUREC_KIND_SCOPE_END};
	if (id == 0 || !gpurec_active())
		return GPUREC_NOT_RECORDED;
	if (how < 0 || how >= (int)sizeof kinds)
		return GPUREC_UNKNOWN_SCOPE;
	struct thread *t = gpurec_enter_as(kinds[how] != GPUREC_WIRE_ASK);
	if (t == NULL)
		return gpurec_active() ? GPUREC_NO_ROOM : GPUREC_NO_RECORDER;
	int err = errno;
	gpurec_lane *lane = t->lane;
	uint64_t asked = publish(t, kinds[how], id, how == GPUREC_ASK_REPORT ? subcontext : NULL, NULL, -1, true);
	if (asked)
		__atomic_store_n(&lane->asked, asked, __ATOMIC_RELEASE); /* pairs with the load in Consumer.Asked */
	gpurec_leave();
	/* Of a full buffer too: one that nobody empties any more says so. A dead recorder's
	 * socket is removed by the next one that starts; a living one's may be out of this
	 * process's sight, as after chroot, but its heart beats. */
	int woken = gpurec_wake_recorder();
	int outcome = woken == ECONNREFUSED ? GPUREC_NO_RECORDER : asked ? wait_for_answer(t, lane, asked, m) : GPUREC_NO_ROOM;
	if (woken == ENOENT && (outcome == GPUREC_TOO_LATE || outcome == GPUREC_NO_ROOM) &&
	    gpurec_now() > __atomic_load_n(&lane->heartbeat, __ATOMIC_RELAXED) + GPUREC_ANSWER_WAIT)
		outcome = GPUREC_NO_RECORDER;
	errno = err;
	return outcome;
}

EXPORT void gpurec_mark(const char *text) { scope(GPUREC_KIND_MARK, 0, text ? text : "", NULL, -1); }

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
	uint64_t stack = gpurec_stack(t, skip, false);
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
