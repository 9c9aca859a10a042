/* Address spaces: see heap.h. */
#define _GNU_SOURCE
#include "heap.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE_SHIFT 9          /* 512 bytes: the driver's own alignment */
#define MAX_GRANULES (1u << 16)  /* per slab; a larger span gets larger granules */
#define NOT_FOUND UINT32_MAX

/* next_bit gives the first bit >= from that is set (or clear), or end. */
static uint32_t next_bit(const uint64_t *bits, uint32_t from, uint32_t end, bool set)
{
	uint64_t flip = set ? 0 : ~0ull;

	while (from < end) {
		uint64_t word = (bits[from / 64] ^ flip) >> (from % 64);

		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

/* prev_set gives the last set bit <= from; one exists. */
static uint32_t prev_set(const uint64_t *bits, uint32_t from)
{
	uint32_t w = from / 64;
	uint64_t word = bits[w] << (63 - from % 64) >> (63 - from % 64);

	while (!word)
		word = bits[--w];
	return w * 64 + 63 - (uint32_t)__builtin_clzll(word);
}

/* find_run gives the first run of n clear bits, or NOT_FOUND. Where it begins,
 * plus phase, is a multiple of align, a power of two. */
static uint32_t find_run(const uint64_t *bits, uint32_t from, uint32_t end, uint32_t n, uint32_t align,
			 uint64_t phase)
{
	for (;;) {
		from = next_bit(bits, from, end, false);
		uint64_t at = ((from + phase + align - 1) & ~(uint64_t)(align - 1)) - phase;
		if (at + n > end)
			return NOT_FOUND;
		uint32_t stop = next_bit(bits, (uint32_t)at, (uint32_t)at + n, true);
		if (stop == at + n)
			return (uint32_t)at;
		from = stop;
	}
}

static void set_run(uint64_t *bits, uint32_t from, uint32_t n, bool set)
{
	while (n) {
		uint32_t bit = from % 64, take = 64 - bit < n ? 64 - bit : n;
		uint64_t mask = (take == 64 ? ~0ull : (1ull << take) - 1) << bit;

		if (set)
			bits[from / 64] |= mask;
		else
			bits[from / 64] &= ~mask;
		from += take;
		n -= take;
	}
}

bool heap_init(struct heap *h, uint64_t want, bool below4g)
{
	const int prot = PROT_NONE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uint64_t bytes = (want + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
	char *p = MAP_FAILED;

	if (below4g) {
		/* A hint only: where the kernel puts it elsewhere, try the next. */
		for (uint64_t at = 0x20000000; at + bytes < 1ull << 32; at += 0x08000000) {
			p = mmap((void *)(uintptr_t)at, bytes, prot, flags, -1, 0);
			if (p != MAP_FAILED && (uintptr_t)p + bytes < 1ull << 32)
				break;
			if (p != MAP_FAILED)
				munmap(p, bytes);
			p = MAP_FAILED;
		}
		if (p == MAP_FAILED)
			return false;
		h->base = ((uintptr_t)p + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
		bytes -= h->base == (uintptr_t)p ? 0 : SIM_UNIT;
	} else {
		/* Valgrind, and limits on addresses, leave less than that. */
		uint64_t least = bytes < 1ull << 30 ? bytes : 1ull << 30;

		for (; bytes >= least && bytes >= SIM_UNIT; bytes = bytes / 2 / SIM_UNIT * SIM_UNIT) {
			p = mmap(NULL, bytes + SIM_UNIT, prot, flags, -1, 0);
			if (p != MAP_FAILED)
				break;
		}
		if (p == MAP_FAILED)
			return false;
		h->base = ((uintptr_t)p + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
	}
	h->end = h->base + bytes;
	h->units = (uint32_t)(bytes / SIM_UNIT);
	h->used = calloc(h->units / 64 + 1, sizeof *h->used);
	h->owner = calloc(h->units, sizeof *h->owner);
	h->nblock = 1; /* index 0 means none */
	return h->used && h->owner && pthread_mutex_init(&h->lock, NULL) == 0;
}

static struct block *block_new(struct heap *h, enum kind kind)
{
	uint32_t i = h->freeblock;

	if (i) {
		h->freeblock = h->block[i].next;
	} else {
		if (h->nblock >= h->capblock) {
			uint32_t cap = h->capblock ? h->capblock * 2 : 1024;
			struct block *v = realloc(h->block, cap * sizeof *v);
			if (!v)
				return NULL;
			h->block = v;
			h->capblock = cap;
		}
		i = h->nblock++;
	}
	memset(&h->block[i], 0, sizeof h->block[i]);
	h->block[i].kind = (uint8_t)kind;
	return &h->block[i];
}

static uint32_t index_of(struct heap *h, struct block *b)
{
	return (uint32_t)(b - h->block);
}

static void block_end(struct heap *h, struct block *b)
{
	b->kind = KIND_NONE;
	b->next = h->freeblock;
	h->freeblock = index_of(h, b);
}

/* span_alloc takes whole units. */
static struct block *span_alloc(struct heap *h, uint64_t size, enum kind kind, uint32_t align)
{
	if (size > h->end - h->base)
		return NULL;
	uint64_t bytes = (size + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
	uint32_t n = (uint32_t)(bytes / SIM_UNIT);
	uint32_t at = find_run(h->used, h->low, h->units, n, align, h->base / SIM_UNIT);

	if (at == NOT_FOUND)
		return NULL;
	struct block *b = block_new(h, kind);
	if (!b)
		return NULL;
	b->addr = h->base + at * SIM_UNIT;
	b->size = size;
	b->bytes = bytes;
	if (h->charge && !h->charge(h->arg, (int64_t)bytes)) {
		block_end(h, b);
		return NULL;
	}
	if (h->touchable && mprotect((void *)(uintptr_t)b->addr, bytes, PROT_READ | PROT_WRITE) != 0) {
		if (h->charge)
			h->charge(h->arg, -(int64_t)bytes);
		block_end(h, b);
		return NULL;
	}
	set_run(h->used, at, n, true);
	for (uint32_t i = 0; i < n; i++)
		h->owner[at + i] = index_of(h, b);
	if (at == h->low)
		h->low = at + n;
	return b;
}

static void span_free(struct heap *h, struct block *b)
{
	uint32_t at = (uint32_t)((b->addr - h->base) / SIM_UNIT), n = (uint32_t)(b->bytes / SIM_UNIT);

	set_run(h->used, at, n, false);
	memset(&h->owner[at], 0, n * sizeof *h->owner);
	if (at < h->low)
		h->low = at;
	if (h->charge)
		h->charge(h->arg, -(int64_t)b->bytes);
	/* A new mapping over the old one drops pages and rights in one call. */
	if (h->touchable)
		mmap((void *)(uintptr_t)b->addr, b->bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	block_end(h, b);
}

struct slab *slab_new(struct heap *h, struct slabs *s, uint64_t bytes)
{
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 16;
		struct slab **v = realloc(s->v, cap * sizeof *v);
		if (!v)
			return NULL;
		s->v = v;
		s->cap = cap;
	}
	struct block *span = span_alloc(h, bytes, KIND_SPAN, 1);
	if (!span)
		return NULL;

	uint32_t shift = GRANULE_SHIFT;
	while (span->bytes >> shift > MAX_GRANULES)
		shift++;
	uint32_t count = (uint32_t)(span->bytes >> shift);
	size_t words = count / 64 + 1;
	/* One piece: the slab, two bitmaps, the indices. The indices need no
	 * zeros, they are read only where a start bit is set. */
	struct slab *slab = malloc(sizeof *slab + 2 * words * sizeof(uint64_t) + count * sizeof(uint32_t));
	if (!slab) {
		span_free(h, span);
		return NULL;
	}
	*slab = (struct slab){
		.base = span->addr,
		.span = index_of(h, span),
		.count = count,
		.shift = shift,
		.longest = count,
		.used = (uint64_t *)(slab + 1),
		.start = (uint64_t *)(slab + 1) + words,
		.block = (uint32_t *)((uint64_t *)(slab + 1) + 2 * words),
	};
	memset(slab->used, 0, 2 * words * sizeof(uint64_t));
	span->slab = slab;
	s->v[s->n++] = slab;
	return slab;
}

void slab_drop(struct heap *h, struct slabs *s, struct slab *slab)
{
	uint32_t i = 0;

	while (s->v[i] != slab)
		i++;
	memmove(&s->v[i], &s->v[i + 1], (s->n - i - 1) * sizeof *s->v);
	s->n--;
	span_free(h, &h->block[slab->span]);
	free(slab);
}

struct block *slabs_alloc(struct heap *h, struct slabs *s, uint64_t size, enum kind kind)
{
	for (uint32_t i = 0; i < s->n; i++) {
		struct slab *slab = s->v[i];
		uint64_t n = (size + (1ull << slab->shift) - 1) >> slab->shift;

		if (n > slab->longest)
			continue;
		uint32_t at = find_run(slab->used, slab->low, slab->count, (uint32_t)n, 1, 0);
		if (at == NOT_FOUND) {
			slab->longest = (uint32_t)n - 1;
			continue;
		}
		struct block *b = block_new(h, kind);
		if (!b)
			return NULL;
		b->addr = slab->base + ((uint64_t)at << slab->shift);
		b->size = size;
		b->bytes = n << slab->shift;
		b->slab = slab;
		set_run(slab->used, at, (uint32_t)n, true);
		slab->start[at / 64] |= 1ull << (at % 64);
		slab->block[at] = index_of(h, b);
		slab->live++;
		if (at == slab->low)
			slab->low = at + (uint32_t)n;
		return b;
	}
	return NULL;
}

struct block *heap_alloc(struct heap *h, uint64_t size, enum kind kind, uint32_t align)
{
	if (size == 0)
		return NULL;
	if (size > SIM_UNIT / 2 || align > 1)
		return span_alloc(h, size, kind, align);
	struct block *b = slabs_alloc(h, &h->small, size, kind);
	if (b)
		return b;
	struct slab *slab = slab_new(h, &h->small, SIM_UNIT);
	if (!slab)
		return NULL;
	b = slabs_alloc(h, &h->small, size, kind);
	if (!b)
		slab_drop(h, &h->small, slab);
	return b;
}

void heap_free(struct heap *h, struct block *b)
{
	struct slab *slab = b->slab;

	if (!slab) {
		span_free(h, b);
		return;
	}
	uint32_t at = (uint32_t)((b->addr - slab->base) >> slab->shift);
	set_run(slab->used, at, (uint32_t)(b->bytes >> slab->shift), false);
	slab->start[at / 64] &= ~(1ull << (at % 64));
	slab->live--;
	slab->longest = slab->count;
	if (at < slab->low)
		slab->low = at;
	bool chunk = b->kind != KIND_ASYNC;
	block_end(h, b);
	if (chunk && slab->live == 0)
		slab_drop(h, &h->small, slab);
}

struct block *heap_find(struct heap *h, uint64_t addr)
{
	if (!heap_holds(h, addr))
		return NULL;
	uint32_t i = h->owner[(addr - h->base) / SIM_UNIT];
	if (!i)
		return NULL;
	struct block *b = &h->block[i];
	if (b->kind != KIND_SPAN)
		return b;
	struct slab *slab = b->slab;
	uint32_t at = (uint32_t)((addr - slab->base) >> slab->shift);
	if (!(slab->used[at / 64] >> (at % 64) & 1))
		return NULL;
	return &h->block[slab->block[prev_set(slab->start, at)]];
}
