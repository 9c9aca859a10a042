/*
 * heap.h - address spaces of the simulated driver: who lives at which address.
 *
 *   arena   one big PROT_NONE mapping, so that no address of ours can collide
 *           with one of the program's
 *   unit    2 MiB of it: what physical memory is counted in
 *   block   one allocation: whole units if it is large, else granules of a slab
 *   slab    a span of units cut into granules: the 2 MiB chunk that small
 *           allocations share, or the 32 MiB a stream-ordered pool reserves
 *
 * Search is first fit from the lowest free address, so a freed address comes
 * back at once, on whatever thread asks next: what the recorder has to get right.
 *
 * Nothing here locks: callers hold heap.lock.
 */
#ifndef HEAP_H
#define HEAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum kind {
	KIND_NONE = 0,
	KIND_SPAN,     /* the units of a slab; no program's allocation */
	KIND_DEVICE,   /* cuMemAlloc */
	KIND_PITCH,    /* cuMemAllocPitch */
	KIND_MANAGED,  /* cuMemAllocManaged */
	KIND_HOST,     /* cuMemAllocHost, cuMemHostAlloc */
	KIND_ASYNC,    /* from a stream-ordered pool */
	KIND_ARRAY,    /* behind a CUarray */
	KIND_RESERVED, /* cuMemAddressReserve */
	KIND_GRAPH,    /* a graph's address */
	KIND_IPC,      /* another process's memory */
	KIND_IMPORT,   /* another's memory that cuMemFree ends */
	KIND_POOL_HOST,    /* from a stream-ordered pool of host memory */
	KIND_POOL_MANAGED, /* and of managed memory */
};

struct slab {
	uint64_t base;
	uint32_t span;    /* its block of kind KIND_SPAN */
	uint32_t count;   /* granules */
	uint32_t shift;   /* log2 of a granule */
	uint32_t live;    /* blocks in it */
	uint32_t low;     /* no free granule below this one */
	uint32_t longest; /* no free run is longer; may be too high */
	uint64_t *used;   /* bit per granule */
	uint64_t *start;  /* bit where a block begins */
	uint32_t *block;  /* its index, at those bits */
};

/* slabs is an ordered set of slabs; first fit goes in this order. */
struct slabs {
	struct slab **v;
	uint32_t n, cap;
};

struct block {
	uint64_t addr;
	uint64_t size;  /* as asked */
	uint64_t bytes; /* of address space */
	void *ctx;      /* the CUcontext it dies with, NULL for none */
	void *owner;    /* pool, array or graph it belongs to */
	struct slab *slab;
	uint32_t next; /* free list */
	uint8_t kind;
	uint8_t dev;
	bool freed; /* KIND_GRAPH: the capture has freed it too */
};

struct heap {
	pthread_mutex_t lock;
	uint64_t base, end;
	uint32_t units, low;
	uint64_t *used;  /* bit per unit */
	uint32_t *owner; /* block index per unit, 0 is none */
	struct block *block;
	uint32_t nblock, capblock, freeblock;
	struct slabs small;
	/* charge is told when units become used (bytes > 0, may refuse) and
	 * unused (bytes < 0); NULL: address space costs nothing. */
	bool (*charge)(void *arg, int64_t bytes);
	void *arg;
	bool touchable; /* the program may read and write what it gets */
};

/* heap_init maps an arena; where memory is limited it takes down to a quarter
 * of want, and says false if even that is refused. With below4g the whole
 * arena can be named by 32 bits. */
bool heap_init(struct heap *h, uint64_t want, bool below4g);

/* heap_alloc gives a block or NULL. Blocks up to half a unit share slabs.
 * align, in units, is for whole units only. The pointer is valid until the
 * next heap_alloc. */
struct block *heap_alloc(struct heap *h, uint64_t size, enum kind kind, uint32_t align);

/* slabs_alloc takes a block from one of the slabs, or NULL. */
struct block *slabs_alloc(struct heap *h, struct slabs *s, uint64_t size, enum kind kind);

/* slab_new adds a span of at least bytes to s; NULL if there is none. */
struct slab *slab_new(struct heap *h, struct slabs *s, uint64_t bytes);

/* slab_drop gives the span of an empty slab back. */
void slab_drop(struct heap *h, struct slabs *s, struct slab *slab);

/* heap_free ends a block; a chunk of h->small that becomes empty goes too. */
void heap_free(struct heap *h, struct block *b);

/* heap_find gives the block that holds addr, or NULL. */
struct block *heap_find(struct heap *h, uint64_t addr);

static inline bool heap_holds(const struct heap *h, uint64_t addr)
{
	return addr >= h->base && addr < h->end;
}

#endif
