/* A guest that others make wait. Each word of the command line is one way; the
 * second is the library made of this file with -DLIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "held.c:%d: %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

void *pair(void *unused);

#ifdef LIBRARY

/* The loader's lock is held while this waits for a thread that has its first event. */
__attribute__((constructor)) static void at_once(void)
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, pair, NULL) == 0 && pthread_join(t, NULL) == 0);
}

#else

typedef uint64_t ptr;
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(ptr *, size_t), (*cuMemFree)(ptr);
static void (*mark)(const char *);
static void *context;
static const char *library;

static void find(void *lib, const char *name, void *to)
{
	void *p = dlsym(lib, name);
	CHECK(p != NULL);
	memcpy(to, &p, sizeof p);
}

static void start(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib != NULL);
	find(lib, "cuInit", &cuInit);
	find(lib, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
	find(lib, "cuCtxSetCurrent", &cuCtxSetCurrent);
	find(lib, "cuMemAlloc_v2", &cuMemAlloc);
	find(lib, "cuMemFree_v2", &cuMemFree);
	find(RTLD_DEFAULT, "gpurec_mark", &mark);
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
}

void *pair(void *unused)
{
	ptr p;
	CHECK(cuCtxSetCurrent(context) == 0 && cuMemAlloc(&p, 4096) == 0 && cuMemFree(p) == 0);
	return unused;
}

/* ---- the loader's locks ------------------------------------------------------------- */

static pthread_barrier_t barrier;

static int hold(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)info, (void)size, (void)unused;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return 1;
}

static void *holds(void *unused)
{
	dl_iterate_phdr(hold, NULL);
	return unused;
}

/* A child of a process in which another thread held a lock, which it holds for ever. */
static void forks(int raw)
{
	pthread_t t;
	int status;
	CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&t, NULL, holds, NULL) == 0);
	pthread_barrier_wait(&barrier);
	pid_t pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	if (pid == 0) {
		alarm(60);
		mark("child");
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	pthread_barrier_wait(&barrier);
	CHECK(pthread_join(t, NULL) == 0 && status == 0);
}

static void in_fork(void) { pair(NULL), forks(0); }
static void in_clone(void) { pair(NULL), forks(1); }

static void in_constructor(void)
{
	alarm(60);
	CHECK(dlopen(library, RTLD_NOW) != NULL);
	alarm(0);
}

static void in_later_constructor(void)
{
	pair(NULL);
	in_constructor();
}

/* What went wrong is still to be told after a process's first event. */
static void error_stays(void)
{
	CHECK(dlopen("no-such-library.so", RTLD_NOW) == NULL);
	pair(NULL);
	const char *text = dlerror();
	CHECK(text != NULL && strstr(text, "no-such-library.so") != NULL);
}

/* ---- a stack below a stack ------------------------------------------------------------ */

static ucontext_t home, away;
static uintptr_t wild;
static void *(*code)(void *(*)(void *), uintptr_t);

static void coroutine(void) { code(pair, wild); }

/* Has a coroutine call code without tables whose frame pointer is wild. */
static void run_below(char *stack, size_t size)
{
	CHECK(getcontext(&away) == 0);
	away.uc_stack.ss_sp = stack;
	away.uc_stack.ss_size = size;
	away.uc_link = &home;
	makecontext(&away, coroutine, 0);
	CHECK(swapcontext(&home, &away) == 0);
}

/* Right below the guard page of its thread's stack, into which wild leads. */
static void *below(void *unused)
{
	enum { SIZE = 64 << 10 };
	pthread_attr_t a;
	void *low;
	size_t size, guard;
	CHECK(pthread_getattr_np(pthread_self(), &a) == 0 && pthread_attr_getstack(&a, &low, &size) == 0 && pthread_attr_getguardsize(&a, &guard) == 0);
	CHECK(guard != 0);
	wild = (uintptr_t)low - guard;
	char *stack = mmap((char *)wild - SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack != (char *)wild - SIZE) { /* something else is there */
		printf("no room\n");
		return unused;
	}
	wild += 256;
	run_below(stack, SIZE);
	return unused;
}

enum { APART = 64 << 10 };

/* Below a stack without a guard, twice: what lies in between can be read only before. */
static void *apart(void *stack)
{
	wild = (uintptr_t)stack + APART + 256;
	run_below(stack, APART);
	CHECK(mprotect((char *)stack + APART, APART, PROT_NONE) == 0);
	run_below(stack, APART);
	return stack;
}

static void stack_below(void *(*does)(void *))
{
#ifdef __x86_64__
	/* push rbp; mov rbp, rsi; call rdi; pop rbp; ret */
	static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};
#else
	/* stp x29, x30, [sp, -16]!; mov x29, x1; blr x0; ldp x29, x30, [sp], 16; ret */
	static const uint32_t bytes[] = {0xa9bf7bfd, 0xaa0103fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
	pthread_t t;
	pthread_attr_t a;
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *stacks = mmap(NULL, 6 * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m != MAP_FAILED && stacks != MAP_FAILED && pthread_attr_init(&a) == 0);
	if (does == apart)
		CHECK(pthread_attr_setstack(&a, stacks + 2 * APART, 4 * APART) == 0);
	memcpy(m, bytes, sizeof bytes);
	__builtin___clear_cache(m, (char *)m + sizeof bytes);
	memcpy(&code, &m, sizeof m);
	CHECK(pthread_create(&t, &a, does, stacks) == 0 && pthread_join(t, NULL) == 0);
}

static void under_guard(void) { stack_below(below); }
static void under_hole(void) { stack_below(apart); }

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*does)(void);
	} ways[] = {
		{"fork", in_fork}, {"clone", in_clone}, {"constructor", in_constructor}, {"later-constructor", in_later_constructor},
		{"error", error_stays}, {"under-guard", under_guard}, {"under-hole", under_hole},
	};
	CHECK(argc == 3);
	library = argv[2];
	start();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (strcmp(ways[i].name, argv[1]) == 0) {
			ways[i].does();
			return 0;
		}
	return 2;
}

#endif
