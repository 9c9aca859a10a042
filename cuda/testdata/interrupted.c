/* Threads that are interrupted in the middle of an event, or of the driver's part
 * of a call: by a signal whose handler makes an event too, or does not come back,
 * or cancelled. The word says which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "gpurec.h"

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "interrupted.c:%d: %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static __typeof__(gpurec_pool_free) *pool_free;
static __typeof__(gpurec_mark) *mark;
static volatile sig_atomic_t handled;

static void in_handler(int signal)
{
	(void)signal;
	handled++;
	mark("handler");
}

/* Prints how many events were made. */
static void handler(void)
{
	int i = 0;
	const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	CHECK(signal(SIGALRM, in_handler) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (; handled < 50; i++)
		pool_free(999, 0, (uint64_t)i << 9, 0, 0);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	printf("%d\n", i + handled);
}

static void *until_cancelled(void *unused)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (uint64_t i = 1;; i++)
		pool_free(999, 0, i << 9, i, 0);
	return unused;
}

static void cancel(void)
{
	enum { N = 4 };
	for (int round = 0; round < 3; round++) {
		pthread_t t[N];
		for (int i = 0; i < N; i++)
			CHECK(pthread_create(&t[i], NULL, until_cancelled, NULL) == 0);
		nanosleep(&(struct timespec){0, 2000000}, NULL);
		for (int i = 0; i < N; i++)
			CHECK(pthread_cancel(t[i]) == 0);
		for (int i = 0; i < N; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
	}
}

/* ---- in the driver ------------------------------------------------------------ */

static void *context;
static int (*set_current)(void *), (*cuMemAlloc)(uint64_t *, size_t), (*cuMemAllocManaged)(uint64_t *, size_t, unsigned), (*cuMemFree)(uint64_t);

static void start(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib != NULL);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	set_current = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	cuMemAlloc = (int (*)(uint64_t *, size_t))dlsym(lib, "cuMemAlloc_v2");
	cuMemAllocManaged = (int (*)(uint64_t *, size_t, unsigned))dlsym(lib, "cuMemAllocManaged");
	cuMemFree = (int (*)(uint64_t))dlsym(lib, "cuMemFree_v2");
	CHECK(init(0) == 0 && retain(&context, 0) == 0 && set_current(context) == 0);
}

static void pair(void)
{
	uint64_t p;
	CHECK(cuMemAlloc(&p, 4096) == 0 && cuMemFree(p) == 0);
}

static volatile sig_atomic_t armed;

/* What the simulated driver waits with, where it is told that a function is slow:
 * so that the signal comes there and nowhere else. */
int usleep(useconds_t us)
{
	(void)us;
	if (armed && !(armed = 0))
		raise(SIGUSR1);
	return 0;
}

static void managed(void)
{
	uint64_t p;
	armed = 1;
	CHECK(cuMemAllocManaged(&p, 4096, 1) == 0 && cuMemFree(p) == 0);
}

static sigjmp_buf back;

static void jumps(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static __attribute__((noinline)) void deeper(int n)
{
	char room[256];
	memset(room, n, sizeof room);
	__asm__ volatile("" ::"r"(room) : "memory");
	if (n == 0)
		managed();
	else
		deeper(n - 1);
	__asm__ volatile("" ::"r"(room) : "memory");
}

/* 100 times a call is left at some depth, and a pair follows. */
static void jump(void)
{
	CHECK(signal(SIGUSR1, jumps) != SIG_ERR);
	for (volatile int i = 0; i < 100; i++) {
		if (sigsetjmp(back, 1) == 0)
			deeper(i % 4);
		pair();
		mark("jumped");
	}
}

/* The handler's stack lies above the one it interrupts: the call goes on. */
static void *above(void *stack)
{
	stack_t s = {.ss_sp = stack, .ss_size = 1 << 16};
	struct sigaction a = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
	CHECK(set_current(context) == 0 && sigaltstack(&s, NULL) == 0 && sigaction(SIGUSR1, &a, NULL) == 0);
	for (int i = 0; i < 10; i++)
		managed();
	return NULL;
}

static ucontext_t left, other;

static void changes(int signal)
{
	(void)signal;
	CHECK(swapcontext(&left, &other) == 0);
}

static void elsewhere(void)
{
	for (;;) {
		pair();
		CHECK(swapcontext(&other, &left) == 0);
	}
}

/* The handler changes to a coroutine, above too, which makes a pair and comes back. */
static void *coroutine(void *stack)
{
	CHECK(set_current(context) == 0 && signal(SIGUSR1, changes) != SIG_ERR && getcontext(&other) == 0);
	other.uc_stack.ss_sp = stack;
	other.uc_stack.ss_size = 1 << 16;
	makecontext(&other, elsewhere, 0);
	for (int i = 0; i < 10; i++) {
		managed();
		pair();
	}
	return NULL;
}

static void leaves(void)
{
	if (sigsetjmp(back, 1) == 0)
		managed();
	CHECK(swapcontext(&other, &left) == 0);
}

/* Calls are left on a coroutine's stack. The one that is resumed after that has its
 * stack below. */
static void *lower(void *stack)
{
	ucontext_t low;
	char *stacks = mmap(NULL, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(set_current(context) == 0 && signal(SIGUSR1, jumps) != SIG_ERR);
	for (int i = 0; i < 10; i++)
		for (int k = 0; k < 2; k++) {
			ucontext_t *to = k == 0 ? &other : &low;
			CHECK(getcontext(to) == 0);
			to->uc_stack.ss_sp = stacks + (k == 0 ? 1 << 16 : 0);
			to->uc_stack.ss_size = 1 << 16;
			to->uc_link = &left;
			makecontext(to, k == 0 ? leaves : pair, 0);
			CHECK(swapcontext(&left, to) == 0);
		}
	return stack;
}

static void ends(int signal)
{
	(void)signal;
	pthread_exit(NULL);
}

static void *ended(void *unused)
{
	CHECK(set_current(context) == 0);
	pair();
	managed();
	return unused;
}

/* The handler ends its thread, ten times. */
static void end(void)
{
	pthread_t t;
	CHECK(signal(SIGUSR1, ends) != SIG_ERR);
	for (int i = 0; i < 10; i++)
		CHECK(pthread_create(&t, NULL, ended, NULL) == 0 && pthread_join(t, NULL) == 0);
}

static void under(void *(*body)(void *))
{
	enum { STACK = 1 << 18 };
	pthread_attr_t a;
	pthread_t t;
	char *p = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && pthread_attr_init(&a) == 0 && pthread_attr_setstack(&a, p, STACK) == 0);
	CHECK(pthread_create(&t, &a, body, p + STACK) == 0 && pthread_join(t, NULL) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	const char *word = argv[1];
	pool_free = (__typeof__(pool_free))dlsym(RTLD_DEFAULT, "gpurec_pool_free");
	mark = (__typeof__(mark))dlsym(RTLD_DEFAULT, "gpurec_mark");
	CHECK(pool_free != NULL && mark != NULL);
	if (strcmp(word, "handler") == 0)
		handler();
	else if (strcmp(word, "cancel") == 0)
		cancel();
	else
		start();
	if (strcmp(word, "jump") == 0)
		jump();
	else if (strcmp(word, "above") == 0)
		under(above);
	else if (strcmp(word, "coroutine") == 0)
		under(coroutine);
	else if (strcmp(word, "end") == 0)
		end();
	else if (strcmp(word, "lower") == 0)
		lower(NULL);
	return 0;
}
