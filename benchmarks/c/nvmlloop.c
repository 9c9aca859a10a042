/*
 * nvmlloop.c - what reading NVML costs by itself: so many readings a second of
 * every device, thrown away.
 *
 *	nvmlloop LIBRARY DEVICES HERTZ SECONDS
 *
 * Prints the CPU time it took in all, in ns.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

static void *find(void *lib, const char *name)
{
	void *p = dlsym(lib, name);
	if (p == NULL) {
		fprintf(stderr, "nvmlloop: no %s\n", name);
		exit(1);
	}
	return p;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	void *lib = dlopen(argv[1], RTLD_NOW);
	if (lib == NULL) {
		fprintf(stderr, "nvmlloop: %s\n", dlerror());
		return 1;
	}
	int devices = atoi(argv[2]), hertz = atoi(argv[3]), seconds = atoi(argv[4]);
	int (*init)(void), (*handle)(unsigned, void **), (*memory)(void *, struct memory_v2 *);
	void *p = find(lib, "nvmlInit_v2");
	memcpy(&init, &p, sizeof p);
	p = find(lib, "nvmlDeviceGetHandleByIndex_v2");
	memcpy(&handle, &p, sizeof p);
	p = find(lib, "nvmlDeviceGetMemoryInfo_v2");
	memcpy(&memory, &p, sizeof p);
	void *device[64];
	if (init() != 0 || devices > 64)
		return 1;
	for (int i = 0; i < devices; i++)
		if (handle((unsigned)i, &device[i]) != 0) {
			fprintf(stderr, "nvmlloop: no device %d\n", i);
			return 1;
		}
	struct timespec next, begin, end;
	clock_gettime(CLOCK_MONOTONIC, &next);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	for (int n = 0; n < hertz * seconds; n++) {
		for (int i = 0; i < devices; i++) {
			struct memory_v2 m = {.version = (unsigned)sizeof m | 2u << 24};
			if (memory(device[i], &m) != 0)
				return 1;
		}
		next.tv_nsec += 1000000000 / hertz;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	double cpu = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
	printf("%.0f\n", cpu);
	return 0;
}
