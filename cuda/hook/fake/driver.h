/*
 * driver.h - the inside of the simulated libcuda.so.1.
 *
 *   driver.c   init, devices, handles    stream.c  streams and captures
 *   context.c  contexts                  pool.c    stream-ordered pools
 *   memory.c   cuMemAlloc and kin        vmm.c     handles and mappings
 *   host.c     pinned memory,            entry.c   cuGetProcAddress, errors
 *              pointer queries           names.c   names and their versions
 *   array.c    arrays                    graph.c   graphs with memory
 *   ipc.c      memory of others          bind.c    multicast, sparse arrays
 *   sim.c      shared with NVML (sim.h)  heap.c    addresses (heap.h)
 *
 * It keeps books and moves no data: pinned and managed memory is real, because
 * programs touch it; device memory is an address and nothing else.
 *
 * Locks, in the order in which they may nest: driver.lock (devices, contexts,
 * streams, captures), a heap's lock. Never two heaps at once.
 *
 * GPUREC_SIM_FAIL makes calls fail without effect, for tests of error paths: a
 * comma list of NAME:STATUS (every call) or NAME:STATUS@N (the Nth call of
 * that exported name in the process, counted from 1). NAME+MICROSECONDS makes
 * every call take that much longer before it has an effect.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include "cu.h"
#include "heap.h"
#include "sim.h"

/* API defines an exported function, and own_NAME for its address in this very
 * library: another library that exports the same name in front of it, as the
 * recorder's does, would get between otherwise. Protected visibility would do
 * that too, but then a program that is not position-independent cannot be
 * linked with us. */
#define API(name, params)                                                                              \
	__attribute__((visibility("default"))) CUresult name params;                                    \
	extern __typeof__(name) own_##name __attribute__((alias(#name), visibility("hidden")));         \
	CUresult name params

#define MAX_OBJECTS 65536 /* alive at once, of each sort */

struct context {
	_Atomic uint32_t live; /* a primary context stays known while inactive */
	int dev;
	bool primary;
};

struct pool {
	_Atomic uint32_t live;
	CUmemoryPool handle;
	int dev;
	bool builtin, doomed; /* the device's own; destroyed with blocks in it */
	bool imported;        /* another process's */
	enum kind of;         /* KIND_ASYNC, KIND_POOL_HOST or KIND_POOL_MANAGED */
	int reuse[4];
	uint64_t threshold, max_size;
	uint64_t reserved, reserved_high, used, used_high;
	struct slabs slabs;
};

struct stream {
	_Atomic uint32_t live;
	int dev;
	CUcontext ctx;
	int capture, mode;
	pthread_t by; /* who began the capture */
	CUgraph graph;
};

struct graph {
	_Atomic uint32_t live;
};

struct device {
	int index;  /* among all devices; the ordinal is the place in driver.dev */
	uint64_t capacity;
	struct heap heap;
	/* Under driver.lock: */
	CUcontext primary;
	uint32_t retains, contexts;
	/* Under heap.lock: */
	CUmemoryPool builtin, current;
};

/* table maps handles to objects. Handles are numbers that no address can be,
 * checked on each use and reused last in, first out. Objects are recycled and never returned to malloc: a
 * program that races a use against a destroy reads a dead object, not a wild
 * pointer. */
struct table {
	uint64_t tag;
	_Atomic uint32_t n;
	uint32_t nfree;
	uint32_t freed[MAX_OBJECTS];
	void *_Atomic slot[MAX_OBJECTS];
};

/* An object begins with its live word. table_take wants driver.lock. */
void *table_take(struct table *t, size_t size, void **handle);
void *table_get(struct table *t, const void *handle);
void table_give(struct table *t, const void *handle);

struct driver {
	_Atomic int ready;     /* cuInit has succeeded in this process */
	_Atomic int child;     /* forked from a process in which it had */
	_Atomic int captures;  /* streams that capture */
	bool failing;          /* GPUREC_SIM_FAIL is set */
	pthread_mutex_t lock; /* zeros are its initial value */
	struct sim_config config;
	struct sim_state *state;
	struct sim_slot *slot;
	int devices; /* visible ones */
	struct device dev[SIM_MAX_DEVICES];
	struct heap host, low, va;
	struct table contexts, streams, pools, arrays, graphs, handles, externals, resources, execs;
};

extern struct driver driver;

/* ENTER opens every exported function that needs cuInit, ANYTIME the others. */
#define ANYTIME()                                                \
	do {                                                     \
		if (__builtin_expect(driver.failing, 0)) {       \
			CUresult fail_ = driver_fail(__func__);  \
			if (fail_)                               \
				return fail_;                    \
		}                                                \
	} while (0)
#define ENTER()                                                  \
	do {                                                     \
		ANYTIME();                                       \
		if (__builtin_expect(!driver.ready, 0))          \
			return CUDA_ERROR_NOT_INITIALIZED;       \
	} while (0)
/* TWINS exports a function and its twin for programs compiled with the default
 * stream per thread. Which stream is the default makes no difference here; that
 * the two have different addresses does, to whoever wraps them. */
#define TWINS(name, suffix, params, args)  \
	API(name, params)                  \
	{                                  \
		ENTER();                   \
		return do_##name args;     \
	}                                  \
	API(name##suffix, params)          \
	{                                  \
		ENTER();                   \
		return do_##name args;     \
	}
/* TRY returns a failed status to the caller. */
#define TRY(call)                            \
	do {                                 \
		CUresult try_ = (call);      \
		if (try_)                    \
			return try_;         \
	} while (0)

CUresult driver_fail(const char *name);

/* entry_find gives the newest function of a name that a version has, NULL if it
 * has none; known says whether a later version has. */
void *entry_find(const char *name, int version, bool per_thread, bool *known);

/* current_context gives this thread's context; 201 if it has none, 709 if the
 * one it has is destroyed. */
CUresult current_context(CUcontext *handle, struct context **ctx);
bool device_charge(void *device, int64_t bytes);
/* device_alloc is heap_alloc on a device, after taking unused pool memory back
 * if it must. Wants the heap's lock. */
struct block *device_alloc(struct device *dev, uint64_t size, enum kind kind);

/* What ends with a context, and with the reset of a device. All want
 * driver.lock, pools_drop the device's heap lock too. */
void context_drop(CUcontext ctx);
void streams_drop(CUcontext ctx);
void host_unregister_all(CUcontext ctx);
void pools_drop(struct device *dev);
void vmm_drop(int ordinal);

/* pools_trim returns the empty reserve of a device above each pool's threshold,
 * or all of it. Wants the heap's lock. */
void pools_trim(struct device *dev, bool all);
void pool_free(struct device *dev, struct block *b);
CUresult pools_init(struct device *dev, int ordinal);

/* stream_resolve gives the device of a stream; *s is NULL for the built-in
 * streams, which belong to whatever context is current. */
CUresult stream_resolve(CUstream handle, struct stream **s, int *dev);
/* graph_alloc and graph_free are cuMemAllocAsync and cuMemFreeAsync on a
 * stream that captures: an address in the graph, no memory until it runs. */
CUresult graph_alloc(struct stream *s, size_t size, CUdeviceptr *out);
CUresult graph_free(struct stream *s, CUdeviceptr p);
/* graph_take and graph_give are the nodes' own; graph_needs adds up what a graph
 * takes on each device, and wants driver.lock. */
CUresult graph_take(CUgraph graph, int dev, size_t size, CUdeviceptr *out);
CUresult graph_give(CUgraph graph, CUdeviceptr p);
void graph_needs(CUgraph graph, uint64_t need[]);
/* graphs_trim gives what is kept for a device's graphs back. Wants driver.lock. */
void graphs_trim(int ordinal);
/* array_over is a mipmapped array over memory that another has; array_known
 * says whether a handle is an array's. */
CUresult array_over(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d);
bool array_known(const void *handle);

/* capture_unsafe is called by what must not run while a capture is open; it
 * invalidates such captures and gives 900. */
CUresult capture_unsafe(void);

/* heap_of gives the heap an address belongs to, or NULL. */
struct heap *heap_of(uint64_t addr);

/* vmm_accessible says whether [p, p+n) is mapped and readable. */
bool vmm_accessible(CUdeviceptr p, size_t n);

/* take allocates in the current context: from host if given, which costs no
 * device memory, else from the context's device. */
CUresult take(struct heap *host, uint64_t size, enum kind kind, CUdeviceptr *out);
/* look copies the block that holds an address a program may use. */
bool look(CUdeviceptr p, struct block *out);
/* free_any frees what any of the allocating families gave. */
CUresult free_any(CUdeviceptr p);

#endif
