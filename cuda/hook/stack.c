/*
 * stack.c - definitions: texts, stacks and devices travel once, events carry
 * their hashes. What a lane has sent is remembered in small tables in which a
 * newer hash may push out an older one: that costs sending it again, never an
 * event without its definition.
 */
#include "unwind.h"

static uint32_t slots(uint64_t bytes)
{
	return (uint32_t)((bytes + GPUREC_SLOT_SIZE - 1) / GPUREC_SLOT_SIZE * GPUREC_SLOT_SIZE);
}

/* A set of hashes: four places for each, the first is the newest. */
static bool known(const uint64_t *set, unsigned size, uint64_t hash)
{
	const uint64_t *four = set + (hash & (size - 1) & ~3u);
	return four[0] == hash || four[1] == hash || four[2] == hash || four[3] == hash;
}

static void remember(uint64_t *set, unsigned size, uint64_t hash)
{
	uint64_t *four = set + (hash & (size - 1) & ~3u);
	if (known(set, size, hash))
		return;
	memmove(four + 1, four, 3 * sizeof *four);
	four[0] = hash;
}

/* Whether the event at hand brings this definition already. */
static bool waiting(const struct thread *t, unsigned kind, uint64_t key)
{
	for (unsigned i = 0; i < t->ndefs; i++)
		if (t->defs[i].key == key && t->defs[i].kind == kind)
			return true;
	return false;
}

static struct def *add(struct thread *t, unsigned kind, uint64_t key, uint64_t bytes)
{
	struct def *d = &t->defs[t->ndefs++];
	memset(d, 0, sizeof *d);
	d->kind = (uint8_t)kind;
	d->key = key;
	d->bytes = slots(bytes);
	return d;
}

void gpurec_def_sent(struct thread *t, const struct def *d)
{
	switch (d->kind) {
	case GPUREC_WIRE_CODE:
		remember(t->sent_codes, SENT_CODES, d->key);
		break;
	case GPUREC_WIRE_STACK:
		remember(t->sent_stacks, SENT_STACKS, d->key);
		break;
	case GPUREC_WIRE_NAME:
		remember(t->sent_names, SENT_NAMES, d->key);
		break;
	case GPUREC_WIRE_DEVICE:
		t->devices |= 1ull << d->number;
		break;
	case GPUREC_WIRE_MODULE:
		t->sent_modules[d->number / 64] |= 1ull << d->number % 64;
		break;
	}
}

/* ---- texts ---------------------------------------------------------------- */

uint64_t gpurec_text_hash(const void *text, size_t bytes, unsigned unit)
{
	const unsigned char *p = text;
	uint64_t h = gpurec_mix(unit, bytes), x;
	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&x, p, 8);
		h = gpurec_mix(h, x);
	}
	x = 0;
	memcpy(&x, p, bytes);
	h = gpurec_mix(h, x);
	h = gpurec_mix(h, h >> 32);
	return h ? h : 1;
}

uint64_t gpurec_def_text(struct thread *t, const void *text, size_t bytes, unsigned unit)
{
	if (bytes > GPUREC_MAX_NAME_BYTES)
		bytes = GPUREC_MAX_NAME_BYTES;
	uint64_t hash = gpurec_text_hash(text, bytes, unit);
	if (!known(t->sent_names, SENT_NAMES, hash) && !waiting(t, GPUREC_WIRE_NAME, hash)) {
		struct def *d = add(t, GPUREC_WIRE_NAME, hash, sizeof(gpurec_name_def) + bytes);
		d->from = text;
		d->length = (uint32_t)bytes;
		d->unit = (uint8_t)unit;
	}
	return hash;
}

uint64_t gpurec_def_name(struct thread *t, const char *text)
{
	return text == NULL ? 0 : gpurec_def_text(t, text, strnlen(text, GPUREC_MAX_NAME_BYTES), 0);
}

/* ---- devices -------------------------------------------------------------- */

/* What the driver says of each ordinal. Several threads may ask at once and
 * store the same answer: a claim would make the others' events go without. */
static struct {
	gpurec_device_def def;
	uint32_t state; /* 0 not asked, 1 being written, 2 known */
} devices[64];

static __attribute__((noinline)) void ask(int ordinal)
{
	gpurec_device_def d;
	memset(&d, 0, sizeof d);
	d.ordinal = ordinal;
	CUresult (*uuid)(void *, CUdevice) = gpurec_asked.cuDeviceGetUuid_v2; /* a MIG instance's own, where there is one */
	if (uuid == NULL)
		uuid = gpurec_asked.cuDeviceGetUuid;
	d.known = uuid != NULL && uuid(d.uuid, ordinal) == 0;
	size_t total = 0;
	if (gpurec_asked.cuDeviceTotalMem_v2 && gpurec_asked.cuDeviceTotalMem_v2(&total, ordinal) == 0)
		d.total = total;
	if (gpurec_asked.cuDeviceGetName)
		gpurec_asked.cuDeviceGetName((char *)d.name, sizeof d.name - 1, ordinal);

	uint32_t none = 0;
	if (__atomic_compare_exchange_n(&devices[ordinal].state, &none, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		devices[ordinal].def = d;
		__atomic_store_n(&devices[ordinal].state, 2, __ATOMIC_RELEASE);
	}
}

/* Each lane says once which device an ordinal is, so that the definition always
 * precedes the lane's events. may_ask is false where the caller's caller may hold
 * a lock: then only what is known already is said. */
int16_t gpurec_def_device(struct thread *t, int ordinal, bool may_ask)
{
	if (ordinal < 0 || ordinal >= 64)
		return ordinal < 0 || ordinal > INT16_MAX ? -1 : (int16_t)ordinal;
	uint32_t *state = &devices[ordinal].state;
	if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == 0 && may_ask)
		ask(ordinal);
	if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == 2 && !waiting(t, GPUREC_WIRE_DEVICE, (uint64_t)ordinal))
		add(t, GPUREC_WIRE_DEVICE, (uint64_t)ordinal, sizeof(gpurec_device_def))->number = (uint16_t)ordinal;
	return (int16_t)ordinal;
}

/* ---- stacks --------------------------------------------------------------- */

static void define_codes(struct thread *t)
{
	for (unsigned i = 0; i < t->nframes; i++) {
		uint64_t key = t->frames[i].code;
		if (!known(t->sent_codes, SENT_CODES, key) && !waiting(t, GPUREC_WIRE_CODE, key))
			add(t, GPUREC_WIRE_CODE, key, gpurec_code_bytes(t->codes[i], (uint32_t)(t->capacity / 4)))->from = t->codes[i];
	}
}

static uint64_t define_frames(struct thread *t, uint64_t hash)
{
	add(t, GPUREC_WIRE_STACK, hash, sizeof(gpurec_stack_def) + t->nframes * sizeof(gpurec_frame));
	return hash;
}

static uint64_t python_stack(struct thread *t, uint64_t hash, int skip)
{
	if (likely(known(t->sent_stacks, SENT_STACKS, hash)))
		return hash;
	gpurec_python_walk(t, gpurec_config.max_frames, skip);
	if (t->nframes == 0)
		return 0;
	define_codes(t);
	return define_frames(t, hash);
}

static void define_modules(struct thread *t)
{
	for (unsigned i = 0; i < t->native_frames; i++) {
		unsigned number = t->native[i].module;
		if (!(t->sent_modules[number / 64] >> number % 64 & 1) && !waiting(t, GPUREC_WIRE_MODULE, number))
			add(t, GPUREC_WIRE_MODULE, number, gpurec_module_bytes(number))->number = (uint16_t)number;
	}
}

/* Where the interpreter's loop was entered; see gpurec_python_entries. */
struct entries {
	int n;
	unsigned before[256];
	uintptr_t place[256];
};
enum { MOST_ENTRIES = 256, HALF = GPUREC_MAX_FRAMES / 2 - 1 };

static struct entries *entries_of(struct thread *t, int skip)
{
	_Static_assert(sizeof(struct entries) <= sizeof t->copy, "entries lie where pages were copied to");
	struct entries *e = (struct entries *)t->copy;
	e->n = gpurec_python_entries(MOST_ENTRIES, skip, e->place, e->before);
	return e;
}

static gpurec_frame native_frame(const struct native *n)
{
	return (gpurec_frame){n->at - gpurec_module(n->module)->bias, n->module, GPUREC_FRAME_NATIVE};
}

/*
 * Python and native frames in the order of their calls, from t->frames and
 * t->native into t->frames: each frame of the interpreter's loop comes after the
 * Python frames that it runs. 3.9 tells the loop by its address alone, and each of
 * its frames runs one. Where native frames are cut, a frame of no module says so, and
 * the other Python frames follow. skip: the innermost Python frames are left out, and so are the native ones in them.
 */
static void merge(struct thread *t, const struct entries *e, bool skip)
{
	gpurec_frame *python = (gpurec_frame *)t->scratch;
	unsigned taken = 0, n = 0, until = 0, all = t->nframes;
	int entry = 0;
	_Static_assert(sizeof t->scratch >= HALF * sizeof *python, "half of the frames are Python's");
	memcpy(python, t->frames, all * sizeof *python);
	for (unsigned i = 0; i < t->native_frames; i++) {
		if (e->n < 0)
			until += t->native[i].loop;
		for (; entry < e->n && e->place[entry] < t->native[i].end; entry++)
			until = e->before[entry];
		while (taken < until && taken < all)
			t->frames[n++] = python[taken++];
		if (!skip || taken > 0)
			t->frames[n++] = native_frame(&t->native[i]);
	}
	if (t->native_dropped > 0)
		t->frames[n++] = (gpurec_frame){0, NO_MODULE, GPUREC_FRAME_NATIVE};
	while (taken < all)
		t->frames[n++] = python[taken++];
	t->nframes = n;
}

/* A stack with native frames; python is the hash of its Python frames, 0: it has none. */
static __attribute__((noinline)) uint64_t native_stack(struct thread *t, uint64_t python, int skip)
{
	unsigned max = gpurec_config.max_frames;
	const struct entries *e = NULL;
	if (python != 0 && max > HALF)
		python = gpurec_python_hash(max = HALF, skip);
	uint64_t hash = gpurec_unwind(t, max, false);
	if (hash == 0)
		return python != 0 ? python_stack(t, python, skip) : 0;
	if (python != 0) {
		e = entries_of(t, skip);
		hash = gpurec_mix(gpurec_mix(hash, python), (uint64_t)skip);
		for (int i = 0; i < e->n; i++)
			hash = gpurec_mix(hash, e->before[i]);
	}
	if (likely(known(t->sent_stacks, SENT_STACKS, hash)))
		return hash;

	t->nframes = t->frames_dropped = 0;
	gpurec_unwind(t, max, true);
	define_modules(t);
	if (python != 0) {
		gpurec_python_walk(t, max, skip);
		define_codes(t);
		e = entries_of(t, skip);
		merge(t, e, skip > 0);
	} else {
		for (; t->nframes < t->native_frames; t->nframes++)
			t->frames[t->nframes] = native_frame(&t->native[t->nframes]);
		t->frames_dropped = t->native_dropped;
	}
	return define_frames(t, hash);
}

uint64_t gpurec_def_stack(struct thread *t, int skip, bool driver)
{
	uint64_t python = gpurec_python_hash(gpurec_config.max_frames, skip);
	if (gpurec_config.native == NATIVE_ALWAYS || (gpurec_config.native == NATIVE_ELSE && (driver || python == 0)))
		return native_stack(t, python, skip);
	return likely(python != 0) ? python_stack(t, python, skip) : 0;
}

/* ---- into the ring ---------------------------------------------------------- */

/* Writes a definition, all but its head, into d->bytes of the ring. */
void gpurec_def_write(const struct thread *t, const struct def *d, unsigned char *to)
{
	memset(to + d->bytes - GPUREC_SLOT_SIZE, 0, GPUREC_SLOT_SIZE); /* what the last slot does not need */
	switch (d->kind) {
	case GPUREC_WIRE_CODE:
		gpurec_code_write(d->from, d->key, d->bytes, to);
		break;
	case GPUREC_WIRE_STACK: {
		gpurec_stack_def s = {.hash = d->key, .count = t->nframes, .dropped = t->frames_dropped};
		memcpy(to, &s, sizeof s);
		memcpy(to + sizeof s, t->frames, t->nframes * sizeof t->frames[0]);
		break;
	}
	case GPUREC_WIRE_NAME: {
		gpurec_name_def n = {.hash = d->key, .bytes = d->length, .unit = d->unit};
		memcpy(to, &n, sizeof n);
		memcpy(to + sizeof n, d->from, d->length);
		break;
	}
	case GPUREC_WIRE_DEVICE:
		memcpy(to, &devices[d->number].def, sizeof(gpurec_device_def));
		break;
	case GPUREC_WIRE_MODULE:
		gpurec_module_write(d->number, to);
		break;
	}
}
