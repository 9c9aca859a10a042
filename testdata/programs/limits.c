/*
 * limits.c - a program in a place where something that a recorder needs is not to
 * be had, or that does to its own threads and descriptors what programs do.
 *
 * Shows: whatever the limit, the program's calls give what they give without a
 * recorder, its output and its exit status are its own; and what could not be
 * recorded is said.
 *
 * Build: cc -O2 -o limits limits.c -lpthread -ldl
 * Run:   ./limits MODE [--pairs 200]
 *
 *   none      nothing is limited
 *   nofile    no descriptor is left
 *   memlock   all memory to come is locked, and next to none may be
 *   as        no address space is left for a lane
 *   fsize     files may have 4 KiB
 *   memfd     seccomp refuses memfd_create; connect: it refuses that
 *   both      both, on all threads
 *   threads   4,000 short threads, 40 at a time
 *   closefrom closes every descriptor from 3 on, between two calls
 *   closed    closes stdin, stdout and stderr first, and writes what it would
 *             have written into the file "closed.txt"
 *   cancel    cancels threads while they allocate
 *   hog       touches 24 MiB, for a cgroup that allows little more
 *
 * Prints one line, the same in every run. Exit: 7; 1 if a call failed that must
 * not fail; 2 for usage; 3 where the limit cannot be had here.
 */
#define _GNU_SOURCE
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int pairs = 200;
static atomic_int done;

static void pair(void)
{
	CUdeviceptr p;

	need("cuMemAlloc", cu.MemAlloc(&p, 4096));
	need("cuMemFree", cu.MemFree(p));
	atomic_fetch_add(&done, 1);
}

static void many(void)
{
	for (int i = 0; i < pairs; i++)
		pair();
}

static void *ctx;

static void start(void)
{
	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&ctx, 0));
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
}

static void here(int failed)
{
	if (failed) {
		perror("limits: not here");
		exit(3);
	}
}

/* refuse makes seccomp answer two system calls with EPERM. */
static void refuse(long first, long second)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof f / sizeof *f, f};

	here(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0);
	here(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) != 0);
}

/* unprivileged gives up what lets root lock any memory. */
static void unprivileged(void)
{
	struct { uint32_t version; int pid; } head = {0x20080522, 0};
	struct { uint32_t effective, permitted, inheritable; } sets[2];

	here(syscall(SYS_capget, &head, sets) != 0);
	sets[0].effective &= ~(1u << 14); /* CAP_IPC_LOCK */
	sets[0].permitted &= ~(1u << 14);
	here(syscall(SYS_capset, &head, sets) != 0);
}

static void limit(int what, rlim_t n)
{
	struct rlimit l = {n, n};

	here(setrlimit(what, &l) != 0);
}

static size_t mapped(void)
{
	char line[256];
	size_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmSize: %zu", &kib);
	if (f)
		fclose(f);
	return kib << 10;
}

static void *short_thread(void *arg)
{
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	pair();
	return arg;
}

static void threads(void)
{
	pthread_t t[40];

	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 40; i++)
			here(pthread_create(&t[i], NULL, short_thread, NULL));
		for (int i = 0; i < 40; i++)
			pthread_join(t[i], NULL);
	}
}

static void *endless(void *arg)
{
	CUdeviceptr p;

	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	for (;;) {
		need("cuMemAlloc", cu.MemAlloc(&p, 4096));
		need("cuMemFree", cu.MemFree(p));
		pthread_testcancel();
	}
	return arg;
}

static void cancel(void)
{
	for (int i = 0; i < 200; i++) {
		pthread_t t;
		void *result;

		here(pthread_create(&t, NULL, endless, NULL));
		usleep(500);
		pthread_cancel(t);
		pthread_join(t, &result);
		if (result != PTHREAD_CANCELED)
			exit(1);
	}
	many();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	FILE *out = stdout;

	if (argc > 3 && strcmp(argv[2], "--pairs") == 0)
		pairs = atoi(argv[3]);
	if (strcmp(mode, "closed") == 0) {
		for (int fd = 0; fd < 3; fd++)
			close(fd);
	}
	if (door_open("procaddress", 0))
		return 1;
	start();
	if (strcmp(mode, "closed") == 0) {
		out = NULL;
		many();
		for (int fd = 0; fd < 3; fd++) {
			if (fcntl(fd, F_GETFD) != -1)
				return 1; /* somebody sits where nobody should */
		}
		out = fopen("closed.txt", "w");
	} else if (strcmp(mode, "none") == 0) {
		many();
	} else if (strcmp(mode, "nofile") == 0) {
		while (open("/dev/null", O_RDONLY) >= 0 && fcntl(63, F_GETFD) == -1)
			;
		limit(RLIMIT_NOFILE, 3);
		many();
	} else if (strcmp(mode, "memlock") == 0) {
		unprivileged();
		limit(RLIMIT_MEMLOCK, 64 << 10);
		here(mlockall(MCL_FUTURE));
		many();
	} else if (strcmp(mode, "as") == 0) {
		limit(RLIMIT_AS, mapped() + (128 << 10));
		many();
	} else if (strcmp(mode, "fsize") == 0) {
		limit(RLIMIT_FSIZE, 4096);
		many();
	} else if (strcmp(mode, "memfd") == 0) {
		refuse(SYS_memfd_create, SYS_memfd_create);
		many();
	} else if (strcmp(mode, "connect") == 0) {
		refuse(SYS_connect, SYS_connect);
		many();
	} else if (strcmp(mode, "both") == 0) {
		refuse(SYS_memfd_create, SYS_connect);
		many();
	} else if (strcmp(mode, "threads") == 0) {
		threads();
	} else if (strcmp(mode, "closefrom") == 0) {
		many();
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		many();
	} else if (strcmp(mode, "cancel") == 0) {
		cancel();
	} else if (strcmp(mode, "hog") == 0) {
		char *p = mmap(NULL, 24 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		here(p == MAP_FAILED);
		memset(p, 1, 24 << 20);
		many();
		threads();
	} else {
		fprintf(stderr, "limits: no mode \"%s\"\n", mode);
		return 2;
	}
	if (out == NULL)
		return 3;
	fprintf(out, "limits %s pairs=%d\n", mode, atomic_load(&done));
	return fflush(out) ? 1 : 7;
}
