/* What a guest must leave alone, and what a thread's life leaves behind. Each
 * word of the command line does one thing; the first failure ends it with 1. */
#include "guest.h"
#include "guest_calls.h"

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
