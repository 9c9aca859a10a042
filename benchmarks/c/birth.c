/*
 * birth.c - a thread's first event, which makes its lane; a process's first, by
 * forked children; and a thread's first event where a lane of an ended thread is
 * free to take over.
 *
 *	birthbench THREADS
 *
 * Beside it stands what a lane costs that is made alone: the same system calls,
 * to a listener of its own that takes nothing in, and one touch of the header's
 * and of the ring's first page. Contenders take turns, thread by thread. Of the
 * hook's births one in a few makes lanes for the next ones, so the mean of eight
 * in a row is shown too.
 */
#define _GNU_SOURCE
#include "burst.h"

#include <fcntl.h>
#include <stddef.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_length;
static pthread_barrier_t end;

static double us(struct timespec a, struct timespec b)
{
	return (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3;
}

static void limit(void)
{
	uint64_t size = 4096 + RING;
	int fd = (int)syscall(SYS_memfd_create, "limit", 3);
	if (fd < 0 || ftruncate(fd, (off_t)size) != 0 || fcntl(fd, 1033, 7) != 0)
		abort();
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		abort();
	madvise(p, size, MADV_DONTDUMP);
	p[0] = p[4096] = 1;
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char hello[72] = {0};
	struct iovec data = {hello, sizeof hello};
	union {
		char bytes[CMSG_SPACE(sizeof fd)];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	if (connect(s, (struct sockaddr *)&address, address_length) != 0 || sendmsg(s, &m, MSG_NOSIGNAL) < 0)
		abort();
	close(s);
	close(fd);
}

static void first(void) { burst_gpurec(1); }

static void *timed(void *f)
{
	void (*run)(void);
	memcpy(&run, &f, sizeof f);
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	run();
	clock_gettime(CLOCK_MONOTONIC, &b);
	double *took = malloc(sizeof *took);
	*took = us(a, b);
	return took;
}

static void *timed_and_stay(void *f)
{
	double *took = timed(f);
	pthread_barrier_wait(&end);
	return took;
}

static void print(const char *what, const char *who, double *took)
{
	printf("Benchmark%s/who=%s 1 %.0f ns/op\n", what, who, *took * 1e3);
	free(took);
}

/* A child's first event is a process's first, with what comes once a process. */
static void children(int n)
{
	for (int i = 0; i < n; i++) {
		int pipes[2];
		double took;
		void *p;
		if (pipe(pipes) != 0)
			abort();
		pid_t pid = fork();
		if (pid == 0) {
			void (*f)(void) = first;
			memcpy(&p, &f, sizeof p);
			double *t = timed(p);
			_exit(write(pipes[1], t, sizeof *t) != sizeof *t);
		}
		if (pid < 0 || read(pipes[0], &took, sizeof took) != sizeof took || waitpid(pid, NULL, 0) != pid)
			abort();
		close(pipes[0]);
		close(pipes[1]);
		printf("BenchmarkProcessFirstEvent/who=gpurec 1 %.0f ns/op\n", took * 1e3);
	}
}

static void *thread_of(void (*f)(void))
{
	void *p;
	memcpy(&p, &f, sizeof p);
	return p;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 100;
	int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "gpurec-birthbench-%d", getpid());
	address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1));
	if (bind(l, (struct sockaddr *)&address, address_length) != 0 || listen(l, 4096) != 0) {
		perror("birthbench: listen");
		return 1;
	}
	pthread_barrier_init(&end, NULL, (unsigned)(2 * threads + 1));
	first(); /* this thread's: finding PyTorch's function is the process's cost, not a lane's */
	children(threads / 4);
	pthread_t *t = calloc((size_t)(2 * threads), sizeof *t);
	for (int i = 0; i < threads; i++) {
		pthread_create(&t[2 * i], NULL, timed_and_stay, thread_of(first));
		usleep(2000); /* one at a time: neither waits for the other, nor for the listener's queue */
		pthread_create(&t[2 * i + 1], NULL, timed_and_stay, thread_of(limit));
		usleep(1000);
	}
	pthread_barrier_wait(&end);
	double sum[2] = {0, 0};
	for (int i = 0; i < 2 * threads; i++) {
		const char *who = i % 2 ? "syscalls" : "gpurec";
		void *took;
		pthread_join(t[i], &took);
		sum[i % 2] += *(double *)took;
		if (i / 2 % 8 == 7) {
			printf("BenchmarkLaneBirthMeanOfEight/who=%s 8 %.0f ns/op\n", who, sum[i % 2] / 8 * 1e3);
			sum[i % 2] = 0;
		}
		print("LaneBirth", who, took);
	}
	for (int i = 0; i < threads; i++) {
		void *took;
		pthread_create(&t[0], NULL, timed, thread_of(first));
		pthread_join(t[0], &took);
		print("ThreadFirstEvent", "gpurec", took);
	}
	return 0;
}
