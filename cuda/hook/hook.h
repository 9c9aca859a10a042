/*
 * hook.h - the inside of the preload library.
 *
 *   doors.c   how calls come in: exported symbols, dlsym    proc.c  cuGetProcAddress
 *   deepbind.c libraries that go past the doors
 *   call.c    one recorded call of the driver; its wrappers are in
 *             driver.c  device, managed and host memory   array.c    arrays
 *             pool.c    stream-ordered pools, reserves    graph.c    graphs, captures
 *             vmm.c     virtual memory management         context.c  contexts, checkpoints
 *             external.c  IPC, external memory, graphics
 *   unhooked.c what is looked up and has no wrapper
 *   torch.c   PyTorch's reports                   cupy.c   CuPy's
 *   nvtx.c    NVTX ranges and marks                     api.c    gpurec.h
 *   stack.c   definitions: what has been sent           python.c CPython's code objects
 *   walk.c    CPython's frames                          unwind.c native frames
 *   unwind_cfi.c, unwind_shape.c  .eh_frame             unwind_go.c Go's code
 *   module.c  what is mapped where                      arch.h   x86-64 and aarch64
 *   birth.c   a lane's birth                            lane.c   publishing, a full lane
 *   thread.c  threads, forks, ends
 *   config.c  the environment
 *
 * The hook is a guest. It never exits, aborts, prints unasked, changes errno or
 * a result, or takes a lock that another thread can hold. In doubt it drops,
 * counts, and calls the real function. It allocates by mmap only, calls the
 * kernel by syscall(2) (libc's wrappers are cancellation points, and a
 * cancelled thread would never make the real call), and does nothing at all
 * until the process looks up a CUDA symbol or makes its first event.
 */
#ifndef HOOK_H
#define HOOK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "arch.h"
#include "gpurec.h"
#include "wire.h"

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* ---- config.c ---------------------------------------------------------- */

struct config {
	bool on;      /* a recorder's socket was named */
	bool verbose; /* say on stderr why the hook is off */
	bool wait;    /* what a full lane does before the recorder has said */
	bool python;  /* Python frames are wanted */
	bool deepbind; /* libraries opened with RTLD_DEEPBIND are led to us */
	enum { NATIVE_NEVER, NATIVE_ELSE, NATIVE_ALWAYS } native; /* ELSE: where there are no Python frames, and on the driver's events */
	unsigned max_frames;
	uint64_t lane_size; /* bytes of a ring */
	char socket[108];
	char chain[4096]; /* the NVTX tool that was there before us */
};
extern struct config gpurec_config;

/* Writes "gpurec: TEXT" to stderr when asked to be verbose. */
void gpurec_say(const char *text);

/* ---- thread.c ---------------------------------------------------------- */

#define MAX_DEFS (GPUREC_MAX_FRAMES + 8)
#define SENT_STACKS 8192
#define SENT_CODES 4096
#define SENT_NAMES 1024
#define MAX_DOMAINS 64 /* NVTX domains whose depth one thread tracks */

/* A definition that waits for its event. */
struct def {
	uint8_t kind; /* GPUREC_WIRE_CODE, STACK, NAME, DEVICE, MODULE */
	uint8_t unit;
	uint16_t number; /* a device's ordinal, a module's number */
	uint32_t bytes;  /* in the ring, a multiple of a slot */
	uint32_t length; /* of a text */
	uint64_t key;
	const void *from; /* the code object, the text */
};

/* One event: a gpurec_event (or scope, thread), and a gpurec_call when it is two slots. */
struct record {
	union {
		gpurec_event e;
		gpurec_scope s;
		gpurec_thread t;
	};
	gpurec_call c;
};
_Static_assert(sizeof(struct record) == 2 * GPUREC_SLOT_SIZE, "a record is two slots");

/* A native frame. */
struct native {
	uintptr_t at;  /* of a caller the call's last byte */
	uintptr_t end; /* its part of the stack ends here */
	uint16_t module;
	bool loop; /* of CPython's interpreter */
};

/*
 * What a lane's present thread knows. It belongs to the lane: the next thread
 * that gets the lane inherits what has been sent. What every event needs comes
 * first, in two cache lines.
 */
struct thread {
	gpurec_lane *lane; /* NULL: not born yet */
	unsigned char *ring;
	uint64_t capacity;
	uint64_t head;     /* the lane's, privately */
	uint64_t clear[2]; /* up to here a record needs no look at the tail and no pad; [1] an Alloc */
	uint64_t seq;
	uint32_t epoch;
	unsigned ndefs;

	uint64_t devices; /* ordinals whose definition has been sent */
	uint64_t tail;    /* the consumer's when last looked at */
	uint64_t mapped;  /* bytes of the ring that are in the page table */
	uint64_t born;
	uint64_t retry; /* no birth before this time */
	uint64_t wait_from, waited; /* the present second of waiting */
	uint64_t held;              /* ns waited in all */
	uint64_t in_vain; /* one more than the recorder's heartbeat when an answer did not come; 0: they all came */
	uint32_t tid;
	bool begun; /* its ThreadBegin is in the lane */
	unsigned slot;
	unsigned nframes, frames_dropped;
	void *file; /* the lane's, in the block of the thread that made it */
	uint64_t file_bytes;
	struct record spare; /* a record whose place in the ring is not clear yet */
	struct def defs[MAX_DEFS];
	gpurec_frame frames[GPUREC_MAX_FRAMES]; /* innermost first */
	const void *codes[GPUREC_MAX_FRAMES];

	unsigned ndomains;
	struct {
		const void *domain;
		int depth;
	} domains[MAX_DOMAINS];

	unsigned native_frames, native_dropped;
	uint32_t stack_of;               /* the thread of which the next two are */
	uintptr_t stack_low, stack_end;  /* in between all is mapped; see unwind.c */
	uintptr_t copy_of;               /* the page that copy has */
	struct native native[GPUREC_MAX_FRAMES];
	char copy[4096], scratch[8192] __attribute__((aligned(16)));

	uint64_t sent_modules[GPUREC_MAX_MODULES / 64];
	uint64_t sent_stacks[SENT_STACKS];
	uint64_t sent_codes[SENT_CODES];
	uint64_t sent_names[SENT_NAMES];
};

/* Small, so that it fits where a library opened late finds room for it. */
struct tls {
	struct thread *self;
	uint32_t generation; /* of self: another one's block may be gone */
	uint32_t depth;      /* >0: inside the hook or inside a real call: be silent */
	uintptr_t flight;    /* where on the stack the call stands whose real function runs; 0: none does */
	uint32_t pool;       /* open gpurec_pool_enter */
	uint64_t retry;      /* no block before this time */
	uint32_t deep;       /* a library was opened with RTLD_DEEPBIND, when there were so many; 0: none */
	uint32_t deep_gone;  /* and so many had been closed */
	bool second;         /* in a call of the second libcuda */
	bool apart;          /* one was opened in a namespace of its own */
	bool opened;         /* a library was opened, and no name has been looked up since */
	bool seen;           /* whether it is PyTorch's */
};
extern __thread struct tls gpurec_tls __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Where the generation stands that a thread's block must be of; see thread.c. */
extern const uint32_t *gpurec_generation;
extern bool gpurec_off; /* no recorder: for good */

/* Whether the call in flight was left by a longjmp, as frame shows, an address in
 * a frame that is there now. Then the thread is as if it had returned. */
bool gpurec_jumped(const void *frame);

struct thread *gpurec_enter_slow(bool event);

/*
 * Every event begins with gpurec_enter and ends with gpurec_leave; in between
 * errno stays as it is. NULL: this is not to be recorded: off, or lost and
 * counted, for there is no lane or a signal's handler came between the two. A
 * question is no event, and none is lost with it.
 */
static inline struct thread *gpurec_enter_as(bool event)
{
	struct tls *tls = &gpurec_tls;
	struct thread *t = tls->self;
	if (unlikely(t == NULL || tls->depth != 0 || tls->generation != __atomic_load_n(__atomic_load_n(&gpurec_generation, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE) ||
	             __atomic_load_n(&gpurec_off, __ATOMIC_RELAXED) || t->lane == NULL ||
	             t->epoch != __atomic_load_n(&t->lane->epoch, __ATOMIC_RELAXED)))
		return gpurec_enter_slow(event);
	tls->depth = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->ndefs = 0;
	return t;
}

static inline struct thread *gpurec_enter(void) { return gpurec_enter_as(true); }

static inline void gpurec_leave(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	gpurec_tls.depth--;
}

/* Gives lanes, n of them, to the threads that come next. */
void gpurec_lanes_spare(gpurec_lane *const *lanes, unsigned n);

/* Whether t is still this thread's: false in a child forked since. */
bool gpurec_still(struct thread *t);

/* Counts in a lane, which others can see by now, the events lost so far while the process had none. */
void gpurec_missed(gpurec_lane *lane);

/* A number unique in this process and its children so far. */
uint64_t gpurec_unique(void);

/* Memory that is never given back, zeroed; NULL when there is none. */
void *gpurec_keep(size_t bytes);

/* ---- birth.c, lane.c ------------------------------------------------------ */

bool gpurec_lane_birth(struct thread *t);
void gpurec_lane_mark(int err); /* says to the recorder that there can be no lane, and why; 0 that there is one */
void gpurec_lane_take(struct thread *t, gpurec_lane *lane); /* a spare one */
void gpurec_lane_reset(void); /* in a child: no lanes yet */
void gpurec_lane_forget(struct thread *t, uint32_t epoch); /* the recorder has forgotten what was sent */
void gpurec_lane_left(struct thread *t); /* its thread has ended */
int gpurec_wake_recorder(void); /* 0 or an errno; ECONNREFUSED: there is none any more */

static inline uint64_t gpurec_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/*
 * The order of publishing is what the recorder's watermark stands on:
 *
 *  1 busy = 1, a plain store before the clock in program order
 *  2 the clock
 *  3 what is still to be written into the ring
 *  4 head, with release
 *  5 busy = 0
 *
 * gpurec_open is 1 and 2, gpurec_shut 4 and 5. In between is no call that could
 * wait, no walk and no lock. A busy word set after the clock read let 241 of 72
 * million events come late when tried.
 */
static inline uint64_t gpurec_open(struct thread *t)
{
	__atomic_store_n(&t->lane->busy, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return gpurec_now();
}

static inline void gpurec_shut(struct thread *t, uint64_t head)
{
	t->head = head;
	__atomic_store_n(&t->lane->head, head, __ATOMIC_RELEASE); /* pairs with the load in Consumer.Read */
	__atomic_store_n(&t->lane->busy, 0, __ATOMIC_RELEASE);
}

/*
 * Publishes the waiting definitions and r together, or drops them together and
 * counts one. start is the time before a call (its duration is then taken here),
 * or 0. r's time and seq are filled in. errno stays as it is.
 */
bool gpurec_publish_copy(struct thread *t, struct record *r, unsigned slots, uint64_t start);

/*
 * An event is written where it will lie: gpurec_record gives its place in the
 * ring, or t->spare where definitions come first or room is to be found. Then
 * the caller fills in all of it but time, seq and slots, and gpurec_publish
 * publishes it, or drops it with its definitions and counts one. What lies
 * beyond the head is nobody's, so that this needs no busy word; and the line
 * travels to this core while the clock is read. (Built on the stack and copied,
 * an event cost its copy a stall besides: wide loads of what narrow stores had
 * just written.)
 */
static inline struct record *gpurec_record(struct thread *t, unsigned slots, bool alloc)
{
	if (unlikely(t->ndefs != 0 || t->head + slots * GPUREC_SLOT_SIZE > t->clear[alloc]))
		return &t->spare;
	return (struct record *)(t->ring + (t->head & (t->capacity - 1)));
}

/*
 * The recorder has read every line of the ring that comes next, so it is in its
 * core's cache too and has to be taken from there: asked for some events before
 * it is written, that is not waited for (5 of 54 ns on the host of an H200).
 * Spelled out, for compilers turn a prefetch for writing into one for reading
 * where they may not assume the instruction; a processor without it takes it for
 * no operation.
 */
static inline void gpurec_fetch_ahead(const struct thread *t)
{
#ifdef __x86_64__
	enum { LINES = 4 };
	__asm__ volatile("prefetchw %0" ::"m"(t->ring[(t->head + LINES * GPUREC_SLOT_SIZE) & (t->capacity - 1)]));
#else
	(void)t;
#endif
}

static inline bool gpurec_publish(struct thread *t, struct record *r, unsigned slots)
{
	if (unlikely(r == &t->spare))
		return gpurec_publish_copy(t, r, slots, 0);
	uint64_t now = gpurec_open(t);
	r->e.time = now;
	r->e.seq = (uint32_t)t->seq++;
	r->e.slots = (uint16_t)slots;
	gpurec_shut(t, t->head + slots * GPUREC_SLOT_SIZE);
	gpurec_fetch_ahead(t);
	return true;
}

/* Publishes the waiting definitions alone; what does not fit keeps waiting. */
void gpurec_publish_defs(struct thread *t);

/* ---- stack.c ----------------------------------------------------------- */

/* Each returns what the event carries and adds what the recorder does not know yet. */
uint64_t gpurec_def_stack(struct thread *t, int skip, bool driver);
uint64_t gpurec_def_name(struct thread *t, const char *text);
uint64_t gpurec_def_text(struct thread *t, const void *text, size_t bytes, unsigned unit);
int16_t gpurec_def_device(struct thread *t, int ordinal, bool ask);

/* What each event calls: mostly there is nothing to define. */
static inline int16_t gpurec_device(struct thread *t, int ordinal, bool ask)
{
	if (likely((unsigned)ordinal < 64 && t->devices >> ordinal & 1))
		return (int16_t)ordinal;
	return gpurec_def_device(t, ordinal, ask);
}

uint64_t gpurec_text_hash(const void *text, size_t bytes, unsigned unit);
void gpurec_def_write(const struct thread *t, const struct def *d, unsigned char *to);
void gpurec_def_sent(struct thread *t, const struct def *d);

static inline uint64_t gpurec_mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15ull;
	return h ^ (h >> 29);
}

/* ---- hashing lists: walk.c ------------------------------------------------------ */

typedef unsigned __int128 gpurec_sum;
enum { MOST_PAIRS = 4 }; /* of a frame */
extern uint64_t gpurec_noise[2 * MOST_PAIRS * GPUREC_MAX_FRAMES];
void gpurec_make_noise(void);

/*
 * A list of pairs of words is hashed as NH does (J. Black and others, UMAC,
 * 1999): the sum of (noise + a) · (noise' + b) in 128 bits. For numbers drawn at
 * random two lists collide with a chance of 2^-64, whatever they have in common;
 * and no product waits for the one before it, where a chain of mixes cost 10
 * cycles a frame. The noise must be drawn place by place: one that grows evenly
 * gives a b b a and b a a b the same sum.
 */
static inline __attribute__((always_inline)) gpurec_sum gpurec_product(const uint64_t *two, uint64_t a, uint64_t b)
{
	return (gpurec_sum)(two[0] + a) * (two[1] + b);
}

static inline __attribute__((always_inline)) uint64_t gpurec_folded(gpurec_sum sum, uint64_t x)
{
	return gpurec_mix(gpurec_mix((uint64_t)sum, x), (uint64_t)(sum >> 64));
}

/* ---- python.c ---------------------------------------------------------- */

extern uint32_t gpurec_python; /* 0x030b0700 for 3.11.7, 0: none, or not one that can be read */

extern uintptr_t gpurec_python_loop; /* _PyEval_EvalFrameDefault, 0 not known */

/* Asks the loader for an interpreter: where the program itself asks it, see python.c. */
void gpurec_python_look(void);
/* Whether one that is there can be read by now; takes no lock but in a process that has looked up nothing. */
void gpurec_python_find(void);
/* The hash of this thread's innermost max frames; 0: it has none. */
uint64_t gpurec_python_hash(unsigned max, int skip);
/* Fills t->frames and t->codes of a stack that has a hash. */
void gpurec_python_walk(struct thread *t, unsigned max, int skip);
/* Where on the C stack the calling thread's Python frames were entered: place[i]
 * is in the frame of the interpreter's loop that runs the frames from the one
 * after before[i-1] to before[i]. Returns how many, at most max; -1: this version
 * does not say. */
int gpurec_python_entries(unsigned max, int skip, uintptr_t *place, unsigned *before);
uint32_t gpurec_code_bytes(const void *code, uint32_t limit);
void gpurec_code_write(const void *code, uint64_t key, uint32_t bytes, unsigned char *to);

/* gpurec_def_stack, where there is something to walk. skip: innermost Python frames
 * that are ours; driver: the event is the driver's. */
static inline uint64_t gpurec_stack(struct thread *t, int skip, bool driver)
{
	return gpurec_config.native != NATIVE_NEVER || __atomic_load_n(&gpurec_python, __ATOMIC_RELAXED) ? gpurec_def_stack(t, skip, driver) : 0;
}

/* ---- module.c: what definitions and doors need ------------------------------------ */

uint32_t gpurec_module_bytes(unsigned number);
void gpurec_module_write(unsigned number, unsigned char *to);
void gpurec_module_changed(void); /* something may have been unmapped */
void gpurec_module_forked(void);

#include "doors.h"

#endif
