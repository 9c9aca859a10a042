/*
 * fork.c - forks before and after cuInit. A child forked before may use the
 * device and leaves by _exit with memory still allocated; a child forked after
 * may not, and is told that nothing is initialised.
 *
 * Shows: each process is recorded as itself, with its own events and no one
 * else's; memory of a process that ends without giving it back ends with it;
 * the child that may not use the device disturbs nobody.
 *
 * Build: cc -O2 -o fork fork.c -ldl
 * Run:   ./fork
 *
 * Each process prints one line. Exit: 0; 1 if a process saw anything else.
 */
#define _GNU_SOURCE
#include "door.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* use takes n blocks and gives back the first. */
static void use(const char *who, int n, uint64_t size)
{
	CUdeviceptr first = 0, p;
	void *ctx;

	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&ctx, 0));
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	for (int i = 0; i < n; i++) {
		need("cuMemAlloc", cu.MemAlloc(&p, size));
		first = i ? first : p;
	}
	need("cuMemFree", cu.MemFree(first));
	printf("fork %s pid=%d allocs=%d frees=1 live_bytes=%llu\n", who, (int)getpid(), n,
	       (unsigned long long)(n - 1) * size);
	fflush(stdout);
}

/* run forks, and waits for the child to end. */
static int run(void (*child)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		child();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
		fprintf(stderr, "fork: a child ended with status %#x\n", pid < 0 ? -1 : status);
		return 1;
	}
	return 0;
}

static void early(void)
{
	use("child-before-init", 3, 4 * MIB);
}

static void late(void)
{
	CUdeviceptr p;
	int init = cu.Init(0), alloc = cu.MemAlloc(&p, MIB);

	printf("fork child-after-init pid=%d init=%d alloc=%d\n", (int)getpid(), init, alloc);
	fflush(stdout);
	if (init != 3 || alloc != 3)
		_exit(1);
}

int main(void)
{
	if (door_open("procaddress", 0))
		return 1;
	if (run(early))
		return 1;
	use("parent", 5, 2 * MIB);
	return run(late) || run(late);
}
