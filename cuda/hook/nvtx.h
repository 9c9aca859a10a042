/*
 * nvtx.h - what the two halves of NVTX share: its functions (nvtx.c) and its
 * payload extension (nvtxpayload.c).
 */
#ifndef GPUREC_NVTX_H
#define GPUREC_NVTX_H

#include "hook.h"

typedef void (*nvtx_function)(void);

struct text {
	const void *p;
	size_t bytes;
	unsigned unit;
};

/* What we invent for a domain or a registered string: its text, which every lane
 * may yet have to send, and the other tool's handle. */
struct handle {
	void *theirs;
	uint32_t unit, bytes;
	char text[];
};

static inline void *theirs(const struct handle *h) { return h ? h->theirs : NULL; }

/* Calls the other tool's function of that id, where there is one. */
#define NEXT(table, id, type, ...) \
	do { \
		nvtx_function f_ = __atomic_load_n(&table[id], __ATOMIC_RELAXED); \
		if (f_ != NULL) \
			((type)f_)(__VA_ARGS__); \
	} while (0)
#define NEXT_OR(table, id, type, otherwise, ...) \
	(__atomic_load_n(&table[id], __ATOMIC_RELAXED) ? ((type)table[id])(__VA_ARGS__) : (otherwise))

void gpurec_nvtx_mark(const struct handle *domain, struct text name);

/* Both return the depth of the range, which programs may print: hence the real one. */
int gpurec_nvtx_push(const struct handle *domain, struct text name);
int gpurec_nvtx_pop(const struct handle *domain);

/* A range may end on another thread. The other tool's id, where it gave one, is ours too. */
uint64_t gpurec_nvtx_start(const struct handle *domain, struct text name, uint64_t id);
void gpurec_nvtx_end(const struct handle *domain, uint64_t id);

/* A function of the tool that NVTX was to load before we came; NULL without one. */
void *gpurec_nvtx_chain(const char *name);

#endif
