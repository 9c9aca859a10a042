/* Threads that are interrupted in the middle of an event: by a signal whose
 * handler makes one too, or cancelled. The word says which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
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
		usleep(2000);
		for (int i = 0; i < N; i++)
			CHECK(pthread_cancel(t[i]) == 0);
		for (int i = 0; i < N; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	pool_free = (__typeof__(pool_free))dlsym(RTLD_DEFAULT, "gpurec_pool_free");
	mark = (__typeof__(mark))dlsym(RTLD_DEFAULT, "gpurec_mark");
	CHECK(pool_free != NULL && mark != NULL);
	if (strcmp(argv[1], "handler") == 0)
		handler();
	else
		cancel();
	return 0;
}
