/* What a guest must leave alone, and what a thread's life leaves behind. Each
 * word of the command line does one thing; the first failure ends it with 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"
#include "gpurec.h"

/* The hook is preloaded, not linked: its functions are looked up as a program
 * that can do without them does it. */
#define PUBLIC(X) \
	X(active) X(scope_begin) X(scope_begin_on) X(scope_ask) X(scope_end) X(scope_reset) X(scope_report) X(mark) X(pool_alloc) X(pool_free) X(pool_enter) X(pool_leave)
#define POINTER(name) static __typeof__(gpurec_##name) *name##_;
PUBLIC(POINTER)

typedef uint64_t ptr;
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(ptr *, size_t), (*cuMemFree)(ptr), (*proc)(const char *, void **, int, uint64_t, int *);
static void *context;

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "guest.c:%d: %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static void *sym(void *lib, const char *name)
{
	void *p = dlsym(lib, name);
	CHECK(p != NULL);
	return p;
}

static void start(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib != NULL);
	cuInit = (int (*)(unsigned))sym(lib, "cuInit");
	cuDevicePrimaryCtxRetain = (int (*)(void **, int))sym(lib, "cuDevicePrimaryCtxRetain");
	cuCtxSetCurrent = (int (*)(void *))sym(lib, "cuCtxSetCurrent");
	cuMemAlloc = (int (*)(ptr *, size_t))sym(lib, "cuMemAlloc_v2");
	cuMemFree = (int (*)(ptr))sym(lib, "cuMemFree_v2");
	proc = (int (*)(const char *, void **, int, uint64_t, int *))sym(lib, "cuGetProcAddress_v2");
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
}

static void pair(void)
{
	ptr p;
	CHECK(cuMemAlloc(&p, 4096) == 0 && cuMemFree(p) == 0);
}

/* ---- errno, descriptors, signals --------------------------------------------- */

static void errno_kept(void)
{
	ptr p;
	errno = 4711;
	CHECK(cuMemAlloc(&p, 4096) == 0 && errno == 4711); /* the lane's birth too */
	CHECK(cuMemFree(p) == 0 && errno == 4711);
	CHECK(cuMemFree(p) != 0 && errno == 4711);
	mark_("errno");
	CHECK(errno == 4711);
	CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL || errno == 4711);
}

static int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static void no_descriptor_stays(void)
{
	int before = descriptors();
	pair();
	CHECK(descriptors() == before);
}

/* A limit on files must not end the program: SIGXFSZ would. */
static void file_limit(void)
{
	struct rlimit l = {4096, 4096};
	CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
	pair();
}

/* A limit that is lifted again, in a thread whose events never pause. */
static void file_limit_passes(void)
{
	struct rlimit l = {4096, RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
	for (int i = 0; i < 20; i++, usleep(1000))
		pair();
	l.rlim_cur = RLIM_INFINITY;
	CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
	for (int i = 0; i < 200; i++, usleep(1000))
		pair();
}

/* A limit below what a birth for several threads asks for. */
static void *one_pair(void *name);
static void file_limit_of_one(void)
{
	struct rlimit l = {2 << 20, 2 << 20};
	pthread_t t;
	CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
	pair();
	CHECK(pthread_create(&t, NULL, one_pair, NULL) == 0 && pthread_join(t, NULL) == 0);
}

/* No descriptor is to be had: the event is lost, the program is not. */
static void no_descriptors(void)
{
	struct rlimit l = {3, 3};
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	pair();
}

/* ---- dlsym ----------------------------------------------------------------------- */

static void dlsym_kept(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(dlsym(lib, "cuNoSuchFunction") == NULL && dlerror() != NULL);
	CHECK(dlsym(lib, "malloc") != NULL); /* of its dependencies */
	CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol") == NULL);
	CHECK(dlsym(lib, "cuInit") == (void *)cuInit);
	CHECK(dlsym(lib, "cuMemAlloc_v2") == (void *)cuMemAlloc);
	CHECK(dlvsym(RTLD_DEFAULT, "dlsym", OLDEST) != NULL);
	/* A function asked of cuGetProcAddress, by either name and ABI. */
	void *p = NULL, *q = NULL;
	int status = -1;
	CHECK(proc("cuMemAlloc", &p, 12000, 0, &status) == 0 && p == (void *)cuMemAlloc && status == 0);
	CHECK(proc("cuMemAlloc", &q, 2000, 0, &status) == 0 && q != NULL && q != p); /* v1, 32 bits */
	CHECK(proc("cuGetProcAddress", &q, 12000, 0, &status) == 0 && q == (void *)proc);
	CHECK(proc("cuGetProcAddress", &q, 11030, 0, &status) == 0 && q != (void *)proc);
	CHECK(proc("cuNoSuchFunction", &q, 12000, 0, &status) != 0 || status != 0);
}

/* Without a driver our exports must not look like one. */
static void no_driver(void)
{
	CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
	CHECK(dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2") == NULL);
	CHECK(dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2") == NULL);
}

/* ---- threads ------------------------------------------------------------------------ */

static void *one_pair(void *name)
{
	if (name)
		CHECK(pthread_setname_np(pthread_self(), name) == 0);
	CHECK(cuCtxSetCurrent(context) == 0);
	pair();
	return NULL;
}

static void threads(void)
{
	for (int i = 0; i < 200; i++) {
		char name[16];
		pthread_t t;
		snprintf(name, sizeof name, "worker %d", i);
		CHECK(pthread_create(&t, NULL, one_pair, name) == 0 && pthread_join(t, NULL) == 0);
	}
}

static pthread_barrier_t barrier;
static void *together(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(context) == 0);
	pair();
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void *at_once(void *unused)
{
	CHECK(cuCtxSetCurrent(context) == 0);
	pthread_barrier_wait(&barrier);
	return together(unused);
}

/* The first events of a process, all at once; then as many threads again. */
static void dawn(void)
{
	enum { N = 8 };
	pthread_t t[N];
	CHECK(pthread_barrier_init(&barrier, NULL, N) == 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++)
			CHECK(pthread_create(&t[i], NULL, at_once, NULL) == 0);
		for (int i = 0; i < N; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
	}
}

/* One after another, and all stay. */
static void *begin_and_stay(void *begun)
{
	CHECK(cuCtxSetCurrent(context) == 0);
	pair();
	CHECK(pthread_barrier_wait(begun) >= -1);
	pthread_barrier_wait(&barrier);
	pair();
	return NULL;
}

static void stay(void)
{
	enum { N = 9 };
	pthread_t t[N];
	pthread_barrier_t begun;
	CHECK(pthread_barrier_init(&barrier, NULL, N + 1) == 0 && pthread_barrier_init(&begun, NULL, 2) == 0);
	for (int i = 0; i < N; i++) {
		CHECK(pthread_create(&t[i], NULL, begin_and_stay, &begun) == 0);
		pthread_barrier_wait(&begun);
	}
	pid_t pid = fork(); /* its parent's spare lanes are not its own */
	if (pid == 0) {
		mark_("child");
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < N; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* More than there may be lanes. */
static void crowd(void)
{
	enum { N = 300 };
	pthread_t t[N];
	CHECK(pthread_barrier_init(&barrier, NULL, N) == 0);
	for (int i = 0; i < N; i++)
		CHECK(pthread_create(&t[i], NULL, together, NULL) == 0);
	for (int i = 0; i < N; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	pair();
}

/* ---- processes ----------------------------------------------------------------------- */

static void forks(void)
{
	pair();
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			mark_("child");
			_exit(0);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		mark_("parent");
	}
	if (vfork() == 0)
		_exit(0);
	mark_("after vfork");
}

static void *marks_at_once(void *unused)
{
	pthread_barrier_wait(&barrier);
	mark_("child");
	return unused;
}

/* A child's first events come from two threads at once, one of which has a crowd
 * of its parent's lanes to forget. */
static void forks_of_a_crowd(void)
{
	crowd();
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&t, NULL, marks_at_once, NULL) == 0);
			marks_at_once(NULL);
			CHECK(pthread_join(t, NULL) == 0);
			_exit(0);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

/* ---- a full lane ----------------------------------------------------------------------- */

static void full(void)
{
	enum { N = 4000 };
	static ptr p[N];
	for (int i = 0; i < N; i++)
		CHECK(cuMemAlloc(&p[i], 512) == 0);
	for (int i = 0; i < 200; i++)
		CHECK(cuMemFree(p[i]) == 0);
}

/* Records of one slot and of two and definitions, so that the ring's end is met in every way. */
static void laps(void)
{
	enum { N = 20000 };
	for (int i = 0; i < N; i++) {
		char text[300];
		pool_alloc_(999, 0, 4096 + (uint64_t)i, (uint64_t)i, i, i, i, 0, 0, 0);
		if (i % 3 == 0) {
			snprintf(text, sizeof text, "%0*d", 1 + i % 250, i);
			mark_(text);
		}
		if (i % 2 == 0)
			scope_end_(scope_begin_("known", NULL));
		pool_free_(999, 0, 4096 + (uint64_t)i, (uint64_t)i, 0);
	}
}

/* ---- the public functions ---------------------------------------------------------------- */

static void api(void)
{
	CHECK(active_() == 1);
	uint64_t a = scope_begin_("a", "dom"), b = scope_begin_("b", NULL);
	CHECK(a != 0 && b != 0 && a != b);
	scope_reset_(a);
	scope_report_(a, "sub");
	scope_end_(a);
	scope_end_(b);
	scope_end_(0);
	pool_enter_();
	pair();
	pool_alloc_(202, 0, 0x1000, 7, 500, 512, 1234, 0, 0, 0); /* a pool's in a pool's */
	pool_leave_();
	pool_alloc_(202, 0, 0x2000, 8, 1000, 1024, 99, 0, 0, 0);
	pool_alloc_(202, 0, 0, 0, 1000, 1024, -1, 2, 0, 0);
	pool_alloc_(203, 0, 0x2000, 0, 1024, 1024, -1, 0, 0, 0);
	pool_free_(202, 0, 0x2000, 8, 0);
	pool_leave_(); /* once too often */
	char big[6000];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	mark_(big);
	mark_(NULL);
}

/* ---- questions: the receiver answers them, or does not even read ------------------------- */

static int asked(uint64_t id, int how, const char *sub, gpurec_measures *m)
{
	int before = descriptors();
	errno = 4711;
	int outcome = scope_ask_(id, how, sub, m);
	CHECK(errno == 4711 && descriptors() == before);
	return outcome;
}

static void ask(void)
{
	gpurec_measures m;
	uint64_t id = scope_begin_on_(NULL, NULL, 0);
	CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_ANSWERED && m.max[0] == 1 && m.max[1] == 2 && m.max[2] == 3 && m.known == 7);
	pair();
	CHECK(asked(id, GPUREC_ASK_REPORT, "sub", &m) == GPUREC_ANSWERED);
	CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_ANSWERED);
	CHECK(asked(id, GPUREC_ASK_END, NULL, &m) == GPUREC_ANSWERED);
	CHECK(asked(0, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NOT_RECORDED);
	CHECK(asked(id, 3, NULL, &m) == GPUREC_UNKNOWN_SCOPE);
}

static uint64_t handled;
static volatile pid_t child = -1;

/* While this thread waits: events and a question of its own, and a child that
 * returns into the wait. */
static void while_waiting(int signal)
{
	gpurec_measures m;
	(void)signal;
	pair();
	handled = (uint64_t)scope_ask_(scope_begin_("h", NULL), GPUREC_ASK_ONLY, NULL, &m);
	child = fork();
	if (child == 0)
		mark_("child"); /* its first event gives its parent's lanes back */
}

/* No lane is to be had for a while, and only questions are asked then. */
static void ask_without(void)
{
	struct rlimit l;
	gpurec_measures m;
	CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
	rlim_t was = l.rlim_cur;
	l.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(asked(7, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NO_ROOM);
	CHECK(asked(7, GPUREC_ASK_END, NULL, &m) == GPUREC_NO_ROOM); /* an event: lost */
	l.rlim_cur = was;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	usleep(100000); /* until a birth is tried again */
	pair();
}

static void ask_in_vain(void)
{
	gpurec_measures m;
	uint64_t id = scope_begin_("a", NULL);
	struct sigaction act = {.sa_handler = while_waiting};
	CHECK(sigaction(SIGALRM, &act, NULL) == 0);
	ualarm(20000, 0);
	int outcome = asked(id, GPUREC_ASK_ONLY, NULL, &m), status;
	if (child == 0)
		_exit(outcome == GPUREC_NO_RECORDER ? 0 : 1);
	CHECK(child > 0 && outcome == GPUREC_TOO_LATE && handled == GPUREC_TOO_LATE);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	struct rusage before, after;
	CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
	for (int i = 0; i < 100; i++) /* nobody has looked since: not waited for again */
		CHECK(asked(id, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_TOO_LATE);
	CHECK(getrusage(RUSAGE_THREAD, &after) == 0 && after.ru_nvcsw - before.ru_nvcsw < 50);
}

static void inert(void)
{
	gpurec_measures m;
	CHECK(active_() == 0 && scope_begin_("a", NULL) == 0);
	CHECK(asked(1, GPUREC_ASK_ONLY, NULL, &m) == GPUREC_NOT_RECORDED);
	mark_("x");
	pair();
}

static void unhooked(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *q;
	int status;
	for (int i = 0; i < 3; i++) {
		CHECK(dlsym(lib, "cuMemAllocUnheard") != NULL);
		CHECK(dlsym(lib, "cuMemAllocMissing") == NULL); /* not there: nothing to say */
		CHECK(dlsym(lib, "cuMemGetAllocationGranularity") != NULL); /* takes nothing */
		proc("cuMemAllocUnheard", &q, 13000, 0, &status);
	}
}

/* ---- calls that only some programs make -------------------------------------------------- */

static void *need(const char *name)
{
	return sym(dlopen("libcuda.so.1", RTLD_NOW), name);
}
#define F(type, name) ((type)need(name))

/* What is asked of a stream that is being captured is marked; the capture stays valid. */
static void capture(void)
{
	void *stream, *graph;
	ptr p, q;
	CHECK(F(int (*)(void **, unsigned), "cuStreamCreate")(&stream, 0) == 0);
	CHECK(F(int (*)(void *, int), "cuStreamBeginCapture_v2")(stream, 0) == 0);
	CHECK(F(int (*)(ptr *, size_t, void *), "cuMemAllocAsync")(&p, 1 << 20, stream) == 0);
	CHECK(F(int (*)(ptr, void *), "cuMemFreeAsync")(p, stream) == 0);
	CHECK(F(int (*)(void *, void **), "cuStreamEndCapture")(stream, &graph) == 0);
	CHECK(F(int (*)(ptr *, size_t, void *), "cuMemAllocAsync")(&q, 2 << 20, stream) == 0);
	CHECK(F(int (*)(ptr, void *), "cuMemFreeAsync")(q, stream) == 0);
}

/* Memory of the host through the functions for virtual memory; then of a device that is not current. */
static void locations(void)
{
	struct {
		int type, handles, location, id;
		uint64_t more[2];
	} prop = {1, 0, 2, 0, {0, 0}};
	uint64_t handle;
	int (*create)(uint64_t *, size_t, const void *, uint64_t) = F(int (*)(uint64_t *, size_t, const void *, uint64_t), "cuMemCreate");
	int (*release)(uint64_t) = F(int (*)(uint64_t), "cuMemRelease");
	if (create(&handle, 2 << 20, &prop, 0) == 0) /* a driver may not offer it */
		CHECK(release(handle) == 0);
	prop.location = 1;
	prop.id = 1;
	CHECK(create(&handle, 2 << 20, &prop, 0) == 0 && release(handle) == 0);
	CHECK(release(handle) != 0);
}

/* Contexts: one of two references given up is no reset, the last one is. */
static void contexts(void)
{
	int (*retain)(void **, int) = cuDevicePrimaryCtxRetain, (*release)(int) = F(int (*)(int), "cuDevicePrimaryCtxRelease_v2");
	void *other;
	ptr p;
	CHECK(retain(&other, 1) == 0 && retain(&other, 1) == 0 && release(1) == 0);
	mark_("one reference left");
	CHECK(release(1) == 0);
	CHECK(F(int (*)(void **, unsigned, int), "cuCtxCreate_v2")(&other, 0, 1) == 0);
	CHECK(cuMemAlloc(&p, 4096) == 0);
	CHECK(F(int (*)(void *), "cuCtxDestroy_v2")(other) == 0);
	CHECK(cuCtxSetCurrent(context) == 0);
	CHECK(F(int (*)(int), "cuDevicePrimaryCtxReset_v2")(0) == 0);
}

/* Through cuGetProcAddress alone. */
static void by_proc_of(int version)
{
	int (*alloc)(ptr *, size_t), (*release)(ptr), status;
	void *a, *f;
	ptr p;
	CHECK(proc("cuMemAlloc", &a, version, 0, &status) == 0 && proc("cuMemFree", &f, version, 0, &status) == 0);
	memcpy(&alloc, &a, sizeof a);
	memcpy(&release, &f, sizeof f);
	CHECK(alloc(&p, 4096) == 0 && release(p) == 0);
}

static void by_proc(void) { by_proc_of(12000); }

/* Of a CUDA to come: what it takes nobody knows. */
static void by_newer_proc(void) { by_proc_of(99000); }

static void never_returns(void)
{
	ptr p;
	mark_("before");
	cuMemAlloc(&p, 4711);
}

/* The same text before and after a line on stdin. */
static void twice(void)
{
	mark_("twice");
	CHECK(getchar() != EOF);
	mark_("twice");
}

/* Says that it waits, inside a scope, until it is killed. */
static void hang(void)
{
	pair();
	mark_("hanging");
	pause();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"start", start}, {"pair", pair}, {"errno", errno_kept}, {"descriptors", no_descriptor_stays}, {"file-limit", file_limit},
		{"file-limit-passes", file_limit_passes}, {"no-descriptors", no_descriptors}, {"dlsym", dlsym_kept}, {"no-driver", no_driver}, {"threads", threads}, {"crowd", crowd}, {"file-limit-of-one", file_limit_of_one}, {"dawn", dawn}, {"stay", stay}, {"laps", laps},
		{"forks", forks}, {"forks-of-a-crowd", forks_of_a_crowd}, {"full", full}, {"api", api}, {"ask", ask}, {"ask-without", ask_without}, {"ask-in-vain", ask_in_vain}, {"inert", inert}, {"unhooked", unhooked}, {"hang", hang}, {"capture", capture},
		{"locations", locations}, {"contexts", contexts}, {"by-proc", by_proc}, {"by-newer-proc", by_newer_proc}, {"never-returns", never_returns}, {"twice", twice},
	};
#define LOOK_UP(name) name##_ = (__typeof__(name##_))sym(RTLD_DEFAULT, "gpurec_" #name);
	PUBLIC(LOOK_UP)
	for (int i = 1; i < argc; i++) {
		size_t j = 0;
		while (j < sizeof all / sizeof all[0] && strcmp(all[j].name, argv[i]) != 0)
			j++;
		CHECK(j < sizeof all / sizeof all[0]);
		all[j].run();
	}
	puts("fine");
	return 0;
}
