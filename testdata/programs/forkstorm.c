/*
 * forkstorm.c - a storm of processes that come about in every way there is, each
 * of which uses the device; some are killed in the middle of it.
 *
 * Shows: every event that a process had published is recorded, of that process
 * and no other, however it was made and however it ended.
 *
 * Build: cc -O2 -o forkstorm forkstorm.c -ldl
 * Run:   ./forkstorm LOG [CHILDREN [SEED]]
 *
 * LOG is a file of one row for each child, which the child itself fills in as its
 * calls return (so it stands however the child ends). When all have ended, a line
 * each goes to stdout: KIND pid=N allocs=N frees=N failed=N killed=0|1. A child
 * that is killed may have made one call more than its row says.
 * Exit: 0; 1 if a child that was not killed saw anything it should not.
 */
#define _GNU_SOURCE
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1000, BLOCKS = 8, ENOUGH = 500, LONGEST = 300 /* seconds; then something has gone wrong */ };
#define KIB 1024ull

struct row {
	_Atomic int pid, allocs, frees, failed, done;
	int kind, calls, victim; /* the parent's: how many allocs it is to make, or before it is killed */
};

static struct row *rows;
static const char *path;
static char *self;
extern char **environ;

/* work takes and gives back blocks: as often as it is told, or until it is killed. */
static int work(struct row *r, int forever)
{
	CUdeviceptr p[BLOCKS] = {0};
	void *ctx;

	alarm(LONGEST);
	atomic_store(&r->pid, getpid());
	if (door_open(getpid() % 2 ? "dlsym" : "procaddress", 0))
		return 1;
	need("cuInit", cu.Init(0));
	need("cuDevicePrimaryCtxRetain", cu.PrimaryCtxRetain(&ctx, getpid() % 2));
	need("cuCtxSetCurrent", cu.CtxSetCurrent(ctx));
	for (int i = 0; forever || i < r->calls; i++) {
		CUdeviceptr *slot = &p[i % BLOCKS];

		if (*slot) {
			need("cuMemFree", cu.MemFree(*slot));
			atomic_fetch_add(&r->frees, 1);
		}
		need("cuMemAlloc", cu.MemAlloc(slot, 64 * KIB));
		atomic_fetch_add(&r->allocs, 1);
		while (i >= r->calls + ENOUGH) /* for one to be killed: all of it fits into a buffer that nobody reads */
			pause();
		if (i >= r->calls) {
			struct timespec ms = {0, 1000000};
			nanosleep(&ms, NULL);
		}
	}
	return 0;
}

/* alone ends a child that has no other image to run. */
static void alone(struct row *r)
{
	int status = work(r, r->victim);

	atomic_store(&r->done, 1);
	_exit(status);
}

static pid_t raw_clone(unsigned long flags) { return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0); }

static char **arguments(int i)
{
	static char number[16];
	static char *args[] = {NULL, "--child", NULL, number, NULL};

	args[0] = self;
	args[2] = (char *)path;
	snprintf(number, sizeof number, "%d", i);
	return args;
}

static int execs(void *args)
{
	execve(self, args, environ);
	_exit(127);
}

/* ---- the ways to become a process ---- */

static pid_t by_fork(int i)
{
	pid_t pid = fork();

	if (pid == 0)
		alone(&rows[i]);
	return pid;
}

/* Behind the C library's back: none of its handlers run in the child. */
static pid_t by_clone(int i)
{
	pid_t pid = raw_clone(0);

	if (pid == 0)
		alone(&rows[i]);
	return pid;
}

static pid_t by_vfork(int i)
{
	char **args = arguments(i);
	pid_t pid = vfork();

	if (pid == 0) {
		execve(self, args, environ);
		_exit(127);
	}
	return pid;
}

/* A child in its parent's memory, on a stack of its own, until it execs. */
static pid_t by_clone_vm(int i)
{
	static char stack[64 << 10] __attribute__((aligned(16)));

	return clone(execs, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, arguments(i));
}

static pid_t by_spawn(int i)
{
	pid_t pid;

	return posix_spawn(&pid, self, NULL, NULL, arguments(i), environ) ? -1 : pid;
}

/* A daemon's: its parent ends at once, and it has a session of its own. */
static pid_t by_double_fork(int i)
{
	pid_t pid = fork();

	if (pid == 0) {
		setsid();
		pid_t daemon = fork();
		if (daemon == 0)
			alone(&rows[i]);
		_exit(daemon < 0);
	}
	return pid;
}

/* The same pid uses the device, becomes another image, and that uses it too. */
static pid_t by_exec(int i)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (work(&rows[i], 0))
			_exit(1);
		execs(arguments(i));
	}
	return pid;
}

/* A worker that has used the device forks: its child is refused. */
static pid_t by_late_fork(int i)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct row *r = &rows[i];
		CUdeviceptr p;

		if (work(r, 0))
			_exit(1);
		pid_t child = fork();
		if (child == 0)
			_exit(cu.MemAlloc(&p, KIB) != 3);
		int status;
		if (waitpid(child, &status, 0) != child || status != 0)
			_exit(1);
		atomic_fetch_add(&r->failed, 1);
		while (r->victim)
			pause();
		atomic_store(&r->done, 1);
		_exit(0);
	}
	return pid;
}

static const struct {
	const char *name;
	pid_t (*begin)(int);
} kinds[] = {
	{"fork", by_fork}, {"clone", by_clone}, {"vfork", by_vfork}, {"clone-vm", by_clone_vm}, {"spawn", by_spawn},
	{"double-fork", by_double_fork}, {"exec", by_exec}, {"late-fork", by_late_fork},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void map(int flags)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);

	if (fd < 0 || ftruncate(fd, MOST * sizeof *rows) != 0 ||
	    (rows = mmap(NULL, MOST * sizeof *rows, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
}

/* ready reports whether a victim has done what it is to do before it is killed. */
static int ready(int i, int doubled)
{
	struct row *r = &rows[i];

	if (kinds[r->kind].begin == by_late_fork)
		return atomic_load(&r->failed) > 0;
	return atomic_load(&r->allocs) >= r->calls * doubled;
}

/* ended_early ends the program when a child that is waited for is no more: it
 * would be waited for in vain, and nobody would know what it died of. */
static void ended_early(int i, pid_t child)
{
	int daemon = kinds[rows[i].kind].begin == by_double_fork, pid = atomic_load(&rows[i].pid);
	siginfo_t end = {0};

	if (waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
		return;
	if (daemon && end.si_code == CLD_EXITED && end.si_status == 0 && (pid == 0 || kill(pid, 0) == 0 || atomic_load(&rows[i].done)))
		return; /* that was its parent */
	fprintf(stderr, "forkstorm: child %d (%s) ended early, by %s %d, after %d allocs\n", i, kinds[rows[i].kind].name,
		end.si_code == CLD_EXITED ? "exit status" : "signal", end.si_status, atomic_load(&rows[i].allocs));
	exit(1);
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 200, bad = 0;
	unsigned seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	static pid_t pids[MOST];
	struct timespec ms = {0, 1000000};

	self = realpath("/proc/self/exe", NULL);
	if (argc > 3 && strcmp(argv[1], "--child") == 0) {
		path = argv[2];
		map(0);
		alone(&rows[atoi(argv[3])]);
	}
	if (argc < 2 || n < 1 || n > MOST) {
		fprintf(stderr, "usage: forkstorm LOG [CHILDREN [SEED]], at most %d children\n", MOST);
		return 1;
	}
	path = argv[1];
	alarm(LONGEST);
	map(O_CREAT | O_TRUNC);
	for (int i = 0; i < n; i++) {
		rows[i].kind = i % KINDS;
		rows[i].victim = rand_r(&seed) % 3 == 0;
		rows[i].calls = 10 + rand_r(&seed) % 50;
		pids[i] = kinds[i % KINDS].begin(i);
		if (pids[i] < 0) {
			perror(kinds[i % KINDS].name);
			return 1;
		}
	}
	for (int i = 0; i < n; i++) {
		struct row *r = &rows[i];
		int daemon = kinds[r->kind].begin == by_double_fork, status = 0;

		if (r->victim) {
			while (!ready(i, kinds[r->kind].begin == by_exec ? 2 : 1)) {
				ended_early(i, pids[i]);
				nanosleep(&ms, NULL);
			}
			kill(atomic_load(&r->pid), SIGKILL);
		}
		while (daemon && !r->victim && !atomic_load(&r->done)) {
			ended_early(i, pids[i]);
			nanosleep(&ms, NULL);
		}
		if (waitpid(pids[i], &status, 0) != pids[i])
			bad = 1;
		if (r->victim && !daemon ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0)
			bad = 1;
		if (bad) {
			fprintf(stderr, "forkstorm: child %d (%s) ended with status %#x: %s\n", i, kinds[r->kind].name, status, strerror(errno));
			return 1;
		}
	}
	for (int i = 0; i < n; i++)
		printf("%s pid=%d allocs=%d frees=%d failed=%d killed=%d\n", kinds[rows[i].kind].name, atomic_load(&rows[i].pid),
		       atomic_load(&rows[i].allocs), atomic_load(&rows[i].frees), atomic_load(&rows[i].failed), rows[i].victim);
	return 0;
}
