/*
 * hold.c - takes and gives back device memory as its standard input says, so
 * that a test can watch it through NVML:
 *
 *   + DEVICE BYTES   allocate; "- DEVICE" frees the last one of that device
 *
 * Each line is answered with "ok". Build: cc -o hold hold.c -ldl
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;

static void *lib;

static void *find(const char *name)
{
	void *p = dlsym(lib, name);
	if (!p) {
		fprintf(stderr, "hold: %s: %s\n", name, dlerror());
		exit(1);
	}
	return p;
}

static void check(const char *what, int result)
{
	if (result) {
		fprintf(stderr, "hold: %s: error %d\n", what, result);
		exit(1);
	}
}

int main(void)
{
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "hold: %s\n", dlerror());
		return 1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))find("cuDevicePrimaryCtxRetain");
	int (*current)(void *) = (int (*)(void *))find("cuCtxSetCurrent");
	int (*take)(CUdeviceptr *, size_t) = (int (*)(CUdeviceptr *, size_t))find("cuMemAlloc_v2");
	int (*give)(CUdeviceptr) = (int (*)(CUdeviceptr))find("cuMemFree_v2");
	CUdeviceptr held[16][64];
	int n[16] = {0};
	char op;
	int device;

	check("cuInit", init(0));
	while (scanf(" %c %d", &op, &device) == 2) {
		void *context;
		size_t bytes;

		check("cuDevicePrimaryCtxRetain", retain(&context, device));
		check("cuCtxSetCurrent", current(context));
		if (op == '+' && scanf("%zu", &bytes) == 1 && n[device] < 64)
			check("cuMemAlloc_v2", take(&held[device][n[device]++], bytes));
		else if (op == '-' && n[device] > 0)
			check("cuMemFree_v2", give(held[device][--n[device]]));
		else
			return 2;
		puts("ok");
		fflush(stdout);
	}
	return 0;
}
