/*
 * lane.c - publishing into a lane. The reader is package recorder/ring, which
 * also has this writer in Go.
 *
 *   tail          head
 *    │             │            capacity
 *    ▼             ▼               │
 *   [■■■■■■■■■■■■■■.................]    a record is never split over the end:
 *                                        a pad fills what is left there
 *
 * One writer and one reader, so no compare-and-swap, no shared cursor, and
 * nothing half-written to repair when the writer dies: a record exists once
 * head has passed it.
 */
#include "hook.h"

#include <sys/syscall.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define STALE SECOND /* a heartbeat of that age: nobody reads */
#define NAP 50000    /* ns, between two looks at a full lane */

/* Where n bytes lie that come next after at: here, or at the ring's start. */
static uint64_t place(const struct thread *t, uint64_t at, uint64_t n)
{
	uint64_t left = t->capacity - (at & (t->capacity - 1));
	return n > left ? at + left : at;
}

/* The head after defs[0, n) and a record of the given bytes. */
static uint64_t plan(const struct thread *t, unsigned n, uint64_t bytes)
{
	uint64_t at = t->head;
	for (unsigned i = 0; i < n; i++)
		at = place(t, at, t->defs[i].bytes) + t->defs[i].bytes;
	return place(t, at, bytes) + bytes;
}

/* Above 7/8 there is room for everything but an Alloc: a lost Alloc hides its
 * own memory, a lost Free is a leak for the rest of the trace. */
static bool fits(struct thread *t, uint64_t end, bool alloc)
{
	uint64_t most = alloc ? t->capacity - t->capacity / 8 : t->capacity;
	if (end - t->tail <= most)
		return true;
	t->tail = __atomic_load_n(&t->lane->tail, __ATOMIC_ACQUIRE); /* pairs with the store in Consumer.Read */
	return end - t->tail <= most;
}

/*
 * With --on-full wait, naps until there is room: within the recorder's budget a
 * second, and only while it gives a sign of life. Before it has given the first
 * one the environment says whether to wait. Never called while busy is set: the
 * recorder would hold everything back for us, and we wait for it.
 */
static bool wait_for_room(struct thread *t, uint64_t end, bool alloc)
{
	for (;;) {
		uint64_t beat = __atomic_load_n(&t->lane->heartbeat, __ATOMIC_RELAXED);
		bool wait = beat ? __atomic_load_n(&t->lane->on_full, __ATOMIC_RELAXED) == 1 : gpurec_config.wait;
		uint64_t budget = beat ? __atomic_load_n(&t->lane->wait_budget, __ATOMIC_RELAXED) : SECOND;
		uint64_t now = gpurec_now();
		if (!wait || now > (beat ? beat : t->born) + STALE)
			return false;
		if (now >= t->wait_from + SECOND) {
			t->wait_from = now;
			t->waited = 0;
		}
		if (t->waited >= budget)
			return false;
		struct timespec nap = {0, NAP};
		syscall(SYS_nanosleep, &nap, NULL);
		now = gpurec_now() - now;
		t->waited += now;
		t->held += now;
		__atomic_fetch_add(&t->lane->waited, now, __ATOMIC_RELAXED);
		if (fits(t, end, alloc))
			return true;
	}
}

static void refuse(struct thread *t)
{
	t->seq++;
	__atomic_fetch_add(&t->lane->dropped, 1, __ATOMIC_RELAXED); /* others count here too: thread.c, miss */
}

static unsigned char *at(const struct thread *t, uint64_t place) { return t->ring + (place & (t->capacity - 1)); }

/* Fills the ring from one place to another with a pad. */
static void pad(const struct thread *t, uint64_t from, uint64_t to)
{
	gpurec_head h = {.slots = (uint16_t)((to - from) / GPUREC_SLOT_SIZE), .kind = GPUREC_WIRE_PAD};
	if (to > from)
		memcpy(at(t, from), &h, sizeof h);
}

/*
 * In a ring's first lap its pages are there, the recorder has seen to that, but
 * not yet in this process's page table: a fault each. One of a load maps up to 16
 * pages around it, one of a store its own alone, so the next 64 KiB are read
 * before they are written: of a lap of 1 MiB, 60 µs of faults instead of 370.
 */
static void map_ahead(struct thread *t, uint64_t end)
{
	enum { AROUND = 65536 };
	while (t->mapped < end && t->mapped < t->capacity) {
		const volatile unsigned char *p = t->ring + t->mapped;
		(void)*p;
		t->mapped = ((uintptr_t)p | (AROUND - 1)) + 1 - (uintptr_t)t->ring;
	}
}

/* Writes defs[0, n) and then r, which may be NULL, and publishes them together.
 * There is room. The order is gpurec_open's. */
static void write_all(struct thread *t, unsigned n, struct record *r, unsigned slots, uint64_t start)
{
	if (unlikely(t->mapped < t->capacity))
		map_ahead(t, plan(t, n, (uint64_t)slots * GPUREC_SLOT_SIZE));
	uint64_t now = gpurec_open(t), to = t->head;
	for (unsigned i = 0; i < n; i++) {
		const struct def *d = &t->defs[i];
		uint64_t here = place(t, to, d->bytes);
		pad(t, to, here);
		gpurec_def_write(t, d, at(t, here));
		gpurec_head h = {now, (uint32_t)t->seq, (uint16_t)(d->bytes / GPUREC_SLOT_SIZE), d->kind, 0};
		memcpy(at(t, here), &h, sizeof h);
		to = here + d->bytes;
	}
	if (r) {
		uint64_t bytes = (uint64_t)slots * GPUREC_SLOT_SIZE, here = place(t, to, bytes);
		pad(t, to, here);
		r->e.time = now;
		r->e.seq = (uint32_t)t->seq++;
		r->e.slots = (uint16_t)slots;
		if (start)
			r->c.duration = (int64_t)(now - start);
		memcpy(at(t, here), r, bytes);
		to = here + bytes;
	}
	gpurec_shut(t, to);
}

/* Sets how far the next records need not look: to the ring's end, in the first
 * lap to where it is mapped, or to where there may be no room. */
static void look_ahead(struct thread *t)
{
	uint64_t end = (t->head & ~(t->capacity - 1)) + t->capacity, reserve = t->capacity / 8;
	if (t->head + sizeof(struct record) > t->tail + t->capacity - reserve)
		t->tail = __atomic_load_n(&t->lane->tail, __ATOMIC_ACQUIRE); /* pairs with the store in Consumer.Read */
	if (t->mapped < t->capacity)
		end = t->mapped;
	uint64_t room = t->tail + t->capacity;
	t->clear[0] = room < end ? room : end;
	t->clear[1] = room - reserve < end ? room - reserve : end;
}

static void forget_defs(struct thread *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		gpurec_def_sent(t, &t->defs[i]);
	t->ndefs -= n;
	memmove(t->defs, t->defs + n, t->ndefs * sizeof t->defs[0]);
}

/* Publishes as many of the first definitions as come to a quarter of the lane;
 * the number, 0 without room. */
static unsigned publish_some(struct thread *t)
{
	uint64_t bytes = 0;
	unsigned n = 0;
	while (n < t->ndefs && (n == 0 || bytes + t->defs[n].bytes <= t->capacity / 4))
		bytes += t->defs[n++].bytes;
	uint64_t end = plan(t, n, 0);
	if (n == 0 || (!fits(t, end, true) && !wait_for_room(t, end, true)))
		return 0;
	write_all(t, n, NULL, 0, 0);
	forget_defs(t, n);
	return n;
}

/*
 * Its thread has ended. One that was cancelled between gpurec_open and gpurec_shut
 * left a record that may be half written: the head stays where it is published,
 * and the record is counted, at worst once too often.
 */
void gpurec_lane_left(struct thread *t)
{
	if (!__atomic_load_n(&t->lane->busy, __ATOMIC_RELAXED))
		return;
	t->head = __atomic_load_n(&t->lane->head, __ATOMIC_RELAXED);
	__atomic_fetch_add(&t->lane->dropped, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&t->lane->busy, 0, __ATOMIC_RELEASE);
}

/* What the recorder forgot, this lane has not sent. */
void gpurec_lane_forget(struct thread *t, uint32_t epoch)
{
	t->epoch = epoch;
	t->devices = 0;
	memset(t->sent_stacks, 0, sizeof t->sent_stacks);
	memset(t->sent_modules, 0, sizeof t->sent_modules);
	memset(t->sent_codes, 0, sizeof t->sent_codes);
	memset(t->sent_names, 0, sizeof t->sent_names);
}

void gpurec_publish_defs(struct thread *t)
{
	while (t->ndefs > 0 && publish_some(t) > 0)
		;
}

/* A lane's use by a thread begins with who that is. */
static bool begin(struct thread *t)
{
	struct record r;
	memset(&r, 0, sizeof r);
	r.t.kind = GPUREC_KIND_THREAD_BEGIN;
	r.t.device = -1;
	r.t.tid = t->tid;
	syscall(SYS_prctl, 16 /* PR_GET_NAME */, r.t.name, 0, 0, 0);
	uint64_t end = plan(t, 0, GPUREC_SLOT_SIZE);
	if (!fits(t, end, false))
		return false;
	write_all(t, 0, &r, 1, 0);
	t->begun = true;
	return true;
}

bool gpurec_publish_copy(struct thread *t, struct record *r, unsigned slots, uint64_t start)
{
	/* How long a free took is worth neither a wait nor the room of a Free, and
	 * its loss is no event's: it is left out uncounted. */
	bool extra = r->e.kind == GPUREC_KIND_FREE_DONE, ask = r->e.kind == GPUREC_WIRE_ASK;
	bool alloc = r->e.kind == GPUREC_KIND_ALLOC || extra, ok = true;
	uint64_t bytes = (uint64_t)slots * GPUREC_SLOT_SIZE, before = t->held;
	int err = errno;

	if (alloc && r->e.size < 0)
		r->e.size = 0; /* the reader closes a lane that says so; a program may say anything */
	if (unlikely(!t->begun))
		ok = begin(t);

	/* Definitions too large for one group go ahead alone: they harm nobody when
	 * their event is then refused, and are remembered as sent because they are. */
	while (ok && t->ndefs > 0 && plan(t, t->ndefs, bytes) - t->head > t->capacity / 4 + bytes)
		ok = publish_some(t) > 0;
	uint64_t end = plan(t, t->ndefs, bytes);
	if (ok && (fits(t, end, alloc) || (!extra && wait_for_room(t, end, alloc)))) {
		if (start)
			start += t->held - before; /* a call's duration is the call's alone */
		write_all(t, t->ndefs, r, slots, start);
		forget_defs(t, t->ndefs);
		look_ahead(t);
	} else {
		ok = false;
		if (!extra && !ask) /* a question is no event */
			refuse(t);
		t->ndefs = 0;
	}
	errno = err;
	return ok;
}
