/*
 * nvtx.c - NVTX ranges and marks.
 *
 * NVTX v3 is header-only: each library that uses it keeps its own table of
 * functions and, at its first call, opens the file that NVTX_INJECTION64_PATH
 * names (this one: the loader knows it by its inode and gives out the instance
 * that is preloaded) and calls InitializeInjectionNvtx2, which puts our
 * functions into that library's table. So that is called once per library, and
 * the same functions go into each table.
 *
 * Where the variable named another tool before (nsys), that tool is opened and
 * asked first, and each of our functions calls its. A tool keeps one set of
 * functions for all tables, as we do; domains and registered strings are its own
 * handles, kept beside ours.
 */
#include "nvtx.h"

#include <dlfcn.h>
#include <wchar.h>

enum { MODULE_CORE = 1, MODULE_CORE2 = 5, TABLE_CALLBACKS = 1, TABLE_VERSION = 3, NO_TRACKING = -2 };
enum { TEXT_NONE = 0, TEXT_ASCII = 1, TEXT_WIDE = 2, TEXT_REGISTERED = 3 };
enum { UTF8 = 0, WIDE = sizeof(wchar_t) };

typedef nvtx_function function;
typedef const void *(*get_table)(uint32_t id);
struct callbacks {
	size_t size;
	int (*module)(uint32_t module, function ***table, unsigned *size);
};
struct version {
	size_t size;
	uint32_t version, reserved;
	void (*set)(uint32_t version);
};

/* nvtxEventAttributes_t. */
struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	uint32_t pad;
	const void *message;
};
_Static_assert(sizeof(struct attributes) == 48, "nvtx's own");

/* The ids of both modules; the table of the other tool's functions has them too. */
enum {
	MarkEx = 1, MarkA, MarkW, RangeStartEx, RangeStartA, RangeStartW, RangeEnd, RangePushEx, RangePushA, RangePushW, RangePop,
	CORE_SIZE = 16
};
enum {
	DomainMarkEx = 1, DomainRangeStartEx, DomainRangeEnd, DomainRangePushEx, DomainRangePop, DomainResourceCreate,
	DomainNameCategoryA = 8, DomainNameCategoryW, DomainRegisterStringA, DomainRegisterStringW, DomainCreateA, DomainCreateW, DomainDestroy, CORE2_SIZE = 16
};
static function next_core[CORE_SIZE], next_core2[CORE2_SIZE];

/* ---- texts -------------------------------------------------------------------- */

static struct text ascii(const char *s) { return (struct text){s, s ? strnlen(s, GPUREC_MAX_NAME_BYTES) : 0, UTF8}; }

static struct text wide(const wchar_t *s)
{
	size_t n = 0;
	while (s != NULL && n < GPUREC_MAX_NAME_BYTES / sizeof *s && s[n] != 0)
		n++;
	return (struct text){s, n * sizeof *s, WIDE};
}

static struct text of_handle(const struct handle *h)
{
	return h ? (struct text){h->text, h->bytes, h->unit} : (struct text){NULL, 0, UTF8};
}

/* Callers say how much of the struct they know. */
static struct text message(const struct attributes *a)
{
	if (a == NULL || a->size < sizeof *a || a->message == NULL)
		return (struct text){NULL, 0, UTF8};
	switch (a->message_type) {
	case TEXT_ASCII:
		return ascii(a->message);
	case TEXT_WIDE:
		return wide(a->message);
	case TEXT_REGISTERED:
		return of_handle(a->message);
	}
	return (struct text){NULL, 0, UTF8};
}

static void *keep(struct text s, void *theirs)
{
	struct handle *h = gpurec_keep(sizeof *h + s.bytes);
	if (h == NULL)
		return NULL;
	h->theirs = theirs;
	h->unit = s.unit;
	h->bytes = (uint32_t)s.bytes;
	memcpy(h->text, s.bytes ? s.p : "", s.bytes);
	return h;
}

/* The attributes as the other tool must see them: with its own handle. */
static const struct attributes *for_next(const struct attributes *a, struct attributes *room)
{
	if (a == NULL || a->size < sizeof *a || a->message_type != TEXT_REGISTERED)
		return a;
	*room = *a;
	room->message = theirs(a->message);
	return room;
}

/* ---- events ----------------------------------------------------------------------- */

static void emit(struct thread *t, unsigned kind, const struct handle *domain, const struct text *name, int depth, uint64_t range)
{
	uint64_t text = name ? gpurec_def_text(t, name->p ? name->p : "", name->bytes, name->unit) : 0;
	uint64_t of = domain ? gpurec_def_text(t, domain->text, domain->bytes, domain->unit) : 0;
	struct record *r = gpurec_record(t, 1, false);
	r->s = (gpurec_scope){
		.kind = (uint8_t)kind,
		.flags = range ? GPUREC_FLAG_RANGE : 0,
		.api = GPUREC_API_NVTX,
		.device = -1,
		.name = text,
		.domain = of,
		.depth = depth,
		.range = range,
	};
	gpurec_publish(t, r, 1);
}

void gpurec_nvtx_mark(const struct handle *domain, struct text name)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	emit(t, GPUREC_KIND_MARK, domain, &name, -1, 0);
	gpurec_leave();
}

/* The depth of this thread's open pushes in a domain; NULL where too many have some. */
static int *depth_of(struct thread *t, const struct handle *domain)
{
	for (unsigned i = 0; i < t->ndomains; i++)
		if (t->domains[i].domain == domain)
			return &t->domains[i].depth;
	if (t->ndomains == MAX_DOMAINS) {
		for (unsigned i = 0; i < MAX_DOMAINS; i++)
			if (t->domains[i].depth == 0) {
				t->domains[i].domain = domain;
				return &t->domains[i].depth;
			}
		return NULL;
	}
	t->domains[t->ndomains].domain = domain;
	t->domains[t->ndomains].depth = 0;
	return &t->domains[t->ndomains++].depth;
}

int gpurec_nvtx_push(const struct handle *domain, struct text name)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return NO_TRACKING;
	int *depth = depth_of(t, domain), at = depth ? (*depth)++ : NO_TRACKING;
	if (depth)
		emit(t, GPUREC_KIND_SCOPE_BEGIN, domain, &name, at, 0);
	gpurec_leave();
	return at;
}

int gpurec_nvtx_pop(const struct handle *domain)
{
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return NO_TRACKING;
	int *depth = depth_of(t, domain), at = NO_TRACKING;
	if (depth && *depth > 0) {
		at = --*depth;
		emit(t, GPUREC_KIND_SCOPE_END, domain, NULL, at, 0);
	}
	gpurec_leave();
	return at;
}

uint64_t gpurec_nvtx_start(const struct handle *domain, struct text name, uint64_t id)
{
	struct thread *t = gpurec_enter();
	if (id == 0)
		id = gpurec_unique();
	if (t == NULL)
		return id;
	emit(t, GPUREC_KIND_SCOPE_BEGIN, domain, &name, -1, id);
	gpurec_leave();
	return id;
}

void gpurec_nvtx_end(const struct handle *domain, uint64_t id)
{
	struct thread *t = id ? gpurec_enter() : NULL;
	if (t == NULL)
		return;
	emit(t, GPUREC_KIND_SCOPE_END, domain, NULL, -1, id);
	gpurec_leave();
}

/* ---- the functions of the two modules ------------------------------------------------ */

typedef const struct attributes *E;
typedef const char *A;
typedef const wchar_t *W;
typedef struct handle *H;

static void core_mark_ex(E e)
{
	struct attributes room;
	gpurec_nvtx_mark(NULL, message(e));
	NEXT(next_core, MarkEx, void (*)(E), for_next(e, &room));
}
static void core_mark_a(A s)
{
	gpurec_nvtx_mark(NULL, ascii(s));
	NEXT(next_core, MarkA, void (*)(A), s);
}
static void core_mark_w(W s)
{
	gpurec_nvtx_mark(NULL, wide(s));
	NEXT(next_core, MarkW, void (*)(W), s);
}
static uint64_t core_start_ex(E e)
{
	struct attributes room;
	return gpurec_nvtx_start(NULL, message(e), NEXT_OR(next_core, RangeStartEx, uint64_t (*)(E), 0, for_next(e, &room)));
}
static uint64_t core_start_a(A s) { return gpurec_nvtx_start(NULL, ascii(s), NEXT_OR(next_core, RangeStartA, uint64_t (*)(A), 0, s)); }
static uint64_t core_start_w(W s) { return gpurec_nvtx_start(NULL, wide(s), NEXT_OR(next_core, RangeStartW, uint64_t (*)(W), 0, s)); }
static void core_end(uint64_t id)
{
	gpurec_nvtx_end(NULL, id);
	NEXT(next_core, RangeEnd, void (*)(uint64_t), id);
}
static int core_push_ex(E e)
{
	struct attributes room;
	int depth = gpurec_nvtx_push(NULL, message(e));
	NEXT(next_core, RangePushEx, int (*)(E), for_next(e, &room));
	return depth;
}
static int core_push_a(A s)
{
	int depth = gpurec_nvtx_push(NULL, ascii(s));
	NEXT(next_core, RangePushA, int (*)(A), s);
	return depth;
}
static int core_push_w(W s)
{
	int depth = gpurec_nvtx_push(NULL, wide(s));
	NEXT(next_core, RangePushW, int (*)(W), s);
	return depth;
}
static int core_pop(void)
{
	int depth = gpurec_nvtx_pop(NULL);
	NEXT(next_core, RangePop, int (*)(void), );
	return depth;
}

static void domain_mark_ex(H d, E e)
{
	struct attributes room;
	gpurec_nvtx_mark(d, message(e));
	NEXT(next_core2, DomainMarkEx, void (*)(void *, E), theirs(d), for_next(e, &room));
}
static uint64_t domain_start_ex(H d, E e)
{
	struct attributes room;
	return gpurec_nvtx_start(d, message(e), NEXT_OR(next_core2, DomainRangeStartEx, uint64_t (*)(void *, E), 0, theirs(d), for_next(e, &room)));
}
static void domain_end(H d, uint64_t id)
{
	gpurec_nvtx_end(d, id);
	NEXT(next_core2, DomainRangeEnd, void (*)(void *, uint64_t), theirs(d), id);
}
static int domain_push_ex(H d, E e)
{
	struct attributes room;
	int depth = gpurec_nvtx_push(d, message(e));
	NEXT(next_core2, DomainRangePushEx, int (*)(void *, E), theirs(d), for_next(e, &room));
	return depth;
}
static int domain_pop(H d)
{
	int depth = gpurec_nvtx_pop(d);
	NEXT(next_core2, DomainRangePop, int (*)(void *), theirs(d));
	return depth;
}
static void *domain_string_a(H d, A s) { return keep(ascii(s), NEXT_OR(next_core2, DomainRegisterStringA, void *(*)(void *, A), NULL, theirs(d), s)); }
static void *domain_string_w(H d, W s) { return keep(wide(s), NEXT_OR(next_core2, DomainRegisterStringW, void *(*)(void *, W), NULL, theirs(d), s)); }
static void *domain_create_a(A s) { return keep(ascii(s), NEXT_OR(next_core2, DomainCreateA, void *(*)(A), NULL, s)); }
static void *domain_create_w(W s) { return keep(wide(s), NEXT_OR(next_core2, DomainCreateW, void *(*)(W), NULL, s)); }
/* These mean nothing to us, but the other tool must not be given our handle. */
static void *domain_resource(H d, const void *attributes)
{
	return NEXT_OR(next_core2, DomainResourceCreate, void *(*)(void *, const void *), NULL, theirs(d), attributes);
}
static void domain_category_a(H d, uint32_t id, A s) { NEXT(next_core2, DomainNameCategoryA, void (*)(void *, uint32_t, A), theirs(d), id, s); }
static void domain_category_w(H d, uint32_t id, W s) { NEXT(next_core2, DomainNameCategoryW, void (*)(void *, uint32_t, W), theirs(d), id, s); }
static void domain_destroy(H d) { NEXT(next_core2, DomainDestroy, void (*)(void *), theirs(d)); }

static const function core[CORE_SIZE] = {
	[MarkEx] = (function)core_mark_ex,       [MarkA] = (function)core_mark_a,       [MarkW] = (function)core_mark_w,
	[RangeStartEx] = (function)core_start_ex, [RangeStartA] = (function)core_start_a, [RangeStartW] = (function)core_start_w,
	[RangeEnd] = (function)core_end,         [RangePushEx] = (function)core_push_ex, [RangePushA] = (function)core_push_a,
	[RangePushW] = (function)core_push_w,    [RangePop] = (function)core_pop,
};
static const function core2[CORE2_SIZE] = {
	[DomainMarkEx] = (function)domain_mark_ex,
	[DomainRangeStartEx] = (function)domain_start_ex,
	[DomainRangeEnd] = (function)domain_end,
	[DomainRangePushEx] = (function)domain_push_ex,
	[DomainRangePop] = (function)domain_pop,
	[DomainResourceCreate] = (function)domain_resource,
	[DomainNameCategoryA] = (function)domain_category_a,
	[DomainNameCategoryW] = (function)domain_category_w,
	[DomainRegisterStringA] = (function)domain_string_a,
	[DomainRegisterStringW] = (function)domain_string_w,
	[DomainCreateA] = (function)domain_create_a,
	[DomainCreateW] = (function)domain_create_w,
	[DomainDestroy] = (function)domain_destroy,
};

/* ---- installing ------------------------------------------------------------------------- */

/* A library's table: pointers to where it keeps each function. */
struct module {
	function **table;
	unsigned size;
	function before[16]; /* the library's own stubs, which must never be called */
};

static bool get_module(const struct callbacks *c, uint32_t id, struct module *m)
{
	if (!c->module(id, &m->table, &m->size) || m->table == NULL)
		return false;
	if (m->size > 16)
		m->size = 16;
	for (unsigned i = 1; i < m->size; i++)
		m->before[i] = m->table[i] ? *m->table[i] : NULL;
	return true;
}

/* What the other tool changed is its function; what it left is no one's. Then ours go in. */
static void install(struct module *m, const function *ours, function *next, bool chained)
{
	for (unsigned i = 1; i < m->size; i++) {
		if (m->table[i] == NULL || ours[i] == NULL)
			continue;
		if (chained && *m->table[i] != m->before[i] && *m->table[i] != ours[i])
			__atomic_store_n(&next[i], *m->table[i], __ATOMIC_RELAXED);
		*m->table[i] = ours[i];
	}
}

typedef int init_fn(get_table);

void *gpurec_nvtx_chain(const char *name)
{
	void *tool = gpurec_config.chain[0] ? gpurec_dlopen(gpurec_config.chain, RTLD_LAZY) : NULL;
	return tool ? gpurec_dlsym(tool, name) : NULL;
}

static bool call_chain(get_table get)
{
	void *p = gpurec_nvtx_chain("InitializeInjectionNvtx2");
	init_fn *init;
	memcpy(&init, &p, sizeof p);
	return init != NULL && init(get) != 0;
}

EXPORT init_fn InitializeInjectionNvtx2;

int InitializeInjectionNvtx2(get_table get)
{
	const struct callbacks *c = get ? get(TABLE_CALLBACKS) : NULL;
	if (c == NULL || c->size < sizeof *c || c->module == NULL)
		return 0;
	struct module one, two;
	bool has_one = get_module(c, MODULE_CORE, &one), has_two = get_module(c, MODULE_CORE2, &two);
	bool chained = call_chain(get);
	if (!gpurec_config.on)
		return chained; /* 0: nobody is interested, and each call of the library costs it a load and a branch */
	if (has_one)
		install(&one, core, next_core, chained);
	if (has_two)
		install(&two, core2, next_core2, chained);
	const struct version *v = get(TABLE_VERSION);
	if (v != NULL && v->size >= sizeof *v && v->set != NULL)
		v->set(3);
	return 1;
}
