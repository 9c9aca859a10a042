/* What other processes and NVML see: rows of fake_test.h. */
#include "fake_test.h"

struct memory_v1 {
	unsigned long long total, free, used;
};
struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};
struct process {
	unsigned pid;
	unsigned long long used;
	unsigned gpu, compute;
};

static int (*nvmlInit)(void), (*nvmlShutdown)(void);
static int (*nvmlCount)(unsigned *), (*nvmlByIndex)(unsigned, void **), (*nvmlByUUID)(const char *, void **);
static int (*nvmlUUID)(void *, char *, unsigned), (*nvmlName)(void *, char *, unsigned);
static int (*nvmlMemory)(void *, struct memory_v1 *), (*nvmlMemory2)(void *, struct memory_v2 *);
static int (*nvmlProcesses)(void *, unsigned *, struct process *);
static const char *(*nvmlError)(int);

static void nvml_load(void)
{
	static const struct {
		const char *name;
		void *slot;
	} wanted[] = {
		{"nvmlInit_v2", &nvmlInit},
		{"nvmlShutdown", &nvmlShutdown},
		{"nvmlDeviceGetCount_v2", &nvmlCount},
		{"nvmlDeviceGetHandleByIndex_v2", &nvmlByIndex},
		{"nvmlDeviceGetHandleByUUID", &nvmlByUUID},
		{"nvmlDeviceGetUUID", &nvmlUUID},
		{"nvmlDeviceGetName", &nvmlName},
		{"nvmlDeviceGetMemoryInfo", &nvmlMemory},
		{"nvmlDeviceGetMemoryInfo_v2", &nvmlMemory2},
		{"nvmlDeviceGetComputeRunningProcesses_v3", &nvmlProcesses},
		{"nvmlErrorString", &nvmlError},
	};
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	CHECK(lib);
	for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *p = dlsym(lib, wanted[i].name);

		CHECK(p);
		memcpy(wanted[i].slot, &p, sizeof p);
	}
	CHECK(dlsym(lib, "sim_used") == NULL);
}

/* nvml_used gives what NVML says is used on a device, in the newer form. */
static long long nvml_used(unsigned index)
{
	struct memory_v2 m = {.version = sizeof m | 2u << 24};
	void *dev;

	OK(nvmlByIndex(index, &dev));
	OK(nvmlMemory2(dev, &m));
	EQUAL(m.used + m.free + m.reserved, m.total);
	return (long long)m.used;
}

static void nvml_alone(void)
{
	struct memory_v1 one;
	struct memory_v2 two = {.version = sizeof two | 2u << 24}, bad = {.version = 2};
	struct process ps[4];
	char uuid[96], name[96];
	unsigned n = 4;
	void *dev, *same;

	nvml_load();
	EQUAL(nvmlCount(&n), 1);
	EQUAL(nvmlShutdown(), 1);
	OK(nvmlInit());
	OK(nvmlCount(&n));
	EQUAL(n, 3);
	EQUAL(nvmlByIndex(3, &dev), 2);
	OK(nvmlByIndex(2, &dev));
	OK(nvmlMemory(dev, &one));
	OK(nvmlMemory2(dev, &two));
	EQUAL(one.total, 2048 * MIB); /* the last of the list repeats */
	EQUAL(two.total, one.total);
	CHECK(two.reserved > 0);
	EQUAL(one.used, two.used + two.reserved);
	EQUAL(one.free, two.free);
	EQUAL(nvmlMemory2(dev, &bad), 25);
	EQUAL(nvmlMemory(&one, &one), 2);
	n = 4;
	OK(nvmlProcesses(dev, &n, ps));
	EQUAL(n, 0);
	OK(nvmlUUID(dev, uuid, sizeof uuid));
	EQUAL(nvmlUUID(dev, uuid, 10), 7);
	OK(nvmlByUUID(uuid, &same));
	CHECK(same == dev);
	EQUAL(nvmlByUUID("GPU-none", &same), 6);
	OK(nvmlName(dev, name, sizeof name));
	CHECK(strstr(name, "Simulated") != NULL);
	CHECK(strcmp(nvmlError(15), "GPU is lost") == 0);
	OK(nvmlShutdown());
	EQUAL(nvmlCount(&n), 1);
}

/* Without a state file NVML sees the driver of its own process, loaded before
 * it or after. */
static void nvml_same_process(void)
{
	CUdeviceptr p;

	nvml_load();
	OK(nvmlInit());
	EQUAL(nvml_used(0), 0);
	begin(0);
	EQUAL(nvml_used(0), 512 * MIB);
	OK(cuMemAlloc_v2(&p, 30 * MIB));
	EQUAL(nvml_used(0), 542 * MIB);
	EQUAL(nvml_used(1), 0);
}

static void nvml_lost(void)
{
	struct memory_v1 m;
	struct process ps[4];
	unsigned n = 4;
	void *dev;

	nvml_load();
	OK(nvmlInit());
	OK(nvmlByIndex(0, &dev));
	OK(nvmlMemory(dev, &m));
	OK(nvmlMemory(dev, &m));
	OK(nvmlProcesses(dev, &n, ps));
	EQUAL(nvmlMemory(dev, &m), 15);
	EQUAL(nvmlMemory(dev, &m), 15);
	EQUAL(nvmlProcesses(dev, &n, ps), 15);
	OK(nvmlByIndex(1, &dev));
	EQUAL(nvmlMemory(dev, &m), 15);
}

/* A device is joined by its UUID, whatever its ordinal. */
static void visible(const char *list, int n, const int *index)
{
	char text[41], want[96], *p = text;
	void *dev;
	int count = 0;

	setenv("CUDA_VISIBLE_DEVICES", list, 1);
	EQUAL(cuInit(0), n ? 0 : 100);
	if (n)
		OK(cuDeviceGetCount(&count));
	EQUAL(count, n);
	nvml_load();
	OK(nvmlInit());
	for (int i = 0; i < n; i++) {
		CUuuid u;

		OK(cuDeviceGetUuid_v2(&u, i));
		p = text + sprintf(text, "GPU-");
		for (int b = 0; b < 16; b++)
			p += sprintf(p, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", u.bytes[b]);
		OK(nvmlByIndex((unsigned)index[i], &dev));
		OK(nvmlUUID(dev, want, sizeof want));
		CHECK(strcmp(text, want) == 0);
	}
	unsigned all;
	OK(nvmlCount(&all));
	EQUAL(all, 3);
	if (n) {
		begin(n - 1);
		EQUAL(nvml_used((unsigned)index[n - 1]), 512 * MIB);
	}
}

static void visible_swapped(void) { visible("2,0", 2, (int[]){2, 0}); }
static void visible_none(void) { visible("", 0, NULL); }
static void visible_ends(void) { visible("0,-1,1", 1, (int[]){0}); }
static void visible_beyond(void) { visible("1,7,0", 1, (int[]){1}); }
static void visible_twice(void) { visible("1,1", 0, NULL); }
static void visible_nonsense(void) { visible("none", 0, NULL); }
static void visible_mig(void) { visible("MIG-8c0ffee0", 0, NULL); }
static void visible_surplus(void) { visible("0,1,2,0", 0, NULL); }

static void visible_uuid(void)
{
	char uuid[96];
	void *dev;

	nvml_load();
	OK(nvmlInit());
	OK(nvmlByIndex(1, &dev));
	OK(nvmlUUID(dev, uuid, sizeof uuid));
	OK(nvmlShutdown());
	uuid[14] = 0; /* a beginning is enough where it is unique */
	strcat(uuid, ",2"); /* which is of another sort, and ends the list */
	visible(uuid, 1, (int[]){1});
}

/* ---- other processes ---- */

static int ready[2], go[2];

/* spawn runs a child that takes bytes on device 0, says so, and waits until
 * go[1] is closed. */
static pid_t spawn(uint64_t bytes)
{
	CUdeviceptr p;
	char c;
	pid_t pid;

	OK(pipe(ready));
	OK(pipe(go));
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		begin(0);
		OK(cuMemAlloc_v2(&p, bytes));
		EQUAL(write(ready[1], "x", 1), 1);
		EQUAL(read(go[0], &c, 1), 0);
		_exit(0);
	}
	close(ready[1]);
	close(go[0]);
	EQUAL(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

/* probe runs a child that finds so much free and allocates with that result. */
static void probe(long long free_bytes, uint64_t bytes, CUresult want)
{
	CUdeviceptr p;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		begin(0);
		EQUAL(free_now(), free_bytes);
		EQUAL(cuMemAlloc_v2(&p, bytes), want);
		_exit(0);
	}
	EQUAL(waitpid(pid, &status, 0), pid);
	EQUAL(status, 0);
}

static void shared_state(void)
{
	struct process ps[4];
	char path[64];
	unsigned n = 4;
	void *dev;
	siginfo_t info;

	snprintf(path, sizeof path, "/tmp/fake_test.%d", (int)getpid());
	setenv("GPUREC_SIM_STATE", path, 1);
	nvml_load();
	OK(nvmlInit());
	EQUAL(nvml_used(0), 0);

	pid_t first = spawn(300 * MIB);
	int first_go = go[1];
	pid_t second = spawn(200 * MIB);
	EQUAL(nvml_used(0), 700 * MIB);
	OK(nvmlByIndex(0, &dev));
	OK(nvmlProcesses(dev, &n, ps));
	EQUAL(n, 2);
	EQUAL(ps[0].pid, first);
	EQUAL(ps[0].used, 400 * MIB);
	EQUAL(ps[1].pid, second);
	EQUAL(ps[1].used, 300 * MIB);
	n = 1;
	EQUAL(nvmlProcesses(dev, &n, ps), 7);
	EQUAL(n, 2);
	n = 0;
	EQUAL(nvmlProcesses(dev, &n, NULL), 7);

	/* They share the device, so a third finds it nearly full. */
	probe(1020 * MIB - 800 * MIB, 300 * MIB, 2);

	/* One ends by a signal: its memory is back before anybody has waited
	 * for it, and the next one to come takes over its slot. */
	OK(kill(second, SIGKILL));
	OK(waitid(P_PID, (id_t)second, &info, WEXITED | WNOWAIT));
	EQUAL(nvml_used(0), 400 * MIB);
	probe(1020 * MIB - 500 * MIB, 300 * MIB, 0);
	EQUAL(waitpid(second, NULL, 0), second);
	close(go[1]);
	close(first_go);
	EQUAL(waitpid(first, NULL, 0), first);
	EQUAL(nvml_used(0), 0);
	OK(unlink(path));
}

/* Two processes that fill a device together never hold more than it has. */
static void shared_full(void)
{
	char path[64];
	int status;
	CUdeviceptr p;

	snprintf(path, sizeof path, "/tmp/fake_test.%d", (int)getpid());
	setenv("GPUREC_SIM_STATE", path, 1);
	/* The children say when they are ready, wait until both are, say what they
	 * got, and keep it until both have. */
	int done[2];
	OK(pipe(ready));
	OK(pipe(go));
	OK(pipe(done));
	pid_t pid[2];
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			long got = 0;

			close(go[1]);
			close(done[1]);
			begin(0);
			EQUAL(write(ready[1], &got, sizeof got), sizeof got);
			EQUAL(read(go[0], &got, 1), 0);
			while (cuMemAlloc_v2(&p, 2 * MIB) == 0)
				got++;
			EQUAL(write(ready[1], &got, sizeof got), sizeof got);
			EQUAL(read(done[0], &got, 1), 0);
			_exit(0);
		}
	}
	close(ready[1]);
	long got[4];
	for (int i = 0; i < 4; i++) {
		EQUAL(read(ready[0], &got[i], sizeof got[i]), sizeof got[i]);
		if (i == 1)
			close(go[1]);
	}
	close(done[1]);
	/* Both may be refused the last piece when they ask for it at once. */
	CHECK(got[2] + got[3] <= (1020 - 200) / 2 && got[2] + got[3] >= (1020 - 200) / 2 - 1);
	for (int i = 0; i < 2; i++) {
		EQUAL(waitpid(pid[i], &status, 0), pid[i]);
		EQUAL(status, 0);
	}
	OK(unlink(path));
}

static void foreign_state(void)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof path, "/tmp/fake_test.%d", (int)getpid());
	setenv("GPUREC_SIM_STATE", path, 1);
	f = fopen(path, "w");
	CHECK(f);
	fputs("this is another program's file", f);
	fclose(f);
	EQUAL(cuInit(0), 999);
	nvml_load();
	EQUAL(nvmlInit(), 999);
	OK(unlink(path));
}

/* A program that may write no files is told so, and not ended by a signal; one
 * that finds the file at its full length has nothing to grow. */
static void limited_state(void)
{
	const struct rlimit none = {0, 0};
	char path[64];

	snprintf(path, sizeof path, "/tmp/fake_test.%d", (int)getpid());
	setenv("GPUREC_SIM_STATE", path, 1);
	OK(setrlimit(RLIMIT_FSIZE, &none));
	EQUAL(cuInit(0), 999);
	OK(unlink(path));
}

static void sized_state(void)
{
	const struct rlimit none = {0, 0};
	char path[64];

	snprintf(path, sizeof path, "/tmp/fake_test.%d", (int)getpid());
	setenv("GPUREC_SIM_STATE", path, 1);
	nvml_load();
	OK(nvmlInit());
	OK(setrlimit(RLIMIT_FSIZE, &none));
	begin(0);
	EQUAL(nvml_used(0), 512 * MIB);
	OK(unlink(path));
}

static void unreachable_state(void)
{
	EQUAL(cuInit(0), 999);
	nvml_load();
	EQUAL(nvmlInit(), 999);
}

static void forked_children(void)
{
	int status;
	CUdeviceptr p;
	pid_t pid;

	pid = fork(); /* before init: a process like any other */
	if (pid == 0) {
		begin(0);
		OK(cuMemAlloc_v2(&p, MIB));
		_exit(0);
	}
	EQUAL(waitpid(pid, &status, 0), pid);
	EQUAL(status, 0);
	begin(0);
	pid = fork(); /* after: nothing works, and a child of it fares no better */
	if (pid == 0) {
		EQUAL(cuInit(0), 3);
		EQUAL(cuMemAlloc_v2(&p, MIB), 3);
		pid = fork();
		if (pid == 0) {
			EQUAL(cuInit(0), 3);
			_exit(0);
		}
		EQUAL(waitpid(pid, &status, 0), pid);
		_exit(status != 0);
	}
	EQUAL(waitpid(pid, &status, 0), pid);
	EQUAL(status, 0);
	OK(cuMemAlloc_v2(&p, MIB));
}

#define SMALL "GPUREC_SIM_MEMORY=1GiB GPUREC_SIM_CONTEXT_BYTES=100MiB"

const struct row outside_rows[] = {
	{"nvml-alone", "GPUREC_SIM_DEVICES=3 GPUREC_SIM_MEMORY=1GiB,2GiB", nvml_alone},
	{"nvml-same-process", "", nvml_same_process},
	{"nvml-lost", "GPUREC_SIM_NVML_FAIL=3", nvml_lost},
	{"visible-swapped", "GPUREC_SIM_DEVICES=3", visible_swapped},
	{"visible-none", "GPUREC_SIM_DEVICES=3", visible_none},
	{"visible-ends-at-invalid", "GPUREC_SIM_DEVICES=3", visible_ends},
	{"visible-beyond", "GPUREC_SIM_DEVICES=3", visible_beyond},
	{"visible-twice", "GPUREC_SIM_DEVICES=3", visible_twice},
	{"visible-nonsense", "GPUREC_SIM_DEVICES=3", visible_nonsense},
	{"visible-mig", "GPUREC_SIM_DEVICES=3", visible_mig},
	{"visible-surplus", "GPUREC_SIM_DEVICES=3", visible_surplus},
	{"visible-uuid", "GPUREC_SIM_DEVICES=3", visible_uuid},
	{"shared-state", SMALL, shared_state},
	{"shared-full", SMALL, shared_full},
	{"foreign-state", "", foreign_state},
	{"limited-state", "", limited_state},
	{"sized-state", "", sized_state},
	{"unreachable-state", "GPUREC_SIM_STATE=/nonexistent/state", unreachable_state},
	{"forked-children", "", forked_children},
	{0},
};
