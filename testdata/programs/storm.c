/*
 * storm.c - many threads that take and give back device memory as fast as the
 * driver lets them, each freeing some of what another one allocated, so that
 * an address freed on one thread soon comes back on another.
 *
 * Shows: that every event of every thread is recorded, or counted as lost. The
 * program makes exactly threads × events calls of cuMemAlloc and cuMemFree and
 * says so in one line; what it leaves allocated stays so until it exits.
 *
 * Build: cc -O2 -o storm storm.c -lpthread -ldl
 * Run:   ./storm [--threads 8] [--events 200000] [--live 64] [--devices 1]
 *                [--max-size 8388608] [--seed 1]
 *
 * live is how many allocations a thread holds at most. Exit: 0; 1 if the driver
 * refuses something it must not refuse; 2 for usage.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 256
#define MAX_DEVICES 16

typedef int (*getproc_fn)(const char *, void **, int, uint64_t, int *);

static int (*p_cuInit)(unsigned);
static int (*p_cuDeviceGetCount)(int *);
static int (*p_cuDevicePrimaryCtxRetain)(void **, int);
static int (*p_cuCtxSetCurrent)(void *);
static int (*p_cuMemAlloc)(uint64_t *, size_t);
static int (*p_cuMemFree)(uint64_t);

struct piece {
	uint64_t addr, size;
};

/* One mailbox per ordered pair of threads: the sender moves sent, the receiver
 * moves taken, each on a cache line of its own. It is deep enough that a thread
 * that waits for a processor finds work when it gets one. */
#define BOX_DEPTH 16
struct mailbox {
	_Alignas(64) _Atomic uint32_t sent;
	_Alignas(64) _Atomic uint32_t taken;
	_Alignas(64) struct piece piece[BOX_DEPTH];
};

struct worker {
	pthread_t thread;
	int id;
	uint64_t rng;
	struct piece *own;
	long nown, allocs, frees, failed, handed;
	int error;
};

static int threads = 8, devices = 1;
static long events = 200000, live_max = 64, max_size = 8 << 20, seed = 1;
static void *context[MAX_DEVICES];
static struct mailbox *boxes;
static struct worker workers[MAX_THREADS];
static pthread_barrier_t start;
static _Atomic long live_bytes, peak_bytes;

static uint64_t draw(struct worker *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng;
}

/* draw_size spreads sizes evenly over their logarithm, from 256 bytes up. */
static uint64_t draw_size(struct worker *w)
{
	uint64_t top = 256, size;

	for (int n = (int)(draw(w) % 16); n > 0 && top * 2 <= (uint64_t)max_size; n--)
		top *= 2;
	size = top / 2 + draw(w) % top;
	return size > (uint64_t)max_size ? (uint64_t)max_size : size;
}

/* Bytes are counted before an alloc and after a free, so that the largest sum
 * seen bounds the true peak from above. */
static int alloc_one(struct worker *w)
{
	uint64_t addr = 0, size = draw_size(w);
	long now = atomic_fetch_add(&live_bytes, (long)size) + (long)size, peak = atomic_load(&peak_bytes);

	while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
		;
	int res = p_cuMemAlloc(&addr, size);
	if (res) {
		atomic_fetch_sub(&live_bytes, (long)size);
		w->failed++;
		return res == 2 ? 0 : res;
	}
	w->own[w->nown++] = (struct piece){addr, size};
	w->allocs++;
	return 0;
}

static int free_one(struct worker *w, struct piece piece)
{
	int res = p_cuMemFree(piece.addr);

	if (!res) {
		atomic_fetch_sub(&live_bytes, (long)piece.size);
		w->frees++;
	}
	return res;
}

/* receive takes a piece another thread has sent. */
static int receive(struct worker *w, struct piece *out)
{
	int from = (int)(draw(w) % (unsigned)threads);

	for (int i = 0; i < threads; i++, from = (from + 1) % threads) {
		struct mailbox *box = &boxes[from * threads + w->id];
		uint32_t at = atomic_load_explicit(&box->taken, memory_order_relaxed);

		if (at != atomic_load_explicit(&box->sent, memory_order_acquire)) {
			*out = box->piece[at % BOX_DEPTH];
			atomic_store_explicit(&box->taken, at + 1, memory_order_release);
			return 1;
		}
	}
	return 0;
}

/* send hands one of this thread's pieces to another thread. */
static void send(struct worker *w)
{
	int to = (int)(draw(w) % (unsigned)threads);
	struct mailbox *box = &boxes[w->id * threads + to];
	uint32_t at = atomic_load_explicit(&box->sent, memory_order_relaxed);

	if (to == w->id || at - atomic_load_explicit(&box->taken, memory_order_acquire) == BOX_DEPTH)
		return;
	long i = (long)(draw(w) % (uint64_t)w->nown);
	box->piece[at % BOX_DEPTH] = w->own[i];
	w->own[i] = w->own[--w->nown];
	atomic_store_explicit(&box->sent, at + 1, memory_order_release);
	w->handed++;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct piece piece;

	w->error = p_cuCtxSetCurrent(context[w->id % devices]);
	pthread_barrier_wait(&start);
	for (long n = 0; n < events && !w->error; n++) {
		if (w->nown > 0 && draw(w) % 4 == 0)
			send(w);
		if (w->nown == 0 || (w->nown < live_max && draw(w) % 2)) {
			w->error = alloc_one(w);
		} else if (draw(w) % 2 && receive(w, &piece)) {
			w->error = free_one(w, piece);
		} else {
			long i = (long)(draw(w) % (uint64_t)w->nown);

			piece = w->own[i];
			w->own[i] = w->own[--w->nown];
			w->error = free_one(w, piece);
		}
	}
	return NULL;
}

static int find_driver(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	getproc_fn get = lib ? (getproc_fn)dlsym(lib, "cuGetProcAddress_v2") : NULL;
	static const struct {
		const char *name;
		int version;
		void *slot;
	} wanted[] = {
		{"cuInit", 2000, &p_cuInit},
		{"cuDeviceGetCount", 2000, &p_cuDeviceGetCount},
		{"cuDevicePrimaryCtxRetain", 7000, &p_cuDevicePrimaryCtxRetain},
		{"cuCtxSetCurrent", 4000, &p_cuCtxSetCurrent},
		{"cuMemAlloc", 3020, &p_cuMemAlloc},
		{"cuMemFree", 3020, &p_cuMemFree},
	};

	if (!get) {
		fprintf(stderr, "storm: %s\n", lib ? "no cuGetProcAddress_v2 in libcuda.so.1" : dlerror());
		return 1;
	}
	for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		int status = 0;

		if (get(wanted[i].name, wanted[i].slot, wanted[i].version, 0, &status) || status) {
			fprintf(stderr, "storm: no %s in the driver (status %d)\n", wanted[i].name, status);
			return 1;
		}
	}
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: storm [--threads N] [--events N] [--live N] [--devices N] [--max-size BYTES] [--seed N]\n");
	return 2;
}

int main(int argc, char **argv)
{
	long nthreads = threads, ndevices = devices;
	struct {
		const char *name;
		long *value, least, most;
	} options[] = {
		{"--threads", &nthreads, 1, MAX_THREADS}, {"--events", &events, 0, 1l << 40},
		{"--live", &live_max, 1, 1 << 20},       {"--devices", &ndevices, 1, MAX_DEVICES},
		{"--max-size", &max_size, 512, 1l << 40}, {"--seed", &seed, 1, 1l << 40},
	};

	for (int i = 1; i < argc; i += 2) {
		unsigned o = 0;
		char *end;

		while (o < sizeof options / sizeof *options && strcmp(argv[i], options[o].name) != 0)
			o++;
		if (o == sizeof options / sizeof *options || i + 1 >= argc)
			return usage();
		*options[o].value = strtol(argv[i + 1], &end, 10);
		if (*end || *options[o].value < options[o].least || *options[o].value > options[o].most)
			return usage();
	}
	threads = (int)nthreads;
	devices = (int)ndevices;

	int count = 0, res;
	if (find_driver())
		return 1;
	if ((res = p_cuInit(0)) || (res = p_cuDeviceGetCount(&count)) || count < devices) {
		fprintf(stderr, "storm: cuInit: error %d, %d devices\n", res, count);
		return 1;
	}
	for (int d = 0; d < devices; d++) {
		if ((res = p_cuDevicePrimaryCtxRetain(&context[d], d))) {
			fprintf(stderr, "storm: cuDevicePrimaryCtxRetain of device %d: error %d\n", d, res);
			return 1;
		}
	}
	size_t box_bytes = (size_t)threads * (size_t)threads * sizeof *boxes;
	boxes = aligned_alloc(64, box_bytes);
	if (boxes)
		memset(boxes, 0, box_bytes);
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int t = 0; t < threads; t++) {
		struct worker *w = &workers[t];

		w->id = t;
		w->rng = (uint64_t)seed * 0x9e3779b97f4a7c15ull + (uint64_t)t * 0xd1342543de82ef95ull + 1;
		w->own = calloc((size_t)live_max, sizeof *w->own);
		if (!boxes || !w->own || pthread_create(&w->thread, NULL, work, w)) {
			fprintf(stderr, "storm: no memory or no thread\n");
			return 1;
		}
	}
	long allocs = 0, frees = 0, failed = 0, handed = 0;
	int error = 0;
	for (int t = 0; t < threads; t++) {
		pthread_join(workers[t].thread, NULL);
		allocs += workers[t].allocs;
		frees += workers[t].frees;
		failed += workers[t].failed;
		handed += workers[t].handed;
		error = error ? error : workers[t].error;
	}
	printf("storm threads=%d events=%ld devices=%d allocs=%ld frees=%ld failed=%ld handed=%ld live=%ld live_bytes=%ld "
	       "peak_bound_bytes=%ld\n",
	       threads, threads * events, devices, allocs, frees, failed, handed, allocs - frees, live_bytes, peak_bytes);
	if (error || allocs + frees + failed != threads * events) {
		fprintf(stderr, "storm: the driver refused a call: error %d\n", error);
		return 1;
	}
	return 0;
}
