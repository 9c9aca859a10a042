/*
 * thread.c - which lane is this thread's.
 *
 *   gpurec_tls.self ──► struct thread ──► lane
 *         ▲                  ▲
 *     this thread       table[i], taken[i]: every block of the process
 *
 * A block is taken by a thread at its first event and given back when the
 * thread ends, lane and all: lanes are few and dear, threads may be many and
 * short. Neither a socket nor a pidfd shows the recorder a thread's end, so the
 * next thread says who it is with a ThreadBegin.
 *
 * fork: a child has copies of all of this but must not write into its parent's
 * lanes. A page that the kernel wipes in children (MADV_WIPEONFORK, Linux 4.14)
 * holds a generation; a block counts only while it is of the present one. This
 * also covers children made by a raw clone, which atfork handlers miss, and
 * costs a load where getpid would be a system call. In a vfork child, memory and
 * so the lane are the parent's, which is asleep: nothing is to be done.
 */
#include "unwind.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct tls gpurec_tls __attribute__((tls_model("initial-exec"), visibility("hidden")));

#define RETRY_NS 100000000ull

#ifndef WIPE_ON_FORK
#define WIPE_ON_FORK 18 /* MADV_WIPEONFORK; a test makes it what no kernel knows */
#endif
#define UNKNOWN_ADVICE 12345 /* who takes that, as qemu does, takes all advice and follows none */

enum { NONE = 0, CHANGING = 1, FIRST_GENERATION = 2 };

static uint32_t *wiped;       /* the page; NULL before the first event */
static const uint32_t never = NONE;
const uint32_t *gpurec_generation = &never; /* wiped, where it is a page that the kernel wipes */
static uint32_t generations;  /* in common memory: a child goes on counting */
static uint32_t generation_here; /* where no page can be wiped: of this pid */
static int32_t pid_here;

static struct thread *table[GPUREC_MAX_LANES];
static uint32_t taken[GPUREC_MAX_LANES];
static gpurec_lane *spare[GPUREC_MAX_LANES]; /* the lane of a block that no thread has had */
static uint32_t blocks; /* of table in use */
static struct thread *parents[GPUREC_MAX_LANES]; /* blocks that are still to be unmapped */

static uint64_t missed_here; /* where no page can be wiped */

static uint64_t unique;

/* pthread's. In glibc before 2.34 they are in a library that a program without
 * threads does not have; where it comes later they are NULL here and dlsym finds
 * them, at the price of the loader's lock. */
extern int old_key_create(unsigned *, void (*)(void *)) __attribute__((weak));
extern int old_key_delete(unsigned) __attribute__((weak));
extern int old_setspecific(unsigned, const void *) __attribute__((weak));
__asm__(".symver old_key_create, pthread_key_create@" OLDEST);
__asm__(".symver old_key_delete, pthread_key_delete@" OLDEST);
__asm__(".symver old_setspecific, pthread_setspecific@" OLDEST);
static int (*set_specific)(unsigned key, const void *value);
static uint32_t key; /* and one; 0: not made yet */
#define NO_KEY UINT32_MAX

static void *map(size_t bytes)
{
	long p = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == -1 ? NULL : (void *)p;
}

/* Everything a child has from its parent is forgotten. */
static void forget_parent(void)
{
	for (unsigned i = 0; i < GPUREC_MAX_LANES; i++) {
		parents[i] = table[i];
		table[i] = NULL;
		spare[i] = NULL;
		taken[i] = 0; /* set before there is a block, too */
	}
	blocks = 0;
	gpurec_lane_reset();
	gpurec_module_forked();
}

/* Blocks and lanes are unmapped, so that a long-lived worker does not hold its
 * parent's memory; the one thread that a child has may still point to its block,
 * which its generation forbids it to use. That takes milliseconds, for which the
 * child's other threads need not wait. */
static void unmap_parents(void)
{
	for (unsigned i = 0; i < GPUREC_MAX_LANES; i++) {
		struct thread *t = parents[i];
		parents[i] = NULL;
		if (t == NULL)
			continue;
		if (t->file)
			syscall(SYS_munmap, t->file, t->file_bytes);
		syscall(SYS_munmap, t, sizeof *t);
	}
}

/* The page has its generation before anyone can see it: the first events of a
 * process may come from many threads at once, and none of them is to be lost. */
static bool make_page(void)
{
	uint32_t *page = map(4096);
	if (page == NULL)
		return false;
	uint32_t first = FIRST_GENERATION + __atomic_fetch_add(&generations, 1, __ATOMIC_RELAXED);
	if (syscall(SYS_madvise, page, 4096, WIPE_ON_FORK) != 0 || syscall(SYS_madvise, page, 4096, UNKNOWN_ADVICE) == 0) {
		syscall(SYS_munmap, page, 4096);
		page = &generation_here;
		__atomic_store_n(&pid_here, (int32_t)syscall(SYS_getpid), __ATOMIC_RELAXED);
	}
	uint32_t unset = NONE, *none = NULL; /* this one place is all threads': another's generation stays */
	__atomic_compare_exchange_n(page, &unset, first, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(&wiped, &none, page, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (page != &generation_here)
			syscall(SYS_munmap, page, 4096);
	} else if (page != &generation_here) {
		__atomic_store_n(&gpurec_generation, page, __ATOMIC_RELEASE);
	}
	return true;
}

/* The present generation; 0: it cannot be known now. */
static uint32_t generation(void)
{
	uint32_t *page = __atomic_load_n(&wiped, __ATOMIC_ACQUIRE);
	if (unlikely(page == NULL)) {
		if (!make_page())
			return 0;
		page = __atomic_load_n(&wiped, __ATOMIC_ACQUIRE);
	}
	if (unlikely(page == &generation_here)) {
		/* Loaded before the pid, which is stored before it: another thread's new
		 * generation is not mistaken for the parent's. */
		uint32_t old = __atomic_load_n(page, __ATOMIC_ACQUIRE);
		if (old >= FIRST_GENERATION && __atomic_load_n(&pid_here, __ATOMIC_RELAXED) != (int32_t)syscall(SYS_getpid))
			__atomic_compare_exchange_n(page, &old, NONE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
	uint32_t g = __atomic_load_n(page, __ATOMIC_ACQUIRE);
	if (likely(g >= FIRST_GENERATION))
		return g;
	uint64_t parents_missed = __atomic_load_n(&missed_here, __ATOMIC_RELAXED); /* before CHANGING is seen by a thread that then counts here */
	uint32_t none = NONE;
	if (!__atomic_compare_exchange_n(page, &none, CHANGING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		/* A child's threads all at once: one forgets, microseconds long; the
		 * others give it their time, but not without end. */
		for (int i = 0; i < 1000 && (g = __atomic_load_n(page, __ATOMIC_ACQUIRE)) == CHANGING; i++)
			syscall(SYS_sched_yield);
		return g >= FIRST_GENERATION ? g : 0;
	}
	forget_parent();
	__atomic_fetch_sub(&missed_here, parents_missed, __ATOMIC_RELAXED);
	__atomic_store_n(&pid_here, (int32_t)syscall(SYS_getpid), __ATOMIC_RELAXED);
	g = FIRST_GENERATION + __atomic_fetch_add(&generations, 1, __ATOMIC_RELAXED);
	__atomic_store_n(page, g, __ATOMIC_RELEASE);
	unmap_parents();
	return g;
}

/* A thread ends: its block goes to the next one. pthread calls this with the
 * thread's own memory still in place, and again should a later destructor make
 * another event. A thread that was cancelled inside a call has left its frames
 * by now, so that what they would have undone is undone here. */
static void thread_ends(void *unused)
{
	(void)unused;
	struct thread *t = gpurec_tls.self;
	bool left = gpurec_tls.flight != 0;
	gpurec_tls.depth = gpurec_tls.pool = 0;
	gpurec_tls.flight = 0;
	if (t == NULL || gpurec_tls.generation != generation())
		return;
	gpurec_tls.self = NULL;
	if (t->lane) {
		if (left)
			__atomic_fetch_add(&t->lane->dropped, 1, __ATOMIC_RELAXED); /* what the call did */
		__atomic_store_n(&t->lane->call.since, 0, __ATOMIC_RELAXED);
		gpurec_lane_left(t);
	}
	t->ndefs = 0;
	t->begun = false;
	t->clear[0] = t->clear[1] = 0;
	t->ndomains = 0;
	t->stack_of = 0;
	__atomic_store_n(&taken[t->slot], 0, __ATOMIC_RELEASE);
}

/* The key by which thread_ends is called. A process's first threads may come at
 * once: each makes one, the first to say so has made it for all. To wait for
 * another thread's is not for a guest, and not to wait left lanes with the dead. */
static uint32_t make_key(void)
{
	int (*key_create)(unsigned *, void (*)(void *)) = old_key_create, (*key_delete)(unsigned) = old_key_delete;
	set_specific = old_setspecific;
	if (!key_create || !key_delete || !set_specific) {
		void *create = gpurec_dlsym(RTLD_DEFAULT, "pthread_key_create"), *delete = gpurec_dlsym(RTLD_DEFAULT, "pthread_key_delete"),
		     *set = gpurec_dlsym(RTLD_DEFAULT, "pthread_setspecific");
		memcpy(&key_create, &create, sizeof create);
		memcpy(&key_delete, &delete, sizeof delete);
		memcpy(&set_specific, &set, sizeof set);
	}
	unsigned mine = 0;
	uint32_t made = key_create && key_delete && set_specific && key_create(&mine, thread_ends) == 0 ? mine + 1 : NO_KEY, none = 0;
	if (__atomic_compare_exchange_n(&key, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	if (made != NO_KEY)
		key_delete(mine);
	return none;
}

static void watch_end(void)
{
	uint32_t k = __atomic_load_n(&key, __ATOMIC_ACQUIRE);
	if (k == 0)
		k = make_key();
	if (k != NO_KEY)
		set_specific(k - 1, gpurec_tls.self);
}

/* Enters a block into the table, in use or with a spare lane; unmaps it when that is full. */
static struct thread *enter(struct thread *t, gpurec_lane *lane)
{
	uint32_t i = __atomic_fetch_add(&blocks, 1, __ATOMIC_ACQ_REL);
	if (i >= GPUREC_MAX_LANES) {
		syscall(SYS_munmap, t, sizeof *t);
		return NULL;
	}
	spare[i] = lane;
	if (lane == NULL) {
		t->slot = i;
		__atomic_store_n(&taken[i], 1, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&table[i], t, __ATOMIC_RELEASE);
	return t;
}

/* Their blocks need no memory yet: nothing is written into them. They are mapped
 * at once and unmapped one by one, so each is whole pages, which on aarch64 are
 * of up to 64 KiB: of part of one munmap takes all. */
void gpurec_lanes_spare(gpurec_lane *const *lanes, unsigned n)
{
	size_t page = getauxval(AT_PAGESZ), each = (sizeof(struct thread) + page - 1) & ~(page - 1);
	char *all = n ? map(n * each) : NULL;
	if (all == NULL)
		return;
	for (unsigned i = 0; i < n; i++)
		enter((struct thread *)(all + i * each), lanes[i]);
}

/* Takes a block that a thread left or that has a spare lane, or makes one. */
static struct thread *take(void)
{
	uint32_t n = __atomic_load_n(&blocks, __ATOMIC_ACQUIRE);
	if (n > GPUREC_MAX_LANES)
		n = GPUREC_MAX_LANES;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t no = 0;
		struct thread *t = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);
		if (t && __atomic_load_n(&taken[i], __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&taken[i], &no, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			gpurec_lane *lane = spare[i];
			if (lane != NULL) { /* a new block: reading it before it is written would be a second page fault */
				spare[i] = NULL;
				t->slot = i;
				gpurec_lane_take(t, lane);
			}
			return t;
		}
	}
	if (n >= GPUREC_MAX_LANES)
		return NULL;
	struct thread *t = map(sizeof *t);
	return t == NULL ? NULL : enter(t, NULL);
}

/* This thread's block, with or without a lane. */
static struct thread *mine(void)
{
	uint32_t g = generation();
	if (likely(gpurec_tls.self != NULL && gpurec_tls.generation == g && g != 0))
		return gpurec_tls.self;
	if (g == 0)
		return NULL;
	if (gpurec_tls.generation != g) {
		gpurec_tls.self = NULL;
		gpurec_tls.retry = 0;
		gpurec_tls.generation = g;
	}
	if (gpurec_tls.retry != 0 && gpurec_now() < gpurec_tls.retry)
		return NULL;
	struct thread *t = take();
	if (t == NULL) {
		gpurec_tls.retry = gpurec_now() + RETRY_NS;
		return NULL;
	}
	t->tid = (uint32_t)syscall(SYS_gettid);
	gpurec_tls.self = t;
	watch_end();
	gpurec_make_noise();
	gpurec_python_find();
	return t;
}

/* Events lost while the process has no lane. In the page that the kernel wipes,
 * so that a child begins with none and none of its own is ever forgotten. */
static uint64_t *missed(void)
{
	uint32_t *page = __atomic_load_n(&wiped, __ATOMIC_ACQUIRE);
	return page == NULL || page == &generation_here ? &missed_here : (uint64_t *)(page + 16);
}

/* Whether the table is this process's: in a child that has not yet forgotten its
 * parent, or is at it, it is not to be looked at. */
static bool table_is_ours(void)
{
	uint32_t *page = __atomic_load_n(&wiped, __ATOMIC_ACQUIRE);
	return page != NULL && __atomic_load_n(page, __ATOMIC_ACQUIRE) >= FIRST_GENERATION &&
	       (page != &generation_here || __atomic_load_n(&pid_here, __ATOMIC_RELAXED) == (int32_t)syscall(SYS_getpid));
}

/* Any lane there is. */
static gpurec_lane *any_lane(void)
{
	uint32_t n = table_is_ours() ? __atomic_load_n(&blocks, __ATOMIC_ACQUIRE) : 0;
	for (uint32_t i = 0; i < n && i < GPUREC_MAX_LANES; i++) {
		struct thread *t = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);
		gpurec_lane *lane = t ? __atomic_load_n(&t->lane, __ATOMIC_ACQUIRE) : NULL;
		if (lane)
			return lane;
	}
	return NULL;
}

void gpurec_missed(gpurec_lane *lane)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the lane is there, then what is to be counted in it is looked at */
	uint64_t *n = missed();
	if (__atomic_load_n(n, __ATOMIC_RELAXED) != 0)
		__atomic_fetch_add(&lane->dropped, __atomic_exchange_n(n, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Counts an event of a thread that has no lane, in any lane there is; before
 * there is one, for the first that will be, which may be just coming. */
static void miss(void)
{
	gpurec_lane *lane = any_lane();
	__atomic_fetch_add(lane ? &lane->dropped : missed(), 1, __ATOMIC_RELAXED);
	if (lane != NULL)
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	lane = any_lane();
	if (lane != NULL)
		gpurec_missed(lane);
}

/* What the recorder cannot know of a process without any lane. */
static void absent(int why)
{
	if (__atomic_load_n(&gpurec_off, __ATOMIC_RELAXED) || any_lane() != NULL)
		return;
	gpurec_lane_mark(why);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (any_lane() != NULL) /* another thread's, that came meanwhile and may not have seen the mark */
		gpurec_lane_mark(0);
}

/* A birth that failed is tried again at the first event 100 ms later. */
static bool born(struct thread *t)
{
	if (t->retry != 0 && gpurec_now() < t->retry)
		return false;
	if (gpurec_lane_birth(t))
		return true;
	absent(errno);
	t->retry = gpurec_now() + RETRY_NS;
	return false;
}

/*
 * A call in flight that a signal's handler left by longjmp never comes back, and
 * the thread would be silent for good. It is seen by the stack: below a call
 * that runs there are only its own callees and handlers that interrupt it, so
 * that who stands where it stood or above comes after it, and so does who stands
 * below and was not called by it. Not so on a handler's own stack, which may lie
 * anywhere, nor on a coroutine's that a handler changes to. The one can be asked
 * about (sandboxes allow it: runtimes do it in each thread); the other is taken
 * for a longjmp, and a call that then does come back finds that it is none of the
 * thread's any more (see call_back). For that, nothing of the hook's may be half
 * done, so this is only of what runs in the driver: a longjmp out of the hook's own
 * microseconds leaves the thread silent, each event counted. Of two libcudas it is
 * not known which one it was in.
 */
bool gpurec_jumped(const void *frame)
{
	struct thread *t = gpurec_tls.self;
	if (gpurec_tls.flight == 0 || gpurec_two || t == NULL)
		return false;
	stack_t own;
	int err = errno;
	bool here = syscall(SYS_sigaltstack, NULL, &own) == 0 && !(own.ss_flags & SS_ONSTACK);
	errno = err;
	if (!here || ((uintptr_t)frame < gpurec_tls.flight && !(gpurec_still(t) && gpurec_outside(t))))
		return false;
	gpurec_tls.depth = 0;
	gpurec_tls.flight = 0;
	if (gpurec_still(t)) {
		__atomic_store_n(&t->lane->call.since, 0, __ATOMIC_RELAXED);
		__atomic_fetch_add(&t->lane->dropped, 1, __ATOMIC_RELAXED); /* what the call did */
	}
	return true;
}

struct thread *gpurec_enter_slow(bool event)
{
	if (!gpurec_config.on || __atomic_load_n(&gpurec_off, __ATOMIC_RELAXED))
		return NULL;
	if (gpurec_tls.depth > 0 && !gpurec_jumped(__builtin_frame_address(0))) {
		/* In a signal's handler: there may be half an event in the ring. */
		if (event)
			miss();
		return NULL;
	}
	gpurec_tls.depth++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	int err = errno;
	struct thread *t = mine();
	if (t == NULL || (t->lane == NULL && !born(t))) {
		if (t == NULL)
			absent(ENOMEM);
		if (event)
			miss();
		gpurec_leave();
		t = NULL;
	} else {
		uint32_t epoch = __atomic_load_n(&t->lane->epoch, __ATOMIC_RELAXED);
		if (epoch != t->epoch)
			gpurec_lane_forget(t, epoch);
		t->ndefs = 0;
	}
	errno = err;
	return t;
}

bool gpurec_still(struct thread *t) { return t == gpurec_tls.self && gpurec_tls.generation == generation(); }

/* Above what other tools count up from 1, so that theirs and ours can stand side by side. */
#define OURS (1ull << 48)

uint64_t gpurec_unique(void) { return OURS + __atomic_add_fetch(&unique, 1, __ATOMIC_RELAXED); }

void *gpurec_keep(size_t bytes)
{
	static unsigned char *chunk; /* never given back */
	enum { CHUNK = 1 << 20 };

	bytes = (bytes + 15) & ~(size_t)15;
	if (bytes > CHUNK / 4)
		return map(bytes);
	for (;;) {
		unsigned char *c = __atomic_load_n(&chunk, __ATOMIC_ACQUIRE);
		if (c != NULL) {
			/* The cursor is in the chunk itself, so that the two change together. */
			uint64_t at = __atomic_fetch_add((uint64_t *)c, bytes, __ATOMIC_RELAXED);
			if (at + bytes + 16 <= CHUNK)
				return c + 16 + at;
		}
		unsigned char *fresh = map(CHUNK);
		if (fresh == NULL)
			return NULL;
		if (!__atomic_compare_exchange_n(&chunk, &c, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			syscall(SYS_munmap, fresh, CHUNK);
	}
}
