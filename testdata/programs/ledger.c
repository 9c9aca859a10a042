/*
 * ledger.c - threads that take and give back device memory, often what another
 * one took, and write down each call before and after it in a file that outlives
 * any death of theirs: a shared mapping's pages are the kernel's.
 *
 * Shows: what a recording owes. Every call that the ledger calls done must be in
 * the trace of a program that was killed, in its thread's order; the one that was
 * begun and is not done may be.
 *
 * Build: cc -O2 -o ledger ledger.c -lpthread -ldl
 * Run:   ./ledger --log FILE [--threads 4] [--ms 300] [--calls 20000]
 *                 [--pause 300] [--forks 0] [--seed 1] [--status 0]
 *
 * Runs for so many milliseconds, or until each thread has made so many calls, and
 * rests for pause microseconds on average after some of them. forks is how many
 * children the first thread forks meanwhile, each of which asks for memory, is
 * refused, and leaves. Prints the same in every run. Exit: the status asked for;
 * 1 if the driver refuses what it must not refuse; 2 for usage.
 *
 * The file, little endian, 8 bytes each unless said otherwise:
 *
 *   +0    magic, pid, threads, calls, children's places, children begun, two spare
 *   +64   a child: pid (4), done (4); as many as there are places
 *   then  a thread: tid, begun, done, five spare; and its calls, 40 bytes each:
 *         kind (4: 1 alloc, 2 free), status (4), address, size, begin, end
 *         (nanoseconds of CLOCK_MONOTONIC)
 */
#define _GNU_SOURCE
#include "door.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3152474445474c50ull /* "PLGEDGR1" */
#define MAX_THREADS 64
#define SHELF 64 /* blocks that any thread may free */

struct child {
	uint32_t pid;
	_Atomic uint32_t done;
};

struct header {
	uint64_t magic, pid, threads, calls, places;
	_Atomic uint64_t children;
	uint64_t spare[2];
};

struct entry {
	uint32_t kind;
	int32_t status;
	uint64_t address, size, begin, end;
};

struct book {
	uint64_t tid;
	_Atomic uint64_t begun, done;
	uint64_t spare[5];
	struct entry entry[];
};

_Static_assert(sizeof(struct header) == 64 && sizeof(struct entry) == 40 && sizeof(struct book) == 64, "the file's layout");

static long threads = 4, ms = 300, calls = 20000, pause_us = 300, forks, seed = 1, status;
static struct header *ledger;
static struct child *children;
static void *context;
static uint64_t end_at;
static _Atomic uint64_t shelf[SHELF];
static _Atomic int refused;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct book *book_of(long i)
{
	size_t bytes = sizeof(struct book) + (size_t)calls * sizeof(struct entry);

	return (struct book *)((char *)(children + forks) + (size_t)i * bytes);
}

/* call makes one call and writes it down: begun before it, done after it. */
static uint64_t call(struct book *b, uint32_t kind, uint64_t address, uint64_t size, int expected)
{
	uint64_t n = atomic_load_explicit(&b->begun, memory_order_relaxed);
	struct entry *e = &b->entry[n];

	e->kind = kind;
	e->address = address;
	e->size = size;
	e->begin = now();
	atomic_store_explicit(&b->begun, n + 1, memory_order_release);
	int res = kind == 1 ? cu.MemAlloc(&address, size) : cu.MemFree(address);
	e->end = now();
	e->status = res;
	e->address = address;
	atomic_store_explicit(&b->done, n + 1, memory_order_release);
	if (res != expected)
		atomic_store(&refused, res ? res : -1);
	return res ? 0 : address;
}

/* child asks for memory, which a driver that was forked refuses. It calls what a
 * child of many threads may call. */
static void fork_one(void)
{
	uint64_t place = atomic_fetch_add(&ledger->children, 1);
	pid_t pid = fork();

	if (pid == 0) {
		CUdeviceptr p;

		children[place].pid = (uint32_t)getpid();
		int res = cu.MemAlloc(&p, 4096);
		atomic_store_explicit(&children[place].done, 1, memory_order_release);
		_exit(res == 3 ? 0 : 1);
	}
	int how = 0;
	if (pid < 0 || waitpid(pid, &how, 0) != pid || how != 0)
		atomic_store(&refused, -2);
}

static void *work(void *arg)
{
	long id = (long)(intptr_t)arg, forked = 0;
	struct book *b = book_of(id);
	uint64_t rng = (uint64_t)seed * 0x9e3779b97f4a7c15ull + (uint64_t)id * 0xd1342543de82ef95ull + 1;

	b->tid = (uint64_t)syscall(SYS_gettid);
	need("cuCtxSetCurrent", cu.CtxSetCurrent(context));
	while (now() < end_at && atomic_load_explicit(&b->begun, memory_order_relaxed) + 2 <= (uint64_t)calls) {
		rng ^= rng << 13;
		rng ^= rng >> 7;
		rng ^= rng << 17;
		uint64_t p = call(b, 1, 0, 512 + rng % 100000, 0);
		uint64_t older = atomic_exchange(&shelf[rng >> 32 & (SHELF - 1)], p);
		if (older)
			call(b, 2, older, 0, 0);
		else if (rng >> 40 & 1)
			call(b, 2, 0x1000 + (rng >> 50), 0, 1); /* never taken: the driver refuses */
		if (id == 0 && forked < forks && (rng >> 44 & 15) == 0 && ++forked)
			fork_one();
		if (pause_us && (rng >> 48 & 7) == 0) {
			struct timespec t = {0, (long)(rng >> 20 & 1023) * pause_us * 2};
			nanosleep(&t, NULL);
		}
	}
	return NULL;
}

static int usage(void)
{
	fprintf(stderr, "usage: ledger --log FILE [--threads N] [--ms N] [--calls N] [--pause US] [--forks N] [--seed N] [--status N]\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	struct {
		const char *name;
		long *value, least, most;
	} options[] = {
		{"--threads", &threads, 1, MAX_THREADS}, {"--ms", &ms, 0, 1l << 30},     {"--calls", &calls, 2, 1l << 24},
		{"--pause", &pause_us, 0, 400000},       {"--forks", &forks, 0, 1 << 16}, {"--seed", &seed, 1, 1l << 62},
		{"--status", &status, 0, 124},
	};
	pthread_t thread[MAX_THREADS];

	for (int i = 1; i < argc; i += 2) {
		unsigned o = 0;
		char *end;

		if (i + 1 < argc && strcmp(argv[i], "--log") == 0) {
			path = argv[i + 1];
			continue;
		}
		while (o < sizeof options / sizeof *options && strcmp(argv[i], options[o].name) != 0)
			o++;
		if (o == sizeof options / sizeof *options || i + 1 >= argc)
			return usage();
		*options[o].value = strtol(argv[i + 1], &end, 10);
		if (*end || *options[o].value < options[o].least || *options[o].value > options[o].most)
			return usage();
	}
	if (!path)
		return usage();

	size_t bytes = sizeof *ledger + (size_t)forks * sizeof *children +
		       (size_t)threads * (sizeof(struct book) + (size_t)calls * sizeof(struct entry));
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		perror(path);
		return 1;
	}
	ledger = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ledger == MAP_FAILED) {
		perror(path);
		return 1;
	}
	children = (struct child *)(ledger + 1);
	ledger->threads = (uint64_t)threads;
	ledger->calls = (uint64_t)calls;
	ledger->places = (uint64_t)forks;
	ledger->pid = (uint64_t)getpid();
	__atomic_store_n(&ledger->magic, MAGIC, __ATOMIC_RELEASE);

	if (door_open("procaddress", 0))
		return 1;
	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&context, 0));
	end_at = now() + (uint64_t)ms * 1000000;
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i)) {
			fprintf(stderr, "ledger: no thread\n");
			return 1;
		}
	for (long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("ledger of %ld threads is complete\n", threads);
	fflush(stdout);
	fprintf(stderr, "ledger: leaves with status %ld\n", status);
	int bad = atomic_load(&refused);
	if (bad)
		fprintf(stderr, "ledger: the driver answered %d where it must not\n", bad);
	return bad ? 1 : (int)status;
}
