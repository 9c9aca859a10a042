/*
 * nvtxpayload.c - ranges that carry data: NVTX's payload extension.
 *
 * A library may push a range as any other and pop it with a payload, as NCCL
 * does for the communicators that it makes. The extension has its own entry into
 * the tool, and where no tool takes it, its functions do nothing: such a range
 * would never end, and everything after would seem to lie inside it. So we take
 * the functions that begin and end ranges; what the payloads say is nothing that
 * a report asks for.
 *
 * The extension's other functions are for tools that read payloads. They stay
 * away, as without a tool, unless the tool behind us takes them: then each gets
 * its own domains, which means one function here for each of its slots.
 */
#include "nvtx.h"

#include <string.h>

enum { MODULE_PAYLOAD = 2 };
enum { SchemaRegister, EnumRegister, Mark, Push, Pop, Start, End, IsEnabled, ScopeRegister = 12, SLOTS };

struct segment {
	size_t id, slots;
	intptr_t *functions; /* 0: nobody's; NVTX then makes the call a test and a jump */
};
struct module {
	uint16_t version, size, id, compatible;
	size_t segments;
	struct segment *segment;
	const void *(*get)(uint32_t);
	const void *info;
};

static nvtx_function next[SLOTS];

typedef struct handle *H;
typedef const void *P; /* an array of payloads */

/* The name of a range that is pushed so is in its payload, where only a schema finds it. */
static struct text unnamed(void)
{
	static const char name[] = "[named in its payload]";
	return (struct text){name, sizeof name - 1, 0};
}

static void mark(H d, P p, size_t n)
{
	gpurec_nvtx_mark(d, unnamed());
	NEXT(next, Mark, void (*)(void *, P, size_t), theirs(d), p, n);
}
static int push(H d, P p, size_t n)
{
	int depth = gpurec_nvtx_push(d, unnamed());
	NEXT(next, Push, int (*)(void *, P, size_t), theirs(d), p, n);
	return depth;
}
static int pop(H d, P p, size_t n)
{
	int depth = gpurec_nvtx_pop(d);
	NEXT(next, Pop, int (*)(void *, P, size_t), theirs(d), p, n);
	return depth;
}
static uint64_t start(H d, P p, size_t n)
{
	return gpurec_nvtx_start(d, unnamed(), NEXT_OR(next, Start, uint64_t (*)(void *, P, size_t), 0, theirs(d), p, n));
}
static void end(H d, uint64_t id, P p, size_t n)
{
	gpurec_nvtx_end(d, id);
	NEXT(next, End, void (*)(void *, uint64_t, P, size_t), theirs(d), id, p, n);
}

static uint8_t is_enabled(H d) { return NEXT_OR(next, IsEnabled, uint8_t(*)(void *), 1, theirs(d)); }
static uint64_t schema(H d, const void *a) { return NEXT_OR(next, SchemaRegister, uint64_t (*)(void *, const void *), 0, theirs(d), a); }
static uint64_t enumeration(H d, const void *a) { return NEXT_OR(next, EnumRegister, uint64_t (*)(void *, const void *), 0, theirs(d), a); }
static uint64_t scope(H d, const void *a) { return NEXT_OR(next, ScopeRegister, uint64_t (*)(void *, const void *), 0, theirs(d), a); }

static const struct {
	nvtx_function ours;
	bool always; /* not only where the tool behind us has one */
} functions[SLOTS] = {
	[SchemaRegister] = {(nvtx_function)schema, false},
	[EnumRegister] = {(nvtx_function)enumeration, false},
	[ScopeRegister] = {(nvtx_function)scope, false},
	[IsEnabled] = {(nvtx_function)is_enabled, true},
	[Mark] = {(nvtx_function)mark, true},
	[Push] = {(nvtx_function)push, true},
	[Pop] = {(nvtx_function)pop, true},
	[Start] = {(nvtx_function)start, true},
	[End] = {(nvtx_function)end, true},
};

typedef int init_fn(struct module *);
EXPORT init_fn InitializeInjectionNvtxExtension;

/* Called once a library and extension, after InitializeInjectionNvtx2. */
int InitializeInjectionNvtxExtension(struct module *m)
{
	if (m == NULL || m->size < sizeof *m)
		return 0;
	void *p = gpurec_nvtx_chain("InitializeInjectionNvtxExtension");
	init_fn *init;
	memcpy(&init, &p, sizeof p);
	if (!gpurec_config.on)
		return init != NULL ? init(m) : 0;
	/* Every extension's functions take domains, and ours mean nothing to the tool
	 * behind us: of what is not wrapped here it gets nothing. */
	if (m->id != MODULE_PAYLOAD || m->segments == 0 || m->segment == NULL || m->segment->functions == NULL)
		return 0;
	struct segment *s = m->segment;
	bool chained = init != NULL && init(m) != 0;
	for (size_t i = 0; i < s->slots; i++) {
		intptr_t behind = chained ? s->functions[i] : 0;
		s->functions[i] = 0;
		if (i >= SLOTS || functions[i].ours == NULL || (behind == 0 && !functions[i].always))
			continue;
		if (behind != 0 && behind != (intptr_t)functions[i].ours)
			__atomic_store_n(&next[i], (nvtx_function)behind, __ATOMIC_RELAXED);
		s->functions[i] = (intptr_t)functions[i].ours;
	}
	return 1;
}
